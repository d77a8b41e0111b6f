"""Joins an agent's pipe with the socket of the plugin host, so that the agent has it as a local MCP server.

A program of its own, of the standard library alone: `python -I -S bridge.py SOCKET`. It waits until the host listens.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time

WAIT_S, LOOK_S = 60.0, 0.05
"""Seconds that the host may take until it listens, and between two looks."""
CHUNK_BYTES = 2**16


def connect(path: str) -> socket.socket:
    """Connect with the host. Ends this program if it does not listen in time."""
    end = time.monotonic() + WAIT_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except OSError as error:
            connection.close()
            if time.monotonic() > end:
                sys.exit(f"The host of tools and plugins does not run: {error}")
            time.sleep(LOOK_S)
        else:
            return connection


def main(path: str) -> None:
    """Copy both ways until one side ends."""
    connection = connect(path)

    def send() -> None:
        while data := os.read(0, CHUNK_BYTES):
            connection.sendall(data)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=send, daemon=True).start()
    with contextlib.suppress(OSError):
        while data := connection.recv(CHUNK_BYTES):
            while data:
                data = data[os.write(1, data) :]


if __name__ == "__main__":
    main(sys.argv[1])
