"""What an append costs in each store: `python -m tests.bench.store`. It prints its figures and writes nothing.

append    one event and a flush, as a prompt that is acknowledged: median and 99th percentile, ms
sessions  events a second from 100 sessions at once, each appending batches of 64 events
read      events a second of a journal that is read whole
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

from shim.cluster.nats.layout import ClusterOptions
from shim.cluster.nats.store import JetStreamStore
from shim.store.base import Store
from shim.store.sqlite import SqliteStore
from tests.support.nats_server import NatsServer
from tests.unit.store.store_contract import event, journal

APPENDS = 1_000
SESSIONS = 100
BATCH = 64
BATCHES = 10


async def measure(name: str, store: Store) -> None:
    await store.open()
    times: list[float] = []
    for number in range(1, APPENDS + 1):
        one = event(number, "ses_latency")
        began = perf_counter()
        store.append([one])
        await store.flush()
        times.append((perf_counter() - began) * 1000)
    total = SESSIONS * BATCH * BATCHES
    batches = [
        [journal(at * BATCH + 1, (at + 1) * BATCH, f"ses_{number}") for at in range(BATCHES)] for number in range(SESSIONS)
    ]
    began = perf_counter()
    for at in range(BATCHES):
        for number in range(SESSIONS):
            store.append(batches[number][at])
            if (room := store.room()) is not None:
                await room
        await asyncio.sleep(0)
    await store.flush()
    wrote = perf_counter() - began
    began = perf_counter()
    for number in range(SESSIONS):
        assert len(await store.rows(f"ses_{number}")) == BATCH * BATCHES
    read = perf_counter() - began
    await store.close()
    p99 = quantiles(times, n=100)[98]
    print(
        f"{name:10} append {median(times):6.2f} ms, p99 {p99:6.2f} ms; {SESSIONS} sessions {total / wrote:9,.0f} events/s;"
        f" read {total / read:9,.0f} events/s"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(measure("SQLite", SqliteStore(folder / "journal.db")))
        nats = NatsServer(folder / "nats")
        nats.start()
        try:
            asyncio.run(measure("JetStream", JetStreamStore(ClusterOptions((nats.url,)))))
        finally:
            nats.stop()


if __name__ == "__main__":
    main()
