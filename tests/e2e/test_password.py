"""The real clients where a password is set: with it they work, without it they say why not."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from shim.dev.record.homes import OPENCODE_ENV

from .support.places import Place, program
from .support.servers import Shim
from .support.tmux import Terminal
from .support.tui import READY, START_S

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]
PASSWORD = "pä:ss wörd"
CLIENT = "opencode"


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    made = Place.make()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def shim(place: Place) -> Iterator[Shim]:
    server = Shim(place, OPENCODE_SERVER_PASSWORD=PASSWORD)
    yield server
    server.close()


def run(shim: Shim, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [program(CLIENT), "run", "--attach", shim.url, "--model", "mock/mock", *flags, "echo You said: hello"]
    env = shim.place.env(OPENCODE_DISABLE_AUTOUPDATE="1", **env)
    return subprocess.run(
        argv, cwd=shim.place.project, env=env, capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL
    )


def test_run(shim: Shim) -> None:
    assert "You said: hello" in run(shim, OPENCODE_SERVER_PASSWORD=PASSWORD).stdout
    assert "You said: hello" not in run(shim, "--password", "wrong").stdout


@pytest.mark.nightly
def test_run_with_and_without_its_flag(shim: Shim) -> None:
    assert "You said: hello" in run(shim, "--password", PASSWORD).stdout
    assert "You said: hello" not in run(shim).stdout


def terminal(shim: Shim, **env: str) -> Terminal:
    home = shim.place.root / "tui"
    home.mkdir(exist_ok=True)
    argv = [program(CLIENT), "attach", shim.url, "--dir", str(shim.place.project)]
    env = {**shim.place.env(**OPENCODE_ENV, TERM="xterm-256color", **env), "HOME": str(home)}
    return Terminal(argv, shim.place.project, env, columns=120, rows=40)


def test_tui(shim: Shim) -> None:
    window = terminal(shim, OPENCODE_SERVER_PASSWORD=PASSWORD)
    window.wait(re.compile(READY, re.MULTILINE), START_S)
    window.type("echo You said: hello")
    window.key("Enter")
    window.wait("You said: hello", 30)
    window.close()


def test_tui_without_it_shows_our_sentence(shim: Shim) -> None:
    window = terminal(shim)
    assert "This server wants a password" in window.wait("wants a password", START_S)
    window.close()
