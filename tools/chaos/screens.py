"""What a client has on its screen after the events of a stream, folded as OpenCode's clients do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from universal.lib.jsonvalue import obj, text

WORDS = (b'"message.', b'"permission.', b'"question.', b'"session.created"', b'"session.updated"', b'"session.deleted"')
"""What the events are called of which a screen is made; others need not be decoded."""
DISPOSED = b'"server.instance.disposed"'
TEXTS = ("text", "reasoning")
"""Parts whose text is compared."""


def content_of(part: Mapping[str, Any]) -> str:
    """What must be the same of a part on a screen and in a message that is read: its text, or the state of a tool."""
    kind = text(part.get("type"))
    if kind in TEXTS:
        return text(part.get("text"))
    return f"{kind} {text(obj(part.get('state')).get('status'))}"


@dataclass(slots=True)
class SessionScreen:
    """A session on a screen.

    messages  ids of its messages
    parts     part -> its message, and its content
    dialogs   ids of permissions and questions that wait for an answer
    is_gone   it was deleted; `is_back`: and shown again
    """

    messages: set[str] = field(default_factory=set[str])
    parts: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    dialogs: set[str] = field(default_factory=set[str])
    is_gone: bool = False
    is_back: bool = False

    def note(self, type_: str, properties: Mapping[str, Any]) -> None:
        """Note an event of this session."""
        match type_:
            case "message.updated":
                self.messages.add(text(obj(properties.get("info")).get("id")))
            case "message.removed":
                gone = text(properties.get("messageID"))
                self.messages.discard(gone)
                self.parts = {part: place for part, place in self.parts.items() if place[0] != gone}
            case "message.part.updated":
                part = obj(properties.get("part"))
                self.parts[text(part.get("id"))] = (text(part.get("messageID")), content_of(part))
            case "message.part.delta":
                part_id = text(properties.get("partID"))
                if properties.get("field") == "text" and part_id in self.parts:  # else it began before the stream
                    message, content = self.parts[part_id]
                    self.parts[part_id] = (message, content + text(properties.get("delta")))
            case "message.part.removed":
                self.parts.pop(text(properties.get("partID")), None)
            case "permission.asked" | "question.asked":
                self.dialogs.add(text(properties.get("id")))
            case "permission.replied" | "question.replied" | "question.rejected":
                self.dialogs.discard(text(properties.get("requestID")))
            case "session.deleted":
                self.is_gone = True
            case "session.created" | "session.updated":
                self.is_back = self.is_gone
            case _:
                pass


@dataclass(slots=True)
class Screen:
    """All sessions on a screen, by id."""

    sessions: dict[str, SessionScreen] = field(default_factory=dict[str, SessionScreen])

    def note(self, line: bytes) -> None:
        """Note a line of `/global/event`."""
        if DISPOSED in line:
            self.sessions.clear()  # the client reads everything again
        elif line.startswith(b"data:") and any(word in line for word in WORDS):
            payload = obj(obj(json.loads(line[5:])).get("payload"))
            properties, type_ = obj(payload.get("properties")), text(payload.get("type"))
            if type_ != "sync" and (session_id := text(properties.get("sessionID"))):
                self.sessions.setdefault(session_id, SessionScreen()).note(type_, properties)
