"""Whether an agent has a login, as far as its environment and files tell. Their contents are never read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SIGNS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "claude": (
        (
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
        ),
        ("$CLAUDE_CONFIG_DIR/.credentials.json", "~/.claude/.credentials.json"),
    ),
    "codex": (("OPENAI_API_KEY", "CODEX_API_KEY"), ("$CODEX_HOME/auth.json", "~/.codex/auth.json")),
    "pi": (("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), ("~/.pi/agent/auth.json", "~/.pi/agent/models.json")),
    "amp": (("AMP_API_KEY",), ("~/.local/share/amp/secrets.json",)),
    "opencode": (
        ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_API_KEY"),
        ("$XDG_DATA_HOME/opencode/auth.json", "~/.local/share/opencode/auth.json"),
    ),
    "gemini": (("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"), ("~/.gemini/oauth_creds.json",)),
}
"""Per agent: variables and files of which one is enough. On macOS, Claude Code keeps its login in the keychain, unseen here."""


def available(agent: str, environ: Mapping[str, str], *, tells: bool) -> bool:
    """One of the agent's signs is there. For agents without a row: whether it `tells` its models. Blocking: looks at files."""
    row = SIGNS.get(agent)
    if row is None:
        return tells
    variables, files = row
    return any(environ.get(name) for name in variables) or any(_exists(path, environ) for path in files)


def _exists(path: str, environ: Mapping[str, str]) -> bool:
    head, _, rest = path.partition("/")
    base = environ.get("HOME", "") if head == "~" else environ.get(head.removeprefix("$"), "")
    return bool(base) and Path(base, rest).is_file()
