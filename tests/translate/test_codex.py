"""Recordings of Codex 0.169.0, each played to a new codec: what holds for all of them, and what single scenes show."""

from __future__ import annotations

import pytest

from tests.support.codex_replay import CodexReplay
from tests.support.played import check_asks, check_clients, check_everything_is_known, check_items, check_turns
from tests.support.recordings import load, load_all

ALL = load_all("codex")
RECORDINGS = [r for r in ALL if "exec" not in r.argv]
"""`codex exec --json` is another dialect, which we do not speak; its recordings are kept beside."""
VERSION = "0.169.0"


async def play(scene: str) -> CodexReplay:
    replay = CodexReplay()
    await replay.begin()
    replay.play(load("codex", VERSION, scene))
    return replay


def test_all_recordings_are_here() -> None:
    assert (len(ALL), len(RECORDINGS)) == (57, 54)


@pytest.mark.parametrize("scene", [r.scene for r in RECORDINGS])
async def test_what_holds_for_every_recording(scene: str) -> None:
    replay = await play(scene)
    check_everything_is_known(replay)
    check_items(replay)
    check_asks(replay)
    check_turns(replay)
    await check_clients(replay)
    replay.check_children()
