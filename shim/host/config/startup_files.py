"""Tells whether files that an agent reads when it starts have changed.

`digest` is a hash over the stamps of these files. It reads contents only of files of which a few values count (`values`). A scan
is bounded: if there is more to look at, there is no digest, and the caller must take the files for changed.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from universal.lib.jsonvalue import obj

FILES_LIMIT = 600
"""Maximum files and folders that one digest stamps."""
DEPTH_LIMIT = 5
"""Levels that a scan descends below a folder."""
VALUES_LIMIT_BYTES = 8 * 2**20
"""Maximum size of a file of which a few values count."""
VALUES_DEPTH = 6
LEFT_OUT = frozenset({"node_modules", "package.json", "package-lock.json", "bun.lock", ".gitignore", "worktrees"})
"""Names in folders of settings that agents write themselves when they start."""


class _TooMany(Exception):
    """There is more to look at than the limits allow."""


def digest(
    folders: Iterable[str], names: Sequence[str], agent_files: Iterable[Path], values: Mapping[Path, Sequence[str]]
) -> str | None:
    """Hash the stamps of `names` in each of the folders, of `agent_files`, and the named `values`. Blocking.

    None if that is more than the limits allow, or if a file cannot be read.
    """
    stamps: dict[str, object] = {}
    try:
        for path in [*(Path(folder, name) for folder in folders for name in names), *agent_files]:
            _stamp(path, stamps, DEPTH_LIMIT)
        for path, keys in values.items():
            stamps[f"{path} values"] = _values(path, frozenset(keys))
    except (_TooMany, OSError, ValueError, RecursionError):
        return None
    return hashlib.blake2b(json.dumps(stamps, sort_keys=True).encode(), digest_size=16).hexdigest()


def _stamp(path: Path, stamps: dict[str, object], depth: int) -> None:
    """Add the stamps of a file, or of a folder with all in it. Links are followed, since agents follow them."""
    try:
        state = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    if len(stamps) >= FILES_LIMIT or depth == 0:
        raise _TooMany
    if not stat.S_ISDIR(state.st_mode):
        stamps[str(path)] = state.st_mtime_ns, state.st_size, state.st_ino
        return
    stamps[str(path)] = "folder"  # what agents write beside the settings changes its times
    for inner in sorted(path.iterdir()):
        if inner.name not in LEFT_OUT:
            _stamp(inner, stamps, depth - 1)


def _values(path: Path, keys: frozenset[str]) -> object:
    """The values of these keys of a JSON file, wherever they stand in it. None without a file."""
    try:
        with path.open("rb") as file:
            data = file.read(VALUES_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > VALUES_LIMIT_BYTES:
        raise _TooMany
    return list(_pick(json.loads(data), keys, VALUES_DEPTH))


def _pick(value: Any, keys: frozenset[str], depth: int) -> Iterable[tuple[str, object]]:
    for key, inner in obj(value).items():
        if key in keys:
            yield key, inner
        elif depth:
            yield from ((f"{key}/{name}", inner_value) for name, inner_value in _pick(inner, keys, depth - 1))
