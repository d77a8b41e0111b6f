"""Three NATS servers, each killed once under load: nothing that was acknowledged is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio
import signal
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from shim.cluster.nats.connection import Connection
from shim.cluster.nats.layout import ClusterOptions, Layout
from shim.lib.errors import StoreError
from tests.process.test_two_servers import Server, server, until
from tests.support.nats_server import NatsServer, nats_cluster

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow, pytest.mark.nightly]

SESSIONS = 6
DOWN_PROMPTS = 20
"""Prompts that are acknowledged while a NATS server is down, and again after its return."""
CURRENT_S = 60.0
"""For a NATS server that came back to have what the others have."""
PROGRESS_S = 60.0


@pytest.fixture
def three_nats(tmp_path: Path) -> Iterator[list[NatsServer]]:
    """Three servers that keep three copies."""
    cluster = nats_cluster(tmp_path, 3)
    for one in cluster:
        one.start()
    yield cluster
    for one in cluster:
        one.stop()


def is_current(options: ClusterOptions) -> bool:
    """Whether each stream has a leader and three current copies. Creates the streams."""

    async def look() -> bool:
        connection, layout = Connection(options, "test"), Layout(options.prefix, 9.0)
        await connection.open()
        try:
            await connection.prepare(layout)
            info = [await connection._ask(f"STREAM.INFO.{s.name}", {}, "look") for s in layout.streams]  # pyright: ignore[reportPrivateUsage] - a test
            groups = [one["cluster"] for one in info]
            return all(g.get("leader") and sum(r["current"] for r in g.get("replicas", ())) == 2 for g in groups)
        except (StoreError, KeyError):
            return False  # no leader yet
        finally:
            await connection.close()

    return asyncio.run(look())


def test_nothing_acknowledged_is_lost_while_each_nats_server_is_killed_once(tmp_path: Path, three_nats: list[NatsServer]) -> None:
    urls = ",".join(one.url for one in three_nats)
    options = ClusterOptions(tuple(urls.split(",")), replicas=3)
    until(lambda: is_current(options), CURRENT_S)
    shared = {"SHIM_CLUSTER": urls, "SHIM_CLUSTER_REPLICAS": "3"}
    acknowledged: dict[str, list[str]] = defaultdict(list)
    refused: list[int] = []
    stop = Event()

    def work(nodes: tuple[Server, Server], session: str) -> None:
        """Prompt one session again and again, at both servers in turn."""
        number = 0
        while not stop.is_set():
            number += 1
            body = {"parts": [{"type": "text", "text": f"echo {session}-{number}"}]}
            status, _ = nodes[number % 2].ask("POST", f"/session/{session}/message", body)
            if status == 200:
                acknowledged[session].append(f"{session}-{number}")
            else:
                assert status == 503
                refused.append(number)

    def count() -> int:
        return sum(map(len, acknowledged.values()))

    with (
        server(tmp_path, SHIM_DATA_DIR=str(tmp_path / "one"), **shared) as one,
        server(tmp_path, SHIM_DATA_DIR=str(tmp_path / "two"), **shared) as two,
        ThreadPoolExecutor(SESSIONS) as pool,
    ):
        nodes = (one, two)
        sessions = [nodes[number % 2].session() for number in range(SESSIONS)]
        working = [pool.submit(work, nodes, session) for session in sessions]
        try:
            for victim in three_nats:
                before = count()
                victim.stop(signal.SIGKILL)
                until(lambda: count() >= before + DOWN_PROMPTS)  # noqa: B023 - awaited at once
                victim.start()
                until(lambda: is_current(options), CURRENT_S)
                until(lambda: count() >= before + 2 * DOWN_PROMPTS)  # noqa: B023 - awaited at once
        finally:
            stop.set()
        for task in working:
            task.result(PROGRESS_S)
        for session in sessions:
            until(lambda: session not in one.get("/session/status"))  # noqa: B023 - awaited at once
            texts = one.texts(session)
            assert texts == two.texts(session)
            assert len(set(texts)) == len(texts), "nothing is done twice"
            missing = [text for text in acknowledged[session] if text not in texts or f"echo {text}" not in texts]
            assert not missing
    assert count() >= 6 * DOWN_PROMPTS
