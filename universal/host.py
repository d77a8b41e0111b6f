"""What an agent may ask of the machine that we run on: files and commands, and what comes back.

A codec that is asked for them (the Agent Client Protocol's `fs/*` and `terminal/*`) puts out a `HostCall`; the runtime carries it
out (`shim.runtime.host_calls`) and hands each `HostAnswer` to the codec's `hosted` (see `universal.codec.HostedCodec`).
`call` is the codec's own id, never used twice by one codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Trouble = Literal["not_found", "refused", "failed"]
"""Why a call failed: no such file; not allowed or not possible as asked; anything else."""


# --- asked ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostCall:
    """One of the calls below."""

    call: str


@dataclass(frozen=True, slots=True)
class ReadText(HostCall):
    """A text file (UTF-8), whole or `limit` lines of it from `line` on, which counts from 1. Answered by HostDone."""

    path: str
    line: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class WriteText(HostCall):
    """Write a file, made with its folders if it is not there. Answered by HostDone."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class RunCommand(HostCall):
    """Start a command: a program with `args`; without any, `command` is a line for the shell.

    `cwd` None: the session's directory.
    Answered by HostDone when it has been started or cannot be, then by CommandOutput as it comes, and by one CommandEnded.
    """

    command: str
    args: tuple[str, ...] = ()
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class StopCommand(HostCall):
    """End the command of this call, if it runs. `release`: and all that it has left behind. No answer of its own."""

    release: bool = False


# --- answered ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """One of the answers below, to the call of this id."""

    call: str


@dataclass(frozen=True, slots=True)
class HostDone(HostAnswer):
    """It is done (`text` of a file that was read) or, with `trouble`, failed: `error` says what, why and what to do."""

    text: str = ""
    trouble: Trouble | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class CommandOutput(HostAnswer):
    """What it wrote to stdout or stderr, in order, as text."""

    data: str


@dataclass(frozen=True, slots=True)
class CommandEnded(HostAnswer):
    """How it ended: exit code, or the name of the signal."""

    code: int | None
    signal: str | None = None
