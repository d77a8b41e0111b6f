"""Nothing on the event loop calls the file system: a slow disk must not stop the server for everybody."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from shim.host.files.roots import require_blocking
from tests.http.conftest import repository
from tests.support.live import Live, live
from tests.support.loop_watch import loop_watch

ALLOWED = {
    # /proc is the kernel's memory. A child's start time must be known before anything can happen to the child.
    "shim/processes/process_family.py _stat: open",
    # The library's figures of this process come from /proc too.
    "shim/faces/v1/prometheus.py render: open",
    "shim/faces/v1/prometheus.py render: os.listdir",
}
V2 = {"dialect": "v2_0"}
READS = (
    *("/agent", "/command", "/config", "/config/providers", "/doc", "/experimental/tool/ids", "/experimental/workspace/status"),
    *("/experimental/worktree", "/file?path=.", "/file/content?path=a.txt", "/file/status", "/find?pattern=one", "/path"),
    *("/find/file?query=a", "/formatter", "/global/health", "/lsp", "/mcp", "/openapi.json", "/permission", "/project"),
    *("/project/current", "/provider", "/pty", "/pty/shells", "/question", "/session", "/session/status", "/skill", "/vcs"),
    *("/api/agent", "/api/command", "/api/config", "/api/fs/list", "/api/health", "/api/model", "/api/provider"),
    *("/api/session", "/api/shell", "/api/skill"),
)
V1_READS = ("/v1/agents", "/v1/health", "/v1/openapi.json", "/v1/sessions", "/metrics")


async def tour(server: Live, directory: Path) -> None:
    """Requests of all faces, each once: what they answer is for other tests."""
    api = server.api
    session = await server.session()
    await server.ask(session, "echo hello")
    await server.ask(session, "edit")
    await api.post(f"/session/{session}/shell", {"agent": "build", "command": "true"}, status=200)
    await api.post(f"/session/{session}/fork", {}, status=200)
    for path in (*READS, f"/session/{session}/message", f"/session/{session}/diff", f"/api/session/{session}/message"):
        await api.get(path, params=V2 if path.startswith("/api") else None)
    made = (await api.post("/experimental/worktree", {}, status=200)).body
    await api.get("/project/current", params={"directory": made["directory"]}, status=200)
    await api.delete("/experimental/worktree", json={"directory": made["directory"]}, status=200)
    terminal = (await api.post("/pty", {"command": "/bin/sh"}, status=200)).body
    await api.delete(f"/pty/{terminal['id']}", status=200)
    shell = (await api.post("/api/shell", {"command": "true"}, status=200, params=V2)).body["data"]
    await api.delete(f"/api/shell/{shell['id']}", params=V2)
    await api.post("/api/session", {"location": {"directory": str(directory)}}, status=200, params=V2)
    await api.get("/api/session/stats", params={**V2, "timezone": "Europe/Berlin"})
    async with api.raw.post("/v1/sessions/named", json={"agent": "mock", "directory": str(directory)}) as answer:
        assert answer.status == 200
    async with api.raw.post("/v1/sessions/named/messages", json={"message": "echo hello"}) as answer:
        assert answer.ok
    for path in V1_READS:
        async with api.raw.get(path) as answer:
            await answer.read()
    await api.delete(f"/session/{session}", status=200)


async def test_no_request_calls_the_file_system_on_the_loop(tmp_path: Path) -> None:
    directory = repository(tmp_path / "project", {"a.txt": "one\n"})
    async with live(tmp_path, roots=(tmp_path,)) as server:
        with loop_watch() as watch:
            await tour(server, directory)
    assert watch.calls - ALLOWED == set()


async def test_a_call_on_the_loop_is_noticed_and_one_in_a_thread_is_not(tmp_path: Path) -> None:
    with loop_watch() as watch:
        await asyncio.to_thread(require_blocking, str(tmp_path), (str(tmp_path),))
        os.stat(tmp_path)
        assert watch.calls == set()
        require_blocking(str(tmp_path), (str(tmp_path),))
    assert watch.calls == {"shim/host/files/roots.py within: os.lstat"}
