"""Lists the built-in agents by name. Other packages add agents by an entry point (`shim.agents.plugins`)."""

from __future__ import annotations

from dataclasses import replace

from universal.agent_spec import AgentSpec
from universal.agents.acp.spec import ACP_AGENTS
from universal.agents.amp.spec import AMP
from universal.agents.claude.spec import ADAPTER_CONVERSATIONS, CLAUDE
from universal.agents.codex.spec import CODEX
from universal.agents.mock.spec import MOCK
from universal.agents.opencode.spec import KILO_SERVE, OPENCODE
from universal.agents.opencode2.spec import OPENCODE2
from universal.agents.pi.spec import PI


def _shares_files(spec: AgentSpec) -> AgentSpec:
    """The row of an adapter with the conversations of the agent that it runs."""
    if spec.name != "claude-agent-acp" or spec.abilities.conversations is None:
        return spec
    store = ADAPTER_CONVERSATIONS._replace(program=spec.abilities.conversations.program)
    return replace(spec, abilities=replace(spec.abilities, conversations=store))


def agents() -> dict[str, AgentSpec]:
    """Return all built-in agents in the order of preference, with the mock last.

    OpenCode stands behind the others: everyone who uses its clients has it installed, so that says nothing about preference. So
    does OpenCode 2.
    """
    return {
        spec.name: spec
        for spec in (CLAUDE, CODEX, PI, AMP, *map(_shares_files, ACP_AGENTS), OPENCODE, OPENCODE2, KILO_SERVE, MOCK)
    }
