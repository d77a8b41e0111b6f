"""OpenCode 2's events of the host."""

from __future__ import annotations

from dataclasses import replace

from shim.faces.opencode2 import host
from shim.faces.opencode2.wire_event import Event
from shim.host.changes import (
    AllDisposed,
    ShellCreated,
    ShellExited,
    WorktreeFailed,
    WorktreeReady,
)
from tests.support.host_changes import COMMAND, EXAMPLES, PROJECT
from tests.support.opencode2_oracle import check_event

WITHOUT_EVENT = {WorktreeReady, WorktreeFailed, AllDisposed}


def test_each_change_has_the_event_of_the_contract() -> None:
    for change in EXAMPLES:
        pair = host.event(change)
        assert (pair is None) == (type(change) in WITHOUT_EVENT), change
        if pair is not None:
            check_event(Event("evt_1", 5, *pair).wire())


def test_the_end_of_a_shell_command_has_its_exit_code_unless_a_signal_ended_it() -> None:
    assert host.event(ShellExited("sh_1", "exited", 3)) == ("shell.exited", {"id": "sh_1", "status": "exited", "exit": 3})
    assert host.event(ShellExited("sh_1", "killed", None)) == ("shell.exited", {"id": "sh_1", "status": "killed"})
    stopped = replace(COMMAND, status="timeout", pid=7, completed_ms=9, signal="SIGTERM")
    check_event(Event("evt_1", 5, *(host.event(ShellCreated(stopped)) or ("", {}))).wire())
    assert host.shell_command(stopped)["time"] == {"started": 5, "completed": 9}


def test_a_project_is_active_when_its_sessions_are() -> None:
    assert host.project(PROJECT, 99)["time"] == {"created": 1, "updated": 2, "active": 99}
