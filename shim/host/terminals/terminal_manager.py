"""Creates, lists, resizes, watches and ends the terminals of UIs. Each terminal belongs to a directory.

    create -> TerminalCreated   update -> TerminalUpdated   its program ends -> TerminalExited   remove -> TerminalDeleted

A terminal leaves the list as soon as its program ends; its watchers get the rest of the output, then the end.
`dispose` and `close` also end processes that ended terminals left behind (`nohup`). With the setting `outlive` a terminal is on a
holder (`HeldPty`): the next server shows it again (`take_up`), with what was on it.
Source: a live OpenCode 1.18.33 (names, titles, login shells, cursors, tickets).
"""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import hmac
import os
import pty
import secrets
import shutil
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog

from shim.host.changes import HostChange, HostFeed, TerminalCreated, TerminalDeleted, TerminalExited, TerminalUpdated
from shim.host.terminals.scrollback import Scrollback, Watcher
from shim.host.terminals.shell_command import Enclose, leave_command, shell_of
from shim.host.values import TerminalInfo
from shim.lib.clock import Clock
from shim.lib.disk import is_folder
from shim.lib.errors import InvalidRequest, PtyNotFound
from shim.lib.ids import Ids
from shim.lib.tasks import keep
from shim.processes import child_process, process_family
from shim.processes.child_environment import ChildEnvironment, child_environment
from shim.processes.holder_link import HeldTerminal, Hold, HolderStart, fits
from universal.lib.jsonvalue import JsonObject

log = structlog.get_logger()

# --- a terminal -------------------------------------------------------------------------------------------------

READ_BYTES = 64 * 1024
"""Bytes per read, and the largest piece of output."""
PAUSE_S = 0.004
"""Seconds between two reads. It limits the output to about 16 MB/s and 250 pieces a second."""
HANGUP_S = 1.0
"""Seconds between SIGHUP, at which shells end their jobs, and the kill."""
KILLED_S = 2.0
"""Seconds for killed processes to be gone."""
COLUMNS, ROWS = 80, 24
"""Size of the terminal until the first `resize`."""

# A process session's leader that opens a terminal gets it as its controlling one. `preexec_fn` would run Python code between
# fork and exec, which can hang in a process with threads.
_OPEN = 'exec "$@" <>"$0" >&0 2>&0'


@dataclass(frozen=True, slots=True)
class PtySpec:
    """The program to run. `argv[0]` is an absolute path. `token` is in the environment's `MARK` and identifies its family.

    `start`: the program as it is started, with what holds it before it; () for `argv`.
    """

    argv: Sequence[str]
    cwd: str
    environment: ChildEnvironment
    token: str
    start: Sequence[str] = ()


class PtyProcess:
    """One run of a program. `on_output` gets pieces of text. Then `on_exit` gets the exit code (128 + n for signal n)."""

    def __init__(self, spec: PtySpec, on_output: Callable[[str], None], on_exit: Callable[[int], None]) -> None:
        self._spec = spec
        self._on_output = on_output
        self._on_exit = on_exit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._loop = asyncio.get_running_loop()
        self._writing = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Task[None] | None = None
        self._master = self._slave = -1
        self._since = 0
        self.pid = 0

    @property
    def token(self) -> str:
        """Of the program's family."""
        return self._spec.token

    @property
    def is_open(self) -> bool:
        """True while the program runs."""
        return self._master >= 0

    async def start(self) -> None:
        """Start the program. Raises OSError if there is no free terminal, or no such folder."""
        # The slave stays open here, so that the terminal exists until the program opens it.
        self._master, self._slave = pty.openpty()
        try:
            os.set_blocking(self._master, False)
            self.resize(ROWS, COLUMNS)
            process = await child_process.start(
                ("/bin/sh", "-c", _OPEN, os.ttyname(self._slave), *(self._spec.start or self._spec.argv)),
                cwd=self._spec.cwd,
                environment=self._spec.environment,
                stdout=self._slave,
                stderr=self._slave,
            )
        except BaseException:  # a cancelled start leaves nothing behind
            self._close()
            raise
        self.pid = process.pid
        self._since = process_family.start_ticks(process.pid)
        self._watch()
        self._waiter = asyncio.create_task(self._wait(process), name=f"terminal {process.pid}")

    def resize(self, rows: int, columns: int) -> None:
        """Set the terminal's size. The program gets SIGWINCH."""
        if self.is_open:
            _set_size(self._master, rows, columns)

    async def write(self, data: bytes) -> None:
        """Write input as if typed. It waits while the program does not read. Unread input is dropped at the end."""
        async with self._writing:
            rest = memoryview(data)
            while rest and self.is_open:
                try:
                    rest = rest[os.write(self._master, rest) :]
                except BlockingIOError:
                    await self._writable()
                except OSError:
                    return

    async def end(self) -> None:
        """Send SIGHUP as a closed window does, then kill all processes that the program started. May be repeated."""
        if self._waiter is None:
            return
        relatives = (
            await asyncio.to_thread(process_family.members, self.pid, self._spec.token, self._since)
            if self.is_open
            else set[process_family.Process]()
        )
        if self.is_open:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGHUP)
            await asyncio.wait([self._waiter], timeout=HANGUP_S)
        await asyncio.to_thread(
            process_family.sweep, process_family.NO_LEADER, self._spec.token, self._since, relatives, KILLED_S
        )
        await asyncio.wait([self._waiter], timeout=KILLED_S)

    # --- inside

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self._take(final=True)
        self._close()
        self._on_exit(code if code >= 0 else 128 - code)

    def _watch(self) -> None:
        if self.is_open:
            self._loop.add_reader(self._master, self._readable)

    def _readable(self) -> None:
        self._loop.remove_reader(self._master)
        self._take()
        self._pause = self._loop.call_later(PAUSE_S, self._watch)

    def _take(self, *, final: bool = False) -> None:
        """Read the available output, at most READ_BYTES."""
        data = bytearray()
        while len(data) < READ_BYTES:
            try:
                piece = os.read(self._master, READ_BYTES - len(data))
            except OSError:  # nothing now, or the other side has closed
                break
            if not piece:
                break
            data += piece
        text = self._decoder.decode(bytes(data), final)
        if text:
            self._on_output(text)

    async def _writable(self) -> None:
        room = self._room = self._loop.create_future()
        self._loop.add_writer(self._master, _settle, room)
        try:
            await room
        finally:
            if self.is_open:
                self._loop.remove_writer(self._master)

    def _close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self._master >= 0:
            self._loop.remove_reader(self._master)
            self._loop.remove_writer(self._master)
            os.close(self._slave)
            os.close(self._master)
        self._master = self._slave = -1
        if self._room is not None:
            _settle(self._room)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _set_size(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", min(rows, 0xFFFF), min(columns, 0xFFFF), 0, 0))


async def _no_commit() -> None:
    """Nothing that led to a terminal's keys must be stored before."""


class HeldPty(PtyProcess):
    """One run of a program whose terminal a holder has. In: the folder of holders, its secret, and the path of the terminal."""

    def __init__(
        self,
        spec: PtySpec,
        on_output: Callable[[str], None],
        on_exit: Callable[[int], None],
        folder: Path,
        secret: str,
        device: str = "",
    ) -> None:
        super().__init__(spec, on_output, on_exit)
        hold = Hold(folder / spec.token, secret, spec.token, _no_commit, HolderStart())
        self._held = HeldTerminal(hold, self._show, PAUSE_S)
        self.secret, self.device = secret, device

    @property
    def is_open(self) -> bool:
        return self._waiter is not None and not self._held.exited.is_set()

    async def start(self) -> None:
        master, slave = pty.openpty()
        try:
            _set_size(slave, ROWS, COLUMNS)
            self.device = os.ttyname(slave)
            argv = ("/bin/sh", "-c", _OPEN, self.device, *(self._spec.start or self._spec.argv))
            self._begin(await self._held.spawn(argv, self._spec.cwd, self._spec.environment, (master, slave)))
        finally:
            os.close(master)
            os.close(slave)

    async def read_tape(self) -> tuple[int, str]:
        """Read what was on it so far, for `attach`. Out: it, after its position. Raises OSError."""
        units, data = await self._held.read_tape()
        return units, self._decoder.decode(data)

    async def attach(self, pid: int) -> None:
        """Attach as the next server. Raises OSError."""
        await self._held.attach(pid)
        self._begin(pid)

    def _begin(self, pid: int) -> None:
        self.pid, self._since = pid, process_family.start_ticks(pid)
        self._waiter = asyncio.create_task(self._until_exit(), name=f"terminal {pid}")

    async def _until_exit(self) -> None:
        code = await self._held.until_exit()
        self._on_exit(code if code >= 0 else 128 - code)

    def leave(self) -> None:
        """Let the program go on without this server."""
        self._held.leave()
        if self._waiter is not None:
            self._waiter.cancel()

    def resize(self, rows: int, columns: int) -> None:
        if self.is_open:
            with suppress(OSError):  # it ends just now
                descriptor = os.open(self.device, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
                try:
                    _set_size(descriptor, rows, columns)
                finally:
                    os.close(descriptor)

    async def write(self, data: bytes) -> None:
        self._held.write(data)

    async def end(self) -> None:
        await super().end()
        await self._held.until_gone()

    def _show(self, data: bytes) -> None:
        if text := self._decoder.decode(data):
            self._on_output(text)


# --- the terminals of the server --------------------------------------------------------------------------------

TERMINALS_LIMIT = 64
"""Maximum terminals on the whole server. Each is a process and up to 2 MiB of output."""
TICKET_S = 60
TICKETS_LIMIT = 256
"""Maximum unused tickets; the oldest are dropped."""
LOGIN_SHELLS = frozenset({"bash", "dash", "fish", "ksh", "sh", "zsh"})
"""Shells that start with `-l`, as in native OpenCode."""
NOT_FOR_TOOLS = frozenset({"fish", "nu"})
"""Shells that do not run the sh syntax that agents write."""
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
        self.watchers.discard(watcher)


@dataclass(frozen=True, slots=True)
class _Ticket:
    """An unused ticket for one connection to a terminal."""

    directory: str
    terminal_id: str
    end_ms: int
    token_id: str


@dataclass(eq=False, kw_only=True)
class Terminals:
    """All terminals of the server. Used from one event loop."""

    clock: Clock
    ids: Ids
    environ: Mapping[str, str]
    owner: str
    changes: HostFeed
    limit: int = TERMINALS_LIMIT
    enclose: Enclose = leave_command
    held: Path | None = None
    """Where holders of terminals are; None: terminals end with this server."""
    keep: Callable[[str, JsonObject | None], None] = lambda id_, row: None
    leaves: bool = False
    """Whether programs on holders go on when this server stops."""
    _open: dict[str, Terminal] = field(default_factory=dict[str, Terminal])
    _tokens: dict[str, str] = field(default_factory=dict[str, str])
    _tickets: dict[str, _Ticket] = field(default_factory=dict[str, _Ticket])
    _starting: set[asyncio.Task[Terminal]] = field(default_factory=set[asyncio.Task[Terminal]])
    _closed: bool = False

    def __post_init__(self) -> None:
        if self.held is not None and not fits(self.held / _new_token()):
            self.held = None

    def shells(self) -> list[InstalledShell]:
        """List the installed shells of `/etc/shells`. Blocking."""
        try:
            lines = Path("/etc/shells").read_text("utf-8", "replace").splitlines()
        except OSError:
            lines = [shell_of(self.environ)]
        places = [line.strip() for line in lines if line.strip().startswith("/")]
        programs = [(place, Path(place).name) for place in dict.fromkeys(places) if os.access(place, os.X_OK)]
        return [InstalledShell(place, name, name not in NOT_FOR_TOOLS) for place, name in programs]

    def list_of(self, directory: str) -> list[TerminalInfo]:
        """List the terminals of a directory, oldest first."""
        return [terminal.info for terminal in self._open.values() if terminal.directory == directory]

    def directories(self) -> list[str]:
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
        if self._closed or len(self._open) + len(self._starting) >= self.limit:
            raise InvalidRequest(f"There are {self.limit} terminals open, which is the limit. Close some.")
        directory_token = self._tokens.setdefault(directory, f"ptys-{secrets.token_hex(8)}")
        start = self._start(directory, directory_token, project, new)
        return await asyncio.shield(keep(asyncio.create_task(start, name=f"start of a terminal in {directory}"), self._starting))

    async def _start(self, directory: str, directory_token: str, project: str, new: NewTerminal) -> Terminal:
        """As `create`. Its client may go meanwhile: what was begun is listed, or ended."""
        id_ = self.ids.new("pty")
        token = _new_token()
        scrollback, watchers = Scrollback(), set[Watcher]()
        on_output, on_exit = partial(_show, scrollback, watchers), partial(self._note_exit, id_)
        try:
            spec = await asyncio.to_thread(self._spec, directory, new, (directory_token, token))
            if self.held is not None:
                process = HeldPty(spec, on_output, on_exit, self.held, secrets.token_hex(32))
            else:
                process = PtyProcess(spec, on_output, on_exit)
            await process.start()
        except OSError as error:
            raise InvalidRequest(f"Cannot start a terminal in {directory}: {error.strerror or error}") from error
        if self._tokens.get(directory) != directory_token:
            await process.end()
            raise InvalidRequest(f"{directory} was disposed while the terminal started. Create the terminal again.")
        command, *args = spec.argv
        title = new.title or f"Terminal {id_[-4:]}"
        info = TerminalInfo(id_, title, new.command or command, tuple(args), spec.cwd, process.pid)
        terminal = self._open[id_] = Terminal(directory, project, info, process, scrollback, watchers)
        self._keep_row(terminal)
        self._publish(terminal, TerminalCreated(info))
        return terminal

    async def take_up(self, rows: Mapping[str, JsonObject]) -> None:
        """Show the terminals of the server before again. A holder that is gone took its program along."""
        for id_, row in rows.items() if self.held is not None else ():
            try:
                await self._take_up(id_, row)
            except (FileNotFoundError, ConnectionRefusedError):
                self.keep(id_, None)
            except (OSError, LookupError, TypeError, ValueError) as error:  # another server has it, or has written the row
                log.info("terminal.not_taken_up", id=id_, why=str(error))

    async def _take_up(self, id_: str, row: JsonObject) -> None:
        assert self.held is not None
        directory, (directory_token, token) = row["directory"], row["tokens"]
        info = TerminalInfo(**row["info"])
        info = replace(info, args=tuple(info.args))
        scrollback, watchers = Scrollback(), set[Watcher]()
        on_output, on_exit = partial(_show, scrollback, watchers), partial(self._note_exit, id_)
        spec = PtySpec((info.command, *info.args), info.cwd, child_environment({}, {}), token)
        process = HeldPty(spec, on_output, on_exit, self.held, row["secret"], row["device"])
        scrollback.begin(*await process.read_tape())
        await process.attach(info.pid)
        if process.is_open:
            self._tokens[directory] = directory_token
            self._open[id_] = Terminal(directory, row["project"], info, process, scrollback, watchers)

    def _keep_row(self, terminal: Terminal) -> None:
        """Keep what the next server must know of a terminal."""
        process = terminal.process
        if isinstance(process, HeldPty):
            row = {"directory": terminal.directory, "project": terminal.project, "info": asdict(terminal.info)}
            tokens = [self._tokens[terminal.directory], process.token]
            self.keep(terminal.id, {**row, "tokens": tokens, "device": process.device, "secret": process.secret})

    def _drop(self, id_: str) -> Terminal | None:
        """Take a terminal out of the list. None if it is not there any more."""
        if self.held is not None:
            self.keep(id_, None)
        return self._open.pop(id_, None)

    def update(self, terminal: Terminal, *, title: str | None, size: tuple[int, int] | None) -> None:
        """Change title and size (rows, columns). None keeps a value."""
        if title is not None:
            terminal.info = replace(terminal.info, title=title)
        if size is not None:
            terminal.process.resize(*size)
        self._keep_row(terminal)
        self._publish(terminal, TerminalUpdated(terminal.info))

    async def remove(self, terminal: Terminal) -> None:
        """End a terminal and all processes that it started."""
        if self._drop(terminal.id) is not None:
            self._publish(terminal, TerminalDeleted(terminal.id))
        await terminal.process.end()
        _end(terminal)

    # --- tickets, because a browser cannot send a password with a WebSocket

    def ticket(self, terminal: Terminal, token_id: str = "") -> str:
        """Issue a ticket for one connection to this terminal within `TICKET_S`.

        `token_id`: the pairing token of the client that gets it, "" if none.
        """
        now = self.clock.now_ms()
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
        is_good = (row.directory, row.terminal_id) == (directory, id_) and row.end_ms > self.clock.now_ms()
        return row.token_id if is_good else None

    # --- ends

    async def dispose(self, directory: str | None) -> None:
        """End all terminals of a directory (None: of all) and their processes. It emits no events, as in native OpenCode."""
        # Tokens go first: a terminal that is starting sees that its token is gone, and ends itself.
        places = [place for place in self._tokens if directory in (None, place)]
        tokens = [self._tokens.pop(place) for place in places]
        going = [terminal for terminal in self._open.values() if directory in (None, terminal.directory)]
        for terminal in going:
            self._drop(terminal.id)
        await asyncio.gather(*(terminal.process.end() for terminal in going))
        for terminal in going:
            _end(terminal)
        for token in tokens:
            await asyncio.to_thread(process_family.end_owned, token)

    async def close(self) -> None:
        """End all terminals, or leave them, and accept no new ones, for the server's shutdown."""
        self._closed = True
        for terminal in list(self._open.values()) if self.leaves else ():
            if isinstance(terminal.process, HeldPty):
                terminal.process.leave()
                del self._open[terminal.id]
                self._tokens.pop(terminal.directory, None)
                _end(terminal, may_return=True)
        await self.dispose(None)
        if self._starting:  # they end what they have started
            await asyncio.wait(self._starting)

    # --- inside

    def _spec(self, directory: str, new: NewTerminal, tokens: tuple[str, str]) -> PtySpec:
        """Build the process's spec. `tokens`: those of the directory and of this terminal. Blocking."""
        words = [new.command or "", *new.args, new.cwd or "", *new.env, *new.env.values()]
        if any("\0" in word for word in words) or any(not name or "=" in name for name in new.env):
            raise InvalidRequest("A NUL, or a name of the environment that is empty or has a =, cannot be given to a program.")
        cwd = str(Path(directory, new.cwd or "."))
        if not is_folder(cwd):
            raise InvalidRequest(f"There is no folder {cwd}", path=("cwd",))
        command = new.command or shell_of(self.environ)
        path = shutil.which(command if "/" not in command else str(Path(cwd, command)), path=self.environ.get("PATH"))
        if path is None:
            raise InvalidRequest(f"There is no program {command}", path=("command",))
        login = ("-l",) if Path(command).name in LOGIN_SHELLS else ()
        inherited = {**self.environ, **new.env}
        if self.owner and self.held is None:  # else it outlives its owner
            inherited = process_family.with_owner(inherited, self.owner)
        environment = child_environment(inherited, ENVIRONMENT, ",".join(tokens))
        argv = (path, *new.args, *login)
        return PtySpec(argv, cwd, environment, tokens[1], self.enclose(argv, cwd))

    def _note_exit(self, id_: str, code: int) -> None:
        if (terminal := self._drop(id_)) is not None:
            self._publish(terminal, TerminalExited(id_, code))
            _end(terminal)

    def _publish(self, terminal: Terminal, change: HostChange) -> None:
        self.changes.publish(change, terminal.directory, terminal.project)


def _new_token() -> str:
    return f"pty-{secrets.token_hex(8)}"


def _show(scrollback: Scrollback, watchers: set[Watcher], text: str) -> None:
    scrollback.add(text)
    for watcher in tuple(watchers):
        watcher.put(text)


def _end(terminal: Terminal, *, may_return: bool = False) -> None:
    for watcher in tuple(terminal.watchers):
        watcher.end(may_return=may_return)
