"""What clients ask in vain is counted by their User-Agent, bounded, and told in one report (`doctor --client`)."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from shim.cli.clients import report_unserved
from shim.http import unserved_requests
from shim.http.operation import SERVICES
from shim.http.unserved_requests import OTHERS, UnservedRequests
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from tests.http.doors import PASSWORD, Start, status
from tests.support.universal import Face

TUI = "opencode/latest/2.3.2/cli"
SESSION = "ses_e002443f4ffeLOJ75TSClkenVm"


async def test_report_names_what_each_client_asked_in_vain(v1: Face) -> None:
    raw = v1.live.api.raw
    url = str(raw.make_url("/"))
    assert (await report_unserved(url, Settings()))[1:] == ["No client has asked for anything that this server does not have."]
    asked = [
        ("GET", f"/api/session/{SESSION}/mind"),
        ("GET", "/api/session/ses_e002443f4ffeLOJ75TSClkenVn/mind"),
        ("PUT", "/api/info"),
    ]
    for method, path in [*asked, ("GET", f"/session/{SESSION}")]:
        async with raw.request(method, path, headers={"User-Agent": TUI}) as answer:
            assert answer.status >= 400
    async with raw.get("/L3RtcC9hL2I/what?token=secret", headers={"User-Agent": "other"}) as answer:
        assert answer.status == 404
    first, *lines = await report_unserved(url, Settings())
    assert first.startswith("opencode-shim ")
    assert "OpenCode 1." in first
    assert " and 2." in first
    assert lines == [
        f"client {TUI}",
        "     2  GET /api/session/*/mind  404",
        "     1  PUT /api/info  405",
        "client other",
        "     1  GET /*/what  404",
    ]


async def test_client_that_always_shows_a_password_is_let_in_where_there_is_none(v1: Face) -> None:
    """As clients of OpenCode 2 do: its server has one always."""
    async with v1.live.api.raw.get("/api/info", headers={"Authorization": "Basic b3BlbmNvZGU6cHc="}) as answer:
        assert answer.status == 200


async def test_requests_without_the_password_are_not_counted(start: Start) -> None:
    client = await start(password=SecretStr(PASSWORD))
    assert await status(client, "GET", "/no/such/route") == 401
    assert await status(client, "GET", "/no/such/route", Authorization=f"Bearer {PASSWORD}") == 404
    [(_, _, path, code, count)] = client.raw.app[SERVICES].unserved_requests.rows()
    assert (path, code, count) == ("/no/such/route", 404, 1)


async def test_report_says_that_the_password_is_missing_or_that_the_server_is_not_there(start: Start) -> None:
    client = await start(password=SecretStr(PASSWORD))
    with pytest.raises(ShimError, match="OPENCODE_SERVER_PASSWORD"):
        await report_unserved(str(client.raw.make_url("/")), Settings())
    with pytest.raises(ShimError, match="No opencode-shim answers"):
        await report_unserved("http://127.0.0.1:9", Settings())
    with pytest.raises(ShimError, match="404"):  # of an older server, or of another one
        await report_unserved(str(client.raw.make_url("/none")), Settings(password=SecretStr(PASSWORD)))


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unserved_requests, "CLIENTS", 2)
    monkeypatch.setattr(unserved_requests, "ROUTES", 2)
    counts = UnservedRequests()
    for client in ("a" * 1000, "b", "c", "d"):
        for path in ("/x", "/y", "/z", "/" + "w/" * 1000, "/x"):
            counts.note(client, "GET", path, 404)
    rows = list(counts.rows())
    assert [len(row[0]) for row in rows[:3]] == [200] * 3
    assert {row[0] for row in rows} == {"a" * 200, "b", OTHERS}
    assert [row[1:] for row in rows if row[0] == "b"] == [("GET", "/x", 404, 2), (OTHERS, OTHERS, 404, 2), ("GET", "/y", 404, 1)]
    assert sum(row[4] for row in rows) == 20
