"""MCP servers as Claude and Codex tell of them: statuses, and that nothing is said twice."""

from __future__ import annotations

from typing import Any

import pytest

from universal.mcp import McpServers, of_claude, of_codex, summary


@pytest.mark.parametrize(
    ("row", "server"),
    [
        ({"name": "a", "status": "connected", "source": "user"}, {"status": "connected"}),
        ({"name": "a", "status": "needs-auth"}, {"status": "needs_auth"}),
        ({"name": "a", "status": "disabled"}, {"status": "disabled"}),
        ({"name": "a", "status": "failed", "error": "ENOENT"}, {"status": "failed", "error": "ENOENT"}),
        ({"name": "a", "status": "failed"}, {"status": "failed", "error": "The agent could not start it, and does not say why."}),
        ({"name": "a", "status": "pending"}, None),
        ({"name": "a", "status": "of next year"}, None),
    ],
)
def test_claudes_words(row: Any, server: Any) -> None:
    assert of_claude(row) == ("a", server)


@pytest.mark.parametrize(
    ("params", "server"),
    [
        ({"status": "ready", "error": None, "failureReason": None}, {"status": "connected"}),
        ({"status": "starting"}, None),
        ({"status": "failed", "error": "no such file"}, {"status": "failed", "error": "no such file"}),
        ({"status": "failed", "error": "401", "failureReason": "reauthenticationRequired"}, {"status": "needs_auth"}),
    ],
)
def test_codexs_words(params: Any, server: Any) -> None:
    assert of_codex({"name": "a", **params}) == ("a", server)


def test_only_news_are_published() -> None:
    servers = McpServers()
    up, down = {"status": "connected"}, {"status": "failed", "error": "x"}
    assert servers.update([], whole=True) is None
    assert servers.update([("a", up), ("b", None)], whole=True) == {"servers": {"a": up}}
    assert servers.update([("a", up)], whole=True) is None
    assert servers.update([("b", down)], whole=False) == {"servers": {"a": up, "b": down}}
    assert servers.update([("a", None)], whole=False) == {"servers": {"b": down}}
    assert servers.update([], whole=True) == {"servers": {}}
    assert summary({"servers": {"a": up, "b": down}}) == "a: connected, b: failed"
    assert summary({"servers": {}}) == "no MCP servers"
