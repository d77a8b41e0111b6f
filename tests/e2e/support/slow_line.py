"""A proxy between a client and a server that delays some answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

END_S = 5
"""For each thread, after its sockets were closed."""


class SlowLine:
    """Forwards bytes both ways. Answers to GET requests whose path contains `slow` are `delay_s` late.

    delayed  how many answers were late
    url      where the client connects
    """

    def __init__(self, port: int, slow: bytes, delay_s: float) -> None:
        self._to, self._slow, self._delay_s = port, slow, delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.delayed = 0
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._open += [client, server]
                is_slow = threading.Event()  # the last request was one whose answer is delayed
                for way in ((client, server, is_slow, True), (server, client, is_slow, False)):
                    self._threads.append(threading.Thread(target=self._forward, args=way, daemon=True))
                    self._threads[-1].start()

    def _forward(self, source: socket.socket, to: socket.socket, is_slow: threading.Event, from_client: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if from_client and data.startswith(b"GET ") and self._slow in data.split(b"\r\n", 1)[0]:
                    is_slow.set()
                elif not from_client and is_slow.is_set():
                    is_slow.clear()
                    self.delayed += 1
                    time.sleep(self._delay_s)
                to.sendall(data)
        with suppress(OSError):
            to.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the proxy and its connections."""
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(END_S)


@contextmanager
def slow_line(url: str, slow: bytes, delay_s: float) -> Iterator[SlowLine]:
    """A `SlowLine` to the server at this URL."""
    line = SlowLine(int(url.rpartition(":")[2]), slow, delay_s)
    try:
        yield line
    finally:
        line.close()
