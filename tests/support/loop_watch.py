"""Which calls to the file system our code makes on the thread of the event loop.

Opening, listing and changing files raise audit events (`sys.addaudithook`). `os.stat` and its relatives raise none, so they are
replaced by functions that note their caller.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]
CODE = (f"{REPO}/shim/", f"{REPO}/universal/")
IMPORT = "<frozen importlib._bootstrap"
"""Modules that are imported at their first use are read on the loop, once."""
OS_EVENTS = "chmod chown link listdir mkdir remove rename rmdir scandir symlink truncate utime"
EVENTS = frozenset({"open", "shutil.rmtree", "shutil.move", "shutil.copyfile", *(f"os.{name}" for name in OS_EVENTS.split())})
CALLS = ("stat", "lstat", "readlink", "access")


class Watch:
    """The calls on one thread, as "file function: call"."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.calls: set[str] = set()

    def note(self, call: str) -> None:
        """Add a call, if our code makes it on this thread, and not to import a module."""
        if threading.get_ident() != self._thread:
            return
        frame: FrameType | None = sys._getframe(1)
        caller = ""
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(IMPORT):
                return
            if not caller and name.startswith(CODE):
                caller = f"{Path(name).relative_to(REPO)} {frame.f_code.co_name}"
            frame = frame.f_back
        if caller:
            self.calls.add(f"{caller}: {call}")


_watches: list[Watch] = []


@cache
def _install_hook() -> None:
    """Install the hook, which nothing can remove, once."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if _watches and event in EVENTS and not (event == "open" and isinstance(arguments[0], int)):  # a pipe that is open
            for watch in _watches:
                watch.note(event)

    sys.addaudithook(note)


@contextmanager
def loop_watch() -> Iterator[Watch]:
    """Watch the calls that are made on this thread within this context."""
    _install_hook()
    watch = Watch()
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, _spy(name, getattr(os, name), watch))
        _watches.append(watch)
        try:
            yield watch
        finally:
            _watches.remove(watch)


def _spy(name: str, call: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
    def spy(*arguments: Any, **options: Any) -> Any:
        watch.note(f"os.{name}")
        return call(*arguments, **options)

    return spy
