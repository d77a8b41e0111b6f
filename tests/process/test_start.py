"""A process that cannot be started: the error names the path that is wrong, and says in which way."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from shim.lib.errors import AgentError, AgentNotFound, AgentStartFailed
from shim.processes.agent_pipes import AgentProcess
from universal.launch import LaunchSpec


def script(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def start_error(*argv: str, cwd: Path) -> AgentError:
    """The error; nothing else may come of it."""
    called: list[object] = []
    tasks = asyncio.all_tasks()
    with pytest.raises(AgentError) as caught:
        await AgentProcess.spawn(LaunchSpec(argv, str(cwd)), os.environ, on_lines=called.append, on_exit=called.append)
    assert asyncio.all_tasks() == tasks
    assert called == []
    return caught.value


async def test_no_such_program(tmp_path: Path) -> None:
    error = await start_error(str(tmp_path / "none"), cwd=tmp_path)
    assert isinstance(error, AgentNotFound)
    assert str(error) == f"The agent's program does not exist: {tmp_path / 'none'}."


async def test_no_such_directory(tmp_path: Path) -> None:
    error = await start_error("/bin/sh", cwd=tmp_path / "gone")
    assert isinstance(error, AgentStartFailed)
    assert str(error) == (
        f"The agent was not started: {tmp_path / 'gone'} is not a directory on the server's machine. "
        "If your client runs on another one, open the project by its path here."
    )


async def test_the_directory_is_a_file(tmp_path: Path) -> None:
    file = script(tmp_path / "file", "")
    assert f"{file} is not a directory on the server's machine" in str(await start_error("/bin/sh", cwd=Path(file)))


async def test_not_executable(tmp_path: Path) -> None:
    binary = script(tmp_path / "agent", "#!/bin/sh\n", mode=0o644)
    error = await start_error(binary, cwd=tmp_path)
    assert isinstance(error, AgentStartFailed)
    assert str(error) == f"The agent was not started: no permission to run {binary}. Is it executable?"


async def test_the_interpreter_is_missing(tmp_path: Path) -> None:
    binary = script(tmp_path / "agent", "#!/no/such/node\n")
    error = await start_error(binary, cwd=tmp_path)
    assert isinstance(error, AgentStartFailed)
    assert f"the interpreter in the first line of {binary} does not exist" in str(error)


async def test_not_a_program(tmp_path: Path) -> None:
    binary = script(tmp_path / "agent", "no program\n")
    error = await start_error(binary, cwd=tmp_path)
    assert isinstance(error, AgentStartFailed)
    assert binary in str(error)
    assert "format" in str(error)


async def test_a_zero_byte_in_an_argument(tmp_path: Path) -> None:
    error = await start_error("/bin/sh", "a\0b", cwd=tmp_path)
    assert isinstance(error, AgentStartFailed)
    assert "null byte" in str(error)
