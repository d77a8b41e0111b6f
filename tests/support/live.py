"""The whole server in this process: the real wiring, the mock agent without delays, and a store in memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shim.lib.clock import Clock
from shim.lib.settings import Settings
from shim.main.app import BACKEND, build_app
from shim.store.base import Store
from shim.store.memory import MemoryStore
from tests.bench.floor import AGENT
from tests.support.api import Answer, ApiClient, EventStream
from tests.support.opencode1_fold import Fold

TURN_S = 20.0
"""The longest that a turn of the mock may take in a test."""


@dataclass
class Live:
    """A client of the server and the folder that its agents work in."""

    api: ApiClient
    directory: Path
    folds: dict[str, Fold] = field(default_factory=dict)

    async def session(self, **body: Any) -> str:
        """A new session; its id."""
        return str((await self.api.post("/session", body, status=200)).body["id"])

    async def prompt(self, session: str, text: str, **more: Any) -> Answer:
        """prompt_async; 204."""
        return await self.api.post(f"/session/{session}/prompt_async", prompt_body(text, **more), status=204)

    async def ask(self, session: str, text: str, **more: Any) -> Any:
        """A blocking prompt; `{info, parts}` of the answer."""
        return (await self.api.post(f"/session/{session}/message", prompt_body(text, **more), status=200)).body

    async def messages(self, session: str) -> list[Any]:
        """GET message."""
        return list((await self.api.get(f"/session/{session}/message", status=200)).body)

    async def turn(
        self, text: str, act: Callable[[EventStream, dict[str, Any]], Any] | None = None, **more: Any
    ) -> tuple[str, Fold]:
        """One whole turn in a new session, read from /event to its idle; `act` sees each event and may await answers.

        Then: the fold of the stream is what HTTP answers, exactly one idle, nothing of the turn after it.
        """
        session = await self.session()
        fold = Fold(session)
        async with self.api.stream("/event") as events:
            await self.prompt(session, text, **more)
            async with asyncio.timeout(TURN_S):
                while fold.idles == 0:
                    await self._take_next(events, fold, act)
                # the stream is in order: what a further request causes comes after everything of the turn
                await self.api.patch(f"/session/{session}", {"title": "over"}, status=200)
                while fold.info.get("title") != "over":
                    await self._take_next(events, fold, act)
        await self.assert_stream_matches(session, fold)
        assert fold.idles == 1
        return session, fold

    async def _take_next(self, events: EventStream, fold: Fold, act: Callable[[EventStream, dict[str, Any]], Any] | None) -> None:
        event = await events.next()
        fold.feed(event["type"], event["properties"])
        if act is not None:
            await act(events, event)

    async def assert_stream_matches(self, session: str, fold: Fold) -> None:
        """What SSE told is what HTTP says, and makes sense."""
        fold.check()
        assert fold.wire() == await self.messages(session)
        assert fold.info == (await self.api.get(f"/session/{session}", status=200)).body
        assert fold.todos == (await self.api.get(f"/session/{session}/todo", status=200)).body
        assert fold.diffs == (await self.api.get(f"/session/{session}/diff", status=200)).body
        assert session not in (await self.api.get("/session/status", status=200)).body


def with_claude(tmp_path: Path) -> dict[str, str]:
    """The environment of a server that finds a program which speaks Claude Code's protocol (`tests/bench/agent.py`)."""
    program = tmp_path / "claude"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {AGENT} "$@"\n')
    program.chmod(0o755)
    return {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home"), "SHIM_CLAUDE_BIN": str(program)}


def prompt_body(text: str, **more: Any) -> dict[str, Any]:
    """A prompt's body for the mock."""
    return {"parts": [{"type": "text", "text": text}], "model": {"providerID": "mock", "modelID": "mock"}, **more}


@asynccontextmanager
async def live(
    tmp_path: Path,
    *,
    store: Store | None = None,
    delay_factor: float = 0.0,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[Live]:
    """Start it in a scratch folder; nothing of the person's machine is read but PATH, unless `environ` is another environment."""
    directory = tmp_path / "project"
    directory.mkdir(exist_ok=True)
    chosen = Settings(directory=directory, data_dir=tmp_path / "data", mock_delay_factor=delay_factor, **settings)
    environ = environ or {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    app = build_app(chosen, store=store if store is not None else MemoryStore(), environ=environ, clock=clock)
    async with ApiClient(app) as api:
        await app[BACKEND].get()
        yield Live(api, directory.resolve())
