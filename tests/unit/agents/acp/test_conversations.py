"""Conversations as agents of the protocol tell them: the list, and a history as claude-agent-acp 0.101.0 replays it."""

from __future__ import annotations

import json
from typing import Any

from shim.dev.record.driver import counting_ids
from universal.agent_spec import ConversationPrompt
from universal.agents.acp.conversations import Conversations
from universal.agents.acp.profiles import WRITTEN
from universal.codec import Fact
from universal.events import EventType
from universal.items import ItemKind

CLAUDE = next(profile for profile in WRITTEN if profile.name == "claude-agent-acp")
AT = "2026-11-29T13:34:40.641Z"
ROW = {"sessionId": "a7494c79-a88e", "cwd": "/p", "title": "read it", "updatedAt": AT}


def update(kind: str, session: str = "a7494c79-a88e", /, **fields: Any) -> dict[str, Any]:
    return {"method": "session/update", "params": {"sessionId": session, "update": {"sessionUpdate": kind, **fields}}}


def words(kind: str, text: str, id_: str) -> dict[str, Any]:
    return update(kind, content={"type": "text", "text": text}, messageId=id_)


HISTORY = [
    words("user_message_chunk", "read ", "u1"),
    words("user_message_chunk", "it", "u1"),
    words("agent_thought_chunk", "hm", "m1"),
    words("agent_message_chunk", "I'll read.", "m1"),
    update("tool_call", toolCallId="t", name="Read", kind="read", status="pending", rawInput={"file_path": "/p/a"}),
    update("tool_call_update", toolCallId="t", status="completed", rawOutput="Hello"),
    update("available_commands_update", availableCommands=[]),
    words("agent_message_chunk", "Done!", "m2"),
    update("agent_message_chunk", "another", content={"type": "text", "text": "of another session"}),
    words("user_message_chunk", "and then?", "u2"),
]


def output_of(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps({"jsonrpc": "2.0", **row}) + "\n" for row in rows) + "[session/create] no JSON"


def test_the_list_is_asked_for_without_loading_anything() -> None:
    asked = Conversations(CLAUDE).ask("/p", "")
    assert [json.loads(line)["method"] for line in asked.lines] == ["initialize", "session/list"]
    assert (json.loads(asked.lines[-1])["params"], asked.loads) == ({"cwd": "/p"}, False)
    nameless = {"sessionId": "0123456789", "cwd": "/p"}
    found = Conversations(CLAUDE).parse(output_of({"id": 1, "result": {"sessions": [ROW, nameless]}}), "")
    own, other = (Conversations(CLAUDE).read(rows) for rows in found)
    assert own is not None
    assert other is not None
    assert (own.id, own.directory, own.title, own.updated_ms) == ("a7494c79-a88e", "/p", "read it", 1795959280641)
    assert (other.title, other.updated_ms) == ("Conversation 01234567", 0)


def test_a_removal_deletes_one() -> None:
    asked = Conversations(CLAUDE).removal("a7494c79-a88e")
    assert json.loads(asked.lines[-1])["method"] == "session/delete"
    assert json.loads(asked.lines[-1])["params"] == {"sessionId": "a7494c79-a88e"}


def test_an_agent_without_the_method_has_none() -> None:
    assert Conversations(CLAUDE).parse(output_of({"id": 1, "error": {"code": -32601, "message": "no"}}), "") == []


def test_a_history_is_that_of_a_turn() -> None:
    asked = Conversations(CLAUDE).ask("/p", "a7494c79-a88e")
    assert ([json.loads(line)["id"] for line in asked.lines], asked.loads) == ([0, 2, 1], True)
    text = output_of({"id": 2, "result": {"sessions": [ROW]}}, *HISTORY, {"id": 1, "result": {}})
    (rows,) = Conversations(CLAUDE).parse(text, "a7494c79-a88e")
    events = [*Conversations(CLAUDE).events(rows, counting_ids())]
    assert {at for at, _ in events} == {AT}
    facts = [said for _, said in events if isinstance(said, Fact)]
    prompts = [(place, said.text) for place, (_, said) in enumerate(events) if isinstance(said, ConversationPrompt)]
    assert prompts == [(0, "read it"), (len(events) - 1, "and then?")]
    done = [fact.data.item for fact in facts if fact.type is EventType.ITEM_COMPLETED]
    texts = ["".join(part.text for part in item.content if part.type == "text") for item in done if item.kind is ItemKind.MESSAGE]
    assert texts == ["I'll read.", "Done!"]
    (result,) = [item for item in done if item.kind is ItemKind.TOOL_RESULT]
    assert result.content[0].output == "Hello"
