"""Decides whether an agent has answered a prompt with anything, for all agents alike.

An answer without text, tool call or error looks like a success to a client. It ends with an error that says so, in the words
of the agent's last notes if there are some (a hook that has blocked the prompt, a warning).
"""

from __future__ import annotations

from collections.abc import Iterable

from universal.codec import Fact
from universal.events import ErrorData, EventType, ItemData, ItemDeltaData
from universal.items import ImagePart, Item, ItemKind, ReasoningPart, StatusPart, TextPart

NO_ANSWER = "no_answer"
"""Error code of an answer with nothing in it."""
HINT = "The agent gives no reason. Send the prompt again, look at the agent's own log, or try the same in its own program."
NOTE_COUNT = 5
"""Maximum notes of one turn that are kept for its error."""
_WORKING = frozenset({"compaction", "todo"})
"""Labels of status items that are an answer by themselves."""
_ANSWERS = frozenset({EventType.ERROR, EventType.PERMISSION_REQUESTED, EventType.QUESTION_REQUESTED})


class Answer:
    """What an agent has said to one prompt so far."""

    def __init__(self) -> None:
        self.has_begun = False
        self.has_content = False
        """True after the first text, tool call, error or request."""
        self.is_heard = False
        """Whether it has begun and has content, so that more pieces of text change nothing here."""
        self._notes: list[str] = []

    def begin(self) -> None:
        """Note that the agent has begun to answer."""
        self.has_begun = True
        self.is_heard = self.has_content

    def note(self, facts: Iterable[Fact]) -> None:
        """Note what the agent says."""
        for fact in facts:
            if not self.has_content:
                self.has_content = fact.child is not None or fact.type in _ANSWERS or self._is_content(fact)
        self.is_heard = self.has_begun and self.has_content

    def _is_content(self, fact: Fact) -> bool:
        match fact.data:
            case ItemDeltaData(part_type=kind):
                return kind != "reasoning"
            case ItemData(item=item):
                return self._has_content(item)
            case _:
                return False

    def _has_content(self, item: Item) -> bool:
        if item.kind in (ItemKind.SYSTEM, ItemKind.STATUS):
            for part in item.content:
                if isinstance(part, StatusPart) and part.label in _WORKING:
                    return True
                words = part.text if isinstance(part, TextPart) else None
                if isinstance(part, StatusPart) and part.label == "notice":
                    words = part.detail
                if words and len(self._notes) < NOTE_COUNT:
                    self._notes.append(words)
            return False
        if item.kind is not ItemKind.MESSAGE:
            return True
        return any(_is_shown(part) for part in item.content)

    def error(self, title: str) -> ErrorData | None:
        """Return the error of an answer that ends now, or None if there is something in it. In: the agent's title."""
        if self.has_content:
            return None
        if self._notes:
            return ErrorData(message="\n".join(self._notes), code=NO_ANSWER, details={"is_retryable": False})
        message = f"{title} ended the turn without an answer."
        return ErrorData(message=message, code=NO_ANSWER, details={"is_retryable": True, "hint": HINT})


def _is_shown(part: object) -> bool:
    return isinstance(part, ImagePart) or (
        not isinstance(part, ReasoningPart) and bool(getattr(part, "text", "") or not isinstance(part, TextPart))
    )
