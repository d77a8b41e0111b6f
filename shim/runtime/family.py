"""The processes that an agent has started, and their end.

A process group is not enough: the shells of Claude Code's tools have sessions of their own and survive a SIGKILL of the
CLI (seen with 2.1.330), and when their parent is dead nothing in the process tree leads to them any more. So a process
belongs to the family if one of these holds:

    its session or its process group is the agent's
    it carries the agent's token in `environment.MARK`, which is inherited through setsid and reparenting
    its parent belongs to the family

Linux only, from /proc; elsewhere the family is empty and the process group is all that can be ended. Blocking: a scan
takes some 50 us per process of the machine, twice that for those younger than the agent.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shim.runtime.environment import MARK

ROUNDS = 5
"""How often what is left is looked for again: a process may fork while it is being ended."""
OWNED_WAIT_S = 2.0
"""For the processes of a killed server to be gone, at the next start."""
NOBODY = -1
"""In the place of a leader's pid: only tokens count."""
DEAD = frozenset({"Z", "X"})

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A live process; `started` (clock ticks since boot) tells it from a later one with the same pid."""

    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class _Stat:
    process: Process
    parent: int
    group: int
    session: int
    dead: bool


def start_ticks(pid: int) -> int:
    """When this process was started, in clock ticks since boot; 0 if that cannot be told."""
    stat = _stat(pid)
    return stat.process.started if stat else 0


def members(leader: int, token: str, since: int = 0) -> set[Process]:
    """The live family of `leader`, itself included. Older ones than `since` (see `started`) are not looked at."""
    stats = {stat.process.pid: stat for stat in _all_stats() if not stat.dead and stat.process.started >= since}
    found = {pid for pid, stat in stats.items() if leader in (pid, stat.group, stat.session) or (token and _carries(pid, token))}
    while more := {pid for pid, stat in stats.items() if stat.parent in found} - found:
        found |= more
    return {stats[pid].process for pid in found - {os.getpid()}}


def end(processes: Iterable[Process], wait_s: float, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal each that is still the same, and wait until they are gone, at most `wait_s`."""
    deadline = time.monotonic() + wait_s
    poll, left = select.poll(), set[int]()
    for process in processes:
        descriptor = _signal(process, number)
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
            left.add(descriptor)
    while left and (rest_s := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(rest_s * 1000):
            poll.unregister(descriptor)
            left.discard(descriptor)
            os.close(descriptor)
    for descriptor in left:
        os.close(descriptor)


def sweep(leader: int, token: str, since: int, also: Iterable[Process], wait_s: float) -> set[Process]:
    """End the family of a dead leader and `also` (what was known of it before); what is left, which should be nothing."""
    left = members(leader, token, since) | set(also)
    for _ in range(ROUNDS):
        if not left:
            break
        end(left, wait_s)
        left = members(leader, token, since)
    return left


def with_owner(environ: Mapping[str, str], owner: str) -> dict[str, str]:
    """The environment with `owner` (a name without commas) among its tokens: what inherits it can be found by `end_owned`."""
    outer = environ.get(MARK)
    return {**environ, MARK: f"{outer},{owner}" if outer else owner}


def end_owned(owner: str, wait_s: float = OWNED_WAIT_S) -> int:
    """End all processes that carry this owner's name, left by a server that was killed; how many there were."""
    found = members(NOBODY, owner)
    if found:
        sweep(NOBODY, owner, 0, found, wait_s)
    return len(found)


def _signal(process: Process, number: signal.Signals) -> int | None:
    """A signal through a pidfd, so that no other process can be meant; the pidfd, None if there is nothing to wait for."""
    if sys.platform != "linux":
        return None
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    except OSError:  # a kernel or a sandbox without pidfds
        with suppress(OSError):
            os.kill(process.pid, number)
        return None
    stat = _stat(process.pid)
    if stat is None or stat.process != process or stat.dead:
        os.close(descriptor)
        return None
    try:
        signal.pidfd_send_signal(descriptor, number)
    except OSError:  # gone, or not ours to end
        os.close(descriptor)
        return None
    return descriptor


def _all_stats() -> list[_Stat]:
    if sys.platform != "linux":
        return []
    return [stat for entry in _PROC.iterdir() if entry.name.isdigit() and (stat := _stat(int(entry.name)))]


def _stat(pid: int) -> _Stat | None:
    """Fields of /proc/PID/stat (proc(5)); the name in parentheses may hold anything, so they are counted from its end."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return _Stat(
        process=Process(pid, int(fields[19])),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        dead=fields[0].decode() in DEAD,
    )


def _carries(pid: int, token: str) -> bool:
    try:
        variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:  # gone, or another user's
        return False
    name = MARK.encode() + b"="
    return any(token.encode() in variable[len(name) :].split(b",") for variable in variables if variable.startswith(name))
