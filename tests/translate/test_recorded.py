"""Recordings that `opencode-shim record` has made, of every agent: what holds for all of them."""

from __future__ import annotations

import pytest

from tests.properties.test_words import hidden_items
from tests.support import recordings
from tests.support import replay as engine
from tests.support.opencode1_views import view
from tests.support.replay_checks import check_replay
from universal.events import EventType
from universal.items import ItemKind
from universal.lib.jsonvalue import obj

NAMES = [name for name in recordings.names() if recordings.is_ours(name)]


def test_there_are_recordings() -> None:
    assert NAMES


@pytest.mark.parametrize("name", [recordings.older_is_slow(name, not recordings.is_newest(name)) for name in NAMES])
async def test_a_recording(name: str) -> None:
    played = engine.play(name)
    assert hidden_items(played.facts()) == []
    assert untitled_cards(played) == []
    await check_replay(played)


def untitled_cards(played: engine.Replay) -> list[str]:
    """The titles that the agent has told of calls whose cards have none."""
    items = [fact.data.item for fact in played.facts() if fact.type is EventType.ITEM_COMPLETED]
    calls = [(item.content[0], obj(item.metadata).get("title")) for item in items if item.kind is ItemKind.TOOL_CALL]
    told = {call.call_id: title for call, title in calls if title and title not in call.name}
    messages = [message for state in played.states.values() for message in view(state.session).messages.values()]
    cards = [part for message in messages for part in message.wire()["parts"] if part["type"] == "tool"]
    ended = [card for card in cards if card["state"]["status"] == "completed" and not card["state"]["title"]]
    return [title for card in ended if (title := told.get(card["callID"]))]


def test_a_subagents_tool_goes_on_while_the_main_agent_speaks() -> None:
    """Its card ends with its result, not as an error because another message began (claude-agent-acp)."""
    played = engine.play("acp/claude-agent-acp-0.99.1/task")
    parts = [p for m in view(played.states[None].session).messages.values() for p in m.wire()["parts"]]
    assert [p["type"] for p in parts if p["type"] in ("tool", "text")][-3:] == ["tool", "text", "text"]
    cards = [(p["tool"], p["state"]["status"], p["state"].get("output", "")) for p in parts if p["type"] == "tool"]
    assert [card[:2] for card in cards] == [("task", "completed"), ("bash", "completed")]
    assert cards[1][2] == "hi\nREADME.md\nnotes.txt\nsecret.txt"


@pytest.mark.parametrize("name", ["claude/2.1.332/text", "codex/0.166.0/text"])
def test_the_agents_mcp_servers_are_known(name: str) -> None:
    played = engine.play(name)
    (servers,) = view(played.states[None].session).mcp.values()
    assert servers == {"scripted": {"status": "connected"}}
