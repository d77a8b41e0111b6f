"""Messages that were imported, as they are. Pure."""

from __future__ import annotations

from shim.opencode.build import Wire
from shim.projection.opencode1.state import Conversation, Message
from shim.projection.opencode1.transcript import Transcript
from universal.items import Item
from universal.jsonvalue import arr, obj


def put(conversation: Conversation, transcript: Transcript, item: Item) -> bool:
    """Show the message that this item holds in `metadata.imported`; whether there is one."""
    wire = obj(obj(item.metadata).get("imported"))
    if not wire:
        return False
    info: Wire = obj(wire["info"])
    parts = {str(obj(p)["id"]): obj(p) for p in arr(wire["parts"])}
    message = Message(info, parts, done=True, finished=True)
    conversation.add(message)
    transcript.show(message)
    for part in parts.values():
        if part["type"] == "tool" and part["tool"] == "todowrite":
            _todos(conversation, obj(part["state"]))
    return True


def _todos(conversation: Conversation, state: Wire) -> None:
    """An export has no todo list of its own: it is what was written last."""
    told = arr(obj(state.get("metadata")).get("todos")) or arr(obj(state.get("input")).get("todos"))
    todos = [obj(t) for t in told]
    if state.get("status") == "completed" and all({"content", "status", "priority"} <= t.keys() for t in todos):
        conversation.todos = todos
