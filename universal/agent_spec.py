"""What an agent is: its program, its abilities, and how it is held to the permission rules. Data, one value for each agent."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol, TypeAlias

from universal.codec import Catalogue, Codec, Fact, IdFactory, Mode
from universal.lib.jsonvalue import JsonObject
from universal.permissions import OWN_QUESTIONS, Enforcement, Rule
from universal.sandbox import NO_NEEDS, SandboxUse
from universal.setup import TAKES_NOTHING, SetupUse
from universal.slash_commands import NO_COMMANDS, CommandSources
from universal.tools import Row


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the agent's protocol can do, for `/v1/agents`, the matrix of docs/coverage.md and `opencode-shim agents`."""

    deltas: bool = False
    reasoning: bool = False
    permissions: bool = False
    questions: bool = False
    images: bool = False
    files: bool = False
    interrupt: bool = False
    resume: bool = False
    subagents: bool = False
    todos: bool = False
    usage: bool = False
    commands: bool = False
    compact: bool = False
    mcp: bool = False


EVERYTHING = Capabilities(*(True for _ in fields(Capabilities)))
"""A base for specs that list only what an agent lacks."""


@dataclass(frozen=True, slots=True)
class SpareUse:
    """How a process of the agent waits for a session that does not exist yet; see docs/adr/0030-spare-agents.md.

    starts     what runs before anybody has asked, in one sentence for the docs
    files      names that it reads when it starts, in each folder from the root of the repository down; folders with all in them
    own_files  the same of the person: `~/...`, `$VARIABLE/...` or absolute
    values     JSON file of the person that agents write all the time -> keys that count
    takes_git  True if it notes the state of the repository when it starts
    """

    starts: str
    files: tuple[str, ...]
    own_files: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    takes_git: bool = False


class HeldCalls(NamedTuple):
    """An agent none of whose calls runs, in any mode, before the server has answered its question.

    Files change only after the server has read what such an agent says, unless a person's own program runs at a prompt. Its
    settings name that program.

    files      settings that may name one, in each folder from the root of the repository down
    own_files  the same of the person: `~/...`, `$VARIABLE/...` or absolute
    words      a file with one of these words may name one
    """

    files: tuple[str, ...]
    own_files: tuple[str, ...]
    words: tuple[str, ...]


class ProjectSettingsUse(NamedTuple):
    """How an agent uses a project's settings that run programs or allow calls; see docs/trust.md.

    reads       families of files that it reads (`shim.host.trust.project_settings.FILES`)
    leaves_out  True if it can start without them (`LaunchOptions.project_settings`)
    always      keys of entries that it reads even then
    rule_files  files that hold its rules, of projects and of the person, as patterns of `edit`: an agent that changes one changes
                its own bounds, so that a person is asked
    """

    reads: tuple[str, ...] = ()
    leaves_out: bool = False
    always: tuple[str, ...] = ()
    rule_files: tuple[str, ...] = ()


ALL_FAMILIES = ("claude", "opencode", "codex", "pi", "gemini", "qwen", "copilot", "amp", "kilo", "fast-agent")
"""All families, for an unknown program, which may read any of them."""
READS_ALL = ProjectSettingsUse(ALL_FAMILIES)


class LoginCheck(NamedTuple):
    """A run of the agent's program with `args`, and `lines` on its stdin, that shows whether it is logged in.

    The first output that matches one of the regular expressions `yes` and `no` is the answer.
    """

    args: tuple[str, ...]
    yes: str
    no: str
    lines: tuple[bytes, ...] = ()


class LoginSigns(NamedTuple):
    """Signs that an agent has a login, of which one is enough. They are looked at without starting it.

    variables  of the environment
    files      `~/...` in the person's home, or `$VARIABLE/...`; only whether they exist counts
    """

    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class AgentFolder(NamedTuple):
    """An agent's own folder in the person's home, and the environment variable that moves it."""

    path: str
    variable: str


class Conversation(NamedTuple):
    """A stored conversation. `created`: RFC3339; `title`: its name, or its first prompt's beginning; `updated_ms`: last write."""

    id: str
    directory: str
    title: str
    created: str
    updated_ms: int = 0


class ConversationPrompt(NamedTuple):
    """A prompt of such a conversation."""

    text: str


ConversationEvent: TypeAlias = tuple[str, ConversationPrompt | Fact]
"""(time as RFC3339, what was said)."""


class ConversationReader(Protocol):
    """Reads a conversation from lines of a file's beginning and end, or a row of the program's list; what was said from all."""

    def read(self, rows: Sequence[JsonObject], /) -> Conversation | None: ...
    def events(self, rows: Sequence[JsonObject], ids: IdFactory, /) -> Iterator[ConversationEvent]: ...


class Inquiry(NamedTuple):
    """A run of an agent's program that tells its conversations, or all of one: `args`, and `lines` on its stdin.

    With `lines`, it is over with the answer of id 1, else with the program. `loads`: it loads the project's settings. `variables`
    are added to its environment.
    """

    args: tuple[str, ...]
    lines: tuple[bytes, ...] = ()
    loads: bool = False
    variables: Mapping[str, str] = MappingProxyType({})


class ConversationProgram(ConversationReader, Protocol):
    """Reads conversations that an agent's own program tells.

    ask     a run of the program for a directory, and an id; "" for the list
    parse   the rows of each conversation in what it has printed
    removal a run that takes one out of its list
    """

    def ask(self, directory: str, id_: str, /) -> Inquiry: ...
    def parse(self, text: str, id_: str, /) -> Sequence[Sequence[JsonObject]]: ...
    def removal(self, id_: str, /) -> Inquiry: ...


class ConversationStore(NamedTuple):
    """Where an agent's own program stores conversations, and how they are read.

    reader   returns the module that reads them, when needed; `command` continues one in the agent's own program, with {id}
    files    glob with {id} below the agent's own folder (`AgentRules.own_folder`): files of JSON lines
    program  returns what asks the program: without files for all, with them for a removal
    foreign_rows  (new lines of a file, rows that it has returned, `Codec.anchor`) -> (rows of turns of another program, whether
             the last one is over). None: it cannot tell them from its own
    at_rest  it can tell them only while no turn of its own runs
    """

    reader: Callable[[], ConversationReader]
    command: str
    files: str = ""
    program: Callable[[], ConversationProgram] | None = None
    foreign_rows: Callable[[Sequence[bytes], Sequence[JsonObject], str], tuple[Sequence[JsonObject], bool]] | None = None
    at_rest: bool = False


@dataclass(frozen=True, slots=True)
class LoginRun:
    """The arguments with which a program logs in and shows a link. `takes_code`: it waits for a code that the page shows."""

    args: tuple[str, ...]
    takes_code: bool = False


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """How an agent's program is found, installed, logged in and started."""

    binaries: tuple[str, ...]
    """Program names to look for on PATH, in order. Empty for an agent that runs inside of the server."""
    version_args: tuple[str, ...] = ()
    env_override: str = ""
    """Environment variable that names the binary, e.g. SHIM_CLAUDE_BIN."""
    shared_binaries: tuple[str, ...] = ()
    """Names, after `binaries`, of programs that another agent has too. One is taken only if it tells a version of `major`."""
    major: int | None = None
    """The only major version that it takes of its program. None: every version."""
    major_hint: str = ""
    """What to do with a program of another major version, in one sentence."""
    tested: tuple[str, ...] = ()
    """Tested versions, ascending. Empty if unknown."""
    unrecorded: str = ""
    """Why `opencode-shim record` cannot record it, for one that it could be expected to."""
    transport: Literal["stdio", "http"] = "stdio"
    """How its lines travel: by stdin and stdout, or by HTTP requests and an event stream (`shim.processes.http_agent`)."""
    npm: tuple[str, ...] = ()
    """Packages that npm installs for it; empty: npm does not have it."""
    registry: str = ""
    """Its name in the registry of the Agent Client Protocol, where that is another one."""
    install_hint: str = ""
    login: LoginCheck | Literal["session", "models"] | None = None
    """How to find out whether it is logged in: a `LoginCheck`, a new session, or own models. None: only a prompt can tell."""
    login_hint: str = ""
    """One sentence that says how to log in."""
    login_run: LoginRun | None = None
    """The login that a client can begin. None: only its own program or a key."""
    login_signs: LoginSigns | None = None
    """How a login can be seen without starting it; None: an agent that tells its models counts as logged in."""
    key_variables: tuple[str, ...] = ()
    """Variables in which it looks for an API key; a client may give a key for it (`PUT /auth/{name}`)."""
    spare: SpareUse | None = None
    """How it waits for a session. None: it is started for a prompt only."""
    no_spare: str = "Nobody has looked at what it does when it starts."
    """Why it is started for a prompt only, in one sentence."""


@dataclass(frozen=True, slots=True)
class AgentAbilities:
    """What an agent can do, and what it offers to a person."""

    capabilities: Capabilities
    modes: tuple[Mode, ...]
    catalogue: Catalogue = field(default_factory=Catalogue)
    """The offer of an agent that cannot be asked. May be empty."""
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Feature (`tests/coverage/features.py`) that it or its protocol does not have -> one sentence why."""
    tools: Mapping[str, Row] = field(default_factory=dict[str, Row])
    """OpenCode's names of its tools. For agents from packages; those of this repository are in `universal.tools`."""
    command_sources: CommandSources = NO_COMMANDS
    """Where its commands are files, so that those of a project are offered before the first session there. Skills are some."""
    internal_commands: frozenset[str] = frozenset()
    """Slash commands about its own program. Clients do not list them unless all are asked for; they may be sent."""
    withheld_commands: Mapping[str, str] = field(default_factory=dict[str, str])
    """Slash commands that are not offered -> why, and what to do instead, in one sentence or two."""
    setup: SetupUse = TAKES_NOTHING
    """What it takes of a person's OpenCode configuration."""
    no_steering: str = "It takes one prompt at a time."
    """Why a prompt during a turn waits for its end, in one sentence. Empty: the agent takes it in at its next step."""
    conversations: ConversationStore | None = None
    """How the conversations that its own program has stored are read. None: they are not."""
    structured: Literal["", "any", "strict"] = ""
    """Which schemas of an answer it takes; "strict": those in which each object names all its properties and requires them."""
    rewinds: bool = False
    """True if it can continue after an earlier answer (`LaunchOptions.resume_at`). Its DONE then has `anchor` in metadata."""

    @property
    def all_lacks(self) -> Mapping[str, str]:
        """`lacks`, with steering if it has none."""
        return {**self.lacks, **({"steer": self.no_steering} if self.no_steering else {})}

    @property
    def skill_folders(self) -> frozenset[str]:
        """The folders in which it finds skills by itself, as in `CommandFolder.path`."""
        return frozenset(folder.path for folder in self.command_sources.folders if folder.form == "skills")


@dataclass(frozen=True, slots=True)
class AgentRules:
    """How an agent is held to the permission rules, and what it may touch."""

    enforcement: Enforcement = OWN_QUESTIONS
    """Who enforces permission rules; see docs/permissions.md."""
    project_settings: ProjectSettingsUse = READS_ALL
    """Which settings of a project the agent reads, and whether it can leave them out."""
    defaults: tuple[Rule, ...] = ()
    """Rules added to `DEFAULT_RULES`: own folders outside of the project, plan files ... `~/` is the person's home."""
    own_folder: AgentFolder | None = None
    """The folder in `defaults` that a variable can move."""
    sandbox: SandboxUse = NO_NEEDS
    """What it needs in a sandbox, and which rules it is held to there."""
    held_calls: HeldCalls | None = None
    """Whether its calls all wait for the server: it gets prompts beside the snapshot before them (docs/adr/0032), else after."""

    @property
    def kernel_keys(self) -> tuple[str, ...]:
        """The permission keys whose denies a sandbox holds with this agent, and its protocol does not, or not all of them."""
        return tuple(key for key in self.sandbox.shown if self.enforcement.gap(key) or self.enforcement.partial)

    @property
    def kernel_denies(self) -> tuple[str, ...]:
        """The keys whose denies a sandbox holds by these settings: of `auto` those that need it."""
        return self.sandbox.shown if self.sandbox.level != "auto" else self.kernel_keys

    def defaults_in(self, environment: Mapping[str, str]) -> tuple[Rule, ...]:
        """Return `defaults` with the agent's own folder moved to where this environment puts it.

        If that is no absolute path, or holds wildcards, the folder's rules are left out, so that a person is asked.
        """
        folder = self.own_folder
        place = environment.get(folder.variable) if folder is not None else None
        if folder is None or not place:
            return self.defaults
        inside = folder.path + "/"
        is_place = place.startswith("/") and not set("*?") & set(place)
        moved = posixpath.normpath(place) if is_place else ""
        return tuple(
            replace(rule, pattern=f"{moved}/{rule.pattern.removeprefix(inside)}") if rule.pattern.startswith(inside) else rule
            for rule in self.defaults
            if is_place or not rule.pattern.startswith(inside)
        )


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """The facts about one agent: its program, its abilities, and how it is held to the permission rules."""

    name: str
    title: str
    make: Callable[[IdFactory], Codec]
    program: AgentProgram
    abilities: AgentAbilities
    rules: AgentRules = AgentRules()
    is_fallback: bool = False
    """Stands behind all others, those of packages and of the settings too: that it is there does not mean it is wanted."""


def modes_of(spec: AgentSpec, catalogue: Catalogue) -> tuple[Mode, ...]:
    """Return the modes that a person can choose: those that the agent reports, else those of its spec."""
    return catalogue.modes or spec.abilities.modes
