"""A session between two turns as text, and back: all that its reducer knows, so that the rest of the journal can follow. Pure.

The messages are not in the text: they are packed in pages (`universal.session.messages`) or stored beside it.
A checkpoint is a copy of what the journal says. One that was written by code with another `FORMAT` is of no use.
"""

from __future__ import annotations

from dataclasses import dataclass

from universal.session.messages import Messages
from universal.session.model import Message, Session
from universal.session.reducer import Reducer
from universal.session.transcript import TranscriptState
from universal.session.value_codec import shape_of

MEANING = 1
"""Raise it when the reducer makes something else of the same journal: checkpoints of before are not read then."""


@dataclass(frozen=True, slots=True)
class ReducerState:
    """All that a reducer knows between two turns; `session` has no messages when it was read back."""

    session: Session
    transcript: TranscriptState
    late: int
    command: tuple[str, str] | None


FORMAT = f"{MEANING}-{shape_of(ReducerState, Message)}"
"""Names what checkpoints of this code mean and how they are written."""


def is_at_rest(reducer: Reducer) -> bool:
    """Whether a checkpoint can be made now: no turn runs, and nobody is asked for anything."""
    session = reducer.session
    return not session.is_busy and not session.permissions and not session.questions


def state_of(reducer: Reducer) -> ReducerState:
    """What a checkpoint keeps of a reducer that is at rest."""
    return ReducerState(reducer.session, reducer.transcript.state(), reducer.late, reducer.command)


def restore(state: ReducerState, messages: Messages) -> Reducer:
    """A reducer that goes on where `state_of` was called."""
    reducer = Reducer(state.session.id, state.session.agent)
    state.session.messages = messages
    reducer.restore(state.session, state.transcript, state.late, state.command)
    return reducer
