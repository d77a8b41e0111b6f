"""Interprets inputs and results of Claude Code's tools: content parts, diffs, todo lists, questions.

All functions are pure and look at one call. Only `Todos` has a state.
Source: recordings, and `sdk-tools.d.ts` of 2.1.197 and 2.1.330 for the tools that no recording shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from universal.agents import kit
from universal.agents.claude.wire import Msg, get_int, get_text
from universal.events import Question, QuestionOption
from universal.items import ContentPart, FileRefPart, Json, ToolResultPart
from universal.lib.diffs import unified_diff
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text

AGENT_TOOLS = frozenset({"Agent", "Task"})
"""The tool that starts a subagent: `Agent` in its calls, `Task` in `init.tools` and in older versions."""

_TITLE_KEYS = ("subject", "description", "file_path", "notebook_path", "command", "pattern", "url", "query", "skill", "prompt")


def title_of(name: str, arguments: Msg) -> str:
    """A line for a person about a call: its description, or else the tool's name."""
    return kit.title_of(name, arguments, _TITLE_KEYS)


# --- results ------------------------------------------------------------------------------------------

_REFUSED_BY_SERVER = re.compile(r"PreToolUse:\S+ hook error: (?!\[)")
"""Begins the result of a call that the server's hook has denied. A hook of the person's settings has its command in brackets."""
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,10})\b")


def read_result(name: str, arguments: Msg, block: Msg, structured: Json) -> kit.Result:
    """Read a `tool_result` block of a call of `name`.

    In: the call's arguments; the block {tool_use_id, content, is_error?}; `tool_use_result` of the line, which is
    missing in subagents (2.1.197, 2.1.330) and a plain "Error: ..." after a failure.
    """
    failed = block.get("is_error") is True
    details = obj(structured)
    output = _output(block.get("content"))
    if name in AGENT_TOOLS and details.get("status") == "completed":
        output = _output(details.get("content")) or output  # without the notes for the model around the report
    if failed and (refused := _REFUSED_BY_SERVER.match(output)):
        output = output[refused.end() :]  # the person's rule refused it, and no hook failed
    result = ToolResultPart(call_id=get_text(block, "tool_use_id"), output=output)
    content: list[ContentPart] = [result, *kit.images_of(block.get("content"))]
    if not failed:
        content.extend(_files(name, arguments, details, output))
    metadata = _metadata(name, details, output, structured, failed=failed)
    return kit.Result(tuple(content), metadata, failed)


def _output(content: Json) -> str:
    if isinstance(content, str):
        return content
    rows = [obj(row) for row in arr(content)]
    keys = {"text": "text", "tool_reference": "tool_name"}  # ToolSearch gives the names of what it loaded
    return "\n".join(as_text(row.get(keys[row["type"]])) for row in rows if as_text(row.get("type")) in keys)


def _metadata(name: str, details: Msg, output: str, structured: Json, *, failed: bool) -> dict[str, Json]:
    metadata: dict[str, Json] = {}
    if details:
        metadata["structured"] = _without_bytes(details)
    if name == "Bash":
        streams = {key: details[key] for key in ("stdout", "stderr") if isinstance(details.get(key), str)}
        if "backgroundTaskId" not in details or any(streams.values()):  # otherwise the text says where the output goes
            metadata.update(streams)
        code = _EXIT_CODE.match(output)
        if failed and code:
            metadata["exit_code"] = int(code[1])
            metadata.setdefault("stdout", output[code.end() :].removeprefix("\n"))  # stdout and stderr in one
        elif not failed and not details.keys() & {"backgroundTaskId", "returnCodeInterpretation"}:
            metadata["exit_code"] = 0  # a command in the background has none; a search without a match had 1
    if details.get("interrupted") is True or structured == "User rejected tool use":
        metadata["interrupted"] = True
    launched = name in AGENT_TOOLS and not details and output.startswith("Async agent launched")
    if launched or "backgroundTaskId" in details or details.get("status") in ("async_launched", "remote_launched"):
        metadata["background"] = True
    for source, key in (("durationMs", "duration_ms"), ("totalDurationMs", "duration_ms")):
        if isinstance(details.get(source), (int, float)):
            metadata[key] = get_int(details, source)
    if name == "TodoWrite" and arr(details.get("newTodos")):
        metadata["todos"] = read_todos(details.get("newTodos"))
    return metadata


_BYTES = ("base64", "originalFile", "original_file", "updated_file")
"""Keys of whole files in structured results, which repeat the content parts and the diff."""


def _without_bytes(details: Msg) -> Msg:
    fields = {key: value for key, value in details.items() if key not in _BYTES}
    if "base64" in obj(fields.get("file")):
        fields["file"] = {key: value for key, value in obj(fields["file"]).items() if key not in _BYTES}
    return fields


# --- files and diffs ----------------------------------------------------------------------------------


def _files(name: str, arguments: Msg, details: Msg, output: str) -> Iterable[FileRefPart]:
    path = get_text(arguments, "file_path", "notebook_path") or get_text(details, "filePath", "notebook_path")
    if not path:
        return
    if name == "Read":
        yield FileRefPart(path=path, action="read")
    elif name in ("Edit", "MultiEdit"):
        yield FileRefPart(path=path, action="patch", diff=patch_text(path, details) or input_diff(name, arguments))
    elif name == "NotebookEdit":
        before, after = get_text(details, "original_file"), get_text(details, "updated_file")
        yield FileRefPart(path=path, action="patch", diff=unified_diff(path, before, after) if after else None)
    elif name == "Write":
        created = details.get("type") == "create" or (not details and output.startswith("File created"))
        diff = unified_diff(path, "", get_text(arguments, "content"), created=True) if created else patch_text(path, details)
        yield FileRefPart(path=path, action="write", diff=diff or None)


def patch_text(path: str, details: Msg) -> str | None:
    """`structuredPatch` as a unified diff, or None."""
    hunks = [obj(hunk) for hunk in arr(details.get("structuredPatch"))]
    if not hunks:
        return None
    lines = [f"--- {path}", f"+++ {path}"]
    for hunk in hunks:
        old, new = (f"{get_int(hunk, f'{side}Start')},{get_int(hunk, f'{side}Lines')}" for side in ("old", "new"))
        lines.append(f"@@ -{old} +{new} @@")
        lines.extend(as_text(line) for line in arr(hunk.get("lines")))
    return "\n".join(lines) + "\n"


def input_diff(name: str, arguments: Msg) -> str | None:
    """The change that a call would make, as a unified diff, if its input shows it, else None.

    The file is not read. For Edit and MultiEdit, line numbers count from the replaced text. For Write, the whole content is shown
    as added.
    """
    path = get_text(arguments, "file_path", "notebook_path")
    if name == "Edit":
        edits = [arguments]
    elif name == "MultiEdit":
        edits = [obj(edit) for edit in arr(arguments.get("edits"))]
    elif name == "Write":
        edits = [{"new_string": arguments.get("content")}]
    else:
        return None
    hunks = [(_whole_lines(e.get("old_string")), _whole_lines(e.get("new_string"))) for e in edits]
    diffs = [unified_diff(path, old, new).split("\n", 2)[2] for old, new in hunks if old != new]
    return f"--- {path}\n+++ {path}\n{''.join(diffs)}" if path and diffs else None


def _whole_lines(text: Json) -> str:
    """The text with a newline at its end, because a replaced piece is not the end of a file."""
    piece = as_text(text)
    return piece if piece.endswith("\n") or not piece else piece + "\n"


# --- todo lists ---------------------------------------------------------------------------------------

_STATUSES = ("pending", "in_progress", "completed", "cancelled")
_TASK_CREATED = re.compile(r"Task #(\S+) created")


def _todo(content: str, status: str) -> dict[str, Json]:
    return {"content": content, "status": status if status in _STATUSES else "pending", "priority": "medium"}


def read_todos(todos: Json) -> list[dict[str, Json]]:
    """TodoWrite's list in the form of the schema. Claude has no priorities, so all are `medium`."""
    rows = [obj(row) for row in arr(todos)]
    return [_todo(get_text(row, "content"), get_text(row, "status")) for row in rows if get_text(row, "content")]


@dataclass(slots=True)
class Todos:
    """The todo list of TaskCreate, TaskUpdate and TaskList, which each have only a part, in order of creation.

    A resumed conversation begins with an empty list, because Claude shows the old one only in TaskList.
    """

    tasks: dict[str, dict[str, Json]] = field(default_factory=dict[str, "dict[str, Json]"])

    def after(self, name: str, arguments: Msg, details: Msg, output: str) -> list[dict[str, Json]] | None:
        """The whole list after a successful call, or None for a tool that changes no list."""
        if name == "TodoWrite":
            return read_todos(details.get("newTodos") or arguments.get("todos"))
        if name == "TaskCreate":
            task = obj(details.get("task"))
            created = _TASK_CREATED.match(output)
            key = get_text(task, "id") or (created[1] if created else "")
            if not key:
                return None
            self.tasks[key] = _todo(get_text(task, "subject") or get_text(arguments, "subject"), "pending")
        elif name == "TaskUpdate":
            self._update(get_text(arguments, "taskId"), arguments)
        elif name == "TaskList" and isinstance(details.get("tasks"), list):
            rows = [obj(row) for row in arr(details["tasks"])]
            self.tasks = {
                get_text(row, "id"): _todo(get_text(row, "subject"), get_text(row, "status"))
                for row in rows
                if get_text(row, "id")
            }
        else:
            return None
        return list(self.tasks.values())

    def _update(self, key: str, change: Msg) -> None:
        if not key:
            return
        if change.get("status") == "deleted":
            self.tasks.pop(key, None)
            return
        old = self.tasks.get(key, _todo(f"Task #{key}", "pending"))
        content = get_text(change, "subject") or as_text(old["content"])
        self.tasks[key] = _todo(content, get_text(change, "status") or as_text(old["status"]))


# --- questions ----------------------------------------------------------------------------------------

PLAN_OPTIONS = (
    QuestionOption(label="Yes", description="Leave plan mode and start"),
    QuestionOption(label="No", description="Keep planning"),
)


def read_questions(name: str, arguments: Msg, plan: str) -> tuple[Question, ...]:
    """The questions of AskUserQuestion, or the one that ExitPlanMode stands for."""
    if name == "ExitPlanMode":
        return (kit.plan_question(plan, PLAN_OPTIONS, {PLAN_OPTIONS[1].label}, custom=True),)
    rows = [obj(row) for row in arr(arguments.get("questions"))]
    return tuple(
        Question(
            question=get_text(row, "question"),
            header=get_text(row, "header"),
            options=tuple(
                QuestionOption(label=get_text(option, "label"), description=_option_text(option))
                for option in map(obj, arr(row.get("options")))
            ),
            multiple=row.get("multiSelect") is True,
        )
        for row in rows
    )


def _option_text(option: Msg) -> str:
    """An option's description, and below it its `preview` (a sketch or code of several lines)."""
    return "\n\n".join(words for key in ("description", "preview") if (words := get_text(option, key).rstrip()))


def answer_map(questions: Sequence[Question], answers: Sequence[Sequence[str]]) -> dict[str, str]:
    """`answers` of AskUserQuestion: question -> label; several are joined with ", ", as the CLI's own dialog does.

    A question without an answer is left out.
    """
    pairs = zip(questions, answers, strict=False)
    return {question.question: ", ".join(labels) for question, labels in pairs if labels}
