"""A line that is too long becomes a short one with the same structure, however it is cut; or is refused."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.test_framing import cut
from universal.lib.framing import KEEP_BYTES, REQUEST_KEYS, FrameError, LineFramer, Shortener, ShortLine

KEEP = 16
TEXT = st.lists(st.sampled_from(['"', "\\", "\\n", "é", "\n", "a", "0", "u00e9", "\U0001f600", "\ud83d", "xxxxxx"])).map(" ".join)
NOTE = re.compile(r"\n\n\[\.\.\. (\d+) bytes were left out here: [^\]]*\]\n\n")


def shorten(line: bytes, at: list[int], limit: int = 10**6) -> bytes | None:
    one = Shortener(limit, KEEP)
    for piece in cut(line, at):
        one.push(piece)
    assert one.size_bytes == len(line)
    return one.close()


def is_same_text(short: str, whole: str, line: bytes) -> bool:
    """They are the same, or their ends are, and the number between them is what is missing of it in this line."""
    if short == whole:
        return True
    head, missing, tail = NOTE.split(short)
    escaped = line.isascii()

    def size(value: str) -> int:
        return len(json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")) - 2

    return whole.startswith(head) and whole.endswith(tail) and size(head) + int(missing) + size(tail) == size(whole)


@given(st.lists(TEXT, max_size=4), st.booleans(), st.lists(st.integers(0, 1000), max_size=20))
def test_shortened_json_stays_json(texts: list[str], escaped: bool, at: list[int]) -> None:
    escaped = escaped or any("\ud83d" in one for one in texts)  # half of a pair has no UTF-8: agents say it as an escape
    line = json.dumps({"type": "user", "texts": texts, "n": {"m": [1, None]}}, ensure_ascii=escaped).encode()
    short = shorten(line, at)
    assert short is not None
    assert len(short) <= len(line) + 100 * len(texts)
    found = json.loads(short)
    assert (found["type"], found["n"]) == ("user", {"m": [1, None]})
    assert len(found["texts"]) == len(texts)
    assert all(is_same_text(one, text, line) for one, text in zip(found["texts"], texts, strict=True))


@given(st.binary(), st.lists(st.integers(0, 10_000)))
def test_anything_is_shortened_or_refused(line: bytes, at: list[int]) -> None:
    short = shorten(line, at)
    assert short is None or isinstance(json.loads(short), dict)


@pytest.mark.parametrize("text", ["a ", "\n", '" ', "\\ ", "é ", "\U0001f600 ", "\U0001f600\U0001f600 "])
@pytest.mark.parametrize("escaped", [True, False])
def test_long_strings_lose_their_middle(text: str, escaped: bool) -> None:
    text *= 10_000
    line = json.dumps({"a": text, "b": [1, "short"]}, ensure_ascii=escaped).encode()
    short = shorten(line, list(range(0, len(line), 7)))
    assert short is not None
    assert len(short) < 300
    found = json.loads(short)
    assert found["b"] == [1, "short"]
    head, _, tail = NOTE.split(found["a"])
    assert set(head + tail) == set(text)


@pytest.mark.parametrize("key", REQUEST_KEYS)
def test_requests_are_never_shortened(key: str) -> None:
    """Its content is used: a file that an agent asks to write would lose its middle."""
    line = json.dumps({key: 1, "content": "x " * 500}).encode()
    assert shorten(line, []) is None


def test_binary_parts_are_never_shortened() -> None:
    """Half an image is no image."""
    assert shorten(json.dumps({"type": "image", "data": "iVBORw0KGgo" * 1000}).encode(), []) is None


def test_more_than_the_limit_is_refused_and_no_memory_kept() -> None:
    one = Shortener(1000, KEEP)
    for _ in range(100):
        one.push(b'{"a": [' + b"1, " * 100)
    assert one._out is None  # pyright: ignore[reportPrivateUsage] - what is kept is the point
    assert one.close() is None


def test_the_framer_gives_it_in_the_place_of_the_line() -> None:
    long = json.dumps({"type": "user", "content": "x " * 2500}).encode()
    framer = LineFramer(limit_bytes=1000, keep_bytes=KEEP)
    lines = [line for at in range(0, len(long), 64) for line in framer.push(long[at : at + 64])]
    lines += framer.push(b"\r\n{}\n" + b"y" * 2000 + b"\n{}\n")
    assert isinstance(lines[0], ShortLine)
    assert lines[0].size_bytes == len(long) + 1
    assert json.loads(lines[0])["type"] == "user"
    assert lines[1:] == [b"{}", FrameError(2000, b"y" * 256), b"{}"]


def test_fifty_megabytes_of_output_keep_their_ends() -> None:
    framer, piece = LineFramer(), b"line\\n" * 10_000
    lines = framer.push(b'{"type": "user", "content": "begin ')
    for _ in range(50 * 2**20 // len(piece)):
        lines += framer.push(piece)
    (line,) = lines + framer.push(b' end"}\n')
    assert isinstance(line, ShortLine)
    assert len(line) < 4 * KEEP_BYTES
    content = json.loads(line)["content"]
    assert content.startswith("begin line\n")
    assert content.endswith("line\n end")
    assert NOTE.search(content)
