"""Settings for all tests: how many examples hypothesis tries, and which tests are slow."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path

import pytest
import structlog
from aiohttp import web_app
from hypothesis import HealthCheck, settings

from shim.agents import plugins
from shim.cli import server
from tests.support.compiled_tests import compile_share
from tests.support.second_try import SecondTry
from tests.support.worker_memory import WorkerMemory

LAW_EXAMPLES = int(os.environ.get("SHIM_LAW_EXAMPLES", "200"))
"""Examples for each law of turns; the night sets 1000 for `make test-slow`, `make laws` 20000."""

ORDINARY_EXAMPLES = 500
"""At most so many are tried in a run for one change. More are a search for what nobody has thought of."""

FUZZ_EXAMPLES = int(os.environ.get("SHIM_FUZZ_EXAMPLES", "0"))
"""Examples for all that says no number of its own, as what is fuzzed; 0: some for each run of tests. `make fuzz` sets many."""

settings.register_profile(
    "shim",
    max_examples=FUZZ_EXAMPLES or min(max(LAW_EXAMPLES // 20, 50), 300),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shim")

for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    # Who starts tests in the background or under nohup has them ignore these, and all that they start: Ctrl-C would do nothing.
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    if LAW_EXAMPLES <= ORDINARY_EXAMPLES and not FUZZ_EXAMPLES:
        config.pluginmanager.register(WorkerMemory())
    config.pluginmanager.register(SecondTry())
    gc.disable()  # thousands of tests are collected and stay
    # Tracebacks of Rich, structlog's own choice, show all variables of each frame, and take a second each.
    structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback
    plugins.entry_points = _list_entries
    if worker := getattr(config, "workerinput", None):
        compile_share(config, sorted(HERE.rglob("test_*.py")), int(worker["workerid"][2:]), worker["workercount"])


@lru_cache(maxsize=32)
def _entries_on(path: tuple[str, ...], group: str) -> EntryPoints:
    return entry_points(group=group)


def _list_entries(*, group: str) -> EntryPoints:
    """Looks at the installed packages once for each path of imports: there are a thousand starts of a server."""
    return _entries_on(tuple(sys.path), group)


def pytest_xdist_auto_num_workers() -> int:
    """Workers of `-n auto`: half as many again as cores, since a third of a test's time is waiting for processes and files."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(2, cores * 3 // 2)


def pytest_collection_finish() -> None:
    """The collector leaves out from now on what lives until the end: this is a fifth of the CPU time of all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5000, 20, 20)  # it took a tenth of the tests' CPU time, and half of that now; a worker has 300 MiB at most
    gc.enable()


@pytest.fixture(autouse=True)
def globals_are_restored() -> Iterator[None]:
    """What is global is after a test as before it: logging, and aiohttp's cache of handlers, which keeps the last 1,024
    applications alive, each with its server, store and event loop."""
    yield
    web_app._cached_build_middleware.cache_clear()
    if structlog.is_configured():
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()


@pytest.fixture(scope="session", autouse=True)
def children_are_watched_without_threads() -> None:
    """As in the server. Python 3.11 starts a thread for each child process otherwise."""
    server._watch_children_without_threads()


HERE = Path(__file__).parent
SLOW = (
    *("faults", "fuzz", "properties/test_mutants.py", "http/test_v1_reconnect.py", "conformance/test_native_requests.py"),
    *("process/test_opencode2_agent.py", "process/test_opencode_program.py", "process/test_old_data.py"),
    "http/test_git_vectors.py",
)
"""Longer than a person waits between two edits; `make test-slow`."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What the marks leave out as a whole is not imported: a sixth of the time until the first test."""
    left_out = [HERE / "e2e"] if "not e2e" in config.option.markexpr else []
    left_out += [HERE / name for name in SLOW] if "not slow" in config.option.markexpr else []
    return True if any(collection_path.is_relative_to(place) for place in left_out) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is in `SLOW`, before the marks are looked at."""
    places = tuple(str(HERE / name) for name in SLOW)
    for item in items:
        if str(item.path).startswith(places):
            item.add_marker(pytest.mark.slow)
