"""Which model answers a prompt, when an agent has or has not told yet what it offers."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from shim.agents.directory import AgentDirectory
from shim.lib.errors import InvalidRequest
from shim.sessions.prompts.prompt_request import Choice, PromptRequest, choose
from tests.fakes.agents_directory import FakeAgents, agent
from universal.agents.acp.spec import UNTOLD
from universal.codec import Catalogue, Model
from universal.session.model import ModelRef, Session, SessionRecord

TOLD = Catalogue(models=(Model("one", "One"), Model("two", "Two", variants=("high",))), default_model="two")


async def choose_model(catalogue: Catalogue, *, model: str = "", session: str = "") -> Choice:
    """`session`: the model that the session used last."""
    made = agent("acp", "ACP", catalogue)
    made = replace(made, spec=replace(made.spec, default_catalogue=UNTOLD))
    agents = cast("AgentDirectory", FakeAgents(made))
    record = SessionRecord("ses_1", mode="build", model=ModelRef("acp", session) if session else None)
    asked = ModelRef("acp", model) if model else None
    return await choose(agents, Session(record, "acp"), PromptRequest((), model=asked))


@pytest.mark.parametrize(
    ("catalogue", "model", "session", "handed", "shown"),
    [
        (TOLD, "", "", "two", "two"),
        (TOLD, "one", "", "one", "one"),
        (TOLD, "", "one", "one", "one"),
        (Catalogue(), "", "", None, "default"),
        (Catalogue(), "one", "", "one", "one"),
        (UNTOLD, "", "", "default", "default"),
        (UNTOLD, "one", "", "one", "one"),
        (UNTOLD, "", "one", "one", "one"),
        (TOLD, "", "default", None, "default"),
        (Catalogue(models=(Model("default", "Default"),)), "", "", "default", "default"),
    ],
)
async def test_model(catalogue: Catalogue, model: str, session: str, handed: str | None, shown: str) -> None:
    choice = await choose_model(catalogue, model=model, session=session)
    assert (choice.model, choice.model_ref.model_id) == (handed, shown)


async def test_a_model_that_the_agent_does_not_have() -> None:
    with pytest.raises(InvalidRequest, match='Model not found: "acp/three"'):
        await choose_model(TOLD, model="three")
