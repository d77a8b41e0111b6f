"""The features of the matrix: what each means, as a predicate over a recording. A tick in docs/coverage.md is one that held.

Each looks at both sides: the universal facts, and what OpenCode's clients are sent of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.coverage.evidence import Evidence
from universal.events import EventType
from universal.items import FileRefPart, ItemKind, ItemStatus
from universal.limits import windows_of
from universal.turn import Input


@dataclass(frozen=True, slots=True)
class Feature:
    """A row. `means`: what a tick says; `scene`: the scene of `opencode-shim record` that shows it."""

    title: str
    means: str
    holds: Callable[[Evidence], bool]
    scene: str


def text(seen: Evidence) -> bool:
    shown = [part["text"] for part in seen.of("text")]
    return any(said and said in shown for said in seen.texts())


def tool_calls(seen: Evidence) -> bool:
    calls = [i for i in seen.items(ItemKind.TOOL_CALL) if i.status is ItemStatus.COMPLETED]
    return any(isinstance(json.loads(i.content[0].arguments), dict) and i.content[0].name for i in calls) and bool(
        seen.of("tool")
    )


def tool_results(seen: Evidence) -> bool:
    calls = {i.content[0].call_id for i in seen.items(ItemKind.TOOL_CALL)}
    results = [i for i in seen.items(ItemKind.TOOL_RESULT) if i.content[0].call_id in calls and i.content[0].output.strip()]
    return bool(results) and any(part["state"].get("output", "").strip() for part in seen.of("tool"))


def questions(seen: Evidence) -> bool:
    asked = [f.data for f in seen.facts(EventType.QUESTION_REQUESTED)]
    answered = [f.data for f in seen.facts(EventType.QUESTION_RESOLVED) if f.data.status == "answered"]
    return (
        any(len(d.options) > 1 for d in asked)
        and any(d.answers for d in answered)
        and {"question.asked", "question.replied"} <= seen.kinds()
    )


def permissions(seen: Evidence) -> bool:
    statuses = {f.data.status for f in seen.facts(EventType.PERMISSION_RESOLVED)}
    return "accept" in statuses and {"permission.asked", "permission.replied"} <= seen.kinds()


def images(seen: Evidence) -> bool:
    return any("I see 1 image(s)" in said for said in seen.texts()) and any(p.attachments for p in seen.prompts)


def files(seen: Evidence) -> bool:
    return any("the word magenta" in said for said in seen.texts()) and any(p.attachments for p in seen.prompts)


def lifecycle(seen: Evidence) -> bool:
    kinds = [type_ for type_, _ in seen.events]
    return bool(seen.native_session_id and seen.reasons) and kinds.count("session.idle") == len(seen.reasons)


def errors(seen: Evidence) -> bool:
    told = [f for f in seen.facts(EventType.ERROR) if f.data.message]
    return len(told) == 1 and seen.reasons == ("error",) and "session.error" in seen.kinds()


def reasoning(seen: Evidence) -> bool:
    told = any(part.type == "reasoning" and part.text for item in seen.answers() for part in item.content)
    return told and any(part["text"] for part in seen.of("reasoning"))


def _results(seen: Evidence) -> list[tuple[str, dict[str, object]]]:
    return [(i.content[0].output, i.metadata or {}) for i in seen.items(ItemKind.TOOL_RESULT)]


def commands(seen: Evidence) -> bool:
    """`echo out; echo err >&2; exit 3`, or another command that failed in the same way."""
    return any("out" in output and meta.get("exit_code") not in (None, 0) for output, meta in _results(seen))


def stderr(seen: Evidence) -> bool:
    return any("err" in output or "err" in str(meta.get("stderr")) for output, meta in _results(seen)) and commands(seen)


def file_changes(seen: Evidence) -> bool:
    refs = [p for i in seen.items(ItemKind.TOOL_RESULT) for p in i.content if isinstance(p, FileRefPart) and p.diff]
    changed = any("\n+" in (ref.diff or "") for ref in refs)
    diffs = [properties for type_, properties in seen.events if type_ == "session.diff" and properties["diff"]]
    return changed and bool(diffs)


def mcp(seen: Evidence) -> bool:
    calls = [(part["tool"], part["state"].get("output", "")) for part in seen.of("tool")]
    return any("echo" in name and "echo: hello" in output for name, output in calls)


def deltas(seen: Evidence) -> bool:
    native = [f for f in seen.facts(EventType.ITEM_DELTA) if not f.synthetic and f.data.part_type == "text"]
    return len(native) > 3 and "message.part.delta" in seen.kinds()


def variants(seen: Evidence) -> bool:
    wanted = [prompt.variant for prompt in seen.prompts if prompt.variant]
    return bool(wanted) and all(any(f'"{variant}"' in json.dumps(line) for line in seen.written) for variant in wanted)


def _has_metadata(seen: Evidence, key: str) -> bool:
    of_items = [i.metadata or {} for i in seen.answers()]
    of_turns = [signal.metadata or {} for signal in seen.signals()]
    return any(meta.get(key) for meta in of_items + of_turns)


def usage(seen: Evidence) -> bool:
    return _has_metadata(seen, "usage") and any(
        info.get("tokens", {}).get("input") for info in seen.infos if info["role"] == "assistant"
    )


def plan(seen: Evidence) -> bool:
    told = [windows_of(item.metadata or {}) for item in seen.statuses("limits")]
    resets = [(fact.data.details or {}).get("resets_at") for fact in seen.facts(EventType.ERROR)]
    return any(window.used == 0.92 for windows in told for window in windows) and bool(resets) and all(resets)


def cost(seen: Evidence) -> bool:
    return _has_metadata(seen, "cost")


def todos(seen: Evidence) -> bool:
    return any((i.metadata or {}).get("todos") for i in seen.statuses("todo")) and "todo.updated" in seen.kinds()


def subagents(seen: Evidence) -> bool:
    begun = [f for f in seen.facts(EventType.SESSION_STARTED) if f.child is not None]
    at_work = [f for f in seen.facts(EventType.ITEM_COMPLETED) if f.child is not None]
    cards = [part for part in seen.of("tool", "task") if (part["state"].get("metadata") or {}).get("sessionId")]
    return bool(begun and at_work and cards) and seen.sessions > 1


def retries(seen: Evidence) -> bool:
    told = [p["status"]["attempt"] for type_, p in seen.events if type_ == "session.status" and p["status"]["type"] == "retry"]
    return bool(told and seen.statuses("retry")) and seen.reasons[-1] == "completed"


def interrupt(seen: Evidence) -> bool:
    return seen.reasons[0] == "aborted"


def resume(seen: Evidence) -> bool:
    return seen.resumed and seen.reasons == ("completed",) and bool(seen.native_session_id)


def model_switch(seen: Evidence) -> bool:
    models = [((item.metadata or {}).get("model") or {}).get("model_id") for item in seen.answers()]
    return seen.reasons == ("completed",) * 3 and len(set(models)) > 1


def queue(seen: Evidence) -> bool:
    return seen.reasons == ("completed",) and any("second" in said for said in seen.texts())


def steer(seen: Evidence) -> bool:
    """The second prompt is answered in the turn of the first, after the call that ran, and stands between their answers."""
    taken = [signal for signal in seen.signals() if signal.input is Input.TAKEN]
    parents = {str(info.get("parentID")) for info in seen.infos if info["role"] == "assistant"}
    return len(taken) == 1 and seen.reasons == ("completed",) and len(parents) == 2 and "second" in seen.texts()[-1]


FEATURES: Mapping[str, Feature] = {
    "text": Feature("Text", "the answer, as a message and as a text part", text, "text"),
    "deltas": Feature("Streamed text", "the agent's own pieces, sent on as they come", deltas, "long"),
    "reasoning": Feature("Reasoning", "thinking, as a part of its own", reasoning, "reason"),
    "tool_calls": Feature("Tool calls", "name and arguments, and a card", tool_calls, "read_edit"),
    "tool_results": Feature("Tool results", "the output of each call, on its card", tool_results, "read_edit"),
    "commands": Feature("Commands: output, exit code", "of a command that fails", commands, "bash_fails"),
    "stderr": Feature("Commands: stderr", "what a command writes there", stderr, "bash_fails"),
    "file_changes": Feature("File changes with diffs", "a unified diff, and the session's diff", file_changes, "read_edit"),
    "mcp": Feature("MCP tools", "a call of a tool of an MCP server and its result", mcp, "mcp"),
    "permissions": Feature("Permissions", "asked, answered, and the tool runs", permissions, "bash_once"),
    "questions": Feature("Questions", "asked with options, answered", questions, "question"),
    "todos": Feature("Todo lists", "the agent's list as todos", todos, "todo"),
    "subagents": Feature("Subagents as sessions", "a session of its own, with its own items, and a card", subagents, "task"),
    "images": Feature("Images in prompts", "the model was sent the image", images, "image"),
    "files": Feature("Files in prompts", "the model was sent the file's text", files, "file"),
    "lifecycle": Feature("Session lifecycle", "the agent's own session id; one idle for each turn", lifecycle, "three_turns"),
    "errors": Feature("Errors", "told once, in words, and the turn ends with it", errors, "error"),
    "retries": Feature("Retries", "shown while the agent tries again, then the answer", retries, "drop"),
    "interrupt": Feature("Interrupt", "the turn ends as aborted", interrupt, "abort_tool"),
    "queue": Feature("Prompts while busy", "answered in the same turn, one idle", queue, "queue"),
    "steer": Feature("Steering", "a prompt during a turn is taken in at the agent's next step", steer, "steer"),
    "resume": Feature("Resume", "a new process goes on with the conversation", resume, "resume.2"),
    "model_switch": Feature("Model switch", "another model and back, without a new process", model_switch, "model_switch"),
    "variants": Feature("Variants (effort)", "the level of a prompt reaches the agent", variants, "reason"),
    "usage": Feature("Usage", "tokens of each step or turn", usage, "text"),
    "plan": Feature("Limits of the plan", "how far they are used; an error says when they reset", plan, "limits"),
    "cost": Feature("Cost", "USD of each step or turn", cost, "text"),
}
"""The rows, in the order of the table."""
