"""Conversations of OpenCode's own database, as `opencode db` and `opencode export` of 1.18.33 tell them."""

from __future__ import annotations

import json

from shim.dev.record.driver import counting_ids
from universal.agent_spec import ConversationPrompt
from universal.agents.opencode import conversations
from universal.codec import Fact
from universal.events import EventType
from universal.items import ItemKind

ROW = {"id": "ses_1", "directory": "/p", "title": "A title", "time_created": 1795959189669, "time_updated": 1795959203663}
READ = {"status": "completed", "input": {"filePath": "/p/a"}, "output": "Hello", "title": "a", "metadata": {}}
ANSWER = {"id": "msg_2", "role": "assistant", "time": {"created": 1795959199000, "completed": 1795959201000}, "finish": "stop"}
EXPORT = {
    "info": {"id": "ses_1", "directory": "/p", "title": "A title", "time": {"created": 1795959189669, "updated": 1795959203663}},
    "messages": [
        {
            "info": {"id": "msg_1", "role": "user", "time": {"created": 1795959191326}},
            "parts": [
                {"type": "text", "text": "read it", "messageID": "msg_1"},
                {"type": "text", "text": "Called the Read tool", "synthetic": True, "messageID": "msg_1"},
            ],
        },
        {
            "info": ANSWER,
            "parts": [
                {"type": "step-start", "id": "prt_1", "messageID": "msg_2"},
                {"type": "text", "text": "Done!", "id": "prt_2", "messageID": "msg_2", "time": {"start": 1, "end": 2}},
                {"type": "tool", "tool": "read", "callID": "c", "state": READ, "id": "prt_3", "messageID": "msg_2"},
            ],
        },
    ],
}


def test_the_list_is_a_query_of_one_directory() -> None:
    asked = conversations.ask("/p/it's", "")
    assert asked.args[0] == "db"
    assert "directory = '/p/it''s'" in asked.args[1], "a name ends no string"
    assert not asked.loads
    (rows,) = conversations.parse(json.dumps([ROW], indent=2) + "\nsome warning", "")
    own = conversations.read(rows)
    assert own is not None
    assert (own.id, own.directory, own.title) == ("ses_1", "/p", "A title")
    assert (own.created, own.updated_ms) == ("2026-11-29T13:33:09.669Z", 1795959203663)


def test_an_error_has_no_conversation() -> None:
    assert conversations.parse("Error: no such column", "") == []
    assert conversations.parse("Session not found: ses_2", "ses_2") == []


def test_an_export_becomes_prompts_and_answers() -> None:
    assert conversations.ask("/p", "ses_1").args == ("export", "ses_1")
    (rows,) = conversations.parse(json.dumps(EXPORT, indent=2), "ses_1")
    own = conversations.read(rows)
    assert own is not None
    assert (own.id, own.updated_ms) == ("ses_1", 1795959203663)
    (at, prompt), *rest = conversations.events(rows, counting_ids())
    assert (at, prompt) == ("2026-11-29T13:33:11.326Z", ConversationPrompt("read it"))
    done = [said.data.item for _, said in rest if isinstance(said, Fact) and said.type is EventType.ITEM_COMPLETED]
    assert [item.kind for item in done] == [ItemKind.TOOL_CALL, ItemKind.TOOL_RESULT, ItemKind.MESSAGE]
    assert done[1].content[0].output == "Hello"
    assert done[2].content[0].text == "Done!"
