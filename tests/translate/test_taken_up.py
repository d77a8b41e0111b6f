"""A law of codecs: with the same calls and lines a new one says the same, so that the next server can go on (`lost_turns`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shim.lib.clock import ManualClock
from shim.processes.holder_link import HolderStart
from shim.sessions.session.lost_turns import NotExact, Open, read_calls, replay
from shim.sessions.session.tape import CALLS, Tape
from tests.support import recordings
from tests.support.replay import Replay, codec_of
from universal.codec import Output, WriteLine
from universal.lib.jsonvalue import JsonObject

CUTS = 6
"""Places of a recording at which a server ends."""
NAMES = [name for name in recordings.names() if recordings.is_ours(name) or name.startswith("amp/")]


class CallStore:
    """What a store keeps of tapes, as JSON."""

    clock, folder, starts = ManualClock(), Path("/held"), HolderStart()

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}

    def put(self, tape: Tape, namespace: str, key: str, value: JsonObject) -> None:
        self.calls[key] = json.dumps(value)

    def touch(self, tape: Tape) -> None: ...


def new_tape(kept: Any, row: JsonObject | None = None) -> Tape:
    return Tape(kept, "ses_1", lambda: None, row)


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


def plain(outputs: list[Output]) -> list[Any]:
    return [output.data if isinstance(output, WriteLine) else output for output in outputs]


def is_played_daily(name: str) -> bool:
    """Whether a recording is played each time: of the newest versions, scenes with much to go on with."""
    return recordings.is_newest(name) and name.rsplit("/")[-1] in ("task", "question", "queue", "mcp", "abort_tool")


@pytest.mark.parametrize("name", [recordings.older_is_slow(name, not is_played_daily(name)) for name in NAMES])
def test_a_codec_that_is_replayed_says_the_same(name: str) -> None:
    recording = recordings.read(name)
    kept, outputs, lines = CallStore(), list[Output](), list[bytes]()
    tape, codec = new_tape(kept), codec_of(recording.agent)
    rows = listen(tape, codec, outputs, lines)
    Replay(recording.agent, codec).play(recording)
    assert tape.is_exact
    said, token = plain(outputs), {"folder": "/held/t", "secret": "00", "token": "t", "began_ms": 0}
    for row, count in [*rows[:: max(1, len(rows) // CUTS)], rows[-1]]:
        again, heard = codec_of(recording.agent), list[Output]()
        other = new_tape(kept, token)
        listen(other, again, heard, [])
        calls = read_calls({key: json.loads(call) for key, call in kept.calls.items()}, row, tape.notes)
        due = replay(other, again, row, lines, calls, Open())
        assert plain(heard) == said[:count]
        assert list(due.values()) == [output.data for output in outputs[:count] if isinstance(output, WriteLine)]


@pytest.mark.parametrize("key", ["outputs", "writes"])
def test_a_row_that_does_not_fit_is_refused(key: str) -> None:
    recording = recordings.read(NAMES[0])
    kept, lines = CallStore(), list[bytes]()
    tape, codec = new_tape(kept), codec_of(recording.agent)
    rows = listen(tape, codec, [], lines)
    Replay(recording.agent, codec).play(recording)
    other, again = new_tape(kept), codec_of(recording.agent)
    other.listen(again)
    row = {**rows[-1][0], key: rows[-1][0][key] - 1}
    calls = read_calls({key: json.loads(call) for key, call in kept.calls.items()}, row, ())
    with pytest.raises(NotExact):
        replay(other, again, row, lines, calls, Open())
