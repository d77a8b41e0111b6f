"""Runs one session: turns actions of clients and of its agent into inputs of the turn machine, and carries out the effects.

`universal.turn` alone decides whether a turn runs or ends. Outputs of the agent's codec and effects of the turn machine wait in
one queue (`EffectQueue`). An effect may add others, and never runs them itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeAlias, TypeVar

import structlog

from shim.agents.directory import LOGGED_OUT
from shim.lib.tasks import wait_at_most
from shim.sessions.permissions.requests import Requests
from shim.sessions.permissions.trust_gate import TrustGate
from shim.sessions.permissions.unattended_policy import unattended_policy_of_session
from shim.sessions.prompts.cap import Cap
from shim.sessions.prompts.limit_wait import LimitWait
from shim.sessions.prompts.pending_prompt import PendingPrompt
from shim.sessions.prompts.prompt_dispatch import Offers, PromptDispatcher
from shim.sessions.prompts.prompt_queue import PromptQueue
from shim.sessions.prompts.structured_answers import must_ask_again
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.exit_errors import (
    LOST,
    SESSION_NOT_FOUND,
    after_loss,
    agent_exit_data,
    exit_error,
    failed_start,
    work_ended,
)
from shim.sessions.session.native_sessions import NativeSession, rename_conversation
from shim.sessions.session.session_agent import SessionAgent
from shim.sessions.session.session_state import THE_TURN, SessionState
from shim.sessions.undo.step_snapshots import StepSnapshots
from shim.sessions.undo.undo_plan import UndoNotes
from universal.codec import (
    Codec,
    Fact,
    FilesChanged,
    Interrupt,
    InterruptProcess,
    Output,
    PermissionReply,
    QuestionReply,
    SetTimer,
    Signal,
    Stop,
    ToolCheck,
    WriteLine,
)
from universal.events import ErrorData, EventType, PermissionData, QuestionData, SessionEndedData, SessionStartedData
from universal.host import HostCall
from universal.launch import Exit
from universal.lib.jsonvalue import obj, text
from universal.permissions import Policy
from universal.tools.accesses import Place
from universal.turn import OURS, DispatchPrompt, Effect, Input, InterruptAgent, KillAgent, PromptsCancelled, TurnEnd, TurnStart
from universal.unattended_policy import UnattendedPolicy

# --- sessions of subagents --------------------------------------------------------------------------------------


class ChildSessions:
    """The children of one session, by the agent's keys."""

    def __init__(self, parent: SessionActor) -> None:
        self._parent = parent
        self.states: dict[str, SessionState] = {}

    def __iter__(self) -> Iterator[SessionState]:
        return iter(self.states.values())

    @property
    def is_busy(self) -> bool:
        """Whether a subagent works."""
        return bool(self.states) and any(state.machine.busy for state in self.states.values())

    def state_of(self, key: str | None) -> SessionState:
        """The session that a fact, check or signal belongs to: a child's, or the parent's."""
        return self.states.get(key, self._parent.main) if key is not None else self._parent.main

    def open(self, key: str, fact: Fact) -> SessionState:
        """The session of a child, which is created at its first fact."""
        if key not in self.states:
            self.states[key] = state = self._parent.keeper.open_child(self._parent, key, fact)
            state.journal.on_queue = self._parent.main.journal.on_queue
        return self.states[key]

    def abort(self) -> None:
        """End the turns of all children, as aborted."""
        self._end(Input.ABORT, Input.ABORT_TIMEOUT)

    def lose(self) -> None:
        """End the turns of all children, because their process has ended."""
        self._end(Input.EXIT)

    def _end(self, *inputs: Input) -> None:
        for state in self.states.values():
            if state.machine.busy:
                for input_ in inputs:
                    state.apply(input_)
                self._parent.requests.forget(state)


# --- the server's own work --------------------------------------------------------------------------------------

LOCAL_WORK = f"{OURS}own"
"""The key with which local work holds the turn open."""
STOP_S = 3.0
"""Seconds from `stop` until the work, or a turn that has failed, must be over: a command gets one second before it is killed."""


@dataclass(frozen=True, slots=True)
class LocalWork:
    """Local work that runs. `stop` asks it to end."""

    stop: Callable[[], None]
    end: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


# --- effects in order -------------------------------------------------------------------------------------------

E = TypeVar("E")


class EffectQueue(Generic[E]):
    """A queue of effects and the only loop that carries them out.

    `carry_out` handles one effect. Effects that it adds run next, in their order, before those that wait already.
    """

    def __init__(self, carry_out: Callable[[E], None]) -> None:
        self._carry_out = carry_out
        self._waiting: deque[E] = deque()
        self._is_running = False

    def add(self, effects: Sequence[E]) -> None:
        """Queue effects. Outside of `carry_out`, return when they and all that they cause are carried out.

        An exception of `carry_out` ends the run: effects that still wait are dropped.
        """
        self._waiting.extendleft(reversed(effects))
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._waiting:
                self._carry_out(self._waiting.popleft())
        finally:
            self._is_running = False
            self._waiting.clear()


log = structlog.get_logger()


# --- the actor --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TurnEffect:
    """An effect of the turn machine of this session, or of a subagent's."""

    state: SessionState
    effect: Effect


_Effect: TypeAlias = Output | _TurnEffect


class Keeper(Protocol):
    """What keeps all sessions: it has the rules, and makes the sessions of subagents."""

    def policy(self, state: SessionState, mode: str) -> Policy:
        """The rules in force for a session in a mode."""
        ...

    def open_child(self, actor: SessionActor, key: str, fact: Fact) -> SessionState:
        """Create the session of a subagent. In: its key in the agent's words, and its first fact."""
        ...

    def on_actor_changed(self, actor: SessionActor) -> None:
        """Whether the session is busy has changed, or its agent's process or conversation."""
        ...


class SessionActor:
    """A root session at work. A subagent's session can only be read after a restart, and has an actor of its own then."""

    def __init__(
        self,
        deps: SessionDeps,
        state: SessionState,
        directory: str,
        keeper: Keeper,
        native: dict[str, NativeSession],
    ) -> None:
        self.deps = deps
        self.main = state
        if deps.tapes is not None:
            deps.tapes.follow(state.journal)
        self.directory = directory
        self.native = native
        self.last_active_ms = deps.clock.now_ms()
        self.keeper = keeper
        self._effects = EffectQueue[_Effect](self._carry_out)
        self.process = SessionAgent(deps, state.id, directory, self)
        self.requests = Requests(deps, self, self.process)
        self.children = ChildSessions(self)
        self.prompt_queue = PromptQueue(self)
        self.snapshots = StepSnapshots(self)
        self.undo_lock = asyncio.Lock()
        self.undo_notes = UndoNotes()
        self.trust = TrustGate(self)
        self.cap = Cap(self)
        self.dispatcher = PromptDispatcher(self)
        self.offers = Offers(self)
        self.limit = LimitWait(self)
        self.local_work: LocalWork | None = None
        self.abort_timer: asyncio.TimerHandle | None = None
        self.refused_turn: str | None = None
        """The turn in which a person has refused a call without words."""
        self._exit_data: SessionEndedData | None = None
        self._log_context = (0, "")

    # --- requests of clients ------------------------------------------------------------------------------------

    @property
    def unattended_policy(self) -> UnattendedPolicy:
        """The policy for unanswered requests: of the last prompt, else of the session, else of the server."""
        return self.dispatcher.unattended or unattended_policy_of_session(self.main.session.record) or self.deps.unattended_policy

    def place(self) -> Place:
        """The place of the agent's calls. It is found before an agent starts."""
        assert self.dispatcher.known_place is not None
        return self.dispatcher.known_place

    def rules(self, state: SessionState) -> Policy:
        """The rules in force for this session or a subagent's, in the agent's mode."""
        return self.keeper.policy(state, self.process.mode)

    def prompt(self, pending: PendingPrompt, title: str | None = None, *, is_current: bool = False) -> str:
        """Show the prompt, name the session if `title` is given, and dispatch the prompt when the agent is free.

        In: `is_current`, the configuration was read for it just now. Returns the id of its message. Raises LimitReached at the
        quota of the person who prompts.
        """
        self._touch()
        if self.deps.quotas is not None and (account := self.deps.quotas.admit(self.main.id)):
            pending = replace(pending, account=account)
        with self.deps.changes.burst, self.main.journal:
            shown = self.main.record_prompt(pending)
            if title is not None:
                self.main.change_record(title=title)
            self.prompt_queue.queue(shown, is_current=is_current)
            if self.main.machine.queue:
                self.offers.offer()
        return shown.message_id

    def park(self, pending: PendingPrompt) -> str:
        """Show the prompt. It goes along with the next one, or is dispatched by `PromptQueue.resume`. Returns its id."""
        self._touch()
        shown = self.main.record_prompt(pending)
        self.prompt_queue.park(shown)
        return shown.message_id

    def abort(self) -> None:
        """Stop the running turn, if there is one."""
        self._touch()
        self.main.note_doer(THE_TURN)
        self.apply(Input.ABORT)

    def reply_permission(self, reply: PermissionReply) -> None:
        """The person's answer to a permission request of this session or of a subagent's."""
        self._touch()
        is_refusal = reply.decision == "reject" and not reply.message and reply.permission_id in self.main.session.permissions
        self.requests.reply_permission(replace(reply, stops=is_refusal and self._may_refuse()))

    def reply_question(self, reply: QuestionReply) -> None:
        """The person's answers, or their refusal."""
        self._touch()
        if not (self.trust.reply(reply) or self.cap.reply(reply)):
            is_refusal = reply.answers is None and not reply.message and reply.question_id in self.main.session.questions
            self.requests.reply_question(replace(reply, stops=is_refusal and self._may_refuse()))

    def _may_refuse(self) -> bool:
        """Note that a person has refused a call without words, which ends the turn. False if the configuration says otherwise."""
        config = self.main.config_at_start
        if config is not None and config.goes_on_after_rejection:
            return False
        self.refused_turn = self.main.turn_id
        return True

    def background(self) -> bool:
        """Move what the turn waits for to the background, so that the turn goes on. False if the agent cannot do that."""
        self._touch()
        return self.process.move_to_background()

    def begin_local_work(self, stop: Callable[[], None]) -> None:
        """Begin a turn for work of the server (a shell command). End it with `end_local_work`, soon after `stop` was called."""
        self._touch()
        self.local_work = LocalWork(stop)
        self.apply(Input.ACTIVITY)
        self.apply(Input.OPENED, LOCAL_WORK)
        self.main.apply(Input.DONE)  # the agent has nothing to do in it

    def end_local_work(self) -> None:
        """The work of `begin_local_work` is over."""
        if self.local_work is not None:
            self.local_work.end.set_result(None)
        self.local_work = None
        self.snapshots.finish()
        self.apply(Input.CLOSED, LOCAL_WORK)

    # --- inputs and effects --------------------------------------------------------------------------------

    def apply(self, input_: Input, key: str = "", *, child: SessionState | None = None, **metadata: object) -> None:
        """Give an input to the session's turn machine, or to a child's, and queue its effects."""
        state = child or self.main
        if state is self.main:
            self.snapshots.before(input_)
        effects: list[_Effect] = []
        for effect in state.apply(input_, key, **metadata):
            if not isinstance(effect, TurnStart):  # it is recorded, which is all
                effects.append(_TurnEffect(state, effect))
        self._effects.add(effects)
        self.dispatcher.note_native_session()

    def on_outputs(self, outputs: Sequence[Output]) -> None:
        """Queue outputs of the codec. A timer without any may have shown that the agent takes in prompts now."""
        self._effects.add(outputs)
        if not outputs and self.main.machine.queue:
            self.offers.offer()
        self.dispatcher.note_native_session()

    def _carry_out(self, effect: _Effect) -> None:
        match effect:
            case Fact():
                self._on_fact(effect)
            case _TurnEffect():
                self._carry_out_turn_effect(effect.state, effect.effect)
            case ToolCheck(request=request):
                self._on_tool_check(request)
            case Signal():
                self._on_signal(effect)
            case WriteLine(data=data):
                self.process.write(data)
            case FilesChanged(key=key):
                self.process.proceed(key)
            case Stop():
                self._stop_agent(effect)
            case SetTimer():
                self.process.set_timer(effect)
            case InterruptProcess():
                self.process.interrupt()
            case HostCall():
                self.process.call_host(effect)

    def _stop_agent(self, stop: Stop) -> None:
        """Stop the process as its codec wants. With an error its prompt fails, or goes to a new conversation."""
        log.info("agent.stopping", session_id=self.main.id, why=stop.why)
        self.dispatcher.note_native_session()
        if stop.error is not None:
            generation = self.process.generation
            data = failed_start(stop.error, self.process.stderr)
            self._on_fact(Fact(EventType.ERROR, data, synthetic=True))
            self._on_signal(Signal(Input.FAILED, error={"message": data.message, "code": data.code}))
            if generation != self.process.generation:
                return
        self._drop_process(kill=False)
        if stop.again:
            self.dispatcher.dispatch_again()

    def _carry_out_turn_effect(self, state: SessionState, effect: Effect) -> None:
        match effect:
            case DispatchPrompt(key=key):
                if (account := self.prompt_queue.pending[key].account) != state.account:
                    state.count_for(account)
                self.dispatcher.dispatch(key)
            case PromptsCancelled(keys=keys):
                self.prompt_queue.cancel(*keys)
            case InterruptAgent():
                self._interrupt(state)
            case KillAgent():
                self._drop_process(kill=True)
            case TurnEnd(reason=reason):
                if state is self.main:
                    self._on_turn_ended(reason)
                else:
                    self.requests.forget(state)
            case _:
                pass

    def _on_turn_ended(self, reason: str) -> None:
        self._touch()
        self.process.note_limits()
        rename_conversation(self)
        self.process.sandbox.end_turn()
        self.dispatcher.forget()
        self.offers.end()
        self.limit.end()
        self.requests.forget(self.main)
        self.trust.cancel()
        self.cap.end_turn()
        if self.abort_timer is not None:
            self.abort_timer.cancel()
            self.abort_timer = None
        if reason in ("aborted", "agent_exited"):
            self.children.abort()
        self._record_exit()
        self.keeper.on_actor_changed(self)

    def _interrupt(self, state: SessionState) -> None:
        if state is not self.main:
            return
        if self.local_work is not None:
            self.local_work.stop()
        if not self.main.machine.agent_at_work:
            return  # only the server's own work holds the turn, and it ends soon
        if self.dispatcher.is_waiting or self.limit.is_waiting:  # the agent has nothing to interrupt
            self.limit.cancel()
            self.dispatcher.forget()
            self.apply(Input.FAILED)
        elif not self.process.is_alive:
            self.apply(Input.EXIT)
        else:
            self.abort_timer = asyncio.get_running_loop().call_later(self.deps.settings.abort_timeout_s, self.on_abort_timeout)
            self.process.send(Interrupt())

    def on_abort_timeout(self) -> None:
        """The agent has not stopped in time."""
        self.abort_timer = None
        log.warning("turn.abort_timed_out", session_id=self.main.id, after_s=self.deps.settings.abort_timeout_s)
        self.apply(Input.ABORT_TIMEOUT)

    # --- from the agent --------------------------------------------------------------------------------------

    def on_lines(self, generation: int, lines: list[bytes]) -> Awaitable[None] | None:
        """Handle lines of the agent. Its next lines wait for what this returns."""
        if (hold := self.snapshots.hold) is not None:
            return self._on_lines_after(hold, generation, lines)
        if self._log_context != (generation, self.main.turn_id):  # the context of a pump is the same from read to read
            self._log_context = (generation, self.main.turn_id)
            self._touch()
        else:
            self.last_active_ms = self.deps.clock.now_ms()
        with self.deps.changes.burst, self.main.journal:
            if not self.process.receive(generation, lines):
                return None
            if self.main.machine.queue:
                self.offers.offer()
        if self.main.journal.overflow is not None and self.main.stop_for_full_store():
            self.abort()
        edits, room = self.process.edits, self.deps.store.room()
        return edits.pause(generation, room) if edits.is_on else room

    async def _on_lines_after(self, hold: asyncio.Task[None], generation: int, lines: list[bytes]) -> None:
        """Handle lines after the snapshot before their prompt: an answer to them may let a call change files."""
        await asyncio.wait({hold})
        if (pause := self.on_lines(generation, lines)) is not None:
            await pause

    def on_pieces(self, facts: Sequence[Fact]) -> None:
        """Record pieces of text, as nearly all lines are. They have no effects, so they wait in no queue."""
        self.main.record_pieces(facts, self.last_active_ms)
        if not self.dispatcher.answer.is_heard:
            self.dispatcher.on_answer()
            self.dispatcher.note_facts(facts)
            self.dispatcher.note_native_session()

    def _on_fact(self, fact: Fact) -> None:
        state = self.main if fact.child is None else self.children.open(fact.child, fact)
        if fact.type is EventType.SESSION_STARTED:
            return  # it was recorded when the session was created
        self.dispatcher.note_facts((fact,))
        if fact.type is EventType.ITEM_DELTA:
            self.dispatcher.on_answer()
            state.fact(fact)
            return
        if fact.type is EventType.ITEM_STARTED:
            self.dispatcher.on_answer()
        if isinstance(fact.data, ErrorData) and fact.data.code == SESSION_NOT_FOUND and not self.dispatcher.lost_why:
            state.status("conversation_lost", LOST.format(why=fact.data.message))  # `retry_without_resume` repairs it
        elif isinstance(fact.data, ErrorData) and state is self.main and self.limit.may_wait(fact.data.details):
            pass  # the signal after it begins the wait
        elif isinstance(fact.data, ErrorData):
            state.fact(fact._replace(data=after_loss(fact.data, self.dispatcher.lost_why)))
        elif isinstance(fact.data, PermissionData):
            self._on_permission(state, fact, fact.data)
        elif fact.type is EventType.QUESTION_REQUESTED and isinstance(fact.data, QuestionData):
            self.requests.question(state, fact, fact.data)
        else:
            if self.process.sandbox.bounds is not None:
                fact = self.process.sandbox.explain(fact, state.session)
            state.fact(fact)
            if fact.type is EventType.QUESTION_RESOLVED and isinstance(fact.data, QuestionData):
                self.requests.on_question_resolved(fact.data.question_id)
            if state is self.main:
                self.snapshots.on_event()
            if fact.type is EventType.ITEM_COMPLETED:
                self.cap.look()

    def _on_permission(self, state: SessionState, fact: Fact, data: PermissionData) -> None:
        if fact.type is EventType.PERMISSION_REQUESTED:
            self.requests.permission(state, fact, data, self.process.agent or state.session.agent)
        elif not self.requests.withdraw(data.permission_id):
            state.fact(fact)
            self.requests.on_permission_resolved(data.permission_id)

    def _on_tool_check(self, request: Fact) -> None:
        """Check a call that the agent would make without asking; see `ToolCheck`."""
        if isinstance(request.data, PermissionData):
            state = self.children.state_of(request.child)
            self.requests.check(state, request, request.data, self.process.agent or state.session.agent)

    def _on_signal(self, signal: Signal) -> None:
        state = self.children.state_of(signal.child)
        if state is self.main and signal.input in (Input.ACTIVITY, Input.DONE) and self.dispatcher.is_waiting:
            was_at_work, self.dispatcher.has_own_work = self.dispatcher.has_own_work, signal.input is Input.ACTIVITY
            if was_at_work and signal.input is Input.DONE:
                return  # work of the agent's own is over: it does not have the prompt of this turn yet
        if state is self.main and signal.aborted and self.refused_turn == self.main.turn_id:
            signal = replace(signal, input=Input.DONE, error=None, aborted=False)
        if state is self.main and signal.input in (Input.DONE, Input.FAILED):
            error = obj(signal.error)
            is_lost = text(error.get("code")) == SESSION_NOT_FOUND
            if is_lost and self.dispatcher.retry_without_resume(text(error.get("message"))):
                return
            if self.limit.may_wait(details := obj(error.get("details"))):
                self.limit.begin(details)
                return
            is_done = signal.input is Input.DONE and self.main.machine.state != "aborting"
            if must_ask_again(self.main, self.prompt_queue, self.dispatcher.current, signal.metadata, is_done=is_done):
                return self.dispatcher.dispatch_again()
            if is_done and (empty := self.dispatcher.empty_answer()) is not None:
                self.main.record(EventType.ERROR, empty)
                signal = replace(signal, input=Input.FAILED, error={"message": empty.message, "code": empty.code})
            self.dispatcher.forget()
            self._note_login(signal)
        elif state is self.main and signal.input is Input.TAKEN:
            self.offers.take(signal.key)
        elif state is self.main and signal.input is Input.RETURNED:
            self.offers.give_back(signal.key)
            return
        elif signal.aborted:  # a subagent's work was stopped, which is no error
            state.apply(Input.ABORT)
        self.apply(signal.input, signal.key, child=state, **(signal.metadata or {}))

    def _note_login(self, signal: Signal) -> None:
        """Tell the spare agents whether the agent is logged in, as far as the end of a prompt shows that."""
        is_out = text(obj(signal.error).get("code")) in LOGGED_OUT
        if self.deps.spares is not None and self.process.agent is not None and (is_out or signal.input is Input.DONE):
            self.deps.spares.note_answer(self.process.agent, is_logged_in=not is_out)

    # --- the agent's process -----------------------------------------------------------------------------------

    def on_start(self, agent: str, resumed: bool) -> None:
        self._record_exit()
        if resumed and agent in self.native:
            self.native[agent].others_ms = self.deps.clock.now_ms()
        if self.main.ended is not None:
            self.main.record(EventType.SESSION_STARTED, SessionStartedData(metadata={"agent": agent, "resumed": resumed}))

    def on_detach(self) -> None:
        """Drop calls of the process that were not judged yet, and take back what it has not taken in."""
        self.requests.drop_arrivals()
        self.offers.lose()

    def on_exit(self, codec: Codec, exit_: Exit) -> None:
        if self.dispatcher.retry_lost_spare():
            log.warning("agent.spare_died", session_id=self.main.id, agent=codec.name, code=exit_.code, signal=exit_.signal)
            return
        generation, was_resuming = self.process.generation, self.dispatcher.is_resuming(codec)
        self.on_outputs(codec.eof(exit_))
        self.requests.drop_arrivals()
        if generation != self.process.generation:  # the conversation is lost: a new process gets the prompt
            return
        if was_resuming and self.main.machine.state != "aborting" and self.main.machine.agent_at_work:
            why = agent_exit_data(codec.name, exit_, in_turn=True).message or ""
            self.main.status("conversation_lost", LOST.format(why=why))
            if self.dispatcher.retry_without_resume(why):
                return
        self.children.lose()
        if in_turn := self.main.machine.agent_at_work:
            lost_why = self.dispatcher.lost_why
            self.dispatcher.forget()
            if self.main.machine.state != "aborting":
                self.main.record(EventType.ERROR, after_loss(exit_error(codec.name, exit_), lost_why))
            self.apply(Input.EXIT)
        self._exit_data = agent_exit_data(codec.name, exit_, in_turn=in_turn)
        if not self.main.machine.busy:
            self._record_exit()
        self.keeper.on_actor_changed(self)

    def _record_exit(self) -> None:
        """Record `session.ended` of a process that died: after the end of its turn, or before the process that replaces it."""
        exit_data, self._exit_data = self._exit_data, None
        if exit_data is not None:
            self.main.record(EventType.SESSION_ENDED, exit_data)

    def _touch(self) -> None:
        turn = {"turn": self.main.turn_id} if self.main.turn_id else {}
        structlog.contextvars.bind_contextvars(session_id=self.main.id, agent=self.process.agent, **turn)
        self.last_active_ms = self.deps.clock.now_ms()

    def _drop_process(self, *, kill: bool) -> None:
        if self.process.drop(kill=kill):
            self.keeper.on_actor_changed(self)

    def reap(self, *, keeps_work: bool = False) -> bool:
        """Stop a process that is not needed; the next prompt resumes the conversation. False if it goes on: while a turn runs.

        In: `keeps_work`, whether work in the background keeps the process. If not, the person is told what has ended.
        """
        work = self.process.live_work
        if self.main.machine.busy or self.children.is_busy or (work and keeps_work):
            return False
        if work:
            self.main.status("notice", work_ended(work))
        self._drop_process(kill=False)
        return True

    async def _fail_turn(self) -> None:
        """End the turn as if the agent had died. Prompts that it does not have are parked."""
        self.prompt_queue.lose_queued()
        self.children.lose()
        self.dispatcher.forget()
        self._drop_process(kill=False)
        self.apply(Input.EXIT)
        await wait_at_most(self.main.idle(), STOP_S)  # the last snapshot holds the turn open

    async def close(self, *, delete: bool = False, error: ErrorData | None = None) -> None:
        """End the turn (if any) and the process: politely for a while, then it is killed. In: `error`, why the turn fails."""
        if error is not None and self.main.machine.busy and self.main.machine.state != "aborting":
            self.main.record(EventType.ERROR, error)
            if self.local_work is None:
                await self._fail_turn()
        if (work := self.local_work) is not None:
            self.abort()
            await asyncio.wait({work.end}, timeout=STOP_S)
        if delete or self.main.machine.busy:
            self.apply(Input.DELETE)
        self.children.abort()
        self.requests.close()
        await self.dispatcher.close()
        await self.snapshots.close()
        self._drop_process(kill=False)
        await self.process.close()
