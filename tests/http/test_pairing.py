"""Links that let another device in without the password, over the real application."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from aiohttp import ClientError, WSMsgType, WSServerHandshakeError
from pydantic import SecretStr

from shim.cli import pair, screen
from shim.faces.opencode1 import routes as opencode1
from shim.faces.opencode2 import routes as opencode2
from shim.faces.opencode2.routes import server
from shim.http.access import BURST
from shim.http.middleware import CHALLENGE
from shim.http.pairing import CODE_S
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from tests.http.doors import GOOD, OWN_PAGE, PASSWORD, USER, Start, base64_text, status
from tests.support.api import ApiClient

WAIT_S = 10.0


def basic(user: str, password: str) -> str:
    return f"Basic {base64_text(f'{user}:{password}')}"


@pytest.fixture
async def pairing_server(start: Start) -> ApiClient:
    """A server with a password, a user of another name, and OpenCode 2."""
    return await start(password=SecretStr(PASSWORD), username="me", modules=(*opencode1.MODULES, server))


async def code_of(client: ApiClient) -> str:
    body = (await client.post("/api/pair", headers={"Authorization": basic("me", PASSWORD)}, status=200)).body
    assert body["expires_in"] == CODE_S
    return body["code"]


async def test_clients_of_2_come_in_as_opencode_whatever_the_user_is_called(pairing_server: ApiClient) -> None:
    for user, wanted in (("me", 200), (USER, 200), ("other", 401)):
        assert await status(pairing_server, "GET", "/path", Authorization=basic(user, PASSWORD)) == wanted, user


async def test_a_tui_of_opencode2_learns_that_there_is_a_password(pairing_server: ApiClient) -> None:
    async with pairing_server.raw.get("/api/health") as answer:
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, CHALLENGE)
        assert await answer.json() == {"_tag": "UnauthorizedError", "message": "Authentication required"}


async def test_a_code_is_only_for_who_is_in(pairing_server: ApiClient) -> None:
    assert await status(pairing_server, "POST", "/api/pair") == 401


async def test_a_program_gets_a_token_that_is_the_password(pairing_server: ApiClient) -> None:
    link = f"/auth/connect/{await code_of(pairing_server)}"
    async with pairing_server.raw.get(link, headers={"Accept": "application/json"}) as answer:
        token = (await answer.json())["token"]
    for shown in (basic(USER, token), basic("me", token), f"Bearer {token}"):
        assert await status(pairing_server, "GET", "/path", Authorization=shown) == 200
    async with pairing_server.raw.get("/path", params={"auth_token": base64_text(f"{USER}:{token}")}) as answer:
        assert answer.status == 200
    changed = token[:-1] + ("0" if token[-1] != "0" else "1")
    assert await status(pairing_server, "GET", "/path", Authorization=f"Bearer {changed}") == 401


async def test_a_code_is_good_once_and_a_preview_does_not_spend_it(pairing_server: ApiClient) -> None:
    link = f"/auth/connect/{await code_of(pairing_server)}"
    assert await status(pairing_server, "HEAD", link) == 200
    assert await status(pairing_server, "GET", link) == 200
    async with pairing_server.raw.get(link) as answer:
        body = await answer.json()
    assert answer.status == 401
    assert (body["_tag"], "POST /api/pair" in body["message"]) == ("UnauthorizedError", True)


async def test_a_browser_gets_a_cookie_for_its_own_pages(pairing_server: ApiClient) -> None:
    link = f"/auth/connect/{await code_of(pairing_server)}"
    async with pairing_server.raw.get(link, headers={"Accept": "text/html,*/*"}, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/inspector/"), "no web UI is served here"
        set_cookie = answer.headers["Set-Cookie"]
    assert all(part in set_cookie for part in ("HttpOnly", "SameSite=Lax", "Path=/")), set_cookie
    cookie = set_cookie.partition(";")[0]
    pairing_server.raw.session.cookie_jar.clear()
    own = str(pairing_server.raw.make_url("/")).rstrip("/")
    for more, wanted in (
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": own}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 401),
        ({"Origin": OWN_PAGE}, 401),
    ):
        async with pairing_server.raw.get("/path", headers={"Cookie": cookie, **more}) as answer:
            assert answer.status == wanted, more
    assert await status(pairing_server, "GET", "/path", Cookie=cookie[:-1]) == 401


async def test_wrong_codes_are_counted_as_wrong_passwords_are(start: Start) -> None:
    client = await start(password=SecretStr(PASSWORD), modules=(server,))
    for number in range(BURST):
        assert await status(client, "GET", f"/auth/connect/guess{number}") == 401
    assert await status(client, "GET", "/auth/connect/another") == 429


async def test_pairing_below_a_base_path(start: Start) -> None:
    client = await start(password=SecretStr(PASSWORD), base_path="/tools", modules=(*opencode1.MODULES, server))
    assert await status(client, "GET", "/tools/auth/connect/wrong") == 401
    async with client.raw.post("/tools/api/pair", headers={"Authorization": GOOD}) as answer:
        code = (await answer.json())["code"]
    async with client.raw.get(f"/tools/auth/connect/{code}", headers={"Accept": "application/json"}) as answer:
        token = (await answer.json())["token"]
    assert await status(client, "GET", "/tools/path", Authorization=f"Bearer {token}") == 200


async def test_a_remote_client_cannot_stop_the_server(pairing_server: ApiClient) -> None:
    assert (await pairing_server.post("/api/service/stop", headers={"Authorization": GOOD}, status=200)).body == {
        "accepted": False
    }


async def test_a_token_is_listed_and_taken_back(pairing_server: ApiClient) -> None:
    owner = {"Authorization": basic("me", PASSWORD)}
    link = f"/auth/connect/{await code_of(pairing_server)}"
    async with pairing_server.raw.get(link, headers={"Accept": "application/json", "User-Agent": "phone"}) as answer:
        token = (await answer.json())["token"]
    (row,) = (await pairing_server.get("/api/pair", headers=owner, status=200)).body
    assert (row["name"], token.split("_")[2], row["expires"] > row["created"]) == ("phone", row["id"], True)
    assert token not in str(row)
    assert await status(pairing_server, "GET", "/path", Authorization=f"Bearer {token}") == 200
    assert await status(pairing_server, "DELETE", f"/api/pair/{row['id']}", Authorization=basic("me", PASSWORD)) == 204
    assert await status(pairing_server, "GET", "/path", Authorization=f"Bearer {token}") == 401
    assert await status(pairing_server, "DELETE", f"/api/pair/{row['id']}", Authorization=basic("me", PASSWORD)) == 404


async def token_of(client: ApiClient, name: str = "phone") -> str:
    link = f"/auth/connect/{await code_of(client)}"
    async with client.raw.get(link, headers={"Accept": "application/json", "User-Agent": name}) as answer:
        return (await answer.json())["token"]


async def revoke(client: ApiClient, token: str, **headers: str) -> int:
    return await status(client, "DELETE", f"/api/pair/{token.split('_')[2]}", **headers)


@pytest.fixture
async def both_faces(start: Start) -> ApiClient:
    return await start(password=SecretStr(PASSWORD), username="me", modules=(*opencode1.MODULES, *opencode2.MODULES))


@pytest.mark.parametrize("path", ["/event", "/global/event"])
async def test_a_stream_ends_at_once_when_its_token_is_taken_back(both_faces: ApiClient, path: str) -> None:
    lost, other = await token_of(both_faces), await token_of(both_faces)
    async with (
        asyncio.timeout(WAIT_S),
        both_faces.raw.get(path, headers={"Authorization": f"Bearer {lost}"}) as cut,
        both_faces.raw.get(path, headers={"Authorization": f"Bearer {other}"}) as kept,
    ):
        await cut.content.readline(), await kept.content.readline()
        assert await revoke(both_faces, lost, Authorization=basic("me", PASSWORD)) == 204
        with pytest.raises(ClientError):
            await cut.read()
        assert not kept.content.at_eof() and kept.content.exception() is None


@pytest.mark.parametrize("by_ticket", [False, True])
@pytest.mark.parametrize("face", ["", "/api"])
async def test_a_terminal_ends_at_once_when_its_token_is_taken_back(both_faces: ApiClient, face: str, by_ticket: bool) -> None:
    lost = {"Authorization": f"Bearer {await token_of(both_faces)}"}
    made = (await both_faces.post("/pty", {"command": "cat"}, headers=lost, status=200)).body["id"]
    query, shown = {}, lost
    if by_ticket:
        async with both_faces.raw.post(f"{face}/pty/{made}/connect-token", headers={**lost, "x-opencode-ticket": "1"}) as answer:
            body = await answer.json()
        query, shown = {"ticket": body.get("data", body)["ticket"]}, {}
    async with (
        asyncio.timeout(WAIT_S),
        both_faces.raw.ws_connect(f"{face}/pty/{made}/connect", params=query, headers=shown) as socket,
    ):
        await socket.receive()
        assert await revoke(both_faces, lost["Authorization"].split()[1], Authorization=basic("me", PASSWORD)) == 204
        while (message := await socket.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
            pass
        assert message.type in (WSMsgType.CLOSED, WSMsgType.ERROR)


async def test_a_ticket_is_no_good_when_the_token_that_got_it_is_taken_back(both_faces: ApiClient) -> None:
    token = await token_of(both_faces)
    lost = {"Authorization": f"Bearer {token}"}
    made = (await both_faces.post("/pty", {"command": "cat"}, headers=lost, status=200)).body["id"]
    async with both_faces.raw.post(f"/pty/{made}/connect-token", headers={**lost, "x-opencode-ticket": "1"}) as answer:
        ticket = (await answer.json())["ticket"]
    assert await revoke(both_faces, token, Authorization=basic("me", PASSWORD)) == 204
    with pytest.raises(WSServerHandshakeError) as refused:
        await both_faces.raw.ws_connect(f"/pty/{made}/connect", params={"ticket": ticket})
    assert refused.value.status == 403


async def test_a_device_that_takes_its_own_token_back_gets_the_answer(pairing_server: ApiClient) -> None:
    token = await token_of(pairing_server)
    assert await revoke(pairing_server, token, Authorization=f"Bearer {token}") == 204
    assert await status(pairing_server, "GET", "/path", Authorization=f"Bearer {token}") == 401


async def test_the_command_line_lists_tokens_and_takes_one_back(pairing_server: ApiClient, tmp_path: Path) -> None:
    settings = Settings(directory=tmp_path, data_dir=tmp_path / "data", username="me", password=SecretStr(PASSWORD))
    url, shown = str(pairing_server.raw.make_url("")).rstrip("/"), io.StringIO()
    out = screen.console(shown)
    assert await pair.show(settings, url, out) == 0
    assert "No device is paired" in shown.getvalue()
    token = await token_of(pairing_server, "my phone")
    assert await pair.show(settings, url, out) == 0
    line = shown.getvalue().splitlines()[-1]
    assert line.startswith(token.split("_")[2]) and line.endswith("my phone") and token not in line
    assert await pair.revoke(settings, url, token.split("_")[2], out) == 0
    assert await status(pairing_server, "GET", "/path", Authorization=f"Bearer {token}") == 401
    with pytest.raises(ShimError, match="No device has the id"):
        await pair.revoke(settings, url, token.split("_")[2], out)
