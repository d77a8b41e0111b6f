"""OpenCode's conversation after an undo: the messages after its last answer that stays are deleted, before the next prompt.

Deleted and not reverted, since a revert writes files too, and those are the server's to put back. Not forked: a fork gives the
messages new ids, so that a second undo would not find its place. 1.1 has no way to delete a message: there it begins anew.
Source: runs of 1.18.33 against a scripted model; docs/wire.md.
"""

from __future__ import annotations

from universal.items import Json
from universal.jsonvalue import arr, obj, text


def after(messages: Json, anchor: str) -> list[str] | None:
    """Ids of the messages after `anchor`, of the answer of `GET /session/{id}/message`, the last first. None: it is not there."""
    ids = [text(obj(obj(message).get("info")).get("id")) for message in arr(messages)]
    if anchor not in ids:
        return None
    return [id_ for id_ in reversed(ids[ids.index(anchor) + 1 :]) if id_]
