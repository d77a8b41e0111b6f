"""Shared by the wire formats: ids, pieces of text, and kinds of errors."""

from __future__ import annotations

import re
import secrets

INPUT_TOKENS, OUTPUT_TOKENS = 120, 20
"""Token usage of every answer."""


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


def error_kind(status: int) -> str:
    """The error type that model providers use for a status."""
    return {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}.get(status, "overloaded_error")


def new_id(prefix: str) -> str:
    """A random id in the form of model providers. Agents keep ids over restarts of this server, so they must not repeat."""
    return prefix + secrets.token_hex(10)
