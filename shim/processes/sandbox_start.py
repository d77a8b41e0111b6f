"""The first program inside of a sandbox without a network: makes listening sockets, hands them out, and becomes the agent.

    python -I -S sandbox_start.py DESCRIPTOR PORT,PORT... PROGRAM ARGUMENT...

It runs alone, before anything of this server can be imported. `shim.processes.egress` serves the sockets. The module `_socket` is
what `socket` is made of; importing that one would double the time of this program, which each start waits for.
"""

import _socket
import os
import sys

WAITING = 128
"""Connections that wait until they are served."""


def listen(port: int) -> _socket.socket:
    """Make a socket that listens on a port of 127.0.0.1."""
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(WAITING)
    return listener


def main(descriptor: str, ports: str, *argv: str) -> None:
    """Send the sockets, and run `argv` in the place of this process."""
    listeners = [listen(int(port)) for port in ports.split(",")]
    numbers = b"".join(listener.fileno().to_bytes(4, sys.byteorder) for listener in listeners)
    channel = _socket.socket(fileno=int(descriptor))
    channel.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    channel.close()
    os.execvp(argv[0], argv)  # noqa: S606 - the agent


if __name__ == "__main__":
    main(*sys.argv[1:])
