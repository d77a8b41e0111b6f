"""A turn that has hit a limit of the person's plan goes on when it resets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shim.lib.clock import SystemClock
from shim.sessions.prompts import limit_wait
from tests.support.live import Live, live
from tests.support.puppet import MODELS, NAME, Puppet, PuppetPrompt

pytestmark = pytest.mark.asyncio


@pytest.fixture
def puppet(monkeypatch: pytest.MonkeyPatch) -> Puppet:
    made = Puppet()
    made.install(monkeypatch)
    monkeypatch.setattr(limit_wait, "GRACE_S", 0)
    return made


async def refuse(puppet: Puppet, to: PuppetPrompt, after_s: int) -> None:
    """Fail a prompt, because of a limit that resets so many seconds from now."""
    resets_at = SystemClock().now_ms() // 1000 + after_s
    await puppet.say(to, type="error", run=to.run, message="limit hit", code="rate_limit", resets_at=resets_at)
    await puppet.say(to, type="done", run=to.run, status="error")


async def begin(server: Live, puppet: Puppet, **body: Any) -> tuple[str, PuppetPrompt]:
    session = await server.session(**body)
    await server.prompt(session, "work on it", model={"providerID": NAME, "modelID": MODELS[0]})
    return session, await puppet.next_prompt()


async def status_of(server: Live, session: str) -> Any:
    return (await server.api.get("/session/status", status=200)).body.get(session, {"type": "idle"})


async def until(server: Live, session: str, kind: str) -> Any:
    async with asyncio.timeout(5):
        while (status := await status_of(server, session))["type"] != kind:
            await asyncio.sleep(0.02)
    return status


async def test_a_prompt_comes_again_and_one_that_has_begun_goes_on(tmp_path: Path, puppet: Puppet) -> None:
    async with live(tmp_path, continue_at_reset=2) as server:
        session, first = await begin(server, puppet)
        await refuse(puppet, first, 0)
        again = await puppet.next_prompt()
        assert again.frame["text"] == first.frame["text"]
        await puppet.say(again, type="step_start", run=again.run, step="s1")
        await puppet.say(again, type="text", step="s1", part="t0", delta="half of it")
        await refuse(puppet, again, 0)
        third = await puppet.next_prompt()
        assert third.frame["text"] == limit_wait.GO_ON
        await refuse(puppet, third, 0)
        await until(server, session, "idle")
        errors = [message["info"].get("error") for message in await server.messages(session)]
        assert "limit hit" in str(errors[-1]), "the third time is one too many"


async def test_a_person_sees_when_it_goes_on_and_can_stop_it(tmp_path: Path, puppet: Puppet) -> None:
    async with live(tmp_path) as server:
        session, first = await begin(server, puppet, metadata={"continue_at_reset": 1})
        await refuse(puppet, first, 600)
        status = await until(server, session, "retry")
        assert abs(status["next"] - SystemClock().now_ms() - 600_000) < 5_000
        await server.api.post(f"/session/{session}/abort", status=200)
        assert (await until(server, session, "idle"))["type"] == "idle"
        assert not puppet.lines, "the agent has nothing to stop"


async def test_a_turn_ends_with_the_error_without_the_setting(tmp_path: Path, puppet: Puppet) -> None:
    async with live(tmp_path, continue_at_reset=1) as server:
        session, first = await begin(server, puppet, metadata={"continue_at_reset": 0})
        await refuse(puppet, first, 600)
        await until(server, session, "idle")
        for value in (-1, True, 101, "1"):
            await server.api.post("/session", {"metadata": {"continue_at_reset": value}}, status=400)
