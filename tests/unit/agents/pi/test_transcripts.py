"""Pi's session files: which entries are the conversation, and what they say. Rows as Pi 1.5.2 writes them."""

from __future__ import annotations

import itertools
import json
from typing import Any

from universal.agent_spec import Conversation, ConversationPrompt
from universal.agents.pi.transcripts import events, foreign_rows, read
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


def test_rows_of_another_pi_are_those_off_the_path_to_the_last_prompt_of_this_one() -> None:
    rows = [
        row("n1", "m5", "user", text("mine")),
        row("t1", "m5", "user", text("theirs")),
        row("n2", "n1", "assistant", text("Yours."), stopReason="stop"),
        row("t2", "t1", "assistant", CALL, stopReason="toolUse"),
        row("t3", "t2", "toolResult", text("Hello"), toolCallId="c1", toolName="read", isError=False),
        row("t4", "t3", "assistant", text("Theirs."), stopReason="stop"),
        row("n3", "n2", "user", text("mine again")),
    ]
    lines = [json.dumps(line).encode() for line in rows]
    assert foreign_rows(lines[:1], (), "n1") == ([], False)
    begun, is_over = foreign_rows(lines[:4], (), "n1")
    assert ([found["id"] for found in begun], is_over) == (["t1", "t2"], False)
    whole, is_over = foreign_rows([*lines[4:], b"{"], begun, "n3")
    assert ([found["id"] for found in whole], is_over) == (["t1", "t2", "t3", "t4"], True)
    assert lines_of(whole) == ["> theirs", "tool_call", "tool_result", "Theirs."]
    assert foreign_rows(lines[1:2], (), "")[0] == [rows[1]], "before its first answer it has written no prompt"
