"""The TUIs of OpenCode 1.0.98, 1.2.27, 1.3.2, 1.14.41 and 1.15.13 on our server, with the mock: text that grows, an edit with its
diff, a permission that is asked and given. 1.1.53 and 1.18.33 are in `test_tui.py`."""

from __future__ import annotations

import re

import pytest

from .support.bench import MOCK, Bench, nightly
from .support.places import OLDER
from .support.slow_line import slow_line
from .support.tmux import Terminal
from .support.tui import tui
from .support.wire import tools

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(120),
    pytest.mark.parametrize("version", [OLDER[0], *nightly(*OLDER[1:])], scope="module"),
    pytest.mark.parametrize("server", [MOCK], indirect=True, scope="module"),
]
ASKS = {"1.0.98": r"Permission required to run this tool"}
"""How the dialog begins; since 1.1 it is another."""
BUSY = r"esc interrupt|esc again"
TURN_S = 40
SLOW_S = 0.12
"""Of an answer that is on its way while an agent begins: longer than the mock needs for its words and its call."""


def idle(terminal: Terminal) -> str:
    return terminal.wait(BUSY, TURN_S, gone=True)


def last(server: Bench) -> list[object]:
    newest = max(server.api.get("/session?roots=true"), key=lambda session: session["time"]["updated"])
    return server.api.messages(newest["id"])


def test_the_answer_grows(server: Bench, terminal: Terminal) -> None:
    """1.0 and 1.1 get another event for it than later ones."""
    terminal.submit("slow 6")
    assert "tick 6" not in terminal.wait(r"tick 1\b", TURN_S), "the text must be seen to grow"
    terminal.wait("tick 6", TURN_S)
    idle(terminal)
    screen = terminal.settle()
    assert len(re.findall(r"tick 5\b", screen)) == 1, "nothing is shown twice"


@pytest.mark.nightly
def test_an_edit_is_shown(server: Bench, terminal: Terminal) -> None:
    server.place.reset()
    terminal.submit("edit README.md")
    terminal.wait("I added a line to README.md", TURN_S)
    idle(terminal)
    added = (server.place.project / "README.md").read_text().splitlines()[1]
    terminal.wait((r"← Edit README\.md", rf"\+ ?{re.escape(added)}"))


def test_a_permission_is_asked_and_granted(server: Bench, version: str, terminal: Terminal) -> None:
    """By 1.0's own event and answer, and by today's."""
    terminal.submit("permission")
    terminal.wait((ASKS.get(version, r"△ Permission required"), "git push origin main"), TURN_S)
    terminal.key("Enter", pause_s=0.5)
    terminal.wait(r"Pushed\.", TURN_S)
    idle(terminal)
    assert tools(last(server))[-1]["state"]["status"] == "completed"


def test_a_question(server: Bench, version: str, terminal: Terminal) -> None:
    """1.0 has none: it is told what waits, and can stop."""
    terminal.submit("question 1")
    if version == "1.0.98":
        terminal.wait((r"1\.1 or later", "Which colour"), TURN_S)
        terminal.key("Escape", pause_s=0.3)
        terminal.key("Escape", pause_s=0.3)
    else:
        terminal.wait(r"(?s)1\. Red.*2\. ", TURN_S)
        terminal.key("Enter", pause_s=0.5)
    idle(terminal)
    status = tools(last(server))[-1]["state"]["status"]
    assert status == ("error" if version == "1.0.98" else "completed")


@pytest.mark.nightly
def test_a_late_first_read_does_not_hide_a_request(server: Bench, version: str) -> None:
    """The first prompt of a session, and the TUI's first read of it is over only when the permission was asked: it lays what it
    has read over what it was told, and there was no command in the dialog."""
    with slow_line(server.url, b"/message", SLOW_S) as line:
        terminal = tui(server.place, line.url, version=version)
        try:
            terminal.submit("permission")
            terminal.wait(ASKS.get(version, r"△ Permission required"), TURN_S)
            terminal.wait(r"(?s)I want to push\..*git push origin main", 5)
            assert bool(line.delayed) == (version != "1.0.98"), "1.0 reads nothing of a session that it has made"
            terminal.key("Enter", pause_s=0.5)
            terminal.wait(r"Pushed\.", TURN_S)
            idle(terminal)
        finally:
            terminal.close()
