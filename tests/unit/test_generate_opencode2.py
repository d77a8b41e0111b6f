"""The TypedDicts that are written from OpenCode 2's document."""

from __future__ import annotations

import typing

import pytest

from shim.faces.opencode2._generated import event_types, host_types, types
from tools.generate_opencode2 import EVENTS, SESSION_ID, document
from tools.ts_types import Schema


@pytest.fixture(scope="module")
def schemas() -> dict[str, Schema]:
    return document()["components"]["schemas"]


def test_a_field_that_the_document_does_not_require_is_not_required():
    fields = typing.get_type_hints(types.SessionInfo, include_extras=True)
    optional = {name for name, annotation in fields.items() if typing.get_origin(annotation) is typing.NotRequired}
    assert fields.keys() - optional == {"id", "projectID", "cost", "tokens", "time", "location"}


def test_every_type_that_another_refers_to_is_written():
    for module in (types, host_types, event_types):
        for name, shape in vars(module).items():
            if typing.is_typeddict(shape):
                assert typing.get_type_hints(shape, vars(module)).keys() == shape.__annotations__.keys(), name


def test_every_event_of_the_face_has_its_data(schemas: dict[str, Schema]):
    events = [name.removeprefix("Event.") for name in schemas if name.startswith("Event.")]
    shapes = [name.removesuffix("Data").lower() for name in vars(event_types) if name.endswith("Data")]
    for event in events:
        if event.startswith(tuple(word for words in EVENTS.values() for word in words)):
            assert event.replace(".", "").replace("-", "") in shapes, event


def pairs(alias: object) -> dict[str, typing.Any]:
    """Type of an event -> its data, of an alias of pairs."""
    rows = (typing.get_args(pair) for pair in typing.get_args(alias))
    return {typing.get_args(type_)[0]: data for type_, data in rows}


def test_data_of_sessions_is_without_the_session_id_that_render_adds():
    session, host = pairs(event_types.SessionEvent), pairs(event_types.HostEvent)
    assert session["session.renamed"] is event_types.SessionRenamedData
    assert not [data for data in session.values() if SESSION_ID in data.__annotations__]
    assert SESSION_ID in host["tui.session.select"].__annotations__
