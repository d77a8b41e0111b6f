"""One session at work: its agent's process, its prompts, its subagents' sessions.

Owner of: which process is current (`_generation`: lines of an older one are dropped), which prompt is handed when,
and what is asked of the person. Whether a turn runs or ends is `universal.turn`'s business alone: everything that
happens here becomes one of its inputs, and its effects are carried out by `_carry_out`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import structlog

from shim.agents.handle import AgentHandle
from shim.errors import AgentError, AgentNotFound
from shim.sessions.agent_process import RetiringProcesses, host_calls, move_to_background
from shim.sessions.dependencies import SessionDeps
from shim.sessions.exit_errors import SESSION_NOT_FOUND, agent_exit_data, exit_error, start_error
from shim.sessions.local_work import LOCAL_WORK, LocalWork
from shim.sessions.permissions.requests import Attendance, Requests, gaps_notice, unattended_of_session
from shim.sessions.permissions.trust_gate import trust_gate
from shim.sessions.prompts import context
from shim.sessions.prompts.pending_prompt import PendingPrompt
from shim.sessions.prompts.prompt_dispatch import prepare
from shim.sessions.prompts.prompt_queue import PromptQueue
from shim.sessions.session_entry import NativeSession, note_native_session
from shim.sessions.session_state import SessionState
from shim.sessions.undo.step_snapshots import StepSnapshots
from shim.sessions.undo.undo_notes import UndoNotes
from universal.codec import (
    AgentSpec,
    CheckingCodec,
    Codec,
    Command,
    Exit,
    Fact,
    Interrupt,
    InterruptProcess,
    ModedCodec,
    Output,
    PermissionReply,
    QuestionReply,
    Signal,
    Stop,
    ToolCheck,
    WriteLine,
)
from universal.events import ErrorData, EventType, PermissionData, QuestionData, SessionEndedData, SessionStartedData
from universal.host import HostCall
from universal.jsonvalue import obj, text
from universal.permissions import Policy
from universal.tools.accesses import Place
from universal.turn import Cancelled, DispatchPrompt, Effect, Ended, Input, InterruptAgent, KillAgent
from universal.unattended import Unattended

log = structlog.get_logger()


class SessionActor:
    """A root session (or, after a restart, a subagent's, which only can be read)."""

    def __init__(
        self,
        deps: SessionDeps,
        state: SessionState,
        *,
        directory: str,
        open_child: Callable[[SessionActor, str, Fact], SessionState],
        policy: Callable[[SessionState, str], Policy],
        on_change: Callable[[SessionActor], None],
        native: dict[str, NativeSession] | None = None,
    ) -> None:
        self.deps = deps
        self.main = state
        self.directory = directory
        self.children: dict[str, SessionState] = {}
        self.native: dict[str, NativeSession] = native or {}
        self.last_active_ms = deps.clock.now_ms()
        self._open_child = open_child
        self._policy = policy
        self._place: Place | None = None
        self._gaps_notified = set[str]()
        self._prompt_unattended: Unattended | None = None
        self._requests = Requests(
            self._calls_place,
            lambda state: policy(state, self._mode()),
            self._send,
            self._proceed,
            lambda: deps.ids.new("permission"),
            Attendance(lambda: self.unattended, deps.clock, deps.call_later, deps.unattended_counts),
        )
        self._on_change = on_change
        self.prompt_queue = PromptQueue(state, lambda key: self._apply(state, Input.PROMPT, key))
        self._pending = self.prompt_queue.pending
        self._agent_name: str | None = None
        self._codec: Codec | None = None
        self._handle: AgentHandle | None = None
        self._generation = 0
        self._outputs: deque[Output] = deque()
        self._is_draining = False
        self._bound = (0, "")
        self._launching: asyncio.Task[None] | None = None
        self._pending_dispatch: str | None = None
        self._dispatched: str | None = None
        self._retried_without_resume = False
        self._has_answered = False
        self._abort_timer: asyncio.TimerHandle | None = None
        self.snapshots = StepSnapshots(state, directory, deps.snapshots, lambda input_, key: self._apply(state, input_, key))
        self.undo_lock = asyncio.Lock()
        self.undo_notes = UndoNotes()
        self._exit_data: SessionEndedData | None = None
        self._retiring = RetiringProcesses(state.id)
        self._host = host_calls(deps, directory, lambda: self._codec, self._process)
        self._local_work: LocalWork | None = None
        self._trust = trust_gate(deps, state, directory, policy)
        self._may_use_project_settings = self._has_project_settings = True

    # --- from clients ------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether an agent's process runs for this session."""
        return self._handle is not None and self._handle.alive

    @property
    def queued(self) -> int:
        """Prompts that are not answered yet."""
        return len(self._pending)

    @property
    def unattended(self) -> Unattended:
        """What happens to asks that nobody answers: the last prompt's value, else the session's, else the server's."""
        return self._prompt_unattended or unattended_of_session(self.main.session.record) or self.deps.unattended

    @property
    def open_asks(self) -> int:
        """Permission requests and questions, subagents' included, that wait for a person."""
        return self._requests.open_asks

    def waiting_since_ms(self, state: SessionState | None = None) -> int | None:
        """Since when the oldest ask waits, of one state if given; None if nothing waits."""
        return self._requests.waiting_since_ms(state)

    def prompt(self, pending: PendingPrompt, title: str | None = None) -> None:
        """Show the prompt, name the session if `title` is given, and hand the prompt over if the agent is free."""
        self._touch()
        shown = self.prompt_queue.show(pending)
        if title is not None:
            self.main.status("session", title=title)
        self.prompt_queue.queue(shown)

    def park(self, pending: PendingPrompt) -> None:
        """Show the prompt; an agent is given it with the next one, or by `inbox.resume`."""
        self._touch()
        self.prompt_queue.park(self.prompt_queue.show(pending))

    def abort(self) -> None:
        """Stop the running turn, if there is one."""
        self._touch()
        self._apply(self.main, Input.ABORT)

    def reply_permission(self, reply: PermissionReply) -> None:
        """The person's answer to a permission request of this session or of a subagent's."""
        self._touch()
        self._requests.reply_permission(reply)

    def reply_question(self, reply: QuestionReply) -> None:
        """The person's answers, or their refusal."""
        self._touch()
        if self._trust is None or not self._trust.reply(reply):
            self._requests.reply_question(reply)

    def background(self) -> bool:
        """What the turn waits for works on in the background, and the turn goes on; False if its agent cannot be told so."""
        self._touch()
        return move_to_background(self._codec, self._process)

    def begin_local_work(self, stop: Callable[[], None]) -> None:
        """A turn of ours begins (a shell command); end it with `finish`, soon after `stop` was called at the latest."""
        self._touch()
        self._local_work = LocalWork(stop)
        self._apply(self.main, Input.ACTIVITY)
        self._apply(self.main, Input.OPENED, LOCAL_WORK)
        self.main.apply(Input.DONE)  # the agent has nothing to do in it

    def end_local_work(self) -> None:
        """What `wake` began is over."""
        if self._local_work is not None:
            self._local_work.over.set()
            self._local_work = None
        self.snapshots.finish()
        self._apply(self.main, Input.CLOSED, LOCAL_WORK)

    # --- the turn machine's effects ------------------------------------------------------------------------

    def _apply(self, state: SessionState, input_: Input, key: str = "", **metadata: object) -> None:
        if state is self.main:
            self.snapshots.before(input_)
        self._carry_out(state, state.apply(input_, key, **metadata))

    def _carry_out(self, state: SessionState, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case DispatchPrompt(key=key):
                    self._dispatch(key)
                case Cancelled(keys=keys):
                    self.prompt_queue.cancel(*keys)
                case InterruptAgent():
                    self._interrupt(state)
                case KillAgent():
                    self._drop_process(kill=True)
                case Ended(reason=reason):
                    if state is self.main:
                        self._on_turn_ended(reason)
                    else:
                        self._requests.forget(state)
                case _:
                    pass

    def _on_turn_ended(self, reason: str) -> None:
        self._touch()
        self._forget_prompt()
        self._requests.forget(self.main)
        if self._trust is not None:
            self._trust.cancel()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
            self._abort_timer = None
        if reason in ("aborted", "agent_exited"):
            self._end_children()
        self._record_exit()
        self._on_change(self)

    def _end_children(self) -> None:
        for child in self.children.values():
            if child.machine.busy:
                child.apply(Input.ABORT)
                child.apply(Input.ABORT_TIMEOUT)
                self._requests.forget(child)

    def _interrupt(self, state: SessionState) -> None:
        if state is not self.main:
            return
        if self._local_work is not None:
            self._local_work.stop()
        if not self.main.machine.agent_at_work:
            return  # only work of ours holds the turn: it ends soon
        if self._pending_dispatch is not None:
            # The agent has not been given the prompt: there is nothing to interrupt, and it will not be dispatch.
            self._forget_prompt()
            self._apply(self.main, Input.FAILED)
            return
        if not self.alive:
            self._apply(self.main, Input.EXIT)
            return
        self._send(Interrupt())
        if self.main.machine.busy:
            self._abort_timer = asyncio.get_running_loop().call_later(self.deps.abort_timeout_s, self._abort_timed_out)

    def _abort_timed_out(self) -> None:
        self._abort_timer = None
        log.warning("turn.abort_timed_out", session_id=self.main.id, after_s=self.deps.abort_timeout_s)
        self._apply(self.main, Input.ABORT_TIMEOUT)

    # --- handing prompts over ------------------------------------------------------------------------------

    def _dispatch(self, key: str) -> None:
        pending = self._pending[key]
        if not self.snapshots.look() and self._trust is None and self._ready_for(pending):
            self._write_prompt(pending)
            return
        self._pending_dispatch = key
        if self._launching is None or self._launching.done():
            self._launching = asyncio.get_running_loop().create_task(self._launch(), name=f"launch {self.main.id}")

    def _write_prompt(self, pending: PendingPrompt) -> None:
        self._pending_dispatch = None
        self._dispatched = pending.prompt.key
        self._prompt_unattended = pending.unattended
        dispatch = prepare(self.main, pending, self._pending.values(), self.undo_notes)
        self.prompt_queue.drop_parked(dispatch.carried)
        self.main.status("prompt", state="handed", **dispatch.journal_entry)
        self._has_answered = False
        policy = self._policy_for(pending)
        self._send(replace(dispatch.prompt, rules=policy.for_agent(), session_rules=policy.session_for_agent()))

    def _policy_for(self, pending: PendingPrompt) -> Policy:
        """The permission rules in force for a prompt."""
        return self._policy(self.main, pending.prompt.mode or "")

    def _ready_for(self, pending: PendingPrompt) -> bool:
        is_it = self._agent_name == pending.agent and self._has_project_settings == self._may_use_project_settings
        return self.alive and is_it and self._codec is not None and not pending.refused

    async def _launch(self) -> None:
        """Start the agent (again) for the prompt that waits, and hand it over, unless it was aborted meanwhile.

        The snapshot of the files before the prompt is taken while the agent starts.
        """
        begun = ""
        while (pending := self._pending.get(self._pending_dispatch or "")) is not None:
            key = pending.prompt.key
            if begun == key and self._ready_for(pending):
                self._write_prompt(pending)
                continue  # an agent that must be started again for it has given the prompt back
            try:
                if begun != key and not await self._still_waits(pending):
                    continue
                if not begun:  # the rules hold from the agent's first call on
                    await self.deps.config_refresh(self.directory)
                    self._place = self._place or await self.deps.find_place(self.directory)
                    self.snapshots.look()
                start = () if self._ready_for(pending) else (self._start(pending),)
                begin = () if begun == key else (self.snapshots.begin(),)
                begun = key
                await asyncio.gather(*start, *begin)
            except AgentError as error:
                self._launch_failed(pending, str(error))
            except Exception as error:
                log.exception("agent.launch_failed", session_id=self.main.id, agent=pending.agent)
                self._launch_failed(pending, f"{pending.agent} could not be started: {error}")

    async def _still_waits(self, pending: PendingPrompt) -> bool:
        """Find out whether the agent may use the project's settings, which may ask a person. False if the turn is over."""
        agent = self.deps.agents.get(pending.agent)
        if self._trust is not None and agent is not None and not pending.refused:
            may_use = await self._trust.may_use(agent.spec)
            self._may_use_project_settings = bool(may_use)
        return self._pending_dispatch == pending.prompt.key

    def _launch_failed(self, pending: PendingPrompt, message: str) -> None:
        if self._pending_dispatch != pending.prompt.key:
            return
        self._forget_prompt()
        self.main.record(EventType.ERROR, start_error(pending, message))
        self._apply(self.main, Input.FAILED)

    def _forget_prompt(self) -> None:
        """The prompt that was handed over is answered or lost; one that waited to be handed waits in the inbox now."""
        handed, waiting = self._dispatched, self._pending_dispatch
        self._dispatched = self._pending_dispatch = None
        self._pending.pop(handed or "", None)
        self.prompt_queue.cancel(waiting or "")

    async def _start(self, pending: PendingPrompt) -> None:
        pending.require_choice()
        if (old := self._detach()) is not None:
            await old.stop()
        agent = self.deps.agents.get(pending.agent)
        if agent is None:
            raise AgentNotFound(f'There is no agent named "{pending.agent}". Choose another model.')
        name = agent.spec.name
        options = pending.launch_options(agent.located.path or "", self.directory, self.native.get(name), self.main.variables)
        self._has_project_settings = self._may_use_project_settings
        options = replace(options, rules=self._policy_for(pending).for_agent(), project_settings=self._has_project_settings)
        codec = agent.spec.make(self.deps.ids.factory())
        self._generation += 1
        generation = self._generation
        if not options.resume:
            context.forget(self.main.session, name)
        self._codec, self._agent_name = codec, name  # it may speak, or die, before spawn returns
        try:
            handle = await self.deps.agents.spawn(
                agent,
                options,
                codec,
                partial(self._on_lines, generation),
                lambda exit_: self._on_exit(generation, exit_),
            )
        except BaseException:
            self._codec = None
            raise
        if self._codec is not codec:  # it has exited already, or was dropped (the session is deleted, the server stops)
            handle.kill()
            return
        self._handle = handle
        self._record_exit()
        if self.main.ended is not None:
            self.main.record(EventType.SESSION_STARTED, SessionStartedData(metadata={"agent": name, "resumed": options.resume}))
        self._notify_gaps(pending, agent.spec)
        log.info("agent.spawned", session_id=self.main.id, agent=name, pid=handle.pid, resume=options.resume)
        self._process(codec.start())

    def _notify_gaps(self, pending: PendingPrompt, spec: AgentSpec) -> None:
        """Tell a person, once for each agent, which of their rules cannot be enforced with it."""
        policy = self._policy(self.main, pending.prompt.mode or "")
        gaps = spec.enforcement.gaps((*policy.config, *policy.session))
        if gaps and spec.name not in self._gaps_notified:
            self._gaps_notified.add(spec.name)
            self.main.status("notice", gaps_notice(spec.title, gaps))

    # --- from the agent --------------------------------------------------------------------------------------

    def _send(self, command: Command) -> None:
        if self._codec is not None:
            self._process(self._codec.send(command))

    def _on_lines(self, generation: int, lines: list[bytes]) -> Awaitable[None] | None:
        codec = self._codec
        if self._bound != (generation, self.main.turn_id):  # a pump's context stays as it is from read to read
            self._bound = (generation, self.main.turn_id)
            self._touch()
        else:
            self.last_active_ms = self.deps.clock.now_ms()
        with self.deps.changes.burst(), self.main.burst():
            for line in lines:
                if generation != self._generation or codec is None:
                    return None
                self._process(codec.receive(line))
        if self.main.too_much():
            self.abort()
        return self.deps.store.room()

    def _process(self, outputs: Sequence[Output]) -> None:
        """Carry out what the codec says, in order. What that makes it say is carried out next, before the rest."""
        self._outputs.extendleft(reversed(outputs))
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self._outputs:
                self._carry_out_output(self._outputs.popleft())
        finally:
            self._is_draining = False
            self._outputs.clear()
        self._note_native_id()

    def _carry_out_output(self, output: Output) -> None:
        match output:
            case Fact():
                self._fact(output)
            case ToolCheck(request=request):
                self._check(request)
            case Signal():
                self._signal(output)
            case WriteLine(data=data):
                self._write(data)
            case Stop(why=why, again=again):
                log.info("agent.stopping", session_id=self.main.id, why=why)
                self._note_native_id()
                self._drop_process(kill=False)
                if again and self._dispatched is not None:
                    self._dispatch(self._dispatched)
            case InterruptProcess():
                if self._handle is not None:
                    self._handle.interrupt()
            case HostCall():
                self._host.do(output)

    def _write(self, data: bytes) -> None:
        if self._handle is None:
            return
        try:
            self._handle.write(data)
        except AgentError as error:
            # Its exit is reported by on_exit; a stuck one is ended here.
            log.warning("agent.write_failed", session_id=self.main.id, error=str(error))
            self._handle.kill()

    def _note_native_id(self) -> None:
        id_ = self._codec.native_session_id if self._codec is not None else None
        if id_ and self._agent_name and note_native_session(self.native, self._agent_name, id_, started=self._has_answered):
            self._on_change(self)

    def _state_of(self, child: str | None) -> SessionState:
        return self.children.get(child, self.main) if child is not None else self.main

    def _fact(self, fact: Fact) -> None:
        if fact.type is EventType.SESSION_STARTED and fact.child is None:
            return  # ours was recorded when the session was made
        if fact.child is not None and fact.child not in self.children:
            self.children[fact.child] = self._open_child(self, fact.child, fact)
        if fact.type is EventType.SESSION_STARTED:
            return
        state = self._state_of(fact.child)
        if fact.type in (EventType.ITEM_STARTED, EventType.ITEM_DELTA):
            self._has_answered = True
            self._retried_without_resume = False
        if fact.type is EventType.PERMISSION_REQUESTED and isinstance(fact.data, PermissionData):
            self._requests.permission(state, fact, fact.data, self._agent_name or state.session.agent)
        elif self._is_lost_conversation(fact):
            state.status("conversation_lost", text(getattr(fact.data, "message", "")))
        elif fact.type is EventType.PERMISSION_RESOLVED and isinstance(fact.data, PermissionData):
            if not self._requests.withdraw(fact.data.permission_id):
                state.fact(fact)
                self._requests.on_permission_resolved(fact.data.permission_id)
        elif fact.type is EventType.QUESTION_REQUESTED and isinstance(fact.data, QuestionData):
            self._requests.question(state, fact, fact.data)
        else:
            state.fact(fact)
            if fact.type is EventType.QUESTION_RESOLVED and isinstance(fact.data, QuestionData):
                self._requests.on_question_resolved(fact.data.question_id)
            if state is self.main:
                self.snapshots.on_event()

    def _calls_place(self) -> Place:
        """Where the agent's calls are made: `_launch` has found it, and calls come from agents that it has started."""
        assert self._place is not None
        return self._place

    def _mode(self) -> str:
        return self._codec.mode if isinstance(self._codec, ModedCodec) else ""

    def _check(self, request: Fact) -> None:
        """A call that the agent would make without asking; see `ToolCheck`."""
        if isinstance(request.data, PermissionData):
            state = self._state_of(request.child)
            agent = self._agent_name or state.session.agent
            self._requests.check(state, request, request.data, agent)

    def _proceed(self, permission_id: str) -> None:
        if isinstance(self._codec, CheckingCodec):
            self._process(self._codec.proceed(permission_id))

    def _signal(self, signal: Signal) -> None:
        state = self._state_of(signal.child)
        if state is self.main and signal.input in (Input.DONE, Input.FAILED):
            if self._resume_failed(signal):
                return
            self._forget_prompt()
        elif signal.aborted:  # a subagent's work was stopped: that is no error of it
            state.apply(Input.ABORT)
        self._apply(state, signal.input, signal.key, **(signal.metadata or {}))

    def _is_lost_conversation(self, fact: Fact) -> bool:
        """The error that `_resume_failed` mends: nothing that a person should see."""
        return isinstance(fact.data, ErrorData) and fact.data.code == SESSION_NOT_FOUND and not self._retried_without_resume

    def _resume_failed(self, signal: Signal) -> bool:
        """The agent has lost its conversation: start a new one and send ours along as text."""
        return text(obj(signal.error).get("code")) == SESSION_NOT_FOUND and self._start_anew()

    def _start_anew(self) -> bool:
        handed = self._dispatched
        if handed is None or self._agent_name is None or self._retried_without_resume:
            return False
        self._retried_without_resume = True
        log.warning("agent.conversation_lost", session_id=self.main.id, agent=self._agent_name)
        self.native.pop(self._agent_name, None)
        self._drop_process(kill=True)
        self._dispatch(handed)
        return True

    def _on_exit(self, generation: int, exit_: Exit) -> None:
        if generation != self._generation or self._codec is None:
            return
        codec, self._codec, self._handle = self._codec, None, None
        self._host.drop()
        log.info("agent.exited", session_id=self.main.id, agent=codec.name, code=exit_.code, signal=exit_.signal)
        self._process(codec.eof(exit_))
        self._requests.drop_arrivals()
        if generation != self._generation:  # its last words were that the conversation is lost: a new process takes the prompt
            return
        for child in self.children.values():
            if child.machine.busy:
                child.apply(Input.EXIT)
                self._requests.forget(child)
        if in_turn := self.main.machine.agent_at_work:
            self._forget_prompt()
            if self.main.machine.state != "aborting":
                self.main.record(EventType.ERROR, exit_error(codec.name, exit_))
            self._apply(self.main, Input.EXIT)
        self._exit_data = agent_exit_data(codec.name, exit_, in_turn=in_turn)
        if not self.main.machine.busy:
            self._record_exit()
        self._on_change(self)

    def _record_exit(self) -> None:
        """`session.ended` of a process that died: after the end of its turn, or before the process that takes its place."""
        exited, self._exit_data = self._exit_data, None
        if exited is not None:
            self.main.record(EventType.SESSION_ENDED, exited)

    # --- the process's end --------------------------------------------------------------------------------------

    def _touch(self) -> None:
        structlog.contextvars.bind_contextvars(session_id=self.main.id, turn=self.main.turn_id, agent=self._agent_name)
        self.last_active_ms = self.deps.clock.now_ms()

    def _detach(self) -> AgentHandle | None:
        """From now on nothing that the process says counts."""
        handle, self._handle, self._codec = self._handle, None, None
        self._generation += 1
        self._host.drop()
        self._requests.drop_arrivals()
        return handle

    def _drop_process(self, *, kill: bool) -> None:
        if (handle := self._detach()) is not None:
            self._retiring.add(handle, kill=kill)
            self._on_change(self)

    def reap(self) -> None:
        """The session has been idle for long: its process is not needed; the next prompt resumes."""
        if not self.main.machine.busy and not any(c.machine.busy for c in self.children.values()):
            self._drop_process(kill=False)

    async def close(self, *, delete: bool = False) -> None:
        """End the turn (if any) and the process: politely for a while, then it is killed."""
        if (own := self._local_work) is not None:
            self.abort()
            await own.wait()
        if delete or self.main.machine.busy:
            self._apply(self.main, Input.DELETE)
        self._end_children()
        self._requests.close()
        if self._launching is not None:
            self._launching.cancel()
            with suppress(asyncio.CancelledError):
                await self._launching
        await self.snapshots.close()
        self._drop_process(kill=False)
        await self._retiring.close()
        await self._host.close()
