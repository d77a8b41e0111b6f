"""The server itself: health, disposal, log, document, remote control, and what the TUI asks at its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import structlog

from shim.faces.opencode1 import routes as opencode1
from shim.faces.opencode1._generated.operations import OPENCODE_VERSION, OPERATIONS
from shim.faces.opencode1.unsupported_operations import CONSTANT
from shim.faces.opencode2 import routes as opencode2
from shim.http.operation import collect
from tests.http.conftest import Place
from tests.support.live import live

SESSION = "ses_e002443f4ffeLOJ75TSClkenVm"


async def test_health_answers_on_each_wire(place: Place) -> None:
    assert (await place.api.get("/global/health", status=200)).body == {"healthy": True, "version": OPENCODE_VERSION}
    assert (await place.api.get("/health", status=200)).body == {"healthy": True}


@pytest.mark.parametrize("client", ["opencode/1.18.33", "Mozilla/5.0", "node"])
async def test_health_tells_no_process(place: Place, client: str) -> None:
    """The web UI of 1.18 leaves OpenCode 1 for it, if /global/health did not answer once."""
    async with place.api.raw.get("/api/health", headers={"User-Agent": client}) as answer:
        assert await answer.json() == {"healthy": True}


async def test_dispose_ends_the_work_in_one_directory_and_tells_its_clients(place: Place) -> None:
    async with place.api.stream("/event") as events, place.api.stream("/global/event") as all_events:
        assert (await place.api.post("/instance/dispose", status=200)).body is True
        assert (await events.until("server.instance.disposed"))[-1]["properties"] == {"directory": place.directory}
        await all_events.next()
        assert (await all_events.next())["directory"] == place.directory
    assert place.sessions.disposed == [place.directory]


async def test_dispose_of_all_tells_the_clients_of_every_directory(place: Place) -> None:
    place.sessions.known = [{"id": SESSION, "directory": "/elsewhere"}]
    async with place.api.stream("/global/event") as events, place.api.stream("/event") as here:
        assert (await place.api.post("/global/dispose", status=200)).body is True
        seen = await events.until("global.disposed")
        await here.until("server.instance.disposed")
        with pytest.raises(EOFError):  # it ends, as native's
            await here.next()
    disposed = [event["properties"]["directory"] for event in seen if event["type"] == "server.instance.disposed"]
    assert disposed == sorted([place.directory, "/elsewhere"])
    assert place.sessions.disposed == [None]


@pytest.mark.parametrize(("level", "logged"), [("debug", "debug"), ("info", "info"), ("warn", "warning"), ("error", "error")])
async def test_a_clients_log_line_is_logged_at_its_level(place: Place, level: str, logged: str) -> None:
    body = {"service": "tui", "level": level, "message": "m", "extra": {"event": "forged"}}
    with structlog.testing.capture_logs() as logs:
        assert (await place.api.post("/log", body, status=200)).body is True
    line = next(line for line in logs if line["event"] == "client.log")
    assert (line["log_level"], line["service"], line["message"], line["extra"]) == (logged, "tui", "m", {"event": "forged"})


async def test_a_log_line_of_an_unknown_level_is_refused(place: Place) -> None:
    answer = await place.api.post("/log", {"service": "x", "level": "loud", "message": "m"}, status=400)
    assert answer.body["data"]["message"] == 'Expected "debug" | "info" | "error" | "warn", got "loud"\n  at ["level"]'


async def test_the_document_lists_exactly_what_is_served(place: Place) -> None:
    document = (await place.api.get("/doc", status=200)).body
    assert document["info"]["title"] == "opencode-shim"
    served = {item["operationId"] for methods in document["paths"].values() for item in methods.values()}
    assert served == {one.id for one in collect((*opencode1.MODULES, *opencode2.MODULES)) if one.wire == 1} & set(OPERATIONS)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/mcp", {}),
        ("/lsp", []),
        ("/formatter", []),
        ("/experimental/resource", {}),
        ("/experimental/capabilities", {"backgroundSubagents": False}),
        ("/experimental/console", {"consoleManagedProviders": [], "switchableOrgCount": 0}),
        ("/experimental/console/orgs", {"orgs": []}),
        ("/experimental/worktree", []),
    ],
)
async def test_lists_without_a_source_here_are_empty(place: Place, path: str, body: Any) -> None:
    assert (await place.api.get(path, status=200)).body == body


# --- the preview calls of 1.x clients ----------------------------------------------------------------------


async def test_an_unserved_operation_of_the_preview_says_which_it_is(place: Place) -> None:
    refused = await place.api.get("/api/integration/attempt/x", status=501)
    assert "those of 1.x" in refused.body["message"]


# --- remote control --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "kind", "properties"),
    [
        ("append-prompt", {"text": "hi"}, "tui.prompt.append", {"text": "hi"}),
        ("open-help", None, "tui.command.execute", {"command": "help.show"}),
        ("open-sessions", None, "tui.command.execute", {"command": "session.list"}),
        ("open-themes", None, "tui.command.execute", {"command": "theme.switch"}),
        ("open-models", None, "tui.command.execute", {"command": "model.list"}),
        ("submit-prompt", None, "tui.command.execute", {"command": "prompt.submit"}),
        ("clear-prompt", None, "tui.command.execute", {"command": "prompt.clear"}),
        ("execute-command", {"command": "agent_cycle"}, "tui.command.execute", {"command": "agent.cycle"}),
        ("execute-command", {"command": "other"}, "tui.command.execute", {"command": "other"}),
        ("show-toast", {"message": "M", "variant": "info"}, "tui.toast.show", {"message": "M", "variant": "info"}),
        (
            "publish",
            {"type": "tui.prompt.append", "properties": {"text": "x"}},
            "tui.prompt.append",
            {"text": "x"},
        ),
        ("select-session", {"sessionID": SESSION}, "tui.session.select", {"sessionID": SESSION}),
    ],
)
async def test_remote_control_becomes_an_event_for_the_tui(
    place: Place, path: str, body: Any, kind: str, properties: dict[str, Any]
) -> None:
    place.sessions.known = [{"id": SESSION, "directory": place.directory}]
    async with place.api.stream("/event") as events:
        assert (await place.api.post(f"/tui/{path}", body, status=200)).body is True
        assert (await events.until(kind))[-1]["properties"] == properties


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("show-toast", {"message": "M"}, 400),
        ("publish", {"type": "nosuch", "properties": {}}, 400),
        ("publish", {}, 400),
        ("select-session", {"sessionID": SESSION}, 404),
        ("select-session", {"sessionID": "x"}, 400),
        ("append-prompt", None, 400),
    ],
)
async def test_bad_remote_control_is_refused(place: Place, path: str, body: Any, status: int) -> None:
    await place.api.post(f"/tui/{path}", body, status=status)


ALWAYS: dict[str, tuple[str, str, Any]] = {
    "lsp.status": ("GET", "/lsp", []),
    "find.symbols": ("GET", "/find/symbol?query=main", []),
    "experimental.resource.list": ("GET", "/experimental/resource", {}),
    "experimental.console.get": ("GET", "/experimental/console", {"consoleManagedProviders": [], "switchableOrgCount": 0}),
    "experimental.console.listOrgs": ("GET", "/experimental/console/orgs", {"orgs": []}),
    "experimental.capabilities.get": ("GET", "/experimental/capabilities", {"backgroundSubagents": False}),
    "experimental.session.background": ("POST", f"/experimental/session/{SESSION}/background", False),
    "experimental.workspace.list": ("GET", "/experimental/workspace", []),
    "experimental.workspace.status": ("GET", "/experimental/workspace/status", []),
    "experimental.workspace.syncList": ("POST", "/experimental/workspace/sync-list", None),
    "sync.start": ("POST", "/sync/start", True),
    "tui.control.response": ("POST", "/tui/control/response", True),
}


def test_every_constant_answer_is_named() -> None:
    assert ALWAYS.keys() == CONSTANT.keys()


@pytest.mark.parametrize("name", ALWAYS)
async def test_constant_answers_are_documented(place: Place, name: str) -> None:
    """docs/operations.md and GET /doc say of these that they are always the same: so they are."""
    method, path, wanted = ALWAYS[name]
    assert (OPERATIONS[name].method, name in CONSTANT) == (method, True)
    answer = await place.api.request(method, path, status=204 if wanted is None else 200)
    body = answer.body["data"] if name.startswith("v2.") else answer.body
    assert body == wanted
    assert (await place.api.get("/doc", status=200)).body["x-opencode-shim"]["always_the_same"][name]


async def test_servers_of_one_process_share_their_routes_but_no_sessions(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with live(tmp_path / "one") as one, live(tmp_path / "two") as two:
        session = await one.session()
        assert [info["id"] for info in (await one.api.get("/session", status=200)).body] == [session]
        assert (await two.api.get("/session", status=200)).body == []
        await two.api.get(f"/session/{session}", status=404)
