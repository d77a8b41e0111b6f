"""Behind a proxy: what it tells of the client, a base path, and paths that are written in another way."""

from __future__ import annotations

from multidict import CIMultiDict
from pydantic import SecretStr
from yarl import URL

from shim.http.throttle import Throttle
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


async def test_a_proxys_own_line_is_the_last_one(start: Start) -> None:
    """Some proxies add a line of their own behind the client's, some tell the client's port, which changes each time."""
    client = await start(password=SecretStr(PASSWORD), trust_proxy=True, extend=with_throttle(Throttle(burst=1, refill_s=600)))
    told = ("10.0.0.1", "10.0.0.1:4001", "10.0.0.1:4002", "[2001:db8::1]:4001", "[2001:db8::1]:4002", "2001:db8::2")
    wanted = (401, 429, 429, 401, 429, 429)
    for guess, (address, status_) in enumerate(zip(told, wanted, strict=True)):
        lines = [("X-Forwarded-For", f"10.9.9.{guess}"), ("X-Forwarded-For", address), ("Authorization", f"Bearer {guess}")]
        async with client.raw.get("/path", headers=CIMultiDict(lines)) as answer:
            assert answer.status == status_, address
    lines = [("X-Forwarded-Host", "localhost"), ("X-Forwarded-Host", "evil.example"), ("Authorization", GOOD)]
    async with client.raw.get("/path", headers=CIMultiDict(lines)) as answer:
        assert answer.status == 403


async def test_a_slash_that_is_encoded_makes_no_other_path(client_with_password: ApiClient) -> None:
    """`/pty/X%2Fconnect` is the terminal `X/connect`, not the WebSocket that a ticket opens."""
    for path in ("/pty/pty_1%2Fconnect?ticket=x", "/pty%2Fpty_1%2fconnect?ticket=x", "/auth/connect%2Fx", "/global%2Fhealth"):
        async with client_with_password.raw.get(URL(path, encoded=True)) as answer:
            assert answer.status == 401, path


async def test_below_a_base_path_and_without_it(start: Start) -> None:
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
