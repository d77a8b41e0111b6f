"""Holds the pipes of one agent, or a terminal, so that it goes on while no server runs. A program of its own; nothing imports it.

    python -I -S holder.py, or with its bytecode first on stdin (`child_process.waiting_holder`)

Stdin has the parts of `child_process.hold`; until then the program waits, and it ends if there are none. The folder exists, is
private, and has no holder. For a terminal both its ends are inherited, and their numbers are told. Stdout gets the agent's pid,
or `!errno` if it did not start. Then the program leaves its starter and holds the agent until somebody takes its end, or its
lease is over. Then nothing is left of it.

FOLDER/tape is append-only: all that the agent says. FOLDER/s is a Unix socket for one server at a time. Both speak in
records of `u32 length | kind | bytes` (little-endian); numbers are u64:

    on the tape, and from it to the server          from the server
    O  piece of stdout    E  piece of stderr        A  protocol u8 | secret 32 | offset; answered by T: protocol u8 | offset |
    Q  stdout has ended                                number of notes, and by each note as M
    W  number of a line that the agent gets         W  number | line: given to the agent once, whoever repeats it
    X  i64 status: exit code, or -signal            I  close stdin after the lines
    B  UTF-16 units of a terminal before its tape   K  keys for a terminal
                                                    L  seconds that the agent may go on without a server
                                                    M  a note for the next server, which stands in this memory alone
                                                    F  forget: remove the folder and end, once the agent has ended

Version 1 has no notes, version 2 no terminals. Bounds: while AWAY_BYTES of the tape are unread, or the disk is full, the agent
waits as at a full pipe. While PENDING_BYTES wait for the agent, the server waits. Of a terminal's tape KEPT_BYTES are kept.
It imports built-in modules only: what `os` and `signal` import would be half of its memory.
"""

import _socket
import select
import time
from posix import (
    O_APPEND,
    O_CREAT,
    O_RDWR,
    POSIX_SPAWN_CLOSE,
    POSIX_SPAWN_DUP2,
    WNOHANG,
    _exit,  # pyright: ignore[reportPrivateUsage] - the public name is one of `os`
    chdir,
    close,
    dup,
    dup2,
    fork,
    ftruncate,
    getcwd,
    killpg,
    listdir,
    pipe,
    posix_spawn,
    pread,
    read,
    rename,
    rmdir,
    set_blocking,
    setsid,
    umask,
    unlink,
    waitpid,
    write,
)
from posix import open as open_file

PROTOCOL = 3
HEAD = 5
READ_BYTES = 65536
SEND_BYTES = 65536
AWAY_BYTES = 256 * 2**20
PENDING_BYTES = 64 * 2**20
KEPT_BYTES = 3 * 2**20
"""Of a terminal, as much as a server shows of any text. Its tape has three times of it at most, one of them unread."""
FIRST_LEASE_S = 10.0
"""Seconds for the starter to attach."""
GREET_S = 1.0
"""Seconds for a server to take the notes."""
STEP_S = 5.0
"""Seconds of each step of an end without a server: stdin closed, SIGTERM, SIGKILL."""
LAST_READS = 64
"""Of a terminal whose program has exited. Another one may write on."""
LOOK_S = 0.1
"""Seconds between looks at the agent where the system has no pidfd, and between tries to write to a full disk."""
HUP, TERM, KILL = 1, 15, 9


def record(kind: bytes, data: bytes) -> bytes:
    """A record as bytes."""
    return len(data).to_bytes(4, "little") + kind + data


def number(value: int) -> bytes:
    """A number as bytes."""
    return value.to_bytes(8, "little", signed=value < 0)


class TapeFile:
    """The file with what the agent says."""

    def __init__(self) -> None:
        self.file = open_file("tape", O_RDWR | O_CREAT | O_APPEND, 0o600)
        self.end = 0
        self.unwritten = b""
        """Records for which the disk has no room. Nothing more is read meanwhile."""
        self.units = -1
        """UTF-16 units of a terminal that the file has no more. Below 0: it is no terminal."""

    def write(self) -> bool:
        """Write what waits. False if the disk is full."""
        try:
            written = write(self.file, self.unwritten)
            if written < len(self.unwritten):
                raise OSError
        except OSError:
            ftruncate(self.file, self.end)
            return False
        self.end += written
        self.unwritten = b""
        return True

    def shorten(self) -> None:
        """Keep the end of a terminal's tape, which the server has read. Or all, if the disk is full."""
        data, text, at = pread(self.file, self.end, 0), bytearray(), 0
        while at < len(data):
            body = at + HEAD
            at = body + int.from_bytes(data[at : at + 4], "little")
            text += data[body:at] if data[body - 1 : body] == b"O" else b""
        cut = len(text) - KEPT_BYTES
        while text[cut] & 0xC0 == 0x80:  # within a character
            cut += 1
        units = self.units + len(text[:cut].decode("utf-8", "replace").encode("utf-16-le")) // 2
        kept = record(b"B", number(units)) + record(b"O", bytes(text[cut:]))
        tape = open_file("new", O_RDWR | O_CREAT | O_APPEND, 0o600)
        try:
            is_whole = write(tape, kept) == len(kept)
        except OSError:
            is_whole = False
        if is_whole:
            rename("new", "tape")
            tape, self.file = self.file, tape
            self.units, self.end = units, len(kept)
        else:
            unlink("new")
        close(tape)


class Holder:
    """The agent, its tape and its server."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.tape = TapeFile()
        self.sent = 0
        """Bytes of the tape that the server has, or that the last one had."""
        self.poll = select.poll()
        self.listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.server: _socket.socket | None = None
        self.notes: list[bytes] = []
        self.is_deaf = False
        """The server takes nothing more."""
        self.guest: _socket.socket | None = None
        """A connection that has not shown the secret yet."""
        self.heard = bytearray()
        self.written: set[int] = set()
        self.pending = bytearray()
        self.lease_s = FIRST_LEASE_S
        self.wanted: dict[int, int] = {}
        self.stdin = self.stdout = self.stderr = self.pidfd = -1
        self.closes_stdin = False
        self.pid = 0
        """The agent's, or 0 once it has exited."""
        self.next_step_at = time.monotonic() + FIRST_LEASE_S
        """When the end of an agent without a server begins, or goes on."""
        self.step = 0

    # --- the tape

    def append(self, kind: bytes, data: bytes) -> None:
        self.tape.unwritten += record(kind, data)
        self.write_tape()

    def write_tape(self) -> None:
        if self.tape.write():
            self.feed()
        else:
            self.watch()

    def feed(self) -> None:
        while self.server is not None and not self.is_deaf and self.sent < self.tape.end:
            try:
                self.sent += self.server.send(pread(self.tape.file, SEND_BYTES, self.sent))
            except BlockingIOError:
                break
            except OSError:  # it has gone; what it said last is still to be read
                self.is_deaf = True
        if self.tape.units >= 0 and self.sent == self.tape.end > 2 * KEPT_BYTES:
            self.tape.shorten()
            self.sent = self.tape.end
        self.watch()

    def watch(self) -> None:
        if self.tape.units >= 0:
            is_behind = self.tape.end - min(self.sent, 2 * KEPT_BYTES) > KEPT_BYTES
        else:
            is_behind = self.tape.end - self.sent > AWAY_BYTES
        reads = 0 if self.tape.unwritten or is_behind else select.POLLIN
        self.want(self.stdout, reads)
        self.want(self.stderr, reads)
        self.want(self.stdin, select.POLLOUT if self.pending else 0)
        if self.server is not None:
            reads = select.POLLIN if len(self.pending) < PENDING_BYTES else 0
            self.want(self.server.fileno(), reads | (select.POLLOUT if self.sent < self.tape.end and not self.is_deaf else 0))

    def want(self, descriptor: int, events: int) -> None:
        """Wait for these events. For none it is taken out: `poll` would report its end again and again."""
        if descriptor >= 0 and events != self.wanted.get(descriptor, 0):
            self.wanted[descriptor] = events
            (self.poll.register(descriptor, events) if events else self.poll.unregister(descriptor))

    def close(self, descriptor: int) -> None:
        self.want(descriptor, 0)
        close(descriptor)

    # --- the agent

    def spawn(self, argv: list[bytes], environment: dict[bytes, bytes], directory: bytes, terminal: list[bytes]) -> int:
        """Start the agent with its own session. Raises OSError. In: `terminal`, both ends of one, or nothing."""
        if terminal:
            master, slave = map(int, terminal)
            self.tape.units, pipes = 0, [(master, slave)]
            ours, theirs = [dup(master), master, -1], [slave] * 3
        else:
            pipes = [pipe() for _ in range(3)]
            ours = [pipes[0][1], pipes[1][0], pipes[2][0]]
            theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        actions = [(POSIX_SPAWN_DUP2, fd, place) for place, fd in enumerate(theirs)]
        actions += [(POSIX_SPAWN_CLOSE, fd) for pair in pipes for fd in pair if fd > 2]
        here = open_file(".", 0)
        chdir(directory)
        try:
            signals = (HUP, 2, 3, 13, TERM)  # INT, QUIT, PIPE
            self.pid = posix_spawn(argv[0], argv, environment, file_actions=actions, setsid=True, setsigdef=signals)
        finally:
            chdir(here)
            close(here)
        for descriptor in set(theirs):
            close(descriptor)
        for descriptor in ours:
            if descriptor >= 0:
                set_blocking(descriptor, False)
        self.stdin, self.stdout, self.stderr = ours
        try:
            from posix import pidfd_open  # Linux

            self.pidfd = pidfd_open(self.pid)
            self.want(self.pidfd, select.POLLIN)
        except (ImportError, OSError):
            self.pidfd = -1
        self.watch()
        return self.pid

    def hear(self, descriptor: int) -> bool:
        """Whether there was something."""
        try:
            data = read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # no program has the terminal any more
            data = b""
        if data:
            self.append(b"O" if descriptor == self.stdout else b"E", data)
            return True
        self.close(descriptor)
        if descriptor == self.stdout:
            self.stdout = -1
            self.append(b"Q", b"")
        else:
            self.stderr = -1
        return False

    def give(self) -> None:
        try:
            while self.pending and self.stdin >= 0:
                del self.pending[: write(self.stdin, self.pending)]
        except BlockingIOError:
            pass
        except OSError:
            self.pending.clear()
            self.closes_stdin = True
        if self.closes_stdin and not self.pending and self.stdin >= 0:
            self.close(self.stdin)
            self.stdin = -1
        self.watch()

    def look(self) -> None:
        if not self.pid:
            return
        pid, status = waitpid(self.pid, WNOHANG)
        if pid == self.pid:
            self.pid = 0
            if self.pidfd >= 0:
                self.close(self.pidfd)
                self.pidfd = -1
            self.pending.clear()
            self.closes_stdin = True
            self.give()
            for _ in range(LAST_READS if self.tape.units >= 0 else 0):
                if self.stdout < 0 or self.tape.unwritten or not self.hear(self.stdout):
                    break
            self.append(b"X", number(-(status & 127) if status & 127 else status >> 8))
            if self.step:  # its lease was over: no server comes for the news
                self.next_step_at = 0.0

    def descend(self) -> None:
        """Take the next step of the end of an agent without a server."""
        self.closes_stdin = True
        self.give()
        if self.step or self.tape.units >= 0:
            try:  # noqa: SIM105 - `contextlib` is not built in
                killpg(self.pid, (HUP, TERM, KILL)[min(self.step, 2)])
            except OSError:
                pass
        self.step += 1
        self.next_step_at = time.monotonic() + STEP_S

    # --- the server

    def accept(self) -> None:
        accepted = self.listener._accept()  # pyright: ignore - `socket` would be a third of the memory
        descriptor = int(accepted[0])  # pyright: ignore - as above
        if self.guest is not None:
            self.greet()
        self.guest = _socket.socket(fileno=descriptor)
        self.guest.setblocking(False)
        self.want(descriptor, select.POLLIN)

    def greet(self) -> None:
        """Attach a guest that shows the secret, unless a server is attached."""
        guest, self.guest = self.guest, None
        assert guest is not None
        try:
            data = guest.recv(HEAD + 41)
        except OSError:
            data = b""
        if self.server is not None:
            self.listen()  # a dead server's last words come first, and then its end
        offset = int.from_bytes(data[HEAD + 33 :], "little")
        is_known = len(data) == HEAD + 41 and data[4:5] == b"A" and data[HEAD + 1 : HEAD + 33] == self.secret
        if self.server is not None or not is_known:
            self.close(guest.detach())
            return
        offset = min(offset, self.tape.end)
        greeting = record(b"T", bytes((PROTOCOL,)) + number(offset) + number(len(self.notes)))
        try:
            guest.settimeout(GREET_S)
            guest.sendall(greeting + b"".join(record(b"M", note) for note in self.notes))
            guest.setblocking(False)
        except OSError:  # it has gone, or does not read
            self.close(guest.detach())
            return
        self.sent = offset
        self.server = guest
        self.is_deaf = False
        self.step = 0
        self.feed()

    def leave_server(self) -> None:
        assert self.server is not None
        self.close(self.server.detach())
        self.server = None
        self.heard.clear()  # the rest of a frame: it is sent again
        self.next_step_at = time.monotonic() + self.lease_s

    def listen(self) -> None:
        try:
            while self.server is not None:
                data = self.server.recv(SEND_BYTES)
                if not data:
                    self.leave_server()
                self.heard += data
                self.obey()
        except BlockingIOError:
            pass
        except OSError:
            self.leave_server()

    def obey(self) -> None:
        at, heard = 0, self.heard
        while len(heard) >= at + HEAD and len(heard) >= (end := at + HEAD + int.from_bytes(heard[at : at + 4], "little")):
            kind, data = bytes(heard[at + 4 : at + 5]), bytes(heard[at + HEAD : end])
            at = end
            value = int.from_bytes(data[:8], "little")
            if kind == b"W" and value not in self.written:
                self.written.add(value)
                self.append(b"W", data[:8])
                if self.stdin >= 0:
                    self.pending += data[8:]
                    self.give()
            elif kind == b"K":
                self.pending += data
                self.give()
            elif kind == b"I":
                self.closes_stdin = True
                self.give()
            elif kind == b"L":
                self.lease_s = float(value)
            elif kind == b"M":
                self.notes.append(data)
            elif kind == b"F" and not self.pid:
                self.leave()
        del heard[:at]

    def leave(self) -> None:
        for name in listdir("."):
            unlink(name)
        rmdir(getcwd())
        _exit(0)

    # --- its life

    def run(self) -> None:
        while True:
            self.turn()

    def turn(self) -> None:
        wait_s = 3600.0 if self.server is not None else self.next_step_at - time.monotonic()
        if self.tape.unwritten or (self.pidfd < 0 and self.pid):
            wait_s = min(wait_s, LOOK_S)
        for descriptor, _ in self.poll.poll(max(wait_s, 0.0) * 1000):
            if descriptor in (self.stdout, self.stderr):
                self.hear(descriptor)
            elif descriptor == self.stdin:
                self.give()
            elif self.server is not None and descriptor == self.server.fileno():
                self.feed()
                self.listen()
            elif self.guest is not None and descriptor == self.guest.fileno():
                self.greet()
            elif descriptor == self.listener.fileno():
                self.accept()
        self.look()
        if self.tape.unwritten:
            self.write_tape()
        if self.server is None and time.monotonic() >= self.next_step_at:
            if not self.pid:
                self.leave()
            self.descend()


def main() -> None:
    """Start an agent and hold it."""
    umask(0o077)
    text = b""
    while piece := read(0, READ_BYTES):
        text += piece
    if not text:  # its server has ended, or wants no holder
        return
    folder, secret, directory, count, *rest = text.split(b"\0")
    count, *terminal = count.split()
    argv, variables = rest[: int(count)], rest[int(count) :]
    if fork():
        _exit(0)
    setsid()
    chdir(folder)
    holder = Holder(bytes.fromhex(secret.decode()))
    try:
        pid = holder.spawn(argv, dict(pair.split(b"=", 1) for pair in variables), directory, terminal)
    except OSError as error:
        write(1, b"!%d" % (error.errno or 0))
        _exit(1)
    holder.listener.bind("s")
    holder.listener.listen(4)
    holder.listener.setblocking(False)
    holder.want(holder.listener.fileno(), select.POLLIN)
    write(1, b"%d" % pid)
    null = open_file("/dev/null", O_RDWR)
    for descriptor, file in enumerate((null, null, open_file("log", O_RDWR | O_CREAT | O_APPEND, 0o600))):
        dup2(file, descriptor)
    holder.run()


if __name__ == "__main__":
    main()
