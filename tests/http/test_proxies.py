"""Servers behind a proxy: the `X-Forwarded-*` headers, the base path, and encoded slashes."""

from __future__ import annotations

from multidict import CIMultiDict
from pydantic import SecretStr
from yarl import URL

from shim.http.access import Throttle
from tests.http.doors import GOOD, OWN_PAGE, PASSWORD, TOKEN, Start, status, with_throttle
from tests.support.api import ApiClient


async def test_forwarded_headers_count_only_when_enabled(start: Start) -> None:
    forwarded = {"X-Forwarded-Host": "evil.example", "Host": "localhost"}
    assert await status(await start(), "GET", "/path", **forwarded) == 200
    trusting = await start(trust_proxy=True, allowed_hosts=("ide.example",))
    assert await status(trusting, "GET", "/path", **forwarded) == 403
    assert await status(trusting, "GET", "/path", X_Forwarded_Host="evil.example, ide.example") == 200
    page = {"Origin": "https://ide.example", "X-Forwarded-Host": "ide.example"}
    assert await status(trusting, "POST", "/instance/dispose", **page) == 200
    assert await status(await start(), "POST", "/instance/dispose", **page) == 403


async def test_failures_are_counted_by_the_clients_address_behind_a_proxy(start: Start) -> None:
    limited = with_throttle(Throttle(burst=1, refill_s=600))
    client = await start(password=SecretStr(PASSWORD), trust_proxy=True, extend=limited)
    assert await status(client, "GET", "/path", X_Forwarded_For="10.0.0.9, 10.0.0.1", Authorization="Bearer a") == 401
    assert await status(client, "GET", "/path", X_Forwarded_For="10.0.0.8, 10.0.0.1", Authorization="Bearer b") == 429
    assert await status(client, "GET", "/path", X_Forwarded_For="10.0.0.2", Authorization=GOOD) == 200
    client = await start(password=SecretStr(PASSWORD), extend=with_throttle(Throttle(burst=1, refill_s=600)))
    assert await status(client, "GET", "/path", X_Forwarded_For="10.0.0.1", Authorization="Bearer a") == 401
    assert await status(client, "GET", "/path", X_Forwarded_For="10.0.0.2", Authorization="Bearer b") == 429


async def test_only_the_last_forwarded_line_is_trusted(start: Start) -> None:
    """The client can write all lines before the proxy's. Some proxies add the client's port, which changes."""
    client = await start(password=SecretStr(PASSWORD), trust_proxy=True, extend=with_throttle(Throttle(burst=1, refill_s=600)))
    addresses = ("10.0.0.1", "10.0.0.1:4001", "10.0.0.1:4002", "[2001:db8::1]:4001", "[2001:db8::1]:4002", "2001:db8::2")
    statuses = (401, 429, 429, 401, 429, 429)
    for guess, (address, status_) in enumerate(zip(addresses, statuses, strict=True)):
        headers = [("X-Forwarded-For", f"10.9.9.{guess}"), ("X-Forwarded-For", address), ("Authorization", f"Bearer {guess}")]
        async with client.raw.get("/path", headers=CIMultiDict(headers)) as answer:
            assert answer.status == status_, address
    headers = [("X-Forwarded-Host", "localhost"), ("X-Forwarded-Host", "evil.example"), ("Authorization", GOOD)]
    async with client.raw.get("/path", headers=CIMultiDict(headers)) as answer:
        assert answer.status == 403


async def test_an_encoded_slash_is_no_separator(client_with_password: ApiClient) -> None:
    """`/pty/X%2Fconnect` is the terminal `X/connect`, not the WebSocket that a ticket opens."""
    for path in ("/pty/pty_1%2Fconnect?ticket=x", "/pty%2Fpty_1%2fconnect?ticket=x", "/auth/connect%2Fx", "/global%2Fhealth"):
        async with client_with_password.raw.get(URL(path, encoded=True)) as answer:
            assert answer.status == 401, path


async def test_routes_are_served_with_and_without_the_base_path(start: Start) -> None:
    client = await start(password=SecretStr(PASSWORD), base_path="/tools/opencode")
    for path in ("/path", "/tools/opencode/path", "/tools/opencode/path/"):
        assert await status(client, "GET", path) == 401, path
        assert await status(client, "GET", path, Authorization=GOOD) == 200, path
    assert await status(client, "GET", "/tools/opencode/global/health") == 200
    assert await status(client, "GET", "/tools/opencode/nosuch", Authorization=GOOD) == 404
    assert await status(client, "GET", "/other/path", Authorization=GOOD) == 404
    async with client.raw.get("/tools/opencode/event", params={"auth_token": TOKEN}, headers={"Origin": OWN_PAGE}) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        assert answer.headers["Access-Control-Allow-Origin"] == OWN_PAGE
