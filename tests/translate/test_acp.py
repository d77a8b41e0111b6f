"""Recordings of five ACP agents: what holds for all of them, and what single scenes show."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.acp_replay import PROFILES, AcpReplay
from tests.support.played import check_asks, check_clients, check_everything_is_known, check_items, check_turns
from tests.support.recordings import load, load_all

RECORDINGS = load_all("acp")
CLAUDE, CODEX, OPENCODE, PI, ZED = PROFILES


async def play(version: str, scene: str) -> AcpReplay:
    replay = AcpReplay.of(version)
    await replay.begin()
    replay.play(load("acp", version, scene))
    return replay


def test_all_recordings_are_here() -> None:
    assert Counter(r.version for r in RECORDINGS) == {CLAUDE: 28, CODEX: 28, OPENCODE: 9, PI: 15, ZED: 8}


@pytest.mark.parametrize("name", [(r.version, r.scene) for r in RECORDINGS], ids="/".join)
async def test_a_recording(name: tuple[str, str]) -> None:
    replay = await play(*name)
    check_everything_is_known(replay)
    check_items(replay)
    check_asks(replay)
    check_turns(replay)
    await check_clients(replay)
