"""Tool calls of the Agent Client Protocol: names, arguments, output and diffs. Pure functions over what was reported so far.

An ACP call says what it is in several places: `name` (newer agents), `kind`, `title`, `rawInput`, `locations`, `content`, and
`_meta` of single agents. Here they become one name, one object of arguments and one result.
Source: recordings of claude-agent-acp 0.100.0, codex-acp 2.6.0 and 0.16.0, opencode 1.18.33, pi-acp 0.0.34.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from universal.agents import kit
from universal.agents.acp.wire import Msg
from universal.items import ContentPart, FileRefPart, Json, ToolResultPart
from universal.lib.diffs import patch_sides, unified_diff
from universal.lib.jsonline import get_int, get_text
from universal.lib.jsonvalue import arr, obj
from universal.opencode_metadata import NativeResult, access_metadata, result_metadata
from universal.permissions import Access
from universal.shell.tables import READ_SHELLS
from universal.tools import ACP

_PATH_KEYS = ("file_path", "filePath", "path", "filepath", "abs_path", "notebook_path")
_EDIT_KEYS = ("old_string", "oldString", "oldText", "edits", "content", "new_source", "patchText")
_SEARCH_KEYS = ("pattern", "query", "regex")
_FILE_KINDS = frozenset({"read", "edit", "delete", "move"})
_SHELLS = frozenset({"exec_command", "shell", "local_shell"})
"""Names of shell tools. With the `kind` read or search, Codex says what such a command does."""
_ACTING_KINDS = frozenset({"execute", "edit", "delete", "move", "read", "search", "fetch"})
"""Kinds that have permission rules. A tool with an unknown name is called by its kind, so that the rules hold for it."""
_TITLES = frozenset(
    {"glob", "grep", "list", "task", "skill", "webfetch", "websearch", "todoread", "codesearch", "lsp", "invalid"}
)
"""Titles that are tool names, beside those in the table: OpenCode, Pi and Kimi Code begin a call with one and send no `name`."""
_TITLES_OF_KIND = {
    "read": {"read"},
    "edit": {"edit", "write", "multiedit", "patch"},
    "execute": {"bash"},
    "search": {"glob", "grep"},
}
"""Kind with rules -> titles that name a tool of it. Any other title leaves such a call to the rules of its kind."""
_IDENTIFIER = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)+")
_NAMED_TITLE = re.compile(r"([a-z][a-z0-9]*(?:_[a-z0-9]+)+): ")
_NAMED_JSON = re.compile(r"([A-Za-z][\w.-]*): \{")
"""Titles that begin with the tool's name, as Cline's do: a name of several words, or any name before JSON arguments."""
_SERVER_TITLE = re.compile(r"([\w-]+)/([\w-]+)|([\w-]+) \(([\w-]+) MCP Server\)")
"""Titles of MCP tools: fast-agent's `SERVER/TOOL`, Gemini CLI's `TOOL (SERVER MCP Server)`."""
_FENCE = re.compile(r"\A(`{3,})\w*\n(.*?)\n?\1\s*\Z", re.DOTALL)
_SHELL_END = re.compile(r"(?:\n?<shellId: \S+ completed with exit code (-?\d+)>|\n*\[Exit code: (-?\d+)\])\s*\Z")
"""The line that Copilot adds to a command's output, and that of fast-agent behind an empty line."""
QUESTION_TOOL = "AskUserQuestion"
_EDIT_CHARS = 20_000
"""Maximum characters of a diff's two texts that are copied into the arguments."""


@dataclass(slots=True)
class Call(kit.Call):
    """A tool call with everything that the agent has reported about it so far."""

    kind: str = ""
    title: str = ""
    raw_input: Msg = field(default_factory=dict[str, Json])
    content: list[Msg] = field(default_factory=list[Msg])
    locations: list[Msg] = field(default_factory=list[Msg])
    raw_output: Json = None
    response: Msg = field(default_factory=dict[str, Json])
    """`_meta.claudeCode.toolResponse`: Claude Code's own structured result."""
    terminal: str = ""
    """The output collected from `_meta.terminal_output`."""
    exit_code: int | None = None
    whole: bool = False
    """Whether the tool_call item is completed, so that its arguments are fixed."""
    is_running: bool = False
    """Whether the agent has said that it runs."""
    titled: bool = False
    """Whether its name is only its title."""
    rejected: bool = False
    """Whether a person has refused it. Gemini CLI does not report how such a call ended."""
    dismissed: bool = False
    """Whether a person dismissed its question. Its later output is then no result, though some agents send it as one."""

    def merge(self, update: Msg) -> None:
        """Copy the fields that this update has. Null and missing fields change nothing."""
        self.title = get_text(update, "title") or self.title
        self.kind = get_text(update, "kind") or self.kind
        if not self.whole:
            self.raw_input = {**self.raw_input, **input_of(update.get("rawInput"))}
        if isinstance(update.get("content"), list):
            blocks = [obj(block) for block in arr(update["content"])]
            told = [] if any(block.get("type") == "diff" for block in blocks) else _diffs(self)
            self.content = [*told, *blocks]  # Kimi Code tells the change when the call begins, and words in its place at the end
        if arr(update.get("locations")):
            self.locations = [obj(place) for place in arr(update["locations"])]
        if update.get("rawOutput") is not None:
            self.raw_output = update["rawOutput"]
        meta = obj(update.get("_meta"))
        self.response = obj(obj(meta.get("claudeCode")).get("toolResponse")) or self.response
        for source in (obj(meta.get("terminal_exit")), obj(self.raw_output), obj(obj(self.raw_output).get("metadata"))):
            for key in ("exit_code", "exit", "exitCode"):
                if isinstance(source.get(key), int) and not isinstance(source.get(key), bool):
                    self.exit_code = get_int(source, key)
        for block in map(obj, arr(obj(self.raw_output).get("contents"))):
            if block.get("type") == "shell_exit":
                self.exit_code = get_int(block, "exitCode")


def input_of(raw_input: Json) -> Msg:
    """`rawInput` as an object. The protocol allows any value: a list, or text that is no object, becomes the field `input`."""
    if isinstance(raw_input, str) and raw_input.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            raw_input = json.loads(raw_input)
    if isinstance(raw_input, dict):
        return obj(raw_input)
    return {"input": raw_input} if raw_input not in (None, "", []) else {}


def with_grown_arguments(update: Msg) -> Msg:
    """Return an update of a call whose arguments come as its content: text that grows to JSON (Kimi Code), as `rawInput`.

    Such a call runs when the agent tells `rawInput` itself; until then it is told to run by mistake.
    """
    if get_text(update, "status") not in ("pending", "in_progress"):
        return update
    blocks = [obj(block) for block in arr(update.get("content"))]
    others: list[Json] = [block for block in blocks if block.get("type") != "content"]
    if update.get("rawInput") is not None or not blocks:
        return {**update, "content": others}
    arguments: Json = None
    with suppress(ValueError, RecursionError):
        arguments = json.loads(texts(blocks))
    return {**update, "status": "", "content": others, "rawInput": obj(arguments)}


_OTHER_NAMES = dict.fromkeys(("ask_user_question", "ui.ask_user_question"), QUESTION_TOOL) | {"vibe.todo": "TodoWrite"}
"""Name of a tool of Qwen Code or Mistral Vibe -> the same tool's name in the tables."""


def name_of(update: Msg) -> str:
    """Return the agent's name of a tool, or the kind of work if it gives none or the name is unknown here."""
    return _stated_name(update) or name_by_title(update) or get_text(update, "kind") or "other"


def _stated_name(update: Msg) -> str:
    """Return the name that the agent gives beside title and kind, or its kind where that has rules and the name is unknown."""
    kind, meta = get_text(update, "kind"), obj(update.get("_meta"))
    raw_input = obj(update.get("rawInput"))
    if meta.get("is_mcp_tool_call") is True and get_text(raw_input, "tool"):  # codex-acp
        return f"mcp__{get_text(raw_input, 'server')}__{get_text(raw_input, 'tool')}"
    name = get_text(update, "name") or get_text(obj(meta.get("claudeCode")), "toolName") or _name_in(meta)
    about = name in _SHELLS and kind in ("read", "search") and arr(update.get("locations"))
    is_unknown = kind in _ACTING_KINDS and name not in ACP and not name.startswith("mcp__")
    return kind if name and (about or is_unknown) else name


def name_by_title(update: Msg) -> str:
    """Return the name of a tool that a title is, or begins with, or "". Whoever writes a title writes no rules: see `also`."""
    kind, title = get_text(update, "kind"), get_text(update, "title")
    if kind in _ACTING_KINDS:
        return title if title in _TITLES_OF_KIND.get(kind, ()) else ""
    if kind in ("", "other"):
        if (served := _SERVER_TITLE.fullmatch(title)) is not None:
            return f"mcp__{served[1] or served[4]}__{served[2] or served[3]}"
        if (named := _NAMED_TITLE.match(title) or _NAMED_JSON.match(title)) is not None:
            return named[1]
    is_name = title in _TITLES or title in ACP or title.startswith("mcp__") or _IDENTIFIER.fullmatch(title)
    return title if is_name else ""


def _name_in(meta: Msg) -> str:
    """The name that Qwen Code or Mistral Vibe tells in `_meta`, if the kind of the call does not say what it is."""
    told = get_text(meta, "toolName") if get_text(meta, "provenance") or get_text(meta, "qwenInteractionKind") else ""
    name = told or get_text(meta, "tool_name")
    return name if name.startswith("mcp__") else _OTHER_NAMES.get(name, "")


def title_of(call: Call) -> str:
    """Return the title or name of a call as one line for people, at most 200 characters."""
    return (call.title or call.name).partition("\n")[0][:200]


# --- arguments ------------------------------------------------------------------------------------------


def arguments_of(call: Call) -> Msg:
    """Return `rawInput`, completed from other fields of the call: the command, the path, the texts of its only diff."""
    arguments = dict(call.raw_input)
    if call.name.startswith("mcp__") and {"server", "tool", "arguments"} <= arguments.keys():
        return dict(obj(arguments["arguments"]))
    if call.name == "TodoList":  # Kimi Code's words for a task
        words = {"done": "completed"}
        rows = [(get_text(row, "title"), get_text(row, "status")) for row in map(obj, arr(arguments.get("todos")))]
        return {"todos": [{"content": title, "status": words.get(status, status)} for title, status in rows]}
    diffs = _diffs(call)
    if call.kind == "execute" or call.name in _SHELLS or isinstance(arguments.get("command"), list):
        command = _command(arguments.get("command")) or _command(arguments.get("cmd")) or "\n".join(_commands(arguments))
        if command or (call.title and call.title != call.name):
            arguments["command"] = command or call.title
    if call.kind in _FILE_KINDS and not any(arguments.get(key) for key in _PATH_KEYS):
        path = _first_path(call) or ", ".join(_listed_paths(arguments))
        if path:
            arguments["path"] = path
    if call.kind == "edit" and len(diffs) == 1 and not any(key in arguments for key in _EDIT_KEYS):
        old, new = get_text(diffs[0], "oldText"), get_text(diffs[0], "newText")
        if len(old) + len(new) <= _EDIT_CHARS:
            arguments.update({"oldText": old, "newText": new})
    if call.kind == "search" and call.title and not any(arguments.get(key) for key in _SEARCH_KEYS):
        arguments["pattern"] = call.title
    return arguments


# --- what permission rules look at ------------------------------------------------------------------------

_PATCH_PATH = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+?)\s*$", re.MULTILINE)
_OPENCODE_QUESTIONS = frozenset({"external_directory", "doom_loop"})
"""Permissions that OpenCode requests for a call besides the call's own; it sends them as the request's title."""
_CHANGING_KINDS = frozenset({"edit", "delete", "move"})
_KINDS = frozenset({*_ACTING_KINDS, "think", "switch_mode", "other"})
"""All kinds of the protocol. One that stands for a name identifies no tool."""
_UNCLEAR_KINDS = frozenset({"", "other", "think", "fetch"})
"""Kinds that do not say what a call touches. Gemini CLI uses `other` for all MCP tools, goose for all its tools."""
_SHELL_KEYS = frozenset(
    {"command", "cmd", "commands", "args", "cwd", "workdir", "working_directory", "workingDirectory", "directory", "dir", "env"}
    | {"timeout", "timeout_ms", "timeoutMs", "timeout_secs", "description", "explanation", "shell", "background"}
    | {"is_background", "isBackground", "run_in_background", "dir_path"}
)
"""Arguments of shell tools. A call with a command and others, such as `host`, does something else with it."""
_ENVELOPES = ("arguments", "args", "input", "params", "parameters")
"""Fields in which some agents put the arguments of a call."""
_IDENTITY_CHARS = 200
"""Maximum characters of a title that stands for a tool."""


def rule_name(call: Call | None, request: Msg) -> str:
    """Return the name by which rules judge a call: that of its card, unless its kind was told later than its card began."""
    kind = get_text(request, "kind") or (call.kind if call is not None else "")
    if call is not None and call.titled and kind in _ACTING_KINDS and call.name not in _TITLES_OF_KIND.get(kind, ()):
        return kind
    if call is not None and call.name not in _KINDS - _ACTING_KINDS:
        return call.name
    known = {"kind": call.kind, "title": call.title, "rawInput": call.raw_input} if call is not None else {}
    return name_of({**known, **{key: value for key, value in request.items() if value}})


def rule_metadata(call: Call | None, request: Msg) -> Msg:
    """Return what permission rules check besides the arguments: commands, paths, and `opaque` if neither can be known.

    A name that is only a title may loosen no rule: `also` tells the kind and title, whose rules judge the call too.
    `request` is the `toolCall` of `session/request_permission`.
    """
    raw_input = {**(call.raw_input if call else {}), **input_of(request.get("rawInput"))}
    title, kind = get_text(request, "title"), get_text(request, "kind") or (call.kind if call else "")
    if title in _OPENCODE_QUESTIONS:
        return access_metadata(_opencode_question(title, raw_input))
    lines = _commands(raw_input)
    paths = _paths(call, request, raw_input)
    has_input = bool(lines) or bool(_command(raw_input.get("command")) or _command(raw_input.get("cmd")))
    name = rule_name(call, request)
    opaque = (
        (kind == "execute" and not has_input)
        or (kind in _CHANGING_KINDS and not paths)
        or (kind in ("", "other") and not raw_input)
    )
    is_named = name not in _KINDS
    is_unstated = call.titled if call is not None and call.name == name else not _stated_name(request)
    is_titled = is_unstated and kind not in _ACTING_KINDS and name != (kind or "other")
    is_known = not is_unstated and (name.startswith("mcp__") or (is_named and name in ACP))
    shell = {} if is_known else _hidden_shell(kind, raw_input)
    title = get_text(request, "name", "title") or (call.title if call else "")
    identity = title if len(title) <= _IDENTITY_CHARS and "\n" not in title else ""
    return {
        **({} if is_named or kind == "execute" or kind in _FILE_KINDS else {"identity": identity}),
        **({"also": {"kind": kind or "other", "title": identity}} if is_titled else {}),
        **({"commands": lines} if lines else {}),
        **({"paths": paths} if paths and (kind in _FILE_KINDS or name in _PATCH_TOOLS) else {}),
        **({"opaque": True} if opaque else {}),
        **shell,
    }


def _hidden_shell(kind: str, raw_input: Msg) -> Msg:
    """Return what makes the rules of `bash` judge a call of another kind that holds a shell command, or {}.

    With arguments that no shell tool has, the call stays one that is known too little of to be allowed automatically.
    """
    envelopes = (obj(raw_input.get(key)) for key in _ENVELOPES)
    for arguments in (raw_input, *envelopes):
        lines = _commands(arguments) or [line for line in (_command(arguments.get(key)) for key in ("command", "cmd")) if line]
        is_shell = arguments.keys() <= _SHELL_KEYS
        if lines and kind != "execute" and (is_shell or kind in _UNCLEAR_KINDS):
            return {"shell": True, "commands": lines, **({} if is_shell else {"opaque": True})}
    return {}


_PATCH_TOOLS = frozenset({"apply_patch", "patch"})


def _paths(call: Call | None, request: Msg, raw_input: Msg) -> list[str]:
    """Return every path in the arguments, the patch, the diffs and the locations of a call."""
    blocks = [*(call.content if call else []), *map(obj, arr(request.get("content")))]
    places = [*(call.locations if call else []), *map(obj, arr(request.get("locations")))]
    patches = [text for key in ("input", "patch", "patchText") if isinstance(text := raw_input.get(key), str)]
    paths = [
        *(get_text(raw_input, key) for key in (*_PATH_KEYS, "destination", "newPath", "new_path", "to")),
        *_listed_paths(raw_input),
        *(path for patch in patches for path in _PATCH_PATH.findall(patch)),
        *(get_text(block, "path") for block in blocks if block.get("type") == "diff"),
        *(get_text(place, "path") for place in places),
    ]
    return [path for path in dict.fromkeys(paths) if path]


def _listed_paths(raw_input: Msg) -> list[str]:
    """Return the paths of a call that names several files: `files: [{path}]`, `paths: [PATH]`."""
    rows = [row for key in ("files", "edits", "paths") for row in arr(raw_input.get(key))]
    paths = (row if isinstance(row, str) else get_text(obj(row), *_PATH_KEYS) for row in rows)
    return [path for path in dict.fromkeys(paths) if path]


def _commands(raw_input: Msg) -> list[str]:
    """Return the shell lines of a call that runs several: `commands: [LINE]` or `commands: [{command}]`."""
    rows = arr(raw_input.get("commands"))
    return [
        line for line in (_command(obj(row).get("command")) if isinstance(row, dict) else _command(row) for row in rows) if line
    ]


def _opencode_question(permission: str, raw_input: Msg) -> Access:
    """Return the access of OpenCode's own request. Its ACP server sends the folder (`parentDir`), but not the patterns."""
    folder = get_text(raw_input, "parentDir")
    pattern = f"{folder.rstrip('/')}/*" if folder else get_text(raw_input, "tool", "filepath") or "*"
    return Access(permission, (pattern,), (pattern,), raw_input)


def _command(value: Json) -> str:
    """Return a command, a text or a list of words, as a shell line."""
    return value if isinstance(value, str) else shell_line([word for word in arr(value) if isinstance(word, str)])


def shell_line(words: Sequence[str]) -> str:
    """Return words as a shell line. `["/bin/bash", "-lc", LINE]` becomes LINE; what follows `-c` of another program does not."""
    is_shell = len(words) == 3 and words[1] in ("-c", "-lc") and words[0].rpartition("/")[2] in READ_SHELLS
    return words[2] if is_shell else shlex.join(words)


def _first_path(call: Call) -> str:
    """Return the first path in the locations of a call, or else in its diffs."""
    return next((path for path in (get_text(place, "path") for place in [*call.locations, *_diffs(call)]) if path), "")


# --- results --------------------------------------------------------------------------------------------


def texts(content: list[Msg]) -> str:
    """Return the text of `content` blocks, without the Markdown fences that agents put around output."""
    blocks = [obj(block.get("content")) for block in content if block.get("type") == "content"]
    output = "\n".join(strip_fence(text) for text in map(block_text, blocks) if text)
    return _SHELL_END.sub("", output)


def block_text(block: Msg) -> str:
    """Return the text of a content block. A link becomes Markdown; an embedded file gives its text or its URI."""
    if block.get("type") == "text":
        return get_text(block, "text")
    if block.get("type") == "resource_link":
        return f"[{get_text(block, 'title', 'name', 'uri')}]({get_text(block, 'uri')})"
    return get_text(obj(block.get("resource")), "text", "uri")


_SHOWN_CONTENT = frozenset({"", "content", "diff", "terminal"})
_SHOWN_BLOCKS = frozenset({"", "text", "image", "resource", "resource_link"})


def hidden_content(content: list[Msg]) -> Iterator[str]:
    """Yield the types of content that clients cannot show, such as `audio`."""
    for block in content:
        kind, inner = get_text(block, "type"), get_text(obj(block.get("content")), "type")
        if kind not in _SHOWN_CONTENT:
            yield kind
        elif inner not in _SHOWN_BLOCKS:
            yield inner


def strip_fence(text: str) -> str:
    """Return the content of a text that is a single code block, else the text itself."""
    match = _FENCE.match(text)
    return match[2] if match else text


def output_of(call: Call) -> str:
    """Return the output of a tool: of its terminal, else its raw output, else its content, else any output as JSON."""
    output = call.terminal or _raw_text(call.raw_output) or texts(call.content) or _unknown_output(call.raw_output)
    return _SHELL_END.sub("", output) if call.kind == "execute" else output


_OUTPUT_KEYS = ("output", "formatted_output", "aggregated_output", "stdout", "error")
_RESULT_KEYS = ("result", "text", "message", "value")
"""Fields in which some agents put the text of one result: Cline `result`, content blocks `text`."""
_KNOWN_KEYS = frozenset({*_OUTPUT_KEYS, *_RESULT_KEYS, "content", "contents", "exit_code", "exitCode", "exit"})


def _raw_text(raw: Json) -> str:
    """Return the text of an output whose form is known, else ""."""
    if isinstance(raw, str):
        return raw
    if isinstance(raw, list):
        return "\n".join(text for text in map(_row_text, arr(raw)) if text)
    result = obj(raw)
    result = obj(result.get("result")) or result  # codex-acp's MCP tools: {result: {content}, error}
    output = get_text(result, *_OUTPUT_KEYS) or get_text(obj(result.get("error")), "message")
    output = output or _SHELL_END.sub("", get_text(result, "content", "message", "result"))
    return output or "\n".join(get_text(obj(block), "text") for block in arr(result.get("content")))


def _row_text(row: Json) -> str:
    """Return the text of one result in a list. Cline sends {query, result, error?, success}."""
    if isinstance(row, str):
        return row
    result = obj(row)
    texts = [text for text in (get_text(result, *_RESULT_KEYS), get_text(result, "error")) if text]
    return "\n".join(texts) or get_text(result, *_OUTPUT_KEYS) or _unknown_output(row)


def _unknown_output(raw: Json) -> str:
    """Return an output of unknown form as compact JSON, or "" if it is empty or its form is known."""
    if raw in (None, "", [], {}) or isinstance(raw, str):
        return ""
    if any(_KNOWN_KEYS & obj(row).keys() for row in arr(raw) or [raw]):
        return ""
    return json.dumps(raw, ensure_ascii=False, separators=(",", ":"))


def reports_failure(call: Call) -> bool:
    """Return whether the raw output of a call says `success: false`, as a whole or in one of its results."""
    rows = arr(call.raw_output) or [call.raw_output]
    return any(obj(row).get("success") is False for row in rows)


def content_of(call: Call, *, failed: bool) -> tuple[ContentPart, ...]:
    """Return the content of the tool_result item: output, images and, unless it failed, files."""
    parts: list[ContentPart] = [ToolResultPart(call_id=call.call_id, output=output_of(call))]
    parts.extend(kit.images_of([block.get("content") for block in call.content]))
    if not failed:
        parts.extend(_files(call))
    return tuple(parts)


def metadata_of(call: Call) -> Msg:
    """Return the metadata of the tool_result item, as listed at `universal.items.Item`."""
    raw = obj(call.raw_output)
    metadata: Msg = {}
    if call.name not in ACP and call.title not in ("", call.name):  # a card that is no tool's has no other title
        metadata["title"] = title_of(call)
    if (exit_code := _exit_code(call)) is not None:
        metadata["exit_code"] = exit_code
    for source in (raw, call.response):
        metadata.update({key: source[key] for key in ("stdout", "stderr") if isinstance(source.get(key), str)})
    if call.terminal:
        metadata.pop("stdout", None)
    if obj(raw.get("metadata")).get("interrupted") is True or call.response.get("interrupted") is True:
        metadata["interrupted"] = True
    if call.response.get("isAsync") is True:
        metadata["background"] = True
    if call.answers is not None:
        metadata["answers"] = call.answers
    if obj(call.response.get("file")) or call.response.get("numFiles") is not None:
        metadata["structured"] = {key: value for key, value in call.response.items() if key != "originalFile"}
    own = obj(raw.get("metadata"))
    if own and isinstance(raw.get("output"), str) and call.name != "task":  # a task's own names a session that is not known here
        metadata.update(result_metadata(NativeResult(call.title, own)))
        metadata["truncated"] = own.get("truncated") is True
    return metadata


def _exit_code(call: Call) -> int | None:
    """Return the exit code of a command: told as a value, or in words behind its output."""
    if call.exit_code is None and call.kind == "execute" and isinstance(call.raw_output, str):
        end = _SHELL_END.search(call.raw_output)
        return int(end[1] or end[2]) if end is not None else None
    return call.exit_code


def todos_of(call: Call) -> list[Msg]:
    """Return the list that OpenCode's `todowrite` has written. Other agents send a plan; `opencode acp` does not."""
    if call.name != "todowrite":
        return []
    rows = [obj(row) for row in arr(call.raw_input.get("todos"))]
    return [{"content": get_text(row, "content"), **{k: row[k] for k in ("status", "priority") if k in row}} for row in rows]


# --- files ----------------------------------------------------------------------------------------------


def _diffs(call: Call) -> list[Msg]:
    return [block for block in call.content if block.get("type") == "diff" and get_text(block, "path")]


def _files(call: Call) -> Iterator[FileRefPart]:
    diffs = _diffs(call)
    for diff in diffs:
        path = get_text(diff, "path")
        if len(diffs) == 1 and not path.startswith("/"):
            path = _first_path(call)
        created = diff.get("oldText") is None
        exact = _exact_patch(call) if len(diffs) == 1 and not created else ""
        text = exact or _block_diff(diff, path)
        yield FileRefPart(path=path, action="write" if created else "patch", diff=text or None)
    if not diffs and call.name in _PATCH_TOOLS:
        yield from _patched_files(call)
    if call.kind == "read" and not diffs and _first_path(call):
        yield FileRefPart(path=_first_path(call), action="read")


def _exact_patch(call: Call) -> str:
    """Return the agent's own patch, which has line numbers, or "": Claude's `structuredPatch`, OpenCode's `metadata.diff`.

    The diff in `content` only has the piece that is replaced.
    """
    patch = get_text(obj(obj(call.raw_output).get("metadata")), "diff")
    if "\n@@ " in patch:
        return patch[patch.index("--- ") :] if "--- " in patch else patch
    hunks = [obj(hunk) for hunk in arr(call.response.get("structuredPatch"))]
    path = get_text(call.response, "filePath")
    if not hunks or not path:
        return ""
    lines = [f"--- {path}", f"+++ {path}"]
    for hunk in hunks:
        old, new = (f"{get_int(hunk, f'{side}Start')},{get_int(hunk, f'{side}Lines')}" for side in ("old", "new"))
        lines.append(f"@@ -{old} +{new} @@")
        lines.extend(line for line in arr(hunk.get("lines")) if isinstance(line, str))
    return "\n".join(lines) + "\n"


def pending_diff(call: Call) -> str:
    """Return the change that a call will make as a unified diff, or "" if the agent has not sent it."""
    patch = get_text(call.raw_input, "diff")
    return patch or "".join(_block_diff(diff, get_text(diff, "path")) for diff in _diffs(call))


_PATCHED_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+?)\s*$", re.MULTILINE)
_PATCH_END = re.compile(r"^\*\*\* (?:End Patch|End of File|Move to: .*)\n?", re.MULTILINE)


def _patched_files(call: Call) -> Iterator[FileRefPart]:
    """Yield the files of a patch in a call's arguments (Codex's `apply_patch`). Line numbers begin at the first line shown."""
    patch = get_text(call.raw_input, "input", "patch", "patchText")
    _, *pieces = _PATCHED_FILE.split(_PATCH_END.sub("", patch))
    for operation, path, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        old, new = patch_sides(body)
        diff = unified_diff(path, old, new, created=operation == "Add")
        yield FileRefPart(path=path, action="write" if operation == "Add" else "patch", diff=diff or None)


def _block_diff(diff: Msg, path: str) -> str:
    """Return a diff of a call's content as a unified diff."""
    old, new, created = get_text(diff, "oldText"), get_text(diff, "newText"), diff.get("oldText") is None
    if not created and old and new and not old.endswith("\n") and not new.endswith("\n"):
        old, new = f"{old}\n", f"{new}\n"  # the piece that is replaced: what stands behind it is not told
    return unified_diff(path, old, new, created=created)
