"""Facts about Pi that its codec and the profile of pi-acp share."""

from __future__ import annotations

from universal.sandbox import HELD_KEYS, SandboxUse

SANDBOX = SandboxUse(
    folders=("$PI_CODING_AGENT_DIR or ~/.pi/agent",),
    hosts=("api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"),
    variables=("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"),
    settings=("$PI_CODING_AGENT_DIR/models.json or ~/.pi/agent/models.json",),
    shown=HELD_KEYS,
)
