"""Tables of Codex app-server's known messages, and functions that look at one value.

Source: recordings of 0.169.0 (`compat_fixtures/agents/codex`) and the schema that this version writes by itself
(`codex app-server generate-json-schema --experimental`), which names the kinds that no recording shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from universal.agents import kit
from universal.codec import Attachment, Catalogue, Mode, Model, Prompt
from universal.items import Json
from universal.lib.jsonline import get_int, get_text, parse
from universal.lib.jsonvalue import arr, obj

NAME = "codex"
"""Registry name, and the provider id in `metadata.model`."""

Msg: TypeAlias = dict[str, Any]
"""One JSON object of the wire."""

# --- modes --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preset:
    """A mode in Codex's terms: approvals, sandbox, and whether it only plans."""

    approval: str
    sandbox: str
    policy: str
    """The sandbox's name in `turn/start`, where it is an object with a `type`."""
    plan: bool = False


PRESETS: dict[str, Preset] = {
    "build": Preset("on-request", "read-only", "readOnly"),
    "plan": Preset("on-request", "read-only", "readOnly", plan=True),
    "accept-edits": Preset("on-request", "workspace-write", "workspaceWrite"),
    "bypass": Preset("never", "danger-full-access", "dangerFullAccess"),
}

MODES: tuple[Mode, ...] = (
    Mode("build", "Reads freely, and asks before it edits files or runs a command outside of its sandbox.", "read-only"),
    Mode("plan", "Only reads and thinks, then proposes a plan.", "plan"),
    Mode("accept-edits", "Edits files and runs commands in the project; it asks to go beyond that.", "workspace-write"),
    Mode("bypass", "Does everything without asking and without a sandbox. Only for machines that do not matter.", "never"),
)

DEFAULT_MODE = "build"

# --- models -------------------------------------------------------------------------------------------

DEFAULT_MODEL = "default"

DEFAULT_CATALOGUE = Catalogue(
    models=(Model(DEFAULT_MODEL, "Default", "What your configuration of Codex chooses.", reasoning=True),),
    default_model=DEFAULT_MODEL,
)
"""The catalogue until a process has sent its own (`model/list`)."""


def read_models(data: Json) -> tuple[tuple[Model, ...], dict[str, str], str | None]:
    """`data[]` of `model/list`: the models that are not hidden, their own efforts by model, and the default model."""
    models: list[Model] = []
    efforts: dict[str, str] = {}
    default: str | None = None
    for row in map(obj, arr(data)):
        id_ = get_text(row, "model", "id")
        if not id_ or id_ in efforts or row.get("hidden") is True:
            continue
        variants = tuple(e for e in (get_text(obj(v), "reasoningEffort") for v in arr(row.get("supportedReasoningEfforts"))) if e)
        efforts[id_] = get_text(row, "defaultReasoningEffort")
        default = id_ if default is None or row.get("isDefault") is True else default
        models.append(
            Model(
                id=id_,
                name=get_text(row, "displayName") or id_,
                description=get_text(row, "description"),
                variants=variants,
                reasoning=bool(variants),
                images="image" in arr(row.get("inputModalities")),
            )
        )
    return tuple(models), efforts, default


# --- prompts ------------------------------------------------------------------------------------------


def prompt_input(prompt: Prompt) -> list[Msg]:
    """`input` of `turn/start`. Codex has no channel for a system text of one prompt, so it goes in front."""
    parts: list[Msg] = []
    if prompt.system:
        parts.append(_text(kit.reminder(prompt.system)))
    parts.extend(_attachment_blocks(prompt.attachments))
    if prompt.text or not parts:
        parts.append(_text(prompt.text))
    return parts


def _text(text: str) -> Msg:
    return {"type": "text", "text": text, "text_elements": []}


def _attachment_blocks(attachments: Iterable[Attachment]) -> Iterable[Msg]:
    for item in attachments:
        if item.mime.startswith("image/") and item.base64:
            yield {"type": "image", "url": f"data:{item.mime};base64,{item.base64}"}
        elif item.mime.startswith("image/") and item.path:
            yield {"type": "localImage", "path": item.path}
        else:
            yield _text(kit.attachment_text(item))


# --- usage and errors ---------------------------------------------------------------------------------


def usage_of(usage: Msg) -> dict[str, int]:
    """Tokens of one model call. The five numbers do not overlap: Codex counts cached tokens as input, thinking as output."""
    cached, cache_writes = get_int(usage, "cachedInputTokens"), get_int(usage, "cacheWriteInputTokens")
    thinking = get_int(usage, "reasoningOutputTokens")
    return {
        "input": max(get_int(usage, "inputTokens") - cached - cache_writes, 0),
        "output": max(get_int(usage, "outputTokens") - thinking, 0),
        "reasoning": thinking,
        "cache_read": cached,
        "cache_write": cache_writes,
    }


_LOGIN = "Run `codex login` in a terminal, or set the API key that your provider in config.toml wants. Then try again."
LIMIT = "usageLimitExceeded"
"""Code of the error of a used up limit of the person's plan."""
HINTS: dict[str, str] = {
    "authentication_failed": _LOGIN,
    "contextWindowExceeded": "Start a new session, or send less.",
    LIMIT: "Wait until the limit of your plan resets, or choose another model.",
    "rateLimitExceeded": "Wait a while, or choose another model.",
    "serverOverloaded": "The model service is overloaded. Try again in a while, or choose another model.",
    "modelNotFound": "Choose another model: this one does not exist, or your account may not use it.",
    "max_output_tokens": "Ask for the work in smaller pieces.",
    "session_not_found": "The conversation is no longer stored by Codex on this machine. Start a new session.",
    "bad_config": "Correct config.toml in CODEX_HOME (~/.codex), then try again.",
}
"""Code of an error -> hint for the person."""

ACTIVE_WRITER = "already has an active writer"
"""In the refusal of a thread that another process has open (0.171). It says so as long as that runs, also between its turns."""
CONVERSATION_IN_USE = (
    "Codex has this conversation open in another program, perhaps in a terminal, and lets only one write to it. Close it there "
    "and send the prompt again: the conversation then has what was said there."
)
_RETRYABLE = frozenset({"rateLimitExceeded", "serverOverloaded", "internalServerError", "responseStreamDisconnected"})
INTERRUPTION: dict[str, Json] = {"message": "Interrupted", "code": "aborted"}
SELF_INTERRUPTION: Msg = {
    "message": "Codex has interrupted its turn by itself and gives no reason. Send the prompt again to go on.",
}
"""`error` of a turn that ends `interrupted` without an interrupt of ours."""


def turn_error(error: Msg) -> dict[str, Json]:
    """`error` of a turn as {message, code, details}. A message that is the model API's own JSON is unpacked."""
    message = get_text(error, "message") or "Codex ended the turn with an error."
    kind, status = _kind(error.get("codexErrorInfo"))
    body = _body(message)
    code = kind if kind not in ("", "other") else get_text(body, "code", "type") or kind or "error"
    if status in (401, 403) or kind == "unauthorized":
        code = "authentication_failed"
    elif "max_output_tokens" in message:
        code = "max_output_tokens"
    message = get_text(body, "message") or message
    extra = get_text(error, "additionalDetails")
    return error_json(message if not extra or extra in message else f"{message}\n{extra}", code, status)


def error_json(message: str, code: str, status: int = 0) -> dict[str, Json]:
    """{message, code, details {is_retryable, status_code?, hint?}}"""
    return kit.make_error(message, code, status, hint=HINTS.get(code, ""), is_retryable=code in _RETRYABLE)


def request_error(method: str, message: str) -> dict[str, Json]:
    """The error of the turn for a refused request of ours."""
    if ACTIVE_WRITER in message:
        return error_json(CONVERSATION_IN_USE, "conversation_in_use")
    if method in ("thread/fork", "thread/resume"):  # whatever the reason is: the server begins a new conversation
        return error_json(message, "session_not_found")
    if "config" in message.lower():
        return error_json(message, "bad_config")
    return error_json(message, f"{method.replace('/', '_')}_refused")


def _kind(info: Json) -> tuple[str, int]:
    """(kind, HTTP status or 0) of `codexErrorInfo`: a name, or an object with one name."""
    if isinstance(info, str):
        return info, 0
    for name, value in obj(info).items():
        return name, get_int(obj(value), "httpStatusCode")
    return "", 0


def _body(message: str) -> Msg:
    """`error` of a message that is the model API's answer, else {}."""
    if not message.startswith("{"):
        return {}
    try:
        value = obj(parse(message.encode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return {}
    return obj(value.get("error")) or value


_ATTEMPT = re.compile(r"(\d{1,4})/\d{1,4}")


def retry_of(error: Msg) -> tuple[str, dict[str, Json]]:
    """(line for a person, metadata of the status `retry`) of an error with a retry."""
    message, details = get_text(error, "message"), get_text(error, "additionalDetails")
    match = _ATTEMPT.search(message)
    text = f"{message} ({details})" if details else message or "Reconnecting"
    return text, {"attempt": int(match.group(1)) if match else 1, "message": text, "delay_ms": 0}


# --- the ends of a turn -------------------------------------------------------------------------------

RESTING = frozenset({"idle", "systemError", "notLoaded"})
"""Statuses of a thread without a running turn. `systemError` means that its turn has failed."""
READ_METHOD = "thread/read"
CLEAN_METHOD, LIST_METHOD, END_METHOD = (f"thread/backgroundTerminals/{name}" for name in ("clean", "list", "terminate"))
ENDS: dict[str, kit.Sign] = {
    "turn/completed": kit.Sign("the end itself, with its status and its error"),
    "thread/status/changed": kit.Sign("a status of RESTING; `active` takes it back", kit.END_S),
    "error": kit.Sign("an error without a retry", kit.END_S),
    "thread/closed": kit.Sign("the thread is not loaded any more", kit.END_S),
    "thread/deleted": kit.Sign("the thread is gone", kit.END_S),
    "eof": kit.Sign("the process has ended"),
}
"""Sign of a turn's end -> what it shows, and how long `turn/completed` is waited for before Codex is asked (`thread/read`)."""


# --- known and not used -----------------------------------------------------------------------

IGNORED = kit.by_reason(
    {
        "about the account or the installation, not about this conversation": """
            account/updated account/gatewayOAuth/changed account/login/completed app/list/updated
            externalAgentConfig/import/completed externalAgentConfig/import/progress mcpServer/oauthLogin/completed
            model/verification skills/changed
        """,
        "progress inside of something whose start and end are reported": """
            autoApprovalReview/strictReviewRequired item/autoApprovalReview/completed item/autoApprovalReview/started
            item/commandExecution/terminalInteraction item/fileChange/outputDelta item/fileChange/patchUpdated
            item/mcpToolCall/progress model/safetyBuffering/updated modelProvider/authRecoveryCompleted
            modelProvider/authRecoveryStarted
        """,
        "commands that a client runs itself; we run none": "command/exec/outputDelta",
        "for the developers of clients": "deprecationNotice",
        "watches that a client asks for; we ask for none": "fs/changed",
        "for other hosts (desktop, cloud, voice); a session driven by stdio has no use for it": """
            fuzzyFileSearch/sessionCompleted fuzzyFileSearch/sessionUpdated mcpServer/event/stream/notification
            project/changed remoteControl/status/changed thread/archived thread/attachment/updated
            thread/environment/connected thread/environment/disconnected thread/goal/cleared thread/goal/updated
            thread/project/updated thread/readState/changed thread/realtime/closed thread/realtime/error
            thread/realtime/item/completed thread/realtime/item/started thread/realtime/item/transcript/delta
            thread/realtime/itemAdded thread/realtime/outputAudio/delta thread/realtime/sdp thread/realtime/started
            thread/realtime/transcript/delta thread/realtime/transcript/done thread/reverted thread/section/changed
            thread/unarchived turn/moderationMetadata windows/worldWritableWarning windowsSandbox/setupCompleted
        """,
        "the refused call says the same": "guardianWarning",
        "hooks of the user's own configuration": "hook/completed hook/started",
        "a part begins with its first text": "item/reasoning/summaryPartAdded",
        "processes that a client starts itself; we start none": "process/exited process/outputDelta",
        "the same is said by another message that is used": "thread/compacted",
        "a guess at the next prompt": "thread/prediction/updated",
        "prompts are queued by the server, not by Codex": "thread/queue/changed",
        "the answer to thread/start or thread/resume says it": "thread/started",
        "each file change carries its own diff; this repeats them all": "turn/diff/updated",
    }
)
"""Notification -> why it is not used. Others without a handler become `agent.unparsed`."""

IGNORED_ITEMS: dict[str, str] = {
    "enteredReviewMode": "the review itself is reported",
    "functionCallOutput": "the output of a tool whose call is an item of its own",
    "hookPrompt": "hooks of the user's own configuration",
}
"""Kind of item -> why it is not used."""

REFUSED: dict[str, str] = {
    "account/chatgptAuthTokens/refresh": "no token is held here",
    "applyPatchApproval": "the older protocol, which is not spoken here",
    "attestation/generate": "not announced in `initialize`",
    "currentTime/read": "the codec has no clock; Codex uses its own",
    "execCommandApproval": "the older protocol, which is not spoken here",
    "item/tool/call": "no tools of the client were announced",
}
"""Known requests of Codex that are not served -> the text of the refusal."""

HELLO = (
    b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"opencode-shim","version":"1"}}}',
    b'{"method":"initialized"}',
)
"""The lines of a client that begins."""
