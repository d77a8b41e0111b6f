"""A proxy between a client and a server that delays some answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

END_S = 5


class SlowLine:
    """Hands bytes on, both ways; answers to GET requests of a path with `slow` in it `delay_s` later than they came."""

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
                waits = threading.Event()
                for way in ((client, server, waits, True), (server, client, waits, False)):
                    self._threads.append(threading.Thread(target=self._carry, args=way, daemon=True))
                    self._threads[-1].start()

    def _carry(self, source: socket.socket, to: socket.socket, waits: threading.Event, asks: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if asks and data.startswith(b"GET ") and self._slow in data.split(b"\r\n", 1)[0]:
                    waits.set()
                elif not asks and waits.is_set():
                    waits.clear()
                    self.delayed += 1
                    time.sleep(self._delay_s)
                to.sendall(data)
        with suppress(OSError):
            to.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Ends it, and all that goes over it."""
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(END_S)


@contextmanager
def slow_line(url: str, slow: bytes, delay_s: float) -> Iterator[SlowLine]:
    line = SlowLine(int(url.rpartition(":")[2]), slow, delay_s)
    try:
        yield line
    finally:
        line.close()
