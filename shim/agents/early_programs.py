"""Finds out whether a person's own program may run at a prompt, before its agent asks the server about a call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from shim.agents.login_signs import place
from shim.host.trust.project_settings import folders_of
from shim.lib import disk
from universal.codec import HeldCalls

FILE_LIMIT_BYTES = 2**20
"""Maximum size of a settings file that is read. A larger one may name anything."""


def may_run(calls: HeldCalls, directory: str, environ: Mapping[str, str]) -> bool:
    """Whether a settings file may name such a program: it has one of the words, or cannot be read. Blocking."""
    words = [word.encode() for word in calls.words]
    own = (place(path, environ) for path in calls.own_files)
    project = (Path(folder, name) for folder in folders_of(directory) for name in calls.files)
    return any(path is not None and _mentions(path, words) for path in (*own, *project))


def _mentions(path: Path, words: list[bytes]) -> bool:
    try:
        with disk.open_file(Path(os.path.realpath(path))) as (file, state):
            data = file.read(FILE_LIMIT_BYTES + 1) if disk.is_regular(state) else None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    return data is None or len(data) > FILE_LIMIT_BYTES or any(word in data for word in words)
