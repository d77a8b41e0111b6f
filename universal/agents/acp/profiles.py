"""Profiles of agents of the Agent Client Protocol: how each is started, and where it differs from others. Data.

Those that need rows of this package are written here, all others on cards.

What is in here was seen in recordings (`compat_fixtures/agents/acp`) or runs of the real programs. docs/compatibility.md says
which versions were run, and how far.
`opencode-acp` is found when SHIM_OPENCODE_ACP_BIN names an `opencode`, or a program of that name is on PATH. Nearly everybody
who runs this server has `opencode` installed as the client, so `opencode` alone adds no second provider.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from universal.agent_spec import (
    EVERYTHING,
    AgentAbilities,
    AgentProgram,
    AgentRules,
    Capabilities,
    LoginRun,
    LoginSigns,
    ProjectSettingsUse,
)
from universal.claude_code import COMMANDS, INTERNAL_COMMANDS, OWN_FOLDER, OWN_RULES, SPARE, WITHHELD_COMMANDS
from universal.claude_code import MODES as CLAUDE_MODES
from universal.claude_code import SANDBOX as CLAUDE_SANDBOX
from universal.codec import Catalogue, Mode, Model
from universal.lib.jsonvalue import arr, obj
from universal.opencode import SANDBOX as OPENCODE_SANDBOX
from universal.opencode import SKILLS
from universal.permissions import Enforcement, Rule
from universal.sandbox import CODEX_SANDBOX, PI_SANDBOX, SandboxUse
from universal.setup import TAKES_NOTHING, SetupUse

DEFAULT = "default"
"""Id of the only model of an agent that offers no choice. It is never sent."""
BUILD = Mode("build", "The agent's own default: it decides what it asks before it does it.", "")
PLAN = Mode("plan", "The agent only reads and thinks, then proposes a plan.", "plan")
GENERIC: tuple[Mode, ...] = (BUILD, PLAN)
"""Modes until an agent has reported its own. If it has no `plan`, a prompt in that mode is refused, not run in another."""
CATALOGUE = Catalogue((Model(DEFAULT, "Default", "The model that the agent is set to."),), default_model=DEFAULT)
"""Catalogue until an agent has reported its models, so that clients need not wait for a slow start."""
CAPABILITIES = replace(EVERYTHING, questions=False, files=False, subagents=False, compact=False)
ABILITIES = AgentAbilities(CAPABILITIES, GENERIC, CATALOGUE, setup=SetupUse(frozenset({"mcp"})))
"""A session of the protocol begins with a list of MCP servers."""
_UNSEEN = "Calls that the agent neither asks about nor makes through this server are not seen"
ENFORCEMENT = Enforcement(
    "the agent's own questions, and files and commands that go through this server",
    {"*": f"{_UNSEEN}: most agents read without asking, and ask for nothing in a mode of their own that does everything."},
)
RULES = AgentRules(ENFORCEMENT)
"""Of an agent that nobody has examined: it reads the project settings of every family."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One agent. `native` of a mode: "" is the agent's default, `x` its mode x, `option=x` a value of another option.

    `abilities.modes` gives names and texts; which modes exist, and which more, the agent reports itself (`acp.modes`).
    """

    name: str
    title: str
    program: AgentProgram
    args: tuple[str, ...] = ()
    abilities: AgentAbilities = ABILITIES
    rules: AgentRules = RULES
    """The protocol has no way to leave a project's settings out."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    handshake_s: float = 60.0
    """Seconds that a prompt waits for each answer of the handshake. Gemini CLI takes 10 s for one, `opencode acp` up to 40 s."""
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
    arguments_grow: bool = False
    """Whether the arguments of a call come as the growing text of its content, before it runs."""
    remarks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Pattern of a piece of text that is a remark of the agent -> `retry`, `notice`, or "" for one that is left out.

    The groups `attempt` and `delay` (seconds) of a retry count.
    """
    command: tuple[str, ...] = ()
    """Command of an agent of the settings of which nothing is known. What it says of its logins makes the hint."""
    shows_servers: bool = False
    """Whether it gives MCP servers to another program as an argument, which every user of the machine can read.

    That program, which is Claude Code, puts variables into them (`${NAME}`).
    """
    reads_itself: bool = False
    """Whether it is told that this server reads no files for it, since it does not understand that one is not there."""
    resume_command: str = ""
    """The command that goes on with a conversation in the agent's own program, with {id}; "" if nobody has tried one."""
    asks_always: bool = False
    """Whether it can be made to ask for every call (`claude.ASK_ALWAYS`)."""
    asks_by: str = ""
    """The variable of its configuration, by which a fork of OpenCode is made to ask for what rules are about; "" for none."""


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
        AgentProgram(
            ("claude-agent-acp",),
            tested=("0.99.1", "0.101.0"),
            npm=("@agentclientprotocol/claude-agent-acp",),
            registry="claude-acp",
            install_hint="Install it with `npm install -g @agentclientprotocol/claude-agent-acp`.",
            login_hint="Run `claude` in a terminal and log in with /login, or set ANTHROPIC_API_KEY.",
            login_run=LoginRun(("--cli", "auth", "login", "--claudeai"), takes_code=True),
            key_variables=("ANTHROPIC_API_KEY",),
            spare=SPARE,
        ),  # no `login`: it makes a session also when it is not logged in
        abilities=replace(
            ABILITIES,
            capabilities=replace(CAPABILITIES, questions=True),
            modes=CLAUDE_MODES,
            command_sources=COMMANDS,
            internal_commands=INTERNAL_COMMANDS,
            withheld_commands=WITHHELD_COMMANDS,
            no_steering="",
        ),
        rules=AgentRules(
            Enforcement(
                "an `ask` rule of Claude Code for every call, which this server answers; its `deny` for keys that are denied "
                "whole",
                absent=("todowrite",),
                partial="A `PermissionRequest` hook in Claude's own settings, if there is one, may answer before this server.",
            ),
            ProjectSettingsUse(("claude",)),
            (*_HIDDEN_FILES, *OWN_RULES),
            OWN_FOLDER,
            CLAUDE_SANDBOX,
        ),
        tells_commands=True,
        resume_command="claude --resume {id}",
        shows_servers=True,  # to Claude Code, as `--mcp-config` (tried with 0.100.0)
        asks_always=True,
    ),
    Profile(
        "codex-acp",
        "Codex (ACP)",
        AgentProgram(
            ("codex-acp",),
            tested=("0.16.0", "2.6.0"),
            npm=("@agentclientprotocol/codex-acp",),
            install_hint="Install it with `npm install -g @agentclientprotocol/codex-acp`.",
            login="session",
            login_hint="Run `codex login` in a terminal, or set OPENAI_API_KEY.",
            login_run=LoginRun(("cli", "login", "--device-auth")),
            key_variables=("OPENAI_API_KEY", "CODEX_API_KEY"),
            no_spare="Its handshake begins a conversation, which would be left empty in Codex's list.",
        ),
        abilities=replace(ABILITIES, capabilities=replace(CAPABILITIES, questions=True), modes=_CODEX_MODES, no_steering=""),
        rules=AgentRules(ENFORCEMENT, ProjectSettingsUse(("codex",)), sandbox=CODEX_SANDBOX),
        tells_commands=True,
        resume_command="codex resume {id}",
        id_less_errors=True,
    ),
    Profile(
        "opencode-acp",
        "OpenCode (ACP)",
        AgentProgram(
            ("opencode-acp",),
            ("--version",),
            tested=("1.18.32", "1.18.33"),
            registry="opencode",
            install_hint="Set SHIM_OPENCODE_ACP_BIN to your `opencode`.",
            login="session",
            login_hint="Run `opencode auth login` in a terminal.",
            no_spare="Its handshake makes a session, which would be left empty in OpenCode's list.",
        ),
        ("acp",),
        replace(
            ABILITIES,
            lacks={
                "questions": "OpenCode's ACP server offers no question tool.",
                "subagents": "OpenCode's ACP server does not pass on what a subagent asks: if it asks, the turn waits for ever "
                "(1.18.32).",
            },
            command_sources=SKILLS,
            setup=SetupUse(reads_own=True),
        ),
        AgentRules(ENFORCEMENT, ProjectSettingsUse(("opencode",)), sandbox=OPENCODE_SANDBOX),
        tells_commands=True,
        resume_command="opencode --session {id}",
    ),
    Profile(
        "pi-acp",
        "Pi (ACP)",
        AgentProgram(
            ("pi-acp",),
            tested=("0.0.34",),
            npm=("pi-acp", "@earendil-works/pi-coding-agent"),
            install_hint="Install it with `npm install -g pi-acp @earendil-works/pi-coding-agent`.",
            login="session",
            login_hint="Run `pi` in a terminal and log in with /login, or set the API key of a provider.",
        ),
        abilities=replace(
            ABILITIES,
            capabilities=replace(CAPABILITIES, permissions=False, usage=False, mcp=False),
            modes=(BUILD,),
            lacks={
                "mcp": "It has no MCP client.",
                "todos": "Pi has no tool for a list of tasks.",
                "subagents": "Pi has no subagents.",
                "permissions": "pi-acp asks nothing before a call.",
                "questions": "Pi has no tool for questions; dialogs of its extensions are shown as questions.",
            },
            setup=TAKES_NOTHING,
        ),
        rules=AgentRules(
            Enforcement("files and commands that go through this server", {"*": f"{_UNSEEN}, and this agent asks nothing."}),
            ProjectSettingsUse(("pi",)),
            sandbox=PI_SANDBOX._replace(shown=()),
        ),
        tells_commands=True,
        remarks={
            r"Retrying \(attempt (?P<attempt>\d+)/\d+, waiting (?P<delay>\d+)s\)\.\.\.\s*": "retry",
            r"(Queued message \(position \d+\)\.|Starting queued message\. \(\d+ remaining\)|Retry finished, resuming\.)\s*": "",
            r"(?s)pi v\d+\.\d+\.\d+\n---\n.*": "",  # after the start of a session
        },
    ),
)


# --- cards --------------------------------------------------------------------------------------------------------

# Reads the cards of agents: `cards/NAME.toml`, one for each. To add an agent is to add a card and its recordings.
#
# A card has the fields of `Profile` and of its three values, all in one table. `modes` has a row for each: id = [description,
# native name]. `record` is not of the profile: it says how the recorder and the end-to-end tests lead the agent
# to the scripted model (`shim.dev.record.homes`).

FOLDER = Path(__file__).with_name("cards")
RECORD = "record"


def _value(value: Any) -> Any:
    """A list as a tuple, since profiles do not change."""
    return tuple(arr(value)) if isinstance(value, list) else value


def _fields(table: Any) -> dict[str, Any]:
    return {key: _value(value) for key, value in obj(table).items()}


_TABLES: Mapping[str, Callable[[Any], Any]] = {
    "modes": lambda table: tuple(Mode(name, *words) for name, words in obj(table).items()),
    "login_run": lambda words: LoginRun(tuple(arr(words))),
    "login_signs": lambda table: LoginSigns(**_fields(table)),
    "sandbox": lambda table: SandboxUse(**_fields(table)),
    "project_settings": lambda table: ProjectSettingsUse(**_fields(table)),
}


def read_card(name: str) -> dict[str, Any]:
    """Return the card of an agent. Raises OSError if there is none."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))


def profile_of(name: str, card: Mapping[str, Any]) -> Profile:
    """Return the profile that a card describes. Raises TypeError for a field that no profile has."""
    values = {key: _TABLES.get(key, _value)(value) for key, value in card.items() if key != RECORD}

    def take(type_: type[Any]) -> dict[str, Any]:
        return {field.name: values.pop(field.name) for field in fields(type_) if field.name in values}

    program = AgentProgram(**take(AgentProgram))
    capabilities = replace(CAPABILITIES, **take(Capabilities))
    abilities = replace(ABILITIES, capabilities=capabilities, **take(AgentAbilities))
    return Profile(name, program=program, abilities=abilities, rules=replace(RULES, **take(AgentRules)), **values)


CARDS: Mapping[str, Mapping[str, Any]] = {path.stem: read_card(path.stem) for path in sorted(FOLDER.glob("*.toml"))}
"""Agent -> its card."""
PROFILES: tuple[Profile, ...] = (*WRITTEN, *(profile_of(name, card) for name, card in CARDS.items()))
"""All known agents of the protocol."""
