"""Converts cells of a table: text without a UTF-8 form (such as some directories' names) is stored as bytes. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def bind(cells: Sequence[str | int | None]) -> list[str | bytes | int | None]:
    """Convert cells to SQLite's types."""
    bound: list[str | bytes | int | None] = []
    for cell in cells:
        bound.append(_encodable(cell) if isinstance(cell, str) and not cell.isascii() else cell)
    return bound


def text_of(cell: str | bytes) -> str:
    """The inverse of `bind` for one cell."""
    return cell.decode("utf-8", "surrogatepass") if isinstance(cell, bytes) else cell


def _encodable(text: str) -> str | bytes:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text
