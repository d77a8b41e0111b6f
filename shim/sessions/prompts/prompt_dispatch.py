"""Dispatches prompts to a session's agent: adds missed context to each, and starts the agent if needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from shim.agents.directory import Agent
from shim.agents.sandboxes import bounds, held_keys, level_of, may_be_held, sandbox_notice, sight_here
from shim.agents.spares.agent_room import WAIT_S
from shim.host.files.roots import folders_down_to
from shim.lib import disk
from shim.lib.errors import AgentError, AgentNotFound, SessionElsewhere, StoreError
from shim.sessions.permissions.requests import gaps_notice
from shim.sessions.prompts import context
from shim.sessions.prompts.pending_prompt import PendingPrompt
from shim.sessions.prompts.structured_answers import with_schema
from shim.sessions.session.exit_errors import start_error, work_ended
from shim.sessions.session.native_sessions import NativeSession, note_native_session
from shim.sessions.session.session_agent import setup_gaps, variables_of
from shim.sessions.session.session_state import SessionState
from shim.sessions.undo.undo_plan import UndoNotes
from universal.agent_spec import HeldCalls
from universal.codec import Codec, Fact, Prompt
from universal.events import ErrorData, EventType, ItemData, ItemDeltaData
from universal.items import ImagePart, Item, ItemKind, ReasoningPart, StatusPart, TextPart
from universal.lib.jsonvalue import JsonObject
from universal.lib.paths import expand
from universal.permissions import MODES
from universal.sandbox import Bounds
from universal.session.user_prompt import Delivery
from universal.setup import setup_notice
from universal.tools.accesses import Place
from universal.turn import Input
from universal.unattended_policy import UnattendedPolicy

if TYPE_CHECKING:
    from shim.sessions.session.actor import SessionActor

log = structlog.get_logger()

STORE_AGAIN_S = 0.25
"""Seconds between two tries to store a prompt, while its turn waits for that."""
RECALL_S = 2.0
"""Seconds for an agent to say whether it gives a prompt back."""
COMMAND_SIGNS = ("/", "!", "#")
"""How a text begins that an agent may take for a command of its own."""


@dataclass(frozen=True, slots=True)
class PromptDispatch:
    """A prompt as its agent gets it.

    `carried`: ids of messages that go along as text; `journal_entry`: what the journal keeps of the dispatch.
    """

    prompt: Prompt
    carried: tuple[str, ...]
    journal_entry: JsonObject


@dataclass(frozen=True, slots=True)
class Loss:
    """The agent's conversation that could not be resumed for the prompt, and why. Empty if it was not lost."""

    native: NativeSession | None = None
    why: str = ""


def prepare(
    state: SessionState,
    pending: PendingPrompt,
    queued: Iterable[PendingPrompt],
    notes: UndoNotes,
    title_of: Callable[[str], str],
) -> PromptDispatch:
    """Add what the agent has missed, what was undone, and the instructions. Takes the agent's note out of `notes`.

    In: `queued`, the prompts that are dispatched later; `title_of`, what people call an agent.
    """
    if pending.prompt.compact:  # the agent compacts its own conversation; missed messages go along with the next prompt
        return PromptDispatch(pending.prompt, (), pending.journal_entry() | context.NOTHING.journal_entry())
    leave_out = {pending.message_id, *map(attrgetter("message_id"), queued)}
    missed = context.missed_context(state.session, pending.agent, leave_out, title_of)
    due = state.instructions.due()
    text = notes.note(pending.agent) + missed.text + pending.prompt.text
    prompt = replace(pending.prompt, text=text, system=due.with_system(pending.prompt.system))
    return PromptDispatch(prompt, missed.message_ids, pending.journal_entry() | missed.journal_entry() | due.journal_entry)


class PromptDispatcher:
    """Gives one prompt at a time to a session's agent, and starts the agent if it must."""

    def __init__(self, session: SessionActor) -> None:
        self._session = session
        self._deps = session.deps
        self._state = session.main
        self._directory = session.directory
        self._queue = session.prompt_queue
        self._process = session.process
        self._snapshots = session.snapshots
        self._trust = session.trust
        self._cap = session.cap
        self._rules = session.keeper
        self._native = session.native
        self._launch: asyncio.Task[None] | None = None
        self.waiting_key: str | None = None
        self.current_key: str | None = None
        self.may_use_project_settings = self.has_project_settings = True
        self._notified = set[tuple[str, str]]()
        self.known_place: Place | None = None
        self._holds_calls = False
        self.has_own_work = False
        """The agent has begun work of its own while a prompt waited to be given to it."""
        self._loss = Loss()
        self.answer = Answer()
        self.turn_id = ""
        self.unattended: UnattendedPolicy | None = None
        """The last prompt's policy for unanswered requests."""

    @property
    def is_waiting(self) -> bool:
        return self.waiting_key is not None

    @property
    def lost_why(self) -> str:
        """Why the agent's conversation was lost with this prompt; "" if it was not."""
        return self._loss.why

    def is_resuming(self, codec: Codec) -> bool:
        """Whether the agent was started to go on with its conversation, and has not shown that it has it."""
        return self._process.resumes and not self.answer.has_begun and not codec.has_conversation

    # --- one prompt ----------------------------------------------------------------------------------------

    def dispatch(self, key: str) -> None:
        """Send the prompt now if the agent is ready for it, else when it is started."""
        pending = self._queue.pending[key]
        is_fit = not self._snapshots.look() and not self._trust.is_on and self._is_ready_for(pending)
        if is_fit and not (self._deps.store.ownership.sessions_move or self._cap.is_reached()):
            self._send(pending)
            return
        self.waiting_key = key
        self._process.expect()
        if self._launch is None or self._launch.done():
            self._launch = asyncio.get_running_loop().create_task(self._launch_agent(), name=f"launch {self._state.id}")

    def dispatch_again(self) -> None:
        """Dispatch the unanswered prompt to a new process."""
        if self.current_key is not None:
            self.dispatch(self.current_key)

    def forget(self) -> None:
        """Forget the dispatched prompt, which is answered or lost, and cancel a prompt that waits for its agent."""
        current, waiting, self.current_key, self.waiting_key = self.current_key, self.waiting_key, None, None
        if self._loss.native is not None and self._process.agent is not None:  # the new conversation has failed too
            self._process.drop(kill=False)
            self._native[self._process.agent] = self._loss.native  # the next prompt tries the old one again
        self._loss = Loss()
        self._queue.pending.pop(current or "", None)
        self._queue.cancel(waiting or "")

    def _send(self, pending: PendingPrompt) -> None:
        self.waiting_key = None
        self.current_key = pending.prompt.key
        self.unattended = pending.unattended_policy
        self._cap.begin(pending.caps)
        is_first = not self.turn_id
        if self.turn_id != self._state.turn_id:  # what changes from here on may only be stricter until the turn ends
            self.turn_id, self._state.config_at_start = self._state.turn_id, self._deps.config_now(self._directory)
        dispatch = self.prepare(pending, is_first=is_first)
        if dispatch.carried:
            self._queue.drop_parked(dispatch.carried)
        self._state.status("prompt", state="handed", **dispatch.journal_entry)
        self.answer = Answer()
        self._snapshots.hold_lines()
        self._process.send(dispatch.prompt)

    def prepare(self, pending: PendingPrompt, *, is_first: bool = False) -> PromptDispatch:
        """A prompt as the agent gets it: with what it has missed, its rules and its set-up. The first may name the session."""
        queued, title_of = self._queue.pending.values(), self._deps.agents.title_of
        dispatch = prepare(self._state, pending, queued, self._session.undo_notes, title_of)
        name = (pending.choice or pending.user_prompt).mode
        policy = self._rules.policy(self._state, name)
        session_rules = policy.for_engine(reads_project=self.has_project_settings)
        agent = self._deps.agents.get(pending.agent)
        self._process.chosen = name, pending.prompt.mode or ""
        setup = self._process.setup(with_project=self.has_project_settings)
        if setup.servers and agent is not None:  # tools and plugins are one of them
            self._wake_plugins(agent)
        rules = policy.for_agent()
        if setup.has_plugins:
            rules = (*rules, *setup.guard_rules)
        names = is_first and self._state.session.record.is_named_by(pending.prompt.text)
        if names and (config := self._state.config_at_start) is not None:  # as OpenCode's own agent for titles
            names = "title" not in config.disabled_agents
        prompt = replace(dispatch.prompt, rules=rules, session_rules=session_rules, setup=setup, names=names)
        if setup.text and agent is not None and self._process.lacks_text(agent.spec.abilities.setup, setup.text):
            prompt = replace(prompt, system="\n\n".join(filter(None, (setup.text, prompt.system))))
        if prompt.schema is not None and agent is not None:
            prompt = with_schema(prompt, agent.spec.abilities.structured)
        return replace(dispatch, prompt=prompt)

    def _wake_plugins(self, agent: Agent) -> None:
        """Start what runs the agent's tools and plugins, unless the agent runs them itself."""
        plugins = self._deps.setups.plugins
        if plugins is not None and not agent.spec.abilities.setup.reads_own:
            plugins.wake(self._directory, with_project=self.has_project_settings)

    @property
    def current(self) -> PendingPrompt | None:
        return self._queue.pending.get(self.current_key or "")

    def note_joined(self, key: str) -> None:
        """The agent has taken in another prompt: what it says from here on answers that one too."""
        if self.current_key is None:
            self.answer = Answer()
        else:
            self._queue.pending.pop(self.current_key, None)
        self.current_key = key
        self.unattended = self._queue.pending[key].unattended_policy
        self._cap.begin(self._queue.pending[key].caps)

    def _is_ready_for(self, pending: PendingPrompt) -> bool:
        process = self._process
        is_same = process.agent == pending.agent and self.has_project_settings == self.may_use_project_settings
        is_own = (pending.choice or pending.user_prompt).mode not in MODES
        if is_same and (process.sandbox.may_change or is_own or self._state.session.record.metadata):
            is_same = process.sandbox.demand == self._demand(pending)  # mounts cannot be changed: others need another process
        return process.is_alive and is_same and process.codec is not None and not pending.refused

    def _demand(self, pending: PendingPrompt) -> Bounds | None:
        """What the kernel must hold the agent to in this prompt; None without a sandbox."""
        agent, mode = self._deps.agents.get(pending.agent), (pending.choice or pending.user_prompt).mode
        if agent is None:
            return None
        config, rules = self._deps.config_now(self._directory), self._rules.policy(self._state, mode).for_agent()
        level = level_of(self._state.session.record, config.primary_agents.get(mode) if config is not None else None)
        return bounds(agent.spec, rules, level, is_trusted=self.may_use_project_settings)

    # --- starting the agent ----------------------------------------------------------------------------------

    async def _launch_agent(self) -> None:
        """Start the agent (again) for the prompt that waits, and send it, unless it was aborted meanwhile.

        The snapshot of the files before the prompt is taken while the agent starts, and beside the prompt if that is safe.
        """
        started_key = ""
        while (pending := self._queue.pending.get(self.waiting_key or "")) is not None:
            key = pending.prompt.key
            if started_key == key and self._is_ready_for(pending):
                self._send(pending)
                continue  # an agent that must be started again for it has given the prompt back
            try:
                if started_key != key:
                    await self._look_at_settings(pending)  # the rules hold from the agent's first call on
                if self.waiting_key != key:
                    continue  # aborted meanwhile: no agent is started for it
                start = () if self._is_ready_for(pending) else (self._start_agent(pending),)
                snapshot = () if started_key == key else (self._snapshots.begin(may_lines_wait=self._holds_calls),)
                if snapshot and self._deps.store.ownership.sessions_move:
                    snapshot = (*snapshot, self._wait_until_stored(key))
                started_key = key
                await asyncio.gather(*start, *snapshot)
            except AgentError as error:
                self._fail(pending, str(error))
            except Exception as error:  # a turn ends with its reason, whatever a codec raises
                log.exception("agent.launch_failed", session_id=self._state.id, agent=pending.agent)
                self._fail(pending, f"{pending.agent} could not be started: {error}")

    async def _wait_until_stored(self, key: str) -> None:
        """Wait until a prompt is stored or its turn is over: one that was not would be done here, and again by the next owner."""
        while self.waiting_key == key:
            try:
                await self._deps.store.flush(self._state.id)
            except (StoreError, SessionElsewhere):  # of a lost session: until it is given up
                await asyncio.sleep(STORE_AGAIN_S)
            else:
                return

    async def _look_at_settings(self, pending: PendingPrompt) -> None:
        """Look at all settings that decide how the prompt is sent, which have changed if it waited. A person may be asked."""
        asked = self._trust.asked
        await asyncio.gather(self._ask_for_trust(pending), self._read_settings(pending), self._cap.wait())
        if self._trust.asked != asked:
            await self._read_settings(pending)

    async def _ask_for_trust(self, pending: PendingPrompt) -> None:
        """Find out whether the agent may use the project's settings, which may ask a person."""
        agent = self._deps.agents.get(pending.agent)
        if agent is not None and not pending.refused:
            self.may_use_project_settings = bool(await self._trust.may_use(agent.spec))

    async def _read_settings(self, pending: PendingPrompt) -> None:
        self.known_place = self.known_place or await self._deps.find_place(self._directory)
        if pending.prompt.key == self._queue.read_for_key:
            self._queue.read_for_key = ""
            self._holds_calls = await self._are_calls_held(pending)
            return
        _, self._holds_calls = await asyncio.gather(self._deps.config_refresh(self._directory), self._are_calls_held(pending))
        self._snapshots.look()

    async def _are_calls_held(self, pending: PendingPrompt) -> bool:
        """Whether this prompt can change no file before the agent's lines are read.

        A command may be a shell line or run a program of the person, which no call announces. A directory's first prompt waits
        for its snapshot, which tells whether there are any.
        """
        agent = self._deps.agents.get(pending.agent)
        calls = None if agent is None else agent.spec.rules.held_calls
        is_command = pending.prompt.compact or pending.prompt.text.lstrip().startswith(COMMAND_SIGNS)
        if calls is None or is_command or not self._snapshots.are_certain:
            return False
        return not await asyncio.to_thread(may_run, calls, self._directory, self._deps.agents.environment())

    def _fail(self, pending: PendingPrompt, message: str) -> None:
        if self.waiting_key != pending.prompt.key:
            return
        self.forget()
        self._state.record(EventType.ERROR, start_error(pending, message))
        self._session.apply(Input.FAILED)

    async def _start_agent(self, pending: PendingPrompt) -> None:
        if pending.refused:
            raise AgentError(pending.refused)
        key, room = pending.prompt.key, self._deps.room
        if not await room.enter(self._state.id, is_wanted=lambda: self.waiting_key == key, on_wait=self._show_wait):
            return
        try:
            await self._start_in_place(pending)
        finally:
            room.leave(self._state.id)

    def _show_wait(self, why: str) -> None:
        """Show in the session's status that its turn waits for room, and why."""
        self._state.status("retry", why, message=why, attempt=1, delay_ms=int(WAIT_S * 1000))

    async def _start_in_place(self, pending: PendingPrompt) -> None:
        if work := self._process.live_work:  # another agent, or other settings
            self._state.status("notice", work_ended(work))
        await self._process.stop()
        if (agent := self._deps.agents.get(pending.agent)) is None:
            raise AgentNotFound(f'There is no agent named "{pending.agent}". Choose another model.')
        name = agent.spec.name
        native = self._native.get(name)
        self.has_project_settings = trusts = self.may_use_project_settings
        variables = await variables_of(self._deps, agent.spec, self._state, with_project=trusts)
        options = pending.launch_options(agent.located.path or "", self._directory, native, variables)
        chosen = self._process.chosen = (pending.choice or pending.user_prompt).mode, pending.prompt.mode or ""
        setup = self._process.setup(with_project=trusts)
        demand = self._demand(pending)
        held, unheld_why, seen = await sight_here(agent.spec, demand, options, self._deps.agents.environment())
        self._process.sandbox.hold(held, demand, seen, may_change=may_be_held(agent.spec, demand))
        rules = (*self._rules.policy(self._state, chosen[0]).for_agent(), *setup.guard_rules)
        options = replace(options, rules=rules, project_settings=self.has_project_settings, setup=setup, bounds=held)
        if not options.resume:
            self._state.session.messages.forget(name)  # it begins a new conversation
        if await self._process.start(agent, options):
            self._session.on_start(name, options.resume)
            self._notify_gaps(agent, unheld_why)
            self._process.greet()

    def _notify_gaps(self, agent: Agent, unheld_why: str) -> None:
        """Tell a person, once for each agent, which of their rules cannot be enforced with it, and what it leaves out."""
        policy, spec = self._rules.policy(self._state, self._process.chosen[0]), agent.spec
        held = self._process.sandbox.bounds
        gaps = spec.rules.enforcement.gaps((*policy.config, *policy.session), held_keys(spec, held))
        missing = setup_gaps(self._deps, self._process, spec, self._directory)
        rules_text = gaps_notice(spec.title, gaps) if gaps else ""
        setup_text = setup_notice(spec.title, missing) if missing else ""
        sandbox_text = sandbox_notice(spec, held, unheld_why, is_missed=bool(gaps))
        for kind, text in (("rules", rules_text), ("setup", setup_text), ("sandbox", sandbox_text)):
            if text and (spec.name, kind) not in self._notified:
                self._notified.add((spec.name, kind))
                self._state.status("notice", text)

    # --- the agent's own conversation --------------------------------------------------------------------------

    def on_answer(self) -> None:
        self.answer.begin()
        if self._loss.why:
            self._loss = Loss()

    def note_facts(self, facts: Sequence[Fact]) -> None:
        if not self.answer.has_content:
            self.answer.note(facts)

    def empty_answer(self) -> ErrorData | None:
        """Return the error of an answer with nothing in it, or None. A command of the agent may end without a word."""
        pending = self.current
        if pending is None or pending.prompt.compact or pending.prompt.text.lstrip().startswith(COMMAND_SIGNS):
            return None
        agent = self._deps.agents.get(pending.agent)
        return self.answer.error(agent.spec.title if agent is not None else pending.agent)

    def note_native_session(self) -> None:
        """Store the id of the agent's own conversation."""
        agent, codec = self._process.agent, self._process.codec
        id_ = codec.native_session_id if codec is not None else None
        is_started, clock = self.answer.has_begun, self._deps.clock
        if id_ and agent and note_native_session(self._native, agent, id_, started=is_started, clock=clock):
            self._session.keeper.on_actor_changed(self._session)

    def retry_without_resume(self, why: str) -> bool:
        """Give the prompt to a new process, with the conversation as text: the agent has lost its own. Once for each prompt."""
        name = self._process.agent
        if (self.current_key is None and not self.is_waiting) or name is None or self._loss.why:
            return False
        log.warning("agent.conversation_lost", session_id=self._state.id, agent=name, why=why)
        self._loss = Loss(self._native.pop(name, None), why or "no reason")
        self._process.drop(kill=True)
        if not self.is_waiting:  # else `_launch_agent` finds no process and starts one
            self.dispatch_again()
        self._session.keeper.on_actor_changed(self._session)
        return True

    def retry_lost_spare(self) -> bool:
        """Give the prompt to a new process: the one that waited for this session has died before it said a word. Once.

        Nothing was answered, so that the prompt can be given again. False if there is no such prompt.
        """
        if not self._process.is_untried or self._state.machine.state == "aborting":
            return False
        if self.is_waiting:
            return True  # `_launch_agent` finds no process and starts one
        self.dispatch_again()
        return self.current_key is not None

    async def close(self) -> None:
        if self._launch is not None:
            self._launch.cancel()
            with suppress(asyncio.CancelledError):
                await self._launch


# --- early programs --------------------------------------------------------------------------------------

FILE_LIMIT_BYTES = 2**20
"""Maximum size of a settings file that is read. A larger one may name anything."""


def may_run(calls: HeldCalls, directory: str, environ: Mapping[str, str]) -> bool:
    """Whether a settings file may name such a program: it has one of the words, or cannot be read. Blocking."""
    words = [word.encode() for word in calls.words]
    own = (expand(path, environ) for path in calls.own_files)
    project = (Path(folder, name) for folder in folders_down_to(directory) for name in calls.files)
    return any(path is not None and _mentions(path, words) for path in (*own, *project))


def _mentions(path: Path, words: list[bytes]) -> bool:
    try:
        data = disk.read_small(path, FILE_LIMIT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    return any(word in data for word in words)


# --- answer ----------------------------------------------------------------------------------------------

# Decides whether an agent has answered a prompt with anything, for all agents alike.
#
# An answer without anything looks like a success to a client. It ends with an error, in the words of the agent's last notes.

NO_ANSWER = "no_answer"
"""Error code of an answer with nothing in it."""
HINT = "The agent gives no reason. Send the prompt again, look at the agent's own log, or try the same in its own program."
NOTE_COUNT = 5
"""Maximum notes of one turn that are kept for its error."""
_WORKING = frozenset({"compaction", "todo"})
"""Labels of status items that are an answer by themselves."""
_ANSWERS = frozenset({EventType.ERROR, EventType.PERMISSION_REQUESTED, EventType.QUESTION_REQUESTED})


class Answer:
    """What an agent has said to one prompt so far."""

    def __init__(self) -> None:
        self.has_begun = False
        self.has_content = False
        """True after the first text, tool call, error or request."""
        self.is_heard = False
        """Whether it has begun and has content, so that more pieces of text change nothing here."""
        self._notes: list[str] = []

    def begin(self) -> None:
        self.has_begun = True
        self.is_heard = self.has_content

    def note(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            if not self.has_content:
                self.has_content = fact.child is not None or fact.type in _ANSWERS or self._is_content(fact)
        self.is_heard = self.has_begun and self.has_content

    def _is_content(self, fact: Fact) -> bool:
        match fact.data:
            case ItemDeltaData(part_type=kind):
                return kind != "reasoning"
            case ItemData(item=item):
                return self._has_content(item)
            case _:
                return False

    def _has_content(self, item: Item) -> bool:
        if item.kind in (ItemKind.SYSTEM, ItemKind.STATUS):
            for part in item.content:
                if isinstance(part, StatusPart) and part.label in _WORKING:
                    return True
                words = part.text if isinstance(part, TextPart) else None
                if isinstance(part, StatusPart) and part.label == "notice":
                    words = part.detail
                if words and len(self._notes) < NOTE_COUNT:
                    self._notes.append(words)
            return False
        if item.kind is not ItemKind.MESSAGE:
            return True
        return any(_is_shown(part) for part in item.content)

    def error(self, title: str) -> ErrorData | None:
        """Return the error of an answer that ends now, or None if there is something in it. In: the agent's title."""
        if self.has_content:
            return None
        details: JsonObject = {"is_retryable": False} if self._notes else {"is_retryable": True, "hint": HINT}
        message = "\n".join(self._notes) or f"{title} ended the turn without an answer."
        return ErrorData(message=message, code=NO_ANSWER, details=details)


def _is_shown(part: object) -> bool:
    return isinstance(part, ImagePart) or (
        not isinstance(part, ReasoningPart) and bool(getattr(part, "text", "") or not isinstance(part, TextPart))
    )


# --- prompts during an answer ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recall:
    """The wish to get back what the agent was offered: to remove it (None), or to give it another delivery."""

    delivery: Delivery | None
    is_back: asyncio.Future[bool]


class Offers:
    """The prompts that a working agent may take in at its next step (docs/turn.md). The turn machine knows what is offered."""

    def __init__(self, session: SessionActor) -> None:
        self._session = session
        self._deps = session.deps
        self._state = session.main
        self._queue = session.prompt_queue
        self._process = session.process
        self._dispatcher = session.dispatcher
        self._dispatches: dict[str, PromptDispatch] = {}
        self._recalls: dict[str, Recall] = {}
        self._declined = set[str]()
        """What the agent has given back in this turn. It is not offered again."""

    def offer(self) -> None:
        """Give a working agent the first prompts that wait, as far as it can take them in."""
        machine, answered = self._state.machine, self._dispatcher.current
        waiting = machine.queue
        while waiting and answered is not None and machine.state == "running" and self._process.may_steer:
            pending = self._queue.pending.get(waiting[0])
            if pending is None or waiting[0] in self._declined or not _joins(pending, answered):
                return
            if not (pending.user_prompt.details.delivery or self._deps.settings.steer):
                return
            key = pending.prompt.key
            self._session.apply(Input.OFFERED, key)
            if key not in self._state.machine.offers:
                return
            self._dispatches[key] = self._dispatcher.prepare(pending)
            self._process.steer(self._dispatches[key].prompt)

    def take(self, key: str) -> None:
        if (dispatch := self._dispatches.pop(key, None)) is None or key not in self._state.machine.offers:
            return
        self._queue.drop_parked(dispatch.carried)
        self._state.status("prompt", state="handed", **dispatch.journal_entry)
        self._dispatcher.note_joined(key)
        self._answer_recall(key, is_back=False)

    def give_back(self, key: str) -> None:
        """The agent has given a prompt back, or is lost with it."""
        pending, recall = self._queue.pending.get(key), self._recalls.get(key)
        if pending is None or key not in self._state.machine.offers:
            return
        self._dispatches.pop(key, None)
        self._declined.add(key)
        is_unwanted = recall is not None and recall.delivery is None
        self._session.apply(Input.WITHDRAWN if is_unwanted else Input.RETURNED, key)
        if is_unwanted:
            self._queue.remove(pending)
        elif recall is not None and recall.delivery is not None:
            self._queue.redeliver(pending.message_id, recall.delivery)
        self._answer_recall(key, is_back=True)

    def to_json(self) -> JsonObject:
        """What is offered, and what was declined, as `restore` takes it."""
        given = self._dispatches
        offered: JsonObject = {key: [list(one.carried), one.journal_entry] for key, one in given.items()} if given else {}
        return {"offered": offered, "declined": sorted(self._declined)}

    def restore(self, said: JsonObject) -> None:
        """Go on with the offers of a server that has ended. Nobody waits any more for one that was to come back."""
        offered, pending = said["offered"].items(), self._queue.pending
        self._dispatches = {key: PromptDispatch(pending[key].prompt, tuple(ids), entry) for key, (ids, entry) in offered}
        self._declined = set(said["declined"])

    def lose(self) -> None:
        """The process is dropped, and its offers wait again."""
        for key in reversed(self._state.machine.offers.copy()):
            self.give_back(key)

    def end(self) -> None:
        """The turn is over: nothing is offered any more."""
        self._dispatches.clear()
        self._declined.clear()
        for key in tuple(self._recalls):
            self._answer_recall(key, is_back=False)

    async def recall(self, message_id: str, delivery: Delivery | None) -> bool:
        """Get a prompt back from the agent, to remove it, or to change its delivery. False if it was taken in, or is not there.

        Waits for the agent, at most RECALL_S.
        """
        if (pending := self._queue.find_offer(message_id)) is None or delivery == "steer":
            return pending is not None
        key = pending.prompt.key
        recall = self._recalls[key] = Recall(delivery, asyncio.get_running_loop().create_future())
        if not self._process.recall(key):
            self._answer_recall(key, is_back=False)
        await asyncio.wait({recall.is_back}, timeout=RECALL_S)
        self._answer_recall(key, is_back=False)
        return recall.is_back.result()

    def _answer_recall(self, key: str, *, is_back: bool) -> None:
        recall = self._recalls.pop(key, None)
        if recall is not None and not recall.is_back.done():
            recall.is_back.set_result(is_back)


def _joins(pending: PendingPrompt, answered: PendingPrompt) -> bool:
    """Whether a prompt can be taken in by the answer to another one: for the same model in the same mode, and no command."""
    prompt, other = pending.prompt, answered.prompt
    modes = [(one.choice or one.user_prompt).mode for one in (pending, answered)]
    is_same = (pending.agent, prompt.model, prompt.variant, modes[0]) == (answered.agent, other.model, other.variant, modes[1])
    is_command = prompt.compact or other.compact or prompt.text.lstrip().startswith(COMMAND_SIGNS)
    return is_same and prompt.schema == other.schema and not is_command and not pending.refused and not pending.waits_for_all
