"""The first program inside of a sandbox without a network: makes listening sockets, hands them out, and becomes the agent.

    python -I -S sandbox_start.py DESCRIPTOR PORT,PORT... PROGRAM ARGUMENT...

It runs alone, before anything of this server can be imported. `shim.processes.egress` serves the sockets.
"""

import os
import socket
import sys

WAITING = 128
"""Connections that wait until they are served."""


def main(descriptor: str, ports: str, *argv: str) -> None:
    """Send the sockets, and run `argv` in the place of this process."""
    channel = socket.socket(fileno=int(descriptor))
    listeners = [socket.create_server(("127.0.0.1", int(port)), backlog=WAITING) for port in ports.split(",")]
    socket.send_fds(channel, [b"."], [listener.fileno() for listener in listeners])
    channel.close()
    os.execvp(argv[0], argv)  # noqa: S606 - the agent


if __name__ == "__main__":
    main(*sys.argv[1:])
