"""A store that is killed by SIGKILL inside of a migration.

Run as `python -m tests.unit.store.migrating_child FILE STEP`: dies when SQLite has done STEP steps of its machine, each of
PERIOD instructions, in the statement that migrates. Prints "migrated" if the migration ends before.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from shim.store.sqlite import SqliteStore

PERIOD = 1


class Deadly(sqlite3.Connection):
    """Counts the instructions of scripts, and kills this process."""

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        left = int(sys.argv[2])

        def tick() -> int:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return 0

        self.set_progress_handler(tick, PERIOD)
        try:
            return super().executescript(sql_script)
        finally:
            self.set_progress_handler(None, 0)


def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
    return Deadly(*arguments, **options)


async def main(path: Path) -> None:
    sqlite3.connect = connect  # type: ignore[assignment] - the store's own module asks for it here
    store = SqliteStore(path)
    await store.open()
    await store.close()


asyncio.run(main(Path(sys.argv[1])))
