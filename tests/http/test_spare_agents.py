"""Spare agents behind the whole server: a new session takes one, and no client sees a difference, even when it dies."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shim.agents.spares.spare_agents import OPEN_MS, REFILL_MS, Spare, SpareAgents
from shim.host.git.snapshot import Snapshots
from shim.lib.clock import ManualClock
from shim.main.app import SERVICES, apply_settings
from shim.sessions.session.session_agent import SessionAgent
from tests.support.heron import BODY, herons, install, processes
from tests.support.live import Live, live

WAIT_S = 10.0


@dataclass
class Server:
    """A server with herons; the project is their only directory."""

    live: Live
    clock: ManualClock
    home: Path

    @property
    def spares(self) -> SpareAgents:
        spares = self.live.api.raw.app[SERVICES].sessions.deps.spares
        assert spares is not None
        return spares

    def pids(self) -> list[int]:
        return [row.pid for row in processes(self.home)]

    async def refill(self) -> int:
        """Let the time pass after which a spare is started; its pid."""
        self.clock.value_ms += REFILL_MS
        before = len(self.pids())
        await self.spares.look()
        await self.until(lambda: len(self.pids()) > before)
        return self.pids()[-1]

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def say(self, text: str) -> tuple[str, str]:
        """A turn in a new session: its id and the agent's answer."""
        session, fold = await self.live.turn(text, **BODY)
        assert fold.errors == []
        messages = await self.live.messages(session)
        return session, "".join(part["text"] for part in messages[-1]["parts"] if part["type"] == "text")


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    environ = install(tmp_path / "home")
    for name in ("HOME", "HERON_KEY"):
        monkeypatch.setenv(name, environ[name])
    monkeypatch.setattr("shim.agents.setup.known_agents", herons)
    monkeypatch.setattr("shim.agents.spares.spare_agents.free_bytes", lambda: 2**40)
    clock = ManualClock()
    async with live(tmp_path, clock=clock, environ=environ) as made:
        yield Server(made, clock, tmp_path / "home")


async def test_the_first_prompt_of_a_session_goes_to_the_spare(server: Server) -> None:
    _, first = await server.say("one")
    assert first == f"{server.pids()[0]}: one"
    spare = await server.refill()
    session, second = await server.say("two")
    assert second == f"{spare}: two"
    assert len(server.pids()) == 2
    await server.live.ask(session, "three", **BODY)
    assert len(server.pids()) == 2, "the session keeps it"


async def test_a_spare_makes_no_session_and_no_event(server: Server) -> None:
    await server.say("one")
    store = server.live.api.raw.app[SERVICES].store
    seen: list[str] = []
    server.live.api.raw.app[SERVICES].sessions.deps.feed.observe(lambda event: seen.append(event.type))
    before = len((await server.live.api.get("/session", status=200)).body), len(await store.sessions())
    await server.refill()
    assert (len((await server.live.api.get("/session", status=200)).body), len(await store.sessions())) == before
    assert (await server.live.api.get("/session/status", status=200)).body == {}
    assert seen == []


async def test_a_spare_has_its_directory_ready_for_the_snapshot_before_the_first_prompt(server: Server, tmp_path: Path) -> None:
    await server.say("one")
    repositories = list((tmp_path / "data").glob("snapshots/*/HEAD"))
    assert len(repositories) == 1
    repositories[0].with_name("index").unlink()
    await server.refill()
    await server.until(lambda: repositories[0].with_name("index").exists())


async def test_metrics_count_spares_beside_the_agents_of_sessions(server: Server) -> None:
    await server.say("one")
    await server.refill()
    metrics = await (await server.live.api.raw.get("/metrics")).text()
    assert 'opencode_shim_agents{state="session"} 1.0' in metrics
    assert 'opencode_shim_agents{state="spare"} 1.0' in metrics


async def test_a_stopped_server_leaves_no_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = install(tmp_path / "home")
    monkeypatch.setattr("shim.agents.setup.known_agents", herons)
    monkeypatch.setattr("shim.agents.spares.spare_agents.free_bytes", lambda: 2**40)
    clock = ManualClock()
    async with live(tmp_path, clock=clock, environ=environ) as made:
        server = Server(made, clock, tmp_path / "home")
        await server.say("one")
        spare = await server.refill()
        os.kill(spare, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(spare, 0)


async def test_disposing_the_instance_ends_its_spare(server: Server) -> None:
    await server.say("one")
    spare = await server.refill()
    await server.live.api.post("/instance/dispose", status=200)
    _, answer = await server.say("two")
    assert answer != f"{spare}: two"


async def test_a_listing_of_sessions_starts_a_spare_where_an_agent_has_answered(server: Server) -> None:
    await server.say("one")
    server.spares._histories.clear()  # as after a restart of the server
    before = len(server.pids())
    await server.live.api.get("/session", status=200)
    await server.until(lambda: len(server.pids()) > before)


async def test_a_listing_starts_nothing_in_a_directory_without_prompts(server: Server, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    await server.live.api.get("/session", params={"directory": str(other)}, status=200)
    await server.live.session()
    await server.live.api.get("/session", status=200)
    await server.spares.look()
    assert (server.pids(), server.spares.count) == ([], 0)


async def test_a_reload_that_sets_zero_ends_the_spares(server: Server) -> None:
    await server.say("one")
    await server.refill()
    app = server.live.api.raw.app
    apply_settings(app, app[SERVICES].settings.model_copy(update={"spare_agents": 0}))
    await server.spares.look()
    assert server.spares.count == 0


# --- the turn's promise ------------------------------------------------------------------------------------------------


async def test_a_turn_ends_once_when_the_spare_dies_as_the_prompt_comes(server: Server) -> None:
    await server.say("one")
    spare = await server.refill()
    os.kill(spare, 9)  # the server may or may not know it yet
    _, answer = await server.say("two")
    assert answer == f"{server.pids()[-1]}: two"
    assert server.pids()[-1] != spare


async def test_a_turn_ends_once_when_the_spare_dies_while_the_prompt_waits(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken, and the snapshot before the prompt is not done yet."""
    await server.say("one")
    spare = await server.refill()
    track = Snapshots.track

    async def track_late(self: Snapshots, directory: str) -> str:
        def find_taken() -> list[SessionAgent]:
            actors = server.live.api.raw.app[SERVICES].sessions.index.actors()
            return [actor.process for actor in actors if actor.process.is_untried]

        await server.until(find_taken)
        [process] = find_taken()
        os.kill(spare, 9)
        await server.until(lambda: process.codec is None)
        return await track(self, directory)

    monkeypatch.setattr(Snapshots, "track", track_late)
    _, answer = await server.say("two")
    assert answer == f"{server.pids()[-1]}: two"
    assert server.pids()[-1] != spare


async def test_a_turn_ends_once_when_the_spare_dies_of_the_prompt(server: Server) -> None:
    """The prompt is given to one more process. That one dies too, and the turn ends with its error."""
    await server.say("one")
    await server.refill()
    count = len(server.pids())
    _, fold = await server.live.turn("die", **BODY)
    assert len(fold.errors) == 1
    assert len(server.pids()) == count + 1


async def test_an_abort_while_a_spare_is_taken_ends_the_turn_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await server.say("one")
    await server.refill()
    session = ""
    taken = server.spares.take

    async def take(*arguments: Any) -> Spare | None:
        await server.live.api.post(f"/session/{session}/abort", status=200)
        return await taken(*arguments)

    monkeypatch.setattr(server.spares, "take", take)
    async with server.live.api.stream("/event") as events:
        session = await server.live.session()
        await server.live.prompt(session, "two", **BODY)
        kinds: list[str] = []
        while "session.idle" not in kinds:
            kinds.append((await events.next())["type"])
        monkeypatch.undo()
        await server.live.ask(session, "three", **BODY)
    assert kinds.count("session.idle") == 1


async def test_an_abort_right_after_the_prompt_reached_the_spare_ends_the_turn_once(server: Server) -> None:
    await server.say("one")
    await server.refill()

    async def act(_: Any, event: dict[str, Any]) -> None:
        status = event["properties"].get("status")
        if event["type"] == "session.status" and status["type"] == "busy":
            await server.live.api.post(f"/session/{event['properties']['sessionID']}/abort", status=200)

    await server.live.turn("hang", act, **BODY)


# --- the agent of an opened session -----------------------------------------------------------------------------------


async def read_all(server: Server, session: str) -> None:
    """What a TUI reads when a person opens a session."""
    for part in ("message", "todo", "diff"):
        await server.live.api.get(f"/session/{session}/{part}", status=200)


async def closed_session(server: Server) -> str:
    """A session with one answer, whose agent has ended."""
    session, _ = await server.say("one")
    await server.live.api.post("/instance/dispose", status=200)
    server.spares._histories.clear()
    return session


async def wait_ahead(server: Server) -> list[int]:
    """The processes after the time in which an opened session gets its agent."""
    server.clock.value_ms += OPEN_MS
    await server.spares.look()
    return server.pids()


async def test_a_session_that_a_person_opens_gets_its_agent_ahead(server: Server) -> None:
    session = await closed_session(server)
    async with server.live.api.stream("/event"):
        await read_all(server, session)
        await wait_ahead(server)
        await server.until(lambda: len(server.pids()) == 2)
        await server.live.ask(session, "two", **BODY)
    messages = await server.live.messages(session)
    assert [part["text"] for part in messages[-1]["parts"] if part["type"] == "text"] == [f"{server.pids()[-1]}: two"]
    assert len(server.pids()) == 2


async def test_a_spare_of_a_conversation_that_goes_on_elsewhere_gets_no_prompt(server: Server) -> None:
    session = await closed_session(server)
    async with server.live.api.stream("/event"):
        await read_all(server, session)
        await wait_ahead(server)
        await server.until(lambda: len(server.pids()) == 2)
        (key,) = server.spares._spares
        spare = server.pids()[-1]
        server.spares.renew_conversation(key.agent, key.directory, key.conversation)
        await server.live.ask(session, "two", **BODY)
    messages = await server.live.messages(session)
    (said,) = [part["text"] for part in messages[-1]["parts"] if part["type"] == "text"]
    assert said != f"{spare}: two"
    assert said.endswith(": two")


@pytest.mark.parametrize("reads", [("message",), ("message", "todo"), ("",)])
async def test_a_client_that_lists_or_polls_starts_no_agent(server: Server, reads: tuple[str, ...]) -> None:
    session = await closed_session(server)
    async with server.live.api.stream("/event"):
        for read in reads * 3:
            await server.live.api.get(f"/session/{session}/{read}".rstrip("/"), status=200)
        assert len(await wait_ahead(server)) == 1


async def test_without_a_stream_of_events_an_opened_session_starts_no_agent(server: Server) -> None:
    session = await closed_session(server)
    await server.until(lambda: not server.live.api.raw.app[SERVICES].hub.has_reader(str(server.live.directory)))
    await read_all(server, session)
    assert len(await wait_ahead(server)) == 1


async def test_a_session_whose_agent_runs_gets_no_other(server: Server) -> None:
    session, _ = await server.say("one")
    server.spares._histories.clear()
    async with server.live.api.stream("/event"):
        await read_all(server, session)
        assert len(await wait_ahead(server)) == 1
