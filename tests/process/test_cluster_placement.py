"""Where sessions of a cluster go: from a front to a server with agents, to the one with most room, and on after a loss."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.process.test_cluster_commands import LOST_S, events_of, of_type
from tests.process.test_serve import RUN
from tests.process.test_two_servers import Server, server, until
from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


def owner_of(node: Server, session: str) -> str:
    """The name of the server that has the session."""
    ids = {row["id"]: row["name"] for row in node.get("/v1/x-nodes")["nodes"]}
    return next(str(ids.get(row.get("node"))) for row in node.get("/v1/sessions")["sessions"] if row["sessionId"] == session)


WITH_GPU = {"metadata": {"serverLabels": "gpu=yes"}}
ECHO = {"parts": [{"type": "text", "text": "echo on"}]}


def node_settings(tmp_path: Path, nats: NatsServer, name: str, **more: str) -> dict[str, str]:
    return {"SHIM_CLUSTER": nats.url, "SHIM_DATA_DIR": str(tmp_path / name), "SHIM_CLUSTER_NAME": name, **more}


def test_sessions_of_a_front_run_on_another_server(tmp_path: Path, nats: NatsServer) -> None:
    with server(tmp_path, **node_settings(tmp_path, nats, "front", SHIM_NO_AGENTS="true")) as front:
        status, answer = front.ask("POST", "/session", {})
        assert status == 503
        assert "This server runs no agents (--no-agents), and no other server of the cluster has the directory" in str(answer)
        agents = json.dumps({"mine": {"command": ["/bin/cat"]}})
        with server(tmp_path, **node_settings(tmp_path, nats, "node", SHIM_AGENTS=agents)) as node:
            until(lambda: front.ask("POST", "/session", {})[0] == 200)
            for path in ("/provider", "/agent", "/path", "/api/model"):
                assert front.get(path) == node.get(path)
            assert "mine" in str(front.get("/provider"))
            session = front.session()
            front.prompt(session, "echo one")
            assert front.texts(session) == ["echo one", "one"]
            assert front.ask("POST", "/v1/sessions/named", {"agent": "mock"})[0] == 200
            assert front.ask("POST", "/v1/sessions/named/messages", {"message": "echo named"})[0] == 204
            until(lambda: '"turn.ended"' in json.dumps(front.get("/v1/sessions/named/events")))
            assert node.ask("POST", "/v1/sessions/named", {"agent": "mock"})[0] == 409
            second = str(front.ask("POST", "/api/session", {})[1]["data"]["id"])
            front.prompt(second, "echo two")
            node.stop()
        until(lambda: front.ask("PATCH", f"/session/{session}", {"title": "never"})[0] == 503)
        assert front.texts(session) == ["echo one", "one"], "it can still be read"
        with server(tmp_path, **node_settings(tmp_path, nats, "later")):
            until(lambda: front.ask("PATCH", f"/session/{session}", {"title": "on"})[0] == 200)
            front.prompt(session, "echo on")
            assert front.texts(session)[-2:] == ["echo on", "on"]


def test_a_new_session_goes_to_the_server_with_most_room_and_ends_once_when_that_is_lost(
    tmp_path: Path, nats: NatsServer
) -> None:
    """Clients everywhere see the end within LOST_S of the kill, with the name of the server."""
    roots = {"SHIM_ROOTS": str(tmp_path)}
    with (
        server(tmp_path, **node_settings(tmp_path, nats, "large", SHIM_MAX_AGENTS="9", **roots)) as large,
        server(tmp_path, **node_settings(tmp_path, nats, "small", SHIM_MAX_AGENTS="2", **roots)) as small,
        server(tmp_path, **node_settings(tmp_path, nats, "front", SHIM_NO_AGENTS="true")) as front,
        events_of(front) as events,
    ):
        until(lambda: front.ask("POST", "/session", {})[0] == 200)
        session = small.session()
        small.begin(session, "hang")
        until(lambda: front.get("/session/status").get(session) == {"type": "busy"})
        large.kill()
        killed = time.monotonic()
        until(lambda: of_type(events, "session.idle", session))
        assert time.monotonic() - killed < LOST_S
        (error,) = of_type(events, "session.error", session)
        assert "The server large was lost while this turn ran" in error["error"]["data"]["message"]
        small.prompt(session, "echo on")
        until(lambda: len(of_type(events, "session.idle", session)) == 2)
        assert len(of_type(events, "session.error", session)) == 1


def test_a_session_of_a_lost_server_goes_back_to_its_directory(tmp_path: Path, nats: NatsServer) -> None:
    """A server without the directory ends the turn and takes requests meanwhile. It gives the session up when it can go on."""
    shared, beside = tmp_path / "shared", tmp_path / "beside"
    shared.mkdir()
    beside.mkdir()
    blind = "import os; seen = os.path.isdir; os.path.isdir = lambda path: 'shared' not in str(path) and seen(path)\n" + RUN
    with server(beside, run=blind, **node_settings(tmp_path, nats, "left")) as left:
        with server(shared, **node_settings(tmp_path, nats, "first")) as first:
            busy, idle = first.session(), first.session()
            first.begin(busy, "hang")
            until(lambda: left.get("/session/status").get(busy) == {"type": "busy"})
            first.kill()
        until(lambda: busy not in left.get("/session/status"))
        until(lambda: left.ask("PATCH", f"/session/{idle}", {"title": "Taken over"})[0] == 200)
        until(lambda: owner_of(left, idle) == "left")
        with server(shared, **node_settings(tmp_path, nats, "second")) as second:
            until(lambda: "second" in [row["name"] for row in left.get("/v1/x-nodes")["nodes"] if row["agents"]])
            for node, session in ((left, busy), (second, idle)):
                until(lambda: node.ask("POST", f"/session/{session}/message", ECHO)[0] == 200)  # noqa: B023 - awaited at once
                assert second.texts(session)[-2:] == ["echo on", "on"]
                until(lambda: owner_of(second, session) == "second")  # noqa: B023 - awaited at once
            assert second.get(f"/session/{idle}")["title"] == "Taken over"


def test_labels_and_room_decide_where_a_session_runs_and_when(tmp_path: Path, nats: NatsServer) -> None:
    labels = {"SHIM_LABELS": "gpu=yes, zone=eu", "SHIM_MAX_AGENTS": "1"}
    with (
        server(tmp_path, **node_settings(tmp_path, nats, "plain")) as plain,
        server(tmp_path, **node_settings(tmp_path, nats, "gpu", **labels)) as gpu,
        events_of(plain) as events,
    ):
        until(lambda: plain.ask("POST", "/session", WITH_GPU)[0] == 200)
        first, second = (str(plain.ask("POST", "/session", WITH_GPU)[1]["id"]) for _ in range(2))
        named = {"agent": "mock", "serverLabels": "zone=eu"}
        assert plain.ask("POST", "/v1/sessions/named", named)[0] == 200
        until(lambda: [owner_of(gpu, session) for session in (first, second, "named")] == ["gpu"] * 3)
        status, answer = plain.ask("POST", "/session", {"metadata": {"serverLabels": "gpu=no"}})
        assert (status, "This server has no label gpu=no" in str(answer)) == (503, True)
        assert plain.ask("POST", "/session", {"metadata": {"serverLabels": "gpu"}})[0] == 400
        plain.begin(first, "hang")
        until(lambda: first in gpu.get("/session/status"))
        plain.begin(second, "echo later")
        until(lambda: gpu.get("/session/status").get(second, {}).get("type") == "retry")
        assert "this server runs 1 agents at once (max_agents)" in gpu.get("/session/status")[second]["message"]
        until(lambda: any(event["status"]["type"] == "retry" for event in of_type(events, "session.status", second)))
        until(lambda: "have no room for another agent: gpu" in str(plain.ask("POST", "/session", WITH_GPU)[1]))
        assert plain.ask("POST", f"/session/{first}/abort")[0] == 200
        until(lambda: of_type(events, "session.idle", second))
        assert plain.texts(second) == ["echo later", "later"]
