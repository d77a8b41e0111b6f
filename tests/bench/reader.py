"""Readers of one event stream, in a process of their own.

    python reader.py HOST PORT COUNT TARGET MARK END TURNS KIND ANSWER_S [ENCODING]

Prints "ready" when all are connected. Then, when all have read END for the TURNS-th time: one line of JSON,
{counts, bytes, first_ns, end_ns, latencies_ns}: pieces of text and bytes per reader, when the first piece and the last END
came (time.monotonic_ns), and for pieces that carry when they were written how long they took. When something does not come,
one line {error} that says what was waited for, and exit code 1.
KIND is `count`, which is faster than what it measures, or `stamps`. ANSWER_S is for the last END, from when all
are connected. With the ENCODING gzip a stream that is not compressed is an
error; `bytes` are those on the wire.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
import zlib

STAMP = re.compile(rb"t=(\d+);")
"""In the text of a piece, when it was written; pieces that were joined have several."""
DELTA = b'"delta":"'
"""Before the text of an event that has MARK."""
PIECES = b"word", b"t="
"""One of them stands once in each piece; pieces that were joined are counted."""
CONNECT_S = 30
"""For all readers to have got the first bytes of their streams."""


class Gunzip:
    """The body of a chunked answer in gzip, as it comes."""

    def __init__(self) -> None:
        self.rest = b""
        self.headed = False
        self.zlib = zlib.decompressobj(16 + zlib.MAX_WBITS)

    def feed(self, data: bytes) -> bytes:
        self.rest += data
        if not self.headed:
            head, end, body = self.rest.partition(b"\r\n\r\n")
            if not end:
                return b""
            if b"content-encoding: gzip" not in head.lower():
                raise ValueError(f"the stream is not compressed: {head[:500]!r}")
            self.headed, self.rest = True, body
        out: list[bytes] = []
        while True:
            size, end, after = self.rest.partition(b"\r\n")
            if not end or len(after) < int(size, 16) + 2:
                return b"".join(out)
            out.append(self.zlib.decompress(after[: int(size, 16)]))
            self.rest = after[int(size, 16) + 2 :]


class Reader(asyncio.Protocol):
    def __init__(self, request: bytes, mark: bytes, end: bytes, turns: int, encoding: str) -> None:
        self.request, self.mark, self.end, self.turns = request, mark, end, turns
        self.ready, self.done = asyncio.Event(), asyncio.Event()
        self.gunzip = Gunzip() if encoding else None
        self.count = self.size = self.first = self.last = 0
        self.tail = b""
        self.error = ""
        self.latencies: list[int] = []

    def connection_made(self, transport) -> None:
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self.ready.set()
        self.size += len(data)
        if self.gunzip is not None:
            try:
                data = self.gunzip.feed(data)
            except (ValueError, zlib.error) as error:
                self.error = str(error)
                self.done.set()
                return
        self.read(data, now)

    def read(self, data: bytes, now: int) -> None:
        *lines, self.tail = (self.tail + data).split(b"\n")
        for line in lines:
            if self.mark in line:
                self.first = self.first or now
                text = line.rpartition(DELTA)[2]
                self.count += sum(map(text.count, PIECES))
            elif self.end in line:
                self.end_turns(1, now)

    def look(self) -> None:
        """All has come."""

    def end_turns(self, times: int, now: int) -> None:
        self.turns -= times
        if self.turns <= 0:
            self.last = now
            self.done.set()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.is_set():
            self.error = f"the connection was lost: {error}"
        self.ready.set()
        self.done.set()


class StampReader(Reader):
    """When each piece was written, and how long it took. Only for streams that carry that.

    Looked at when all has come: meanwhile it would take a third of a processor from what is measured.
    """

    def __init__(self, *more) -> None:
        super().__init__(*more)
        self.chunks: list[tuple[int, bytes]] = []

    def read(self, data: bytes, now: int) -> None:
        self.chunks.append((now, data))
        text = self.tail + data
        if self.end in text:
            self.end_turns(text.count(self.end) - self.tail.count(self.end), now)
        self.tail = text[1 - len(self.end) :]

    def look(self) -> None:
        """Line by line; a piece has come with the end of its line."""
        rest = b""
        for now, data in self.chunks:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if self.mark in line:
                    self.first = self.first or now
                    stamps = STAMP.findall(line)
                    self.count += len(stamps)
                    self.latencies += [now - int(stamp) for stamp in stamps]


class MissingEvent(Exception):
    """What did not come."""


async def wait(readers: list[Reader], name: str, seconds: float, what: str) -> None:
    """Until the event of this name is set for all of them. Raises Missing."""
    try:
        async with asyncio.timeout(seconds):
            for reader in readers:
                await getattr(reader, name).wait()
    except TimeoutError:
        left = [reader for reader in readers if not getattr(reader, name).is_set()]
        read = f"{min(reader.count for reader in left)} pieces, {left[0].size} bytes"
        raise MissingEvent(
            f"{what} has not come to {len(left)} of {len(readers)} readers within {seconds} s; one has {read}"
        ) from None
    if errors := [reader.error for reader in readers if reader.error]:
        raise MissingEvent(f"{len(errors)} of {len(readers)} readers: {errors[0]}")


async def main() -> None:
    host, port, count, target, mark, end, turns, kind, answer_s = sys.argv[1:10]
    encoding = sys.argv[10] if len(sys.argv) > 10 else ""
    more = f"Accept-Encoding: {encoding}\r\n" if encoding else ""
    make = StampReader if kind == "stamps" else Reader
    request = (
        f"GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: opencode/1.18.33\r\n{more}Accept: text/event-stream\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    readers: list[Reader] = []
    for _ in range(int(count)):
        reader = make(request.encode(), mark.encode(), end.encode(), int(turns), encoding)
        async with asyncio.timeout(CONNECT_S):
            await loop.create_connection(lambda reader=reader: reader, host, int(port))
        readers.append(reader)
    await wait(readers, "ready", CONNECT_S, "the beginning of the stream")
    print("ready", flush=True)
    await wait(readers, "done", float(answer_s), f"{end} for the {turns}. time")
    for reader in readers:
        reader.look()
    print(json.dumps({
        "counts": [reader.count for reader in readers],
        "bytes": [reader.size for reader in readers],
        "first_ns": min(reader.first for reader in readers),
        "end_ns": max(reader.last for reader in readers),
        "latencies_ns": [value for reader in readers for value in reader.latencies],
    }))  # fmt: skip


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (MissingEvent, OSError) as error:
        print(json.dumps({"error": str(error) or repr(error)}))
        sys.exit(1)
