"""An agent behind HTTP: requests and events as lines, and ends that leave nothing behind. With a stand-in for OpenCode."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from shim.lib.errors import AgentGone, AgentNotFound
from shim.processes import http_agent
from shim.processes.handle import AgentHandle
from shim.processes.http_agent import HttpAgent, with_bridge
from tests.process.support import FAKES, NumberedProcess, ProcessLog, has_died, new_hold
from universal.launch import LaunchSpec

CONNECTED = b'{"event":{"type":"server.connected","properties":{}}}'

Start = Callable[..., Awaitable[tuple[AgentHandle, ProcessLog]]]


@pytest.fixture(params=[False, True], ids=["here", "a bridge on a holder"])
async def start(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Start]:
    started: list[AgentHandle] = []

    async def begin(*args: str, events: str = "/event") -> tuple[AgentHandle, ProcessLog]:
        seen = ProcessLog()
        spec = LaunchSpec((sys.executable, "-I", "-S", str(FAKES / "http_server.py"), *args), str(FAKES), events=events)
        agent: AgentHandle
        if request.param:
            agent = await NumberedProcess.spawn_on(
                new_hold(tmp_path), with_bridge(spec), os.environ, on_lines=seen.on_lines, on_exit=seen.on_exit
            )
        else:
            agent = await HttpAgent.spawn(spec, dict(os.environ), on_lines=seen.on_lines, on_exit=seen.on_exit, name="fake")
        started.append(agent)
        return agent, seen

    yield begin
    for agent in started:
        agent.kill()
        await agent.stop()


def request(id_: str, path: str, body: Any = None, method: str = "POST") -> bytes:
    return json.dumps({"id": id_, "method": method, "path": path, **({"body": body} if body is not None else {})}).encode()


def answers(seen: ProcessLog) -> dict[str, tuple[int, Any]]:
    found = [json.loads(line) for line in seen.lines]
    return {line["id"]: (line["status"], line["body"]) for line in found if "status" in line}


async def test_requests_wait_for_the_stream_and_are_answered(start: Start) -> None:
    agent, seen = await start()
    agent.write(request("1", "/echo", {"a": "ü"}))
    agent.write(request("2", "/bad"))
    agent.write(request("3", "/say", {"type": "x"}))
    agent.write(request("4", "/nowhere", method="GET"))
    await seen.until(lambda: len(answers(seen)) == 4)
    assert seen.lines[0] == CONNECTED
    assert answers(seen) == {"1": (200, {"a": "ü"}), "2": (400, {"message": "no JSON"}), "3": (204, None), "4": (404, {})}
    await seen.wait_for_line(b'{"event":{"type": "x"}}')


async def test_no_request_is_made_before_the_first_event(start: Start) -> None:
    """Headers alone do not say that the agent has subscribed us."""
    agent, seen = await start("--late")
    agent.write(request("1", "/echo", 5))
    await seen.until(lambda: "1" in answers(seen))
    assert seen.lines[0] == CONNECTED


async def test_a_request_that_hangs_holds_up_no_other(start: Start) -> None:
    agent, seen = await start()
    agent.write(request("1", "/hang"))
    agent.write(request("2", "/echo", 5))
    await seen.until(lambda: "2" in answers(seen))
    assert "1" not in answers(seen)


async def test_stop_ends_it_once_and_leaves_nothing(start: Start) -> None:
    agent, seen = await start()
    await seen.wait_for_line(CONNECTED)
    pid = agent.pid
    assert pid is not None
    assert agent.alive
    await agent.stop()
    await agent.stop()
    assert len(seen.exits) == 1
    assert not agent.alive
    await has_died(pid)
    with pytest.raises(AgentGone):
        agent.write(request("1", "/echo"))


async def test_stop_before_it_listens(start: Start) -> None:
    agent, seen = await start("--silent")
    await agent.stop()
    assert len(seen.exits) == 1


async def test_kill(start: Start) -> None:
    agent, seen = await start()
    await seen.wait_for_line(CONNECTED)
    agent.kill()
    await agent.stop()
    assert (await seen.exit()).signal == 9


async def test_an_exit_is_reported_after_the_last_line(start: Start) -> None:
    agent, seen = await start()
    agent.write(request("1", "/die"))
    exit_ = await seen.exit()
    assert exit_.code == 3
    assert "a word on stderr" in exit_.stderr
    assert seen.log[-1] is exit_


async def test_without_its_stream_it_is_of_no_use(start: Start) -> None:
    agent, seen = await start()
    agent.write(request("1", "/end"))
    exit_ = await seen.exit()
    assert "event stream has ended" in exit_.stderr


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    seen = ProcessLog()
    spec = LaunchSpec((str(tmp_path / "opencode"), "serve"), str(tmp_path))
    with pytest.raises(AgentNotFound, match="does not exist"):
        await HttpAgent.spawn(spec, {}, on_lines=seen.on_lines, on_exit=seen.on_exit, name="fake")
    with pytest.raises(AgentNotFound, match="does not exist"):
        with_bridge(spec)


async def test_the_stream_is_opened_at_the_path_of_the_launch(start: Start) -> None:
    agent, seen = await start("--events", "/api/event", events="/api/event")
    agent.write(request("r1", "/echo", {"a": 1}))
    await seen.until(lambda: len(seen.lines) == 2)
    assert seen.lines[0] == CONNECTED


async def test_a_server_that_still_starts_is_asked_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_agent, "NOT_READY_S", 0.01)
    agent, seen = await start("--busy", "3")
    agent.write(request("r1", "/echo", {"a": 1}))
    await seen.until(lambda: bool(answers(seen)))
    assert answers(seen) == {"r1": (200, {"a": 1})}


async def test_the_password_is_set_in_both_of_opencodes_variables(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person's own OPENCODE_PASSWORD would win in OpenCode 2, and we would be refused."""
    monkeypatch.setenv("OPENCODE_PASSWORD", "the person's")
    agent, seen = await start("--same-passwords")
    agent.write(request("r1", "/echo", {"a": 1}))
    await seen.until(lambda: bool(answers(seen)))
    assert answers(seen) == {"r1": (200, {"a": 1})}
