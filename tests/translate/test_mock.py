"""Recordings of the mock: the agent still says what was recorded, and the codec makes of it what was accepted.

`compat_fixtures/agents/mock/SCENE.jsonl` is the native traffic, `.../universal/SCENE.jsonl` what the codec makes of it.
After a change that is meant: SHIM_ACCEPT=1 pytest tests/translate/test_mock.py, and read the differences.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from shim.dev.record.driver import FORM, counting_ids
from shim.processes.mock.agent import VERSION
from tests.fakes.mock_scenarios import SCENARIOS, play
from tests.fakes.mock_session import MockSession
from tests.support import recordings
from tests.support import replay as engine
from tests.support.opencode1_views import view
from tests.support.replay import Replay
from tests.support.two_faces import check_opencode2
from universal.agents.mock.codec import MockCodec
from universal.codec import Fact, Output, SetTimer, Signal, WriteLine
from universal.events import ItemDeltaData

FIXTURES = Path(__file__).parents[2] / "compat_fixtures" / "agents" / "mock"
DIRECTORY = "/project"
ACCEPT = os.environ.get("SHIM_ACCEPT") == "1"
Row = dict[str, Any]


def rows_of(session: MockSession, name: str) -> list[Row]:
    """A session's traffic as rows of a recording."""
    rows: list[Row] = [{"form": FORM, "cmd": ["mock"], "agent": "mock", "version": VERSION, "scene": name, "launch": {}}]
    for direction, line in session.traffic:
        neutral = line.replace(str(session.directory).encode(), DIRECTORY.encode())
        rows.append({"dir": direction, "msg": orjson.loads(neutral) if line[:1] == b"{" else line.decode()})
    assert session.exit is not None
    rows.append({"dir": "exit", "msg": {"code": session.exit.code, "signal": session.exit.signal}})
    return rows


class Compact(Replay):
    """Hears lines without blanks, as the mock writes them: hashes of lines that nobody understood are of these bytes."""

    def hear(self, line: bytes) -> None:
        super().hear(orjson.dumps(orjson.loads(line)) if line.startswith(b"{") else line)


def translation_row(output: Output) -> Row:
    """An output as a line of the accepted translation; raw payloads are left out, they are the recording."""
    if isinstance(output, Signal):
        row = {"signal": output.input, "key": output.key, "aborted": output.aborted, "error": output.error}
        row |= {"metadata": output.metadata, "child": output.child}
    else:
        assert isinstance(output, Fact)
        row = {"fact": output.type, "synthetic": output.synthetic, "child": output.child}
        row["data"] = output.data.model_dump(mode="json", exclude_none=True, by_alias=True)
    row = {key: value for key, value in row.items() if value not in (None, "", False)}
    if row.get("fact") == "item.delta" and len(row) == 2 and len(row["data"]) == DELTA_FIELDS:
        return {"delta": [*row["data"].values()]}  # most rows are pieces of text: their values alone
    return row


DELTA_FIELDS = len(ItemDeltaData.model_fields)


def dump(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def load(path: Path) -> list[Row]:
    assert path.exists(), f"{path.name} was never recorded: SHIM_ACCEPT=1 pytest {Path(__file__).name}"
    return [orjson.loads(line) for line in path.read_bytes().split(b"\n") if line]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_mock_says_what_was_recorded(name: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    rows = rows_of(asyncio.run(play(SCENARIOS[name], (tmp_path / "project").resolve())), name)
    if ACCEPT:
        dump(FIXTURES / f"{name}.jsonl", rows)
    assert rows == load(FIXTURES / f"{name}.jsonl")


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_codec_makes_of_it_what_was_accepted(name: str) -> None:
    """Fed to a new codec. What we send must be what was recorded."""
    recording = recordings.read(f"mock/{name}")
    played = Compact("mock", MockCodec(counting_ids())).play(recording)
    assert played.written_lines() == [row.msg for row in recording.rows if row.direction == "in"]
    rows = [translation_row(output) for output in played.outputs if not isinstance(output, WriteLine | SetTimer)]
    path = FIXTURES / "universal" / f"{name}.jsonl"
    if ACCEPT:
        dump(path, rows)
    assert rows == load(path)
    unparsed = {key: n for key, n in played.codec.counters().items() if key.startswith("unparsed:")}
    assert unparsed == ({"unparsed:horoscope": 1, "unparsed:not JSON": 1} if name == "unparsed" else {})


@pytest.mark.parametrize("name", SCENARIOS)
async def test_clients_of_2x_see_what_clients_of_1x_see(name: str) -> None:
    """Every event and message is as OpenCode 2's wire has them; folded, they are what either face reads."""
    played = engine.play(f"mock/{name}")
    for state in played.states.values():
        check_opencode2(await played.store.events(state.id), "mock", view(state.session))


def test_no_recording_is_left_over() -> None:
    assert {p.stem for p in FIXTURES.glob("*.jsonl")} == set(SCENARIOS)
    assert {p.stem for p in FIXTURES.glob("universal/*.jsonl")} == set(SCENARIOS)


def test_every_kind_of_line_is_recorded() -> None:
    kinds = {
        row["msg"]["type"]
        for name in SCENARIOS
        for row in load(FIXTURES / f"{name}.jsonl")[1:]
        if row["dir"] == "out" and isinstance(row["msg"], dict)
    }
    assert kinds == {*MockCodec.HANDLERS, "horoscope"}
