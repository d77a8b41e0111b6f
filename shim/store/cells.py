"""Cells of a table: text that has no UTF-8 (a directory whose name has none) is kept as bytes. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def bind(cells: Sequence[str | int | None]) -> list[str | bytes | int | None]:
    """Cells as SQLite takes them."""
    return [_encodable(cell) if isinstance(cell, str) else cell for cell in cells]


def text_of(cell: str | bytes) -> str:
    """What was bound; anything but bytes is given back as it is."""
    return cell.decode("utf-8", "surrogatepass") if isinstance(cell, bytes) else cell


def _encodable(text: str) -> str | bytes:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text
