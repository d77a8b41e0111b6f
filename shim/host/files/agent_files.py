"""Reads and writes files for an agent (the Agent Client Protocol's `fs/*`). Blocking: call it in a thread.

Paths must lie in directories that the caller names, with links resolved. This limits only what an agent asks the server to do.
It is no sandbox: the agent's own tools can still reach other files. A write keeps the file's mode, owner and links.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from shim.host.files.roots import within
from shim.lib import disk
from universal.host import HostDone, ReadText, Trouble, WriteText

FILE_LIMIT_BYTES = 10 * 2**20
"""Maximum size of one file to read or write. Agents show far less than that to a model."""


class _RefusedError(Exception):
    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message)
        self.trouble: Trouble = trouble


def carry_out(call: ReadText | WriteText, allowed: Sequence[str]) -> HostDone:
    """Read or write a file. `allowed`: absolute and resolved directories, at least one."""
    try:
        path = _place(call.path, allowed)
        if isinstance(call, ReadText):
            return HostDone(call.call, text=_lines(_read(path, allowed), call.line, call.limit))
        _write(path, call.text, allowed)
        return HostDone(call.call)
    except _RefusedError as refused:
        return HostDone(call.call, trouble=refused.trouble, error=str(refused))
    except disk.OutsideError:
        return HostDone(call.call, trouble="refused", error=outside(call.path, allowed))
    except IsADirectoryError:
        return HostDone(call.call, trouble="refused", error=_no_file(call.path))
    except FileNotFoundError:
        return HostDone(call.call, trouble="not_found", error=f"Resource not found: {call.path}: No such file or directory.")
    except (OSError, ValueError) as error:
        action = "read" if isinstance(call, ReadText) else "written"
        reason = getattr(error, "strerror", None) or error
        return HostDone(call.call, trouble="failed", error=f"{call.path} cannot be {action}: {reason}.")


def outside(path: str, allowed: Sequence[str]) -> str:
    """The error text for a path outside of the allowed directories."""
    return f"{path} is outside of the directories of this session ({', '.join(allowed)}). Use a path below one of them."


def _place(path: str, allowed: Sequence[str]) -> str:
    if not Path(path).is_absolute() or "\0" in path:
        raise _RefusedError("refused", f"{path!r} is no absolute path. Paths must be absolute.")
    if not within(path, allowed):
        raise _RefusedError("refused", outside(path, allowed))
    return os.path.realpath(path)


def _read(path: str, allowed: Sequence[str]) -> str:
    with disk.open_confined(path, allowed) as (file, state):
        _need_regular(path, state)
        data = file.read(FILE_LIMIT_BYTES + 1)
    _small(path, len(data))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise _RefusedError("failed", f"{path} is no text file: it is not UTF-8. Read it with a command.") from None


def _write(path: str, text: str, allowed: Sequence[str]) -> None:
    data = text.encode("utf-8", "surrogatepass")
    _small(path, len(data))
    with disk.open_confined_for_writing(path, allowed) as (file, state):
        _need_regular(path, state)
        file.write(data)
        file.truncate()


def _need_regular(path: str, state: os.stat_result) -> None:
    if not disk.is_regular(state):
        raise _RefusedError("refused", _no_file(path))


def _no_file(path: str) -> str:
    return f"{path} is no file (but a directory, a pipe or a device)."


def _small(path: str, size: int) -> None:
    if size > FILE_LIMIT_BYTES:
        raise _RefusedError(
            "refused", f"{path}: more than {FILE_LIMIT_BYTES} bytes, which is the most here. Use a command for the part you need."
        )


def _lines(text: str, line: int | None, limit: int | None) -> str:
    if line is None and limit is None:
        return text
    first = max((line or 1) - 1, 0)
    lines = text.splitlines(keepends=True) if "\r" not in text else text.replace("\r\n", "\n").splitlines(keepends=True)
    return "".join(lines[first:] if limit is None else lines[first : first + limit])
