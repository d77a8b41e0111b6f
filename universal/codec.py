"""What a codec is: native lines in, facts and signals out; commands in, lines out. No IO, no clock.

A codec belongs to one agent process of one session. It is fed (`receive`, `eof`) and commanded (`send`),
and answers with a list of outputs, in order:

    Fact     an event body; the session stamps it (id, sequence, time) and writes it to the journal
    Signal   what the turn machine must know (see `universal.turn`); never journaled by itself
    Action   what the runtime must do with the process

A codec never decides that a turn has ended: it signals what the agent said, `universal.turn` decides.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from universal.events import EventData, EventType
from universal.host import HostAnswer, HostCall
from universal.items import Json
from universal.permissions import Rule, denies_whole, matches
from universal.turn import Input

IdFactory: TypeAlias = Callable[[Literal["item", "permission", "question"]], str]
"""Makes ids. Injected, so that codecs stay pure: tests count, the server makes time-ordered ones."""


# --- out ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fact:
    """An event body.

    child      key of a subagent's session (the call id that made it), None for the session itself.
               `session.started` with a child key opens it; its metadata has call_id, title, agent, prompt.
    raw        the native payload it came from (also for synthetic facts, when there is one).
    synthetic  true when the codec invented it (source = daemon).
    """

    type: EventType
    data: EventData
    raw: Json = None
    synthetic: bool = False
    child: str | None = None
    native_session_id: str | None = None

    def of(self, native_session_id: str) -> Fact:
        """The same with the agent's own id of the conversation. By hand, since every piece of text comes by here."""
        return Fact(self.type, self.data, self.raw, self.synthetic, self.child, native_session_id)


@dataclass(frozen=True, slots=True)
class Signal:
    """An input for the turn machine of the session (or of a child's).

    DONE      the agent has answered the prompt that was handed to it; `metadata` may hold usage, cost
    FAILED    the same, with `error` {message, code?, details?}; `aborted` true if our interrupt did it
    ACTIVITY  the agent began to work without being asked (a background task woke it)
    OPENED / CLOSED  `key`: work that holds the turn open after DONE (background agents)
    """

    input: Input
    key: str = ""
    error: dict[str, Json] | None = None
    aborted: bool = False
    metadata: dict[str, Json] | None = None
    child: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCheck:
    """A tool call that waits for our answer, although its agent would not ask a person about it.

    `request` is a `permission.requested` fact. The session decides by the permission rules. If none concerns the call it calls
    `CheckingCodec.proceed`, and nothing is recorded. If one denies it, or a person is asked, the session records `request` and
    sends a `PermissionReply`.
    """

    request: Fact


@dataclass(frozen=True, slots=True)
class WriteLine:
    """Write these bytes and a newline to the agent."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Stop:
    """The process is of no more use (corrupt stream, refused login ...): stop it; the next prompt starts anew.

    `again`: the prompt that was just sent was not given to it; it is for the next process, to be started at once.
    """

    why: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class InterruptProcess:
    """Send SIGINT to the process: for agents that have no message for an interrupt."""


Action: TypeAlias = WriteLine | Stop | InterruptProcess | HostCall
Output: TypeAlias = Fact | ToolCheck | Signal | Action


def of_session(output: Output, native_session_id: str) -> Output:
    """An output with the agent's own id of the conversation, where it carries one."""
    match output:
        case Fact():
            return output.of(native_session_id)
        case ToolCheck(request=request):
            return ToolCheck(request.of(native_session_id))
        case _:
            return output


# --- in ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file or image of a prompt: `data` (bytes, base64 text) or `path` of a local file, or both."""

    mime: str
    path: str | None = None
    filename: str | None = None
    base64: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt for the agent. `key` is our id of it (the user message's item id).

    `compact`: not a prompt, but the wish that the agent compacts its conversation. `text` is then COMPACT, for agents
    whose own command does it. Only agents that can are given it (`Capabilities.compact`, or a command of that name).
    """

    key: str
    text: str
    attachments: Sequence[Attachment] = ()
    model: str | None = None
    variant: str | None = None
    mode: str | None = None
    system: str | None = None
    compact: bool = False
    rules: tuple[Rule, ...] = ()
    """The written permission rules, for agents that must be made to ask. The last match decides."""
    session_rules: tuple[Rule, ...] = ()
    """Those of them that the session itself has, for agents that read OpenCode's configuration themselves."""


COMPACT = "/compact"
"""The command by which agents compact their conversation, where it is a command."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop what runs now."""


@dataclass(frozen=True, slots=True)
class PermissionReply:
    """An answer to `permission.requested` or `ToolCheck`; `message` goes with a rejection."""

    permission_id: str
    decision: Literal["accept", "accept_for_session", "reject"]
    message: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionReply:
    """Answers to `question.requested`, a list of labels per question; None rejects, and `message` says why."""

    question_id: str
    answers: Sequence[Sequence[str]] | None
    message: str | None = None


Command: TypeAlias = Prompt | Interrupt | PermissionReply | QuestionReply


# --- what an agent is ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mode:
    """A way of working that a person can choose: an OpenCode agent (`build`, `plan` ...)."""

    id: str
    description: str
    native: str


@dataclass(frozen=True, slots=True)
class Model:
    """A model of an agent. `variants` are effort levels; limits in tokens, None when unknown."""

    id: str
    name: str
    description: str = ""
    variants: tuple[str, ...] = ()
    reasoning: bool = False
    images: bool = True
    context: int | None = None
    output: int | None = None


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A command of the agent that a prompt may start with."""

    name: str
    description: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What an agent offers, as it says itself."""

    models: tuple[Model, ...] = ()
    commands: tuple[SlashCommand, ...] = ()
    default_model: str | None = None
    modes: tuple[Mode, ...] = ()
    """Empty: those of its row of the registry."""
    version: str | None = None
    """Of the agent, where it tells it with the rest; for those whose program has no `--version`."""
    logged_in: bool | None = None
    """Where it tells that with the rest."""


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
"""For rows that say what an agent lacks."""


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What a launch depends on. `native_session_id` with `resume` continues a conversation.

    `resume_at` (the `anchor` of an answered prompt, see `AgentSpec.rewinds`): goes on there, as a conversation of its own.
    """

    binary: str
    directory: str
    native_session_id: str | None = None
    resume: bool = False
    resume_at: str | None = None
    model: str | None = None
    variant: str | None = None
    mode: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of its environment, those that are the session's own."""
    is_root: bool = False
    rules: tuple[Rule, ...] = ()
    """As of `Prompt`."""
    project_settings: bool = True
    """False: settings of the project that run programs or allow calls are left out (see `ProjectSettingsUse`)."""
    version: str | None = None
    """Of the program; None if it is not known."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """Settings for one process: a private file, made from the person's own and removed when the process has ended.

    option   the argument before the file's path; both are put behind argv
    sources  files of the person, absolute; the first that exists is read (JSON with comments), none counts as empty
    change   the person's settings -> those for the process
    """

    option: str
    sources: tuple[str, ...]
    change: Callable[[Mapping[str, Json]], Mapping[str, Json]]


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """How to start the process: argv (absolute binary first), changes of the environment (None removes), cwd."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    settings: SettingsFile | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """How the process ended: `code` or `signal` (number); `stderr` is the end of what it wrote there."""

    code: int | None
    signal: int | None = None
    stderr: str = ""


class Codec(Protocol):
    """The codec of one agent. One instance per process."""

    name: str
    """Registry name, and the provider id on the OpenCode face."""

    @property
    def catalogue(self) -> Catalogue | None:
        """What the agent offers, as soon as it has told it (after the handshake, for most)."""
        ...

    @property
    def native_session_id(self) -> str | None:
        """The agent's own id of the conversation, as soon as it is known."""
        ...

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """argv and environment; no lookup, no spawn."""
        ...

    def start(self) -> list[Output]:
        """The handshake, right after the spawn."""
        ...

    def send(self, command: Command) -> list[Output]:
        """A command of ours, as lines for the agent. Unknown ids (already resolved) give []."""
        ...

    def receive(self, line: bytes) -> list[Output]:
        """One line of the agent (without its newline). Never raises for bad input: `agent.unparsed`."""
        ...

    def eof(self, exit_: Exit) -> list[Output]:
        """The process is gone: what was open is reported as facts; the session adds EXIT itself."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Counts by native kind: `unparsed:KIND`, `ignored:KIND`."""
        ...


@runtime_checkable
class HostedCodec(Protocol):
    """What a codec that puts out `HostCall`s has besides."""

    def hosted(self, answer: HostAnswer) -> list[Output]:
        """What came of a call of its own. Unknown ids give []."""
        ...


@runtime_checkable
class BackgroundingCodec(Protocol):
    """What a codec has besides whose agent can be told to go on without waiting for its commands and subagents."""

    def background(self) -> list[Output]:
        """Move what the turn waits for to the background; nothing that can be moved is fine."""
        ...


@runtime_checkable
class CheckingCodec(Protocol):
    """A codec that emits `ToolCheck`."""

    def proceed(self, permission_id: str) -> list[Output]:
        """Let a checked call go on by the agent's own mode: no rule concerns it. Records nothing. Unknown ids give []."""
        ...


@runtime_checkable
class ModedCodec(Protocol):
    """A codec that knows the mode in force, which may change within a turn (an approved plan)."""

    @property
    def mode(self) -> str:
        """Id of the mode (`Mode.id`): "build", "plan", "accept-edits", "bypass" ..."""
        ...


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Who enforces the permission rules of a person with an agent.

    by       one phrase for tables: "a hook before every call"
    missing  permission key -> one sentence why a rule for it cannot be enforced; "*" stands for all keys
    absent   permission keys for which the agent has no tool
    partial  the same for rules that deny only some calls of a key, where a denial of the whole key holds
    no_asks  one sentence on what happens instead, for an agent that refuses what a rule asks about
    """

    by: str
    missing: Mapping[str, str] = field(default_factory=dict[str, str])
    absent: tuple[str, ...] = ()
    partial: str = ""
    no_asks: str = ""

    def gap(self, key: str) -> str | None:
        """Why a rule for this key cannot be enforced; None if it can, or if the agent has no tool for it."""
        return None if key in self.absent else self.missing.get(key) or self.missing.get("*")

    def gaps(self, rules: Iterable[Rule]) -> dict[str, str]:
        """Keys for which these rules deny or ask, and that cannot be enforced -> why."""
        all_rules = tuple(rules)
        found = {
            key: " ".join(self._reasons(key, [rule for rule in all_rules if _concerns(rule, key)])) for key in PERMISSION_KEYS
        }
        return {key: why for key, why in found.items() if why}

    def _reasons(self, key: str, rules: Sequence[Rule]) -> list[str]:
        """Why these rules, all of one key, are not enforced as they are written."""
        if key in self.absent or all(rule.action == "allow" for rule in rules):
            return []
        if why := self.gap(key):
            return [why]
        is_part_denied = any(rule.action == "deny" for rule in rules) and (key == "mcp" or not denies_whole(rules))
        is_asked = any(rule.action == "ask" for rule in rules)
        return [why for why, applies in ((self.partial, is_part_denied), (self.no_asks, is_asked)) if why and applies]


@dataclass(frozen=True, slots=True)
class ProjectSettingsUse:
    """What an agent does with the settings of a project that run programs or allow calls; see docs/trust.md.

    reads       families of files that it reads (`shim.host.project_settings.FILES`)
    leaves_out  it can be started without them (`LaunchOptions.project_settings`)
    always      keys of entries that it reads even then
    """

    reads: tuple[str, ...] = ()
    leaves_out: bool = False
    always: tuple[str, ...] = ()


ALL_FAMILIES = ("claude", "opencode", "codex", "pi", "gemini", "qwen", "copilot", "amp")
"""For a program that is not known: it may read any of them."""

PERMISSION_KEYS = (
    "edit", "bash", "read", "external_directory", "webfetch", "websearch", "task", "doom_loop", "skill", "todowrite", "mcp",
)  # fmt: skip
"""The keys of `Enforcement` and of docs/permissions.md. "mcp" stands for the tools of MCP servers, named SERVER_TOOL in rules."""


def _concerns(rule: Rule, key: str) -> bool:
    """Whether a rule is about a key. A tool of an MCP server is named SERVER_TOOL, which no key and no tool of OpenCode is."""
    if key != "mcp":
        return matches(rule.permission, key)
    is_key = rule.permission in (*PERMISSION_KEYS, "plan_enter", "plan_exit")
    return rule.permission == "*" or ("_" in rule.permission and not is_key)


@dataclass(frozen=True, slots=True)
class LoginCheck:
    """A run of the agent's program that tells, without a prompt, whether it is logged in.

    In: `args` of the program, `lines` for its stdin. `yes` and `no` are regular expressions; what it writes first that one of
    them finds is the answer.
    """

    args: tuple[str, ...]
    yes: str
    no: str
    lines: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnFolder:
    """An agent's own folder in the person's home, and the variable of the environment that moves it."""

    path: str
    variable: str


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """A row of the registry."""

    name: str
    title: str
    make: Callable[[IdFactory], Codec]
    binaries: tuple[str, ...]
    """Names to look for on PATH, in order; empty: the agent runs inside of the server."""
    env_override: str
    """Environment variable that names the binary, e.g. SHIM_CLAUDE_BIN."""
    version_args: tuple[str, ...]
    capabilities: Capabilities
    modes: tuple[Mode, ...]
    default_catalogue: Catalogue
    """What is offered when the agent cannot be asked; may be empty."""
    install_hint: str
    transport: Literal["stdio", "http"] = "stdio"
    """How its lines travel: its stdin and stdout, or HTTP requests and an event stream (`shim.runtime.http_agent`)."""
    tested: tuple[str, ...] = ()
    """Versions that this was tested with, ascending; empty: not told."""
    login: LoginCheck | Literal["session", "models"] | None = None
    """How it tells whether it is logged in: a check of its own; that a session can be made (`session`); that it offers models
    of its own (`models`); None when it tells nothing without a prompt."""
    login_hint: str = ""
    """What to do when it is not logged in: one sentence."""
    enforcement: Enforcement = Enforcement(
        "the agent's own questions", {"*": "Calls that the agent does not ask about are not seen."}
    )
    """Who enforces permission rules; see docs/permissions.md."""
    default_rules: tuple[Rule, ...] = ()
    """Added to `DEFAULT_RULES`: the agent's own folders outside of the project, plan files ... `~/` is the person's home."""
    own_folder: OwnFolder | None = None
    """The folder that `default_rules` are written for, where a variable can move it."""
    withheld_commands: Mapping[str, str] = field(default_factory=dict[str, str])
    """Slash commands of it that are not offered -> why, and what to do instead; one sentence or two."""
    project_settings: ProjectSettingsUse = ProjectSettingsUse(ALL_FAMILIES)
    """Which settings of a project it reads, and whether it can leave them out."""
    rewinds: bool = False
    """It can go on after an earlier answer (`LaunchOptions.resume_at`): its DONE has `anchor`, an id, in its metadata."""

    def rules_in(self, environment: Mapping[str, str]) -> tuple[Rule, ...]:
        """`default_rules` with the agent's own folder where this environment puts it.

        Without those of the folder if it is no absolute path or would be a pattern: a person is asked then.
        """
        folder = self.own_folder
        place = environment.get(folder.variable) if folder is not None else None
        if folder is None or not place:
            return self.default_rules
        inside = folder.path + "/"
        is_place = place.startswith("/") and not set("*?") & set(place)
        moved = posixpath.normpath(place) if is_place else ""
        return tuple(
            replace(rule, pattern=f"{moved}/{rule.pattern.removeprefix(inside)}") if rule.pattern.startswith(inside) else rule
            for rule in self.default_rules
            if is_place or not rule.pattern.startswith(inside)
        )


def modes_of(spec: AgentSpec, catalogue: Catalogue) -> tuple[Mode, ...]:
    """The modes that a person can choose: those that the agent tells, else those that are known of it."""
    return catalogue.modes or spec.modes
