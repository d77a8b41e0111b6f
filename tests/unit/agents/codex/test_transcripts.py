"""Codex's threads as its app server tells them. Rows as Codex 0.169.0 sends them."""

from __future__ import annotations

import itertools
from typing import Any

from universal.agent_spec import Conversation, ConversationPrompt
from universal.agents.codex.transcripts import events, read
from universal.codec import Fact

THREAD: dict[str, Any] = {
    "id": "t", "cwd": "/p", "preview": "do it\nnow", "name": None, "parentThreadId": None,
    "createdAt": 1795901360, "updatedAt": 1795901362,
}  # fmt: skip
COMMAND = {
    "type": "commandExecution", "id": "c1", "command": "/bin/bash -lc 'cat a'", "cwd": "/p", "status": "completed",
    "aggregatedOutput": "Hello\n", "exitCode": 0, "completedAtMs": 1795901361590,
}  # fmt: skip
ITEMS = [
    {"type": "userMessage", "id": "u", "content": [{"type": "text", "text": "do it"}], "completedAtMs": 1795901361052},
    {"type": "agentMessage", "id": "a", "text": "Let me.", "completedAtMs": 1795901361294},
    COMMAND,
    {"type": "agentMessage", "id": "b", "text": "Done.", "completedAtMs": 1795901362051},
]


def test_a_row_of_the_list_is_a_conversation() -> None:
    assert read([THREAD]) == Conversation("t", "/p", "do it", "2026-11-28T21:29:20.000Z", 1795901362000)
    named = read([{**THREAD, "name": "A name"}])
    assert named is not None and named.title == "A name"
    assert read([{**THREAD, "parentThreadId": "parent"}]) is None, "a subagent's thread"
    assert read([{**THREAD, "preview": ""}]) is None


def test_turns_are_in_order_with_their_times() -> None:
    turns = [{"id": f"turn{number}", "status": "completed", "startedAt": 1795901360, "items": ITEMS} for number in range(2)]
    numbers = itertools.count()
    out: list[str] = []
    times: list[str] = []
    for at, event in events([{**THREAD, "turns": turns}], lambda kind: f"{kind}{next(numbers)}"):
        if isinstance(event, ConversationPrompt):
            out.append(f"> {event.text}")
            times.append(at)
        elif isinstance(event, Fact) and event.type == "item.completed":
            item = event.data.item  # type: ignore[union-attr]
            out += [part.text if part.type == "text" else part.type for part in item.content]
    assert out == ["> do it", "tool_call", "tool_result", "Let me.", "Done."] * 2
    assert times == ["2026-11-28T21:29:21.052Z"] * 2
