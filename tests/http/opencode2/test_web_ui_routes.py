"""What the web UI of 1.18.33 can ask of OpenCode 2: every route of its client is answered, or refused with a reason.

`compat_fixtures/opencode2/web_ui.txt` is the table of its client (method, path, the one status that it takes), read from its
scripts.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.live import Live

TABLE = [row.split() for row in (Path(__file__).parents[3] / "compat_fixtures/opencode2/web_ui.txt").read_text().splitlines()]
WEB_UI = {"dialect": "web_ui"}
STREAMS = {"/api/event", "/api/experimental/session/{sessionID}/log"}
ALONE = "agent command debug/location form/request fs/list health integration location mcp mcp/resource model model/default"
ALONE += " permission/request permission/saved plugin project project/current provider pty question/request reference server"
ALONE += (
    " session session/active shell skill vcs/status project/{projectID}/directories provider/{providerID} session/{sessionID}"
)
OF_SESSION = ("context", "form", "message", "pending", "permission", "question")
WITHOUT_ANYTHING = {f"/api/{what}" for what in (*ALONE.split(), *(f"session/{{sessionID}}/{what}" for what in OF_SESSION))}
"""GETs that need nothing but what the test has."""


async def fill_path(server: Live, path: str) -> str:
    """The path for things that are there (session, project, provider), and for others that are not."""
    session = await server.session()
    project = (await server.api.get("/project/current", status=200)).body["id"]
    known = {"sessionID": session, "projectID": project, "providerID": "mock"}
    return re.sub(r"\{(\w+)\}", lambda found: known.get(found[1], "none_1"), path)


@pytest.mark.parametrize(("method", "path", "status"), TABLE)
async def test_each_route_is_known(server: Live, method: str, path: str, status: str) -> None:
    if path in STREAMS:
        pytest.skip("a stream")
    body = {} if method in ("GET", "DELETE") else {"json": {}}
    async with server.api.raw.request(method, await fill_path(server, path), params=WEB_UI, **body) as answer:
        said = await answer.text()
        assert "No such route" not in said
        assert str(answer.status) == status or answer.status in (400, 404, 409, 501), said
        if answer.status == 501:
            assert "is not served by opencode-shim: " in said
        if method == "GET" and path in WITHOUT_ANYTHING:
            assert str(answer.status) == status, said


async def test_a_project_has_its_directories(server: Live) -> None:
    """The sidebar asks for them, and shows a workspace for each but the project's own."""
    project = (await server.api.get("/api/project/current", params=WEB_UI, status=200)).body
    found = (await server.api.get(f"/api/project/{project['id']}/directories", params=WEB_UI, status=200)).body
    assert isinstance(found, list)
    assert all(set(row) >= {"directory"} for row in found)
    unknown = await server.api.get("/api/project/none/directories", params=WEB_UI, status=404)
    assert unknown.body["_tag"] == "ProjectNotFoundError"
