"""A program that is run for one answer."""

from __future__ import annotations

import sys
from pathlib import Path

from shim.processes.answers import ask


def program(folder: Path, name: str, code: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!{sys.executable} -IS\nimport sys\n{code}")
    file.chmod(0o755)
    return file


async def test_a_program_that_says_enough_is_not_waited_for(tmp_path: Path) -> None:
    file = program(tmp_path, "a", "print(sys.stdin.readline().strip(), flush=True)\nsys.stdin.read()")
    said = await ask((str(file),), {}, wait_s=20, lines=[b"hello"], enough=lambda line: line == "hello")
    assert (said.text.strip(), said.over) == ("hello", True)


async def test_a_program_that_hangs_is_not_waited_for_long(tmp_path: Path) -> None:
    file = program(tmp_path, "a", "import threading; threading.Event().wait()")
    assert not (await ask((str(file),), {}, wait_s=0.2)).over
