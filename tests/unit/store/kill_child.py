"""A server that is killed: writes and flushes, says how far it is, and goes on writing until the end.

Run as `python -m tests.unit.store.kill_child FILE`; prints "flushed N" after each flush.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from shim.store.sqlite import SqliteStore
from tests.unit.store.store_contract import event, row


async def main(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    store.save_session(row())
    sequence = 0
    while True:
        for _ in range(25):
            sequence += 1
            store.append([event(sequence, raw={"filler": "x" * 200})])
        await store.flush()
        sys.stdout.write(f"flushed {sequence}\n")
        sys.stdout.flush()
        store.append([event(sequence + 1), event(sequence + 2)])
        sequence += 2


asyncio.run(main(Path(sys.argv[1])))
