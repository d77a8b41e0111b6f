"""Converts Codex's items to tool calls: names, arguments, results, and the paths of its patches. Pure functions of one item.

Codex has no tool names on its items, so they get those of its own tools: `shell`, `apply_patch`, `update_plan`,
`request_user_input`, `spawn_agent`, `wait`, `web_search`, `view_image`; MCP tools are `mcp__SERVER__TOOL`.
Source: recordings of 0.169.0; the schema for mcpToolCall, dynamicToolCall, webSearch, imageView and imageGeneration.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from universal.agents import kit
from universal.agents.codex.wire import Msg
from universal.events import Question
from universal.items import ContentPart, FileRefPart, ImagePart, Json, ToolResultPart
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text
from universal.shell.tables import READ_SHELLS, RUNNERS

DECLINED = "A permission rule, or Codex itself, denies this."
"""A person's refusal has native's words in their place (`universal.session.reducer`)."""
BACKGROUND = "(still running in the background)"


@dataclass(frozen=True, slots=True)
class Display:
    """A call: the tool's name, its arguments, a line for a person."""

    name: str
    arguments: Msg
    title: str = ""


# --- commands -----------------------------------------------------------------------------------------


def bare_command(item: Msg) -> str:
    """The command without the shell around it (`/bin/bash -lc '...'`)."""
    command = get_text(item, "command")
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    program = posixpath.basename(words[0]) if words else ""
    if len(words) == 3 and words[1] in ("-lc", "-c") and program in READ_SHELLS:
        return words[2]
    if program in RUNNERS:  # it reads lines in its own way, so nobody knows what it runs
        return command
    actions = [get_text(obj(action), "command") for action in arr(item.get("commandActions"))]
    return actions[0] if len(actions) == 1 and actions[0] else command


def _command(item: Msg) -> Display:
    command = bare_command(item)
    arguments: Msg = {"command": command}
    if get_text(item, "cwd"):
        arguments["workdir"] = get_text(item, "cwd")
    return Display("shell", arguments, command)


def _command_result(item: Msg) -> kit.Result:
    output, status, code = as_text(item.get("aggregatedOutput")), get_text(item, "status"), item.get("exitCode")
    if status == "declined":
        return kit.Result(_output(item, output or DECLINED), {}, failed=True)
    metadata: dict[str, Json] = {"stdout": output}
    if isinstance(code, int) and not isinstance(code, bool):
        metadata["exit_code"] = code
    _duration(item, metadata)
    return kit.Result(_output(item, output), metadata, failed=status == "failed" or metadata.get("exit_code", 0) != 0)


# --- files --------------------------------------------------------------------------------------------


def unified_diff(change: Msg) -> str:
    """The unified diff of one change. Codex gives the whole text for added and deleted files, hunks for others."""
    path, kind, diff = get_text(change, "path"), get_text(obj(change.get("kind")), "type"), as_text(change.get("diff"))
    if kind == "update" or diff.startswith(("@@", "---")):
        hunks = diff.partition("\n\nMoved to: ")[0]
        hunks = hunks if hunks.endswith("\n") or not hunks else hunks + "\n"
        return (
            hunks
            if hunks.startswith("---")
            else f"--- {path}\n+++ {get_text(obj(change.get('kind')), 'move_path') or path}\n{hunks}"
        )
    lines = diff.removesuffix("\n").split("\n") if diff else []
    if kind == "delete":
        body = "".join(f"-{line}\n" for line in lines)
        return f"--- {path}\n+++ /dev/null\n" + (f"@@ -1,{len(lines)} +0,0 @@\n{body}" if lines else "")
    body = "".join(f"+{line}\n" for line in lines)
    return f"--- /dev/null\n+++ {path}\n" + (f"@@ -0,0 +1,{len(lines)} @@\n{body}" if lines else "")


def _patch(change: Msg) -> str:
    """One change in the language of Codex's own `apply_patch` tool."""
    path, kind, diff = get_text(change, "path"), get_text(obj(change.get("kind")), "type"), as_text(change.get("diff"))
    if kind == "delete":
        return f"*** Delete File: {path}\n"
    if kind == "add" and not diff.startswith("@@"):
        lines = diff.removesuffix("\n").split("\n") if diff else []
        return f"*** Add File: {path}\n" + "".join(f"+{line}\n" for line in lines)
    move = get_text(obj(change.get("kind")), "move_path")
    body = diff.partition("\n\nMoved to: ")[0]
    body = body if body.endswith("\n") or not body else body + "\n"
    return f"*** Update File: {path}\n" + (f"*** Move to: {move}\n" if move else "") + body


def changes_of(item: Msg) -> list[Msg]:
    """`changes[]` of a `fileChange`, those with a path."""
    return [change for change in map(obj, arr(item.get("changes"))) if get_text(change, "path")]


def diff_of(item: Msg) -> str:
    """All changes as one unified diff."""
    return "".join(unified_diff(change) for change in changes_of(item))


def paths_of(item: Msg) -> list[str]:
    """Every path that a `fileChange` touches, targets of moves included."""
    moves = [get_text(obj(change.get("kind")), "move_path") for change in changes_of(item)]
    return [*(get_text(change, "path") for change in changes_of(item)), *filter(None, moves)]


def _files(item: Msg) -> Display:
    changes = changes_of(item)
    patch = "*** Begin Patch\n" + "".join(map(_patch, changes)) + "*** End Patch"
    arguments: Msg = {"patch": patch}
    if changes:  # a permission for one path uses the first
        arguments["path"] = get_text(changes[0], "path")
    return Display("apply_patch", arguments, ", ".join(get_text(change, "path") for change in changes))


def _files_result(item: Msg) -> kit.Result:
    status, changes = get_text(item, "status"), changes_of(item)
    if status != "completed":
        words = DECLINED if status == "declined" else "The patch could not be applied."
        return kit.Result(_output(item, words), {}, failed=True)
    refs = tuple(
        FileRefPart(
            path=get_text(obj(change.get("kind")), "move_path") or get_text(change, "path"),
            action="write" if get_text(obj(change.get("kind")), "type") == "add" else "patch",
            diff=unified_diff(change),
        )
        for change in changes
    )
    kinds = [{"path": get_text(c, "path"), **obj(c.get("kind"))} for c in changes]
    text = "\n".join(f"{get_text(kind, 'type') or 'update'} {kind['path']}" for kind in kinds)
    return kit.Result((*_output(item, text), *refs), {"structured": {"changes": kinds}})


# --- other tools --------------------------------------------------------------------------------------


def _mcp(item: Msg) -> Display:
    server, tool = get_text(item, "server") or "server", get_text(item, "tool") or "tool"
    return Display(f"mcp__{server}__{tool}", _arguments(item), tool)


def _mcp_result(item: Msg) -> kit.Result:
    result, error = obj(item.get("result")), get_text(obj(item.get("error")), "message")
    texts, images = _blocks(arr(result.get("content")))
    metadata: dict[str, Json] = {}
    if result.get("structuredContent") is not None:
        metadata["structured"] = result["structuredContent"]
        texts = texts or [kit.dumps(result["structuredContent"])]
    _duration(item, metadata)
    failed = bool(error) or get_text(item, "status") == "failed"
    return kit.Result((*_output(item, error or "\n".join(texts)), *images), metadata, failed)


def _dynamic(item: Msg) -> Display:
    return Display(get_text(item, "tool") or "tool", _arguments(item), get_text(item, "tool"))


def _dynamic_result(item: Msg) -> kit.Result:
    texts, images = _blocks(arr(item.get("contentItems")))
    failed = item.get("success") is False or get_text(item, "status") == "failed"
    return kit.Result((*_output(item, "\n".join(texts)), *images), {}, failed)


def _blocks(blocks: list[Json]) -> tuple[list[str], list[ImagePart]]:
    """Texts and images of MCP content (`text`, `image`) or of a dynamic tool's (`inputText`, `inputImage`)."""
    texts: list[str] = []
    images: list[ImagePart] = []
    for block in map(obj, blocks):
        mime = get_text(block, "mimeType") or "image/png"
        if get_text(block, "type") == "image" and get_text(block, "data"):
            images.append(kit.image(block["data"], mime))
        elif get_text(block, "imageUrl"):
            images.append(ImagePart(path=block["imageUrl"], mime=mime))
        elif isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif block:
            texts.append(kit.dumps(block))
    return texts, images


def _search(item: Msg) -> Display:
    action = obj(item.get("action"))
    query = get_text(item, "query") or get_text(action, "query", "url", "pattern")
    query = query or ", ".join(filter(None, map(as_text, arr(action.get("queries")))))
    return Display("web_search", {"query": query}, query)


def _search_result(item: Msg) -> kit.Result:
    results = item.get("results")
    return kit.Result(_output(item, kit.dumps(results) if results else "The model has read the results."), {})


def _view(item: Msg) -> Display:
    return Display("view_image", {"path": get_text(item, "path")}, get_text(item, "path"))


def _view_result(item: Msg) -> kit.Result:
    path = get_text(item, "path")
    image = (ImagePart(path=path),) if path else ()
    return kit.Result((*_output(item, path), *image, FileRefPart(path=path, action="read")), {})


def _image_generation(item: Msg) -> Display:
    return Display("image_generation", {"prompt": get_text(item, "revisedPrompt")}, get_text(item, "revisedPrompt"))


def _generated_result(item: Msg) -> kit.Result:
    path = get_text(item, "savedPath")
    image = (ImagePart(path=path),) if path else ()
    failed = get_text(item, "status") == "failed" or bool(obj(item.get("failure")))
    return kit.Result((*_output(item, path or "No image was shown."), *image), {}, failed)


_COLLAB_NAMES: Mapping[str, str] = {"spawnAgent": "spawn_agent", "wait": "wait"}


def _collab(item: Msg) -> Display:
    tool = get_text(item, "tool")
    prompt = get_text(item, "prompt")
    if tool == "spawnAgent":
        return Display("spawn_agent", spawn_arguments(prompt, ""), prompt)
    arguments: Msg = {"receivers": arr(item.get("receiverThreadIds"))}
    if prompt:
        arguments["prompt"] = prompt
    return Display(_COLLAB_NAMES.get(tool, tool or "agents"), arguments, tool)


def _collab_result(item: Msg) -> kit.Result:
    states = obj(item.get("agentsStates"))
    failed = get_text(item, "status") == "failed"
    if get_text(item, "tool") == "spawnAgent":
        words = "The subagent could not be started." if failed else "The subagent works in the background."
        return kit.Result(_output(item, words), {} if failed else {"background": True}, failed)
    words = [get_text(obj(state), "message", "status") for state in states.values()]
    output = _output(item, "\n".join(words) or get_text(item, "status"))
    return kit.Result(output, {"structured": states} if states else {}, failed)


def spawn_arguments(prompt: str, name: str) -> Msg:
    """The arguments of `spawn_agent` in the form of OpenCode's `task`."""
    description = name or (prompt.strip().split("\n")[0][:60] if prompt.strip() else "subagent")
    return {"description": description, "prompt": prompt, "subagent_type": "general"}


def _activity(item: Msg) -> Display:
    return Display("spawn_agent", spawn_arguments("", agent_name(item)), agent_name(item))


def _activity_result(item: Msg) -> kit.Result:
    return kit.Result(_output(item, f"{agent_name(item)} works in the background."), {"background": True})


def agent_name(item: Msg) -> str:
    """The last word of a subagent's logical path (`/root/look_around`)."""
    return get_text(item, "agentPath").rpartition("/")[2] or "subagent"


def _sleep(item: Msg) -> Display:
    return Display("sleep", {"duration_ms": item.get("durationMs")}, "sleep")


def _plain_outcome(item: Msg) -> kit.Result:
    return kit.Result(_output(item, "Done."), {})


def _output(item: Msg, output: str) -> tuple[ContentPart, ...]:
    return (ToolResultPart(call_id=get_text(item, "id"), output=output),)


def _duration(item: Msg, metadata: dict[str, Json]) -> None:
    if isinstance(item.get("durationMs"), int):
        metadata["duration_ms"] = item["durationMs"]


def _arguments(item: Msg) -> Msg:
    arguments = item.get("arguments")
    return obj(arguments) if isinstance(arguments, dict) or arguments is None else {"input": arguments}


TOOLS: dict[str, tuple[Callable[[Msg], Display], Callable[[Msg], kit.Result]]] = {
    "commandExecution": (_command, _command_result),
    "fileChange": (_files, _files_result),
    "mcpToolCall": (_mcp, _mcp_result),
    "dynamicToolCall": (_dynamic, _dynamic_result),
    "webSearch": (_search, _search_result),
    "imageView": (_view, _view_result),
    "imageGeneration": (_image_generation, _generated_result),
    "collabAgentToolCall": (_collab, _collab_result),
    "subAgentActivity": (_activity, _activity_result),
    "sleep": (_sleep, _plain_outcome),
}
"""Kind of item -> the functions that make its call and its result."""

LATE_ARGUMENTS = frozenset({"webSearch", "imageGeneration"})
"""Kinds of items that have their arguments only at completion."""


# --- questions and plans ------------------------------------------------------------------------------


def read_questions(questions: Json) -> tuple[Question, ...]:
    """`questions[]` of `item/tool/requestUserInput`."""
    rows = map(obj, arr(questions))
    return tuple(kit.read_question(row, custom=row.get("isOther") is True or not arr(row.get("options"))) for row in rows)


_STEPS = {"inProgress": "in_progress", "completed": "completed", "pending": "pending"}


def read_plan(plan: Json) -> list[Msg]:
    """`plan[]` of `turn/plan/updated` as todos."""
    return [
        {"content": get_text(row, "step"), "status": _STEPS.get(get_text(row, "status"), "pending"), "priority": "medium"}
        for row in map(obj, arr(plan))
    ]
