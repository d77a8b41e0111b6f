"""Facts about Codex that its codec and the profile of codex-acp share."""

from __future__ import annotations

from universal.sandbox import HELD_KEYS, SandboxUse

SANDBOX = SandboxUse(
    folders=("$CODEX_HOME or ~/.codex",),
    hosts=("api.openai.com", "chatgpt.com", "auth.openai.com"),
    variables=("OPENAI_BASE_URL",),
    settings=("$CODEX_HOME/config.toml or ~/.codex/config.toml",),
    shown=HELD_KEYS,
)
