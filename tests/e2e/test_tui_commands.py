"""What a person types into the TUI 1.18.33 beside prompts: slash commands, `@file`, `!command`. With the mock.
`/undo` and `/redo` are in `test_undo.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .support.bench import MOCK, Bench
from .support.scenes import finished
from .support.tmux import Terminal
from .support.tui import new_session, tui
from .support.wire import tools

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(120),
    pytest.mark.parametrize("served", [MOCK], indirect=True, scope="module"),
]


@pytest.fixture(scope="module")
def terminal(served: Bench) -> Iterator[Terminal]:
    made = tui(served.place, served.url)
    yield made
    made.close()


@pytest.fixture
def edited(served: Bench, terminal: Terminal) -> Terminal:
    """The TUI in a session with one edit."""
    served.place.reset()
    new_session(terminal)
    terminal.submit("edit README.md")
    terminal.wait("I added a line to README.md", 40)
    finished(terminal)
    return terminal


def choose(terminal: Terminal, command: str) -> None:
    """A slash command from the list that opens while it is typed."""
    terminal.type(f"/{command}")
    terminal.wait(rf"/{command} +[A-Z]", 10)
    terminal.key("Enter", pause_s=0.5)


def newest(served: Bench) -> dict[str, object]:
    return max(served.api.get("/session?roots=true"), key=lambda session: session["time"]["created"])


def test_compact(served: Bench, edited: Terminal) -> None:
    choose(edited, "compact")
    edited.wait(r"(?s)Compaction.*Summary", 20)
    finished(edited)


def test_fork_shows_the_whole_conversation(served: Bench, edited: Terminal) -> None:
    choose(edited, "fork")
    edited.wait("Full session", 10)
    edited.key("Enter", pause_s=0.5)
    edited.wait(lambda _: str(newest(served)["title"]).endswith("(fork #1)"), 10)
    screen = edited.wait("← Edit README.md", 10)
    assert "→ Read README.md" in screen, "the tools of a fork have their input"
    assert [call["state"]["status"] for call in tools(served.api.messages(str(newest(served)["id"])))] == ["completed"] * 2


def test_rename(served: Bench, edited: Terminal) -> None:
    choose(edited, "rename")
    edited.wait("Rename Session", 10)
    edited.key("C-u")
    edited.type("Named by hand")
    edited.key("Enter", pause_s=0.5)
    edited.wait(lambda _: newest(served)["title"] == "Named by hand", 10)


def test_share_is_a_page_of_this_server(served: Bench, edited: Terminal) -> None:
    choose(edited, "share")
    edited.wait("Are you sure", 10)
    edited.key("Enter", pause_s=0.3)
    edited.wait(lambda _: "share" in newest(served), 10)
    assert str(newest(served)["share"]).count(f"{served.url}/share/") == 1


def test_a_file_is_completed_and_attached(served: Bench, terminal: Terminal) -> None:
    new_session(terminal)
    terminal.type("look at @not")
    terminal.wait(r"┃ +notes\.txt +┃", 10)
    terminal.key("Enter", pause_s=0.5)
    terminal.wait(r"look at @notes\.txt", 10)
    terminal.key("Enter", pause_s=0.5)
    terminal.wait(r"notes\.txt \(text/plain", 20)
    finished(terminal)


def test_a_shell_command_is_run_and_shown(served: Bench, terminal: Terminal) -> None:
    new_session(terminal)
    terminal.type("!")
    terminal.wait("exit shell mode", 10)
    terminal.submit("echo by-hand-$((40 + 2))")
    terminal.wait(r"(?s)\$ echo by-hand.*by-hand-42", 20)
