"""The conversations that the agents of a session keep themselves, each by the agent's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shim.lib.clock import Clock
from universal.lib.jsonvalue import obj, text, whole

if TYPE_CHECKING:
    from shim.sessions.session.actor import SessionActor


@dataclass(slots=True)
class NativeSession:
    """An agent's conversation. `started`: the agent has answered in it.

    `resume_at`: the message after which everything was undone, and where the next start resumes. `title`: a person's title that
    it was not told yet. `others_ms`: Unix milliseconds since when lines of other programs in its file are unknown to the
    agent and to the session: the start of the agent's process, or the last look before a turn of theirs was recorded. 0: unknown.
    """

    id: str
    started: bool = False
    resume_at: str | None = None
    title: str = ""
    others_ms: int = 0


def note_native_session(sessions: dict[str, NativeSession], agent: str, id_: str, *, started: bool, clock: Clock) -> bool:
    """Store an agent's conversation id, and whether the agent has answered in it. True if something changed."""
    native = sessions.get(agent)
    if native is None or native.id != id_:
        sessions[agent] = NativeSession(id_, started, others_ms=clock.now_ms())
        return True
    if started and (not native.started or native.resume_at):
        native.started, native.resume_at = True, None  # the conversation has continued there
        return True
    return False


def native_sessions_of(value: Any) -> dict[str, NativeSession]:
    """Read the conversations from a session's row."""
    rows = {agent: obj(row) for agent, row in obj(value).items()}
    return {
        agent: NativeSession(
            text(row.get("id")),
            bool(row.get("started")),
            text(row.get("resume_at")) or None,
            text(row.get("title")),
            whole(row.get("others_ms")),
        )
        for agent, row in rows.items()
    }


def rename_conversation(session: SessionActor, title: str = "") -> None:
    """Tell the agents the title that a person has given: at once, or after the next turn of an agent that does not run."""
    for native in session.native.values():
        native.title = title or native.title
    process = session.process
    own, codec = session.native.get(process.agent or ""), process.codec
    if own is not None and own.title and codec is not None and process.is_alive and (outputs := codec.rename(own.title)):
        own.title = ""
        session.on_outputs(outputs)
