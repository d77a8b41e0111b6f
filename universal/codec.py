"""Defines the interface of codecs: native lines in, facts and signals out; commands in, lines out. No IO, no clock.

A codec serves one agent process of one session. `receive`, `eof` and `send` each return a list of outputs, in order:

    Fact     an event body; the session stamps it (id, sequence, time) and writes it to the journal
    Signal   an input for the turn machine (see `universal.turn`); never journaled by itself
    Action   a task of the runtime, such as a line to write or a process to stop

A codec never decides that a turn has ended. It signals what the agent reported, and `universal.turn` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from universal.events import EventData, EventType
from universal.host import HostAnswer, HostCall
from universal.items import Json
from universal.launch import Exit, LaunchOptions, LaunchSpec
from universal.lib.jsonvalue import JsonObject
from universal.permissions import Decision, Rule
from universal.setup import NO_SETUP, DirectorySetup
from universal.slash_commands import SlashCommand
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
    """The JSON schema of the answer, for agents that take one (`AgentAbilities.structured`)."""


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


class Codec(Protocol):
    """The codec of one agent. One instance per process. What has a body here is for agents that can do more than answer."""

    name: str
    """Registry name, which is also the provider id on the OpenCode faces."""
    catalogue: Catalogue | None
    """The agent's offer, or None until it has reported it (for most after the handshake)."""
    native_session_id: str | None
    """The agent's own id of the conversation, as soon as it is known."""
    anchor: str = ""
    """The place of its last answer, where the conversation can be resumed (`AgentAbilities.rewinds`)."""

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

    def discard(self) -> list[Output]:
        """Remove the conversation that was begun to ask for the agent's offers, if any. The process ends then."""
        return []

    def rename(self, title: str) -> list[Output]:
        """Tell the agent a person's title of its conversation. Empty if it has none, or takes no title."""
        return []

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

    # A process may be started before there is a session for it (`AgentProgram.spare`), in the session's directory and
    # environment, with the agent's default model, effort and mode.

    def prepare(self) -> list[Output]:
        """Make the agent load what its first prompt needs, once. It asks no model, and begins nothing that stays."""
        return []

    def adopt(self, options: LaunchOptions) -> bool:
        """Take over the options of a new session. False if the process cannot serve it, and then nothing has changed."""
        return False
