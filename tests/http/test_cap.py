"""A turn that reaches a cap, over HTTP with an agent that a test controls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shim.sessions.permissions.unattended_policy import HEADERS
from shim.sessions.prompts import cap
from tests.support.live import Live, live
from tests.support.puppet import MODELS, NAME, Puppet, PuppetPrompt
from tests.support.universal import face

pytestmark = pytest.mark.asyncio
BY_RULES = {"metadata": {"unattended": "rules"}}
MODEL = {"providerID": NAME, "modelID": MODELS[0]}


@pytest.fixture
def puppet(monkeypatch: pytest.MonkeyPatch) -> Puppet:
    made = Puppet()
    made.install(monkeypatch)
    monkeypatch.setattr(cap, "LOOK_S", 0.02)
    return made


async def begin(server: Live, puppet: Puppet, headers: dict[str, str] | None = None, **body: Any) -> tuple[str, PuppetPrompt]:
    session = await server.session(**body)
    await prompt(server, session, headers)
    return session, await puppet.next_prompt()


async def prompt(server: Live, session: str, headers: dict[str, str] | None = None) -> None:
    body = {"parts": [{"type": "text", "text": "work on it"}], "model": MODEL}
    await server.api.post(f"/session/{session}/prompt_async", body, headers=headers or {}, status=204)


async def spend(puppet: Puppet, to: PuppetPrompt, cost: float, *, is_last: bool) -> None:
    """Let the agent end a step that has cost so much."""
    await puppet.say(to, type="step_start", run=to.run, step=f"s{cost}")
    await puppet.say(to, type="text", step=f"s{cost}", part="t0", delta="done")
    await puppet.say(to, type="step_finish", step=f"s{cost}", finish="stop" if is_last else "tool-calls", cost=cost)
    if is_last:
        await puppet.say(to, type="done", run=to.run, status="completed")


async def question(server: Live) -> Any:
    async with asyncio.timeout(5):
        while not (asked := (await server.api.get("/question", status=200)).body):
            await asyncio.sleep(0.01)
    return asked[0]


async def answer(server: Live, label: str) -> str:
    """Answer the open question. Out: its text."""
    asked = await question(server)
    await server.api.post(f"/question/{asked['id']}/reply", {"answers": [[label]]}, status=200)
    return asked["questions"][0]["question"]


async def until_idle(server: Live, session: str) -> list[Any]:
    """The errors of a session's messages, once it is idle."""
    async with asyncio.timeout(5):
        while session in (await server.api.get("/session/status", status=200)).body:
            await asyncio.sleep(0.01)
    errors = [message["info"].get("error") for message in await server.messages(session)]
    return [error for error in errors if error]


async def test_a_turn_that_takes_too_long_goes_on_as_the_person_says(tmp_path: Path, puppet: Puppet) -> None:
    async with live(tmp_path, max_turn_seconds=0.05) as server, server.api.stream("/event"):
        session, first = await begin(server, puppet)
        assert "max_turn_seconds: 0.05" in await answer(server, "Go on")
        assert "max_turn_seconds: 0.05" in await answer(server, "Go on"), "until as much again is used up"
        await puppet.say(first, type="done", run=first.run, status="completed")
        await until_idle(server, session)
        assert not puppet.lines, "the agent was not stopped"


async def test_a_person_stops_a_turn_that_has_cost_too_much(tmp_path: Path, puppet: Puppet) -> None:
    async with live(tmp_path) as server, server.api.stream("/event"):
        session, first = await begin(server, puppet, metadata={"max_cost": 0.5})
        await spend(puppet, first, 0.6, is_last=False)
        assert "0.6 USD (max_cost: 0.5)" in await answer(server, "Stop")
        await puppet.wait_for_line("interrupt")
        await puppet.say(first, type="done", run=first.run, status="aborted")
        await until_idle(server, session)


async def test_a_prompt_waits_where_the_session_has_cost_too_much(tmp_path: Path, puppet: Puppet) -> None:
    async with live(tmp_path) as server, server.api.stream("/event"):
        session, first = await begin(server, puppet, metadata={"max_cost": 0.5})
        await spend(puppet, first, 0.6, is_last=True)
        await until_idle(server, session)
        await prompt(server, session)
        await answer(server, "Stop")
        await until_idle(server, session)
        await prompt(server, session)
        await answer(server, "Go on")
        second = await puppet.next_prompt()
        await spend(puppet, second, 0.2, is_last=True)
        await until_idle(server, session)
        assert not puppet.lines


async def test_calls_wait_for_the_answer(tmp_path: Path, puppet: Puppet) -> None:
    rules = [{"permission": "*", "pattern": "*", "action": "allow"}]
    async with live(tmp_path) as server, server.api.stream("/event"):
        session, first = await begin(server, puppet, metadata={"max_cost": 0.5}, permission=rules)
        await spend(puppet, first, 0.6, is_last=False)
        await question(server)
        await puppet.say(first, type="step_start", run=first.run, step="s2")
        await puppet.say(first, type="tool_start", step="s2", tool="t1", name="bash")
        await puppet.say(first, type="tool_run", tool="t1", input={"command": "ls"})
        await puppet.say(first, type="permission", id="p1", tool="t1", title="ls", patterns=["ls"])
        await puppet.say(first, type="text", step="s2", part="t1", delta="heard")
        async with asyncio.timeout(5):
            while "heard" not in str(await server.messages(session)):
                await asyncio.sleep(0.01)
        assert not puppet.lines, "the rule has not allowed it yet"
        await answer(server, "Go on")
        await puppet.wait_for_line("permission_reply")


@pytest.mark.parametrize("how", ["rules", "reject", "nobody"])
async def test_a_turn_stops_with_its_reason_without_an_answer(
    tmp_path: Path, puppet: Puppet, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cap, "NOBODY_S", 0.05)
    metadata = {"rules": {"unattended": "rules"}, "reject": {"unattended": "reject:0.05"}, "nobody": {}}[how]
    async with live(tmp_path) as server:
        session, first = await begin(server, puppet, {HEADERS[1]: "0.05"}, metadata=metadata)
        await puppet.wait_for_line("interrupt")
        await puppet.say(first, type="done", run=first.run, status="aborted")
        assert "Stopped: This turn has worked for" in str(await until_idle(server, session))
        assert not (await server.api.get("/question", status=200)).body


async def test_the_cap_of_a_prompt_counts_for_it_alone(tmp_path: Path, puppet: Puppet) -> None:
    async with live(tmp_path) as server:
        session, first = await begin(server, puppet, **BY_RULES)
        await spend(puppet, first, 0.6, is_last=True)
        await until_idle(server, session)
        await prompt(server, session, {HEADERS[0]: "0.5"})
        second = await puppet.next_prompt()
        await spend(puppet, second, 0.55, is_last=False)
        await puppet.wait_for_line("interrupt")
        await puppet.say(second, type="done", run=second.run, status="aborted")
        assert "This prompt has cost 0.55 USD (max_cost: 0.5)" in str(await until_idle(server, session))
        await prompt(server, session)
        await spend(puppet, await puppet.next_prompt(), 0.7, is_last=True)
        await until_idle(server, session)


async def test_a_wrong_cap_is_refused_with_a_sentence(tmp_path: Path, puppet: Puppet) -> None:
    async with live(tmp_path) as server:
        session = await server.session()
        for value in (-1, "much", True, "nan"):
            answers = [
                await server.api.post("/session", {"metadata": {"max_cost": value}}, status=400),
                await server.api.post(f"/session/{session}/prompt_async", {"parts": []}, headers={HEADERS[0]: str(value)}),
            ]
            assert all(answer.status == 400 and "give a number from 0" in str(answer.body) for answer in answers)


async def test_v1_sets_them(tmp_path: Path) -> None:
    async with face(tmp_path) as v1:
        await v1.call("create_session", session_id="s", json={"agent": "mock", "maxCost": -1}, status=400)
        await v1.call("create_session", session_id="s", json={"agent": "mock", "maxCost": 0.5, "maxTurnSeconds": 60})
        [info] = (await v1.call("list_sessions"))["sessions"]
        record = await v1.live.api.get(f"/session/{info['openCodeSessionId']}", status=200)
        assert record.body["metadata"] == {"max_cost": 0.5, "max_turn_seconds": 60.0}
