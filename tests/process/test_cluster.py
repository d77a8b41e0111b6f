"""Servers of one cluster: each has a data directory of its own, and all keep their sessions in one NATS."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.process.support import is_live
from tests.process.test_serve import RUN, START_S, environment
from tests.process.test_two_servers import Server, server, until
from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]
PROMPT = {"parts": [{"type": "text", "text": "echo mine"}]}


def rename(node: Server, session: str) -> None:
    """A request that is answered when all that came before it is stored."""
    assert node.ask("PATCH", f"/session/{session}", {"title": "kept"})[0] == 200


def test_sessions_of_a_killed_server_go_on_in_the_other(two_nodes: tuple[Server, Server]) -> None:
    """Its lease ends after some seconds. The turn that ran is ended once, as failed."""
    victim, left = two_nodes
    idle, busy = victim.session(), victim.session()
    victim.prompt(idle, "echo kept")
    victim.begin(busy, "hang")
    until(lambda: left.get("/session/status").get(busy) == {"type": "busy"})
    rename(victim, idle)
    victim.kill()
    until(lambda: busy not in left.get("/session/status"))
    assert (
        f"The server {socket.gethostname()} was lost while this turn ran"
        in left.get(f"/session/{busy}/message")[-1]["info"]["error"]["data"]["message"]
    )
    left.prompt(idle, "echo on")
    left.prompt(busy, "echo again")
    assert left.texts(idle) == ["echo kept", "kept", "echo on", "on"]
    assert left.texts(busy)[-2:] == ["echo again", "again"]


def test_a_server_that_was_paused_for_longer_than_its_lease_gives_its_session_up(two_nodes: tuple[Server, Server]) -> None:
    paused, other = two_nodes
    session = paused.session()
    paused.begin(session, "hang")
    until(lambda: other.get("/session/status").get(session) == {"type": "busy"})
    paused.process.send_signal(signal.SIGSTOP)
    until(lambda: session not in other.get("/session/status"))
    other.prompt(session, "echo on")
    paused.process.send_signal(signal.SIGCONT)
    until(lambda: session not in paused.get("/session/status"))
    assert paused.texts(session)[-2:] == ["echo on", "on"]
    paused.prompt(session, "echo there")
    assert other.texts(session)[-2:] == ["echo there", "there"], "the new owner has answered"
    other.prompt(session, "echo last")
    assert other.texts(session)[-2:] == ["echo last", "last"]
    kept = paused.session()
    paused.prompt(kept, "echo alive")
    assert paused.texts(kept) == ["echo alive", "alive"]


def test_a_restarted_server_has_its_sessions_at_once(nats: NatsServer, tmp_path: Path) -> None:
    """Its data directory says that the one before is dead, so that its lease is not waited for."""
    with server(tmp_path, SHIM_CLUSTER=nats.url) as before:
        session = before.session()
        before.prompt(session, "echo one")
        rename(before, session)
        before.kill()
    with server(tmp_path, SHIM_CLUSTER=nats.url) as after:
        after.prompt(session, "echo two")
        assert after.texts(session) == ["echo one", "one", "echo two", "two"]
        after.stop()


def test_a_server_lives_through_a_restart_of_nats(nats: NatsServer, tmp_path: Path) -> None:
    """A prompt that was answered by 503 may be stored when NATS is back: it runs then, before or beside the next one."""
    with server(tmp_path, SHIM_CLUSTER=nats.url) as one:
        session = one.session()
        one.prompt(session, "echo one")
        nats.stop(signal.SIGKILL)
        status, answer = one.ask("POST", f"/session/{session}/message", PROMPT)
        assert (status, "NATS" in str(answer)) == (503, True)
        nats.start()
        until(lambda: one.ask("POST", f"/session/{session}/message", PROMPT)[0] == 200)
        until(lambda: session not in one.get("/session/status"))
        first, rest = one.texts(session)[:2], one.texts(session)[2:]
        assert first == ["echo one", "one"]
        assert rest.count("echo mine") == rest.count("mine") == len(rest) / 2 > 0
        one.stop()


def test_an_abort_without_nats_stops_the_turn_and_says_that_it_is_not_stored(nats: NatsServer, tmp_path: Path) -> None:
    with server(tmp_path, SHIM_CLUSTER=nats.url) as one:
        session = one.session()
        one.begin(session, "hang")
        nats.stop(signal.SIGKILL)
        status, answer = one.ask("POST", f"/session/{session}/abort")
        assert (status, "No turn runs here any more, but this is not stored yet" in str(answer)) == (503, True)
        assert session not in one.get("/session/status")
        nats.start()
        until(lambda: one.ask("POST", f"/session/{session}/abort")[0] == 200)
        rename(one, session)
    with server(tmp_path, SHIM_CLUSTER=nats.url) as one:
        assert one.get(f"/session/{session}/message")[-1]["info"]["error"]["name"] == "MessageAbortedError"


@pytest.fixture
def embedded_pid(tmp_path: Path) -> Iterator[Path]:
    """The file with the process id of the embedded NATS, which a test that fails would leave behind."""
    file = tmp_path / ".local/share/opencode-shim/nats/pid"
    yield file
    if file.exists():
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def test_the_embedded_nats_ends_with_its_server_and_keeps_the_sessions(tmp_path: Path, embedded_pid: Path) -> None:
    with server(tmp_path, SHIM_CLUSTER="embedded") as one:
        session = one.session()
        one.prompt(session, "echo one")
        rename(one, session)
        killed_with = int(embedded_pid.read_text())
        one.kill()
    assert is_live(killed_with), "a killed server cannot end it"
    with server(tmp_path, SHIM_CLUSTER="embedded") as two:
        assert not is_live(killed_with)
        two.prompt(session, "echo two")
        assert two.texts(session) == ["echo one", "one", "echo two", "two"]
        stopped_with = int(embedded_pid.read_text())
        assert stopped_with != killed_with
        second = subprocess.run(
            [sys.executable, "-c", RUN, "serve", "--port", "0", "--directory", str(tmp_path), "--cluster", "embedded"],
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        assert second.returncode == 1
        assert "Another opencode-shim runs an embedded NATS" in second.stderr
        two.stop()
    until(lambda: not is_live(stopped_with))


def test_projects_and_names_of_another_server_are_seen_without_a_restart(two_nodes: tuple[Server, Server]) -> None:
    one, two = two_nodes
    project = one.get("/project/current")["id"]
    assert [node.get("/project/current")["id"] for node in two_nodes] == [project, project]
    assert one.ask("PATCH", f"/project/{project}", {"name": "Ours"})[0] == 200
    until(lambda: [row.get("name") for row in two.get("/project") if row["id"] == project] == ["Ours"])
    assert one.ask("POST", "/v1/sessions/mine", {"agent": "mock"})[0] == 200
    until(lambda: "mine" in [row["sessionId"] for row in two.get("/v1/sessions")["sessions"]])
