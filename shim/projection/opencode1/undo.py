"""Snapshots and undo on the OpenCode 1.x face: what status items `snapshot` and `revert` do to a conversation. Pure.

`snapshot`  phase (start: before a prompt is handed; step: a step's tools are done; end: the prompt is answered),
            tree, files (names that changed since the tree before, relative to the directory), diffs (`end`: of the prompt),
            session_diffs (`end`: of the session), failed (a sentence; then there is no tree)
`revert`    revert (as in the session's `info`, or None: a redo, or the undone messages are gone for good),
            after (the tree right after the undo), diffs (the session's from now on; None: as before the undo),
            messages, parts ([message, part]): what is gone for good

Source: a live OpenCode 1.18.33, driven over HTTP (docs/undo.md); the order of its events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shim.opencode.build import Wire
from shim.projection.opencode1.state import Conversation
from shim.projection.opencode1.transcript import Transcript
from universal.jsonvalue import arr, obj, text

Emit = Callable[[str, Wire], None]


def snapshot(conversation: Conversation, transcript: Transcript, meta: Wire, at_ms: int) -> None:
    """A snapshot was taken, or could not be."""
    trees, phase, tree = conversation.trees, text(meta.get("phase")), text(meta.get("tree"))
    if not tree:
        trees.on = False
        transcript.snapshot_taken(None, at_ms)
        return
    before, trees.last = trees.last, tree
    if phase == "start":
        trees.first = trees.first or tree
        trees.base, trees.on = tree, True
        before = None
    files = [f"{conversation.info['directory'].rstrip('/')}/{name}" for name in arr(meta.get("files"))]
    patch = {"type": "patch", "hash": before, "files": files} if files and before else None
    transcript.snapshot_taken(patch, at_ms)
    if phase == "end":
        trees.used_tools = False
        transcript.summarise(arr(meta.get("diffs")))
        conversation.diffs = arr(meta.get("session_diffs"))


def revert(conversation: Conversation, emit: Emit, meta: Wire) -> None:
    """An undo (events as native: `session.diff`), a redo, or the end of both."""
    session_id, trees = conversation.id, conversation.trees
    new = obj(meta.get("revert"))
    info: dict[str, Any] = {k: v for k, v in conversation.info.items() if k != "revert"}
    for message_id in arr(meta.get("messages")):
        if conversation.messages.pop(message_id, None) is not None:
            emit("message.removed", {"sessionID": session_id, "messageID": message_id})
    for message_id, part_id in arr(meta.get("parts")):
        message = conversation.messages.get(message_id)
        if message is not None and message.parts.pop(part_id, None) is not None:
            emit("message.part.removed", {"sessionID": session_id, "messageID": message_id, "partID": part_id})
    conversation.tools = {k: t for k, t in conversation.tools.items() if t.message_id in conversation.messages}
    if new:
        info["revert"] = new
        trees.diffs = conversation.diffs if trees.diffs is None else trees.diffs
        trees.after = text(meta.get("after")) or None
    diffs = meta.get("diffs")
    conversation.diffs = list(arr(diffs)) if diffs is not None else trees.diffs or []
    if not new:
        trees.diffs = trees.after = None
    conversation.info = {**info, "summary": totals(conversation.diffs)}
    emit("session.diff", {"sessionID": session_id, "diff": conversation.diffs})


def totals(diffs: list[Wire]) -> Wire:
    """A session's `summary` of its diffs."""
    return {
        "additions": sum(d["additions"] for d in diffs),
        "deletions": sum(d["deletions"] for d in diffs),
        "files": len(diffs),
    }
