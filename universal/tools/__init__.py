"""How each agent's tools are called on the OpenCode face: a table per agent, beside each other. Pure data."""

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
    """The table of one agent. Those without one of their own speak the Agent Client Protocol: the person may name any."""
    return AGENT_TOOLS.get(agent, acp.TOOLS)
