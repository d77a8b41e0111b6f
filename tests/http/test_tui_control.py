"""The queue of `/tui/*` requests: who waits gets the next one."""

from __future__ import annotations

import asyncio

from tests.http.conftest import Place


async def wait_for_readers(place: Place, readers: int) -> None:
    async with asyncio.timeout(5):
        while place.services.tui_control.waiting_count(place.directory) != readers:
            await asyncio.sleep(0.01)


async def test_a_reader_gets_the_next_request(place: Place) -> None:
    await place.api.post("/tui/append-prompt", {"text": "before anybody waits"}, status=200)
    readers = [asyncio.ensure_future(place.api.get("/tui/control/next", status=200)) for _ in range(2)]
    await wait_for_readers(place, 2)
    await place.api.post("/tui/append-prompt", {"text": "elsewhere"}, params={"directory": str(place.home)}, status=200)
    await place.api.post("/tui/append-prompt", {"text": "hi"}, status=200)
    await place.api.post("/tui/open-help", status=200)
    got = [(await reader).body for reader in readers]
    assert sorted(got, key=lambda one: one["path"]) == [
        {"path": "/tui/append-prompt", "body": {"text": "hi"}},
        {"path": "/tui/open-help", "body": {"command": "help.show"}},
    ]
    assert (await place.api.post("/tui/control/response", {"any": 1}, status=200)).body is True
    assert (await place.api.post("/tui/control/response", status=200)).body is True
    await wait_for_readers(place, 0)


async def test_the_servers_stop_ends_the_wait(place: Place) -> None:
    reader = asyncio.ensure_future(place.api.raw.get("/tui/control/next"))
    await wait_for_readers(place, 1)
    place.services.tui_control.close()
    assert (await reader).status == 503
