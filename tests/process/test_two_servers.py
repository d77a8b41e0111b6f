"""Two servers of one person: both start and work, each session belongs to one of them, and a death of either loses nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.process.support import is_live
from tests.process.test_serve import RUN, SLACK_S, START_S, STOP_S, environment

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]
SEEN_S = 30
"""For one server to see what the other has done, on a busy machine; it looks once a second."""
POLL_S = 0.05


@dataclass
class Server:
    """One `opencode-shim serve`, and calls to it."""

    process: subprocess.Popen[str]
    url: str

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=START_S) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def get(self, path: str) -> Any:
        status, body = self.ask("GET", path)
        assert status == 200, body
        return body

    def session(self) -> str:
        return str(self.ask("POST", "/session", {})[1]["id"])

    def prompt(self, session: str, text: str) -> Any:
        status, body = self.ask("POST", f"/session/{session}/message", {"parts": [{"type": "text", "text": text}]})
        assert status == 200, body
        return body

    def begin(self, session: str, text: str) -> None:
        status, body = self.ask("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]})
        assert status == 204, body

    def texts(self, session: str) -> list[str]:
        messages = self.get(f"/session/{session}/message")
        return [part["text"] for message in messages for part in message["parts"] if part["type"] == "text"]

    def titles(self) -> list[str]:
        return [session["id"] for session in self.get("/session")]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(STOP_S + SLACK_S) == 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_S)


@contextmanager
def server(home: Path, *, run: str = RUN, port: int = 0, **more: str) -> Iterator[Server]:
    """A server that ends with the block. In: `run`, its program; `port`, 0 for a free one."""
    argv = [sys.executable, "-c", run, "serve", "--port", str(port), "--directory", str(home)]
    env = environment(home, **{"SHIM_DEFAULT_AGENT": "mock", "SHIM_MOCK_DELAY_FACTOR": "0", **more})
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "listening on" in line
        yield Server(process, line.split()[-1])
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def two_servers(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    with server(tmp_path) as first, server(tmp_path) as second:
        yield first, second


def until(what: Callable[[], object], limit_s: float = SEEN_S) -> None:
    """Poll another process, which gives no event."""

    async def poll() -> None:
        async with asyncio.timeout(limit_s):
            while not await asyncio.to_thread(what):
                await asyncio.sleep(POLL_S)

    asyncio.run(poll())


def test_each_shows_what_the_other_has_and_says_who_has_it(two_servers: tuple[Server, Server]) -> None:
    first, second = two_servers
    assert_other_shows_session(first, second)
    mine = second.session()
    second.prompt(mine, "echo mine")
    until(lambda: mine in first.titles())
    until(lambda: first.texts(mine) == ["echo mine", "mine"])


def assert_other_shows_session(first: Server, second: Server) -> None:
    """A session of the first server is shown by the second, which refuses to change it, until it is deleted."""
    session = first.session()
    first.prompt(session, "echo one")
    until(lambda: session in second.titles())
    until(lambda: second.texts(session) == ["echo one", "one"])
    first.prompt(session, "echo two")
    until(lambda: second.texts(session) == ["echo one", "one", "echo two", "two"])
    assert [row["type"] for row in second.get(f"/api/session/{session}/message?order=asc")["data"]].count("user") == 2
    prompt = {"parts": [{"type": "text", "text": "echo three"}]}
    for method, path, body in (
        ("POST", f"/session/{session}/message", prompt),
        ("POST", f"/api/session/{session}/prompt", {"text": "echo three"}),
        ("PATCH", f"/session/{session}", {"title": "Mine"}),
        ("DELETE", f"/session/{session}", None),
        ("POST", f"/session/{session}/abort", None),
    ):
        status, answer = second.ask(method, path, body)
        assert (status, first.url in answer["message"], str(first.process.pid) in answer["message"]) == (409, True, True)
    assert first.texts(session) == ["echo one", "one", "echo two", "two"]
    assert first.ask("DELETE", f"/session/{session}")[0] == 200
    until(lambda: session not in second.titles())


def test_a_turn_of_the_other_is_shown_as_busy_until_it_ends(two_servers: tuple[Server, Server]) -> None:
    first, second = two_servers
    session = first.session()
    first.begin(session, "hang")
    until(lambda: second.get("/session/status").get(session) == {"type": "busy"})
    first.ask("POST", f"/session/{session}/abort")
    until(lambda: session not in second.get("/session/status"))


@pytest.mark.parametrize("killed", [0, 1])
def test_sessions_of_a_killed_server_go_on_in_the_other(two_servers: tuple[Server, Server], killed: int) -> None:
    victim, left = two_servers[killed], two_servers[1 - killed]
    kept, hanging, own = victim.session(), victim.session(), left.session()
    left.prompt(own, "echo own")
    victim.prompt(kept, "echo kept")
    victim.begin(hanging, "hang")
    until(lambda: left.get("/session/status").get(hanging) == {"type": "busy"})
    victim.kill()
    until(lambda: hanging not in left.get("/session/status"))
    assert "stopped while this turn ran" in left.get(f"/session/{hanging}/message")[-1]["info"]["error"]["data"]["message"]
    assert left.texts(kept) == ["echo kept", "kept"]
    left.prompt(kept, "echo on")
    left.prompt(hanging, "echo again")
    left.prompt(own, "echo too")
    assert left.texts(kept) == ["echo kept", "kept", "echo on", "on"]
    assert left.texts(hanging)[-2:] == ["echo again", "again"]
    assert left.texts(own) == ["echo own", "own", "echo too", "too"]


def test_a_killed_servers_processes_end_and_the_others_stay(two_servers: tuple[Server, Server]) -> None:
    victim, left = two_servers
    pids: list[int] = []
    for one in two_servers:
        session = one.session()
        told = one.ask(
            "POST", f"/session/{session}/shell", {"command": "setsid sleep 300 >/dev/null 2>&1 & echo $!", "agent": "build"}
        )
        pids.append(int(next(part["state"]["output"] for part in told[1]["parts"] if part["type"] == "tool")))
    assert all(map(is_live, pids)), "a second server does not end what the first has started"
    victim.kill()
    until(lambda: not is_live(pids[0]))
    assert is_live(pids[1])
    left.stop()
    assert not is_live(pids[1])


def test_nothing_is_lost_when_both_write_at_once_and_one_is_killed(tmp_path: Path) -> None:
    """What was stored (at most 20 ms after it was said) is there after its server's death; journals have no holes, no doubles."""
    answered: dict[str, int] = {}
    with server(tmp_path) as first, server(tmp_path) as second:
        sessions = {one.url: [one.session() for _ in range(3)] for one in (first, second)}
        for number in range(8):
            for one in (first, second):
                for session in sessions[one.url]:
                    one.prompt(session, f"echo {number}")
                    answered[session] = number
        until(lambda: set(answered) <= set(second.titles()))
        until(lambda: all(len(second.texts(session)) == 2 * (answered[session] + 1) for session in answered))
        first.kill()
        until(lambda: second.ask("PATCH", f"/session/{sessions[first.url][0]}", {"title": "Mine now"})[0] == 200)
        for session in sessions[first.url]:
            second.prompt(session, "echo after")
        second.stop()
    with server(tmp_path) as again:
        for session, last in answered.items():
            expected = [text for number in range(last + 1) for text in (f"echo {number}", str(number))]
            more = ["echo after", "after"] if session in sessions[first.url] else []
            assert again.texts(session) == expected + more


def test_an_older_session_can_be_read_without_being_taken(tmp_path: Path) -> None:
    with server(tmp_path) as before:
        session = before.session()
        before.prompt(session, "echo old")
        before.stop()
    with server(tmp_path) as first, server(tmp_path) as second:
        seen = first.session()
        until(lambda: seen in second.titles())  # it has looked, and knows of the other
        assert second.texts(session) == ["echo old", "old"]
        first.prompt(session, "echo on")
        until(lambda: second.texts(session) == ["echo old", "old", "echo on", "on"])
