"""What the servers of a cluster show of each other, in `/v1/x-nodes` and in the metrics."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.process.test_cluster_placement import node_settings
from tests.process.test_serve import START_S
from tests.process.test_two_servers import Server, server, until
from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


def metrics(node: Server) -> dict[str, float]:
    """The metrics of the cluster, without their common prefix."""
    with urllib.request.urlopen(f"{node.url}/metrics", timeout=START_S) as answer:
        lines = answer.read().decode().splitlines()
    found = (re.fullmatch(r"opencode_shim_cluster_(\S+) (\S+)", line) for line in lines)
    return {match[1]: float(match[2]) for match in found if match}


def by_name(node: Server) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in node.get("/v1/x-nodes")["nodes"]}


def test_each_server_shows_all_with_agents_room_sessions_and_lease(tmp_path: Path, nats: NatsServer) -> None:
    agents = {"SHIM_AGENTS": json.dumps({"mine": {"command": ["/bin/cat"]}}), "SHIM_MAX_AGENTS": "7", "SHIM_LABELS": "gpu=yes"}
    with (
        server(tmp_path, **node_settings(tmp_path, nats, "node", SHIM_ROOTS=str(tmp_path), **agents)) as node,
        server(tmp_path, **node_settings(tmp_path, nats, "front", SHIM_NO_AGENTS="true")) as front,
    ):
        until(lambda: by_name(front).keys() == by_name(node).keys() == {"node", "front"})
        until(lambda: by_name(front)["node"]["agents"])
        session = front.session()
        front.prompt(session, "echo one")
        front.begin(session, "hang")  # an agent without a turn takes no room: it ends when another one needs its place
        until(lambda: by_name(front)["node"]["sessions"] == 1)
        until(lambda: by_name(front)["node"]["room"] == 6)
        shown, own = by_name(front), by_name(node)
        assert [row["name"] for row in front.get("/v1/x-nodes")["nodes"]] == ["front", "node"], "this server comes first"
        assert shown["node"]["here"] is False
        assert own["node"]["here"] is True
        for row in (shown["node"], own["node"]):
            assert {"mock", "mine"} <= {agent["id"] for agent in row["agents"]}
            assert (row["roots"], row["room"], row["sessions"], row["lagEvents"]) == ([str(tmp_path)], 6, 1, 0)
            assert (row["url"], row["pid"]) == (node.url, node.process.pid)
            assert row["leaseAgeMs"] < 9000
            assert (row["labels"], row["draining"]) == (["gpu=yes"], False)
        assert (shown["front"]["agents"], shown["front"]["sessions"]) == ([], 0)
        for each in (front, node):
            (listed,) = [row for row in each.get("/v1/sessions")["sessions"] if row["sessionId"] == session]
            assert listed["node"] == shown["node"]["id"]
            assert each.get("/v1/x-nodes")["cluster"]["connected"] is True
        of_front, of_node = metrics(front), metrics(node)
        assert (of_front["nodes"], of_front["connected"], of_node["room"]) == (2, 1, 6)
        assert (of_front["sessions_owned"], of_node["sessions_owned"]) == (0, 1)
        assert (of_front["append_seconds_count"], of_front["read_lag_events"]) == (0, 0)
        assert of_node["append_seconds_count"] > 0
        assert of_node["largest_session_bytes"] > 0
        assert of_front['requests_total{result="answered"}'] >= 2, "the session, and its prompt"
        assert of_front['renewals_total{result="done"}'] >= 1
        assert of_front["lease_age_seconds"] < 9
        nats.stop()
        until(lambda: metrics(front)["connected"] == 0)
        nats.start()
        until(lambda: metrics(front)["reconnects_total"] == 1)


def test_commands_and_answers_do_not_show_the_password_of_nats(tmp_path: Path) -> None:
    secret = "correct-horse-battery"
    nats = NatsServer(tmp_path / "nats", "--auth", secret)
    nats.start()
    try:
        with server(tmp_path, **node_settings(tmp_path, nats, "node", SHIM_CLUSTER_PASSWORD=secret)) as node:
            session = node.session()
            environ = f"/proc/{node.process.pid}/environ"
            for command, is_shown in (("env; echo over", "over"), (f"tr '\\0' '\\n' < {environ}", "SHIM_CLUSTER=")):
                status, answer = node.ask("POST", f"/session/{session}/shell", {"agent": "build", "command": command})
                assert status == 200, answer
                text = json.dumps(node.get(f"/session/{session}/message")[-1])
                assert is_shown in text
                assert secret not in text
                assert command != "env; echo over" or "SHIM_CLUSTER" not in text
            for path in ("/metrics", "/v1/x-nodes", "/inspector/api/counters", "/config"):
                with urllib.request.urlopen(node.url + path, timeout=START_S) as found:
                    assert secret not in found.read().decode(), path
    finally:
        nats.stop()
