"""What a cluster adds, and how it grows: `python -m tests.bench.cluster [--rows ROW,...]`. It prints its figures.

delta     milliseconds from an agent's write of a piece to a client's read of it: without a cluster, at the server that runs the
          agent, and at another server; both clients read the same turn
nodes     sessions and pieces a second of 1, 2, 4 and 8 servers, each with SHARE of a processor; NATS and clients have the rest;
          and the processor that a session takes of all servers, which another load of the machine does not change
idle      processor of a server without clients: alone, and while another one streams to its own client
takeover  seconds from `kill -9` of a server to the end of its turn at a client of another server
listed    a server that starts with 100,000 sessions, with none, and with its list of them on its disk, in a cluster and alone on
          SQLite: its start until it can list them, its memory, `GET /session`
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from shim.lib.clock import SystemClock
from shim.lib.ids import Ids
from shim.lib.settings import Settings
from shim.main.choose_store import DATABASE, cluster_store_of
from shim.sessions.index.session_entry import SessionEntry
from shim.store.base import Store
from shim.store.rows import SessionRow
from shim.store.sqlite import SqliteStore
from tests.bench import work
from tests.bench.contenders import Contender, shim
from tests.bench.machine import MOCK, describe, load_of_machine, memory, mib
from tests.e2e.support.places import Place
from tests.support.nats_server import NatsServer
from tests.unit.store.store_contract import event
from universal.session.values import SessionRecord

PIECES, RATE = 2_000, 200
SHARE = 0.125
PERIOD_US = 20_000
WORK_S = 15.0
WORKERS = 4
"""Clients of each server. Each creates a session and prompts it, again and again."""
BURST = 200
"""Pieces of each answer."""
SIZES = (1, 2, 4, 8)
IDLE_S = 10.0
KILLS = 5
LISTED = 100_000
WRITTEN_AT_ONCE = 250
CGROUP = Path("/sys/fs/cgroup/cpu")
ANSWER_S = 60


class Cluster:
    """A NATS and servers of one project. All end with the block."""

    def __init__(self) -> None:
        self._ends = ExitStack()
        self.place = Place.make()
        self._ends.callback(self.place.remove)
        self.nats = NatsServer(self.place.root / "nats")

    def __enter__(self) -> Cluster:
        self.nats.start()
        self._ends.callback(self.nats.stop)
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()

    def start(self, name: str, **more: str) -> Contender:
        """A server of the cluster."""
        place = Place(self.place.root / name)
        place.project.mkdir(parents=True, exist_ok=True)
        (place.home / ".tmp").mkdir(exist_ok=True)
        at = shim(place, SHIM_CLUSTER=self.nats.url, SHIM_CLUSTER_NAME=name, SHIM_ROOTS=str(place.project), **more)
        self._ends.callback(at.close)
        at.stream = "/global/event"  # the others have directories of their own
        return at


def milliseconds(figures: work.Figures) -> str:
    return f"p50 {figures['p50'] * 1000:.2f} ms, p99 {figures['p99'] * 1000:.2f} ms, lost {figures['lost']:.0f}"


def measure_delta() -> None:
    place = Place.make()
    alone = shim(place)
    try:
        session = work.start_session(alone)
        one = work.latency(alone, lambda: alone.prompt(session, deltas=PIECES, rate=RATE), pieces=PIECES)
        print(f"delta     without a cluster    {milliseconds(one)}")
    finally:
        alone.close()
        place.remove()
    with Cluster() as cluster:
        owner, other = cluster.start("owner"), cluster.start("other")
        session = work.start_session(owner)
        with work.readers(owner, 1, kind="stamps") as near, work.readers(other, 1, kind="stamps") as far:
            owner.prompt(session, deltas=PIECES, rate=RATE)
            for where, reader in (("at its server", near), ("at another server", far)):
                found = reader.results()["latencies_ns"]
                print(f"delta     {where:20} {milliseconds({**work.percentiles(found), 'lost': PIECES - len(found)})}")


@contextmanager
def share_of_processor(pid: int, name: str) -> Iterator[None]:
    """A process gets SHARE of a processor at most. Its agents here are of the mock, and run inside it."""
    group = CGROUP / name
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * SHARE)))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        (CGROUP / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def work_at(at: Contender, end: float) -> int:
    """Create sessions and prompt them until `end`. Returns how many answers came."""
    connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=ANSWER_S)

    def ask(path: str, body: object) -> bytes:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {content[:300]!r}")
        return content

    answers = 0
    while time.monotonic() < end:
        session = json.loads(ask("/session", {}))["id"]
        parts = [{"type": "text", "text": f"burst {BURST}"}]
        ask(f"/session/{session}/message", {"parts": parts, "model": MOCK})
        answers += 1
    connection.close()
    return answers


def measure_nodes() -> None:
    if not os.access(CGROUP, os.W_OK) or not (CGROUP / "cgroup.procs").exists():
        print("nodes     not measured: this machine gives no access to the processor's control group")
        return
    for size in SIZES:
        with Cluster() as cluster, ExitStack() as shares, ThreadPoolExecutor(size * WORKERS) as pool:
            nodes = [cluster.start(f"node{number}") for number in range(size)]
            for number, node in enumerate(nodes):
                work_at(node, time.monotonic() + 1)  # warm
                shares.enter_context(share_of_processor(node.pid, f"shim-bench-{os.getpid()}-{number}"))
            pids = [cluster.nats.pid, *(node.pid for node in nodes)]
            before = [cpu_s(pid) for pid in pids]
            began = time.monotonic()
            jobs = [pool.submit(work_at, node, began + WORK_S) for node in nodes for _ in range(WORKERS)]
            answers = sum(job.result() for job in jobs)
            took = time.monotonic() - began
            nats_s, *servers_s = (cpu_s(pid) - start for pid, start in zip(pids, before, strict=True))
        print(
            f"nodes     {size} of {SHARE} processors: {answers / took:6.1f} sessions/s, {answers * BURST / took:8,.0f} pieces/s;"
            f" of a session, its server and the others {1000 * sum(servers_s) / answers:.1f} ms of processor, NATS"
            f" {1000 * nats_s / answers:.1f} ms"
        )


def measure_idle() -> None:
    with Cluster() as cluster:
        owner, other = cluster.start("owner"), cluster.start("other")
        session = work.start_session(owner)
        for what, deltas in (("nothing happens", 0), (f"another one streams {RATE} pieces a second", int(RATE * IDLE_S))):
            with work.readers(owner, 1, kind="stamps") as reader:
                began, cpu = time.monotonic(), cpu_s(other.pid)
                if deltas:
                    owner.prompt(session, deltas=deltas, rate=RATE)
                    reader.results()
                else:
                    time.sleep(IDLE_S)
                used, took = cpu_s(other.pid) - cpu, time.monotonic() - began
            print(f"idle      {used / took * 1000:.1f} ms of processor a second while {what}")


def cpu_s(pid: int) -> float:
    """Seconds of processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_takeover() -> None:
    took: list[float] = []
    with Cluster() as cluster:
        other = cluster.start("other")
        for number in range(KILLS):
            victim = cluster.start(f"victim{number}")
            session = victim.create()
            victim.request(
                "POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": "[hang:1]"}], **victim.model}
            )
            until(lambda asked=session: asked in json.loads(other.request("GET", "/session/status")))
            with work.readers(other, 1, answer_s=ANSWER_S) as reader:
                killed = time.monotonic_ns()
                victim.child.send(9)
                took.append((reader.results()["end_ns"] - killed) / 1e9)
    print(f"takeover  {median(took):.1f} s (median of {KILLS}; {min(took):.1f} to {max(took):.1f})")


def until(what: Callable[[], bool]) -> None:
    """Wait for another server. Raises RuntimeError after ANSWER_S."""
    end = time.monotonic() + ANSWER_S
    while not what():
        if time.monotonic() > end:
            raise RuntimeError("the other server does not see it")
        time.sleep(0.05)


def row_of(session: str, number: int, directory: str) -> SessionRow:
    record = SessionRecord(session, directory=directory, title=f"Work {number}", created_ms=number, updated_ms=number)
    return SessionEntry(record, "mock", {}).to_row()


async def fill(store: Store, directory: str) -> None:
    """LISTED sessions in a store, each with one event."""
    await store.open()
    clock = SystemClock()
    ids = Ids(clock)
    for first in range(0, LISTED, WRITTEN_AT_ONCE):
        for number, event_id in enumerate(ids.events(WRITTEN_AT_ONCE, clock.now_ms()), first):
            session = f"ses_{LISTED - number:026}"
            store.save_session(row_of(session, number, directory))
            store.append([event(1, session).model_copy(update={"event_id": event_id})])
        await store.flush()
    await store.close()


def measure_start(what: str, start: Callable[[], Contender]) -> None:
    """A start, with the first list: a server alone reads its sessions for that."""
    late = start()
    late.create()
    print(f"listed    {what}: {cpu_s(late.pid):.1f} s of processor, {mib(memory(late.pid)[0])}")
    for limit in (100, LISTED):
        times, answer = list[float](), list[object]()
        for _ in range(5):
            began = time.monotonic()
            answer = json.loads(late.request("GET", f"/session?limit={limit}&scope=project"))
            times.append(time.monotonic() - began)
        if len(answer) > 1:
            print(f"listed    GET /session?limit={limit}: {len(answer):,} sessions in {median(times) * 1000:.0f} ms")
    late.close()


def measure_listed() -> None:
    with Cluster() as cluster:
        root, more = cluster.place.root, {"SHIM_MAX_SESSIONS": str(2 * LISTED)}
        directory = str(root / "late" / "home" / "project")
        options = {"cluster": cluster.nats.url, "data_dir": root / "filler"}
        asyncio.run(fill(cluster_store_of(Settings.load(options)), directory))
        measure_start("a cluster without sessions", lambda: cluster.start("none", SHIM_CLUSTER_PREFIX="none"))
        for what in ("from NATS", "from its disk", "from its disk again"):
            measure_start(f"a cluster with {LISTED:,}, read {what}", lambda: cluster.start("late", **more))
        alone = Place(root / "late")
        data = alone.home / "alone"
        measure_start("alone, without sessions", lambda: shim(alone, alone.home / "none"))
        data.mkdir()
        asyncio.run(fill(SqliteStore(data / DATABASE), directory))
        measure_start(f"alone, with {LISTED:,}", lambda: shim(alone, data, **more))


ROWS = {
    "delta": measure_delta,
    "nodes": measure_nodes,
    "idle": measure_idle,
    "takeover": measure_takeover,
    "listed": measure_listed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", default=",".join(ROWS))
    rows = parser.parse_args().rows.split(",")
    print(f"{describe()}; load {load_of_machine():.1f}")
    for name in rows:
        ROWS[name]()


if __name__ == "__main__":
    main()
