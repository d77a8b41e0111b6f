"""Who may use the server: passwords, names, pages. Every route, streams included, over the real application."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from aiohttp import WSMsgType, web
from multidict import CIMultiDict
from pydantic import SecretStr

from shim.faces.opencode1._generated.operations import OPERATIONS
from shim.http import cors
from shim.http.access import HEALTH, PUBLIC, Access, Throttle
from shim.http.middleware import CHALLENGE
from shim.lib.clock import ManualClock
from shim.lib.settings import Settings
from tests.http.doors import GOOD, OWN_PAGE, PASSWORD, TOKEN, USER, Start, base64_text, status, with_throttle
from tests.support.api import ApiClient

FOREIGN_PAGE = "https://evil.example"
PATHS = sorted({re.sub(r"\{(\w+)\}|\*", "x", row.path) for row in OPERATIONS.values()} | {"/doc", "/acp", "/nosuch", "/"})

# --- the password --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
async def test_no_route_answers_without_the_password(client_with_password: ApiClient, method: str) -> None:
    public = PUBLIC if method in ("GET", "HEAD") else frozenset[str]()
    for path in PATHS:
        answer = await client_with_password.raw.request(method, path)
        wanted = 401 if path not in public else 200 if path in HEALTH else 404
        assert answer.status == wanted, (method, path)
        if wanted == 401:
            assert answer.headers["WWW-Authenticate"] == CHALLENGE
    assert await status(client_with_password, method, "/mcp", Accept="text/event-stream") == 401


async def test_every_route_answers_with_it(client_with_password: ApiClient) -> None:
    for path in ("/path", "/config", "/project", "/project/current", "/doc"):
        assert await status(client_with_password, "GET", path, Authorization=GOOD) == 200, path


@pytest.mark.parametrize("path", ["/event", "/global/event"])
async def test_streams_want_it_too(client_with_password: ApiClient, path: str) -> None:
    assert await status(client_with_password, "GET", path) == 401
    async with client_with_password.stream(path, params={"auth_token": TOKEN}) as events:
        first = await events.next()
        assert first.get("payload", first)["type"] == "server.connected"
    async with client_with_password.stream(path, headers={"Authorization": GOOD}) as events:
        await events.next()


@pytest.mark.parametrize(
    ("header", "token", "wanted"),
    [
        (GOOD, None, 200),
        (GOOD.replace("Basic", "basic"), None, 200),
        (f"Bearer {PASSWORD}", None, 200),
        (None, TOKEN, 200),
        (None, TOKEN.rstrip("="), 200),
        # As native: what the query says counts, whatever the header says.
        ("Basic nonsense", TOKEN, 200),
        (GOOD, "nonsense", 401),
        (f"Bearer {PASSWORD}x", None, 401),
        ("Bearer", None, 401),
        ("Bearer ", None, 401),
        ("Basic", None, 401),
        ("Basic !!!", None, 401),
        ("Digest x", None, 401),
        (f"Basic {base64_text(f'other:{PASSWORD}')}", None, 401),
        (f"Basic {base64_text(f'{USER}:')}", None, 401),
        (f"Basic {base64_text(USER)}", None, 401),
        (f"Basic {base64_text(f':{PASSWORD}')}", None, 401),
        (f"Basic {base64_text(f'{USER}:{PASSWORD}', 'latin-1')}", None, 401),
        # Bearer is the password alone, the query both.
        (f"Bearer {USER}:{PASSWORD}", None, 401),
        (None, PASSWORD, 401),
    ],
)
async def test_forms(client_with_password: ApiClient, header: str | None, token: str | None, wanted: int) -> None:
    headers = {"Authorization": header} if header is not None else {}
    params = {"auth_token": token} if token is not None else {}
    assert (await client_with_password.get("/path", headers=headers, params=params)).status == wanted


async def test_without_a_password_whatever_is_shown_is_fine(start: Start) -> None:
    assert await status(await start(), "GET", "/path", Authorization="Basic nonsense") == 200


async def test_the_refusal_says_what_to_do_and_nothing_else(client_with_password: ApiClient) -> None:
    body = (await client_with_password.get("/path", status=401)).body
    assert body["name"] == "UnauthorizedError"
    assert "OPENCODE_SERVER_PASSWORD" in body["data"]["message"]
    assert (await client_with_password.get("/api/location", status=401)).body == {
        "_tag": "UnauthorizedError",
        "message": "Authentication required",
    }


async def test_health_says_that_we_live_and_no_more(client_with_password: ApiClient) -> None:
    for path in HEALTH:
        body = (await client_with_password.get(path, status=200)).body
        assert set(body) <= {"healthy", "version"}, path
        assert await status(client_with_password, "POST", path) == 401


async def test_a_preflight_needs_none(client_with_password: ApiClient) -> None:
    headers = {
        "Origin": OWN_PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,x-opencode-directory",
    }
    async with client_with_password.raw.options("/session", headers=headers) as answer:
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Origin"] == OWN_PAGE
        assert answer.headers["Access-Control-Allow-Headers"] == "authorization,x-opencode-directory"


async def test_a_page_can_read_why_it_was_refused(client_with_password: ApiClient) -> None:
    async with client_with_password.raw.get("/path", headers={"Origin": OWN_PAGE}) as answer:
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (401, OWN_PAGE)


async def test_a_wrong_password_is_looked_at_before_the_ticket(client_with_password: ApiClient) -> None:
    path = "/pty/pty_1/connect?ticket=x"
    assert await status(client_with_password, "GET", path, Authorization="Basic nonsense") == 401
    assert await status(client_with_password, "GET", "/pty/pty_1/connect") == 401
    assert await status(client_with_password, "GET", "/pty/pty_1/connect?ticket=") == 401
    assert await status(client_with_password, "POST", path) == 401
    assert await status(client_with_password, "GET", "/pty/pty_1/connect/more?ticket=x") == 401
    assert await status(client_with_password, "GET", "/session?ticket=x") == 401


# --- too many wrong ones ---------------------------------------------------------------------------------


async def test_guessing_is_stopped_also_for_the_right_one(start: Start) -> None:
    client = await start(password=SecretStr(PASSWORD), extend=with_throttle(Throttle(burst=3, refill_s=600)))
    for guess in range(3):
        assert await status(client, "GET", "/path", Authorization=f"Bearer {guess}") == 401
    answer = await client.get("/path", headers={"Authorization": "Bearer 4"}, status=429)
    assert 0 < int(answer.headers["Retry-After"]) <= 600
    assert "Too many wrong passwords" in answer.body["data"]["message"]
    # Otherwise guessing could go on.
    assert await status(client, "GET", "/path", Authorization=GOOD) == 429
    # A browser that has not asked yet is still told to ask.
    assert await status(client, "GET", "/path") == 401


async def test_the_same_wrong_one_again_costs_nothing(start: Start) -> None:
    client = await start(password=SecretStr(PASSWORD), extend=with_throttle(Throttle(burst=2, refill_s=600)))
    for _ in range(10):
        assert await status(client, "GET", "/path", Authorization="Bearer wrong") == 401
    assert await status(client, "GET", "/path", Authorization=GOOD) == 200


# --- names: DNS rebinding ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("localhost:4096", 200),
        ("LOCALHOST", 200),
        ("app.localhost:1", 200),
        ("127.0.0.1:4096", 200),
        ("[::1]:4096", 200),
        ("192.168.1.5:4096", 200),
        ("evil.example:4096", 403),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("127.0.0.1:4096@evil.example", 403),
        ("evil.example:4096#localhost", 403),
        ("local host", 403),
    ],
)
async def test_names(start: Start, host: str, wanted: int) -> None:
    client = await start()
    assert await status(client, "GET", "/path", Host=host) == wanted
    assert await status(client, "POST", "/instance/dispose", Host=host) == wanted


async def test_names_are_looked_at_before_passwords_and_health(client_with_password: ApiClient) -> None:
    assert await status(client_with_password, "GET", "/path", Host="evil.example", Authorization=GOOD) == 403
    assert await status(client_with_password, "GET", "/global/health", Host="evil.example") == 403


async def test_more_names(start: Start) -> None:
    client = await start(allowed_hosts=("Build.Example",))
    assert await status(client, "GET", "/path", Host="build.example:4096") == 200
    refused = await client.get("/path", headers={"Host": "other.example:1"}, status=403)
    assert "--allowed-hosts other.example (" in refused.body["data"]["message"]
    assert await status(await start(allowed_hosts=("*",)), "GET", "/path", Host="any.example") == 200
    assert await status(await start(hostname="*"), "GET", "/path", Host="any.example") == 403


# --- pages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("origin", [FOREIGN_PAGE, "null", "http://localhost.evil.example:80", "file://", "http://127.0.0.1:x"])
async def test_foreign_pages_change_nothing(start: Start, method: str, origin: str) -> None:
    client = await start()
    for path in ("/session", "/session/ses_x/shell", "/nosuch"):
        assert await status(client, method, path, Origin=origin) == 403, path
    async with client.raw.request(method, "/path", headers={"Origin": origin}) as answer:
        assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    ("site", "mode", "dest", "wanted"),
    [
        ("cross-site", "no-cors", "script", 403),
        ("cross-site", "no-cors", "image", 403),
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "navigate", "document", 200),
        ("same-origin", "no-cors", "script", 200),
        ("none", "navigate", "document", 200),
    ],
)
async def test_foreign_pages_embed_nothing(start: Start, site: str, mode: str, dest: str, wanted: int) -> None:
    """What they embed comes without Origin: a script of the project would run in their page, a search would cost our time."""
    client = await start()
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    assert await status(client, "GET", "/path", **{name.replace("-", "_"): value for name, value in headers.items()}) == wanted


@pytest.mark.parametrize("page", [{"Origin": FOREIGN_PAGE}, {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}])
async def test_foreign_pages_do_not_lock_the_owner_out(start: Start, page: dict[str, str]) -> None:
    """A page in the owner's browser comes from the owner's address: what it guesses must not count."""
    client = await start(password=SecretStr(PASSWORD), extend=with_throttle(Throttle(burst=1, refill_s=600)))
    for guess in range(5):
        assert await status(client, "GET", f"/path?auth_token={base64_text(f'{USER}:{guess}')}", **page) == 403
    assert await status(client, "GET", "/path", Authorization=GOOD) == 200


async def test_all_lines_of_a_header_count(start: Start) -> None:
    """Whoever adds a second line of a header does not hide another one."""
    client = await start(extend=with_socket)
    upgrade = [("Connection", "keep-alive"), ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
    upgrade += [("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")]
    for lines in ([("Origin", FOREIGN_PAGE)], [("Origin", OWN_PAGE), ("Origin", FOREIGN_PAGE)]):
        async with client.raw.get("/test/socket", headers=CIMultiDict([*upgrade, *lines])) as answer:
            assert answer.status == 403
        async with client.raw.post("/instance/dispose", headers=CIMultiDict(lines)) as answer:
            assert answer.status == 403


@pytest.mark.parametrize(
    "origin",
    [
        "https://localhost:5173",
        "https://localhost",
        "http://[::1]:4096",
        "http://localhost:3000",
        "http://127.0.0.1:4096",
        "tauri://localhost",
        "http://tauri.localhost",
        "https://app.opencode.ai",
        "oc://renderer",
        "https://ide.example",
    ],
)
async def test_known_pages_may(start: Start, origin: str) -> None:
    client = await start(cors=("https://ide.example",))
    async with client.raw.post("/instance/dispose", headers={"Origin": origin}) as answer:
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, origin)


@pytest.mark.parametrize(
    ("origin", "host", "wanted"),
    [
        ("http://192.168.1.5:4096", "192.168.1.5:4096", 200),
        ("https://192.168.1.5", "192.168.1.5:443", 200),
        ("https://192.168.1.5", "192.168.1.5", 200),
        ("http://[fd00::1]:4096", "[fd00::1]:4096", 200),
        ("http://192.168.1.5:4097", "192.168.1.5:4096", 403),
        ("http://192.168.1.6:4096", "192.168.1.5:4096", 403),
    ],
)
async def test_our_own_page_under_our_own_name(start: Start, origin: str, host: str, wanted: int) -> None:
    assert await status(await start(), "POST", "/instance/dispose", Origin=origin, Host=host) == wanted


def with_socket(app: web.Application) -> None:
    async def handler(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        await ws.send_str("hello")
        await ws.close()
        return ws

    app.router.add_get("/test/socket", handler)


async def test_websockets_want_password_name_and_page(start: Start) -> None:
    client = await start(password=SecretStr(PASSWORD), extend=with_socket)
    upgrade = {"Connection": "keep-alive, Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    upgrade |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    for wanted, headers in (
        (401, {}),
        (403, {"Authorization": GOOD, "Origin": FOREIGN_PAGE}),
        (403, {"Authorization": GOOD, "Host": "evil.example"}),
    ):
        async with client.raw.get("/test/socket", headers={**upgrade, **headers}) as answer:
            assert answer.status == wanted, headers
    async with client.raw.ws_connect("/test/socket", params={"auth_token": TOKEN}, headers={"Origin": OWN_PAGE}) as ws:
        message = await ws.receive()
        assert (message.type, message.data) == (WSMsgType.TEXT, "hello")


async def test_no_page_may_frame_ours(start: Start) -> None:
    async with (await start()).raw.get("/path") as answer:
        assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_the_password_is_not_kept() -> None:
    access = Access.of(Settings(password=SecretStr("hunter2hunter2")), ManualClock())
    assert "hunter2" not in repr(access)
    assert "hunter2" not in repr(Settings(password=SecretStr("hunter2hunter2")))


async def test_an_unknown_ticket_opens_no_terminal(client_with_password: ApiClient) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    upgrade |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    for ticket in ("x", TOKEN, PASSWORD):
        async with client_with_password.raw.get("/pty/pty_1/connect", params={"ticket": ticket}, headers=upgrade) as answer:
            assert answer.status == 403
            assert (await answer.json())["_tag"] == "PtyForbiddenError"
    assert await status(client_with_password, "POST", "/pty/pty_1/connect-token", x_opencode_ticket="1") == 401


@pytest.mark.parametrize(
    ("named", "origin", "may"),
    [
        ("vscode-webview://*", "vscode-webview://0f3e2a", True),
        ("vscode-webview://*", "vscode-file://0f3e2a", False),
        ("vscode-webview://*", "vscode-webview://a/b", False),
        ("https://*.example.org", "https://a.example.org", True),
        ("https://*.example.org", "https://a.example.org.evil.test", False),
        ("*", "https://evil.test", False),
        ("*://evil.test", "https://evil.test", False),
    ],
)
def test_a_star_stands_for_a_part_of_the_host(named: str, origin: str, may: bool) -> None:
    assert cors.is_allowed_origin(origin, (named,)) == may


@pytest.mark.parametrize(("hostname", "may"), [("127.0.0.1", False), ("::1", False), ("0.0.0.0", True), ("192.168.1.7", True)])
def test_the_machines_own_name_is_no_host_of_a_server_on_loopback(tmp_path: Path, hostname: str, may: bool) -> None:
    """A router that gives the name may let it lead to us: a page of that name would be our own."""
    settings = Settings(hostname=hostname, data_dir=tmp_path, password=SecretStr("a long password for this"))
    assert (socket.gethostname().lower() in Access.of(settings, ManualClock()).names) == may
