"""Settings files for one process of an agent: private, made from the person's own, and removed when the process has ended."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

from shim.host.config import jsonc
from shim.lib import disk
from shim.lib.errors import AgentStartFailed
from universal.codec import LaunchSpec, SettingsFile
from universal.lib.jsonvalue import obj

OWN_LIMIT_BYTES = 2**20
"""Maximum size of the person's own settings."""
PREFIX = "opencode-shim-settings-"


def write(launch: LaunchSpec, settings: SettingsFile) -> tuple[LaunchSpec, Path]:
    """Write the file. Out: the launch with its path, and the folder to remove at the end. Blocking. Raises AgentStartFailed."""
    values = settings.change(_settings_of_person(settings))
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))  # for its owner alone
        file = folder / "settings.json"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(values, stream)
    except OSError as error:
        raise AgentStartFailed(
            f"The agent was not started: the file with your permission rules could not be written ({error}). "
            "Make room in the folder for temporary files (TMPDIR), then try again."
        ) from error
    return replace(launch, argv=(*launch.argv, settings.option, str(file)), settings=None), folder


def remove(folder: Path) -> None:
    """Remove the folder of a settings file; one that is gone is fine. Blocking."""
    rmtree(folder, ignore_errors=True)


def _settings_of_person(settings: SettingsFile) -> Mapping[str, Any]:
    """The person's own settings. Raises AgentStartFailed for those that cannot be read."""
    for source in map(Path, settings.sources):
        try:
            return obj(jsonc.loads(_read(source)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise AgentStartFailed(
                "The agent was not started: your permission rules are to stand before its own settings, but "
                f"{source} cannot be read: {error}. Correct that file, then try again."
            ) from error
    return {}


def _read(path: Path) -> str:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        if not disk.is_regular(os.fstat(stream.fileno())):
            raise OSError("it is no file")
        data = stream.read(OWN_LIMIT_BYTES + 1)
    if len(data) > OWN_LIMIT_BYTES:
        raise OSError(f"it has more than {OWN_LIMIT_BYTES} bytes")
    return data.decode("utf-8")
