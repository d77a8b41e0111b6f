"""A server that is told to stop lets its turns end, and gives its sessions to the others."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.process.test_cluster_commands import events_of, of_type
from tests.process.test_cluster_placement import node_settings, owner_of
from tests.process.test_serve import RUN, SLACK_S, START_S, STOP_S
from tests.process.test_two_servers import Server, server, until
from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

QUICK_S = 1.0
"""`drain_seconds` of servers whose turns never end."""


def begin_turn_that_asks(node: Server, session: str, seen_by: Server) -> str:
    """Begin a turn that ends when somebody allows its call. Returns the id of the request."""
    node.begin(session, "permission")
    until(lambda: any(request["sessionID"] == session for request in seen_by.get("/permission")))
    return next(str(request["id"]) for request in seen_by.get("/permission") if request["sessionID"] == session)


def errors(node: Server, session: str) -> list[str]:
    messages = [message["info"] for message in node.get(f"/session/{session}/message")]
    return [info["error"]["data"]["message"] for info in messages if info.get("error")]


def terminate(node: Server) -> None:
    node.process.send_signal(signal.SIGTERM)


def test_a_running_turn_ends_and_idle_sessions_go_on_elsewhere_at_once(two_nodes: tuple[Server, Server]) -> None:
    stopping, other = two_nodes
    idle, busy = stopping.session(), stopping.session()
    stopping.prompt(idle, "echo one")
    request = begin_turn_that_asks(stopping, busy, other)
    stream = urllib.request.urlopen(f"{stopping.url}/event", timeout=START_S)
    terminate(stopping)
    while stream.readline():  # it ends, and the turn has not
        pass
    stream.close()
    with pytest.raises(urllib.error.URLError):  # so that a balancer asks another server
        stopping.ask("GET", "/session")
    other.prompt(idle, "echo two")
    assert other.texts(idle) == ["echo one", "one", "echo two", "two"]
    assert stopping.process.poll() is None
    assert other.ask("POST", f"/permission/{request}/reply", {"reply": "once"})[0] == 200
    assert stopping.process.wait(STOP_S + SLACK_S) == 0
    until(lambda: busy not in other.get("/session/status"))
    assert (other.texts(busy)[-1], errors(other, busy)) == ("Pushed.", [])
    other.prompt(busy, "echo on")
    assert other.texts(busy)[-2:] == ["echo on", "on"]


def test_a_turn_that_does_not_end_in_time_and_the_prompt_behind_it_fail_once_each(tmp_path: Path, nats: NatsServer) -> None:
    with (
        server(tmp_path, **node_settings(tmp_path, nats, "stopping", SHIM_DRAIN_SECONDS=str(QUICK_S))) as stopping,
        server(tmp_path, **node_settings(tmp_path, nats, "other")) as other,
        events_of(other) as events,
    ):
        session = stopping.session()
        stopping.begin(session, "hang")
        until(lambda: other.get("/session/status").get(session) == {"type": "busy"})
        stopping.begin(session, "echo later")
        terminate(stopping)
        assert stopping.process.wait(QUICK_S + STOP_S + SLACK_S) == 0
        until(lambda: of_type(events, "session.idle", session))
        failed, unread = errors(other, session)
        assert "The server stopping was stopped while this turn ran, and the turn did not end within 1 seconds" in failed
        assert "The server was stopped before the agent got this prompt." in unread
        assert "echo later" in other.texts(session), "what was accepted is still there"
        other.prompt(session, "echo on")
        until(lambda: len(of_type(events, "session.idle", session)) == 2)
        assert len(of_type(events, "session.error", session)) == 2, "one for each prompt"
        assert other.texts(session)[-1] == "on"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_drain_at_once(two_nodes: tuple[Server, Server], number: signal.Signals) -> None:
    stopping, other = two_nodes
    session = stopping.session()
    stopping.begin(session, "hang")
    until(lambda: other.get("/session/status").get(session) == {"type": "busy"})
    terminate(stopping)
    until(lambda: not can_connect(stopping))
    began = time.monotonic()
    stopping.process.send_signal(number)
    assert stopping.process.wait(STOP_S + SLACK_S) == 0
    assert time.monotonic() - began < STOP_S + SLACK_S
    until(lambda: session not in other.get("/session/status"))
    (error,) = errors(other, session)
    assert "was stopped while this turn ran" in error


def run_cluster(node: Server, *arguments: str) -> tuple[int, str]:
    """What `opencode-shim cluster ...` answers, asked of this server."""
    argv = [sys.executable, "-c", RUN, "cluster", *arguments, "--url", node.url]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=START_S, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_server_is_emptied_by_a_command_and_goes_on_for_its_clients(tmp_path: Path, nats: NatsServer) -> None:
    """The command is given to the other server. A prompt to the empty one is answered by the other."""
    with (
        server(tmp_path, **node_settings(tmp_path, nats, "leaving")) as leaving,
        server(tmp_path, **node_settings(tmp_path, nats, "other")) as other,
        events_of(leaving) as events,
    ):
        idle, busy = leaving.session(), leaving.session()
        leaving.prompt(idle, "echo one")
        request = begin_turn_that_asks(leaving, busy, other)
        assert run_cluster(other, "cordon", "nobody")[1].endswith("There is no server nobody. Those that live: other, leaving.\n")
        code, said = run_cluster(other, "drain", "leaving", "--wait", "0")
        assert code == 1, said
        assert "have a turn, and move at its end" in said
        until(lambda: owner_of(other, idle) == "None")
        leaving.prompt(idle, "echo two")
        assert (owner_of(other, idle), leaving.texts(idle)) == ("other", ["echo one", "one", "echo two", "two"])
        assert "drained" in run_cluster(leaving, "nodes")[1]
        assert leaving.ask("POST", f"/permission/{request}/reply", {"reply": "once"})[0] == 200
        assert run_cluster(other, "drain", "leaving")[0] == 0
        until(lambda: of_type(events, "session.idle", busy))
        assert (leaving.texts(busy)[-1], errors(leaving, busy)) == ("Pushed.", [])
        assert owner_of(other, leaving.session()) == "other"
        assert run_cluster(other, "uncordon", "leaving")[0] == 0
        until(lambda: "drained" not in run_cluster(other, "nodes")[1])


def can_connect(node: Server) -> bool:
    try:
        node.ask("GET", "/session")
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


def test_without_a_cluster_sigterm_ends_turns_at_once(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        session = one.session()
        one.begin(session, "hang")
        terminate(one)
        assert one.process.wait(STOP_S + SLACK_S) == 0


def test_without_a_cluster_drain_seconds_lets_the_running_turn_end(tmp_path: Path) -> None:
    """Clients stay attached, since there is no other server, and prompts of other sessions are refused."""
    with server(tmp_path, SHIM_DRAIN_SECONDS=str(START_S)) as one, events_of(one) as events:
        session, idle = one.session(), one.session()
        one.prompt(idle, "echo one")
        request = begin_turn_that_asks(one, session, one)
        terminate(one)
        until(lambda: one.ask("POST", f"/session/{idle}/message", {"parts": []})[0] == 503)
        status, answer = one.ask("POST", f"/session/{idle}/message", {"parts": [{"type": "text", "text": "echo two"}]})
        assert (status, "This server is about to stop" in str(answer)) == (503, True)
        assert one.ask("POST", "/session", {})[0] == 503
        assert one.ask("POST", f"/permission/{request}/reply", {"reply": "once"})[0] == 200
        assert one.process.wait(STOP_S + SLACK_S) == 0
        until(lambda: of_type(events, "session.idle", session))
    with server(tmp_path) as again:
        assert (again.texts(session)[-1], errors(again, session)) == ("Pushed.", [])
