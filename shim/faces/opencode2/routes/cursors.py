"""Pages of lists: cursors are base64url JSON that says where a page begins, as native's. Pure.

Source: recording `endpoints` of v2-20260717: both cursors are there when there is data, also at the ends, whose page is empty.
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
    """A cursor."""
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def read(cursor: str) -> dict[str, Any]:
    """What a cursor says. Raises CursorInvalid."""
    try:
        value = obj(json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))))
    except (binascii.Error, ValueError):
        value = {}
    if not value:
        raise CursorInvalid
    return value


def page(found: Sequence[T], limit: int, *, back: bool, is_at: Callable[[T], bool] | None) -> Sequence[T]:
    """`limit` things after (or, `back`, before) the one that `is_at`; the first ones if that is None.

    Raises CursorInvalid if it is not among them any more.
    """
    if is_at is None:
        return found[:limit]
    place = next((index for index, one in enumerate(found) if is_at(one)), None)
    if place is None:
        raise CursorInvalid
    return found[max(0, place - limit) : place] if back else found[place + 1 : place + 1 + limit]
