"""`opencode-shim stop` and `restart` with a real server in whose turn a permission is open."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from shim.store.servers import ServerRef, present
from tests.e2e.support.children import wait_for
from tests.process.test_serve import RUN, environment, run_server

pytestmark = pytest.mark.timeout(180)
FAKE = Path(__file__).resolve().parent.parent / "fakes" / "acp_hands.py"
WAIT_S = 60.0


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path: a holder's socket below that of a test may be too long for the system."""
    with TemporaryDirectory(prefix="control-") as folder:
        yield Path(folder)


class Person:
    """A person with a server in one terminal, and commands in another one."""

    def __init__(self, home: Path, url: str, settings: dict[str, str]) -> None:
        self.home, self.url, self.settings = home, url, settings

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return json.loads(answer.read() or b"null")

    def begin(self) -> str:
        """A session with a turn that waits for a permission."""
        session = self.ask("/session", {"title": "my work"})["id"]
        self.ask(f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": "allow touch x"}]})
        wait_for(lambda: self.ask("/permission"), WAIT_S, "no permission is asked")
        return session

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", RUN, *words, "--data-dir", str(self.home / "data")]
        more = environment(self.home, **self.settings)
        return subprocess.run(argv, env=more, capture_output=True, text=True, timeout=WAIT_S, check=False)

    @property
    def server(self) -> ServerRef:
        [server] = present(self.home / "data").living.values()
        return server

    def holders(self) -> list[Path]:
        return list((self.home / "data" / "held").glob("*"))


@pytest.fixture(params=["true", "false"], ids=["outlive", "plain"])
def person(home: Path, request: pytest.FixtureRequest, unused_tcp_port: int) -> Iterator[tuple[Person, subprocess.Popen[str]]]:
    agents = json.dumps({"hands": {"command": [sys.executable, str(FAKE), str(home / "agent.log")]}})
    settings = {"SHIM_AGENTS": agents, "SHIM_OUTLIVE": request.param, "SHIM_SANDBOX": "off", "SHIM_DEFAULT_AGENT": "hands"}
    with run_server(home, "--data-dir", str(home / "data"), "--port", str(unused_tcp_port), **settings) as (process, url):
        yield Person(home, url, settings), process


def test_a_restart_is_of_the_same_process_and_says_what_becomes_of_turns(
    person: tuple[Person, subprocess.Popen[str]],
) -> None:
    who, process = person
    session, before = who.begin(), who.server
    [told] = who.ask("/v1/sessions")["sessions"]
    assert told["outlives"] == (who.settings["SHIM_OUTLIVE"] == "true")
    said = who.command("restart")
    assert said.returncode == 0, said
    after, outlives = who.server, who.settings["SHIM_OUTLIVE"] == "true"
    assert (after.pid, after.url) == (before.pid, before.url) == (process.pid, who.url)
    assert after.id != before.id
    assert ("goes on: my work (hands" if outlives else "ends: my work (hands") in " ".join(said.stdout.split())
    status = wait_for(lambda: [who.ask("/session/status")], WAIT_S, "no answer")[0]
    assert (session in status) == outlives
    if outlives:
        [request] = who.ask("/permission")
        who.ask(f"/permission/{request['id']}/reply", {"reply": "once"})
        wait_for(lambda: session not in who.ask("/session/status"), WAIT_S, "the turn does not end")
        assert who.ask(f"/session/{session}/message")[-1]["parts"]


def test_a_stop_says_what_runs_and_ends_the_agents(person: tuple[Person, subprocess.Popen[str]]) -> None:
    who, process = person
    who.begin()
    said = who.command("stop")
    assert said.returncode == 0, said
    assert "ends: my work (hands" in " ".join(said.stdout.split())
    assert process.wait(WAIT_S) == 0
    wait_for(lambda: not who.holders(), WAIT_S, "a holder is left")
    nobody = who.command("stop")
    assert (nobody.returncode, "No server runs" in nobody.stderr) == (1, True)
