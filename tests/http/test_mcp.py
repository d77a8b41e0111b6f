"""MCP servers: what agents have told of theirs, also after a restart, and what clients add and switch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shim.http.operation import SERVICES
from shim.store.sqlite import SqliteStore
from tests.support.live import Live, live

UP, DOWN = {"status": "connected"}, {"status": "failed", "error": "no such file"}


async def publish_servers(server: Live, session: str, agent: str, servers: dict[str, Any]) -> None:
    """As the codec of `agent` does, in a turn of this session."""
    state = (await server.api.raw.app[SERVICES].sessions.actor(session)).main
    state.session.agent = agent
    state.status("mcp", servers=servers)


async def mcp(server: Live) -> Any:
    return (await server.api.get("/mcp", status=200)).body


async def test_an_mcp_status_survives_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "data" / "shim.db"
    async with live(tmp_path, store=SqliteStore(store)) as server:
        assert await mcp(server) == {}
        session = await server.session()
        await publish_servers(server, session, "mock", {"a": DOWN})
        await publish_servers(server, session, "mock", {"a": UP, "b": DOWN})
        assert await mcp(server) == {"a": UP, "b": DOWN}
    async with live(tmp_path, store=SqliteStore(store)) as server:
        assert await mcp(server) == {"a": UP, "b": DOWN}


async def test_the_newest_word_of_each_agent_counts(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        old, new = await server.session(), await server.session()
        await server.api.patch(f"/session/{new}", {"title": "newer"}, status=200)
        await publish_servers(server, old, "one", {"gone": UP, "a": DOWN})
        await publish_servers(server, old, "two", {"b": UP})
        await publish_servers(server, new, "one", {"a": UP})
        assert await mcp(server) == {"a": UP, "b": UP}


async def test_other_directories_have_their_own(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        await publish_servers(server, await server.session(), "mock", {"a": UP})
        other = tmp_path / "other"
        other.mkdir()
        assert (await server.api.get("/mcp", params={"directory": str(other)}, status=200)).body == {}


LOCAL = {"type": "local", "command": ["near"]}


async def test_clients_add_connect_and_disconnect_servers(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        added = await server.api.post("/mcp", {"name": "new", "config": {**LOCAL, "enabled": False}}, status=200)
        assert added.body == {"new": {"status": "disabled"}}
        assert (await server.api.post("/mcp/new/connect", {}, status=200)).body is True
        assert await mcp(server) == {}, "no agent has told of it"
        await publish_servers(server, await server.session(), "mock", {"new": UP})
        assert await mcp(server) == {"new": UP}
        assert (await server.api.post("/mcp/new/disconnect", {}, status=200)).body is True
        assert await mcp(server) == {"new": {"status": "disabled"}}


async def test_an_unknown_server_is_named(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        refused = await server.api.post("/mcp/none/connect", {}, status=404)
        assert (refused.body["_tag"], refused.body["name"]) == ("McpServerNotFoundError", "none")


async def test_a_wrong_server_is_refused(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        await server.api.post("/mcp", {"name": "new", "config": {"type": "local", "command": "near"}}, status=400)
