"""Talks to the service manager: takes the socket that it opened and reports that the server is ready.

It speaks systemd's protocols (sd_listen_fds(3), sd_notify(3)) without its library. It removes their variables from the
environment, so that no agent uses them.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass

from shim.cli.server import ListenError, notice_the_gone
from shim.http.access import is_loopback

FIRST_FD = 3
"""File descriptor of the first socket that systemd opened."""
LISTEN_NAMES = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")
NOTIFY_NAME = "NOTIFY_SOCKET"


@dataclass(frozen=True, slots=True)
class Notifier:
    """Reports the server's state to the service manager, or does nothing if `address` is empty. Never raises."""

    address: str = ""

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> Notifier:
        """Return the notifier for the manager that the environment names, and remove its variable."""
        return cls(environ.pop(NOTIFY_NAME, ""))

    def ready(self, status: str) -> None:
        """Report that the server answers requests. Also ends a reload."""
        self._send("READY=1", f"STATUS={status}")

    def notify_reloading(self) -> None:
        """Report that a reload has begun. `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def notify_stopping(self, within_s: float = 0.0) -> None:
        """Report that the stop has begun, and takes `within_s` seconds if that is more than the manager waits by itself."""
        extension = [f"EXTEND_TIMEOUT_USEC={int(within_s * 1_000_000)}"] if within_s else []
        self._send("STOPPING=1", "STATUS=stopping", *extension)

    def _send(self, *lines: str) -> None:
        if not self.address:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), address)


def inherited_socket(environ: MutableMapping[str, str], *, protected: bool) -> socket.socket | None:
    """Return the listening socket that the service manager opened for this process, or None.

    `protected` says whether a password is set. Raises ListenError for several sockets, for one that is no TCP socket, and,
    without a password, for one that other machines reach.
    """
    fds, pid, _ = (environ.pop(name, "") for name in LISTEN_NAMES)
    if not fds.isdigit() or pid != str(os.getpid()) or fds == "0":
        return None
    if fds != "1":
        raise ListenError(
            f"The service manager has opened {fds} sockets; the server needs one. Write one ListenStream= into its socket unit."
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
