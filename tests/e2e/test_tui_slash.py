"""Every slash command of the TUI 1.18.33, typed in a session: with the real Claude behind us it does what it does on native.

The same rows can be played on native (`E2E_NATIVE=1`), which shows that the expectations are right: they were, on 1.18.33.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from shim.agents._generated.client_commands import CLIENT_COMMANDS
from tools.client_commands import current_commands

from .support.bench import CLAUDE, bench, nightly
from .support.children import wait_for
from .support.places import Place
from .support.scenes import CONFIG, wait_for_turns
from .support.servers import Model, Native
from .support.tmux import Terminal
from .support.tui import new_session, tui
from .support.wire import Api, Json

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]
NATIVE = "native"
LIST_S = 10
ACT_S = 20

FIRST_PROMPT = "[scene:text] hello"
EDITED = "from the editor"

DIALOGS = {
    "sessions": r"Sessions +esc",
    "models": r"Select model +esc",
    "agents": r"Select agent +esc",
    "mcps": r"MCPs +esc",
    "variants": r"Select variant +esc",
    "connect": r"Connect a provider +esc",
    "status": r"Status +esc",
    "debug": r"(?s)Debug +esc.*Session ID +ses_",
    "themes": r"Themes +esc",
    "help": r"Help +esc",
    "skills": r"Skills +esc",
    "move": r"Move session +esc",
    "timeline": r"Timeline +esc",
    "rename": r"Rename Session +esc",
    "fork": r"Fork session +esc",
    "export": r"Export Options +esc",
    "share": r"Share Session +esc",
}
"""Command -> the dialog that it opens."""
ALIASES = {
    "resume": "sessions",
    "continue": "sessions",
    "mo": "models",
    "clear": "new",
    "quit": "exit",
    "q": "exit",
    "summarize": "compact",
    "toggle-thinking": "thinking",
    "toggle-timestamps": "timestamps",
}
"""Alias -> the command that the list shows for it."""
OPENING = (*DIALOGS, *(alias for alias, name in ALIASES.items() if name in DIALOGS))
OF_THE_SERVER = frozenset({"sessions", "models", "agents", "timeline"})
"""Dialogs that list what this server answers; `make e2e` opens these, `make e2e-all` the others."""
ACTING = frozenset(
    {"new", "exit", "editor", "diff", "compact", "copy", "thinking", "timestamps", "undo", "redo", "unshare", "init", "review"}
)
"""Commands that open no dialog; each has a test."""
NOT_LISTED = frozenset({"org", "orgs", "switch-org", "warp", "workspaces"})
"""Not offered by this TUI without a login at opencode.ai or a workspace: with native, typing them finds nothing of that name."""
WEB_UI = frozenset({"agent", "mcp", "model", "open", "terminal", "workspace"})
"""Names in the same program that only the web UI has."""


@dataclass(frozen=True)
class TuiSession:
    """A server and a TUI in a session on it."""

    name: str
    place: Place
    url: str
    terminal: Terminal

    @property
    def api(self) -> Api:
        return Api(self.url, self.place.project)

    @property
    def is_native(self) -> bool:
        return self.name == NATIVE

    def newest(self) -> Json:
        """The root session that was made last."""
        return max(self.api.get("/session?roots=true"), key=lambda session: session["time"]["created"])

    def prompts(self, session: str) -> list[Json]:
        """The user messages of a session."""
        return [message for message in self.api.messages(session) if message["info"]["role"] == "user"]

    def begin(self) -> None:
        """To a new session with one answered prompt."""
        new_session(self.terminal)
        self.terminal.submit(FIRST_PROMPT)
        wait_for_turns(self.terminal)


@pytest.fixture(scope="module", params=[CLAUDE, NATIVE] if os.environ.get("E2E_NATIVE") else [CLAUDE])
def tui_session(request: pytest.FixtureRequest) -> Iterator[TuiSession]:
    if request.param == CLAUDE:
        with bench(CLAUDE) as server:
            server.models()
            terminal = open_tui(server.place, server.url)
            server.later(terminal.close)
            yield TuiSession(CLAUDE, server.place, server.url, terminal)
        return
    place = Place.make()
    model = Model(place)
    native = Native(place, model, config=dict(CONFIG))
    terminal = open_tui(place, native.url)
    yield TuiSession(NATIVE, place, native.url, terminal)
    for end in (terminal.close, native.close, model.close, place.remove):
        end()


def open_tui(place: Place, url: str, session: str | None = None) -> Terminal:
    editor = place.root / "editor"
    editor.write_text(f'#!/bin/sh\nprintf "{EDITED}" >> "$1"\n')
    editor.chmod(0o755)
    return tui(place, url, session=session, editor=str(editor))


@pytest.fixture
def chat(tui_session: TuiSession) -> TuiSession:
    """In a session that has an answer: that of the test before, if it is on the screen, since each has a process of its own."""
    if "You said: hello" not in tui_session.terminal.screen():
        tui_session.begin()
    return tui_session


def first_offered(screen: str) -> str:
    """The command that stands first in the list of completions; Enter takes it."""
    offered = re.findall(r"┃ /(\S+) {2,}\S", screen)
    return offered[0] if offered else ""


def choose(terminal: Terminal, command: str, *, shown_as: str | None = None) -> None:
    """Type a command, see that the client's own stands first, press Enter."""
    terminal.type(f"/{command}")
    wanted = shown_as or ALIASES.get(command, command)
    terminal.wait(
        lambda screen: re.search(rf"┃ +/{command} *(┃|$)", screen, re.MULTILINE) and first_offered(screen) == wanted, LIST_S
    )
    terminal.key("Enter", pause_s=0.3)


def close_dialog(terminal: Terminal, dialog: str) -> None:
    terminal.key("Escape")
    terminal.wait(dialog, LIST_S, gone=True)


def test_every_command_of_the_program_is_tried() -> None:
    tried = DIALOGS.keys() | ALIASES.keys() | ACTING | NOT_LISTED | WEB_UI
    assert set(CLIENT_COMMANDS["opencode 1.18.33"]) == tried - {"init", "review"}


@pytest.mark.nightly
def test_the_names_of_all_installed_clients_are_current() -> None:
    assert current_commands() == {client: list(names) for client, names in CLIENT_COMMANDS.items()}, (
        "run `python -m tools.client_commands`"
    )


@pytest.mark.parametrize("command", [command if command in OF_THE_SERVER else nightly(command)[0] for command in OPENING])
def test_a_dialog_opens(chat: TuiSession, command: str) -> None:
    dialog = DIALOGS[ALIASES.get(command, command)]
    choose(chat.terminal, command)
    chat.terminal.wait(dialog, ACT_S)
    close_dialog(chat.terminal, dialog)


@pytest.mark.nightly
def test_diff(chat: TuiSession) -> None:
    choose(chat.terminal, "diff")
    chat.terminal.wait("Diff working tree", ACT_S)
    chat.terminal.key("Escape")
    chat.terminal.wait("You said: hello", ACT_S)


@pytest.mark.nightly
def test_copy(chat: TuiSession) -> None:
    choose(chat.terminal, "copy")
    chat.terminal.wait("Session transcript copied", ACT_S)
    chat.terminal.wait("Session transcript copied", ACT_S, gone=True)


@pytest.mark.parametrize("command", nightly("timestamps", "toggle-timestamps"))
def test_timestamps(chat: TuiSession, command: str) -> None:
    stamp = r"┃ +\d+:\d\d [AP]M"
    choose(chat.terminal, command)
    chat.terminal.wait(stamp, ACT_S)
    choose(chat.terminal, command)
    chat.terminal.wait(stamp, ACT_S, gone=True)


@pytest.mark.parametrize("command", nightly("thinking", "toggle-thinking"))
def test_thinking(chat: TuiSession, command: str) -> None:
    """The list says what the next use will do."""
    for before, after in (("Expand", "Collapse"), ("Collapse", "Expand")):
        chat.terminal.type(f"/{command}")
        chat.terminal.wait(rf"/thinking +{before} thinking", LIST_S)
        chat.terminal.key("Enter", pause_s=0.3)
        chat.terminal.type("/thinking")
        chat.terminal.wait(rf"/thinking +{after} thinking", LIST_S)
        chat.terminal.key("Escape", "C-u", pause_s=0.5)
        chat.terminal.wait("/thinking", LIST_S, gone=True)


@pytest.mark.nightly
def test_editor(chat: TuiSession) -> None:
    choose(chat.terminal, "editor")
    chat.terminal.wait(EDITED, ACT_S)
    chat.terminal.key("C-u")
    chat.terminal.wait(EDITED, LIST_S, gone=True)


@pytest.mark.nightly
def test_rename(chat: TuiSession) -> None:
    choose(chat.terminal, "rename")
    chat.terminal.wait(DIALOGS["rename"], ACT_S)
    chat.terminal.key("C-u")
    chat.terminal.type("Named by hand")
    chat.terminal.key("Enter")
    wait_for(lambda: chat.newest()["title"] == "Named by hand", ACT_S)


@pytest.mark.nightly
def test_export(chat: TuiSession) -> None:
    choose(chat.terminal, "export")
    chat.terminal.wait(DIALOGS["export"], ACT_S)
    chat.terminal.key("Enter")
    (exported,) = wait_for(lambda: list(chat.place.project.glob("session-ses_*.md")), ACT_S)
    wait_for(lambda: exported.read_text().endswith(EDITED), ACT_S, "the editor has not had it")
    assert "You said: hello" in exported.read_text()
    exported.unlink()
    chat.terminal.wait("You said: hello", ACT_S)


def test_undo_and_redo(chat: TuiSession) -> None:
    terminal = chat.terminal
    choose(terminal, "undo")
    terminal.wait("1 message reverted", ACT_S)
    terminal.key("C-u")
    choose(terminal, "redo")
    terminal.wait("1 message reverted", ACT_S, gone=True)
    terminal.wait("You said: hello", ACT_S)


@pytest.mark.parametrize("command", ["compact", *nightly("summarize")])
def test_compact(tui_session: TuiSession, command: str) -> None:
    """Each in a session of its own: Claude does not compact the same conversation twice."""
    tui_session.begin()
    choose(tui_session.terminal, command)
    tui_session.terminal.wait(r"▣ +Compaction · .* \d", 40)


@pytest.mark.nightly
def test_fork(chat: TuiSession) -> None:
    before = str(chat.newest()["id"])
    choose(chat.terminal, "fork")
    chat.terminal.wait("Full session", ACT_S)
    chat.terminal.key("Enter", pause_s=0.3)
    wait_for(lambda: chat.newest()["id"] != before, ACT_S)
    chat.terminal.wait("You said: hello", ACT_S)
    assert "(fork #" in str(chat.newest()["title"])


@pytest.mark.nightly
def test_share_and_unshare(chat: TuiSession) -> None:
    if chat.is_native:
        pytest.skip("native shares at opencode.ai, which is not there")
    choose(chat.terminal, "share")
    chat.terminal.wait(DIALOGS["share"], ACT_S)
    chat.terminal.key("Enter")
    wait_for(lambda: "share" in chat.newest(), ACT_S)
    choose(chat.terminal, "unshare")
    wait_for(lambda: "share" not in chat.newest(), ACT_S)


@pytest.mark.parametrize("command", ["new", *nightly("clear")])
def test_a_new_session_begins(chat: TuiSession, command: str) -> None:
    before = str(chat.newest()["id"])
    sent = len(chat.api.messages(before))
    choose(chat.terminal, command)
    chat.terminal.wait("Ask anything", ACT_S)
    assert chat.newest()["id"] == before, "it is made with its first prompt"
    assert len(chat.api.messages(before)) == sent, "nothing was sent to the agent"


@pytest.mark.parametrize(
    ("command", "words"), [pytest.param("init", "AGENTS.md", marks=pytest.mark.nightly), ("review", "commit")]
)
def test_a_command_of_the_server_is_its_own_text(chat: TuiSession, command: str, words: str) -> None:
    """The TUI puts its name into the box; the second Enter sends it."""
    terminal, session = chat.terminal, str(chat.newest()["id"])
    before = len(chat.prompts(session))
    choose(terminal, command)
    terminal.wait(lambda screen: not first_offered(screen), LIST_S)
    terminal.key("Enter", pause_s=0.3)
    prompts = wait_for(lambda: chat.prompts(session)[before:], ACT_S)
    assert words in str(prompts[0]["parts"])
    assert prompts[0]["parts"][0]["type"] == ("subtask" if command == "review" else "text")
    wait_for(lambda: session not in chat.api.status(), 40)


def test_claudes_own_command_is_reached_by_its_prefix(chat: TuiSession) -> None:
    if chat.is_native:
        pytest.skip("native has no Claude")
    terminal, session = chat.terminal, str(chat.newest()["id"])
    before = len(chat.prompts(session))
    choose(terminal, "claude:rename", shown_as="claude:rename")
    terminal.wait(lambda screen: not first_offered(screen), LIST_S)
    terminal.type("of-claude")
    terminal.key("Enter", pause_s=0.3)
    prompts = wait_for(lambda: chat.prompts(session)[before:], ACT_S)
    assert prompts[0]["parts"][0]["text"] == "/rename of-claude"
    terminal.wait("(?i)session renamed to: of-claude", ACT_S)
    assert chat.newest()["title"] != "of-claude", "the name of Claude's conversation, not of the session"


@pytest.mark.parametrize("command", nightly("exit", "quit", "q"))
def test_exit_ends_the_client(chat: TuiSession, command: str) -> None:
    if chat.is_native and command != "exit":
        pytest.skip("one of them shows what native does")
    terminal = open_tui(chat.place, chat.url, str(chat.newest()["id"]))
    try:
        terminal.wait("You said: hello", ACT_S)
        choose(terminal, command)
        terminal.wait(r"\[exit 0\]", ACT_S)
    finally:
        terminal.close()
