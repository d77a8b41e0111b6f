"""Names the server in OpenCode's state folder, where clients of OpenCode 2 look for one (`serve --register`).

    $XDG_STATE_HOME/opencode/service.json    {version, url, pid, password?}, readable by the person alone

Such a client compares version and pid with `GET /api/info`. OpenCode's own background service ends when its registration is
replaced, so that of a living process is left alone. Source: OpenCode's client of 2.0; opencode.nvim for OpenCode 2.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from shim.lib import disk
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from universal.lib.jsonvalue import obj


class RegistrationError(ShimError):
    """The server cannot be registered. The text says why and what to do."""


def registration_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the file."""
    state = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or Path.home(), ".local", "state")
    return Path(state, "opencode", "service.json")


@contextmanager
def registration(settings: Settings, url: str, environ: Mapping[str, str]) -> Generator[None]:
    """Keep the server registered until the context ends. Raises RegistrationError if another server is, or for a failed write."""
    from shim.faces.opencode2._generated.operations import OPENCODE2_VERSION  # late: most servers need no registration

    path = registration_file(environ)
    owner = _owner(path)
    if owner and owner != os.getpid() and _lives(owner):
        raise RegistrationError(
            f"{path} names process {owner}, which runs. Stop it (`opencode service stop`), or leave --register out and give "
            "clients the URL (`opencode --server URL`)."
        )
    row: dict[str, object] = {"version": OPENCODE2_VERSION, "url": url, "pid": os.getpid()}
    if settings.password is not None:
        row["password"] = settings.password.get_secret_value()
    try:
        disk.put_private(path, json.dumps(row))
    except OSError as error:
        raise RegistrationError(f"Cannot write {path}: {error.strerror}. Leave --register out, or mend the folder.") from error
    try:
        yield
    finally:
        if _owner(path) == os.getpid():
            path.unlink(missing_ok=True)


def _owner(path: Path) -> int:
    """Return the pid in the file; 0 if there is none."""
    with suppress(OSError, ValueError):
        pid = obj(json.loads(path.read_text("utf-8"))).get("pid")
        return pid if isinstance(pid, int) and pid > 0 else 0
    return 0


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
