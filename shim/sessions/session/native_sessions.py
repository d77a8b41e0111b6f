"""The conversations that the agents of a session keep themselves, each by the agent's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from universal.lib.jsonvalue import obj, text


@dataclass(slots=True)
class NativeSession:
    """An agent's conversation. `started`: the agent has answered in it.

    `resume_at`: the message after which everything was undone, and where the next start resumes.
    """

    id: str
    started: bool = False
    resume_at: str | None = None


def note_native_session(sessions: dict[str, NativeSession], agent: str, id_: str, *, started: bool) -> bool:
    """Store an agent's conversation id, and whether the agent has answered in it. True if something changed."""
    native = sessions.get(agent)
    if native is None or native.id != id_:
        sessions[agent] = NativeSession(id_, started)
        return True
    if started and (not native.started or native.resume_at):
        native.started, native.resume_at = True, None  # the conversation has continued there
        return True
    return False


def native_sessions_of(value: Any) -> dict[str, NativeSession]:
    """Read the conversations from a session's row."""
    rows = {agent: obj(row) for agent, row in obj(value).items()}
    return {
        agent: NativeSession(text(row.get("id")), bool(row.get("started")), text(row.get("resume_at")) or None)
        for agent, row in rows.items()
    }
