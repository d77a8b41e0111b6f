"""Makes notes that tell an agent to forget undone messages, if its protocol has no request for that. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shim.lib.clock import from_rfc3339
from universal.events import EventType, TurnData, UniversalEvent
from universal.lib.jsonvalue import obj, text
from universal.session.model import Session
from universal.session.values import title_of


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
