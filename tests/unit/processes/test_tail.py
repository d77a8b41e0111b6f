"""What is kept of an agent's stderr: its beginning and its end."""

from __future__ import annotations

import pytest

from shim.processes.tail import HEAD_BYTES, TAIL_BYTES, Tail, parse_tail


def text(*pieces: bytes) -> str:
    tail = Tail()
    for piece in pieces:
        tail.add(piece)
    return tail.text()


def number_lines(*range_: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(*range_))


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], ""),
        ([b""], ""),
        ([b"one\n"], "one"),
        ([b"one\ntwo"], "one\ntwo"),
        ([b"o", b"ne\n\ntw", b"o\n"], "one\n\ntwo"),
        ([b"\xff\n"], "\ufffd"),
        ([number_lines(70)], "\n".join(map(str, range(70)))),
    ],
)
def test_a_short_output_is_kept_whole(pieces: list[bytes], expected: str) -> None:
    assert text(*pieces) == expected


def test_lines_in_the_middle_are_left_out() -> None:
    lines = text(number_lines(100)).split("\n")
    assert lines == [*map(str, range(20)), "... (30 lines left out) ...", *map(str, range(50, 100))]


def test_bytes_in_the_middle_are_left_out() -> None:
    lines = text(*(number_lines(n, n + 1) for n in range(100_000))).split("\n")
    assert lines[:20] == [*map(str, range(20))]
    assert lines[20].startswith("... (99930 lines, more than ")
    assert lines[21:] == [*map(str, range(99_950, 100_000))]


@pytest.mark.parametrize("piece", [1, 1000, HEAD_BYTES + TAIL_BYTES, 10**6])
def test_memory_is_bounded_without_a_newline_too(piece: int) -> None:
    output = text(*[b"x" * piece] * (10**6 // piece), b"END")
    assert len(output) <= HEAD_BYTES + TAIL_BYTES + 100
    assert output.startswith("xxx")
    assert output.endswith("xEND")


def test_nothing_is_left_out_of_an_output_at_the_limit() -> None:
    assert "left out" not in text(b"x" * (HEAD_BYTES + TAIL_BYTES))
    assert "1 bytes left out" in text(b"x" * (HEAD_BYTES + TAIL_BYTES + 1))


@pytest.mark.parametrize(("count", "truncated"), [(1, False), (70, False), (71, True), (100, True), (100_000, True)])
def test_a_tail_counts_all_lines(count: int, truncated: bool) -> None:
    stderr = parse_tail(text(number_lines(count)))
    assert stderr is not None
    assert (stderr.truncated, stderr.total_lines) == (truncated, count)
    lines = [str(number) for number in range(count)]
    assert (stderr.head or "").split("\n") == (lines[:20] if truncated else lines)
    assert stderr.tail == ("\n".join(lines[-50:]) if truncated else None)


def test_an_empty_output_has_no_head_and_no_tail() -> None:
    assert parse_tail(text()) is None
