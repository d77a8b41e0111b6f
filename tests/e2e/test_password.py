"""The real clients where a password is set: with it they work, without it they say why not. Named people have tokens."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest

from shim.dev.record.homes import OPENCODE_ENV

from .support.places import REPO, Place, program
from .support.servers import Shim
from .support.tmux import Terminal
from .support.tui import READY, START_S, command

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


def terminal(shim: Shim, home_name: str = "tui", **env: str) -> Terminal:
    home = shim.place.root / home_name
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


def token_of(shim: Shim, name: str, role: str) -> str:
    argv = [str(REPO / ".venv" / "bin" / "opencode-shim"), "people", "add", name, "--role", role, "--url", shim.url]
    argv += ["--roots", str(shim.place.project)]
    env = shim.place.env(OPENCODE_SERVER_PASSWORD=PASSWORD)
    done = subprocess.run(argv, cwd=shim.place.project, env=env, capture_output=True, text=True, timeout=START_S, check=True)
    return done.stdout.split()[0]


def test_a_viewer_sees_the_turn_of_another_person_and_answers_nothing(shim: Shim) -> None:
    """Two TUIs of two people with the same directory."""
    worker = terminal(shim, "wim", OPENCODE_SERVER_PASSWORD=token_of(shim, "wim", "work"))
    viewer = terminal(shim, "vera", OPENCODE_SERVER_PASSWORD=token_of(shim, "vera", "view"))
    for window in (worker, viewer):
        window.wait(re.compile(READY, re.MULTILINE), START_S)
    worker.type("permission")
    worker.key("Enter")
    worker.wait("Permission required", 30)
    command(viewer, "sessions")
    viewer.wait("permission", 30)
    viewer.key("Enter")
    viewer.wait("Permission required", 30)
    viewer.key("Enter")  # "Allow once", which is refused
    viewer.wait("Permission required", 30)
    worker.key("Enter")
    worker.wait("Pushed.", 30)
    viewer.wait("Pushed.", 30)
    viewer.type("echo mine")
    viewer.key("Enter")
    assert "vera has the role view" in viewer.wait("has the role view", 30)
    audit = [json.loads(line) for line in (shim.place.home / "data" / "audit.jsonl").read_text().splitlines()]
    assert [row["status"] for row in audit if row["person"] == "vera"] == [403, 403]
    worker.close()
    viewer.close()
