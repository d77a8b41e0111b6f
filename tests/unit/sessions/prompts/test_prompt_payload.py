"""What an agent is given of a prompt is read from its item: the same when it is accepted and when the journal is read again."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from shim.lib.clock import SystemClock
from shim.lib.ids import Ids
from shim.sessions.prompts.pending_prompt import ModelChoice, PendingPrompt
from shim.sessions.prompts.prompt_payload import PendingPrompts, pending_prompt_of
from shim.sessions.prompts.prompt_request import AGENT_HINT, SUBTASK, PromptRequest, accept, choose
from tests.fakes.agents_directory import FakeAgents, agent, services_for_choice
from universal.codec import Attachment, Catalogue, Model
from universal.items import Item
from universal.session.model import Session
from universal.session.values import AgentMention, File, ModelRef, OtherPart, Part, SessionRecord, Text

MODELS = Catalogue(models=(Model("one", "One", variants=("high",)),), default_model="one")
PNG = b"\x89PNG\r\n\x1a\n"


async def accept_prompt(*parts: Part, **more: Any) -> PendingPrompt:
    agents = services_for_choice(FakeAgents(agent("acp", "ACP", MODELS)))
    body = PromptRequest(parts, **more)
    choice = await choose(agents, Session(SessionRecord("ses_1", mode="build"), "acp"), body)
    made, _ = await accept(body, choice, Ids(SystemClock()))
    return made


def store_and_load(item: Item) -> Item:
    """As the journal gives it back."""
    return Item.model_validate_json(item.model_dump_json())


async def test_a_prompt_keeps_what_its_item_does_not_say() -> None:
    made = await accept_prompt(Text("", "look"), model=ModelRef("acp", "one"))
    assert made.changes == {}
    choice = ModelChoice("plan", ModelRef("acp", "two"), base="build")
    for changed in (
        made.with_text("Again.", 2),
        replace(made, account="ada"),
        replace(made.with_choice("acp", "two", choice).with_text("Again.", 1), account="ada"),
    ):
        stored = pending_prompt_of(store_and_load(made.item))
        assert stored is not None
        assert stored.with_changes(json.loads(json.dumps(changed.changes))) == replace(changed, item=stored.item)


async def test_all_that_a_prompt_can_bring(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    (tmp_path / "shot.png").write_bytes(PNG)
    url = f"file://{tmp_path}"
    made = await accept_prompt(
        Text("", "look"),
        Text("", "not for the agent", ignored=True),
        Text("", "a program's", synthetic=True),
        File("", "text/plain", f"{url}/notes.txt", "notes.txt"),
        File("", "image/png", f"{url}/shot.png", "shot.png"),
        File("", "image/svg+xml", "data:image/svg+xml,%3Csvg%2F%3E"),
        File("", "text/plain", "data:text/plain,said"),
        File("", "text/plain", f"{url}/none.txt"),
        File("", "text/html", "https://example.com/"),
        AgentMention("", "explore"),
        OtherPart("", SUBTASK, {"agent": "general", "prompt": "count", "description": "counting"}),
        variant="high",
        model=ModelRef("acp", "one"),
        system="Be brief.",
    )
    prompt = made.prompt
    texts = ["look", "a program's", f"{AGENT_HINT}explore", "Use a subagent (general) for this task: count"]
    assert prompt.text == "\n\n".join(texts)
    assert (prompt.model, prompt.variant, prompt.mode, prompt.system) == ("one", "high", "build", "Be brief.")
    notes, shot, drawn, said, none, page = prompt.attachments
    assert (notes.path, notes.filename) == (f"{tmp_path}/notes.txt", "notes.txt")
    assert notes.text is not None
    assert "1: one\n2: two" in notes.text
    assert shot == Attachment("image/png", f"{tmp_path}/shot.png", "shot.png", base64.b64encode(PNG).decode())
    assert drawn == Attachment("image/svg+xml", base64=base64.b64encode(b"<svg/>").decode())
    assert said == Attachment("text/plain", text="said")
    assert none.text is not None
    assert "File not found" in none.text
    assert page == Attachment("text/html", text="(see https://example.com/)")
    stored = store_and_load(made.item)
    assert pending_prompt_of(stored) == replace(made, item=stored)


async def test_texts_and_bytes_are_not_kept_twice(tmp_path: Path) -> None:
    (tmp_path / "shot.png").write_bytes(PNG)
    (tmp_path / "notes.txt").write_text("a line of the file\n")
    made = await accept_prompt(
        Text("", "only once"),
        File("", "image/png", f"file://{tmp_path}/shot.png"),
        File("", "text/plain", f"file://{tmp_path}/notes.txt"),
    )
    assert made.item.metadata is not None
    kept = str(made.item.metadata["prompt"])
    for once in ("only once", base64.b64encode(PNG).decode(), "a line of the file"):
        assert once not in kept


async def test_states_of_waiting_prompts() -> None:
    first, second, third, fourth = [await accept_prompt(Text("", word)) for word in ("a", "b", "c", "d")]
    names = {one.item.item_id: f"msg_{word}" for one, word in zip((first, second, third, fourth), "abcd", strict=True)}
    waiting = PendingPrompts(lambda item_id: names.get(item_id, ""))
    for one in (first, second, third, fourth):
        waiting.add(store_and_load(one.item))

    def became(**metadata: Any) -> None:
        waiting.note("prompt", metadata)

    became(state="cancelled", item_id=second.item.item_id)
    became(state="delivery", item_id=second.item.item_id, delivery="queue")
    became(state="withdrawn", item_id=fourth.item.item_id)
    became(state="handed", item_id=third.item.item_id, carried=["msg_a", "msg_other"])
    assert list(waiting.prompts) == ["msg_b"]
    assert waiting.prompts["msg_b"].waits_for_all
    assert waiting.prompts["msg_b"].message_id == "msg_b"


async def test_a_journal_that_is_older_than_this_has_none() -> None:
    made = await accept_prompt(Text("", "a"))
    assert made.item.metadata is not None
    old = {key: value for key, value in made.item.metadata.items() if key != "prompt"}
    assert pending_prompt_of(made.item.model_copy(update={"metadata": old})) is None
