"""What an agent must forget after an undo: as text for its next prompt, where its protocol has nothing for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shim.clock import from_rfc3339
from shim.sessions.prompts.context import title_of
from universal.events import EventType, TurnData, UniversalEvent
from universal.jsonvalue import obj, text
from universal.session.model import Session


@dataclass(frozen=True, slots=True)
class UndoNote:
    """`prompts`: how many the agent had been handed of those that are gone, `first`: how the first one began.

    `whole`: nothing of an answer stays, so that the agent may go back to the end of the answer before.
    `files`: whether files were put back to what they were before it.
    """

    prompts: int
    first: str
    whole: bool
    files: bool = True

    def note(self) -> str:
        """What the agent is told when it cannot forget."""
        what = f'the last {self.prompts} prompts, from "{self.first}" on,' if self.prompts > 1 else f'the prompt "{self.first}"'
        part = f"{what} and everything that you did for it" if self.whole else f'a part of your answer to "{self.first}"'
        state = "are what they were before" if self.files else "were not put back: your changes to them are still there"
        return (
            f"<undone>\nThe person has undone {part}. The files that you changed there {state}. "
            "Go on as if it had never happened, and look at files again before you rely on what you know of them.\n</undone>\n\n"
        )


def undo_note_of(session: Session, messages: Sequence[str], agent: str, *, whole: bool, files: bool = True) -> UndoNote | None:
    """What this agent knows of these messages, which are about to be removed; None if it knows nothing of them."""
    known = [session.messages[id_] for id_ in messages if agent in session.messages.known_by(id_)]
    prompts = [m for m in known if m.is_user]
    if not known and whole:
        return None
    users = prompts or [m for m in (session.messages.peek(session.last_user() or ""),) if m is not None]
    return UndoNote(len(prompts), title_of(users[0].text()) if users else "", whole, files)


def anchor_in(events: Sequence[UniversalEvent], agent: str) -> tuple[str, int]:
    """Where the agent can take its conversation up: the id of its last answer, and when that was over (epoch ms); ("", 0)
    if there is none."""
    for event in reversed(events):
        if event.type is EventType.TURN_ENDED and isinstance(event.data, TurnData):
            anchor = obj(obj(event.data.metadata).get("anchor"))
            if anchor.get("agent") == agent:
                return text(anchor.get("id")), from_rfc3339(event.time)
    return "", 0


class UndoNotes:
    """What the agents of one session have yet to be told. Kept in memory: the prompt that ends an undo comes right after."""

    def __init__(self) -> None:
        self._undone: dict[str, UndoNote] = {}

    def add(
        self,
        session: Session,
        messages: Sequence[str],
        *,
        whole: bool,
        leave_out: frozenset[str],
        files: bool = True,
    ) -> None:
        """These messages are about to be removed: for each agent that knows them, less those that forget by themselves."""
        for agent in {name for id_ in messages for name in session.messages.known_by(id_)} - leave_out:
            if (told := undo_note_of(session, messages, agent, whole=whole, files=files)) is not None:
                self._undone[agent] = told

    def note(self, agent: str) -> str:
        """The text before its next prompt; once. Empty if there is nothing to tell."""
        told = self._undone.pop(agent, None)
        return told.note() if told is not None else ""
