"""The reducer: what a session holds when it is at rest."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType

from universal.events import EventType, SessionStartedData, Source, UniversalEvent
from universal.session.changes import SessionCreated
from universal.session.record_json import record_json
from universal.session.reducer import Reducer
from universal.session.values import SessionRecord

OF_THE_PROGRAM = (type, ModuleType, FunctionType)


def reachable_objects(root: object) -> list[object]:
    """All objects that live as long as this one."""
    objects = {id(root): root}
    waiting = [root]
    while waiting:
        for inner in gc.get_referents(waiting.pop()):
            if id(inner) not in objects and not isinstance(inner, OF_THE_PROGRAM):
                objects[id(inner)] = inner
                waiting.append(inner)
    return list(objects.values())


def test_a_session_at_rest_holds_neither_its_last_event_nor_its_last_changes() -> None:
    event = UniversalEvent(
        event_id="evt_1",
        sequence=1,
        time="2026-11-21T20:43:04.083Z",
        session_id="ses_a",
        source=Source.DAEMON,
        synthetic=True,
        type=EventType.SESSION_STARTED,
        data=SessionStartedData(metadata={"record": record_json(SessionRecord("ses_a"))}),
    )
    reducer = Reducer("ses_a", "claude")
    changes = reducer.apply(event, 1)
    assert isinstance(changes[0], SessionCreated)
    objects = reachable_objects(reducer)
    assert not [value for value in objects if value is event or any(value is change for change in changes)]
