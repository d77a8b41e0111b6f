"""Name -> agent: those that are built in. Other packages add theirs by an entry point (`shim.agents.plugins`)."""

from __future__ import annotations

from universal.agents.acp.spec import ACP_AGENTS
from universal.agents.amp.spec import AMP
from universal.agents.claude.spec import CLAUDE
from universal.agents.codex.spec import CODEX
from universal.agents.mock.spec import MOCK
from universal.agents.opencode.spec import OPENCODE
from universal.agents.pi.spec import PI
from universal.codec import AgentSpec


def agents() -> dict[str, AgentSpec]:
    """All agents that are built in, in the order in which they are preferred; the mock is last.

    OpenCode stands behind the others: whoever uses its clients has it, so that it is there does not mean that it is wanted.
    """
    return {spec.name: spec for spec in (CLAUDE, CODEX, PI, AMP, *ACP_AGENTS, OPENCODE, MOCK)}
