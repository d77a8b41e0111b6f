"""Claude Code's transcripts: which lines are the conversation, and what they say."""

from __future__ import annotations

import itertools
import json
from typing import Any

from universal.agent_spec import ConversationPrompt
from universal.agents.claude.transcripts import events, foreign_rows, read
from universal.agents.claude.wire import prompt_uuid
from universal.codec import Fact
from universal.items import ItemKind

Row = dict[str, Any]


def row(kind: str, uuid: str, parent: str | None, content: Any = None, **more: Any) -> Row:
    """A line of a transcript."""
    said = {} if content is None else {"message": {"role": kind, "content": content, "id": f"msg_{uuid}", "model": "m"}}
    place = {"sessionId": "s", "cwd": "/p", "timestamp": f"2026-11-28T10:00:0{len(uuid)}.000Z", "isSidechain": False}
    return {"type": kind, "uuid": uuid, "parentUuid": parent, **place, **said, **more}


def text(words: str) -> list[Row]:
    return [{"type": "text", "text": words}]


def lines_of(rows: list[Row]) -> list[str]:
    """Prompts after "> ", answers, calls and results, in order."""
    numbers = itertools.count()
    out: list[str] = []
    for _, event in events(rows, lambda kind: f"{kind}{next(numbers)}"):
        if isinstance(event, ConversationPrompt):
            out.append(f"> {event.text}")
        elif isinstance(event, Fact) and event.type == "item.completed":
            item = event.data.item  # type: ignore[union-attr]
            out += [part.text for part in item.content if part.type == "text"]
            out += [f"{item.kind}:{item.status}" for _ in range(item.kind in (ItemKind.TOOL_CALL, ItemKind.TOOL_RESULT))]
    return out


CALL = [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "echo hi"}}]
RESULT = [{"type": "tool_result", "tool_use_id": "t1", "content": "hi"}]


def test_prompts_answers_and_calls_are_there_in_order() -> None:
    rows = [
        row("user", "a", None, "do it"),
        row("attachment", "b", "a", attachment={"type": "skill_listing"}),
        row("assistant", "c", "b", text("Let me.")),
        row("assistant", "d", "c", CALL, message={"role": "assistant", "content": CALL, "id": "msg_c", "model": "m"}),
        row("user", "e", "d", RESULT, toolUseResult={"stdout": "hi", "stderr": ""}),
        row("assistant", "f", "e", text("Done.")),
    ]
    assert lines_of(rows) == ["> do it", "tool_call:completed", "Let me.", "tool_result:completed", "Done."]


def test_a_steered_prompt_is_one_and_what_no_person_wrote_is_none() -> None:
    rows = [
        row("user", "a", None, "<command-name>/model</command-name>"),
        row("user", "b", "a", "a caveat", isMeta=True),
        row("user", "c", "b", text("first")),
        row("assistant", "d", "c", text("One.")),
        row("attachment", "e", "d", attachment={"type": "queued_command", "commandMode": "prompt", "prompt": "second"}),
        row("assistant", "f", "e", text("Two.")),
    ]
    assert lines_of(rows) == ["> first", "One.", "> second", "Two."]


def test_the_branch_that_was_written_last_counts_also_over_a_compaction() -> None:
    rows = [
        row("user", "a", None, "begin"),
        row("assistant", "b", "a", text("Left.")),
        row("assistant", "c", "a", text("Right.")),
        row("system", "d", None, subtype="compact_boundary", logicalParentUuid="c"),
        row("user", "e", "d", "a summary", isCompactSummary=True),
        row("user", "f", "e", "go on"),
        row("assistant", "g", "f", text("On.")),
        row("assistant", "h", "b", text("of a subagent"), isSidechain=True),
    ]
    assert lines_of(rows) == ["> begin", "Right.", "> go on", "On."]


def test_lines_that_name_each_other_end() -> None:
    assert lines_of([row("user", "a", "b", "one"), row("assistant", "b", "a", text("two"))]) == ["> one", "two"]


def test_a_conversation_has_its_last_name_or_its_first_prompt() -> None:
    rows = [row("user", "a", None, "first line\nsecond"), {"type": "ai-title", "aiTitle": "By a model"}]
    assert read(rows[:1]) == ("s", "/p", "first line", "2026-11-28T10:00:01.000Z", 0)
    mine = {"type": "custom-title", "customTitle": "Mine"}
    for lines, title in ((rows, "By a model"), ([*rows, mine], "Mine"), ([mine, *rows], "Mine")):
        own = read(lines)
        assert own is not None and own.title == title
    assert read([{"type": "user"}, {"type": "summary"}]) is None


def test_the_rows_of_another_programs_turn_are_found() -> None:
    """Two that write at once: the other's prompt and what follows from it, and when its turn is over."""
    ours, theirs = prompt_uuid("key"), "2ab0186c-2da1-40c8-abb4-fa3f20d72517"
    rows = [
        row("user", ours, None, "mine", promptSource="sdk"),
        row("assistant", "c", ours, text("Yours.")),
        row("user", theirs, "c", "theirs", promptSource="typed"),
        row("user", prompt_uuid("key2"), "c", "mine again", promptSource="sdk"),
        row("attachment", "e", theirs, attachment={"type": "skill_listing"}),
        row("assistant", "f", "e", CALL),
        row("assistant", "g", prompt_uuid("key2"), text("Yours again.")),
        row("user", "h", "f", RESULT, toolUseResult={"stdout": "hi", "stderr": ""}),
        row("assistant", "i", "h", text("Theirs.")),
        row("user", "j", "g", "a caveat", isMeta=True, promptSource="system"),
    ]
    lines = [json.dumps(line).encode() for line in rows]
    assert foreign_rows(lines[:2], ()) == ([], False)
    begun, is_over = foreign_rows(lines[:6], ())
    assert ([found["uuid"] for found in begun], is_over) == ([theirs, "e", "f"], False)
    whole, is_over = foreign_rows([*lines[6:], b"{"], begun)
    assert ([found["uuid"] for found in whole], is_over) == ([theirs, "e", "f", "h", "i"], True)
    assert lines_of(whole) == ["> theirs", "tool_call:completed", "tool_result:completed", "Theirs."]


def test_an_adapter_knows_its_own_prompts_by_their_entrypoint() -> None:
    rows = [
        row("user", "a", None, "mine", promptSource="sdk", entrypoint="sdk-ts"),
        row("user", "b", None, "theirs", promptSource="typed", entrypoint="cli"),
    ]
    assert foreign_rows([json.dumps(line).encode() for line in rows], (), entrypoint="sdk-ts") == ([rows[1]], False)
