"""Streams that never block who writes to them, over real pipes."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from shim.lib.bounded_output import BoundedStream, bounded_output, dropped_lines

WAIT_S = 10.0
LINE = "x" * 99 + "\n"


class Pipe:
    """Its ends, and a stream that writes into it."""

    def __init__(self) -> None:
        self.inner, outer = os.pipe()
        self.original: TextIO = os.fdopen(outer, "w", encoding="utf-8")

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = os.read(self.inner, size - len(data))
            assert piece, "it was closed"
            data += piece
        return data


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.original.close()
    os.close(made.inner)


def test_output_comes_whole_and_in_order(pipe: Pipe) -> None:
    stream = BoundedStream("stdout", pipe.original)
    lines = [f"{number} é\n" for number in range(500)]
    stream.writelines(lines)
    expected = "".join(lines).encode()
    assert pipe.read(len(expected)) == expected
    stream.finish(WAIT_S)
    assert stream.dropped == 0


def test_whole_lines_are_dropped_and_counted_without_a_reader(pipe: Pipe) -> None:
    stream = BoundedStream("stdout", pipe.original, limit_bytes=20_000)
    for _ in range(5000):
        stream.write(LINE)
    assert stream.dropped > 3000
    kept = 5000 - stream.dropped
    assert pipe.read(kept * len(LINE)) == LINE.encode() * kept
    stream.finish(WAIT_S)


def test_the_end_does_not_wait_for_a_reader(pipe: Pipe) -> None:
    stream = BoundedStream("stdout", pipe.original)
    for _ in range(5000):
        stream.write(LINE)
    begun = time.monotonic()
    stream.finish(0.1)
    assert time.monotonic() - begun < WAIT_S
    stream.write(LINE)  # nobody waits now either


def test_output_that_waits_at_the_end_is_written(pipe: Pipe) -> None:
    stream = BoundedStream("stdout", pipe.original)
    for _ in range(100):
        stream.write(LINE)
    stream.finish(WAIT_S)
    assert pipe.read(100 * len(LINE)) == LINE.encode() * 100
    stream.write("after the end\n")
    assert pipe.read(14) == b"after the end\n"


def test_a_reader_that_has_gone_raises_nothing() -> None:
    pipe = Pipe()
    os.close(pipe.inner)
    stream = BoundedStream("stdout", pipe.original)
    for _ in range(10):
        stream.write(LINE)
    stream.finish(WAIT_S)
    assert stream.dropped == 10
    pipe.original.close()


def test_streams_are_replaced_and_put_back(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    without = io.StringIO()
    monkeypatch.setattr(sys, "stderr", without)
    monkeypatch.setattr(sys, "stdout", pipe.original)
    with bounded_output():
        assert isinstance(sys.stdout, BoundedStream)
        assert sys.stderr is without, "it has no file descriptor"
        assert dropped_lines() == {"stdout": 0}
        sys.stdout.write("hello\n")
    assert sys.stdout is pipe.original
    assert dropped_lines() == {}
    assert pipe.read(6) == b"hello\n"
