"""Pages of lists. A cursor is base64url JSON that says where a page begins, as in OpenCode. Pure.

A page with data has both cursors, also at the ends of the list, where the next page is empty. Source: recording `endpoints` of
v2-20260717.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from shim.faces.opencode2.errors import CursorInvalid
from universal.lib.jsonvalue import obj


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
