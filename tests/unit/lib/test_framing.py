"""Lines out of bytes, case by case."""

from __future__ import annotations

import json
import time
import tracemalloc

import pytest

from universal.lib.framing import HEAD_BYTES, FrameError, LineFramer

CASES: dict[str, tuple[list[bytes], list[bytes]]] = {
    "nothing": ([b""], []),
    "one line": ([b"a\n"], [b"a"]),
    "two in one push": ([b"a\nb\n"], [b"a", b"b"]),
    "one in two pushes": ([b"a", b"b\n"], [b"ab"]),
    "newline alone": ([b"a", b"\n"], [b"a"]),
    "crlf": ([b"a\r\nb\r\n"], [b"a", b"b"]),
    "crlf cut in two": ([b"a\r", b"\nb"], [b"a", b"b"]),
    "only one cr is dropped": ([b"a\r\r\n"], [b"a\r"]),
    "cr inside stays": ([b"a\rb\n"], [b"a\rb"]),
    "empty lines are lines": ([b"\n\na\n"], [b"", b"", b"a"]),
    "no newline at the end": ([b"a\nb"], [b"a", b"b"]),
    "cr at the end": ([b"a\r"], [b"a"]),
    "unicode line separators do not cut": (["\u2028\x0b\x0c\x1c\x85\n".encode()], ["\u2028\x0b\x0c\x1c\x85".encode()]),
    "a character cut in two": (["é".encode()[:1], "é\n".encode()[1:]], ["é".encode()]),
    "bytes that are no text": ([b"\xff\x00\xfe\n"], [b"\xff\x00\xfe"]),
}


@pytest.mark.parametrize(("pushed", "lines"), CASES.values(), ids=CASES.keys())
def test_lines(pushed: list[bytes], lines: list[bytes]) -> None:
    framer = LineFramer()
    assert [line for data in pushed for line in framer.push(data)] + framer.close() == lines


def test_a_line_of_the_limit_is_kept_and_one_more_byte_is_not() -> None:
    framer = LineFramer(limit_bytes=4)
    assert framer.push(b"1234\n12345\n123\n") == [b"1234", FrameError(5, b"12345"), b"123"]


def test_a_dropped_line_that_comes_in_pieces() -> None:
    framer = LineFramer(limit_bytes=300)
    assert framer.push(b"x" * 200) == []
    assert framer.push(b"y" * 200) == []
    assert framer.push(b"z" * 1000) == []
    assert framer.push(b"\nnext\n") == [FrameError(1400, b"x" * 200 + b"y" * (HEAD_BYTES - 200)), b"next"]


def test_a_dropped_line_without_an_end_is_reported_at_close() -> None:
    framer = LineFramer(limit_bytes=2)
    assert framer.push(b"abcd") == []
    assert framer.close() == [FrameError(4, b"abcd")]
    assert framer.close() == []


def test_close_leaves_an_empty_framer() -> None:
    framer = LineFramer()
    framer.push(b"half")
    assert framer.close() == [b"half"]
    assert framer.close() == []
    assert framer.push(b"line\n") == [b"line"]


@pytest.mark.parametrize("head", [b'{"a":1}' + b" " * 250, b'{"a":"' + b"x" * 250, b"[]", b"1", b""])
def test_the_stand_in_is_never_json(head: bytes) -> None:
    with pytest.raises(ValueError):
        json.loads(FrameError(40_000_000, head).stand_in())


def test_memory_is_bounded_while_a_line_is_dropped() -> None:
    framer = LineFramer(limit_bytes=100_000)
    tracemalloc.start()
    for _ in range(1_000):
        framer.push(b"x" * 10_000)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert framer.push(b"\n") == [FrameError(10_000_000, b"x" * HEAD_BYTES)]
    assert peak_bytes < 500_000


def test_long_lines_cost_no_more_per_byte_than_short_ones() -> None:
    """A framer that joins or searches again at each push takes minutes here: 8 MB in cuts of 64 bytes, as one line."""
    framer, piece = LineFramer(), b"x" * 64
    started = time.perf_counter()
    for _ in range(8 * 1024 * 1024 // 64):
        framer.push(piece)
    assert framer.push(b"\n") == [b"x" * (8 * 1024 * 1024)]
    assert time.perf_counter() - started < 5
