"""Converts a reducer's state between two turns to text and back. Pure.

The text holds all that the reducer knows, so that it can go on with the rest of the journal.

Messages and entries of the timeline are not in the text: they are packed in pages (`universal.session.pages`) or beside it.
A checkpoint is a copy of what the journal says. One that was written by code with another `FORMAT` is of no use.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from universal.session.entries import Entries, Entry
from universal.session.messages import Message, Messages
from universal.session.model import Session
from universal.session.reducer import Reducer
from universal.session.transcript import TranscriptState
from universal.session.value_codec import shape_of

T = TypeVar("T")

MEANING = 2
"""Raise it when the reducer makes something else of the same journal: checkpoints of before are not read then."""


@dataclass(frozen=True, slots=True)
class ReducerState:
    """All that a reducer knows between two turns; `session` has neither messages nor entries."""

    session: Session
    transcript: TranscriptState
    late: int
    command: tuple[str, str] | None


FORMAT = f"{MEANING}-{shape_of(ReducerState, Message, Entry)}"
"""Names what checkpoints of this code mean and how they are written."""


def is_at_rest(reducer: Reducer) -> bool:
    """Whether a checkpoint can be made now: no turn runs, and nobody is asked for anything."""
    session = reducer.session
    return not session.is_busy and not session.permissions and not session.questions


def state_of(reducer: Reducer) -> ReducerState:
    """The state of a reducer at rest, for a checkpoint. Later work of the reducer does not change it."""
    session = reducer.session
    timeline = replace(detach(session.timeline), entries=Entries())
    snapshots = replace(session.snapshots)
    session = replace(detach(session), messages=Messages(), timeline=timeline, snapshots=snapshots)
    return ReducerState(session, reducer.transcript.state(), reducer.late, reducer.command)


def detach(value: T) -> T:
    """A copy of a dataclass that shares none of its dicts, lists and sets. What these hold must be frozen."""
    containers: dict[str, Any] = {
        field.name: copy(inner)  # pyright: ignore[reportUnknownArgumentType] - of anything
        for field in fields(value)  # pyright: ignore[reportArgumentType] - a dataclass
        if isinstance(inner := getattr(value, field.name), dict | list | set)
    }
    return replace(value, **containers)  # pyright: ignore[reportArgumentType, reportUnknownVariableType] - a dataclass


def restore(state: ReducerState, messages: Messages, entries: Entries) -> Reducer:
    """A reducer that continues from the state that `state_of` returned."""
    reducer = Reducer(state.session.id, state.session.agent)
    state.session.messages = messages
    state.session.timeline.entries = entries
    reducer.restore(state.session, state.transcript, state.late, state.command)
    return reducer
