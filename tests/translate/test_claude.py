"""Recordings of Claude Code 2.1.197 and 2.1.330, each played to a new codec: what holds for all of them.

What single scenes show is in `test_claude_scenes.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from tests.support import replay as engine
from tests.support.recordings import Recording, load_all, older_is_slow
from tests.support.replay import Replay, codec_of
from tests.support.replay_checks import check_replay
from universal.codec import Fact, Signal
from universal.events import EventType
from universal.items import ItemKind, ItemRole, ItemStatus
from universal.lib.framing import LineFramer

RECORDINGS = load_all("claude")
BOTH = ("2.1.197", "2.1.330")
OLD, NEW = BOTH
POWERS = "2.1.332-powers"

HAVE_BOTH = sorted({r.scene for r in RECORDINGS if r.version == OLD} & {r.scene for r in RECORDINGS if r.version == NEW})


def replay_of(form: type[Replay], recording: Recording) -> Replay:
    """A recording, played to a new codec."""
    return form("claude", codec_of("claude")).play(recording)


def play(version: str, scene: str) -> Replay:
    return engine.play(f"claude/{version}/{scene}")


def test_all_recordings_are_here() -> None:
    assert Counter(r.version for r in RECORDINGS) == {OLD: 66, NEW: 71, POWERS: 17}


# --- what holds for every recording -------------------------------------------------------------------------


@pytest.mark.parametrize("recording", [older_is_slow(recording, recording.version == OLD) for recording in RECORDINGS], ids=str)
async def test_laws_of_every_recording(recording: Recording) -> None:
    """Our answers are those of the recording, and the same bytes in pieces of any size give the same outputs."""
    replay = replay_of(Replay, recording)
    recorded = answers(row.msg for row in recording.rows if row.direction == "in")
    assert answers(replay.written_lines()) == recorded
    assert replay_of(Cut, recording).outputs == replay.outputs
    await check_replay(replay)
    check_titles(replay)
    check_children(replay)


def check_titles(replay: Replay) -> None:
    """Each whole call has a title."""
    for item in replay.items(ItemKind.TOOL_CALL):
        assert item.status is ItemStatus.FAILED or item.metadata["title"]


def check_children(replay: Replay) -> None:
    """A subagent's session is opened before it speaks, by its call, and begins with its prompt."""
    open_sessions: set[str | None] = {None}
    for output in replay.outputs:
        if isinstance(output, Fact) and output.type is EventType.SESSION_STARTED:
            assert output.child not in open_sessions
            open_sessions.add(output.child)
        elif isinstance(output, Fact | Signal):
            assert output.child in open_sessions
    calls = {item.native_item_id: item.item_id for item in replay.items(ItemKind.TOOL_CALL)}
    for fact in replay.facts(EventType.SESSION_STARTED):
        assert fact.data.metadata["parent_item_id"] == calls[fact.child]
        assert replay.texts(ItemRole.USER, fact.child) == [fact.data.metadata["prompt"]]


class Cut(Replay):
    """Hears the lines of a recording in pieces of any size."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.random = random.Random(0)
        self.framer = LineFramer(32 * 2**20)

    def hear(self, line: bytes) -> None:
        rest = line + b"\n"
        while rest:
            size = self.random.randint(1, 4000)
            for whole in self.framer.push(rest[:size]):
                self.receive(whole)
            rest = rest[size:]


def answers(lines: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Answers to asks among the lines to Claude Code, by the id of the ask, without what only says more."""
    responses = [line["response"] for line in lines if isinstance(line, dict) and line["type"] == "control_response"]
    return {
        response["request_id"]: {k: v for k, v in response["response"].items() if k not in ("updatedPermissions", "interrupt")}
        for response in responses
        if "behavior" in response["response"]
    }


def test_recordings_hold_answers() -> None:
    assert sum(len(answers(row.msg for row in r.rows if row.direction == "in")) for r in RECORDINGS) > len(BOTH)


@pytest.mark.parametrize("scene", HAVE_BOTH)
def test_both_versions_end_alike(scene: str) -> None:
    """The same story for the turn machine; known differences aside."""
    differ = {
        "task_forward": "2.1.330 runs the agent tool in the background, and these were recorded without states",
        "bad_start.bad_flag": "2.1.330 died before the prompt could be written",
        "bad_start.bad_mode": "2.1.330 died before the prompt could be written",
        "bad_start.root_bypass_mode": "2.1.330 died before the prompt could be written",
        "bad_start.root_skip_permissions": "2.1.330 died before the prompt could be written",
        "bad_start.root_skip_permissions_sandboxyes": "2.1.330 died before the prompt could be written",
    }
    old, new = (play(version, scene).turns() for version in BOTH)
    assert (old == new) is (scene not in differ)
