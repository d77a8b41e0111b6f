"""`opencode-shim alias`: installs this server under the name `opencode`, for programs that start OpenCode themselves.

An alias replaces another program only with `--force`. The program is then kept beside the alias, and `remove` puts it back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from shim.cli import screen
from shim.lib.errors import ShimError
from shim.processes.aliases import NAMES, candidates, is_alias, script

DEFAULT_FOLDER = "~/.local/bin"
BACKUP_SUFFIX = ".before-alias"
"""File name suffix that `--force` gives to the program that the alias replaces."""


def install(folder: Path, names: Sequence[str], out: screen.Console, *, force: bool = False) -> int:
    """Write the aliases and print which program PATH finds now. Returns 0. Raises ShimError before it writes anything."""
    place = folder.expanduser().absolute()
    paths = [place / name for name in names]
    for path in paths:
        if _is_occupied(path) and not force:
            raise ShimError(
                f"{path} is another program and stays as it is. Choose another folder, or use --force: it keeps that program as"
                f" {path.name}{BACKUP_SUFFIX}, and `opencode-shim alias remove {place}` puts it back."
            )
    try:
        place.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if _is_occupied(path):
                path.rename(_backup_path(path))
            _write(path)
    except OSError as error:
        raise ShimError(f"Cannot write to {place}: {error.strerror}. Choose a folder that you may write to.") from error
    for path in paths:
        screen.line(out, f"Installed: {path}")
        for sentence in _advice(path, os.environ.get("PATH", "")):
            screen.line(out, sentence, "yellow")
    return 0


def remove(folder: Path, out: screen.Console) -> int:
    """Remove the aliases from a folder and restore the programs that `--force` kept. Returns 1 if there is no alias."""
    place = folder.expanduser().absolute()
    aliases = [path for path in (place / name for name in NAMES) if is_alias(path)]
    try:
        for path in aliases:
            path.unlink()
            screen.line(out, f"Removed: {path}")
            if _backup_path(path).exists():
                _backup_path(path).rename(path)
                screen.line(out, f"Put back: {path}")
    except OSError as error:
        raise ShimError(f"Cannot change {place}: {error.strerror}.") from error
    if not aliases:
        screen.line(out, f"There is no alias of opencode-shim in {place}.")
    return 0 if aliases else 1


def on_path(search_path: str) -> Iterator[str]:
    """Yield one line for each OpenCode program name on PATH, which says whose program it is. Blocks."""
    for name in NAMES:
        programs = list(candidates(name, search_path))
        if programs:
            rivals = [path for path in programs[1:] if is_alias(path) != is_alias(programs[0])]
            behind = f"; behind it {rivals[0]} ({_kind(rivals[0])})" if rivals else ""
            yield f"{name} on PATH: {programs[0]} ({_kind(programs[0])}){behind}"


def _kind(path: str) -> str:
    return "opencode-shim's alias" if is_alias(path) else "not ours"


def _is_occupied(path: Path) -> bool:
    return os.path.lexists(path) and not is_alias(path)


def _backup_path(path: Path) -> Path:
    return path.with_name(path.name + BACKUP_SUFFIX)


def _write(path: Path) -> None:
    """Replace the alias atomically: a program that starts it meanwhile finds the old file or the new one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(script(sys.executable, path.name), "utf-8")
    fresh.chmod(0o755)
    fresh.replace(path)


def _advice(path: Path, search_path: str) -> Iterator[str]:
    """Yield what the person must do before programs find the alias."""
    first = next(candidates(path.name, search_path), None)
    if str(path.parent) not in search_path.split(os.pathsep):
        yield f'It is not on PATH yet: export PATH="{path.parent}:$PATH"'
    elif first is not None and not os.path.samefile(first, path):  # noqa: PTH121 - one is text
        yield f"{first} comes first on PATH: programs will start that one. Put {path.parent} before it."
