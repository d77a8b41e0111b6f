"""Shared by the wire formats: ids, pieces of text, and kinds of errors."""

from __future__ import annotations

import re
import secrets

from shim.lib.clock import SystemClock

INPUT_TOKENS, OUTPUT_TOKENS = 120, 20
"""Token usage of every answer."""
WARNING = 0.75
"""How far a limit is used that its provider warns of."""


def words(text: str) -> list[str]:
    """The deltas of a text: each is a word with the blanks after it."""
    return re.findall(r"\S+\s*", text)


def slices(text: str, whole: str = "", size: int = 20) -> list[str]:
    """Pieces of the JSON of a tool's arguments. `whole` (the agent's directory) is never cut, because recordings replace it."""
    pieces: list[str] = []
    for number, part in enumerate(text.split(whole) if len(whole) > 1 else [text]):
        pieces += [whole] if number else []
        pieces += [part[at : at + size] for at in range(0, len(part), size)]
    return pieces


def limit_headers(used: float | None, reset_s: int) -> dict[str, str]:
    """The headers in which both providers tell the limits of an account with a plan."""
    if used is None:
        return {}
    reset = str(SystemClock().now_ms() // 1000 + reset_s)
    status = "rejected" if used >= 1 else "allowed_warning" if used >= WARNING else "allowed"
    unified, codex = "anthropic-ratelimit-unified", "x-codex-primary"
    claude = {"status": status, "reset": reset, "representative-claim": "five_hour", "5h-status": status, "5h-reset": reset}
    claude |= {
        "overage-status": "rejected",
        "5h-utilization": str(used),
        "7d-status": "allowed",
        "7d-reset": reset,
        "7d-utilization": "0.31",
    }
    claude |= {"5h-surpassed-threshold": "0.9"} if used >= 0.9 else {}
    headers = {f"{unified}-{key}": value for key, value in claude.items()}
    return headers | {
        f"{codex}-used-percent": str(used * 100),
        f"{codex}-window-minutes": "300",
        f"{codex}-reset-at": reset,
        "x-codex-secondary-used-percent": "31",
        "x-codex-secondary-window-minutes": "10080",
        "x-codex-secondary-reset-at": reset,
    }


def error_kind(status: int) -> str:
    """The error type that model providers use for a status."""
    return {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}.get(status, "overloaded_error")


def new_id(prefix: str) -> str:
    """A random id in the form of model providers. Agents keep ids over restarts of this server, so they must not repeat."""
    return prefix + secrets.token_hex(10)
