"""What `make load` and `make soak` share: a server of its own, and what the machine says of it and of itself."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.contenders import Contender, shim
from tests.bench.report import MIB
from tests.e2e.support.places import Place

MOCK = {"providerID": "mock", "modelID": "mock"}
CLAUDE = {"providerID": "claude", "modelID": "default"}
"""The program of `agent.py`."""


@contextmanager
def server() -> Iterator[Contender]:
    """One on a place of its own; both are gone afterwards."""
    place = Place.make()
    try:
        at = shim(place)
        try:
            yield at
        finally:
            at.close()
    finally:
        place.remove()


def memory(pid: int) -> tuple[int, int]:
    """(resident, the most that it ever was) of a process, in bytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", text, re.M))
    return int(found["VmRSS"]) * 1024, int(found["VmHWM"]) * 1024


def load_of_machine() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]


def describe() -> str:
    """The machine in one line."""
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = cpu[1] if cpu else platform.machine()
    return f"{os.cpu_count()} processors ({name}), {size:.0f} GiB, Linux {os.uname().release}, Python {platform.python_version()}"


def mib(value: float) -> str:
    """Bytes, for a table."""
    return f"{value / MIB:.0f} MiB"
