"""Servers of several versions in one cluster, as during an upgrade: tolerated if they share the format, refused otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.test_cluster_placement import node_settings, owner_of
from tests.process.test_serve import RUN, SLACK_S, START_S, STOP_S, environment
from tests.process.test_two_servers import server, until
from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

OTHER_FORMAT = "import shim.cluster.nats.layout as layout; layout.FORMAT = '0'\n" + RUN
LATER_VERSION = (
    """
import shim.cluster.nats.batches as batches, shim.cluster.nats.layout as layout, shim.cluster.nats.leases as leases
dump, fields, encode = layout.dump, leases.asdict, batches.encode_event
def entry(value):
    row = value["row"] and [*value["row"][:5], {**value["row"][5], "later": 1}, "later"]
    return {**value, "later": {"x": 1}, "row": row}
def event(row):
    columns, body, raw = encode(row).split(b"\\n", 2)
    body = body.replace(b'"data":{', b'"later":1,"data":{"later":1,', 1)
    return b"\\n".join((columns[:-1] + b',"later"]', body, raw))
layout.dump = lambda value, what: dump(entry(value), what)
leases.asdict = lambda value: {**fields(value), 'later': [1]}
batches.encode_event = event
"""
    + RUN
)
"""A program that writes what this version does not know into leases, entries of sessions and events."""
EARLIER_VERSION = (
    """
import shim.cluster.nats.leases as leases, shim.store.rows as rows
fields, read = leases.asdict, rows.event_of
leases.asdict = lambda value: {name: fields(value)[name] for name in ('agents', 'roots', 'room')}
def event_of(row, **more):
    assert rows.body_of(row).keys() == rows._BODY, row
    return read(row, **more)
rows.event_of = event_of
"""
    + RUN
)
"""A program whose leases lack what this version has added, and which cannot read an event that says whose doing it is."""


@pytest.mark.parametrize("program", [LATER_VERSION, EARLIER_VERSION], ids=["later", "earlier"])
def test_servers_of_two_versions_with_one_format_work_together(tmp_path: Path, nats: NatsServer, program: str) -> None:
    """Each does what a client asks of the other, and goes on with the sessions of the other when that stops."""
    with server(tmp_path, **node_settings(tmp_path, nats, "one")) as one:
        with server(tmp_path, run=program, **node_settings(tmp_path, nats, "other")) as other:
            sessions = one.session(), other.session()
            for session in sessions:
                for node in (one, other):
                    node.prompt(session, f"echo {node.process.pid}")
            assert (
                one.texts(sessions[0])[1::2] == other.texts(sessions[1])[1::2] == [str(one.process.pid), str(other.process.pid)]
            )
            until(lambda: owner_of(one, sessions[1]) == "other")
            other.process.terminate()
            assert other.process.wait(STOP_S + SLACK_S) == 0
        one.prompt(sessions[1], "echo on")
        assert one.texts(sessions[1])[-2:] == ["echo on", "on"]


def test_a_server_of_another_format_refuses_to_start(tmp_path: Path, nats: NatsServer) -> None:
    with server(tmp_path, **node_settings(tmp_path, nats, "one")) as one:
        session = one.session()
        refused = subprocess.run(
            [sys.executable, "-c", OTHER_FORMAT, "serve", "--port", "0", "--directory", str(tmp_path)],
            env=environment(tmp_path, **node_settings(tmp_path, nats, "other")),
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        assert refused.returncode == 1
        assert "is of format 1 (this version: 0)" in refused.stderr
        one.prompt(session, "echo on")
        assert one.texts(session) == ["echo on", "on"]
