"""Hooks: what is told, to whom; bounded, timed, never waited for."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import ValidationError

from shim.lib.settings import Settings
from shim.lib.settings_tables import Hook
from shim.main.app import BACKEND
from shim.telemetry.hooks import QUEUE, Hooks, notice_of
from tests.support.live import live, prompt_body
from universal.events import (
    ErrorData,
    EventData,
    EventType,
    PermissionData,
    QuestionData,
    Source,
    TurnData,
    UniversalEvent,
)
from universal.session.values import SessionRecord

WAIT_S = 20.0
RECORD = SessionRecord("s", title="T", directory="/d")


def event(type_: EventType, data: EventData) -> UniversalEvent:
    return UniversalEvent(
        event_id="evt_1",
        sequence=1,
        time="2026-01-01T00:00:00.000Z",
        session_id="s",
        source=Source.DAEMON,
        synthetic=True,
        type=type_,
        data=data,
    )


ENDED = event(EventType.TURN_ENDED, TurnData(phase="ended", turn_id="t", metadata={"reason": "completed"}))


@pytest.mark.parametrize(
    ("type_", "data", "kind"),
    [
        (EventType.TURN_ENDED, TurnData(phase="ended", turn_id="t", metadata={"reason": "error"}), "idle"),
        (EventType.TURN_STARTED, TurnData(phase="started", turn_id="t"), None),
        (EventType.PERMISSION_REQUESTED, PermissionData(permission_id="p", action="bash", status="requested"), "permission"),
        (
            EventType.PERMISSION_REQUESTED,
            PermissionData(permission_id="p", action="bash", status="requested", metadata={"auto": "allow"}),
            None,
        ),
        (EventType.PERMISSION_RESOLVED, PermissionData(permission_id="p", action="bash", status="accept"), None),
        (EventType.QUESTION_REQUESTED, QuestionData(question_id="q", prompt="?", options=("a",), status="requested"), "question"),
        (EventType.ERROR, ErrorData(message="it failed", code="x"), "error"),
    ],
)
def test_notices_of_hooks(type_: EventType, data: EventData, kind: str | None) -> None:
    notice = notice_of(event(type_, data), RECORD)
    assert (notice.event if notice else None) == kind
    assert notice is None or (notice.body["session_id"], notice.body["title"]) == ("s", "T")


def test_subagents_and_unknown_sessions_make_no_report() -> None:
    assert notice_of(ENDED, replace(RECORD, parent_id="p")) is None
    assert notice_of(ENDED, None) is None


def test_secrets_are_redacted() -> None:
    notice = notice_of(event(EventType.ERROR, ErrorData(message="key sk-ant-0123456789 is wrong")), RECORD)
    assert notice is not None
    assert "0123456789" not in json.dumps(notice.body)


@pytest.mark.parametrize(
    "given", [{"on": ["idle"]}, {"on": ["idle"], "command": ["a"], "url": "http://x"}, {"on": [], "command": ["a"]}]
)
def test_a_hook_has_one_target(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Hook.model_validate(given)


async def test_a_command_gets_json_at_the_end_of_a_turn(tmp_path: Path) -> None:
    out = tmp_path / "told"
    script = f'cat >> {out}; echo " $SHIM_HOOK_EVENT" >> {out}'
    async with live(tmp_path, hooks=(Hook(on=("idle", "error"), command=("sh", "-c", script)),)) as server:
        session = await server.session(title="Mine")
        await server.api.post(f"/session/{session}/message", prompt_body("echo x"), status=200)
        async with asyncio.timeout(WAIT_S):
            while not (out.exists() and out.read_text().endswith("idle\n")):
                await asyncio.sleep(0.02)
    body = json.loads(out.read_text().rpartition(" ")[0])
    assert (body["event"], body["session_id"], body["title"], body["reason"]) == ("idle", session, "Mine", "completed")


async def test_a_webhook_gets_a_post() -> None:
    told: asyncio.Queue[tuple[Any, str]] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        told.put_nowait((await request.json(), request.headers["X-Key"]))
        return web.Response()

    app = web.Application()
    app.router.add_post("/hook", take)
    async with TestServer(app) as server:
        hook = Hook.model_validate({"on": ["idle"], "url": str(server.make_url("/hook")), "headers": {"X-Key": "k"}})
        hooks = Hooks([hook], lambda _: RECORD)
        hooks.observe(ENDED)
        async with asyncio.timeout(WAIT_S):
            body, key = await told.get()
        await hooks.close()
    assert (body["event"], key) == ("idle", "k")


async def test_only_the_current_hook_gets_events() -> None:
    stays, goes = Hook(on=("idle",), command=("sleep", "60")), Hook(on=("idle",), command=("sleep", "61"))
    hooks = Hooks([goes, stays], lambda _: RECORD)
    first, second = hooks._runners
    for _ in range(3):
        hooks.observe(ENDED)
    hooks.replace([stays])
    assert hooks._runners == [second]
    assert len(first._waiting) == 0
    assert len(second._waiting) == 3
    hooks.observe(ENDED)
    assert (len(first._waiting), len(second._waiting)) == (0, 4)
    await hooks.close()
    await first.close()


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        (Hook(on=("idle",), command=("sh", "-c", "sleep 60"), timeout_s=0.2), "not done within 0.2 s"),
        (Hook(on=("idle",), command=("sh", "-c", "exit 3")), "exit code 3"),
        (Hook(on=("idle",), command=("no-such-program-here",)), "not installed"),
        (Hook.model_validate({"on": ["idle"], "url": "http://127.0.0.1:1/x", "timeout_s": 2}), "hook.failed"),
    ],
)
async def test_a_hook_that_fails_is_a_line_in_the_log(hook: Hook, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    hooks = Hooks([hook], lambda _: RECORD)
    hooks.observe(ENDED)
    said = ""
    async with asyncio.timeout(WAIT_S):
        while why not in said:
            await asyncio.sleep(0.02)
            said += capsys.readouterr().out
    await hooks.close()


async def test_a_slow_hook_has_a_bounded_queue_and_delays_no_turn() -> None:
    hooks = Hooks([Hook(on=("idle",), command=("sleep", "60"), timeout_s=60)], lambda _: RECORD)
    for _ in range(QUEUE * 3):
        hooks.observe(ENDED)
    [runner] = hooks._runners
    assert len(runner._waiting) == QUEUE
    assert runner.dropped == QUEUE * 2
    async with asyncio.timeout(WAIT_S):
        await hooks.close()


async def test_events_are_observed_while_the_settings_have_hooks(tmp_path: Path) -> None:
    out = tmp_path / "told"
    hook = Hook(on=("idle",), command=("sh", "-c", f"echo x >> {out}"))
    async with live(tmp_path) as server:
        backend = await server.api.raw.app[BACKEND].get()
        session = await server.session()
        await server.ask(session, "echo nobody hears this")
        backend.apply(Settings(hooks=(hook,)))
        await server.ask(session, "echo heard")
        async with asyncio.timeout(WAIT_S):
            while not out.exists():
                await asyncio.sleep(0.02)
        backend.apply(Settings())
        await server.ask(session, "echo nobody hears this")
        assert out.read_text() == "x\n"
        assert not backend.hooks.is_on
