"""The file in which probes outlive a restart: it is small, private, and never in the way of a start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shim.faces.opencode2.probes import AGENT_LIMIT_CHARS, Probe, ProbeFile, Probes

NODE = ("127.0.0.1", "node")


async def test_a_client_is_the_same_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "data" / "clients.json"
    probes = Probes()
    file = ProbeFile(path, probes)
    await file.start()
    probes.note(NODE, "v2_july")
    probes.note(("127.0.0.1", "x" * (AGENT_LIMIT_CHARS + 1)), "v2_july")
    await file.close()
    assert path.stat().st_mode & 0o777 == 0o600
    again = Probes()
    await ProbeFile(path, again).start()
    assert again.unusual() == [Probe(*NODE, "v2_july")]


async def test_nothing_is_written_for_clients_that_say_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "clients.json"
    probes = Probes()
    file = ProbeFile(path, probes)
    await file.start()
    await file.close()
    assert not path.exists()


@pytest.mark.parametrize(
    "content",
    ["", "not json", "[]", '{"probes": 7}', '{"probes": [{"address": 1, "user_agent": "a", "dialect": "v2_july"}, 3]}'],
)
async def test_a_file_that_makes_no_sense_is_no_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "clients.json"
    path.write_text(content)
    probes = Probes()
    await ProbeFile(path, probes).start()
    assert probes.unusual() == []


async def test_a_file_of_letters_is_read_as_names(tmp_path: Path) -> None:
    path = tmp_path / "clients.json"
    letters = {"node": "J", "Mozilla/5.0": "W", "curl": "Z"}
    rows = [{"address": "::1", "user_agent": agent, "dialect": letter} for agent, letter in letters.items()]
    path.write_text(json.dumps({"probes": rows}))
    probes = Probes()
    await ProbeFile(path, probes).start()
    assert [probes.last(("::1", agent)) for agent in letters] == ["v2_july", "web_ui", None]


async def test_a_disk_that_refuses_costs_nothing_but_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "clients.json"
    path.mkdir()  # it can neither be read nor replaced
    probes = Probes()
    file = ProbeFile(path, probes)
    await file.start()
    probes.note(NODE, "v2_july")
    await file.close()
    assert probes.last(NODE) == "v2_july"


async def test_the_file_says_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "clients.json"
    probes = Probes()
    file = ProbeFile(path, probes)
    await file.start()
    for dialect in ("v2_july", "web_ui"):
        probes.note(NODE, dialect)
    await file.close()
    assert json.loads(path.read_text()) == {"probes": [{"address": "127.0.0.1", "user_agent": "node", "dialect": "web_ui"}]}
