"""Which model answers a prompt, when an agent has or has not told yet what it offers."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from shim.host.config.config_reader import Source
from shim.host.config.opencode_config import OpenCodeConfig
from shim.lib.errors import InvalidRequest
from shim.sessions.prompts.prompt_request import Choice, PromptRequest, choose
from tests.fakes.agents_directory import FakeAgents, FakeLocated, agent, services_for_choice
from tests.support.specs import change
from universal.agents.acp.profiles import CATALOGUE
from universal.codec import Catalogue, Model
from universal.session.model import Session
from universal.session.values import ModelRef, SessionRecord
from universal.setup import SetupUse

TOLD = Catalogue(models=(Model("one", "One"), Model("two", "Two", variants=("high",))), default_model="two")


async def choose_model(catalogue: Catalogue, *, model: str = "", session: str = "") -> Choice:
    """`session`: the model that the session used last."""
    made = agent("acp", "ACP", catalogue)
    made = replace(made, spec=change(made.spec, catalogue=CATALOGUE))
    record = SessionRecord("ses_1", mode="build", model=ModelRef("acp", session) if session else None)
    asked = ModelRef("acp", model) if model else None
    return await choose(services_for_choice(FakeAgents(made)), Session(record, "acp"), PromptRequest((), model=asked))


@pytest.mark.parametrize(
    ("catalogue", "model", "session", "handed", "shown"),
    [
        (TOLD, "", "", "two", "two"),
        (TOLD, "one", "", "one", "one"),
        (TOLD, "", "one", "one", "one"),
        (Catalogue(), "", "", None, "default"),
        (Catalogue(), "one", "", "one", "one"),
        (CATALOGUE, "", "", "default", "default"),
        (CATALOGUE, "one", "", "one", "one"),
        (CATALOGUE, "", "one", "one", "one"),
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


def config(personal: dict[str, Any], project: dict[str, Any]) -> OpenCodeConfig:
    sources = (Source("home", "personal", personal), Source("project", "project", project))
    return OpenCodeConfig(personal | project, sources=sources)


async def choose_default(personal: dict[str, Any], project: dict[str, Any] | None = None, **more: Any) -> tuple[str, str, str]:
    """Agent, model and mode of a session's first prompt, which names none."""
    both = (agent("acp", "ACP", TOLD), agent("codex", "Codex", TOLD))
    agents = FakeAgents(*(replace(made, spec=change(made.spec, catalogue=CATALOGUE)) for made in both))
    session = Session(SessionRecord("ses_1", **more), "acp")
    choice = await choose(services_for_choice(agents, config(personal, project or {})), session, PromptRequest(()))
    return choice.agent.spec.name, choice.model_ref.model_id, choice.mode


@pytest.mark.parametrize(
    ("personal", "project", "expected"),
    [
        ({}, {}, ("acp", "two", "build")),
        ({"model": "codex/one"}, {}, ("codex", "one", "build")),
        ({"model": "codex/one"}, {"model": "acp/one"}, ("acp", "one", "build")),
        ({"model": "codex/three"}, {}, ("acp", "two", "build")),
        ({"model": "anthropic/claude"}, {}, ("acp", "two", "build")),
        ({"default_agent": "plan"}, {}, ("acp", "two", "plan")),
        ({}, {"default_agent": "plan"}, ("acp", "two", "plan")),
        ({"default_agent": "accept-edits"}, {}, ("acp", "two", "accept-edits")),
        ({}, {"default_agent": "accept-edits"}, ("acp", "two", "build")),
        ({"default_agent": "plan"}, {"default_agent": "build"}, ("acp", "two", "plan")),
        ({"default_agent": "reviewer"}, {}, ("acp", "two", "build")),
        ({"default_agent": "scribe", "agent": {"scribe": {"prompt": "p"}}}, {}, ("acp", "two", "scribe")),
        ({"default_agent": "scribe", "agent": {"scribe": {"model": "codex/one"}}}, {}, ("codex", "one", "scribe")),
        ({"default_agent": "scribe", "agent": {"scribe": {"model": "other/one"}}}, {}, ("acp", "two", "scribe")),
        ({"default_agent": "scribe", "agent": {"scribe": {"mode": "subagent"}}}, {}, ("acp", "two", "build")),
        ({"agent": {"build": {"model": "codex/one"}}}, {}, ("codex", "one", "build")),
        ({"agent": {"scribe": {"prompt": "p"}}}, {"default_agent": "scribe"}, ("acp", "two", "build")),
        ({"disabled_providers": ["acp"]}, {}, ("codex", "two", "build")),
        ({"disabled_providers": ["codex"], "model": "codex/one"}, {}, ("acp", "two", "build")),
        ({"disabled_providers": ["acp", "codex"], "model": "codex/one"}, {}, None),
        ({"default_agent": "accept-edits", "agent": {"accept-edits": {"disable": True}}}, {}, ("acp", "two", "build")),
        ({"default_agent": "accept-edits"}, {"mode": {"accept-edits": {"disable": True}}}, ("acp", "two", "build")),
        ({"agent": {"build": {"disable": True}}}, {}, ("acp", "two", "build")),
    ],
)
async def test_the_configuration_chooses_for_prompts_that_name_nothing(
    personal: dict[str, Any], project: dict[str, Any], expected: tuple[str, str, str] | None
) -> None:
    """A project's file, which strangers may have written, makes nothing looser."""
    with nullcontext() if expected else pytest.raises(InvalidRequest, match='"disabled_providers" of opencode'):
        assert await choose_default(personal, project) == expected


async def test_another_agent_does_not_answer_for_the_default_one_that_cannot_be_started() -> None:
    missing = replace(agent("acp", "ACP", TOLD), located=FakeLocated(None, None, "acp is not on PATH."))
    services = services_for_choice(FakeAgents(missing, agent("mock", "Mock", TOLD)))
    with pytest.raises(InvalidRequest, match=r'Provider not found: "acp"\. acp is not on PATH\. Available: mock\.'):
        await choose(services, Session(SessionRecord("ses_1"), "acp"), PromptRequest(()))


async def test_a_disabled_mode_or_provider_takes_no_prompt_that_names_it() -> None:
    off = {"disable": True}
    for personal, project in (
        ({"agent": {"plan": off}}, {}),
        ({"agent": {"plan": off}}, {"agent": {"plan": {"disable": False}}}),
    ):
        with pytest.raises(InvalidRequest, match='Agent not found: "plan"'):
            await choose_default(personal, project, mode="plan")
    with pytest.raises(InvalidRequest, match=r'Provider not found: "acp".*Available: codex\.'):
        await choose_default({"disabled_providers": ["acp"]}, model=ModelRef("acp", "one"))


async def test_an_agent_of_the_configuration_that_opencode_does_not_have_here_takes_no_prompt() -> None:
    """It would run as `build`, and so without the rules that OpenCode reads itself."""
    opencode = agent("opencode", "OpenCode", TOLD)
    agents = FakeAgents(replace(opencode, spec=change(opencode.spec, setup=SetupUse(reads_own=True))))
    deps = services_for_choice(agents, config({}, {"agent": {"poet": {"permission": {"bash": "deny"}}}}))
    session = Session(SessionRecord("ses_1"), "opencode")
    with pytest.raises(InvalidRequest, match='OpenCode does not have the agent "poet" here'):
        await choose(deps, session, PromptRequest((), mode="poet"))


async def test_the_last_choice_of_a_session_comes_before_the_configuration() -> None:
    personal = {"model": "codex/one", "default_agent": "plan"}
    assert await choose_default(personal, mode="build", model=ModelRef("acp", "one")) == ("acp", "one", "build")
