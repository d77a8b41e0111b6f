"""How agents of the Agent Client Protocol end a prompt, and readable errors for people.

Agents report errors in these ways, all of them recorded:

    error response                      claude-agent-acp, codex-acp 0.16, opencode
    error response and the same text    claude-agent-acp: a chunk "API Error ..." before it
    a chunk, then end_turn              codex-acp 2.6: the only chunks without a messageId; copilot: it begins with "Error: "
    end_turn and not a word             pi-acp
    cancelled, though nobody cancelled  codex-acp, after a refused permission: no error
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from universal.agents import kit
from universal.agents.acp.profiles import Profile
from universal.agents.acp.wire import Msg
from universal.codec import Fact, Output, Signal
from universal.items import Json
from universal.lib.jsonline import get_int, get_text
from universal.lib.jsonvalue import arr, obj
from universal.turn import Input

AUTH_REQUIRED = -32000
NOT_FOUND = -32002
_STATUS = re.compile(r"API Error: (\d{3})\b")
_TOLD_STATUS = re.compile(r"Error: (\d{3}) (.*)", re.DOTALL)
"""An error of Copilot: `Error: STATUS MESSAGE`."""
_OUTPUT_LIMIT = "max_output_tokens"
"""Codex's message contains this if the answer was longer than allowed."""
SESSION_NOT_FOUND = "session_not_found"


@dataclass(frozen=True, slots=True)
class Stop:
    """The meaning of a `stopReason`: `finish` of the last message, and an error if it is one."""

    finish: str
    code: str = ""
    message: str = ""


STOP_REASONS: dict[str, Stop] = {
    "end_turn": Stop("stop"),
    "max_tokens": Stop("length"),
    "max_turn_requests": Stop(
        "other", "max_turn_requests", "The agent has made as many requests to the model as it may in one turn."
    ),
    "refusal": Stop("content-filter", "refusal", "The model refused to answer."),
    "cancelled": Stop("other"),
}
"""Unknown reasons count as `end_turn`: the prompt is answered in any case."""

HINTS: dict[str, str] = {
    "authentication_failed": "Log in with the agent's own program in a terminal, or give the server its API key.",
    "rate_limit": "Wait until the limit resets, or choose another model.",
    "overloaded": "The model service is overloaded. Try again in a while, or choose another model.",
    "max_output_tokens": "Ask for the work in smaller pieces.",
    "max_turn_requests": "Send another message to let the agent go on.",
    SESSION_NOT_FOUND: "The agent does not have this conversation any more. Start a new session.",
    "model_unavailable": "The turn goes on with the model that was in force.",
    "variant_unavailable": "The turn goes on with the effort that was in force.",
    "mode_unavailable": "Choose the agent `build`: nothing was sent.",
}
"""Code of an error -> what the person can do."""

_RETRYABLE = frozenset({"rate_limit", "overloaded", "server_error"})


def make(message: str, code: str, status: int = 0) -> Msg:
    """Return an error {message, code, details {is_retryable, status_code?, hint?}}."""
    return kit.make_error(message, code, status, hint=HINTS.get(code, ""), is_retryable=code in _RETRYABLE)


_NUMBER = re.compile(r"\d{1,9}")


def is_older(version: str, than: str) -> bool:
    """Return whether a version comes before another. A version that the agent does not report comes before all."""
    numbers, limits = ([int(number) for number in _NUMBER.findall(text)] for text in (version, than))
    return numbers < limits


def too_old(title: str, version: str, needed: str) -> Msg:
    """Return the error for a version of an agent that cannot be held to permission rules."""
    name = f"{title} {version}" if version else f"This version of {title}"
    return make(f"{name} cannot be held to your permission rules. Update it to {needed} or newer.", "agent_too_old")


def other_protocol(title: str, version: object, spoken: int) -> Msg:
    """Return the error for an agent that answers `initialize` with a protocol version that is unknown here."""
    message = (
        f"{title} answered with version {version} of the Agent Client Protocol, but this server speaks {spoken}. "
        f"Install a version of {title} that speaks it, or update opencode-shim."
    )
    return make(message, "protocol_version")


def wants_login(error: Msg) -> bool:
    """Return whether a JSON-RPC error says that a login is missing."""
    return get_int(error, "code") == AUTH_REQUIRED


def response_error(error: Msg, logins: object = None, login_hint: str = "") -> Msg:
    """Return the error for a JSON-RPC error response. `logins`: `authMethods` of the agent; `login_hint`: what to do."""
    data = obj(error.get("data"))
    number = get_int(error, "code")
    message = readable(get_text(data, "message", "details") or get_text(error, "message") or "The agent reported an error.")
    message = message.removeprefix("Internal error: ") or message
    if number == AUTH_REQUIRED:
        names = ", ".join(name for name in (get_text(obj(login), "name", "id") for login in arr(logins)) if name)
        made = make(message, "authentication_failed")
        if login_hint:
            made["details"]["hint"] = login_hint
        return {**made, "message": f"{message} (ways to log in: {names})"} if names else made
    match = _STATUS.match(message)
    number = int(match[1]) if match else number
    kind = get_text(data, "errorKind")
    usual = "max_output_tokens" if _OUTPUT_LIMIT in message else "agent_error"
    code = kind if kind not in ("", "unknown") else "resource_not_found" if number == NOT_FOUND else usual
    return make(message, code, number if 400 <= number < 600 else 0)


def is_text(profile: Profile, text: str, native_id: str) -> bool:
    """Return whether this agent sends errors of the model as such a piece of a message, by its profile."""
    is_error = bool(profile.errors_begin) and text.startswith(profile.errors_begin)
    return is_error or (profile.id_less_errors and bool(text) and not native_id)


def of_text(text: str) -> Msg:
    """Return the error that an agent sent as a message."""
    message = readable(text)
    match = _TOLD_STATUS.match(message)
    if match:
        return make(match[2], "model_error", int(match[1]))
    return make(message, "max_output_tokens" if _OUTPUT_LIMIT in message else "model_error")


def readable(text: str) -> str:
    """Return the message inside an error that is JSON text (`{"error": {"message": ...}}`), else the text."""
    try:
        body = obj(json.loads(text))
    except (ValueError, RecursionError):
        return text.strip()
    inner = body.get("error")
    return get_text(obj(inner), "message") or get_text(body, "message") or (inner if isinstance(inner, str) else text.strip())


def usage_of(usage: Msg) -> dict[str, int]:
    """Return the tokens of a prompt. If cached ones are part of the input and thinking of the output, they are subtracted."""
    input_, output = max(get_int(usage, "inputTokens"), 0), max(get_int(usage, "outputTokens"), 0)
    read, write = max(get_int(usage, "cachedReadTokens"), 0), max(get_int(usage, "cachedWriteTokens"), 0)
    thought = max(get_int(usage, "thoughtTokens"), 0)
    if get_int(usage, "totalTokens") == input_ + output:
        input_, output = max(input_ - read - write, 0), max(output - thought, 0)
    return {"input": input_, "output": output, "reasoning": thought, "cache_read": read, "cache_write": write}


def unavailable(subject: str, message: str, raw: Json) -> Fact:
    """Return the error for a setting (`what`: model or variant) that the agent does not offer or has refused."""
    return kit.error_fact(make(message, f"{subject}_unavailable"), raw)


def prompt_failed(message: str, code: str, raw: Json) -> Iterator[Output]:
    """Report that a prompt cannot be sent to the agent, and fail its turn."""
    error = make(message, code)
    yield kit.error_fact(error, raw)
    yield Signal(Input.FAILED, error=error)
