"""Tables of Pi's known messages, and functions that look at one line.

Source: recordings of 0.73.1 and 0.87.1 (`compat_fixtures/agents/pi`), and the types of both (`rpc-types.d.ts`,
`agent-session.d.ts`) for the kinds that no recording shows.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, TypeAlias

from universal.agents import kit
from universal.codec import Attachment, Catalogue, Mode, Model
from universal.items import Json
from universal.launch import LaunchOptions
from universal.lib.jsonline import get_int, get_text
from universal.lib.jsonvalue import arr, obj
from universal.slash_commands import SlashCommand

NAME = "pi"
"""Registry name, and the provider id in `metadata.model`."""

Msg: TypeAlias = dict[str, Any]
"""One JSON object of the wire."""

ENDS: dict[str, kit.Sign] = {
    "agent_settled": kit.Sign("the end itself (0.87)"),
    "agent_end": kit.Sign("a run is over. 0.73, which has no `agent_settled`, is asked at once", kit.END_S),
    "auto_retry_end": kit.Sign("no more retries: Pi is asked at once", kit.ASK_S),
    "compaction_end": kit.Sign("a compaction in a run: Pi is asked at once", kit.ASK_S),
    "response": kit.Sign("the answer to a prompt or an abort: Pi is asked at once", kit.ASK_S),
    "get_state": kit.Sign("neither streams nor compacts; asked after a sign and each POLL_S", kit.END_S),
    "eof": kit.Sign("the process has ended"),
}
"""Sign of a turn's end -> what it shows, and how long the others, or Pi's answer, are waited for."""

IGNORED = kit.by_reason(
    {
        "a round of the model, not a turn": "turn_start",
        "says again what message_end and tool_execution_end have said": "turn_end",
        "the echo of a prompt says when it is taken in": "queue_update",
        "bookkeeping of Pi's session file": "entry_appended",
        "told with each message": "thinking_level_changed",
        "output of the command `bash`, which we never send": "bash_execution_update",
        "the header of `--mode json`": "session",
        "an attempt within a compaction": "summarization_retry_attempt_start summarization_retry_finished",
        "Pi's own prompt for the model": "message_start/system message_end/system",
        "message_end says it": "message_start/user message_update/done message_update/error",
        "a copy of tool_execution_end": "message_start/toolResult message_end/toolResult",
        "a note of an extension for the model": "message_start/custom message_end/custom",
        "a command that we never send": """
            message_start/bashExecution message_end/bashExecution message_start/branchSummary
            message_end/branchSummary
        """,
        "compaction_end says it": "message_start/compactionSummary message_end/compactionSummary",
        "message_start says it": "message_update/start",
        "the part begins with its first text": "message_update/text_start message_update/thinking_start",
        "a widget of Pi's own screen": "extension_ui_request/setWidget",
        "the title of Pi's own terminal": "extension_ui_request/setTitle",
        "the editor of Pi's own screen": "extension_ui_request/set_editor_text",
    }
)
"""Known kinds that are not used -> the reason."""


def kind_of(msg: Msg) -> str:
    """The key of the dispatch table: `type`, and the subtype if the type alone is not enough."""
    kind = get_text(msg, "type") or "?"
    if kind in ("message_start", "message_end"):
        return f"{kind}/{get_text(obj(msg.get('message')), 'role') or '?'}"
    if kind == "message_update":
        return f"{kind}/{get_text(obj(msg.get('assistantMessageEvent')), 'type') or '?'}"
    if kind == "extension_ui_request":
        return f"{kind}/{get_text(msg, 'method') or '?'}"
    return kind


ANCHOR_KEY = "opencode-shim.prompt"
"""Key of the status line in which `gate.ts` reports the prompts after which Pi goes on; after each answer, the last one."""


def after_anchor(messages: Json, anchor: str, branch: Container[str]) -> str | None:
    """The prompt of this branch after `anchor` in an answer to `get_fork_messages`. "": it is the last; None: it is missing."""
    told = [get_text(obj(row), "entryId") for row in arr(messages)]
    ids = [id_ for id_ in told if not branch or id_ in branch]
    return (*ids, "")[ids.index(anchor) + 1] if anchor in ids else None


FINISH: dict[str, str] = {"stop": "stop", "length": "length", "toolUse": "tool-calls"}
"""`stopReason` -> `metadata.finish`."""


def usage_of(usage: Msg) -> dict[str, int]:
    """Tokens of one message. The five numbers do not overlap: `output` of Pi has `reasoning` in it."""
    thinking = max(get_int(usage, "reasoning"), 0)
    return {
        "input": max(get_int(usage, "input"), 0),
        "output": max(get_int(usage, "output") - thinking, 0),
        "reasoning": thinking,
        "cache_read": max(get_int(usage, "cacheRead"), 0),
        "cache_write": max(get_int(usage, "cacheWrite"), 0),
    }


def cost_of(usage: Msg) -> float:
    """The cost of one message in USD, or 0."""
    total = obj(usage.get("cost")).get("total")
    if isinstance(total, bool) or not isinstance(total, (int, float)) or not 0 <= total < 2**53:
        return 0.0
    return float(total)


# --- prompts ------------------------------------------------------------------------------------------


def prompt_of(text: str, attachments: list[Attachment], notes: list[str]) -> tuple[str, list[Msg]]:
    """`message` and `images` of a prompt. Files and notes go in front, since Pi takes nothing but text and images.

    A text that begins with a slash stays first: Pi looks for its commands there.
    """
    images = [
        {"type": "image", "data": item.base64, "mimeType": item.mime}
        for item in attachments
        if item.base64 and item.mime.startswith("image/")
    ]
    blocks = [kit.reminder(note) for note in notes]
    blocks += [kit.attachment_text(item) for item in attachments if not (item.base64 and item.mime.startswith("image/"))]
    ordered = [text, *blocks] if text.startswith("/") else [*blocks, text]
    return "\n\n".join(block for block in ordered if block), images


# --- modes, models, commands --------------------------------------------------------------------------

MODES: tuple[Mode, ...] = (
    Mode("build", "Asks before it edits files, runs commands or uses tools of extensions.", "build"),
    Mode("plan", "Reads and proposes a plan; edits are refused, commands are asked.", "plan"),
    Mode("accept-edits", "Edits files without asking; commands are still asked.", "accept-edits"),
    Mode("bypass", "Does everything without asking, as it does by itself.", "bypass"),
)

LEVELS = ("off", "minimal", "low", "medium", "high")
"""Thinking levels of every model with thinking, according to Pi (`get_available_thinking_levels`)."""


def model_id(model: Msg) -> str:
    """`provider/id` of a model or a message, in the form of `--model`. "" for Pi's placeholder without a model."""
    provider, name = get_text(model, "provider"), get_text(model, "id", "model")
    return f"{provider}/{name}" if provider and name and provider != "unknown" else ""


def read_models(models: Json) -> tuple[Model, ...]:
    """Read `data.models` of `get_available_models`: the models that Pi has credentials for."""
    found: dict[str, Model] = {}
    for row in map(obj, arr(models)):
        id_ = model_id(row)
        if not id_:
            continue
        thinks = row.get("reasoning") is True
        found[id_] = Model(
            id=id_,
            name=get_text(row, "name") or get_text(row, "id"),
            description=get_text(row, "provider"),
            variants=_levels(row) if thinks else (),
            reasoning=thinks,
            images="image" in arr(row.get("input")),
            context=get_int(row, "contextWindow") or None,
            output=get_int(row, "maxTokens") or None,
        )
    return tuple(found.values())


def _levels(model: Msg) -> tuple[str, ...]:
    """The levels of a model. Its map has missing levels (null) and further ones (`xhigh`, `max`)."""
    told = obj(model.get("thinkingLevelMap"))
    levels = [level for level in LEVELS if level not in told or told[level] is not None]
    return (*levels, *(level for level in ("xhigh", "max") if isinstance(told.get(level), str)))


def read_commands(commands: Json) -> tuple[SlashCommand, ...]:
    """`data.commands` of `get_commands`: prompt templates, skills and commands of extensions."""
    rows = [obj(row) for row in arr(commands)]
    return tuple(SlashCommand(get_text(row, "name"), get_text(row, "description")) for row in rows if get_text(row, "name"))


NO_CATALOGUE = Catalogue()
"""Pi offers the models with credentials, so there is no catalogue before it has listed them."""

# --- errors -------------------------------------------------------------------------------------------

_LOGIN = "Run `pi` in a terminal and use /login, or set the provider's API key in the environment of the server."
_COMPACT = "Send /compact, or start a new session."
_NO_LOGIN = ("No API key", "Authentication failed", "No models available", "No model selected")


def error_of(text: str) -> dict[str, Json]:
    """Convert an error's text to {message, code, details}. Pi may put the API's status before it."""
    message = text.strip() or "Pi ended the turn with an error."
    status, words = kit.api_error(message)
    if status in (401, 403) or any(words in message for words in _NO_LOGIN):
        code, hint = "authentication_failed", _LOGIN
    else:
        code, hint = ("context_full", _COMPACT) if kit.is_context_full(message) else ("api_error" if status else "error", "")
    return kit.make_error(words, code, status, hint=hint)


ABORTED: dict[str, Json] = {"message": "Interrupted", "code": "aborted"}
"""The error of a stopped turn."""


def exit_error(stderr: str) -> dict[str, Json] | None:
    """The error of a Pi that gave up at its start, if a person can do something about it."""
    line = next((line for line in stderr.splitlines() if "No session found matching" in line), "")
    return lost_error(line.strip()) if line else None


def lost_error(message: str) -> dict[str, Json]:
    """The error if Pi cannot resume its conversation. The server begins a new one with the old text."""
    return kit.make_error(message, "session_not_found")


TRUSTING = (0, 87)
"""The first tested version that asks for trust in a project. 0.73.1 refuses its flags, and reads a project's settings."""


def project_flags(options: LaunchOptions) -> tuple[str, ...]:
    """Flags that let Pi read `.pi` or not. Without one, 0.87 does not read it in RPC mode."""
    numbers = tuple(int(part) for part in (options.version or "").split(".")[:2] if part.isdecimal())
    if numbers >= TRUSTING:
        return ("--approve",) if options.project_settings else ("--no-approve",)
    return () if options.project_settings else ("--no-extensions",)
