"""Recordings of Claude Code 2.1.197 and 2.1.330, each played to a new codec: what holds for all of them.

What single scenes show is in `test_claude_scenes.py`.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.support.claude_replay import Replay
from tests.support.recordings import Recording, load, load_all
from universal.codec import Fact, Signal
from universal.events import EventType
from universal.framing import LineFramer
from universal.items import ItemKind, ItemRole, ItemStatus
from universal.turn import Ended, Started

RECORDINGS = load_all("claude")
BOTH = ("2.1.197", "2.1.330")
OLD, NEW = BOTH

HAVE_BOTH = sorted({r.scene for r in RECORDINGS if r.version == OLD} & {r.scene for r in RECORDINGS if r.version == NEW})


def play(version: str, scene: str) -> Replay:
    return Replay().play(load("claude", version, scene))


@pytest.fixture(params=RECORDINGS, ids=str, scope="module")
def replay(request: pytest.FixtureRequest) -> Replay:
    """Each recording, played once."""
    return Replay().play(request.param)


def test_all_recordings_are_here() -> None:
    assert Counter(r.version for r in RECORDINGS) == {OLD: 66, NEW: 71}


# --- what holds for every recording -------------------------------------------------------------------------


def test_everything_is_known(replay: Replay) -> None:
    assert replay.unparsed() == []
    assert [name for name in replay.codec.counters() if name.startswith("unparsed")] == []


def test_texts_are_the_sum_of_their_deltas(replay: Replay) -> None:
    """By part: `part_index` is the part's place in the finished message, `part_type` its type."""
    deltas: dict[tuple[str, int, str], str] = {}
    for fact in replay.facts(EventType.ITEM_DELTA):
        key = (fact.data.item_id, fact.data.part_index, fact.data.part_type)
        deltas[key] = deltas.get(key, "") + fact.data.delta
    said = {
        (item.item_id, index, part.type): part.text
        for item in replay.items(ItemKind.MESSAGE)
        if item.role is ItemRole.ASSISTANT
        for index, part in enumerate(item.content)
    }
    assert said == {key: text for key, text in deltas.items() if key[2] != "tool_input"}
    assert all(said.values())


def test_items_are_started_then_completed_once(replay: Replay) -> None:
    started: list[str] = []
    completed: list[str] = []
    for fact in replay.facts():
        if fact.type is EventType.ITEM_STARTED:
            assert fact.data.item.item_id not in started + completed
            started.append(fact.data.item.item_id)
        elif fact.type is EventType.ITEM_DELTA:
            assert fact.data.item_id in started
            assert fact.data.item_id not in completed
        elif fact.type is EventType.ITEM_COMPLETED:
            item = fact.data.item
            assert item.item_id not in completed
            completed.append(item.item_id)
            speaks = item.kind is ItemKind.MESSAGE and item.role is ItemRole.ASSISTANT
            assert not (speaks or item.kind is ItemKind.TOOL_CALL) or item.item_id in started
    assert set(started) <= set(completed)


def test_tools_belong_to_messages_and_have_one_result(replay: Replay) -> None:
    messages = {f.data.item.item_id for f in replay.facts(EventType.ITEM_STARTED) if f.data.item.kind is ItemKind.MESSAGE}
    calls = replay.items(ItemKind.TOOL_CALL)
    results = replay.items(ItemKind.TOOL_RESULT)
    assert all(item.parent_id in messages for item in calls + results)
    whole = [item.native_item_id for item in calls if item.status is ItemStatus.COMPLETED]
    assert sorted(whole) == sorted(item.content[0].call_id for item in results)
    assert len(set(whole)) == len(whole)
    for item in calls:
        assert item.status is ItemStatus.FAILED or item.metadata["title"]


def test_turns_end_once(replay: Replay) -> None:
    for child, machine in replay.machines.items():
        effects = [type(effect) for key, effect in replay.effects if key == child]
        assert not machine.busy
        assert effects.count(Started) == effects.count(Ended)
        assert [e for e in effects if e in (Started, Ended)] == [Started, Ended] * effects.count(Ended)


def test_nothing_is_said_while_no_turn_runs(replay: Replay) -> None:
    """Such items would be bookkeeping: nobody would see them."""
    assert replay.idle_items == []


def test_children_are_opened_before_they_speak(replay: Replay) -> None:
    known: set[str | None] = {None}
    for output in replay.outputs:
        if isinstance(output, Fact) and output.type is EventType.SESSION_STARTED:
            assert output.child not in known
            known.add(output.child)
        elif isinstance(output, (Fact, Signal)):
            assert output.child in known
    calls = {item.native_item_id: item.item_id for item in replay.items(ItemKind.TOOL_CALL)}
    for fact in replay.facts(EventType.SESSION_STARTED):
        assert fact.data.metadata["parent_item_id"] == calls[fact.child]
        prompts = replay.texts(ItemRole.USER, fact.child)
        assert prompts == [fact.data.metadata["prompt"]]


def ask_id(fact: Fact) -> str:
    data = fact.data
    return data.permission_id if fact.type.startswith("permission") else data.question_id


def test_asks_are_resolved_once(replay: Replay) -> None:
    for requested, resolved in (
        (EventType.PERMISSION_REQUESTED, EventType.PERMISSION_RESOLVED),
        (EventType.QUESTION_REQUESTED, EventType.QUESTION_RESOLVED),
    ):
        ids = [
            [getattr(f.data, "permission_id", "") or f.data.question_id for f in replay.facts(t)] for t in (requested, resolved)
        ]
        assert ids[0] == ids[1]
        assert len(set(ids[0])) == len(ids[0])


def test_raw_is_kept(replay: Replay) -> None:
    assert all(fact.raw is not None for fact in replay.facts() if not fact.synthetic)


@pytest.mark.parametrize("recording", RECORDINGS, ids=str)
def test_cuts_do_not_matter(recording: Recording) -> None:
    """The same bytes, in pieces of any size, give the same outputs."""
    rng = random.Random(f"{recording}")
    framer = LineFramer(32 * 2**20)

    def feed(replay: Replay, line: bytes) -> None:
        rest = line + b"\n"
        while rest:
            size = rng.randint(1, 4000)
            for whole in framer.push(rest[:size]):
                replay.receive(whole)
            rest = rest[size:]

    assert Replay().play(recording, feed=feed).outputs == Replay().play(recording).outputs


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
