"""OpenCode 1's events of the host."""

from __future__ import annotations

import typing

from shim.faces.opencode1 import host
from shim.host.changes import HostChange, HostChanged, ShellCreated, ShellDeleted, ShellExited
from tests.support.host_changes import EXAMPLES
from tests.support.oracle import check_event

WITHOUT_EVENT = {ShellCreated, ShellExited, ShellDeleted}


def test_the_examples_are_complete() -> None:
    assert {type(change) for change in EXAMPLES} == set(typing.get_args(HostChange))


def test_each_change_but_those_of_shell_commands_has_an_event() -> None:
    for change in EXAMPLES:
        events = host.events_of(HostChanged(change, "/a/", "abc"))
        assert len(events) == (type(change) not in WITHOUT_EVENT), change
        for event in events:
            check_event({"id": "evt_1", "type": event.type, "properties": event.properties})
            assert (event.scope, event.project) == ("/a", "abc")
