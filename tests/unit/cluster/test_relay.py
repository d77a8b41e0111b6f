"""What a server of a cluster tells another one of a client's request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from shim.cluster import relay
from shim.cluster.relay import headers_to_forward
from shim.http.operation import SERVICES
from shim.lib.errors import ServerLost, SessionElsewhere
from shim.store.servers import ServerRef


def test_credentials_and_headers_of_the_connection_stay_here() -> None:
    """The owner must not get a password that is not its own, nor believe a proxy that it does not know."""
    kept = {"Content-Type": "application/json", "X-Opencode-Directory": "/work", "User-Agent": "opencode/1.18"}
    dropped = {
        "Authorization": "Basic eDp5",
        "Cookie": "opencode_session_4096=t",
        "Host": "here:4096",
        "Origin": "http://here:4096",
        "Content-Length": "7",
        "Transfer-Encoding": "chunked",
        "Accept-Encoding": "gzip",
        "X-Forwarded-For": "10.0.0.1",
        "Sec-Fetch-Site": "same-origin",
        "Access-Control-Allow-Origin": "*",
    }
    assert dict(headers_to_forward({**dropped, **kept})) == kept
    assert headers_to_forward({name.lower(): value for name, value in dropped.items()}) == ()


class Looks:
    """The requests of a client to a session that another server has taken from this one, which a later look shows.

    owner  of which this server knows only the id, as long as `unknown` looks have not shown more
    """

    def __init__(self, unknown: int) -> None:
        self._unknown = unknown
        self.looks = 0

    async def look_now(self) -> None:
        self.looks += 1

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raise SessionElsewhere("ses_a", ServerRef("srv_b", 0 if self.looks < self._unknown else 7))

    async def ask(self) -> web.StreamResponse:
        async def forward(request: web.Request, server: ServerRef) -> web.Response:
            return web.Response(text=f"answered by {server.pid}")

        services = SimpleNamespace(sessions=SimpleNamespace(others=self))
        request = SimpleNamespace(app={SERVICES: services})
        node = SimpleNamespace(peers=None, forward=forward)
        return await relay._answer_after_loss(cast(Any, request), self.handle, cast(Any, node))  # pyright: ignore[reportPrivateUsage]


async def test_a_request_waits_for_the_server_that_has_taken_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has heard of it, so the client's words are not lost."""
    monkeypatch.setattr(relay, "LOOK_AGAIN_S", 0)
    looks = Looks(unknown=3)
    response = await looks.ask()
    assert isinstance(response, web.Response)
    assert (response.text, looks.looks) == ("answered by 7", 3)


async def test_a_request_waits_no_longer_than_a_take_over_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "LOOK_AGAIN_S", 0)
    monkeypatch.setattr(relay, "TAKE_OVER_S", 0.05)
    with pytest.raises(ServerLost, match="has taken session ses_a and is gone"):
        await Looks(unknown=10**9).ask()
