"""An agent in a sandbox is started again when its rules need other mounts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shim.agents import sandboxes
from shim.host.config.opencode_config import OpenCodeConfig
from shim.processes.sandbox import Tool
from tests.support.scripted_model import Project, World, ask
from universal.host import HostDone, ReadText, StopCommand
from universal.permissions import Action, Enforcement, Rule
from universal.sandbox import Level


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> list[Tool]:
    """What this machine makes sandboxes with; the last one counts."""
    tools = [Tool("/usr/bin/bwrap")]

    def find(path: str) -> Tool:
        return tools[-1]

    monkeypatch.setattr(sandboxes, "find_tool", find)
    return tools


WAIT_S = 5


async def turn(w: World, session: str, **more: Any) -> None:
    """A prompt and its answer. Whether there is a tool for sandboxes is found out in a thread."""
    before = sum(len(agent.commands) for agent in w.agents.spawned)
    await ask(w, session, **more)
    async with asyncio.timeout(WAIT_S):
        while sum(len(agent.commands) for agent in w.agents.spawned) == before:
            await asyncio.sleep(0.005)
    w.agent.complete(w.agent.begin(), "done")
    w.agent.end_turn()
    await w.settle()


async def test_only_a_rule_that_needs_other_mounts_starts_the_agent_again(w: World, tool: list[Tool]) -> None:
    w.agents.enclose("one", "project")
    session = w.session()
    await turn(w, session)
    w.rules.append(Rule("bash", "rm *", "deny"))
    await turn(w, session)
    assert len(w.agents.spawned) == 1, "no mount holds a pattern of a command"
    w.rules.append(Rule("edit", "*", "deny"))
    await turn(w, session)
    assert len(w.agents.spawned) == 2
    assert w.agent.options.resume
    assert w.agent.options.bounds is not None and w.agent.options.bounds.edit == (Rule("edit", "*", "deny"),)
    await turn(w, session)
    assert len(w.agents.spawned) == 2


async def test_an_agent_without_a_sandbox_goes_on_when_rules_change(w: World, tool: list[Tool]) -> None:
    session = w.session()
    await turn(w, session)
    w.rules.append(Rule("edit", "*", "deny"))
    await turn(w, session)
    assert len(w.agents.spawned) == 1
    assert w.agent.options.bounds is None


@pytest.mark.parametrize(("level", "is_held"), [("project", False), ("strict", True)])
async def test_where_no_sandbox_can_be_made_only_strict_keeps_its_bounds(
    w: World, tool: list[Tool], level: Level, is_held: bool
) -> None:
    tool.append(Tool(why="There is no program bwrap."))
    w.agents.enclose("one", level)
    await turn(w, w.session())
    assert (w.agent.options.bounds is not None) is is_held, "with bounds the start fails (`sandboxes.launch_inside`)"
    notices = [event for event in w.hub.events if "runs without the sandbox" in str(event.properties)]
    assert bool(notices) is not is_held
    assert all("There is no program bwrap." in str(event.properties) for event in notices)


@pytest.mark.parametrize(("level", "is_told"), [("project", True), ("strict", True), ("auto", False)])
async def test_a_person_who_wants_a_sandbox_learns_that_it_holds_less(
    w: World, tool: list[Tool], level: Level, is_told: bool
) -> None:
    tool.append(Tool(kind="Landlock", better="There is no program bwrap."))
    w.agents.limit("one", GAP)
    w.agents.enclose("one", level, shown=("edit",))
    w.rules.append(Rule("edit", "*", "deny"))
    await turn(w, w.session())
    assert w.agent.options.bounds is not None
    words = [str(event.properties) for event in w.hub.events]
    assert any("holds less than bubblewrap's" in text and "There is no program bwrap." in text for text in words) is is_told


async def test_the_server_reads_nothing_for_an_agent_in_a_sandbox(w: World, tool: list[Tool]) -> None:
    w.agents.enclose("one", "project")
    session = w.session()
    await turn(w, session)
    w.agent.says(ReadText("call-1", "/etc/passwd"), StopCommand("call-2"))
    [answer] = w.agent.host_answers
    assert isinstance(answer, HostDone)
    assert (answer.trouble, "sandbox" in answer.error) == ("refused", True)


@pytest.mark.parametrize(("action", "is_told"), [("deny", False), ("ask", True)])
async def test_only_what_the_kernel_does_not_hold_either_is_reported(
    w: World, tool: list[Tool], action: Action, is_told: bool
) -> None:
    w.agents.limit("one", Enforcement("questions", {"edit": "Edits are not seen."}))
    w.agents.enclose("one", "project", shown=("edit",))
    w.rules.append(Rule("edit", "*", action))
    await turn(w, w.session())
    assert any("cannot be held" in str(event.properties) for event in w.hub.events) is is_told


GAP = Enforcement("questions", {"edit": "Edits are not seen."})


@pytest.mark.parametrize("works", [True, False])
async def test_unasked_a_rule_that_nothing_else_holds_encloses_the_agent(w: World, tool: list[Tool], works: bool) -> None:
    if not works:
        tool.append(Tool(why="There is no program bwrap."))
    w.agents.limit("one", GAP)
    w.agents.enclose("one", "auto", shown=("edit",))
    session = w.session()
    await turn(w, session)
    assert w.agent.options.bounds is None
    w.rules.append(Rule("edit", "*", "deny"))
    await turn(w, session)
    await turn(w, session)
    assert len(w.agents.spawned) == 2, "also where no sandbox can be made it is started again once, and not for each prompt"
    assert (w.agent.options.bounds is not None) is works
    words = [str(event.properties) for event in w.hub.events]
    assert any("cannot be held" in said for said in words) is not works
    assert any("There is no program bwrap." in said for said in words) is not works
    del w.rules[:]
    await turn(w, session)
    assert w.agent.options.bounds is None


async def test_a_session_tightens_while_its_agent_runs(w: World, tool: list[Tool]) -> None:
    session = w.session()
    await turn(w, session)
    assert w.agent.options.bounds is None
    await w.manager.patch(session, metadata={"sandbox": "project"})
    await turn(w, session)
    await turn(w, session)
    assert len(w.agents.spawned) == 2
    assert w.agent.options.bounds is not None and w.agent.options.resume
    await w.manager.patch(session, metadata={})
    await turn(w, session)
    assert w.agent.options.bounds is None


async def test_a_session_below_another_begins_in_no_milder_sandbox(w: World, tool: list[Tool]) -> None:
    parent = w.session(metadata={"sandbox": "project", "mine": 1})
    record = w.manager.create("/p", Project(), parent_id=parent, metadata={"own": 2})
    assert record.metadata == {"own": 2, "sandbox": "project"}
    assert w.manager.create("/p", Project(), parent_id=parent, metadata={"sandbox": "strict"}).metadata == {"sandbox": "strict"}
    assert w.manager.create("/p", Project(), parent_id=w.session()).metadata is None
    await turn(w, record.id)
    assert w.agent.options.bounds is not None


@pytest.mark.parametrize("reads_own", [False, True])
async def test_an_agent_of_the_configuration_tightens_its_prompts(w: World, tool: list[Tool], reads_own: bool) -> None:
    if reads_own:  # as OpenCode, which reads the configuration itself
        w.agents.add_mode("one", "careful")
    w.config = OpenCodeConfig({"agent": {"careful": {"mode": "primary", "sandbox": "strict"}}})
    session = w.session()
    await turn(w, session)
    assert w.agent.options.bounds is None
    await turn(w, session, mode="careful")
    assert w.agent.options.bounds is not None and w.agent.options.bounds.level == "strict"
    await turn(w, session, mode="build")
    assert w.agent.options.bounds is None
