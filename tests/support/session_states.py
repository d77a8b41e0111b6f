"""Sessions for replays of recordings: a state over a journal in memory, and its first event."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from shim.lib.clock import Clock, ManualClock
from shim.lib.ids import Ids
from shim.sessions.feed import ChangeFeed
from shim.sessions.session.session_state import SessionState
from shim.store.base import Store
from shim.store.memory import MemoryStore
from tests.support.scripted_model import Recorder
from universal.events import EventType, ItemData, SessionStartedData
from universal.items import Item, ItemKind, ItemRole, ItemStatus, TextPart

ZERO = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def state_deps(store: Store, clock: Clock, changes: ChangeFeed | None = None) -> Any:
    """What a session's state needs of `SessionDeps`."""
    return SimpleNamespace(store=store, changes=changes or ChangeFeed(), clock=clock, ids=Ids(clock))


def bare(session_id: str, agent: str, store: MemoryStore, hub: Recorder, clock: ManualClock) -> SessionState:
    """A session that has not begun, or is to be read from the journal."""
    return SessionState(session_id, agent, state_deps(store, clock, hub.changes))


def begin(state: SessionState, directory: str, **metadata: Any) -> SessionState:
    """Its first event. In: `metadata`, more of that event's."""
    info: dict[str, Any] = {
        "id": state.id,
        "slug": "quiet-fox",
        "version": "1.18.33",
        "projectID": "global",
        "directory": directory,
        "title": "t",
        "time": {"created": 1, "updated": 1},
        "cost": 0,
        "tokens": ZERO,
    }
    state.record(EventType.SESSION_STARTED, SessionStartedData(metadata={**metadata, "opencode": info}))
    return state


def show(state: SessionState, item_id: str, text: str, metadata: dict[str, Any] | None = None) -> None:
    """A person's prompt, as it stands in the journal."""
    made = {"item_id": item_id, "kind": ItemKind.MESSAGE, "role": ItemRole.USER, "status": ItemStatus.COMPLETED}
    state.record(EventType.ITEM_COMPLETED, ItemData(item=Item(**made, content=(TextPart(text=text),), metadata=metadata)))
