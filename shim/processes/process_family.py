"""Finds and ends all processes that an agent started.

A process group is not enough: the shells of Claude Code's tools have their own process sessions and survive a SIGKILL of the
CLI (seen with 2.1.330). After the death of their parent the process tree does not lead to them any more. So a process belongs
to the family if one of these holds:

    its session or its process group is the agent's
    it carries the agent's token in `child_environment.MARK`, which is inherited through setsid and reparenting
    its parent belongs to the family

It reads /proc, so it works on Linux only. Elsewhere the family is empty, and only the process group can be ended. Blocks: a
scan takes about 50 us per process of the machine, and 100 us for a process younger than the agent.
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

from shim.processes.child_environment import MARK

ROUNDS = 5
"""Maximum number of scans of one sweep. A process may fork while it is being ended, so one scan is not enough."""
OWNED_WAIT_S = 2.0
"""Seconds, at the next start, for the processes of a killed server to be gone."""
NO_LEADER = -1
"""Passed instead of a leader's pid when only the token counts."""
DEAD = frozenset({"Z", "X"})

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A live process. `started`, in clock ticks since boot, tells it from a later process with the same pid."""

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
    """Return the start time of a process in clock ticks since boot, or 0 if it is unknown."""
    stat = _stat(pid)
    return stat.process.started if stat else 0


def members(leader: int, token: str, since: int = 0) -> set[Process]:
    """Return the live family of `leader`, with the leader. Processes started before `since` are skipped."""
    stats = {stat.process.pid: stat for stat in _all_stats() if not stat.dead and stat.process.started >= since}
    pids = {pid for pid, stat in stats.items() if leader in (pid, stat.group, stat.session) or (token and _carries(pid, token))}
    while children := {pid for pid, stat in stats.items() if stat.parent in pids} - pids:
        pids |= children
    return {stats[pid].process for pid in pids - {os.getpid()}}


def end(processes: Iterable[Process], wait_s: float, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal the processes that still exist, and wait until they are gone, at most `wait_s` seconds."""
    deadline = time.monotonic() + wait_s
    poll, alive = select.poll(), set[int]()
    for process in processes:
        descriptor = _signal(process, number)
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
            alive.add(descriptor)
    while alive and (rest_s := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(rest_s * 1000):
            poll.unregister(descriptor)
            alive.discard(descriptor)
            os.close(descriptor)
    for descriptor in alive:
        os.close(descriptor)


def sweep(leader: int, token: str, since: int, also: Iterable[Process], wait_s: float) -> set[Process]:
    """End the family of a dead leader and the processes `also`. Returns those that are left, normally none."""
    survivors = members(leader, token, since) | set(also)
    for _ in range(ROUNDS):
        if not survivors:
            break
        end(survivors, wait_s)
        survivors = members(leader, token, since)
    return survivors


def with_owner(environ: Mapping[str, str], owner: str) -> dict[str, str]:
    """Return the environment with `owner`, a name without commas, as a token, so that `end_owned` finds its processes."""
    outer = environ.get(MARK)
    return {**environ, MARK: f"{outer},{owner}" if outer else owner}


def without_owner(environ: Mapping[str, str], owner: str) -> dict[str, str]:
    """The environment without an owner's token: its processes outlive the owner."""
    tokens = [token for token in environ.get(MARK, "").split(",") if token not in ("", owner)]
    return {**{name: value for name, value in environ.items() if name != MARK}, **({MARK: ",".join(tokens)} if tokens else {})}


def end_owned(owner: str) -> int:
    """End all processes with this owner's token, which a killed server left behind. Returns their number."""
    processes = members(NO_LEADER, owner)
    if processes:
        sweep(NO_LEADER, owner, 0, processes, OWNED_WAIT_S)
    return len(processes)


def _signal(process: Process, number: signal.Signals) -> int | None:
    """Signal a process through a pidfd, so that no other process can get the signal.

    Returns the pidfd to wait on, or None if there is nothing to wait for.
    """
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
    except OSError:  # it is gone, or we may not signal it
        os.close(descriptor)
        return None
    return descriptor


def _all_stats() -> list[_Stat]:
    if sys.platform != "linux":
        return []
    return [stat for entry in _PROC.iterdir() if entry.name.isdigit() and (stat := _stat(int(entry.name)))]


def _stat(pid: int) -> _Stat | None:
    """Read /proc/PID/stat (proc(5)). The name in parentheses may hold anything, so fields are counted from its end."""
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
    except OSError:  # it is gone, or belongs to another user
        return False
    name = MARK.encode() + b"="
    return any(token.encode() in variable[len(name) :].split(b",") for variable in variables if variable.startswith(name))
