"""Trust for a directory: nothing that a project brings runs or counts before a person has been asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shim.sessions.permissions import trust_gate
from shim.sessions.permissions.trust_gate import REFUSE, TRUST, WITHOUT
from tests.support.api import EventStream
from tests.support.live import Live, live
from tests.support.opencode1_fold import Fold
from tests.support.specs import change
from universal.agent_spec import AgentSpec, ProjectSettingsUse
from universal.agents.mock.codec import MockCodec
from universal.agents.mock.spec import MOCK
from universal.codec import IdFactory
from universal.launch import LaunchOptions, LaunchSpec

HOOK = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "touch hooked"}]}]}}
DENY_QUESTIONS = [{"permission": "question", "pattern": "*", "action": "deny"}]
WAIT_S = 20.0


@dataclass
class Launches:
    """A mock that reads the settings of Claude Code, and the options with which it was started."""

    leaves_out: bool = True
    options: list[LaunchOptions] = field(default_factory=list)

    def agents(self) -> dict[str, AgentSpec]:
        def make(ids: IdFactory) -> MockCodec:
            options = self.options

            class RecordingCodec(MockCodec):
                def launch(self, launch: LaunchOptions) -> LaunchSpec:
                    options.append(launch)
                    return super().launch(launch)

            return RecordingCodec(ids)

        use = ProjectSettingsUse(("claude",), leaves_out=self.leaves_out)
        return {"mock": change(MOCK, make=make, project_settings=use)}

    @property
    def used(self) -> list[bool]:
        """For each start in a project, whether its settings were used."""
        return [options.project_settings for options in self.options if options.directory.endswith("project")]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    made = Launches()
    monkeypatch.setattr("shim.agents.setup.known_agents", made.agents)
    return made


def plant(tmp_path: Path, settings: object = HOOK, name: str = ".claude/settings.json") -> None:
    path = tmp_path / "project" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


@pytest.fixture
async def server(tmp_path: Path, launches: Launches) -> AsyncIterator[Live]:
    plant(tmp_path)
    async with live(tmp_path) as made:
        yield made


Act = Callable[[EventStream, dict[str, Any]], Any]


def answer_question(server: Live, label: str, asked: list[dict[str, Any]] | None = None) -> Act:
    async def act(_: EventStream, event: dict[str, Any]) -> None:
        if event["type"] == "question.asked":
            question = event["properties"]
            if asked is not None:
                asked.append(question)
            status = (await server.api.get("/session/status", status=200)).body
            assert status[question["sessionID"]]["type"] == "busy"
            await server.api.post(f"/question/{question['id']}/reply", {"answers": [[label]]}, status=200)

    return act


async def no_question(_: EventStream, event: dict[str, Any]) -> None:
    assert event["type"] != "question.asked"


def toasts(seen: list[dict[str, Any]]) -> list[str]:
    return [event["properties"]["message"] for event in seen if event["type"] == "tui.toast.show"]


async def test_the_question_lists_what_would_run_and_trust_lets_it_run(server: Live, launches: Launches) -> None:
    asked: list[dict[str, Any]] = []
    _, fold = await server.turn("echo hi", answer_question(server, TRUST, asked))
    assert fold.errors == []
    ((question,),) = [a["questions"] for a in asked]
    assert "[1] .claude/settings.json  hooks.Stop: touch hooked" in question["question"]
    assert [o["label"] for o in question["options"]] == [TRUST, WITHOUT]
    assert launches.used == [True]


async def test_trust_is_asked_once(server: Live, launches: Launches) -> None:
    await server.turn("echo hi", answer_question(server, TRUST))
    await server.turn("echo again", no_question)
    assert launches.used == [True, True]


async def test_a_declined_project_is_reported_once_and_not_asked_again(server: Live, launches: Launches) -> None:
    seen: list[dict[str, Any]] = []

    async def act(events: EventStream, event: dict[str, Any]) -> None:
        seen.append(event)
        await answer_question(server, WITHOUT)(events, event)

    session, fold = await server.turn("echo hi", act)
    assert fold.errors == []
    (toast,) = toasts(seen)
    assert "are off, as you chose (1)" in toast
    assert "opencode-shim trust" in toast
    await server.ask(session, "echo more")
    await server.turn("echo another session", no_question)
    assert launches.used == [False, False]


async def test_a_repository_without_such_settings_sees_none_of_this(tmp_path: Path, launches: Launches) -> None:
    plant(tmp_path, {"model": "x", "permissions": {"deny": ["Read"]}})
    (tmp_path / "project" / "CLAUDE.md").write_text("Say yes.")
    async with live(tmp_path) as server:
        seen: list[dict[str, Any]] = []

        async def act(_: EventStream, event: dict[str, Any]) -> None:
            seen.append(event)

        await server.turn("echo hi", act)
        assert toasts(seen) == []
        assert not [event for event in seen if event["type"].startswith("question")]
    assert launches.used == [True]
    assert not (tmp_path / "data" / "trust.json").exists()


async def test_changed_content_asks_again_and_restarts_the_agent(server: Live, launches: Launches, tmp_path: Path) -> None:
    session, _ = await server.turn("echo hi", answer_question(server, TRUST))
    plant(tmp_path, {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "touch other"}]}]}})
    asked: list[dict[str, Any]] = []
    fold = Fold(session)
    async with server.api.stream("/event") as events:
        await server.prompt(session, "echo more")
        async with asyncio.timeout(WAIT_S):
            while fold.idles == 0:
                event = await events.next()
                fold.feed(event["type"], event["properties"])
                await answer_question(server, WITHOUT, asked)(events, event)
    assert "touch other" in asked[0]["questions"][0]["question"]
    assert launches.used == [True, False]


async def test_a_decision_outlives_the_server(tmp_path: Path, launches: Launches) -> None:
    plant(tmp_path)
    async with live(tmp_path) as server:
        await server.turn("echo hi", answer_question(server, TRUST))
    file = tmp_path / "data" / "trust.json"
    assert file.stat().st_mode & 0o777 == 0o600
    async with live(tmp_path) as server:
        await server.turn("echo hi", no_question)
    assert launches.used == [True, True]


@pytest.mark.parametrize("how", ["trust_all", "trusted_roots"])
async def test_a_trusted_project_is_not_asked_about(tmp_path: Path, launches: Launches, how: str) -> None:
    plant(tmp_path)
    settings: dict[str, Any] = {"trust_all": True} if how == "trust_all" else {"trusted_roots": [tmp_path]}
    async with live(tmp_path, **settings) as server:
        await server.turn("echo hi", no_question)
    assert launches.used == [True]


async def test_a_client_that_denies_questions_goes_on_without_at_once(server: Live, launches: Launches) -> None:
    seen: list[dict[str, Any]] = []
    session = await server.session(permission=DENY_QUESTIONS)
    fold = Fold(session)
    async with server.api.stream("/event") as events:
        await server.prompt(session, "echo hi")
        async with asyncio.timeout(WAIT_S):
            while fold.idles == 0:
                seen.append(event := await events.next())
                fold.feed(event["type"], event["properties"])
    assert not [event for event in seen if event["type"].startswith("question")]
    assert len(toasts(seen)) == 1
    assert launches.used == [False]


async def test_without_an_answer_in_time_the_turn_goes_on_untrusted(tmp_path: Path, launches: Launches) -> None:
    plant(tmp_path)
    async with live(tmp_path, trust_question_s=0.1) as server:
        session, fold = await server.turn("echo hi")
        assert fold.errors == []
        assert (await server.api.get("/question", status=200)).body == []
        await server.ask(session, "echo more")
    assert launches.used == [False]


async def test_without_clients_the_hub_goes_on_without_soon(
    server: Live, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust_gate, "NOBODY_S", 0.1)
    monkeypatch.setattr(trust_gate, "LOOK_S", 0.05)
    async with asyncio.timeout(WAIT_S):
        answer = await server.ask(await server.session(), "echo hi")
    assert answer["info"].get("error") is None
    assert launches.used == [False]


async def test_an_agent_that_cannot_leave_them_out_is_not_started(tmp_path: Path, launches: Launches) -> None:
    launches.leaves_out = False
    plant(tmp_path)
    async with live(tmp_path) as server:
        asked: list[dict[str, Any]] = []
        _, fold = await server.turn("echo hi", answer_question(server, REFUSE, asked))
        assert [o["label"] for o in asked[0]["questions"][0]["options"]] == [TRUST, REFUSE]
        (error,) = fold.errors
        assert "opencode-shim trust" in str(error)
        assert "hooks.Stop" in str(error)
    assert launches.used == []


async def test_abort_while_it_is_open_ends_the_turn_once(server: Live, launches: Launches) -> None:
    async def act(_: EventStream, event: dict[str, Any]) -> None:
        if event["type"] == "question.asked":
            await server.api.post(f"/session/{event['properties']['sessionID']}/abort", status=200)

    session, _ = await server.turn("echo hi", act)
    assert (await server.api.get("/question", status=200)).body == []
    assert launches.used == []
    fold = Fold(session)
    async with server.api.stream("/event") as events:  # and the session goes on: it is asked again
        await server.prompt(session, "echo hi")
        async with asyncio.timeout(WAIT_S):
            while fold.idles == 0:
                event = await events.next()
                fold.feed(event["type"], event["properties"])
                await answer_question(server, TRUST)(events, event)
    assert launches.used == [True]


async def test_sessions_that_begin_at_once_share_one_answer(server: Live, launches: Launches) -> None:
    sessions = [await server.session() for _ in range(3)]
    asked: dict[str, str] = {}
    idle: list[str] = []
    async with server.api.stream("/event") as events:
        for session in sessions:
            await server.prompt(session, "echo hi")
        async with asyncio.timeout(WAIT_S):
            while len(idle) < 3:
                event = await events.next()
                if event["type"] == "question.asked":
                    asked[event["properties"]["sessionID"]] = event["properties"]["id"]
                    if len(asked) == 3:
                        body = {"answers": [[TRUST]]}
                        await server.api.post(f"/question/{asked[sessions[1]]}/reply", body, status=200)
                elif event["type"] == "session.idle":
                    idle.append(event["properties"]["sessionID"])
    assert sorted(idle) == sorted(sessions)
    assert (await server.api.get("/question", status=200)).body == []
    assert launches.used == [True, True, True]


async def test_a_dismissed_question_leaves_the_settings_out_of_this_session_alone(server: Live, launches: Launches) -> None:
    async def act(_: EventStream, event: dict[str, Any]) -> None:
        if event["type"] == "question.asked":
            await server.api.post(f"/question/{event['properties']['id']}/reject", status=200)

    session, fold = await server.turn("echo hi", act)
    assert fold.errors == []
    await server.ask(session, "echo more")
    assert launches.used == [False]
    await server.turn("echo another", answer_question(server, TRUST))
    assert launches.used == [False, True]


async def test_a_deleted_session_waits_for_no_answer(server: Live, launches: Launches) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events:
        await server.prompt(session, "echo hi")
        async with asyncio.timeout(WAIT_S):
            while (await events.next())["type"] != "question.asked":
                pass
        async with asyncio.timeout(WAIT_S):
            await server.api.delete(f"/session/{session}", status=200)
    assert launches.used == []


@pytest.mark.parametrize("answer", [TRUST, WITHOUT])
async def test_allows_of_a_project_count_only_when_it_is_trusted(tmp_path: Path, launches: Launches, answer: str) -> None:
    plant(tmp_path, {"permission": "allow"}, "opencode.json")
    async with live(tmp_path) as server:
        asked: list[str] = []

        async def act(events: EventStream, event: dict[str, Any]) -> None:
            await answer_question(server, answer)(events, event)
            if event["type"] == "permission.asked":
                asked.append(event["properties"]["id"])
                await server.api.post(f"/permission/{asked[-1]}/reply", {"reply": "once"}, status=200)

        await server.turn("permission", act)
    assert bool(asked) == (answer == WITHOUT)


async def test_denies_of_a_project_count_without_trust(tmp_path: Path, launches: Launches) -> None:
    plant(tmp_path, {"permission": {"*": "allow", "bash": "deny"}}, "opencode.json")
    async with live(tmp_path) as server:

        async def act(events: EventStream, event: dict[str, Any]) -> None:
            assert event["type"] != "permission.asked"
            await answer_question(server, WITHOUT)(events, event)

        _, fold = await server.turn("permission", act)
    assert [p["state"]["status"] for m in fold.wire() for p in m["parts"] if p["type"] == "tool"] == ["error"]
