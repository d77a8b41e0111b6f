"""Compares what OpenCode 1's and OpenCode 2's faces say of the same journal.

`opencode1_normal` and `opencode2_normal` bring both to one form. `check_opencode2` plays a journal and compares the events
of OpenCode 2 with its document, a client that folds the stream with the answers of GET, and both with OpenCode 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from shim.faces.opencode2.dialects import DIALECTS
from shim.faces.opencode2.events import render
from shim.faces.opencode2.names import arguments, tool_name
from shim.faces.opencode2.wire_event import Event
from shim.lib.clock import from_rfc3339
from tests.support.opencode1_views import Conversation
from tests.support.opencode2_fold import OpenCode2Fold
from tests.support.opencode2_oracle import check_event, check_type
from tests.support.opencode2_views import OpenCode2View
from universal.events import UniversalEvent
from universal.session.changes import Change
from universal.session.model import Session
from universal.session.reducer import Reducer

Wire = dict[str, Any]
SHELL = "call_shell_"
"""How calls begin that are a person's commands."""


def opencode1_normal(messages: Iterable[Wire]) -> dict[str, list[Any]]:
    """OpenCode 1's messages (`{info, parts}`) in the form that both faces share."""
    users: list[Any] = []
    steps: list[Any] = []
    asides: list[Any] = []
    for message in messages:
        parts, info = message["parts"], message["info"]
        if info["role"] == "user":
            if any(p["type"] == "compaction" for p in parts) or all(p.get("synthetic") for p in parts if p["type"] == "text"):
                continue
            users.append("\n\n".join(p["text"] for p in parts if p["type"] == "text" and not p.get("synthetic")))
        elif info.get("summary"):
            said = [p["text"] for p in parts if p["type"] == "text"]
            asides.append("" if "error" in info else "\n".join(said))
        elif parts and str(parts[0].get("callID")).startswith(SHELL):  # a person's command: no step of a model
            state = parts[0]["state"]
            asides.append((state["input"].get("command"), state.get("output") or state.get("metadata", {}).get("output", "")))
        else:
            said = [p["text"] for p in parts if p["type"] in ("text", "reasoning")]
            tools = [_tool1(p) for p in parts if p["type"] == "tool"]
            if said or tools or "error" not in info:
                steps.append((said, tools, "error" in info))
    return {"users": users, "steps": steps, "asides": asides}


def _tool1(part: Wire) -> Any:
    name, state = tool_name(part["tool"]), part["state"]
    if name == "invalid":  # OpenCode 1.18 calls it so once it has seen that there is no such tool
        name = state["input"].get("tool", name)
    status = {"pending": "streaming"}.get(state["status"], state["status"])
    given = {} if status == "streaming" or name == "todowrite" else arguments(name, state["input"])
    output = state.get("output") if status == "completed" else None
    return (part["callID"], name, status, given, _subagent_answer(output) if name == "subagent" else output)


def _subagent_answer(output: str | None) -> str | None:
    """A subagent's answer without the tags that OpenCode 1 puts around it."""
    return output.split("<task_result>\n")[-1].split("\n</task_result>")[0] if output else output


def opencode2_normal(messages: Iterable[Wire], inbox: Iterable[Wire]) -> dict[str, list[Any]]:
    """OpenCode 2's messages in the form that both faces share. Its queued prompts are in the inbox; OpenCode 1's are messages."""
    users: list[Any] = []
    steps: list[Any] = []
    asides: list[Any] = []
    for message in messages:
        match message["type"]:
            case "user" | "synthetic" if not message["id"].split("zzz")[1:]:
                users.append((message["id"], message["text"]))
            case "assistant" if not message["content"] and "error" in message:
                pass  # there may be one more here: opened for a retry that led to nothing
            case "assistant":
                said = [p["text"] for p in message["content"] if p["type"] in ("text", "reasoning")]
                tools = [_tool2(p) for p in message["content"] if p["type"] == "tool"]
                steps.append((said, tools, "error" in message))
            case "compaction":
                asides.append(message.get("summary", ""))
            case "shell":
                asides.append((message["command"], message.get("output", {}).get("output", "")))
            case _:
                pass
    waiting = [(e["id"], e["payload"]["text"]) for e in inbox if e["type"] in ("user", "synthetic")]
    return {"users": [said for _, said in sorted([*users, *waiting])], "steps": steps, "asides": asides}


def _tool2(part: Wire) -> Any:
    state = part["state"]
    given = {} if state["status"] == "streaming" or part["name"] == "todowrite" else state["input"]
    output = state["content"][0]["text"] if state["status"] == "completed" else None
    return (part["id"], part["name"], state["status"], given, output)


def second_of(events: Sequence[UniversalEvent], agent: str) -> tuple[Session, list[Event]]:
    """A journal, as OpenCode 2 tells it."""
    reducer = Reducer(events[0].session_id, agent)
    told: list[Event] = []
    for event in events:
        at_ms = from_rfc3339(event.time)
        told += events_of(reducer, event, at_ms)
    return reducer.session, told


def events_of(reducer: Reducer, event: UniversalEvent, at_ms: int) -> list[Event]:
    """The events of OpenCode 2's log that one universal event makes."""
    return log_events(reducer.apply(event, at_ms), reducer.session, at_ms)


def log_events(changes: Sequence[Change], session: Session, at_ms: int) -> list[Event]:
    """The events of these changes that are of the session's log."""
    return [event for event in render(changes, session, at_ms, lambda: "") if event.session is not None]


def _is_imported(event: UniversalEvent) -> bool:
    item = getattr(event.data, "item", None)
    return "imported" in (getattr(item, "metadata", None) or {})


def check_opencode2(events: Sequence[UniversalEvent], agent: str, first: Conversation | None = None) -> Session:
    """Checks events and messages against the document; the folded stream must equal GET and OpenCode 1."""
    session, told = second_of(events, agent)
    live = OpenCode2View(session)
    fold = OpenCode2Fold(live.id, imported=any(map(_is_imported, events)))
    for event in told:
        check_event(event.wire())
        fold.feed(event)
        for dialect in DIALECTS.values():
            dialect.event(event)
    fold.check(live)
    check_type("SessionInfo", live.info)
    for message in live.messages.values():
        check_type("SessionMessageInfo", message)
        for dialect in DIALECTS.values():
            dialect.message(message)
    for entry in live.inbox.values():
        check_type("SessionInboxInfo", entry)
    for detail in live.closed_forms.values():
        check_type("FormDetail", detail)
    if first is not None:
        second, one = (
            opencode2_normal(live.messages.values(), live.inbox.values()),
            opencode1_normal(m.wire() for m in first.messages.values()),
        )
        assert [key for key in one if one[key] != second[key]] == [], f"{one}\n{second}"
        assert live.is_running == first.busy
    return session
