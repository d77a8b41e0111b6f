"""Who is told when the MCP servers of a directory have changed."""

from __future__ import annotations

import pytest

from shim.sessions import mcp_servers
from shim.sessions.mcp_servers import McpReports, servers_of
from tests.support.scripted_model import World, ask
from universal.codec import Fact
from universal.events import EventType, ItemData
from universal.items import Item, ItemKind, ItemStatus, StatusPart
from universal.session.changes import ServersReported

ROW = {"type": "local", "command": ["/bin/cat"]}


def report(w: World, **servers: str) -> None:
    item = Item(
        item_id=w.agent.new(),
        kind=ItemKind.STATUS,
        status=ItemStatus.COMPLETED,
        content=(StatusPart(label="mcp"),),
        metadata={"servers": {name: {"status": status} for name, status in servers.items()}},
    )
    w.agent.says(Fact(EventType.ITEM_COMPLETED, ItemData(item=item)))


async def reports_of(w: World) -> list[str]:
    """The directories that are named, in order, as agents report. One agent works."""
    told: list[str] = []
    w.manager.deps.changes.observe(McpReports(told.append).note, (ServersReported,))
    await ask(w, w.session())
    return told


async def test_the_server_tells_of_a_changed_report_and_not_of_an_equal_one(w: World) -> None:
    told = await reports_of(w)
    report(w, near="connected")
    report(w, near="connected")
    assert told == ["/p"]
    report(w, near="failed", far="connected")
    assert told == ["/p", "/p"]
    w.agent.text("other items are not looked at")
    report(w)
    assert told == ["/p", "/p"]
    w.agent.end_turn()


async def test_the_memory_of_reports_is_bounded(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_servers, "KEPT_REPORTS", 0)
    told = await reports_of(w)
    report(w, near="connected")
    report(w, near="connected")
    assert told == ["/p", "/p"], "it was forgotten"
    w.agent.end_turn()


async def test_a_server_that_a_session_had_is_not_shown_once_it_is_taken_back(w: World) -> None:
    """Codex goes on telling of it."""
    session, setups = w.session(), w.manager.deps.setups
    await ask(w, session)
    report(w, own="connected", near="connected")
    for rows, names in (({"own": ROW}, ["near", "own"]), ({}, ["near"]), ({"own": ROW}, ["near", "own"])):
        setups.give(session, rows)
        assert sorted(server.name for server in await servers_of(w.manager, "/p")) == names
    w.agent.end_turn()
