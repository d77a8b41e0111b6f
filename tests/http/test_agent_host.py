"""Files and terminals that an ACP agent asks of us (`fs/*`, `terminal/*`): the whole server, with an agent that has no hands."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import Live, live

FAKE = Path(__file__).resolve().parent.parent / "fakes" / "acp_hands.py"
TURN_S = 20.0
POLL_S = 0.005
"""Seconds between two looks at a process: to look all the time takes from it what it needs."""
HANDS = {"providerID": "hands", "modelID": "default"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    own: Any = {"hands": {"command": [sys.executable, "-IS", str(FAKE)], "title": "Hands"}}
    async with live(tmp_path, agents=own, abort_timeout_s=2.0) as found:
        yield found


async def tool_answer(server: Live, text: str, session: str | None = None) -> Any:
    """What the agent tells of it, as JSON."""
    answer = await server.ask(session or await server.session(), text, model=HANDS)
    return json.loads(answer["parts"][-2]["text"])


def tool_state(messages: list[Any]) -> dict[str, Any]:
    """State of the only tool card."""
    [state] = [part["state"] for message in messages for part in message["parts"] if part["type"] == "tool"]
    return dict(state)


def processes_with(word: str) -> list[int]:
    """Live processes with this in their command line."""
    return [int(place.name) for place in Path("/proc").glob("[0-9]*") if _command(place).startswith(word)]


def _command(place: Path) -> str:
    try:
        return (place / "cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


async def there(word: str) -> None:
    """Both: the command, and what it has started in a session of its own."""
    async with asyncio.timeout(TURN_S):
        while len(processes_with(word)) < 2:
            await asyncio.sleep(POLL_S)


async def wait_for_processes_to_end(word: str) -> None:
    async with asyncio.timeout(TURN_S):
        while processes_with(word):
            await asyncio.sleep(POLL_S)


# --- terminals ------------------------------------------------------------------------------------------


async def test_a_terminal_shows_as_growing_output_with_its_exit_code(server: Live) -> None:
    gate = server.directory / "gate"
    states: list[Any] = []

    async def act(_events: Any, event: dict[str, Any]) -> None:
        part = event["properties"].get("part", {})
        if event["type"] == "message.part.updated" and part.get("type") == "tool":
            states.append(part["state"])
            if part["state"].get("metadata", {}).get("output") == "one\n":
                gate.touch()

    line = "echo one; while [ ! -e gate ]; do sleep 0.02; done; echo two >&2; exit 3"
    session, _ = await server.turn(f"run {line}", act, model=HANDS)
    running = [
        state["metadata"]["output"] for state in states if state["status"] == "running" and "output" in state.get("metadata", {})
    ]
    assert running[0] == "one\n"
    state = tool_state(await server.messages(session))
    assert (state["status"], state["input"]["command"]) == ("completed", line)
    assert (state["metadata"]["exit"], state["metadata"]["output"]) == (3, "one\ntwo\n")


async def test_an_agent_gets_the_exit_of_its_command(server: Live) -> None:
    told = await tool_answer(server, "run echo hi; pwd")
    assert told["ended"] == {"exitCode": 0, "signal": None}
    assert told["output"] == {"output": f"hi\n{server.directory}\n", "truncated": False, "exitStatus": told["ended"]}
    assert told["gone"] == -32002
    long = await tool_answer(server, "run printf 'é%.0s' $(seq 3000)")
    assert (long["output"]["output"], long["output"]["truncated"]) == ("é" * 500, True)
    program = await tool_answer(server, "exec sh -c exit $MY")
    assert program["ended"]["exitCode"] == 0
    assert (await tool_answer(server, "exec printenv MY"))["output"]["output"] == "own\n"
    assert (await tool_answer(server, "run kill -9 $$"))["ended"] == {"exitCode": None, "signal": "SIGKILL"}


async def test_a_terminal_that_cannot_start_says_why(server: Live) -> None:
    session = await server.session()
    answer = await server.ask(session, "exec no-such-program x", model=HANDS)
    assert answer["parts"][-2]["text"] == f"Cannot start no-such-program in {server.directory}: No such file or directory."
    answer = await server.ask(session, "elsewhere true", model=HANDS)
    assert answer["parts"][-2]["text"].startswith("/ is outside of the directories of this session")
    answer = await server.ask(session, "many 17", model=HANDS)
    assert answer["parts"][-2]["text"].endswith("made 16 commands are running, and no more can be started: end one first.")


async def test_an_abort_ends_the_command_and_all_that_it_has_started(server: Live) -> None:
    word = f"sleep 7{os.getpid()}"
    session = await server.session()
    async with server.api.stream("/event") as events:
        await server.prompt(session, f"run setsid {word} & echo up; {word}", model=HANDS)
        await events.until(
            lambda event: event["properties"].get("part", {}).get("state", {}).get("metadata", {}).get("output") == "up\n"
        )
        await there(word.replace(" ", "\0"))
        await server.api.post(f"/session/{session}/abort", status=200)
        await events.until(lambda event: event["type"] == "session.idle")
    await wait_for_processes_to_end(word.replace(" ", "\0"))
    assert (await tool_answer(server, "run echo again", session))["output"]["output"] == "again\n"


async def test_nothing_is_left_when_the_session_is_deleted_or_the_server_stops(tmp_path: Path) -> None:
    own: Any = {"hands": {"command": [sys.executable, "-IS", str(FAKE)], "title": "Hands"}}
    words = [f"sleep\0{n}{os.getpid()}" for n in (8, 9)]
    async with live(tmp_path, agents=own) as server:
        first, second = await server.session(), await server.session()
        for session, word in zip((first, second), words, strict=True):
            line = word.replace("\0", " ")
            await server.ask(session, f"background setsid {line} & {line}", model=HANDS)
            await there(word)
        await server.api.delete(f"/session/{first}", status=200)
        await wait_for_processes_to_end(words[0])
        assert len(processes_with(words[1])) == 2
    assert processes_with(words[1]) == []


# --- files ----------------------------------------------------------------------------------------------


async def test_files_are_written_and_read(server: Live) -> None:
    session = await server.session()
    place = server.directory / "deep" / "down.txt"
    assert await tool_answer(server, f"write {place} a\nb\nc\n", session) == {}
    assert place.read_text() == "a\nb\nc\n"
    assert await tool_answer(server, f"read {place}", session) == {"content": "a\nb\nc\n"}
    assert await tool_answer(server, f"read {place} 2 1", session) == {"content": "b\n"}
    assert await tool_answer(server, f"write {place} x", session) == {}
    assert place.read_text() == "x"
    missing = await tool_answer(server, f"read {place}.not", session)
    assert (missing["code"], missing["message"]) == (-32002, f"Resource not found: {place}.not: No such file or directory.")


@pytest.mark.parametrize("way", ["absolute", "dots", "link", "relative", "folder"])
async def test_files_outside_are_refused(server: Live, tmp_path: Path, way: str) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (server.directory / "link").symlink_to(tmp_path)
    path = {
        "absolute": f"{secret}",
        "dots": f"{server.directory}/../secret.txt",
        "link": f"{server.directory}/link/secret.txt",
        "relative": "secret.txt",
        "folder": f"{server.directory}",
    }[way]
    session = await server.session()
    for prompt in (f"read {path}", f"write {path} gone"):
        told = await tool_answer(server, prompt, session)
        assert told["code"] in (-32602, -32603)
        assert "secret" not in told["message"].replace(path, "")
    assert secret.read_text() == "secret"


async def test_a_file_written_for_the_agent_can_be_undone(server: Live) -> None:
    for command in ("git init -q .", "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"):
        process = await asyncio.create_subprocess_shell(command, cwd=server.directory)
        assert await process.wait() == 0
    place = server.directory / "made.txt"
    session = await server.session()
    await server.ask(session, f"write {place} mine", model=HANDS)
    [prompt, *_] = await server.messages(session)
    await server.api.post(f"/session/{session}/revert", {"messageID": prompt["info"]["id"]}, status=200)
    assert not place.exists()
