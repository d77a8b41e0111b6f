"""The tables that map each agent's tools to OpenCode's tools. Pure data."""

from __future__ import annotations

from collections.abc import Mapping

from universal.tools import acp, amp, claude, codex, mock, opencode, pi
from universal.tools.row import Row

AGENT_TOOLS: Mapping[str, Mapping[str, Row]] = {
    "claude": claude.TOOLS,
    "codex": codex.TOOLS,
    "opencode": opencode.TOOLS,
    "pi": pi.TOOLS,
    "amp": amp.TOOLS,
    "mock": mock.TOOLS,
}


def tools_of(agent: str) -> Mapping[str, Row]:
    """Return the table of an agent. An agent without one uses the table of the Agent Client Protocol."""
    return AGENT_TOOLS.get(agent, acp.TOOLS)
