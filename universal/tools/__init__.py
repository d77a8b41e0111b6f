"""The tables that map each agent's tools to OpenCode's tools. Pure data."""

from __future__ import annotations

from collections.abc import Mapping

from universal.tools import acp, amp, claude, codex, mock, opencode, opencode2, pi
from universal.tools.row import Row

AGENT_TOOLS: Mapping[str, Mapping[str, Row]] = {
    "claude": claude.TOOLS,
    "codex": codex.TOOLS,
    "opencode": opencode.TOOLS,
    "opencode2": opencode2.TOOLS,
    "pi": pi.TOOLS,
    "amp": amp.TOOLS,
    "mock": mock.TOOLS,
}

_PLUGIN_TABLES: dict[str, Mapping[str, Row]] = {}
"""Tables of agents from packages, by the agent's name."""


def add_tools(agent: str, tools: Mapping[str, Row]) -> None:
    """Add or replace the table of an agent from a package."""
    _PLUGIN_TABLES[agent] = tools


def tools_of(agent: str) -> Mapping[str, Row]:
    """Return the table of an agent. An agent without one uses the table of the Agent Client Protocol."""
    return AGENT_TOOLS[agent] if agent in AGENT_TOOLS else _PLUGIN_TABLES.get(agent, acp.TOOLS)
