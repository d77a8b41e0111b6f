"""What the wires share: ids, words and slices of text, and an error's kind."""

from __future__ import annotations

import re
import secrets

INPUT_TOKENS, OUTPUT_TOKENS = 120, 20
"""Usage of every answer."""


def words(text: str) -> list[str]:
    """The deltas of a text: a word and what follows it up to the next."""
    return re.findall(r"\S+\s*", text)


def slices(text: str, whole: str = "", size: int = 20) -> list[str]:
    """Pieces of the JSON of a tool's arguments. `whole` (the agent's directory) is never cut: recordings replace it."""
    pieces: list[str] = []
    for number, part in enumerate(text.split(whole) if len(whole) > 1 else [text]):
        pieces += [whole] if number else []
        pieces += [part[at : at + size] for at in range(0, len(part), size)]
    return pieces


def error_kind(status: int) -> str:
    """The error's type as model providers name it."""
    return {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}.get(status, "overloaded_error")


def new_id(prefix: str) -> str:
    """An id as model providers make them. Agents keep them over restarts of this server, so they are random."""
    return prefix + secrets.token_hex(10)
