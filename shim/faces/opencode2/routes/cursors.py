"""Pages of lists. A cursor is base64url JSON that says where a page begins, as in OpenCode. Pure.

A page with data has both cursors, also at the ends of the list, where the next page is empty. Source: recording `endpoints` of
v2-20260717.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from shim.faces.opencode2.errors import CursorInvalid
from universal.jsonvalue import obj

T = TypeVar("T")


def encode_cursor(value: Any) -> str:
    """Encode a cursor."""
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def read(cursor: str) -> dict[str, Any]:
    """Decode a cursor. Raises CursorInvalid."""
    try:
        value = obj(json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))))
    except (binascii.Error, ValueError):
        value = {}
    if not value:
        raise CursorInvalid
    return value


def page(found: Sequence[T], limit: int, *, back: bool, is_at: Callable[[T], bool] | None) -> Sequence[T]:
    """A page of `limit` rows after (`back`: before) the row for which `is_at` is true, or the first page without `is_at`.

    Raises CursorInvalid if that row is gone.
    """
    if is_at is None:
        return found[:limit]
    place = next((index for index, one in enumerate(found) if is_at(one)), None)
    if place is None:
        raise CursorInvalid
    return found[max(0, place - limit) : place] if back else found[place + 1 : place + 1 + limit]
