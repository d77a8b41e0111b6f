"""Pi's session files: which entries are the conversation, and what they say. Rows as Pi 1.5.2 writes them."""

from __future__ import annotations

import itertools
from typing import Any

from universal.agent_spec import Conversation, ConversationPrompt
from universal.agents.pi.transcripts import events, read
from universal.codec import Fact
from universal.items import ItemKind

Row = dict[str, Any]
BEGIN = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-11-28T21:29:59.539Z", "cwd": "/p"}


def row(id_: str, parent: str | None, role: str, *content: Row, **more: Any) -> Row:
    message = {"role": role, "content": [*content], **more}
    return {"type": "message", "id": id_, "parentId": parent, "timestamp": "2026-11-28T21:30:00.120Z", "message": message}


def text(words: str) -> Row:
    return {"type": "text", "text": words}


CALL = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "./a"}}
ROWS = [
    BEGIN,
    row("m1", None, "system"),
    row("m2", "m1", "user", text("do it\nnow")),
    row("m3", "m2", "assistant", text("Let me."), CALL, stopReason="toolUse"),
    row("m4", "m3", "toolResult", text("Hello"), toolCallId="c1", toolName="read", isError=False),
    row("m5", "m4", "assistant", text("Done."), stopReason="stop"),
]


def lines_of(rows: list[Row]) -> list[str]:
    """Prompts after "> ", texts, and results."""
    numbers = itertools.count()
    out: list[str] = []
    for _, event in events(rows, lambda kind: f"{kind}{next(numbers)}"):
        if isinstance(event, ConversationPrompt):
            out.append(f"> {event.text}")
        elif isinstance(event, Fact) and event.type == "item.completed":
            item = event.data.item  # type: ignore[union-attr]
            out += [part.text for part in item.content if part.type == "text"]
            out += [str(item.kind.value) for _ in range(item.kind in (ItemKind.TOOL_CALL, ItemKind.TOOL_RESULT))]
    return out


def test_the_title_is_the_name_or_the_first_line_of_the_first_prompt() -> None:
    assert read(ROWS) == Conversation("s", "/p", "do it", "2026-11-28T21:29:59.539Z")
    named = read([*ROWS, {"type": "session_info", "id": "i", "parentId": "m5", "name": "A name"}])
    assert named is not None and named.title == "A name"
    assert read([BEGIN]) is None


def test_prompts_answers_and_results_are_there_in_order() -> None:
    assert lines_of(ROWS) == ["> do it\nnow", "tool_call", "Let me.", "tool_result", "Done."]


def test_only_the_last_branch_is_the_conversation() -> None:
    branch = [row("n1", "m5", "user", text("left")), row("n2", "m5", "user", text("gone on"))]
    assert lines_of([*ROWS, *branch])[-2:] == ["Done.", "> gone on"]
