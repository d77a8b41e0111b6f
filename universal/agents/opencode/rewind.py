"""Undo in OpenCode's conversation: deletes the messages after the last answer that stays, before the next prompt.

Messages are not reverted, because a revert also writes files, which the server restores itself. They are not forked, because a
fork has new ids, so that a second undo would not find its place. 1.1 cannot delete a message, so its conversation begins anew.
Source: runs of 1.18.33 against a scripted model; docs/wire.md.
"""

from __future__ import annotations

from universal.items import Json
from universal.lib.jsonvalue import arr, obj, text


def after(messages: Json, anchor: str) -> list[str] | None:
    """Ids of the messages after `anchor` in an answer of `GET /session/{id}/message`, the last first. None without the anchor."""
    ids = [text(obj(obj(message).get("info")).get("id")) for message in arr(messages)]
    if anchor not in ids:
        return None
    return [id_ for id_ in reversed(ids[ids.index(anchor) + 1 :]) if id_]
