"""The first program of a sandbox by Landlock: gives up rights for good, and becomes the agent.

    python -I -S landlock_start.py WORD... -- PROGRAM ARGUMENT...

    fixed=PATH      may be read and run, with all below it
    listed=PATH     the names in it may be read
    writable=PATH   may be changed too
    device=PATH     may be read, written and controlled
    network=own     TCP to the ports of `port=NUMBER` alone, and nothing but TCP
    temporary=PATH  the folder for temporary files (TMPDIR), which is writable too

It runs alone, before anything of this server can be imported. A filter of system calls (seccomp) refuses what Landlock does not
see: sockets of the machine with a path, keyrings, and ways to a host that are no `connect`.
https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import errno
import os
import platform
import struct
import sys

LEAST_ABI = 4
"""Linux 6.7: the first that knows TCP, and knows how to hold `truncate`."""
CREATE, ADD, RESTRICT = 444, 445, 446
EXECUTE, WRITE, READ, LIST, TRUNCATE, CONTROL = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
BY_FD, BY_PORT, CONNECT = 1, 2, 1 << 1
OF_FILE = EXECUTE | WRITE | READ | TRUNCATE | CONTROL
"""Rights that a file can have; the others are of folders."""
FIXED = EXECUTE | READ | LIST
SCOPES = 3
"""Abstract sockets and signals of processes outside, from ABI 6 (Linux 6.12) on."""
NO_NEW_PRIVS, SECCOMP, DROP_BOUND, SECUREBITS, NO_ROOT = 38, 22, 24, 28, 3
CAPABILITIES = 64
"""More than there are."""
CALLS = {"x86_64": (0xC000003E, 41, 44, 46, 307, 248, 250), "aarch64": (0xC00000B7, 198, 206, 211, 269, 217, 219)}
"""Machine -> its architecture, and the numbers of socket, sendto, sendmsg, sendmmsg, and the first and last call of keyrings."""
IO_URING = 425
FAST_OPEN = 0x20000000
"""A flag by which `sendto` connects."""
LIBC = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: object) -> int:
    """A system call. Raises OSError."""
    if (result := LIBC.syscall(number, *arguments)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def find_abi() -> int:
    """Return the version of Landlock that the kernel has. 0: none, or it is switched off."""
    try:
        return call(CREATE, None, 0, 1)
    except OSError:
        return 0


def program_of(machine: str, *, has_network: bool) -> bytes:
    """Return the filter of system calls, for `struct sock_filter`: code, jump if true, jump if not, operand."""
    load, equal, above, bits, end, mask = 0x20, 0x15, 0x25, 0x45, 0x06, 0x54
    architecture, socket, sendto, sendmsg, sendmmsg, first, last = CALLS[machine]
    allow, refuse, absent = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
    number, domain, kind, protocol = 0, 16, 24, 32
    tcp = [
        (load, 0, 0, domain), (equal, 0, 1, 16), (end, 0, 0, allow),  # netlink: addresses of this machine
        (equal, 2, 0, 2), (equal, 1, 0, 10), (end, 0, 0, refuse),
        (load, 0, 0, kind), (mask, 0, 0, 15), (equal, 1, 0, 1), (end, 0, 0, refuse),
        (load, 0, 0, protocol), (equal, 2, 0, 0), (equal, 1, 0, 6), (end, 0, 0, refuse), (end, 0, 0, allow),
    ]  # fmt: skip
    no_path = [(load, 0, 0, domain), (equal, 0, 1, 1), (end, 0, 0, refuse), (end, 0, 0, allow)]
    rows = [
        (load, 0, 0, 4), (equal, 1, 0, architecture), (end, 0, 0, refuse), (load, 0, 0, number),
        (above, 0, 1, 0x3FFFFFFF), (end, 0, 0, refuse),  # x32
        (equal, 0, 1, IO_URING), (end, 0, 0, absent),
        (0x35, 0, 2, first), (above, 1, 0, last), (end, 0, 0, refuse),
    ]  # fmt: skip
    for sender, flags in ((sendto, 40), (sendmsg, 32), (sendmmsg, 40)):
        rows += [(equal, 0, 4, sender), (load, 0, 0, flags), (bits, 0, 1, FAST_OPEN), (end, 0, 0, refuse), (end, 0, 0, allow)]
    of_socket = no_path if has_network else tcp
    rows += [(equal, 0, len(of_socket), socket), *of_socket, (end, 0, 0, allow)]
    return b"".join(struct.pack("=HBBI", *row) for row in rows)


def drop_capabilities() -> None:
    """A server of root would hand its rights on: to devices, other owners' files, and the network."""
    for number in range(CAPABILITIES):
        LIBC.prctl(DROP_BOUND, number, 0, 0, 0)
    LIBC.prctl(SECUREBITS, NO_ROOT, 0, 0, 0)
    header, none = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    if LIBC.capset(header, none) < 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")


def add_path(rules: int, path: str, rights: int) -> None:
    """Grant rights below a path. One that is not there needs none."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):  # noqa: PTH112 - `pathlib` takes longer than all of this
        rights &= OF_FILE
    call(ADD, rules, BY_FD, struct.pack("=Qi", rights, descriptor), 0)
    os.close(descriptor)


def restrict(words: list[tuple[str, str]]) -> None:
    """Hold this process, and all that it starts, to what `words` grant."""
    if (abi := find_abi()) < LEAST_ABI:
        raise SystemExit(f"Landlock has version {abi} here, and {LEAST_ABI} is needed (Linux 6.7, with `landlock` in `lsm=`)")
    if platform.machine() not in CALLS:
        raise SystemExit(f"there is no filter of system calls for {platform.machine()}")
    has_network = ("network", "own") not in words
    every = (1 << 15 if abi < 5 else 1 << 16) - 1
    size = 24 if abi >= 6 else 16
    wanted = struct.pack("=QQQ", every, 0 if has_network else CONNECT, SCOPES if abi >= 6 else 0)[:size]
    rules = call(CREATE, wanted, size, 0)
    rights = {"fixed": FIXED, "listed": LIST, "writable": every, "temporary": every, "device": (READ | WRITE | CONTROL) & every}
    for word, value in words:
        if word == "port":
            call(ADD, rules, BY_PORT, struct.pack("=QQ", CONNECT, int(value)), 0)
        elif word in rights:
            add_path(rules, value, rights[word])
        if word == "temporary":
            os.environ["TMPDIR"] = value
    drop_capabilities()
    LIBC.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    call(RESTRICT, rules, 0)
    os.close(rules)
    program = program_of(platform.machine(), has_network=has_network)
    buffer = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    if LIBC.prctl(SECCOMP, 2, head, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "the filter of system calls cannot be set")


def main(*arguments: str) -> None:
    """Give up the rights, and run the program in the place of this process."""
    end = arguments.index("--")
    restrict([(word, value) for word, _, value in (argument.partition("=") for argument in arguments[:end])])
    os.execvp(arguments[end + 1], arguments[end + 1 :])  # noqa: S606 - the agent


if __name__ == "__main__":
    main(*sys.argv[1:])
