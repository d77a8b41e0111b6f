"""What a service manager and this server tell each other: the socket that it opened for us, and that we are ready.

systemd's protocols (sd_listen_fds(3), sd_notify(3)) without its library. Their variables are taken out of the environment, so
that no agent believes them to be its own.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass

from shim.cli.server import ListenError, is_loopback, notice_the_gone

FIRST_FD = 3
"""Where systemd puts the sockets that it has opened."""
LISTEN_NAMES = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")
NOTIFY_NAME = "NOTIFY_SOCKET"


@dataclass(frozen=True, slots=True)
class Notifier:
    """Tells the service manager how we are; without one (`address` empty) it tells nobody. Never raises."""

    address: str = ""

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> Notifier:
        """The manager that the environment names."""
        return cls(environ.pop(NOTIFY_NAME, ""))

    def ready(self, status: str) -> None:
        """We answer requests, also again after a reload."""
        self._send("READY=1", f"STATUS={status}")

    def notify_reloading(self) -> None:
        """The settings are read again; `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def notify_stopping(self) -> None:
        """The stop has begun."""
        self._send("STOPPING=1", "STATUS=stopping")

    def _send(self, *lines: str) -> None:
        if not self.address:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), address)


def inherited_socket(environ: MutableMapping[str, str], *, protected: bool) -> socket.socket | None:
    """The listening socket that the service manager has opened for this process; None if it has opened none.

    In: `protected`, whether a password is set. Raises: ListenError for several sockets, for one that is no TCP socket, and
    without a password for one that other machines can reach.
    """
    fds, pid, _ = (environ.pop(name, "") for name in LISTEN_NAMES)
    if not fds.isdigit() or pid != str(os.getpid()) or fds == "0":
        return None
    if fds != "1":
        raise ListenError(
            f"The service manager has opened {fds} sockets; one is needed. Name one ListenStream= in its socket unit."
        )
    sock = socket.socket(fileno=FIRST_FD)
    os.set_inheritable(FIRST_FD, False)
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
        sock.close()
        raise ListenError(
            "The service manager's socket is no TCP socket: write ListenStream=127.0.0.1:4096 into its socket unit."
        )
    host = str(sock.getsockname()[0])
    if not protected and not is_loopback(host):
        sock.close()
        raise ListenError(
            f"Refused to listen on {host} without a password: every machine that reaches this address could run commands as you."
            " Set OPENCODE_SERVER_PASSWORD in the service's keys file, or ListenStream=127.0.0.1:4096 in its socket unit."
        )
    sock.setblocking(False)
    return notice_the_gone(sock)
