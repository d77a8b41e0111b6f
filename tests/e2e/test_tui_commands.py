"""What a person types into the TUI 1.18.33 beside prompts: slash commands, `@file`, `!command`. With the mock.
`/undo` and `/redo` are in `test_undo.py`."""

from __future__ import annotations

import pytest

from .support.bench import MOCK, Bench
from .support.scenes import wait_for_turns
from .support.tmux import Terminal
from .support.tui import command, new_session
from .support.wire import tools

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(120),
    pytest.mark.parametrize("server", [MOCK], indirect=True, scope="module"),
]


@pytest.fixture
def terminal_with_edit(server: Bench, terminal: Terminal) -> Terminal:
    """The TUI in a session with one edit."""
    server.place.reset()
    new_session(terminal)
    terminal.submit("edit README.md")
    terminal.wait("I added a line to README.md", 40)
    wait_for_turns(terminal)
    return terminal


def newest(server: Bench) -> dict[str, object]:
    return max(server.api.get("/session?roots=true"), key=lambda session: session["time"]["created"])


def test_compact(server: Bench, terminal_with_edit: Terminal) -> None:
    command(terminal_with_edit, "compact")
    terminal_with_edit.wait(r"(?s)Compaction.*Summary", 20)
    wait_for_turns(terminal_with_edit)


def test_fork_shows_the_whole_conversation(server: Bench, terminal_with_edit: Terminal) -> None:
    command(terminal_with_edit, "fork")
    terminal_with_edit.wait("Full session", 10)
    terminal_with_edit.key("Enter", pause_s=0.5)
    terminal_with_edit.wait(lambda _: str(newest(server)["title"]).endswith("(fork #1)"), 10)
    terminal_with_edit.wait((r"← Edit README\.md", r"→ Read README\.md"), 10)  # the tools of a fork have their input
    assert [call["state"]["status"] for call in tools(server.api.messages(str(newest(server)["id"])))] == ["completed"] * 2


def test_rename(server: Bench, terminal_with_edit: Terminal) -> None:
    command(terminal_with_edit, "rename")
    terminal_with_edit.wait("Rename Session", 10)
    terminal_with_edit.key("C-u")
    terminal_with_edit.type("Named by hand")
    terminal_with_edit.key("Enter", pause_s=0.5)
    terminal_with_edit.wait(lambda _: newest(server)["title"] == "Named by hand", 10)


def test_share_is_a_page_of_this_server(server: Bench, terminal_with_edit: Terminal) -> None:
    command(terminal_with_edit, "share")
    terminal_with_edit.wait("Are you sure", 10)
    terminal_with_edit.key("Enter", pause_s=0.3)
    terminal_with_edit.wait(lambda _: "share" in newest(server), 10)
    assert str(newest(server)["share"]).count(f"{server.url}/share/") == 1


def test_a_file_is_completed_and_attached(server: Bench, terminal: Terminal) -> None:
    new_session(terminal)
    terminal.type("look at @not")
    terminal.wait(r"┃ +notes\.txt +┃", 10)
    terminal.key("Enter", pause_s=0.5)
    terminal.wait(r"look at @notes\.txt", 10)
    terminal.key("Enter", pause_s=0.5)
    terminal.wait(r"notes\.txt \(text/plain", 20)
    wait_for_turns(terminal)


def test_a_shell_command_is_run_and_shown(server: Bench, terminal: Terminal) -> None:
    new_session(terminal)
    terminal.type("!")
    terminal.wait("exit shell mode", 10)
    terminal.submit("echo by-hand-$((40 + 2))")
    terminal.wait(r"(?s)\$ echo by-hand.*by-hand-42", 20)
