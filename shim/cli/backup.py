"""`opencode-shim backup` and `restore`: write a data directory to one file and read it back.

    manifest.json          format, version, schema, time
    opencode-shim.db       sessions and journals: one consistent state, also while a server writes
    trust.json auth.json   decisions about projects; API keys (left out with --no-keys)
    snapshots/             files that `/undo` needs

`backup` copies the database before the snapshots. Snapshots are only added, so the file holds every one that the database
names. The file does not hold installed agents, worktrees, logs and outputs of commands.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

from shim.lib.clock import SystemClock
from shim.lib.errors import ShimError
from shim.lib.version import build
from shim.store.backup import check_database, copy_database
from shim.store.lock import DirectoryLock, make_directory
from universal.lib.jsonvalue import obj, text

DATABASE = "opencode-shim.db"
MANIFEST = "manifest.json"
KEYS = "auth.json"
FILES = ("trust.json", KEYS)
FOLDER = "snapshots"
MEMBER = re.compile(rf"{re.escape(MANIFEST)}|{re.escape(DATABASE)}|trust\.json|auth\.json|{FOLDER}/[^\0]+")
"""Names that a backup may hold. `restore` refuses a file with any other name in it."""
FORMAT = 1
FILE_MODE = 0o600
FOLDER_MODE = 0o700
MANIFEST_LIMIT_BYTES = 2**16
TRANSIENT = (".lock", ".tmp", ".part")
"""Suffixes of temporary files of a running git, which a backup leaves out."""


class BackupError(ShimError):
    """A backup or a restore failed. The text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a backup or a restore. `size` is in bytes."""

    path: Path
    files: int
    size: int
    schema: int
    aside: Path | None = None
    """Folder to which `restore` moved the earlier data, or None if there was none."""


def backup(data_dir: Path, target: Path, *, keys: bool = True) -> Summary:
    """Write the data directory to the file `target`. A server may use the directory meanwhile. Raises ShimError."""
    if target.exists():
        raise BackupError(f"{target} exists already. Choose another name, or remove it.")
    database = data_dir / DATABASE
    part = target.with_name(target.name + ".part")
    try:
        with tempfile.TemporaryDirectory(prefix=".backup-", dir=target.parent) as folder:
            copy = Path(folder) / DATABASE
            copy_database(database, copy)
            schema, files = check_database(copy), 0
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE), "wb") as out:
                with tarfile.open(fileobj=out, mode="w:gz") as archive:
                    _add(archive, MANIFEST, _manifest(schema, keys=keys))
                    archive.add(copy, DATABASE, recursive=False)
                    for path in _beside(data_dir, keys=keys):
                        with suppress(FileNotFoundError):  # a server removed it after the listing
                            _add(archive, path.relative_to(data_dir).as_posix(), path.read_bytes())
                            files += 1
                out.flush()
                os.fsync(out.fileno())
            part.rename(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise BackupError(f"Cannot write {target}: {error.strerror or error}. Free some space, or choose another.") from error
    except BaseException:  # Ctrl-C leaves no half backup
        part.unlink(missing_ok=True)
        raise
    return Summary(target, files + 1, target.stat().st_size, schema)


def restore(data_dir: Path, source: Path, *, replace: bool = False) -> Summary:
    """Unpack `source` into the data directory. It checks the whole backup before it changes the directory.

    `replace` allows it to move existing data aside. All servers on the directory must be stopped. Raises ShimError and then
    leaves the directory as it was.
    """
    if not source.exists():
        raise BackupError(f"There is no file {source}.")
    make_directory(data_dir)
    lock = DirectoryLock(data_dir)
    lock.acquire()
    try:
        existing = [data_dir / name for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", *FILES, FOLDER)]
        existing = [path for path in existing if path.exists()]
        if existing and not replace:
            raise BackupError(
                f"{data_dir} has data already ({', '.join(path.name for path in existing)}). Use --replace to move it aside "
                "(nothing is deleted), or --data-dir to restore into another directory."
            )
        with tempfile.TemporaryDirectory(prefix=".restore-", dir=data_dir) as name:
            folder = Path(name)
            files = _unpack(source, folder)
            schema = check_database(folder / DATABASE)
            aside = _move_aside(data_dir, existing) if existing else None
            for path in folder.iterdir():
                if path.name != MANIFEST:
                    path.rename(data_dir / path.name)
    except OSError as error:
        raise BackupError(f"Cannot restore into {data_dir}: {error.strerror or error}.") from error
    finally:
        lock.release()
    return Summary(source, files, source.stat().st_size, schema, aside)


def _manifest(schema: int, *, keys: bool) -> bytes:
    running = build()
    content = {"format": FORMAT, "version": running.version, "commit": running.commit, "schema": schema, "keys": keys}
    return json.dumps(content | {"created_ms": SystemClock().now_ms()}, indent=1).encode()


def _beside(data_dir: Path, *, keys: bool) -> Iterator[Path]:
    """Yield the regular files beside the database. Links are left out, since they may lead outside of the directory."""
    for name in FILES:
        path = data_dir / name
        if path.is_file() and not path.is_symlink() and (keys or name != KEYS):
            yield path
    for folder, _, names in os.walk(data_dir / FOLDER):
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink() and path.suffix not in TRANSIENT:
                yield path


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), FILE_MODE
    archive.addfile(member, io.BytesIO(content))


def _unpack(source: Path, folder: Path) -> int:
    """Unpack a backup below `folder` and return its number of files. Raises BackupError for anything `backup` does not write."""
    try:
        with tarfile.open(source, mode="r:gz") as archive:
            files = 0
            for member in archive:
                if not member.isreg() or not MEMBER.fullmatch(member.name) or ".." in PurePosixPath(member.name).parts:
                    raise BackupError(f"{source} is no backup of opencode-shim: it holds {member.name!r}. Nothing was changed.")
                content = archive.extractfile(member)
                assert content is not None
                if member.name == MANIFEST:
                    _check_manifest(source, _json(content.read(MANIFEST_LIMIT_BYTES)))
                target = folder / member.name
                target.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
                with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as out:
                    content.seek(0)
                    shutil.copyfileobj(content, out)
                files += member.name != MANIFEST
    except (tarfile.TarError, EOFError) as error:
        raise BackupError(f"{source} is no backup of opencode-shim, or it is cut off: {error}. Nothing was changed.") from error
    if not (folder / MANIFEST).exists() or not (folder / DATABASE).exists():
        raise BackupError(f"{source} is no backup of opencode-shim: it has no {MANIFEST} or no {DATABASE}. Nothing was changed.")
    return files


def _check_manifest(source: Path, manifest: Mapping[str, Any]) -> None:
    if manifest.get("format") != FORMAT:
        raise BackupError(
            f"{source} has another format ({manifest.get('format')}; this version reads {FORMAT}). It was written by "
            f"opencode-shim {text(manifest.get('version')) or 'of an unknown version'}: restore it with that one. Nothing was "
            "changed."
        )


def _json(content: bytes) -> Mapping[str, Any]:
    try:
        return obj(json.loads(content))
    except ValueError:
        return {}


def _move_aside(data_dir: Path, paths: list[Path]) -> Path:
    """Move these files into a new folder `before-restore-N`, and return the folder."""
    number = next(n for n in count(1) if not (data_dir / f"before-restore-{n}").exists())
    aside = data_dir / f"before-restore-{number}"
    aside.mkdir(mode=FOLDER_MODE)
    for path in paths:
        path.rename(aside / path.name)
    return aside
