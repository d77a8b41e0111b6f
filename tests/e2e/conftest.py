"""Fixtures of the end-to-end tests: one server for all tests of a module and agent that do not end it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from .support import webui
from .support.bench import Bench, bench
from .support.browser import Browser
from .support.groups import ByServer
from .support.places import CURRENT, Place
from .support.servers import Native
from .support.tmux import Terminal
from .support.tui import new_session, tui
from .support.wire import Stream

FAILED = pytest.StashKey[bool]()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByServer | None:
    return ByServer(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """What a failed test leaves (a question nobody has answered, a full input box) would fail the next ones: they get a new
    server and a new terminal."""
    if item.stash.get(FAILED, False):
        item.session._setupstate.teardown_exact(None)  # pytest has no public way
    yield


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "server(*agents, **options): runs the tests of the file with each agent")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs the tests of a file with each agent of its `server` marker."""
    marker = metafunc.definition.get_closest_marker("server")
    if marker is not None and "server" in metafunc.fixturenames:
        metafunc.parametrize("server", marker.args, indirect=True, scope="module")


@pytest.fixture
def place() -> Iterator[Place]:
    """A fresh home and project for one test."""
    place = Place.make()
    yield place
    place.remove()


@pytest.fixture(scope="session")
def web_files() -> Iterator[str]:
    """The URL of an `opencode serve` with the files of the web UI, so that not each server starts one of its own."""
    place = Place.make()
    native = Native(place)
    yield native.url
    native.close()
    place.remove()


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A server with the agent and the options of the file's `server` marker.

    A test that wants other agents than its file parametrizes it: `@pytest.mark.parametrize("server", [MOCK], indirect=True)`.
    """
    marker = request.node.get_closest_marker("server")
    options = dict(marker.kwargs) if marker is not None else {}
    if options.get("command") == "web" or "SHIM_WEB_UI" in options:
        options["SHIM_WEB_UI"] = request.getfixturevalue("web_files")
    with bench(request.param, **options) as opened:
        yield opened


@pytest.fixture(scope="module")
def version() -> str:
    """The version of the TUI, for a file that does not choose one."""
    return CURRENT


@pytest.fixture(scope="module")
def terminal(server: Bench, version: str) -> Iterator[Terminal]:
    """The TUI on the server."""
    window = tui(server.place, server.url, version=version)
    yield window
    window.close()


@pytest.fixture(scope="module")
def browser(server: Bench) -> Iterator[Browser]:
    """A browser with a profile of its own."""
    window = Browser(server.place)
    yield window
    window.close()


@pytest.fixture(scope="module")
def web_ui(server: Bench, browser: Browser) -> Browser:
    """The browser, whose web UI has the project in its list."""
    webui.know_project(browser, server.place)
    return browser


@pytest.fixture
def stream(server: Bench) -> Iterator[Stream]:
    """A recorder of the server's events of the project."""
    recorder = Stream(server.api)
    yield recorder
    recorder.close()


@pytest.fixture
def fresh(server: Bench, terminal: Terminal) -> Terminal:
    """The TUI at its first screen, on the project as it was at the start."""
    server.place.reset()
    new_session(terminal)
    return terminal
