"""`opencode-shim alias`: this server under the name `opencode`, for programs that start OpenCode themselves.

An alias never takes the place of another program unless the person says `--force`; that program is then kept beside it, and
`remove` puts it back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from shim.cli import screen
from shim.errors import ShimError
from shim.runtime.aliases import NAMES, candidates, is_alias, script

DEFAULT_FOLDER = "~/.local/bin"
KEPT = ".before-alias"
"""Ending of the name under which `--force` keeps the program that stood there."""


def install(folder: Path, names: Sequence[str], out: screen.Console, *, force: bool = False) -> int:
    """Write the aliases, and say which program the person's PATH finds then. Raises ShimError; nothing is written then."""
    place = folder.expanduser().absolute()
    paths = [place / name for name in names]
    for path in paths:
        if _is_occupied(path) and not force:
            raise ShimError(
                f"{path} is another program and stays as it is. Choose another folder, or use --force: it is then kept as"
                f" {path.name}{KEPT}, and `opencode-shim alias remove {place}` puts it back."
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
    """Remove the aliases of a folder, and put back what `--force` has kept. 1 if there is none."""
    place = folder.expanduser().absolute()
    found = [path for path in (place / name for name in NAMES) if is_alias(path)]
    try:
        for path in found:
            path.unlink()
            screen.line(out, f"Removed: {path}")
            if _backup_path(path).exists():
                _backup_path(path).rename(path)
                screen.line(out, f"Put back: {path}")
    except OSError as error:
        raise ShimError(f"Cannot change {place}: {error.strerror}.") from error
    if not found:
        screen.line(out, f"There is no alias of opencode-shim in {place}.")
    return 0 if found else 1


def on_path(search_path: str) -> Iterator[str]:
    """One line for each name of OpenCode's programs that PATH finds: which program it is. Blocking."""
    for name in NAMES:
        found = list(candidates(name, search_path))
        if found:
            others = [path for path in found[1:] if is_alias(path) != is_alias(found[0])]
            behind = f"; behind it {others[0]} ({_kind(others[0])})" if others else ""
            yield f"{name} on PATH: {found[0]} ({_kind(found[0])}){behind}"


def _kind(path: str) -> str:
    return "opencode-shim's alias" if is_alias(path) else "not ours"


def _is_occupied(path: Path) -> bool:
    return os.path.lexists(path) and not is_alias(path)


def _backup_path(path: Path) -> Path:
    return path.with_name(path.name + KEPT)


def _write(path: Path) -> None:
    """At once or not at all: a program that starts the alias meanwhile finds the old one or the new one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(script(sys.executable, path.name), "utf-8")
    fresh.chmod(0o755)
    fresh.replace(path)


def _advice(path: Path, search_path: str) -> Iterator[str]:
    """What the person has to do before the alias is what programs find."""
    first = next(candidates(path.name, search_path), None)
    if str(path.parent) not in search_path.split(os.pathsep):
        yield f'It is not on PATH yet: export PATH="{path.parent}:$PATH"'
    elif first is not None and not os.path.samefile(first, path):  # noqa: PTH121 - one is text
        yield f"{first} comes first on PATH: programs will start that one. Put {path.parent} before it."
