"""Plans an undo: the messages that it hides, and the files that it restores. Pure.

An undo names a message, or a part of one. Everything after that point is hidden. The next prompt removes it; until then it can be
shown again. Source: a live OpenCode 1.18.33 (docs/undo.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shim.lib.clock import from_rfc3339
from universal.events import EventType, TurnData, UniversalEvent
from universal.lib.jsonvalue import obj, text
from universal.lib.paths import relative
from universal.session.messages import Message
from universal.session.model import Session
from universal.session.values import Part, Patch, Text, ToolCall, title_of

SAID = (Text, ToolCall)
"""Kinds of parts for which the rest of a message is kept."""


@dataclass(frozen=True, slots=True)
class Point:
    """The first undone message, or with `part_id` the first undone part."""

    message_id: str
    part_id: str | None = None


def point_of(session: Session, message_id: str, part_id: str | None = None) -> Point | None:
    """The begin of an undo, or None if the message or part does not exist.

    An assistant's message means its prompt, and so does a part without text or tools before it.
    """
    message = session.messages.peek(message_id)
    if message is None:
        return None
    if part_id is not None:
        if part_id not in message.parts:
            return None
        before = list(message.parts)[: list(message.parts).index(part_id)]
        if any(isinstance(message.parts[p], SAID) for p in before):
            return Point(message_id, part_id)
    user = next((m.info.id for m in session.messages.until(message_id) if m.is_user), None)
    return Point(user or message_id)


def pending(session: Session) -> Point | None:
    """The undo that can still be taken back, or None."""
    revert = session.record.revert
    return Point(revert.message_id, revert.part_id) if revert is not None else None


def from_point(session: Session, point: Point) -> Iterator[tuple[Message, list[str]]]:
    """The undone messages, each with the ids of its undone parts."""
    for message in session.messages.since(point.message_id):
        parts = list(message.parts)
        if message.info.id == point.message_id and point.part_id is not None and point.part_id in message.parts:
            parts = parts[parts.index(point.part_id) :]
        yield message, parts


def removed_items(session: Session, point: Point) -> tuple[list[str], list[tuple[str, str]]]:
    """The items that the next prompt removes: whole messages, and parts of the one that stays."""
    messages: list[str] = []
    parts: list[tuple[str, str]] = []
    for message, part_ids in from_point(session, point):
        if point.part_id is not None and message.info.id == point.message_id:
            parts += [(point.message_id, part_id) for part_id in part_ids]
        else:
            messages.append(message.info.id)
    return messages, parts


def files_at(session: Session, point: Point) -> dict[str, str]:
    """File that changed from the point on -> the tree with its earlier state. Names as in snapshots."""
    trees: dict[str, str] = {}
    for message, part_ids in from_point(session, point):
        for part in (message.parts[id_] for id_ in part_ids):
            if isinstance(part, Patch):
                for name in _names(session, message, part):
                    trees.setdefault(name, part.hash)
    return trees


def names_in(session: Session, leave_out: frozenset[str] = frozenset()) -> set[str]:
    """All files that the session's agents changed, without the changes of these messages."""
    return files_changed_in(session, (m for id_, m in session.messages.items() if id_ not in leave_out))


def files_changed_in(session: Session, messages: Iterable[Message]) -> set[str]:
    """All files that changed in these messages. Names as in snapshots."""
    return {name for message in messages for part in message.parts.values() for name in _names(session, message, part)}


def _names(session: Session, message: Message, part: Part) -> list[str]:
    if not isinstance(part, Patch) or message.info.id in session.elsewhere:
        return []
    return [relative(path, session.record.directory) for path in part.files]


# --- notes for agents ---------------------------------------------------------------------------------------------

# Notes that tell an agent to forget undone messages, if its protocol has no request for that.


def undo_note(session: Session, messages: Sequence[str], agent: str, *, whole: bool, files: bool = True) -> str:
    """The note about messages that will be removed, for an agent that cannot forget; "" if it does not know them.

    In: `whole`, no part of an undone answer stays, so that the agent may go back to the answer before; `files`, whether these
    were restored.
    """
    removed = [session.messages[id_] for id_ in messages if agent in session.messages.known_by(id_)]
    prompts = [m for m in removed if m.is_user]
    if not removed and whole:
        return ""
    users = prompts or [m for m in (session.messages.peek(session.last_user() or ""),) if m is not None]
    first = title_of(users[0].text()) if users else ""
    named = f'the last {len(prompts)} prompts, from "{first}" on,' if len(prompts) > 1 else f'the prompt "{first}"'
    part = f"{named} and everything that you did for it" if whole else f'a part of your answer to "{first}"'
    state = "are what they were before" if files else "were not put back: your changes to them are still there"
    return (
        f"<undone>\nThe person has undone {part}. The files that you changed there {state}. "
        "Go on as if it had never happened, and look at files again before you rely on what you know of them.\n</undone>\n\n"
    )


def anchor_in(events: Sequence[UniversalEvent], agent: str) -> tuple[str, int]:
    """The place where the agent can resume: id of its last answer, and its end (epoch ms). ("", 0) without one."""
    for event in reversed(events):
        if event.type is EventType.TURN_ENDED and isinstance(event.data, TurnData):
            anchor = obj(obj(event.data.metadata).get("anchor"))
            if anchor.get("agent") == agent:
                return text(anchor.get("id")), from_rfc3339(event.time)
    return "", 0


class UndoNotes:
    """The pending notes for the agents of a session. Kept in memory, because the prompt that ends an undo comes right after."""

    def __init__(self) -> None:
        self._undone: dict[str, str] = {}

    def add(
        self,
        session: Session,
        messages: Sequence[str],
        *,
        whole: bool,
        leave_out: frozenset[str],
        files: bool = True,
    ) -> None:
        """Add notes about messages that will be removed, for agents that know them and cannot forget."""
        for agent in {name for id_ in messages for name in session.messages.known_by(id_)} - leave_out:
            if note := undo_note(session, messages, agent, whole=whole, files=files):
                self._undone[agent] = note

    def note(self, agent: str) -> str:
        """Take the text for the agent's next prompt, or ""."""
        return self._undone.pop(agent, "")
