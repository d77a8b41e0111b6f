"""Checks that hold for every recording of every agent."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.opencode1_views import view
from tests.support.oracle import check_event, check_response
from tests.support.replay import Replay
from tests.support.scripted_model import Recorder
from tests.support.two_faces import check_opencode2
from universal.events import EventType
from universal.items import Item, ItemKind, ItemRole, ItemStatus
from universal.turn import TurnEnd, TurnStart


async def check_replay(replay: Replay) -> None:
    """All of the checks of this module."""
    check_everything_is_known(replay)
    check_items(replay)
    check_asks(replay)
    check_turns(replay)
    await check_clients(replay)


def check_everything_is_known(replay: Replay) -> None:
    """Nothing is unparsed, and every fact names the line that it came from."""
    assert replay.unparsed_lines() == []
    assert [name for name in replay.codec.counters() if name.startswith("unparsed")] == []
    assert all(fact.raw is not None for fact in replay.facts() if not fact.synthetic)


def check_items(replay: Replay) -> None:
    """Items are started, then completed once; texts are the sum of their deltas; each whole call has one result."""
    started: dict[str, Item] = {}
    completed: dict[str, Item] = {}
    deltas: dict[tuple[str, int, str], str] = {}
    for fact in replay.facts():
        if fact.type is EventType.ITEM_STARTED:
            assert fact.data.item.item_id not in started
            started[fact.data.item.item_id] = fact.data.item
        elif fact.type is EventType.ITEM_DELTA:
            assert fact.data.item_id in started
            assert fact.data.item_id not in completed
            key = (fact.data.item_id, fact.data.part_index, fact.data.part_type)
            deltas[key] = deltas.get(key, "") + fact.data.delta
        elif fact.type is EventType.ITEM_COMPLETED:
            item = fact.data.item
            assert item.item_id not in completed
            completed[item.item_id] = item
            speaks = item.kind is ItemKind.MESSAGE and item.role is ItemRole.ASSISTANT
            assert not (speaks or item.kind is ItemKind.TOOL_CALL) or item.item_id in started
    assert started.keys() <= completed.keys()
    said = {
        (item.item_id, index, part.type): part.text
        for item in completed.values()
        if item.kind is ItemKind.MESSAGE and item.role is ItemRole.ASSISTANT
        for index, part in enumerate(item.content)
    }
    assert said == {key: text for key, text in deltas.items() if key[2] in ("text", "reasoning")}
    assert all(said.values())
    messages = {item.item_id for item in started.values() if item.kind is ItemKind.MESSAGE}
    _check_calls(replay.items(ItemKind.TOOL_CALL), replay.items(ItemKind.TOOL_RESULT), messages)


def _check_calls(calls: Sequence[Item], results: Sequence[Item], messages: set[str]) -> None:
    """Calls belong to messages, results to messages or calls, and each whole call has one result."""
    assert all(item.parent_id in messages for item in calls)
    assert all(item.parent_id in messages | {call.item_id for call in calls} for item in results)
    whole = [item.content[0].call_id for item in calls if item.status is ItemStatus.COMPLETED]
    assert sorted(whole) == sorted(item.content[0].call_id for item in results)
    assert len(set(whole)) == len(whole)


def check_asks(replay: Replay) -> None:
    """Each ask is resolved once."""
    for kind, requested, resolved in (
        ("permission_id", EventType.PERMISSION_REQUESTED, EventType.PERMISSION_RESOLVED),
        ("question_id", EventType.QUESTION_REQUESTED, EventType.QUESTION_RESOLVED),
    ):
        asked = [getattr(fact.data, kind) for fact in replay.facts(requested)]
        assert sorted(asked) == sorted(getattr(fact.data, kind) for fact in replay.facts(resolved))
        assert len(set(asked)) == len(asked)


def check_turns(replay: Replay) -> None:
    """Turns begin and end once, one at a time, and nothing is said outside of them."""
    for key, state in replay.states.items():
        assert not state.machine.busy
        ends = [type(effect) for child, effect in replay.effects if child == key and isinstance(effect, (TurnStart, TurnEnd))]
        assert ends == [TurnStart, TurnEnd] * (len(ends) // 2)
    assert replay.idle_items == []


async def check_clients(replay: Replay) -> None:
    """Every event is what OpenCode's document allows; folded, they are what HTTP answers; a rebuilt session is the same."""
    for number, event in enumerate(replay.hub.events):
        check_event({"id": f"evt_{number:026d}", "type": event.type, "properties": event.properties})
    for key, state in replay.states.items():
        fold = replay.hub.folds[state.id]
        fold.check()
        live = view(state.session)
        http = [m.wire() for m in live.messages.values()]
        check_response("session.messages", 200, http)
        check_response("session.get", 200, live.info)
        assert fold.wire() == http
        assert (fold.info, fold.todos, fold.diffs, fold.status) == (live.info, live.todos, live.diffs, live.status)
        assert fold.idles == len([effect for child, effect in replay.effects if child == key and isinstance(effect, TurnEnd)])
        journal = await replay.store.events(state.id)
        rebuilt = replay.unread(state.id, Recorder())
        rebuilt.load(journal)
        again = view(rebuilt.session)
        assert [m.wire() for m in again.messages.values()] == http
        assert (again.info, again.todos) == (live.info, live.todos)
        check_opencode2(journal, replay.agent, live)
