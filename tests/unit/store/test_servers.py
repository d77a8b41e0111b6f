"""Servers of one data directory find each other, and see who is dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from shim.store.servers import Presence, ServerRef, forget, present

CHILD = """
import sys
from pathlib import Path
from shim.store.servers import Presence
Presence(Path(sys.argv[1]), "child").enter()
print("entered", flush=True)
sys.stdin.read()
"""


def test_a_server_is_there_from_enter_to_leave_and_says_where_it_listens(tmp_path: Path) -> None:
    mine = Presence(tmp_path, "one")
    assert present(tmp_path).living == {}
    mine.enter()
    assert present(tmp_path).living == {"one": ServerRef("one", os.getpid(), "")}
    mine.announce("http://127.0.0.1:4096")
    mine.announce("http://127.0.0.1:1")
    assert present(tmp_path).living == {"one": ServerRef("one", os.getpid(), "http://127.0.0.1:1")}
    mine.leave()
    mine.leave()
    assert list((tmp_path / "servers").iterdir()) == []


def test_a_killed_server_is_dead_until_it_is_forgotten(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "entered\n"
        assert present(tmp_path).living == {"child": ServerRef("child", child.pid, "")}
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    assert (present(tmp_path).living, present(tmp_path).dead) == ({}, ("child",))
    forget(tmp_path, "child")
    assert present(tmp_path).dead == ()


def test_a_file_that_a_killed_server_had_only_begun_is_no_server(tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "half.new").write_text("")
    assert present(tmp_path).dead == ()
