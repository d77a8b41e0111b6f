"""Instructions of a session: all that hold go along with each prompt, and are read from the journal again."""

from __future__ import annotations

from typing import Any

import pytest

from shim.sessions.prompts.instructions import GONE, LABEL, REMOVED, Instructions, canonical_json, hash_of
from tests.support.scripted_model import World, ask, world
from universal.codec import Prompt


async def system(w: World, session: str, text: str) -> tuple[str | None, dict[str, Any]]:
    """What its agent is told beside a prompt, and what the journal says has changed."""
    await ask(w, session, text)
    w.agent.text("yes")
    w.agent.end_turn()
    await w.settle()
    told = [c for c in w.agent.commands if isinstance(c, Prompt)][-1]
    handed = [
        event.data.item.metadata or {}
        for event in await w.store.events(session)
        if event.type == "item.completed" and (event.data.item.metadata or {}).get("state") == "handed"  # type: ignore[union-attr]
    ]
    return told.system, handed[-1].get("instructions", {})


async def test_instructions_go_along_with_each_prompt_and_changes_are_sent_once(w: World) -> None:
    session = w.session()
    state = await w.manager.state(session)
    assert await system(w, session, "none") == (None, {})
    state.status(LABEL, key="style", json=canonical_json("Be brief."))
    state.status(LABEL, key="facts", json=canonical_json({"user": None, "tabs": 4}))
    said, changed = await system(w, session, "first")
    assert said is not None
    assert said.endswith('[style]\nBe brief.\n\n[facts]\n{"tabs":4,"user":null}')
    assert changed == {"delta": {"style": hash_of("Be brief."), "facts": hash_of({"user": None, "tabs": 4})}}
    assert await system(w, session, "again") == (said, {})
    state.status(LABEL, key="style", json=canonical_json("Be brief!"))
    state.status(LABEL, key="facts")
    said, changed = await system(w, session, "changed")
    assert said is not None
    assert said.endswith("[style]\nBe brief!")
    assert changed == {"delta": {"style": hash_of("Be brief!"), "facts": REMOVED}, "text": said}
    state.status(LABEL, key="style")
    assert await system(w, session, "none any more") == (GONE, {"delta": {"style": REMOVED}, "text": GONE})
    assert await system(w, session, "none") == (None, {})


async def test_instructions_are_read_from_the_journal(w: World) -> None:
    session = w.session()
    state = await w.manager.state(session)
    state.status(LABEL, key="a", json=canonical_json(None))
    await system(w, session, "first")
    state.status(LABEL, key="b", json=canonical_json("later"))
    again = world(w.store)
    await again.manager.start()
    rebuilt = (await again.manager.state(session)).instructions
    assert rebuilt.entries == state.instructions.entries == {"a": None, "b": "later"}
    assert rebuilt.due() == state.instructions.due()
    await again.manager.close()


@pytest.mark.parametrize("system_text", [None, "the prompt's own"])
def test_the_prompts_system_text_comes_after_the_instructions(system_text: str | None) -> None:
    assert Instructions().due().with_system(system_text) == system_text
