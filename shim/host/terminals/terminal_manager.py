"""Creates, lists, resizes, watches and ends the terminals of UIs. Each terminal belongs to a directory.

    create -> TerminalCreated   update -> TerminalUpdated   its program ends -> TerminalExited   remove -> TerminalDeleted

A terminal leaves the list as soon as its program ends; its watchers get the rest of the output, then the end.
`dispose` and `close` also end processes that ended terminals left behind (`nohup`).
Source: a live OpenCode 1.18.33 (names, titles, login shells, cursors, tickets).
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from shim.host.changes import HostChange, HostFeed, TerminalCreated, TerminalDeleted, TerminalExited, TerminalUpdated
from shim.host.terminals.pty import PtyProcess, PtySpec
from shim.host.terminals.scrollback import Scrollback, Watcher
from shim.host.values import TerminalInfo
from shim.lib.clock import Clock
from shim.lib.disk import is_folder
from shim.lib.errors import InvalidRequest, PtyNotFound
from shim.lib.ids import Ids
from shim.processes import process_family
from shim.processes.child_environment import child_environment

TERMINALS_LIMIT = 64
"""Maximum terminals on the whole server. Each is a process and up to 2 MiB of output."""
TICKET_S = 60
TICKETS_LIMIT = 256
"""Maximum unused tickets; the oldest are dropped."""
LOGIN_SHELLS = frozenset({"bash", "dash", "fish", "ksh", "sh", "zsh"})
"""Shells that start with `-l`, as in native OpenCode."""
NOT_FOR_TOOLS = frozenset({"fish", "nu"})
"""Shells that do not run the sh syntax that agents write."""
FALLBACK_SHELL = "/bin/sh"
ENVIRONMENT: Mapping[str, str | None] = {"TERM": "xterm-256color", "OPENCODE_TERMINAL": "1", "COLUMNS": None, "LINES": None}


@dataclass(frozen=True, slots=True)
class NewTerminal:
    """A program to run in a terminal. `command` defaults to the user's shell, `cwd` to the directory."""

    command: str | None = None
    args: tuple[str, ...] = ()
    cwd: str | None = None
    title: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class InstalledShell:
    """A shell of this machine. `is_acceptable`: it runs the sh syntax that agents write."""

    path: str
    name: str
    is_acceptable: bool


@dataclass(slots=True)
class Terminal:
    """A running terminal."""

    directory: str
    project: str
    info: TerminalInfo
    process: PtyProcess
    scrollback: Scrollback
    watchers: set[Watcher]

    @property
    def id(self) -> str:
        """`pty_...`"""
        return self.info.id

    def watch(self, cursor: int) -> tuple[list[str], int, Watcher]:
        """Return the kept output from a position on, the position after it, and a watcher of new output.

        The caller passes the watcher to `unwatch` when it stops.
        """
        watcher = Watcher()
        self.watchers.add(watcher)
        if not self.process.is_open:
            watcher.end()
        return self.scrollback.since(cursor), self.scrollback.cursor, watcher

    def unwatch(self, watcher: Watcher) -> None:
        """Remove a watcher."""
        self.watchers.discard(watcher)


@dataclass(frozen=True, slots=True)
class _Ticket:
    """An unused ticket for one connection to a terminal."""

    directory: str
    terminal_id: str
    end_ms: int
    token_id: str


class Terminals:
    """All terminals of the server. Used from one event loop."""

    def __init__(
        self,
        *,
        clock: Clock,
        ids: Ids,
        environ: Mapping[str, str],
        owner: str,
        changes: HostFeed,
        limit: int = TERMINALS_LIMIT,
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._environ = environ
        self._owner = owner
        self._changes = changes
        self._limit = limit
        self._open: dict[str, Terminal] = {}
        self._tokens: dict[str, str] = {}
        self._tickets: dict[str, _Ticket] = {}
        self._starting = 0
        self._closed = False

    def shells(self) -> list[InstalledShell]:
        """List the installed shells of `/etc/shells`. Blocking."""
        try:
            lines = Path("/etc/shells").read_text("utf-8", "replace").splitlines()
        except OSError:
            lines = [self._shell()]
        places = [line.strip() for line in lines if line.strip().startswith("/")]
        programs = [(place, Path(place).name) for place in dict.fromkeys(places) if os.access(place, os.X_OK)]
        return [InstalledShell(place, name, name not in NOT_FOR_TOOLS) for place, name in programs]

    def list_of(self, directory: str) -> list[TerminalInfo]:
        """List the terminals of a directory, oldest first."""
        return [terminal.info for terminal in self._open.values() if terminal.directory == directory]

    def directories(self) -> list[str]:
        """List the directories with terminals."""
        return list(dict.fromkeys(terminal.directory for terminal in self._open.values()))

    def get(self, directory: str, id_: str) -> Terminal:
        """Return a terminal. Raises PtyNotFound (404), also for a terminal of another directory, as in native OpenCode."""
        terminal = self._open.get(id_)
        if terminal is None or terminal.directory != directory:
            raise PtyNotFound(id_)
        return terminal

    async def create(self, directory: str, project: str, new: NewTerminal) -> Terminal:
        """Start a terminal.

        Raises InvalidRequest for a missing program or folder, too many terminals, or a directory that is disposed meanwhile.
        """
        if self._closed or len(self._open) + self._starting >= self._limit:
            raise InvalidRequest(f"There are {self._limit} terminals open, which is the limit. Close some.")
        id_ = self._ids.new("pty")
        token = f"pty-{secrets.token_hex(8)}"
        directory_token = self._tokens.setdefault(directory, f"ptys-{secrets.token_hex(8)}")
        scrollback, watchers = Scrollback(), set[Watcher]()

        def on_output(text: str) -> None:
            scrollback.add(text)
            for watcher in tuple(watchers):
                watcher.put(text)

        self._starting += 1
        try:
            spec = await asyncio.to_thread(self._spec, directory, new, (directory_token, token))
            process = PtyProcess(spec, on_output, lambda code: self._note_exit(id_, code))
            await process.start()
        except OSError as error:
            raise InvalidRequest(f"Cannot start a terminal in {directory}: {error.strerror or error}") from error
        finally:
            self._starting -= 1
        if self._tokens.get(directory) != directory_token:
            await process.end()
            raise InvalidRequest(f"{directory} was disposed while the terminal started. Create the terminal again.")
        command, *args = spec.argv
        title = new.title or f"Terminal {id_[-4:]}"
        info = TerminalInfo(id_, title, new.command or command, tuple(args), spec.cwd, process.pid)
        terminal = self._open[id_] = Terminal(directory, project, info, process, scrollback, watchers)
        self._publish(terminal, TerminalCreated(info))
        return terminal

    def update(self, terminal: Terminal, *, title: str | None, size: tuple[int, int] | None) -> None:
        """Change title and size (rows, columns). None keeps a value."""
        if title is not None:
            terminal.info = replace(terminal.info, title=title)
        if size is not None:
            terminal.process.resize(*size)
        self._publish(terminal, TerminalUpdated(terminal.info))

    async def remove(self, terminal: Terminal) -> None:
        """End a terminal and all processes that it started."""
        if self._open.pop(terminal.id, None) is not None:
            self._publish(terminal, TerminalDeleted(terminal.id))
        await terminal.process.end()
        _end(terminal)

    # --- tickets, because a browser cannot send a password with a WebSocket

    def ticket(self, terminal: Terminal, token_id: str = "") -> str:
        """Issue a ticket for one connection to this terminal within `TICKET_S`.

        `token_id`: the pairing token of the client that gets it, "" if none.
        """
        now = self._clock.now_ms()
        self._tickets = {key: row for key, row in self._tickets.items() if row.end_ms > now}
        while len(self._tickets) >= TICKETS_LIMIT:
            self._tickets.pop(next(iter(self._tickets)))
        ticket = secrets.token_urlsafe(24)
        self._tickets[ticket] = _Ticket(terminal.directory, terminal.id, now + TICKET_S * 1000, token_id)
        return ticket

    def redeem(self, directory: str, id_: str, ticket: str) -> str | None:
        """Use up a ticket; return its client's pairing token ("" if none), or None if the ticket does not fit this terminal."""
        match = next((key for key in self._tickets if hmac.compare_digest(key.encode(), ticket.encode())), None)
        if match is None:
            return None
        row = self._tickets.pop(match)
        is_good = (row.directory, row.terminal_id) == (directory, id_) and row.end_ms > self._clock.now_ms()
        return row.token_id if is_good else None

    # --- ends

    async def dispose(self, directory: str | None) -> None:
        """End all terminals of a directory (None: of all) and their processes. It emits no events, as in native OpenCode."""
        # Tokens go first: a terminal that is starting sees that its token is gone, and ends itself.
        places = [place for place in self._tokens if directory in (None, place)]
        tokens = [self._tokens.pop(place) for place in places]
        going = [terminal for terminal in self._open.values() if directory in (None, terminal.directory)]
        for terminal in going:
            self._open.pop(terminal.id, None)
        await asyncio.gather(*(terminal.process.end() for terminal in going))
        for terminal in going:
            _end(terminal)
        for token in tokens:
            await asyncio.to_thread(process_family.end_owned, token)

    async def close(self) -> None:
        """End all terminals and accept no new ones, for the server's shutdown."""
        self._closed = True
        await self.dispose(None)

    # --- inside

    def _spec(self, directory: str, new: NewTerminal, tokens: tuple[str, str]) -> PtySpec:
        """Build the process's spec. `tokens`: those of the directory and of this terminal. Blocking."""
        words = [new.command or "", *new.args, new.cwd or "", *new.env, *new.env.values()]
        if any("\0" in word for word in words) or any(not name or "=" in name for name in new.env):
            raise InvalidRequest("A NUL, or a name of the environment that is empty or has a =, cannot be given to a program.")
        cwd = str(Path(directory, new.cwd or "."))
        if not is_folder(cwd):
            raise InvalidRequest(f"There is no folder {cwd}", path=("cwd",))
        command = new.command or self._shell()
        path = shutil.which(command if "/" not in command else str(Path(cwd, command)), path=self._environ.get("PATH"))
        if path is None:
            raise InvalidRequest(f"There is no program {command}", path=("command",))
        login = ("-l",) if Path(command).name in LOGIN_SHELLS else ()
        inherited = {**self._environ, **new.env}
        if self._owner:
            inherited = process_family.with_owner(inherited, self._owner)
        environment = child_environment(inherited, ENVIRONMENT, ",".join(tokens))
        return PtySpec((path, *new.args, *login), cwd, environment, tokens[1])

    def _shell(self) -> str:
        preferred = self._environ.get("SHELL", "")
        return preferred if preferred.startswith("/") and os.access(preferred, os.X_OK) else FALLBACK_SHELL

    def _note_exit(self, id_: str, code: int) -> None:
        terminal = self._open.pop(id_, None)
        if terminal is not None:
            self._publish(terminal, TerminalExited(id_, code))
            _end(terminal)

    def _publish(self, terminal: Terminal, change: HostChange) -> None:
        self._changes.publish(change, terminal.directory, terminal.project)


def _end(terminal: Terminal) -> None:
    for watcher in tuple(terminal.watchers):
        watcher.end()
