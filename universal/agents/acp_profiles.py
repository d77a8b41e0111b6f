"""Agents that speak the Agent Client Protocol: how each is started, and what is known of it. Data.

`recorded` ones were run and recorded (`compat_fixtures/agents/acp`). The others are found by what their own documentation or
their entry in the ACP registry says about the start; their behaviour was not observed here.
`opencode-acp` is found when SHIM_OPENCODE_ACP_BIN names an `opencode`, or a program of that name is on PATH: nearly everybody
who runs this server has `opencode` installed, as the client, and a second provider of the same agent is asked for, not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from universal.codec import Mode

BUILD = Mode("build", "The agent's own default: it decides what it asks before it does it.", "")
PLAN = Mode("plan", "The agent only reads and thinks, then proposes a plan.", "plan")
GENERIC: tuple[Mode, ...] = (BUILD, PLAN)
"""For agents of which nothing is known. Where one has no mode `plan`, a prompt in it is refused, not run in another mode."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of an agent. `native` of a mode: "" its default, `x` its mode x, `option=x` another option."""

    name: str
    title: str
    binaries: tuple[str, ...]
    args: tuple[str, ...] = ()
    install_hint: str = ""
    version_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    modes: tuple[Mode, ...] = GENERIC
    tells_commands: bool = False
    """It tells its commands after each start of a session, so its catalogue waits for them."""
    id_less_errors: bool = False
    """A chunk without messageId is an error of the model."""
    notes: bool = False
    """Its own remarks on retries and its queue stand among the text."""
    usage: bool = True
    permissions: bool = True
    questions: bool = False


_CLAUDE_MODES = (
    Mode("build", "Claude asks before it edits files or runs commands that change something.", "default"),
    Mode("plan", "Claude only reads and thinks, then proposes a plan and asks before it starts.", "plan"),
    Mode("accept-edits", "Claude edits files in the project without asking; other commands are still asked.", "acceptEdits"),
    Mode("auto", "A safety check by a model decides instead of you; only what it holds back is asked.", "auto"),
    Mode("bypass", "Claude does everything without asking. Only for sandboxes: nothing is held back.", "bypassPermissions"),
)
_CODEX_MODES = (
    BUILD,
    Mode("plan", "Codex plans before it makes changes.", "collaboration_mode=plan"),
    Mode("read-only", "Codex asks before it edits files or uses the network.", "read-only"),
    Mode("full-access", "Codex does everything without asking. Only for sandboxes: nothing is held back.", "agent-full-access"),
)

KNOWN: tuple[Profile, ...] = (
    Profile(
        "claude-agent-acp",
        "Claude Agent (ACP)",
        ("claude-agent-acp",),
        install_hint="Install it with `npm install -g @agentclientprotocol/claude-agent-acp`.",
        modes=_CLAUDE_MODES,
        tells_commands=True,
        questions=True,
    ),
    Profile(
        "codex-acp",
        "Codex (ACP)",
        ("codex-acp",),
        install_hint="Install it with `npm install -g @agentclientprotocol/codex-acp`.",
        modes=_CODEX_MODES,
        tells_commands=True,
        id_less_errors=True,
        questions=True,
    ),
    Profile(
        "opencode-acp",
        "OpenCode (ACP)",
        ("opencode-acp",),
        ("acp",),
        install_hint="Set SHIM_OPENCODE_ACP_BIN to your `opencode`.",
        version_args=("--version",),
        tells_commands=True,
    ),
    Profile(
        "pi-acp",
        "Pi (ACP)",
        ("pi-acp",),
        install_hint="Install it with `npm install -g pi-acp @earendil-works/pi-coding-agent`.",
        modes=(BUILD,),
        tells_commands=True,
        notes=True,
        usage=False,
        permissions=False,
    ),
    # ACP mode: geminicli.com/docs/cli/acp-mode (`--acp`; `--experimental-acp` is its older name).
    Profile(
        "gemini",
        "Gemini CLI",
        ("gemini",),
        ("--acp",),
        install_hint="Install it with `npm install -g @google/gemini-cli`, then run `gemini` once to log in.",
        version_args=("--version",),
    ),
    # block.github.io/goose/docs/guides/acp-clients
    Profile(
        "goose",
        "goose",
        ("goose",),
        ("acp",),
        install_hint="See block.github.io/goose for its installation, then run `goose configure`.",
        version_args=("--version",),
    ),
    # ACP registry, qwen-code/agent.json
    Profile(
        "qwen",
        "Qwen Code",
        ("qwen",),
        ("--acp",),
        install_hint="Install it with `npm install -g @qwen-code/qwen-code`, then run `qwen` once to log in.",
        version_args=("--version",),
    ),
    # moonshotai.github.io/kimi-cli/en/reference/kimi-acp.html
    Profile(
        "kimi",
        "Kimi CLI",
        ("kimi",),
        ("acp",),
        install_hint="Install Kimi CLI (github.com/MoonshotAI/kimi-cli), then run `kimi login`.",
        version_args=("--version",),
    ),
    # docs.github.com/copilot/reference/acp-server
    Profile(
        "copilot",
        "GitHub Copilot CLI",
        ("copilot",),
        ("--acp",),
        install_hint="Install it with `npm install -g @github/copilot`, then run `copilot` once to log in.",
        version_args=("--version",),
    ),
)
