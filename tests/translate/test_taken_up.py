"""A law of codecs: with the same calls and lines a new one says the same, so that the next server can go on (`lost_turns`)."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shim.lib.clock import ManualClock
from shim.processes.holder_link import HolderStart
from shim.sessions.session.lost_turns import NotExact, Open, read_calls, replay, replay_pieces, unsent
from shim.sessions.session.tape import CALLS, Tape
from tests.support import recordings
from tests.support.replay import Replay, codec_of
from universal.codec import Fact, Output, WriteLine
from universal.events import EventType
from universal.lib.jsonvalue import JsonObject

CUTS = 6
"""Places of a recording at which a server ends."""
NAMES = [name for name in recordings.names() if recordings.is_ours(name) or name.startswith("amp/")]


class Server:
    """What tapes need of `Tapes`. Nothing is stored."""

    clock, folder, starts = ManualClock(), Path("/held"), HolderStart()

    def __init__(self) -> None:
        self.touched: list[Tape] = []

    def hold(self) -> None: ...


def new_tape(row: JsonObject | None = None) -> Tape:
    server: Any = Server()
    return Tape(server, "ses_1", lambda: None, row)


def stored_calls(tape: Tape) -> JsonObject:
    """The calls of a tape as they come back from a store: number -> call."""
    return {number: json.loads(json.dumps(call)) for number, call in tape.new_calls}


def listen(tape: Tape, codec: Any, outputs: list[Output], lines: list[bytes]) -> list[tuple[JsonObject, int]]:
    """Note what a codec hears and says. Out: after each call, the row of its tape, and the number of outputs."""
    rows: list[tuple[JsonObject, int]] = []
    heard = codec.receive

    def receive(line: bytes) -> list[Output]:
        lines.append(line)
        return heard(line)

    codec.receive = receive
    tape.listen(codec)
    for name in ("receive", *CALLS):
        if (method := getattr(codec, name, None)) is not None:

            def call(*args: Any, method: Any = method) -> Any:
                given = method(*args)
                outputs.extend(given if isinstance(given, list) else ())
                row = {"lines": tape.lines, "outputs": tape.outputs, "writes": tape.writes, "calls": tape.calls}
                rows.append((row, len(outputs)))
                return given

            setattr(codec, name, call)
    return rows


def pieces_after(rows: list[tuple[JsonObject, int]], at: int, outputs: list[Output]) -> list[Any]:
    """The events of the lines after a row that are pieces of text alone: for them no row is written."""
    events: list[Any] = []
    for (before, count), (row, end) in pairwise(rows[at:]):
        output = outputs[count] if end == count + 1 else None
        if row["lines"] == before["lines"] or not isinstance(output, Fact) or output.type is not EventType.ITEM_DELTA:
            break
        events.append(SimpleNamespace(sequence=len(events), data=output.data))
    return events


def plain(outputs: list[Output]) -> list[Any]:
    return [output.data if isinstance(output, WriteLine) else output for output in outputs]


def is_played_daily(name: str) -> bool:
    """Whether a recording is played each time: of the newest versions, scenes with much to go on with."""
    return recordings.is_newest(name) and name.rsplit("/")[-1] in ("task", "question", "queue", "mcp", "abort_tool")


@pytest.mark.parametrize("name", [recordings.older_is_slow(name, not is_played_daily(name)) for name in NAMES])
def test_a_codec_that_is_replayed_says_the_same(name: str) -> None:
    recording = recordings.read(name)
    outputs, lines = list[Output](), list[bytes]()
    tape, codec = new_tape(), codec_of(recording.agent)
    rows = listen(tape, codec, outputs, lines)
    Replay(recording.agent, codec).play(recording)
    assert tape.is_exact
    said, token = plain(outputs), {"folder": "/held/t", "secret": "00", "token": "t", "began_ms": 0}
    for at in [*range(0, len(rows), max(1, len(rows) // CUTS)), len(rows) - 1]:
        row, count = rows[at]
        again, heard = codec_of(recording.agent), list[Output]()
        other = new_tape(token)
        listen(other, again, heard, [])
        due = replay(other, again, row, lines, read_calls(stored_calls(tape), row, tape.notes), Open())
        assert plain(heard) == said[:count]
        assert list(due.values()) == [output.data for output in outputs[:count] if isinstance(output, WriteLine)]
        pieces = pieces_after(rows, at, outputs)
        replay_pieces(other, again, lines, pieces, Open())
        assert (plain(heard), other.lines) == (said[: count + len(pieces)], row["lines"] + len(pieces))


@pytest.mark.parametrize("key", ["outputs", "writes"])
def test_a_row_that_does_not_fit_is_refused(key: str) -> None:
    recording = recordings.read(NAMES[0])
    lines = list[bytes]()
    tape, codec = new_tape(), codec_of(recording.agent)
    rows = listen(tape, codec, [], lines)
    Replay(recording.agent, codec).play(recording)
    other, again = new_tape(), codec_of(recording.agent)
    other.listen(again)
    row = {**rows[-1][0], key: rows[-1][0][key] - 1}
    with pytest.raises(NotExact):
        replay(other, again, row, lines, read_calls(stored_calls(tape), row, ()), Open())


def test_an_agent_that_knows_more_than_the_store_is_refused() -> None:
    """A full disk may have let a line through. Another one with its number would be taken for it."""
    assert unsent({1: b"a", 2: b"b", 3: b"c"}, {1}) == [2, 3]
    with pytest.raises(NotExact):
        unsent({1: b"a"}, {1, 2})


@pytest.mark.parametrize("wrong", ["text", "line"])
def test_a_stored_piece_that_the_lines_do_not_give_is_refused(wrong: str) -> None:
    recording = recordings.read(next(name for name in NAMES if name.startswith("claude") and name.endswith("/task")))
    outputs, lines = list[Output](), list[bytes]()
    tape, codec = new_tape(), codec_of(recording.agent)
    rows = listen(tape, codec, outputs, lines)
    Replay(recording.agent, codec).play(recording)
    at = next(at for at in range(len(rows)) if len(pieces_after(rows, at, outputs)) > 1)
    row, pieces = rows[at][0], pieces_after(rows, at, outputs)
    stored = [*pieces[:1], pieces[0]] if wrong == "text" else [*pieces, pieces[0]]
    other, again = new_tape({"folder": "/held/t", "secret": "00", "token": "t", "began_ms": 0}), codec_of(recording.agent)
    other.listen(again)
    replay(other, again, row, lines, read_calls(stored_calls(tape), row, tape.notes), Open())
    with pytest.raises(NotExact):
        replay_pieces(other, again, lines, stored, Open())
