"""What a session's server does is not acknowledged by any face while it cannot be stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shim.lib.errors import StoreUnavailable
from shim.store.memory import MemoryStore
from tests.support.live import live, prompt_body


class Lossy(MemoryStore):
    """A store that can be cut off."""

    is_away = False

    async def flush(self, session_id: str | None = None) -> None:
        if self.is_away and session_id is not None:
            raise StoreUnavailable("NATS is away")


@pytest.mark.parametrize("path", ["/session/{}/abort", "/api/session/{}/interrupt", "/v1/sessions/{}/terminate"])
async def test_the_stop_of_a_turn_that_is_not_stored_is_a_503_with_the_reason(tmp_path: Path, path: str) -> None:
    store = Lossy()
    async with live(tmp_path, store=store) as server:
        session = await server.session()
        await server.api.post(f"/session/{session}/prompt_async", prompt_body("hang"), status=204)
        store.is_away = True
        async with asyncio.timeout(20), server.api.raw.post(path.format(session)) as answer:
            assert answer.status == 503
            assert "NATS is away" in await answer.text()
        store.is_away = False


@pytest.mark.parametrize("path", ["/session/{}", "/api/session/{}"])
async def test_a_deletion_that_is_not_stored_is_a_503_with_the_reason(tmp_path: Path, path: str) -> None:
    store = Lossy()
    async with live(tmp_path, store=store) as server:
        session = await server.session()
        store.is_away = True
        async with server.api.raw.delete(path.format(session)) as answer:
            assert answer.status == 503
            assert "NATS is away" in await answer.text()
        store.is_away = False


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/session/{}/prompt_async", prompt_body("echo 1", messageID="msg_one")),
        ("/v1/sessions/name", {"agent": "mock"}),
    ],
)
async def test_a_conflict_with_something_that_is_not_stored_is_a_503(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    """Who sends a request again with its id takes a 409 for done."""
    store = Lossy()
    async with live(tmp_path, store=store) as server:
        url = path.format(await server.session())
        store.is_away = True
        for _ in range(2):
            async with server.api.raw.post(url, json=body) as answer:
                assert answer.status == 503
                assert "NATS is away" in await answer.text()
        store.is_away = False
        async with server.api.raw.post(url, json=body) as answer:
            assert answer.status == 409
