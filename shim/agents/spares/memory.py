"""Reads how much memory of the machine, or of the container, is free."""

from __future__ import annotations

from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def free_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int | None:
    """Return the memory that programs can still take; None if the system does not tell (no Linux). Blocking, but no disk."""
    try:
        rows = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        free = int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError, IndexError):
        return None
    in_container = _left_in_container(cgroup)
    return free if in_container is None else min(free, in_container)


def _left_in_container(cgroup: Path) -> int | None:
    """Return what the limit of the control group leaves, counting files in its cache as free; None without a limit."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        rows = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(rows.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None
