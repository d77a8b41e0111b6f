"""However the bytes are cut, the lines are the same."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from universal.lib.framing import Framed, FrameError, LineFramer

STREAM = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"{}", b"0123456789", b"\xff", "\u2028".encode()])).map(b"".join)
LIMIT = 12


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """`data` cut at these places (taken modulo its length); there may be empty pieces."""
    places = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def frame(pieces: list[bytes]) -> list[Framed]:
    framer = LineFramer(limit_bytes=LIMIT, keep_bytes=2)
    return [line for piece in pieces for line in framer.push(piece)] + framer.close()


def reference(data: bytes) -> list[Framed]:
    """What the lines are, said another way."""
    *ended, last = data.split(b"\n")
    lines = ended + ([last] if last else [])
    return [FrameError(len(line), line[:256]) if len(line) > LIMIT else line.removesuffix(b"\r") for line in lines]


@given(STREAM, st.lists(st.integers(0, 10_000)))
def test_any_cut_gives_the_same_lines(data: bytes, at: list[int]) -> None:
    assert frame(cut(data, at)) == reference(data)


@given(STREAM)
def test_byte_by_byte(data: bytes) -> None:
    assert frame([data[i : i + 1] for i in range(len(data))]) == reference(data)
