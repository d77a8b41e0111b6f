"""Defines the interface of codecs: native lines in, facts and signals out; commands in, lines out. No IO, no clock.

A codec serves one agent process of one session. `receive`, `eof` and `send` each return a list of outputs, in order:

    Fact     an event body; the session stamps it (id, sequence, time) and writes it to the journal
    Signal   an input for the turn machine (see `universal.turn`); never journaled by itself
    Action   a task of the runtime, such as a line to write or a process to stop

A codec never decides that a turn has ended. It signals what the agent reported, and `universal.turn` decides.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, NamedTuple, Protocol, TypeAlias

from universal.events import EventData, EventType
from universal.host import HostAnswer, HostCall
from universal.items import Json
from universal.lib.jsonvalue import JsonObject
from universal.permissions import OWN_QUESTIONS, Decision, Enforcement, Rule
from universal.sandbox import NO_NEEDS, Bounds, SandboxUse
from universal.setup import NO_SETUP, TAKES_NOTHING, DirectorySetup, SetupUse
from universal.slash_commands import NO_COMMANDS, CommandSources, SlashCommand
from universal.tools.row import Row
from universal.turn import Input

IdFactory: TypeAlias = Callable[[Literal["item", "permission", "question"]], str]
"""Creates ids. It is injected, so that codecs stay pure: tests count, and the server creates time-ordered ids."""


# --- out ---------------------------------------------------------------------------------------------


class Fact(NamedTuple):
    """An event body.

    child      key of a subagent's session (the call id that made it), None for the session itself.
               `session.started` with a child key opens it; its metadata has call_id, title, agent, prompt.
    raw        the native payload of the fact (also for synthetic facts, if there is one).
    synthetic  true when the codec invented it (source = daemon).
    """

    type: EventType
    data: EventData
    raw: Json = None
    synthetic: bool = False
    child: str | None = None
    native_session_id: str | None = None

    def of(self, native_session_id: str) -> Fact:
        """Return the fact with the agent's own id of the conversation."""
        return self._replace(native_session_id=native_session_id)


@dataclass(frozen=True, slots=True)
class Signal:
    """An input for the turn machine of the session (or of a child's).

    DONE      the agent has answered the dispatched prompt; `metadata` may hold usage, cost
    FAILED    the agent failed, with `error` {message, code?, details?}; `aborted` is true if our interrupt caused it
    ACTIVITY  the agent began to work without a prompt (a background task woke it)
    TAKEN     the agent has taken in the steered prompt `key` (`Codec.steer`); the answer goes on, or begins, with it
    RETURNED  the agent does not have the steered prompt `key` any more, and has not taken it in; of several the last first
    OPENED / CLOSED  work `key` keeps the turn open after DONE (background agents)
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

    `request` is a `permission.requested` fact. The session applies the permission rules. If no rule concerns the call, it calls
    `Codec.proceed` and records nothing. If a rule denies the call or a person must decide, the session records `request`
    and sends a `PermissionReply`.
    """

    request: Fact


class FilesChanged(NamedTuple):
    """A call has changed files (paths), and its agent waits until they are formatted. `Codec.proceed(key)` lets it go on."""

    key: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteLine:
    """Write these bytes and a newline to the agent."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the process, since it is unusable (corrupt stream, refused login ...). The next prompt starts a new one.

    `again` means that the process did not get the last prompt: start the next process at once and send it there.
    `error` {message, code, details?} fails the prompt. The end of the agent's stderr is added to its message.
    """

    why: str
    again: bool = False
    error: dict[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call `Codec.on_timer` with this key after a while, unless the timer is set again before. None cancels it.

    The timers of a process end with it.
    """

    key: str
    after_s: float | None


@dataclass(frozen=True, slots=True)
class InterruptProcess:
    """Send SIGINT to the process: for agents that have no message for an interrupt."""


Action: TypeAlias = WriteLine | Stop | SetTimer | InterruptProcess | HostCall
Output: TypeAlias = Fact | ToolCheck | FilesChanged | Signal | Action


def of_session(output: Output, native_session_id: str) -> Output:
    """Return an output with the agent's own id of the conversation, if its type carries one."""
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
    """A file or image of a prompt: the `path` of a local file, and its bytes as `base64` or its `text`."""

    mime: str
    path: str | None = None
    filename: str | None = None
    base64: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt for the agent. `key` is our id of it (the user message's item id).

    `compact` asks the agent to compact its conversation. `text` is then COMPACT, for agents that have a command for it. Only
    agents that can compact get it (`Capabilities.compact`, or a command of that name).
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
    """The written permission rules, for agents that ask only if told to. The last match decides."""
    session_rules: tuple[Rule, ...] = ()
    """The session's own part of `rules`, for agents that read OpenCode's configuration themselves."""
    setup: DirectorySetup = NO_SETUP
    """The person's set-up, which may differ from that of the launch."""
    names: bool = False
    """The session is called by this prompt's first words: the agent is to make a better title, if it can (status `title`)."""
    schema: JsonObject | None = None
    """The JSON schema of the answer, for agents that take one (`AgentSpec.structured`)."""


COMPACT = "/compact"
"""The command with which some agents compact their conversation."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop the current work of the agent."""


@dataclass(frozen=True, slots=True)
class PermissionReply:
    """An answer to `permission.requested` or `ToolCheck`; `message` goes with a rejection.

    `stops`: the agent is to end its turn at this rejection, like at an interrupt.
    """

    permission_id: str
    decision: Decision
    message: str | None = None
    stops: bool = False


@dataclass(frozen=True, slots=True)
class QuestionReply:
    """Answers to `question.requested`, a list of labels per question; None rejects, and `message` says why.

    `stops`: as in `PermissionReply`.
    """

    question_id: str
    answers: Sequence[Sequence[str]] | None
    message: str | None = None
    stops: bool = False


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
    """A model. `variants`: effort levels; limits in tokens; `price`: $ a million of input, output, cache read, cache write."""

    id: str
    name: str
    description: str = ""
    variants: tuple[str, ...] = ()
    reasoning: bool = False
    images: bool = True
    context: int | None = None
    output: int | None = None
    price: tuple[float, float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What an agent reports that it offers."""

    models: tuple[Model, ...] = ()
    commands: tuple[SlashCommand, ...] = ()
    default_model: str | None = None
    modes: tuple[Mode, ...] = ()
    """If empty, the modes of the agent's spec apply."""
    version: str | None = None
    """Version of an agent that reports it here, because its program has no `--version`."""
    logged_in: bool | None = None
    """Whether the agent is logged in, or None if it does not report that here."""


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
class LaunchOptions:
    """The parameters of a launch. `native_session_id` with `resume` continues a conversation."""

    binary: str
    directory: str
    native_session_id: str | None = None
    resume: bool = False
    resume_at: str | None = None
    """The `anchor` of an answered prompt (`AgentSpec.rewinds`), to continue after that answer in a new conversation."""
    model: str | None = None
    variant: str | None = None
    mode: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """The variables in `environment` that belong to the session."""
    is_root: bool = False
    rules: tuple[Rule, ...] = ()
    """The same rules as in `Prompt`."""
    project_settings: bool = True
    """False leaves out the project's settings that run programs or allow calls (see `ProjectSettingsUse`)."""
    version: str | None = None  # of the program, if it is known
    setup: DirectorySetup = NO_SETUP
    """The person's set-up; see `universal.setup`."""
    bounds: Bounds | None = None
    """What its sandbox holds, in which it reads files and runs commands itself and not by this server. None: it has none."""
    schema: JsonObject | None = None
    """The same as in `Prompt`."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """Settings for one process: a private file, derived from the person's own and removed when the process has ended.

    option   the argument before the file's path; both are appended to argv
    sources  absolute paths of the person's files; the first that exists is read (JSON with comments), none counts as empty
    change   a function from the person's settings to those of the process
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
    descriptors: tuple[int, ...] = ()
    """Open files that the process inherits."""
    events: str = "/event"
    """Path of the event stream, for an agent that is an HTTP server."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How the process ended: `code` or `signal` (number); `stderr` is the end of what it wrote there."""

    code: int | None
    signal: int | None = None
    stderr: str = ""


class Codec(Protocol):
    """The codec of one agent. One instance per process. What has a body here is for agents that can do more than answer."""

    name: str
    """Registry name, which is also the provider id on the OpenCode faces."""
    catalogue: Catalogue | None
    """The agent's offer, or None until it has reported it (for most after the handshake)."""
    native_session_id: str | None
    """The agent's own id of the conversation, as soon as it is known."""

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """Return argv and environment. It looks up and starts nothing."""
        ...

    def start(self) -> list[Output]:
        """Return the handshake. Called right after the spawn."""
        ...

    def send(self, command: Command) -> list[Output]:
        """Translate a command into lines for the agent. Unknown (already resolved) ids give []."""
        ...

    def receive(self, line: bytes) -> list[Output]:
        """Translate one line of the agent, without its newline. Bad input never raises but gives `agent.unparsed`."""
        ...

    def eof(self, exit_: Exit) -> list[Output]:
        """Close everything that was open, after the process is gone. The session itself adds EXIT."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Return counts by native kind: `unparsed:KIND`, `ignored:KIND`."""
        ...

    @property
    def mode(self) -> str:
        """Id of the mode in force (`Mode.id`), which may change within a turn (an approved plan). "" if it is not told."""
        return ""

    @property
    def has_conversation(self) -> bool:
        """False until the agent has shown that it has the conversation that it resumes. An exit then begins a new one."""
        return True

    def on_host_answer(self, answer: HostAnswer) -> list[Output]:
        """Translate the answer to one of its host calls (`HostCall`). Unknown ids give []."""
        return []

    def on_timer(self, key: str) -> list[Output]:
        """Handle a timer that has run out (`SetTimer`). It may be late: lines that were read before it are handled already."""
        return []

    def proceed(self, permission_id: str) -> list[Output]:
        """Let the agent's own mode decide a call (`ToolCheck`) that no rule concerns, or go on (`FilesChanged`). Records nothing.

        Unknown ids give [].
        """
        return []

    def background(self) -> list[Output] | None:
        """Move the commands and subagents that the turn waits for to the background. None if the agent cannot do that."""
        return None

    def live_work(self) -> Sequence[str]:
        """Return a line for a person for each command or subagent at work in the background, which ends with the process."""
        return ()

    # Agents that take in prompts while they work give one signal TAKEN or RETURNED for each. What an interrupt finds not taken
    # in, the agent must not take in any more; it needs no signal if the work ends.

    @property
    def may_steer(self) -> bool:
        """Whether the agent works on a prompt and can be given another one now."""
        return False

    def steer(self, prompt: Prompt) -> list[Output]:
        """Give the agent a prompt for its next step. Its agent, model, effort and mode are those of the running answer."""
        return []

    def recall(self, key: str) -> list[Output]:
        """Ask the agent to give back a steered prompt. Empty if it cannot, or has not got it."""
        return []

    def change_setup(self, setup: DirectorySetup) -> list[Output] | None:
        """Give a running agent what has changed of its set-up. None if it takes that with the next prompt alone."""
        return None

    # A process may be started before there is a session for it (`AgentSpec.spare`), in the session's directory and environment,
    # with the agent's default model, effort and mode.

    def prepare(self) -> list[Output]:
        """Make the agent load what its first prompt needs, once. It asks no model, and begins nothing that stays."""
        return []

    def adopt(self, options: LaunchOptions) -> bool:
        """Take over the options of a new session. False if the process cannot serve it, and then nothing has changed."""
        return False


NO_SPARE = "Nobody has looked at what it does when it starts."
"""Why an agent is started for a prompt only, unless its spec says more."""


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


@dataclass(frozen=True, slots=True)
class HeldCalls:
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


@dataclass(frozen=True, slots=True)
class ProjectSettingsUse:
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


ALL_FAMILIES = ("claude", "opencode", "codex", "pi", "gemini", "qwen", "copilot", "amp")
"""All families, for an unknown program, which may read any of them."""


@dataclass(frozen=True, slots=True)
class LoginCheck:
    """A run of the agent's program with `args`, and `lines` on its stdin, that shows whether it is logged in.

    The first output that matches one of the regular expressions `yes` and `no` is the answer.
    """

    args: tuple[str, ...]
    yes: str
    no: str
    lines: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class LoginSigns:
    """Signs that an agent has a login, of which one is enough. They are looked at without starting it.

    variables  of the environment
    files      `~/...` in the person's home, or `$VARIABLE/...`; only whether they exist counts
    """

    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentFolder:
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


class ConversationStore(NamedTuple):
    """Where an agent's own program stores conversations, and how they are read.

    reader   returns the module that reads them, when needed; `command` continues one in the agent's own program, with {id}
    files    glob with {id} below the agent's own folder (`AgentSpec.own_folder`): files of JSON lines
    args     without files: arguments of the program that tells them by JSON-RPC
    ask      (directory, id; "" for the list) -> lines for it; the answer to the last has id 1
    """

    reader: Callable[[], ConversationReader]
    command: str
    files: str = ""
    args: tuple[str, ...] = ()
    ask: Callable[[str, str], tuple[bytes, ...]] = lambda _directory, _id: ()


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """The facts about one agent: how to find, start, check and offer it."""

    name: str
    title: str
    make: Callable[[IdFactory], Codec]
    binaries: tuple[str, ...]
    """Program names to look for on PATH, in order. Empty for an agent that runs inside of the server."""
    env_override: str
    """Environment variable that names the binary, e.g. SHIM_CLAUDE_BIN."""
    version_args: tuple[str, ...]
    capabilities: Capabilities
    modes: tuple[Mode, ...]
    default_catalogue: Catalogue
    """The offer of an agent that cannot be asked. May be empty."""
    install_hint: str
    transport: Literal["stdio", "http"] = "stdio"
    """How its lines travel: by stdin and stdout, or by HTTP requests and an event stream (`shim.processes.http_agent`)."""
    tested: tuple[str, ...] = ()
    """Tested versions, ascending. Empty if unknown."""
    login: LoginCheck | Literal["session", "models"] | None = None
    """How to find out whether it is logged in: a `LoginCheck`, a new session, or own models. None: only a prompt can tell."""
    login_hint: str = ""
    """One sentence that says how to log in."""
    login_signs: LoginSigns | None = None
    """How a login can be seen without starting it; None: an agent that tells its models counts as logged in."""
    npm: tuple[str, ...] = ()
    """Packages that npm installs for it; empty: npm does not have it."""
    key_variables: tuple[str, ...] = ()
    """Variables in which it looks for an API key; a client may give a key for it (`PUT /auth/{name}`)."""
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Feature (`tests/coverage/features.py`) that it or its protocol does not have -> one sentence why."""
    unrecorded: str = ""
    """Why `opencode-shim record` cannot record it, for one that it could be expected to."""
    is_fallback: bool = False
    """Stands behind all others, those of packages and of the settings too: that it is there does not mean it is wanted."""
    tools: Mapping[str, Row] = field(default_factory=dict[str, Row])
    """OpenCode's names of its tools. For agents from packages; those of this repository are in `universal.tools`."""
    enforcement: Enforcement = OWN_QUESTIONS
    """Who enforces permission rules; see docs/permissions.md."""
    sandbox: SandboxUse = NO_NEEDS
    """What it needs in a sandbox, and which rules it is held to there."""
    held_calls: HeldCalls | None = None
    """Whether its calls all wait for the server: it gets prompts beside the snapshot before them (docs/adr/0032), else after."""
    default_rules: tuple[Rule, ...] = ()
    """Rules added to `DEFAULT_RULES`: own folders outside of the project, plan files ... `~/` is the person's home."""
    own_folder: AgentFolder | None = None
    """The folder in `default_rules` that a variable can move."""
    command_sources: CommandSources = NO_COMMANDS
    """Where its commands are files, so that those of a project are offered before the first session there."""
    internal_commands: frozenset[str] = frozenset()
    """Slash commands about its own program. Clients do not list them unless all are asked for; they may be sent."""
    withheld_commands: Mapping[str, str] = field(default_factory=dict[str, str])
    """Slash commands that are not offered -> why, and what to do instead, in one sentence or two."""
    project_settings: ProjectSettingsUse = ProjectSettingsUse(ALL_FAMILIES)
    """Which settings of a project the agent reads, and whether it can leave them out."""
    setup: SetupUse = TAKES_NOTHING
    """What it takes of a person's OpenCode configuration."""
    spare: SpareUse | None = None
    """How it waits for a session. None: it is started for a prompt only."""
    no_spare: str = NO_SPARE
    """Why it is started for a prompt only, in one sentence."""
    no_steering: str = "It takes one prompt at a time."
    """Why a prompt during a turn waits for its end, in one sentence. Empty: the agent takes it in at its next step."""
    major: int | None = None
    """The only major version that it takes of its program. None: every version."""
    major_hint: str = ""
    """What to do with a program of another major version, in one sentence."""
    shared_binaries: tuple[str, ...] = ()
    """Names, after `binaries`, of programs that another agent has too. One is taken only if it tells a version of `major`."""
    conversations: ConversationStore | None = None
    """How the conversations that its own program has stored are read. None: they are not."""
    structured: Literal["", "any", "strict"] = ""
    """Which schemas of an answer it takes; "strict": those in which each object names all its properties and requires them."""
    rewinds: bool = False
    """True if it can continue after an earlier answer (`LaunchOptions.resume_at`). Its DONE then has `anchor` in metadata."""

    @property
    def kernel_keys(self) -> tuple[str, ...]:
        """The permission keys whose denies a sandbox holds with this agent, and its protocol does not, or not all of them."""
        return tuple(key for key in self.sandbox.shown if self.enforcement.gap(key) or self.enforcement.partial)

    def rules_in(self, environment: Mapping[str, str]) -> tuple[Rule, ...]:
        """Return `default_rules` with the agent's own folder moved to where this environment puts it.

        If that is no absolute path, or holds wildcards, the folder's rules are left out, so that a person is asked.
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
    """Return the modes that a person can choose: those that the agent reports, else those of its spec."""
    return catalogue.modes or spec.modes
