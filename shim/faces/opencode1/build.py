"""Builders of OpenCode 1.x wire values: messages, parts, sessions, errors. Pure.

Wire values are plain dicts with OpenCode's own names. Tests check them against OpenCode's API document (1.18.33). Times are epoch
milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

Wire = dict[str, Any]

OPENCODE_VERSION = "1.18.33"
"""The version of the wire format. Clients show it, and some compare it with their own."""


def tokens(usage: Mapping[str, Any] | None) -> Wire:
    """Convert the token counts of one step from a universal `usage`; zeros without one."""
    if not usage:
        return {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    counts = {k: int(usage.get(k) or 0) for k in ("input", "output", "reasoning", "cache_read", "cache_write")}
    return {
        "total": sum(counts.values()),
        "input": counts["input"],
        "output": counts["output"],
        "reasoning": counts["reasoning"],
        "cache": {"read": counts["cache_read"], "write": counts["cache_write"]},
    }


def add_tokens(total: Wire, step: Wire) -> Wire:
    """Add two token records, without `total`, which a session lacks."""
    return {
        "input": total["input"] + step["input"],
        "output": total["output"] + step["output"],
        "reasoning": total["reasoning"] + step["reasoning"],
        "cache": {k: total["cache"][k] + step["cache"][k] for k in ("read", "write")},
    }


def error_of(message: str, code: str | None, details: Mapping[str, Any] | None, provider: str) -> Wire:
    """Convert a universal error to an OpenCode error object `{name, data}`.

    Source: `AssistantMessage.error` of the API document. For ProviderAuthError, clients offer a login.
    """
    details = details or {}
    native = details.get("opencode")
    if isinstance(native, dict):  # an error of OpenCode itself
        return cast(Wire, native)
    hint = details.get("hint")
    text = f"{message}\n{hint}" if hint else message
    if code in ("authentication_failed", "ProviderAuthError"):
        return {"name": "ProviderAuthError", "data": {"providerID": provider, "message": text}}
    if code == "max_output_tokens":
        return {"name": "MessageOutputLengthError", "data": {}}
    if code == "aborted":
        return aborted_error()
    status = details.get("status_code")
    if isinstance(status, int) or code == "APIError":
        data: Wire = {"message": text, "isRetryable": bool(details.get("is_retryable", False))}
        if isinstance(status, int):
            data["statusCode"] = status
        return {"name": "APIError", "data": data}
    return {"name": "UnknownError", "data": {"message": text}}


def aborted_error() -> Wire:
    """The error of a message whose turn was aborted."""
    return {"name": "MessageAbortedError", "data": {"message": "Aborted"}}


def status_busy() -> Wire:
    """Session status while a turn runs."""
    return {"type": "busy"}


def status_idle() -> Wire:
    """Session status between turns."""
    return {"type": "idle"}


def status_retry(attempt: int, message: str, next_ms: int) -> Wire:
    """Session status while the agent waits before it retries its model; `next` in epoch milliseconds."""
    return {"type": "retry", "attempt": attempt, "message": message, "next": next_ms}
