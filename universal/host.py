"""File and command calls that an agent makes to the server's machine, and their answers.

A codec emits a `HostCall` for a request of its agent (`fs/*` and `terminal/*` of the Agent Client Protocol). The runtime carries
it out (`shim.host.terminals.host_calls`) and passes each `HostAnswer` to the codec's `hosted` (see
`universal.codec.Codec.on_host_answer`). `call` is the codec's id of the call, which it never uses twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Trouble = Literal["not_found", "refused", "failed"]
"""Reason of a failed call: no such file; not allowed or invalid; anything else."""


# --- asked ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostCall:
    """One of the calls below."""

    call: str


@dataclass(frozen=True, slots=True)
class ReadText(HostCall):
    """Read a UTF-8 text file, whole or `limit` lines from `line` on, which counts from 1. Answered by HostDone."""

    path: str
    line: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class WriteText(HostCall):
    """Write a file and create its missing folders. Answered by HostDone."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class RunCommand(HostCall):
    """Start a command: a program with `args`, or without `args` a line for the shell.

    `cwd` None means the session's directory. Answered by HostDone when the command has started or failed to, then by each
    CommandOutput, and by one CommandEnded.
    """

    command: str
    args: tuple[str, ...] = ()
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class StopCommand(HostCall):
    """End the command of this call, if it runs. `release` also ends all its processes. It gets no answer."""

    release: bool = False


# --- answered ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """One of the answers below, to the call of this id."""

    call: str


@dataclass(frozen=True, slots=True)
class HostDone(HostAnswer):
    """The call succeeded (`text` of a read file), or failed with `trouble`, and `error` says what, why and what to do."""

    text: str = ""
    trouble: Trouble | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class CommandOutput(HostAnswer):
    """A piece of the command's stdout and stderr, in order, as text."""

    data: str


@dataclass(frozen=True, slots=True)
class CommandEnded(HostAnswer):
    """The command ended, with an exit code or the name of a signal."""

    code: int | None
    signal: str | None = None
