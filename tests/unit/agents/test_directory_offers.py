"""What agents offer in a directory: what they told there, and what those are asked that read OpenCode's configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from shim.agents import directory_offers
from shim.agents.directory import Agent, Listeners
from shim.agents.directory_offers import DirectoryOffers
from shim.host.config.config_reader import Source
from shim.host.config.opencode_config import OpenCodeConfig
from shim.lib.errors import AgentError
from shim.processes.locate import ProgramLocation
from tests.support.specs import change
from universal.agents.mock.spec import MOCK
from universal.codec import Catalogue, Model
from universal.setup import SetupUse
from universal.slash_commands import SlashCommand

AT_HOME = Agent(change(MOCK, setup=SetupUse(reads_own=True)), ProgramLocation(""), Catalogue((Model("home", "Home"),), "home"))
OTHER = replace(AT_HOME, spec=MOCK)
THERE = Catalogue((Model("there", "There"),), "there", (SlashCommand("look", "Look"),))
WAIT_S = 5


@dataclass
class Agents:
    """Agents that tell `THERE`, or raise, and who is told of it."""

    error: Exception | None = None
    asked: list[tuple[str, str]] = field(default_factory=list)
    listeners: Listeners = field(default_factory=Listeners)

    async def ask_in(self, name: str, directory: str) -> Catalogue | None:
        self.asked.append((name, directory))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return THERE


@dataclass
class Trust:
    """One answer for every project."""

    answer: bool

    def is_trusted(self, directory: str, families: Collection[str]) -> bool:
        return self.answer


def config(**values: Any) -> OpenCodeConfig:
    return OpenCodeConfig(values, sources=(Source("opencode.json", "project", values),))


def offers(agents: Agents, now: Callable[[], OpenCodeConfig], *, trusted: bool = True) -> DirectoryOffers:
    return DirectoryOffers(cast("Any", agents), cast("Any", Trust(trusted)), lambda _: now())


def ids(agent: Agent) -> list[str]:
    return [model.id for model in agent.catalogue.models]


async def test_an_agent_is_asked_once_for_each_configuration() -> None:
    agents, current = Agents(), config()
    local = offers(agents, lambda: current)
    assert ids(local.at(AT_HOME, "/p")) == ["home"]
    assert [ids(await local.ask(AT_HOME, "/p")) for _ in range(2)] == [["there"], ["there"]]
    assert agents.asked == [("mock", "/p")]
    current = config(provider={"x": {}})
    assert ids(local.at(AT_HOME, "/p")) == ["there"], "the old answer is better than none"
    await local.ask(AT_HOME, "/p")
    assert len(agents.asked) == 2
    assert ids(local.at(AT_HOME, "/q")) == ["home"]


@pytest.mark.parametrize(
    ("agent", "trusted", "error"),
    [
        (OTHER, True, None),
        (AT_HOME, False, None),
        (AT_HOME, True, AgentError("it ended")),
        (AT_HOME, True, RuntimeError("a bug")),
    ],
)
async def test_nothing_is_known_of_an_agent_that_reads_no_configuration_may_not_start_or_fails(
    agent: Agent, trusted: bool, error: Exception | None
) -> None:
    agents = Agents(error)
    local = offers(agents, config, trusted=trusted)
    assert [ids(await local.ask(agent, "/p")) for _ in range(2)] == [["home"], ["home"]]
    assert len(agents.asked) == (1 if error else 0), "who fails is not asked again and again"


@pytest.mark.parametrize(
    ("values", "asks"), [({"provider": {"x": {}}}, True), ({"agent": {"poet": {}}}, True), ({"share": "auto"}, False)]
)
async def test_a_list_asks_in_the_background_where_the_project_has_something_of_its_own(
    values: dict[str, Any], asks: bool
) -> None:
    agents, told = Agents(), asyncio.Queue[str]()
    agents.listeners.limits = told.put_nowait
    local = offers(agents, lambda: config(**values))
    assert [ids(local.look(AT_HOME, "/p")) for _ in range(2)] == [["home"]] * 2, "nobody waits for it"
    if asks:
        assert await asyncio.wait_for(told.get(), WAIT_S) == "/p"
    else:
        await asyncio.sleep(0)
    assert ids(local.look(AT_HOME, "/p")) == (["there"] if asks else ["home"])
    assert len(agents.asked) == (1 if asks else 0)


async def test_the_offer_of_an_agent_that_ran_counts_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_offers, "KEPT", 2)
    local = DirectoryOffers()
    for directory in ("/a", "/b", "/c"):
        local.note("mock", directory, THERE)
    assert [ids(local.at(AT_HOME, directory)) for directory in ("/a", "/b", "/c")] == [["home"], ["there"], ["there"]]
    assert ids(local.at(OTHER, "/c")) == ["home"], "its models are everywhere the same"
    assert local.commands("/c") == {"mock": THERE.commands}
    assert local.commands("/a") == {}
    assert ids(await local.ask(AT_HOME, "/a")) == ["home"], "without agents nobody is asked"
