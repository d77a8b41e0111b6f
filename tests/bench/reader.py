"""Readers of one event stream, in a process of their own.

    python reader.py HOST PORT COUNT TARGET MARK END TURNS KIND [ENCODING]

Prints "ready" when all are connected. Then, when all have read END for the TURNS-th time: one line of JSON,
{counts, bytes, first_ns, end_ns, latencies_ns}: pieces of text and bytes per reader, when the first piece and the last END
came (time.monotonic_ns), and for pieces that carry when they were written how long they took.
KIND is `count`, which is faster than what it measures, or `stamps`.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time

STAMP = re.compile(rb"t=(\d+);")
"""In the text of a piece, when it was written; pieces that were joined have several."""
ANSWER_S = 300


class Reader(asyncio.Protocol):
    def __init__(self, request: bytes, mark: bytes, end: bytes, turns: int, ready: asyncio.Event, done: asyncio.Event) -> None:
        self.request, self.mark, self.end, self.turns, self.ready, self.done = request, mark, end, turns, ready, done
        self.count = self.size = self.first = self.last = 0
        self.tail = b""
        self.latencies: list[int] = []

    def connection_made(self, transport) -> None:
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self.ready.set()
        self.size += len(data)
        keep = max(len(self.mark), len(self.end)) - 1
        text = self.tail + data
        new = text.count(self.mark) - self.tail.count(self.mark)
        if new and not self.first:
            self.first = now
        self.count += new
        if self.end in text:
            self.turns -= text.count(self.end) - self.tail.count(self.end)
            if self.turns <= 0:
                self.last = now
                self.done.set()
        self.tail = text[-keep:]

    def connection_lost(self, error: Exception | None) -> None:
        self.done.set()


class StampReader(Reader):
    """Line by line: when each piece was written, and how long it took. Only for streams that carry that."""

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self.ready.set()
        self.size += len(data)
        *lines, self.tail = (self.tail + data).split(b"\n")
        for line in lines:
            if self.mark in line:
                self.first = self.first or now
                stamps = STAMP.findall(line)
                self.count += len(stamps)
                self.latencies += [now - int(stamp) for stamp in stamps]
            if self.end in line:
                self.turns -= 1
                if self.turns <= 0:
                    self.last = now
                    self.done.set()


async def main() -> None:
    host, port, count, target, mark, end, turns, kind = sys.argv[1:9]
    more = f"Accept-Encoding: {sys.argv[9]}\r\n" if len(sys.argv) > 9 else ""
    make = StampReader if kind == "stamps" else Reader
    request = (
        f"GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: opencode/1.18.33\r\n{more}Accept: text/event-stream\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    readers: list[Reader] = []
    for _ in range(int(count)):
        reader = make(request.encode(), mark.encode(), end.encode(), int(turns), asyncio.Event(), asyncio.Event())
        await loop.create_connection(lambda reader=reader: reader, host, int(port))
        readers.append(reader)
    await asyncio.wait_for(asyncio.gather(*(reader.ready.wait() for reader in readers)), ANSWER_S)
    print("ready", flush=True)
    await asyncio.wait_for(asyncio.gather(*(reader.done.wait() for reader in readers)), ANSWER_S)
    print(json.dumps({
        "counts": [reader.count for reader in readers],
        "bytes": [reader.size for reader in readers],
        "first_ns": min(reader.first for reader in readers),
        "end_ns": max(reader.last for reader in readers),
        "latencies_ns": [value for reader in readers for value in reader.latencies],
    }))  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main())
