"""Profiles of agents of the Agent Client Protocol: how each is started, and where it differs from others. Data.

Those that need rows of this package are written here, all others on cards (`acp.cards`).

What is in here was seen in recordings (`compat_fixtures/agents/acp`) or runs of the real programs. docs/compatibility.md says
which versions were run, and how far.
`opencode-acp` is found when SHIM_OPENCODE_ACP_BIN names an `opencode`, or a program of that name is on PATH. Nearly everybody
who runs this server has `opencode` installed as the client, so `opencode` alone adds no second provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from universal.claude_code import COMMANDS, INTERNAL_COMMANDS, OWN_FOLDER, OWN_RULES, SPARE, WITHHELD_COMMANDS
from universal.claude_code import SANDBOX as CLAUDE_SANDBOX
from universal.codec import ALL_FAMILIES, NO_SPARE, AgentFolder, LoginSigns, Mode, ProjectSettingsUse, SpareUse
from universal.codex import SANDBOX as CODEX_SANDBOX
from universal.opencode import SANDBOX as OPENCODE_SANDBOX
from universal.opencode import SKILLS
from universal.permissions import Enforcement, Rule
from universal.pi import SANDBOX as PI_SANDBOX
from universal.sandbox import NO_NEEDS, SandboxUse
from universal.setup import TAKES_NOTHING, SetupUse
from universal.slash_commands import NO_COMMANDS, CommandSources

DEFAULT = "default"
"""Id of the only model of an agent that offers no choice. It is never sent."""
BUILD = Mode("build", "The agent's own default: it decides what it asks before it does it.", "")
PLAN = Mode("plan", "The agent only reads and thinks, then proposes a plan.", "plan")
GENERIC: tuple[Mode, ...] = (BUILD, PLAN)
"""Modes until an agent has reported its own. If it has no `plan`, a prompt in that mode is refused, not run in another."""
READS_ALL = ProjectSettingsUse(ALL_FAMILIES)
"""Assumed for an agent that nobody has examined: it reads the project settings of every family."""


MCP_ALONE = SetupUse(frozenset({"mcp"}))


@dataclass(frozen=True, slots=True)
class Profile:
    """One agent. `native` of a mode: "" is the agent's default, `x` its mode x, `option=x` a value of another option.

    `modes` gives names and texts; which modes exist, and which more, the agent reports itself (`acp.modes`).
    """

    name: str
    title: str
    binaries: tuple[str, ...]
    args: tuple[str, ...] = ()
    install_hint: str = ""
    version_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    protocol: int = 1
    """Version of the protocol that is requested. The agent's answer says which one is spoken."""
    handshake_s: float = 60.0
    """Seconds that a prompt waits for each answer of the handshake. Gemini CLI takes 10 s for one, `opencode acp` up to 40 s."""
    modes: tuple[Mode, ...] = GENERIC
    tells_commands: bool = False
    """Whether it reports its commands after each start of a session, so that its catalogue waits for them."""
    id_less_errors: bool = False
    """Whether the last chunk of a turn is an error of the model if it has no messageId."""
    errors_begin: str = ""
    """Beginning of a text that is an error of the model if it is the last of a turn; "" for none."""
    usage_sums: bool = False
    """Whether the usage of a prompt is the sum since the start of the process."""
    untold_output: str = ""
    """Text on the card of a command without output, for an agent that never reports it."""
    notes: bool = False
    """Whether its remarks on retries and its queue come as text of the answer."""
    usage: bool = True
    permissions: bool = True
    questions: bool = False
    mcp: bool = True
    tested: tuple[str, ...] = ()
    login: Literal["session"] | None = None
    """As in `AgentSpec`. claude-agent-acp has None: it makes a session also when it is not logged in."""
    login_hint: str = ""
    command: tuple[str, ...] = ()
    """Command of an agent of the settings of which nothing is known. What it says of its logins makes the hint."""
    settings: ProjectSettingsUse = READS_ALL
    """The project settings that it reads. The protocol has no way to leave them out."""
    setup: SetupUse = MCP_ALONE
    """As in `AgentSpec`. A session of the protocol begins with a list of MCP servers."""
    shows_servers: bool = False
    """Whether it gives MCP servers to another program as an argument, which every user of the machine can read."""
    asks_always: bool = False
    """Whether it can be made to ask for every call (`claude.ASK_ALWAYS`)."""
    enforcement: Enforcement | None = None
    """What enforces permission rules, if it is more than the protocol demands."""
    sandbox: SandboxUse = NO_NEEDS
    default_rules: tuple[Rule, ...] = ()
    own_folder: AgentFolder | None = None
    command_sources: CommandSources = NO_COMMANDS
    internal_commands: frozenset[str] = frozenset()
    withheld_commands: Mapping[str, str] = field(default_factory=dict[str, str])
    npm: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    login_signs: LoginSigns | None = None
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    unrecorded: str = ""
    spare: SpareUse | None = None
    no_spare: str = NO_SPARE
    """This and the fields above, from `sandbox` on, are as in `AgentSpec`."""


_CLAUDE_MODES = (
    Mode("build", "Asks before it edits files or runs commands that change something.", "default"),
    Mode("plan", "Only reads and thinks, then proposes a plan and asks before it starts.", "plan"),
    Mode("accept-edits", "Edits files in the project without asking; other commands are still asked.", "acceptEdits"),
    Mode("auto", "A safety check by a model decides instead of you; only what it holds back is asked.", "auto"),
    Mode("bypass", "Does everything without asking. Only for sandboxes: nothing is held back.", "bypassPermissions"),
)
_CODEX_MODES = (
    BUILD,
    Mode("plan", "Plans before it makes changes.", "collaboration_mode=plan"),
    Mode("read-only", "Asks before it edits files or uses the network.", "read-only"),
    Mode("full-access", "Does everything without asking. Only for sandboxes: nothing is held back.", "agent-full-access"),
)

_HIDDEN_FILES = (Rule("edit", ".*", "ask"), Rule("edit", "*/.*", "ask"))
"""Claude Code asks about most of these in `accept-edits`: `.git`, `.claude`, `.bashrc` ..."""

WRITTEN: tuple[Profile, ...] = (
    Profile(
        "claude-agent-acp",
        "Claude Agent (ACP)",
        ("claude-agent-acp",),
        shows_servers=True,  # to Claude Code, as `--mcp-config` (tried with 0.100.0)
        npm=("@agentclientprotocol/claude-agent-acp",),
        key_variables=("ANTHROPIC_API_KEY",),
        install_hint="Install it with `npm install -g @agentclientprotocol/claude-agent-acp`.",
        modes=_CLAUDE_MODES,
        tells_commands=True,
        questions=True,
        tested=("0.99.1", "0.101.0"),
        login_hint="Run `claude` in a terminal and log in with /login, or set ANTHROPIC_API_KEY.",
        settings=ProjectSettingsUse(("claude",)),
        asks_always=True,
        enforcement=Enforcement(
            "an `ask` rule of Claude Code for every call, which this server answers; its `deny` for keys that are denied whole",
            absent=("todowrite",),
            partial="A `PermissionRequest` hook in Claude's own settings, if there is one, may answer before this server.",
        ),
        default_rules=(*_HIDDEN_FILES, *OWN_RULES),
        own_folder=OWN_FOLDER,
        command_sources=COMMANDS,
        internal_commands=INTERNAL_COMMANDS,
        withheld_commands=WITHHELD_COMMANDS,
        spare=SPARE,
        sandbox=CLAUDE_SANDBOX,
    ),
    Profile(
        "codex-acp",
        "Codex (ACP)",
        ("codex-acp",),
        npm=("@agentclientprotocol/codex-acp",),
        key_variables=("OPENAI_API_KEY", "CODEX_API_KEY"),
        install_hint="Install it with `npm install -g @agentclientprotocol/codex-acp`.",
        modes=_CODEX_MODES,
        tells_commands=True,
        id_less_errors=True,
        questions=True,
        tested=("0.16.0", "2.6.0"),
        login="session",
        login_hint="Run `codex login` in a terminal, or set OPENAI_API_KEY.",
        settings=ProjectSettingsUse(("codex",)),
        no_spare="Its handshake begins a conversation, which would be left empty in Codex's list.",
        sandbox=CODEX_SANDBOX,
    ),
    Profile(
        "opencode-acp",
        "OpenCode (ACP)",
        ("opencode-acp",),
        ("acp",),
        lacks={
            "questions": "OpenCode's ACP server offers no question tool.",
            "subagents": "OpenCode's ACP server does not pass on what a subagent asks: if it asks, the turn waits for ever "
            "(1.18.32).",
        },
        install_hint="Set SHIM_OPENCODE_ACP_BIN to your `opencode`.",
        version_args=("--version",),
        tells_commands=True,
        tested=("1.18.32", "1.18.33"),
        login="session",
        login_hint="Run `opencode auth login` in a terminal.",
        settings=ProjectSettingsUse(("opencode",)),
        setup=SetupUse(reads_own=True),
        command_sources=SKILLS,
        no_spare="Its handshake makes a session, which would be left empty in OpenCode's list.",
        sandbox=OPENCODE_SANDBOX,
    ),
    Profile(
        "pi-acp",
        "Pi (ACP)",
        ("pi-acp",),
        sandbox=PI_SANDBOX._replace(shown=()),
        npm=("pi-acp", "@earendil-works/pi-coding-agent"),
        lacks={
            "mcp": "It has no MCP client.",
            "todos": "Pi has no tool for a list of tasks.",
            "subagents": "Pi has no subagents.",
            "permissions": "pi-acp asks nothing before a call.",
            "questions": "Pi has no tool for questions; dialogs of its extensions are shown as questions.",
        },
        install_hint="Install it with `npm install -g pi-acp @earendil-works/pi-coding-agent`.",
        modes=(BUILD,),
        tells_commands=True,
        notes=True,
        usage=False,
        permissions=False,
        mcp=False,
        setup=TAKES_NOTHING,
        tested=("0.0.34",),
        login="session",
        login_hint="Run `pi` in a terminal and log in with /login, or set the API key of a provider.",
        settings=ProjectSettingsUse(("pi",)),
    ),
)
