"""What a terminal has said, by position, and how slow watchers are cut off."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from shim.host.terminals.scrollback import LAG_UNITS, PIECE_UNITS, Scrollback, Watcher


def units(text: str) -> int:
    """What JavaScript calls its length."""
    return len(text.encode("utf-16-le")) // 2


@given(st.lists(st.text(max_size=10), max_size=8), st.integers(0, 200))
def test_output_after_a_position(pieces: list[str], cut: int) -> None:
    kept = Scrollback(limit_units=10**6)
    for piece in pieces:
        kept.add(piece)
    whole = "".join(pieces)
    assert kept.cursor == units(whole)
    head = whole[: min(cut, len(whole))]
    assert "".join(kept.since(units(head))) == whole[len(head) :]
    assert kept.since(-1) == kept.since(kept.cursor) == kept.since(kept.cursor + 5) == []


def test_only_the_end_is_kept() -> None:
    kept = Scrollback(limit_units=10, slack_units=5)
    kept.add("0123456789abcde")
    assert "".join(kept.since(0)) == "0123456789abcde", "within the slack"
    kept.add("f")
    assert ("".join(kept.since(0)), kept.cursor) == ("6789abcdef", 16)
    assert "".join(kept.since(3)) == "6789abcdef", "what is gone is left out"
    assert "".join(kept.since(14)) == "ef"


def test_a_cursor_inside_of_a_character() -> None:
    kept = Scrollback()
    kept.add("🙂x")
    assert "".join(kept.since(1)) == "\ufffdx"


def test_long_output_comes_in_pieces() -> None:
    kept = Scrollback()
    kept.add("x" * (PIECE_UNITS + 1))
    assert [len(piece) for piece in kept.since(0)] == [PIECE_UNITS, 1]


async def all_text(watcher: Watcher) -> str:
    return "".join([text async for text in watcher])


async def test_a_watcher_gets_what_waits_and_then_the_end() -> None:
    watcher = Watcher()
    reading = asyncio.ensure_future(all_text(watcher))
    watcher.put("a")
    watcher.put("b")
    watcher.end()
    watcher.put("after the end")
    assert await asyncio.wait_for(reading, 5) == "ab"
    assert not watcher.lagged


async def test_a_watcher_that_does_not_read_is_cut_off() -> None:
    watcher = Watcher()
    for _ in range(LAG_UNITS // 2**16 + 1):
        watcher.put("x" * 2**16)
    assert await asyncio.wait_for(all_text(watcher), 5) == ""
    assert watcher.lagged
