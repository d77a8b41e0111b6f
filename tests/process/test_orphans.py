"""What a killed server leaves behind is ended by the next one on the same data directory."""

from __future__ import annotations

import os
import subprocess
import sys

from shim.processes import process_family


def test_only_what_carries_the_owners_name_is_ended() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    mine = subprocess.Popen(
        command, stdin=subprocess.PIPE, env=process_family.with_owner(os.environ, "data-test1"), start_new_session=True
    )
    nested = process_family.with_owner(process_family.with_owner(os.environ, "data-test1"), "data-test2")
    other = subprocess.Popen(command, stdin=subprocess.PIPE, env=nested)
    try:
        assert process_family.end_owned("data-nosuch") == 0
        assert process_family.end_owned("data-test2") == 1
        assert other.wait(5) == -9
        assert mine.poll() is None
        assert process_family.end_owned("data-test1") == 1
        assert mine.wait(5) == -9
    finally:
        for process in (mine, other):
            process.kill()
            process.wait(5)
            assert process.stdin is not None
            process.stdin.close()
