"""`lildax` 1.18.18, the "2.0 preview" that OpenCode gave out in August: its TUI on our server, as far as it goes.

It finds its server by a file of its own home, and speaks both wires at once: its own server answers half of its calls with 404,
so that it never showed a session there. Here it lists sessions, opens them and shows their turns as they go on. It draws no box
to type into on any server (tried on native 1.18.33 too), so its turns are prompted by others.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shim.dev.record.homes import OPENCODE_ENV

from .support.bench import MOCK, Bench
from .support.children import wait_for
from .support.places import ARCH, MODULES
from .support.tmux import Terminal

PROGRAM = MODULES / "@opencode-ai" / f"cli-linux-{ARCH}" / "bin" / "lildax"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(150),
    pytest.mark.server(MOCK),
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"there is no lildax for {ARCH}"),
]
VERSION = "1.18.18"
START_S = 60
LIST_S = 5


@pytest.fixture
def keeper() -> Iterator[int]:
    """A process whose number stands in the file: the program ends the server of a file that it does not like."""
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def terminal(server: Bench, keeper: int) -> Iterator[Terminal]:
    home = server.place.root / "lildax"
    state = Path(home, ".local", "state", "opencode")
    state.mkdir(parents=True, exist_ok=True)
    (state / "server.json").write_text(json.dumps({"id": "x", "version": VERSION, "url": server.url, "pid": keeper}))
    (state / "password").write_text("none is asked for")
    env = server.place.env(**OPENCODE_ENV, TERM="xterm-256color", COLORTERM="truecolor")
    env = {key: value for key, value in env.items() if not key.startswith("XDG_")} | {"HOME": str(home)}
    made = Terminal([str(PROGRAM)], server.place.project, env)
    yield made
    made.close()


def open_session(terminal: Terminal, title: str) -> None:
    """The session of a title, chosen from the list. The first screen is drawn empty: keys that come too early are lost."""
    for _ in range(START_S // LIST_S):
        terminal.key("Escape")
        terminal.key("C-x", "l")
        try:
            terminal.wait(re.escape(title), LIST_S)
        except AssertionError:
            continue
        break
    terminal.key("Enter")
    terminal.wait("Sessions +esc", 10, gone=True)


def test_lildax_opens_a_session_shows_its_next_turn_live_and_answers_a_permission(server: Bench, terminal: Terminal) -> None:
    api = server.api
    session = api.session(title="seen from the preview")
    api.post(f"/session/{session}/message", {"parts": [{"type": "text", "text": "echo the first answer"}]})
    open_session(terminal, "seen from the preview")
    terminal.wait("the first answer", 20)
    api.prompt(session, "slow 4")
    assert "tick 4" not in terminal.wait(r"tick 1\b", 30), "the text must be seen to grow"
    terminal.wait("tick 4", 20)
    wait_for(lambda: session not in api.status(), 20, "the turn does not end")
    api.prompt(session, "permission")
    terminal.wait("Permission required", 30)
    terminal.key("Enter")
    terminal.wait(re.compile("Permission required"), 20, gone=True)
    assert api.get("/permission") == []
    assert os.path.exists(f"/proc/{terminal.pids()[-1]}"), "it is still there"
