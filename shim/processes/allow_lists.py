"""Builds the command that starts an agent where no mounts can be made: Landlock of Linux, `sandbox-exec` of macOS.

    landlock_command   places -> the arguments before the agent's own (`landlock_start.py`)
    seatbelt_command   the same, with a profile for macOS

Both take the places of `shim.processes.sandbox`. A file that is refused stays in sight: its name, its size, its times.
Landlock only grants, with all that lies below. So a place that must be stricter than what holds it takes the right from
each folder on the way: their children are named one by one, and nothing new can be made in these folders themselves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shim.lib.errors import AgentStartFailed
from shim.processes import landlock_start
from universal.lib.paths import is_in
from universal.sandbox import Verdict

GRANTS = 4_000
"""Places that are named one by one, at most. Each is an argument of a command."""
RANKS: Mapping[Verdict, int] = {"hidden": 0, "fixed": 1, "writable": 2}
DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"))
SEATBELT = "/usr/bin/sandbox-exec"
SEATBELT_SYSTEM = ("/System", "/Library", "/private/etc", "/private/var/db/timezone", "/private/var/select", "/dev")
"""What programs of macOS read, beside the folders of every system."""
SEATBELT_BASE = """(version 1)
(deny default)
(allow process-exec)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow ipc-posix-sem)
(allow pseudo-tty)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.bsd.dirhelper")
  (global-name "com.apple.SecurityServer")
  (global-name "com.apple.trustd.agent")
  (global-name "com.apple.SystemConfiguration.configd"))
(allow file-read* file-write* file-ioctl
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (literal "/dev/ptmx") (regex #"^/dev/ttys[0-9]+$"))
"""
"""What each program needs that starts at all. After Codex's `seatbelt_base_policy.sbpl`. A later rule beats an earlier one."""


def landlock_command(
    places: Mapping[str, Verdict], temporary: str, ports: Sequence[int] | None, argv: Sequence[str]
) -> list[str]:
    """Return the command that runs `argv` with these places. In: the TCP ports it reaches, or None for all networks. Blocking.

    Raises AgentStartFailed if a place that is denied has too many others beside it.
    """
    python = os.path.realpath(sys.executable)
    words = [f"{word}={path}" for word, path in grants(places)]
    words += [f"device={path}" for path in DEVICES]
    words += [f"temporary={temporary}", "fixed=/proc"]
    words += ["network=own", *(f"port={port}" for port in ports)] if ports is not None else []
    return [python, "-I", "-S", str(Path(landlock_start.__file__)), *words, "--", *argv]


def grants(places: Mapping[str, Verdict]) -> list[tuple[str, str]]:
    """Return what to grant, as words of `landlock_start`, so that each place gets what it may and no more. Blocking."""
    found: list[tuple[str, str]] = []
    for path, verdict in places.items():
        if verdict == "hidden":
            continue
        stricter = [inner for inner, of in places.items() if RANKS[of] < RANKS[verdict] and is_in(inner, (path,))]
        on_the_way = {str(above) for inner in stricter for above in Path(inner).parents if is_in(str(above), (path,))}
        for grant in _expand(path, verdict, places, on_the_way):
            found.append(grant)
            if len(found) > GRANTS:
                raise AgentStartFailed(
                    "The agent was not started: bubblewrap does not work here, and for Landlock all that lies beside a denied "
                    f"place must be named. There is too much of it in {path} (more than {GRANTS}). Move what is denied into a "
                    "folder of its own, or install bubblewrap."
                )
    return found


def _expand(path: str, verdict: Verdict, places: Mapping[str, Verdict], on_the_way: set[str]) -> Iterator[tuple[str, str]]:
    """The grants of a place: itself, or what lies in it one by one.

    Links are left out: what they lead to has its own grant.
    """
    if path not in on_the_way:
        yield verdict, path
        return
    yield "listed", path
    with os.scandir(path) as entries:
        inner = [entry.path for entry in entries if not entry.is_symlink() and entry.path not in places]
    for child in inner:
        yield from _expand(child, verdict, places, on_the_way)


def seatbelt_command(
    places: Mapping[str, Verdict], temporary: str, ports: Sequence[int] | None, argv: Sequence[str]
) -> list[str]:
    """The same for macOS. `TMPDIR` is set by `env`, since nothing of ours runs inside."""
    return [SEATBELT, "-p", seatbelt_profile(places, temporary, ports), "/usr/bin/env", f"TMPDIR={temporary}", *argv]


def seatbelt_profile(places: Mapping[str, Verdict], temporary: str, ports: Sequence[int] | None) -> str:
    """Return the profile: the deepest place comes last, and counts."""
    every: dict[str, Verdict] = {**dict.fromkeys(SEATBELT_SYSTEM, "fixed"), **places, temporary: "writable"}
    rules = [
        line for path in sorted(every, key=lambda path: len(Path(path).parts)) for line in _seatbelt_rules(path, every[path])
    ]
    network = (
        ["(allow network*)"] if ports is None else [f'(allow network-outbound (remote ip "localhost:{port}"))' for port in ports]
    )
    return SEATBELT_BASE + "\n".join([*rules, *network]) + "\n"


def _seatbelt_rules(path: str, verdict: Verdict) -> list[str]:
    quoted = path.replace("\\", "\\\\").replace('"', '\\"')
    read, write = (f'file-{kind}* (subpath "{quoted}"))' for kind in ("read", "write"))
    may_read, may_write = (RANKS[verdict] >= rank for rank in (1, 2))
    return [f"({'allow' if may_read else 'deny'} {read}", f"({'allow' if may_write else 'deny'} {write}"]
