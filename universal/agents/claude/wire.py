"""Reads and writes single lines of Claude Code, and has the tables of its known messages.

All functions look at one line, without the state of a session.
Source: recordings of 2.1.197 and 2.1.330 (`compat_fixtures/agents/claude`) and the schemas inside of the 2.1.330
binary, which name the kinds that no recording shows.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from universal.agents import kit
from universal.claude_code import MODES
from universal.codec import Attachment, Catalogue, Model, WriteLine
from universal.items import Json
from universal.lib.jsonline import digest as digest
from universal.lib.jsonline import get_int as get_int
from universal.lib.jsonline import get_text as get_text
from universal.lib.jsonline import parse as parse
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text
from universal.slash_commands import SlashCommand

NAME = "claude"
"""Registry name, and the provider id in `metadata.model`."""

Msg: TypeAlias = dict[str, Any]
"""One JSON object of the wire."""

# --- reading ------------------------------------------------------------------------------------------


def get_cost(msg: Mapping[str, Json], key: str) -> float | None:
    """The cost if it is finite and not negative, else None."""
    value = msg.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**53:
        return None
    return float(value)


def kind_of(msg: Msg) -> str:
    """The key of the dispatch table: `type`, and the subtype if the type alone is not enough."""
    kind = get_text(msg, "type") or "?"
    if kind == "system":
        return f"system/{get_text(msg, 'subtype') or '?'}"
    if kind == "stream_event":
        return f"stream_event/{get_text(obj(msg.get('event')), 'type') or '?'}"
    if kind == "control_request":
        return f"control_request/{get_text(obj(msg.get('request')), 'subtype') or '?'}"
    return kind


def usage_of(usage: Msg) -> dict[str, int]:
    """Tokens of one step or turn. The five numbers do not overlap: thinking is not part of `output`."""
    thinking = get_int(obj(usage.get("output_tokens_details")), "thinking_tokens")
    return {
        "input": get_int(usage, "input_tokens"),
        "output": max(get_int(usage, "output_tokens") - thinking, 0),
        "reasoning": thinking,
        "cache_read": get_int(usage, "cache_read_input_tokens"),
        "cache_write": get_int(usage, "cache_creation_input_tokens"),
    }


FINISH: dict[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content-filter",
    "pause_turn": "other",
}
"""The model API's stop reason -> `metadata.finish`."""

# --- writing ------------------------------------------------------------------------------------------

_PROMPTS = uuid.UUID("6f7e5a3c-0f6e-5d0a-9a53-5d2f5c6b8f41")
"""Namespace of prompt uuids. Its value does not matter."""


def prompt_uuid(key: str) -> str:
    """The uuid of a prompt for Claude. The same key gives the same uuid."""
    return str(uuid.uuid5(_PROMPTS, key))


def control_request(request_id: str, request: Msg) -> WriteLine:
    """Write a control request. Its answer has the same id."""
    return kit.write({"type": "control_request", "request_id": request_id, "request": request})


def control_answer(request_id: str, response: Msg) -> WriteLine:
    """Write our answer to a request of the CLI."""
    return kit.write(
        {"type": "control_response", "response": {"subtype": "success", "request_id": request_id, "response": response}}
    )


def control_refusal(request_id: str, error: str) -> WriteLine:
    """Write our refusal of a request of the CLI."""
    return kit.write({"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": error}})


def prompt_content(text: str, attachments: Iterable[Attachment], system: str | None) -> str | list[Msg]:
    """`message.content` of a prompt: a plain string if that is enough.

    The text comes last, because Claude looks for a slash command and for @files in the last block only.
    Claude has no channel for a system text of a single prompt, so it goes in front, as `<system-reminder>`.
    """
    blocks = [_attachment_block(a) for a in attachments]
    if system:
        blocks.insert(0, _block(kit.reminder(system)))
    if not blocks:
        return text
    return [*blocks, _block(text)] if text else blocks


def _block(text: str) -> Msg:
    return {"type": "text", "text": text}


def _attachment_block(item: Attachment) -> Msg:
    name = item.path or item.filename or "attachment"
    source = {"type": "base64", "media_type": item.mime, "data": item.base64}
    if item.base64 and item.mime.startswith("image/"):
        return {"type": "image", "source": source}
    if item.base64 and item.mime == "application/pdf":
        return {"type": "document", "source": source, "title": name}
    return _block(kit.attachment_text(item))


# --- modes, models, commands --------------------------------------------------------------------------

NATIVE_MODE: dict[str, str] = {mode.id: mode.native for mode in MODES}
MODE_ID: dict[str, str] = {mode.native: mode.id for mode in MODES} | {"manual": "build"}

DEFAULT_MODEL = "default"
_EFFORTS = ("low", "medium", "high", "xhigh", "max")

DEFAULT_CATALOGUE = Catalogue(
    models=(
        Model("default", "Default", "What your account and settings choose.", _EFFORTS, reasoning=True),
        Model("opus", "Opus", "For complex tasks.", _EFFORTS, reasoning=True),
        Model("sonnet", "Sonnet", "For routine tasks.", _EFFORTS, reasoning=True),
        Model("haiku", "Haiku", "For quick answers."),
    ),
    default_model=DEFAULT_MODEL,
)
"""The catalogue until a process has sent its own in the answer to `initialize`."""


def read_models(models: Json) -> tuple[tuple[Model, ...], dict[str, str]]:
    """`models[]` of the answer to `initialize`: the models, and what each value stands for (`resolvedModel`)."""
    found: list[Model] = []
    resolved: dict[str, str] = {}
    for row in map(obj, arr(models)):
        value = get_text(row, "value")
        if not value or value in resolved:
            continue
        resolved[value] = get_text(row, "resolvedModel") or value
        efforts = tuple(e for e in map(as_text, arr(row.get("supportedEffortLevels"))) if e)
        found.append(
            Model(
                id=value,
                name=get_text(row, "displayName").removesuffix(" (recommended)") or value,
                description=get_text(row, "description"),
                variants=efforts,
                reasoning=bool(efforts) or row.get("supportsAdaptiveThinking") is True,
                context=1_000_000 if resolved[value].endswith("[1m]") else None,
            )
        )
    return tuple(found), resolved


def read_commands(commands: Json) -> tuple[SlashCommand, ...]:
    """`commands[]` of the answer to `initialize` or of `commands_changed`."""
    return tuple(
        SlashCommand(_runnable(get_text(row, "name")), get_text(row, "description"), get_text(row, "argumentHint"))
        for row in map(obj, arr(commands))
        if get_text(row, "name")
    )


_MCP_PROMPT = re.compile(r"([^:]+):(.+) \(MCP\)")


def _runnable(name: str) -> str:
    """The name that a command runs by. A prompt of an MCP server is listed as `pm:greet (MCP)`, and runs as `mcp__pm__greet`.

    Claude takes `/pm:greet`, which is what a client sends that reads the name up to its space, for plain text (2.1.332).
    """
    prompt = _MCP_PROMPT.fullmatch(name)
    return f"mcp__{re.sub('[^A-Za-z0-9_-]', '_', prompt[1])}__{prompt[2]}" if prompt else name


def plain_model(model: str) -> str:
    """A model id without its `[1m]`: `system/init` says it, the model's own messages do not."""
    return model.partition("[")[0]


# --- the ends of a turn -------------------------------------------------------------------------------

CALLS_S = 1.0
"""Seconds for the results of calls that are open when a turn's `result` comes."""
ACCEPT_S = 60.0
"""Seconds for the begin of a prompt that was written, while Claude Code is idle. Hooks of the prompt may take that long."""
REST_S = 30.0
"""Seconds for `idle` after the last `result`, without live work in the background."""
HOOKS_S = 600.0
"""Seconds for `result` after an answer that calls no tools, from a version that reports no states. Stop hooks run before it."""

ENDS: dict[str, kit.Sign] = {
    "result": kit.Sign("the end itself. With open calls, their results are waited for", CALLS_S),
    "idle": kit.Sign("answers all prompts that have begun. One that has not, and does not begin, is lost", ACCEPT_S),
    "command_lifecycle": kit.Sign("`completed` or `cancelled` of a prompt that has begun", kit.END_S),
    "end_turn": kit.Sign("a message that calls no tools, from a version without states", HOOKS_S),
    "rest": kit.Sign("`result`, and no `idle` after it", REST_S),
    "eof": kit.Sign("the process has ended"),
}
"""Sign of a turn's end -> what it shows, and how long the others are waited for. Claude Code has no request for its state."""


# --- what is known and not used -----------------------------------------------------------------------

IGNORED = kit.by_reason(
    {
        "the `assistant` line that comes before it completes the block": "stream_event/content_block_stop",
        "keeps the connection open": "stream_event/ping keep_alive",
        "the retry or the result says it": "stream_event/error",
        "a label for tool calls, made for small screens": "tool_use_summary",
        "a guess at the next prompt; not asked for": "prompt_suggestion",
        "progress of a login that is not done here": "auth_status",
        "what the CLI adds to the prompt on its own": "attachment system/memory_recall",
        "withdraws a message of a broken connection; its item was completed as failed": "tombstone",
        "copies of the transcript file; not asked for": "transcript_mirror",
        "for other hosts (terminal, desktop, cloud); a session driven by stdio has no use for it": """
            control_cancel_response system/permission_retry system/files_persisted system/notification
            system/turn_handoff_available system/post_turn_summary system/task_summary system/task_list_statuses
            system/session_metadata system/session_writes_lost system/mirror_error system/shell_cwd
            system/vcs_state_changed system/code_change_published system/file_snapshot system/file_attachments_missing
            system/instruction_size_warning system/away_summary system/bridge_state system/bridge_status
            system/worker_shutting_down system/cloud_session_delta system/cloud_session_status
            system/inherited_asks_settled system/late_allow_not_run system/ui_panes system/ui_placed system/ui_status
            system/ui_toast system/ui_log system/ui_notify system/ui_notify_cancel system/ui_invalidate
            system/ui_focus system/ui_scroll active_goal
        """,
        "another output format": "streamlined_text",
        "an estimate while thinking; the usage comes with the message": "system/thinking_tokens",
        "progress inside of something whose start and end are reported": """
            system/task_progress system/permission_check_status system/control_request_progress system/plugin_install
        """,
        "the same is said by another message that is used": """
            system/task_updated system/turn_starting system/turn_duration system/turn_began_before_init
            system/turn_preempted system/per_turn_effort_changed system/agents_killed system/api_error
            system/local_command
        """,
        "the tool result carries the same text": "system/permission_denied",
        "hooks of the user's own configuration": """
            system/hook_started system/hook_progress system/hook_response system/stop_hook_summary
        """,
        "the tool call that saved it is reported": "system/memory_saved",
        "the turn that it starts is reported": "system/scheduled_task_fire",
        "the answer to the request says it": "system/elicitation_complete",
        "the message and the result after it say it": "system/model_refusal_no_fallback",
    }
)
"""Kind of line -> why it is not used. What is in neither this table nor the codec's is `agent.unparsed`."""

IGNORED_BLOCKS: dict[str, str] = {
    "redacted_thinking": "nothing to show",
    "server_tool_use": "tools that the model API runs itself; Claude Code uses its own",
    "web_search_tool_result": "tools that the model API runs itself; Claude Code uses its own",
    "fallback": "marks where another model took over; no content",
}
"""Kind of content block -> why it is not used."""

IGNORED_DELTAS: dict[str, str] = {
    "signature_delta": "proof of the thinking, for the model API",
    "citations_delta": "sources of a text of the model API's own search",
}

REFUSED: dict[str, tuple[Literal["error", "silence"], str]] = {
    "mcp_message": ("error", "no MCP server lives in this process"),
    "request_user_dialog": ("silence", "no kind of dialog was announced, and an answer would count as dismissal"),
    "oauth_token_refresh": ("error", "no token is held here"),
    "host_auth_token_refresh": ("error", "no token is held here"),
}
"""Control requests of the CLI that are known and not served -> what is done with them, and why."""
