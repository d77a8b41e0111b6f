"""A prompt in its item: what the core writes is what the importer reads, and journals of before have the same form."""

from __future__ import annotations

from typing import Any

import pytest

from universal.items import Item
from universal.session.user_prompt import (
    PromptDetails,
    PromptItem,
    SkillText,
    UserPrompt,
    part_json,
    prompt_json,
    prompt_of,
    with_prompt,
)
from universal.session.values import AgentMention, CompactionMark, File, ModelRef, OtherPart, Reasoning, Text

PARTS = (
    Text("prt_1", "look", 1, 2, synthetic=True, ignored=False, metadata={"a": 1}, extra={"more": 1}),
    File("", "image/png", "data:,", "shot.png", {"type": "file"}),
    AgentMention("", "explore", {"value": "@explore", "start": 0, "end": 8}),
    CompactionMark("", auto=False),
    OtherPart("", "subtask", {"prompt": "count", "agent": "general"}),
)
PROMPTS = (
    UserPrompt(),
    UserPrompt("msg_1", PARTS, "plan", ModelRef("acp", "one", "high"), "Be brief.", {"bash": False}, {"type": "text"}),
    UserPrompt(details=PromptDetails("queue", "synthetic", description="a job", metadata={"a": 1})),
    UserPrompt(details=PromptDetails("steer", "skill", SkillText("s", "Skill", "Do it."))),
    UserPrompt(details=PromptDetails("steer", files=({"data": ""},), agents=({"name": "a"},), skills=({"id": "s"},))),
)
STORED: dict[str, Any] = {
    "message_id": "msg_1",
    "parts": [{"id": "prt_1", "type": "text", "text": "look"}, {"type": "agent", "name": "explore", "source": None}],
    "agent": "build",
    "model": {"providerID": "acp", "modelID": "one"},
    "delivery": "steer",
    "kind": "user",
}
"""As a journal of before 2026-11-23 has it."""


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_journal_gives_back_the_prompt_of_an_item(prompt: UserPrompt) -> None:
    for item in (PromptItem.of("item_1", prompt), with_prompt(PromptItem.of("item_1", UserPrompt("msg_2")), prompt)):
        stored = Item.model_validate_json(item.model_dump_json(by_alias=True))
        assert prompt_of(item) is prompt
        assert prompt_of(stored) == prompt
        assert stored.metadata == item.metadata


def test_a_prompt_of_an_older_journal_is_read() -> None:
    item = PromptItem.of("item_1", UserPrompt()).model_copy(update={"metadata": {"opencode": STORED}})
    parts = (Text("prt_1", "look"), AgentMention("", "explore"))
    expected = UserPrompt("msg_1", parts, "build", ModelRef("acp", "one"), details=PromptDetails("steer", "user"))
    assert prompt_of(item) == expected


def test_ids_that_a_client_chose_can_be_left_out() -> None:
    prompt = UserPrompt("msg_1", (Text("prt_1", "look"),), "build").without_ids()
    assert prompt_json(prompt) == {"parts": [{"type": "text", "text": "look"}], "agent": "build"}


def test_a_part_that_no_prompt_has_is_refused() -> None:
    with pytest.raises(TypeError, match="Reasoning"):
        part_json(Reasoning("", "so"))
