"""OpenCode's terminal UI on a server: `opencode attach`."""

from __future__ import annotations

import re

from shim.dev.record.homes import OPENCODE_ENV

from .places import CURRENT, Place, program
from .tmux import Terminal, Want

READY = r"Ask anything|Type your own answer|Permission required|commands *$|\[exit"
START_S = 90


def tui(
    place: Place,
    url: str,
    *,
    version: str = CURRENT,
    session: str | None = None,
    editor: str | None = None,
    columns: int = 120,
    rows: int = 40,
) -> Terminal:
    """The TUI in a window, once its first screen is there. It shares the place's home with the server."""
    argv = [program(f"opencode-{version}"), "attach", url, "--dir", str(place.project)]
    if session is not None:
        argv += ["--session", session]
    env = place.env(**OPENCODE_ENV, TERM="xterm-256color", COLORTERM="truecolor")
    if editor is not None:
        env["EDITOR"] = editor
    env["HOME"] = str(place.root / "tui")  # a home of its own: the server's database is not the client's business
    settings = place.root / "tui" / ".local" / "state" / "opencode" / "kv.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    if not settings.exists():
        settings.write_text('{"animations_enabled": false}')  # its spinner takes 0.1 s of processor a second
    terminal = Terminal(argv, place.project, env, columns=columns, rows=rows)
    screen = terminal.wait(re.compile(READY, re.MULTILINE), START_S)
    assert "[exit" not in screen, f"the TUI ended:\n{screen}"
    return terminal


def abort(terminal: Terminal) -> None:
    """Esc Esc, as a person does it: the second within five seconds."""
    terminal.wait(r"esc\s+interrupt", 20)
    terminal.key("Escape")
    terminal.wait("again to interrupt", 5)
    terminal.key("Escape")
    terminal.wait("interrupted", 20)
    terminal.wait(r"esc\s+(again to )?interrupt", 10, gone=True)


def command(terminal: Terminal, name: str) -> None:
    """`/name`, as a person types it: once the list of commands has it, and not the hint that is on the screen after an undo."""
    terminal.type(f"/{name}")
    terminal.wait(rf"/{name} {{2,}}\w", 20)
    terminal.key("Enter", pause_s=0.5)


def leader(terminal: Terminal, key: str, want: Want) -> None:
    """Ctrl-X and a key, until the screen has what they show. A TUI that is kept waiting for too long takes the key for text."""
    for timeout_s in (8, 8, 20):
        terminal.key("C-x", key, pause_s=0.3)
        try:
            terminal.wait(want, timeout_s)
        except AssertionError:
            if timeout_s == 20:
                raise
            terminal.key("C-u")
        else:
            return


def new_session(terminal: Terminal) -> None:
    """To the first screen, unless it is there: the older TUI takes the keys for text then."""
    if "Ask anything" not in terminal.screen():
        leader(terminal, "n", "Ask anything")
