"""Name -> agent. Outsiders add theirs through the entry-point group `shim.agents`."""

from __future__ import annotations

from importlib.metadata import entry_points

from universal.agents.acp_specs import ACP_AGENTS
from universal.agents.amp import AMP
from universal.agents.claude import CLAUDE
from universal.agents.codex import CODEX
from universal.agents.mock import MOCK
from universal.agents.opencode import OPENCODE
from universal.agents.pi import PI
from universal.codec import AgentSpec

ENTRY_POINT_GROUP = "shim.agents"


def agents() -> dict[str, AgentSpec]:
    """All known agents, in the order in which they are preferred; the mock is last.

    OpenCode stands behind the others: whoever uses its clients has it, so that it is there does not mean that it is wanted.
    """
    found = {spec.name: spec for spec in (CLAUDE, CODEX, PI, AMP, *ACP_AGENTS, OPENCODE, MOCK)}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        spec = entry.load()
        found[spec.name] = spec
    return found
