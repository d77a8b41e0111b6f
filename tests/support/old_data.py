"""Data directories that earlier versions wrote (compat_fixtures/data/README.md)."""

from __future__ import annotations

import json
import lzma
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "compat_fixtures" / "data"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def schema_of(name: str) -> int:
    """`schema-1-d2135e4` -> 1."""
    return int(name.split("-")[1])


def make_database(name: str, path: Path, home: Path = Path("/home/user")) -> None:
    """The database of a fixture, in WAL mode as its server left it; paths below `/home/user` moved below `home`."""
    text = lzma.decompress((FOLDER / name / "database.sql.xz").read_bytes()).decode().replace("/home/user", str(home))
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(text)
        connection.execute("PRAGMA journal_mode = WAL")


def sessions(name: str) -> dict[str, Any]:
    """What the server that wrote the fixture answered: id -> title and messages."""
    found: dict[str, Any] = json.loads((FOLDER / name / "sessions.json").read_text("utf-8"))
    return found
