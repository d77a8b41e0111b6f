"""Amp's lines, modes, tool results and errors. Pure functions of one message.

Source: recordings of 0.0.1774569934 (`compat_fixtures/agents/amp`); `amp_sdk/types.py` of amp-sdk 0.1.20260918.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable
from typing import Any, TypeAlias

from universal.agents import kit
from universal.codec import Attachment, Catalogue, Mode, Model, WriteLine
from universal.items import ContentPart, FileRefPart, Json, ToolResultPart
from universal.lib.jsonline import get_int, get_text
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text

NAME = "amp"
"""Registry name, and the provider id in `metadata.model`."""

Msg: TypeAlias = dict[str, Any]
"""One JSON object of the wire."""

LOGIN_NEEDED = "No API key found"
"""Beginning of Amp's plain text without a login. It then waits for a browser."""
_LOGIN = "Run `amp login` in a terminal, or set AMP_API_KEY in the environment of the server. Then try again."
_APPROVAL = "Choose the mode `bypass`, or allow the tool in `amp.permissions` of Amp's settings. Nothing can be asked here."
CANCELLED = "User cancelled"
"""Beginning of the error of a `result` after a signal."""
ABORTED: dict[str, Json] = {"message": "Interrupted", "code": "aborted"}
"""The error of a stopped turn."""


ENDS: dict[str, kit.Sign] = {
    "assistant": kit.Sign("a message that calls no tools; with `stop_reason` null it is the token limit, and nothing follows"),
    "result": kit.Sign("the end of the process, with its error"),
    "no login": kit.Sign("the text that asks for a login; Amp then waits for a browser"),
    "eof": kit.Sign("the process has ended"),
}
"""Sign of a turn's end -> what it shows. Nothing follows any of them. Amp cannot be asked."""


def prompt_line(text: str, attachments: Iterable[Attachment], system: str | None) -> WriteLine:
    """The line of a prompt, with one text: files are added as text, and images by name. Nothing else was tried with Amp."""
    blocks = [kit.reminder(system)] if system else []
    blocks += [kit.attachment_text(item) for item in attachments]
    words = "\n\n".join(block for block in (*blocks, text) if block)
    return kit.write({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": words}]}})


# --- modes --------------------------------------------------------------------------------------------

MODES: tuple[Mode, ...] = (
    Mode("build", "Amp's own permission rules decide (`amp.permissions` in its settings); it cannot ask here.", "settings"),
    Mode(
        "bypass",
        "Does everything without asking, also what Amp's own rules forbid.",
        "allow-all",
    ),
)

DEFAULT_MODEL = "default"
CATALOGUE = Catalogue(
    models=(
        Model(DEFAULT_MODEL, "Default", "Amp's own choice.", reasoning=True, images=False),
        Model("smart", "Smart", "Versions up to March 2026.", reasoning=True, images=False),
        Model("deep", "Deep", "Versions up to March 2026.", reasoning=True, images=False),
        Model("rush", "Rush", "Versions up to March 2026.", images=False),
        Model("large", "Large", "Versions up to March 2026.", reasoning=True, images=False),
        Model("low", "Low", "Newer versions.", images=False),
        Model("medium", "Medium", "Newer versions.", reasoning=True, images=False),
        Model("high", "High", "Newer versions.", reasoning=True, images=False),
        Model("ultra", "Ultra", "Newer versions.", reasoning=True, images=False),
    ),
    default_model=DEFAULT_MODEL,
)
"""Amp's values of `--mode`, which it cannot list. A version without a mode prints the known ones and exits."""

FINISH: dict[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "refusal": "content-filter",
}
"""`stop_reason` -> `metadata.finish`."""


def usage_of(usage: Msg) -> dict[str, int]:
    """Tokens of one message. Amp has no cost and no separate count of thinking."""
    keys = {
        "input": "input_tokens",
        "output": "output_tokens",
        "cache_read": "cache_read_input_tokens",
        "cache_write": "cache_creation_input_tokens",
    }
    return {"reasoning": 0, **{key: max(get_int(usage, native), 0) for key, native in keys.items()}}


# --- errors -------------------------------------------------------------------------------------------


def error_of(message: str) -> dict[str, Json]:
    """`error` of a `result` as {message, code, details}."""
    status, words = kit.api_error(message)
    is_overloaded, hint = "Overloaded" in message, ""
    code = "overloaded" if is_overloaded else "api_error" if status else "error"
    if "require user approval" in message:
        code, hint = "approval_needed", _APPROVAL
    if status in (401, 403):
        code, hint = "authentication_failed", _LOGIN
    elif kit.is_context_full(message):
        code, hint = "context_full", "Start a new session."
    return kit.make_error(words or "Amp ended the turn with an error.", code, status, hint=hint, is_retryable=is_overloaded)


MODEL_REFUSALS = frozenset({"api_error", "overloaded", "authentication_failed", "context_full"})
"""Codes of errors of the model's API, which say nothing about the thread."""


def login_error(line: str) -> dict[str, Json]:
    """The error without a login."""
    return kit.make_error(line.strip(), "authentication_failed", hint=_LOGIN)


def exit_error(stderr: str) -> dict[str, Json] | None:
    """The error of an Amp that gave up at its start, if the person can do something about it."""
    line = next((line for line in stderr.splitlines() if "API key" in line), "")
    return login_error(line.removeprefix("Error: ")) if line else None


# --- tools --------------------------------------------------------------------------------------------

_TITLE_KEYS = ("description", "cmd", "command", "path", "filePattern", "pattern", "url", "query", "objective", "prompt")


def title_of(name: str, arguments: Msg) -> str:
    """A line for a person about a call."""
    return get_text(arguments, *_TITLE_KEYS).partition("\n")[0][:200] or name


def read_result(name: str, arguments: Msg, block: Msg, directory: str) -> kit.Result:
    """Read a `tool_result` block. Its content is a string, often JSON, from which the text for a person is taken."""
    failed = block.get("is_error") is True
    raw = _text(block.get("content"))
    details = _json(raw)
    output = next((details[key] for key in ("output", "content", "diff") if isinstance(details.get(key), str)), raw)
    result = ToolResultPart(call_id=get_text(block, "tool_use_id"), output=output)
    content: list[ContentPart] = [result, *kit.images_of(block.get("content"))]
    if not failed:
        content.extend(_files(name, arguments, details, directory))
    metadata: dict[str, Json] = {"structured": details} if details else {}
    if "exitCode" in details:
        metadata |= {"exit_code": get_int(details, "exitCode"), "stdout": output}
    if failed and "cancelled" in raw:
        metadata["interrupted"] = True
    return kit.Result(tuple(content), metadata)


def _text(content: Json) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(as_text(row.get("text")) for row in map(obj, arr(content)) if row.get("type") == "text")


def _json(text: str) -> Msg:
    if not text.startswith("{"):
        return {}
    try:
        return obj(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _files(name: str, arguments: Msg, details: Msg, directory: str) -> Iterable[FileRefPart]:
    given = get_text(details, "absolutePath") or get_text(arguments, "path")
    if not given:
        return
    path = posixpath.normpath(posixpath.join(directory, given))
    if name == "Read":
        yield FileRefPart(path=path, action="read")
    elif name == "edit_file":
        yield FileRefPart(path=path, action="patch", diff=_diff(get_text(details, "diff")))
    elif name == "create_file":
        lines = [f"+{line}\n" for line in get_text(arguments, "content").removesuffix("\n").split("\n")]
        head = f"--- /dev/null\n+++ {path}\n@@ -0,0 +1,{len(lines)} @@\n"
        yield FileRefPart(path=path, action="write", diff=_diff(get_text(details, "diff")) or head + "".join(lines))


def _diff(fenced: str) -> str | None:
    """The diff without its Markdown fence, its `Index:` line and the text after the names."""
    lines = fenced.strip().removeprefix("```diff\n").removesuffix("```").rstrip("\n").split("\n")
    start = next((place for place, line in enumerate(lines) if line.startswith("--- ")), None)
    if start is None:
        return None
    names = [line.partition("\t")[0] for line in lines[start : start + 2]]
    return "\n".join([*names, *lines[start + 2 :]]) + "\n"
