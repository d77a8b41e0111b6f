"""One session at work: its agent's process, its prompts, its subagents' sessions.

Owner of: which process is current (`_generation`: lines of an older one are dropped), which prompt is handed when,
and what is asked of the person. Whether a turn runs or ends is `universal.turn`'s business alone: everything that
happens here becomes one of its inputs, and its effects are carried out by `_carry_out`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from shim.agents.handle import AgentHandle
from shim.errors import AgentError, AgentNotFound
from shim.sessions import context
from shim.sessions.branch import Branch
from shim.sessions.deps import SessionDeps
from shim.sessions.requests import Requests
from shim.sessions.rules import Rule
from universal.codec import (
    Codec,
    Command,
    Exit,
    Fact,
    Interrupt,
    InterruptProcess,
    LaunchOptions,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    Signal,
    Stop,
    WriteLine,
)
from universal.events import ErrorData, EventType, ItemData, PermissionData, QuestionData
from universal.items import Item
from universal.jsonvalue import obj, text
from universal.turn import Cancelled, Effect, Ended, Hand, Input, InterruptAgent, KillAgent

log = structlog.get_logger()

CLOSE_S = 3.0
"""For an agent to end by itself when the server stops; the whole stop must stay under 5 s."""
SESSION_NOT_FOUND = "session_not_found"
"""Code of a codec's error: the agent does not know the conversation that it was to resume."""
STDERR_SHOWN_CHARS = 2_000
"""How much of a dead agent's stderr is shown to the person."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A prompt that was accepted: the user message's item and what the agent is to get."""

    item: Item
    prompt: Prompt
    agent: str
    message_id: str = ""


@dataclass(slots=True)
class NativeSession:
    """The agent's own conversation: `id` is its, `started` once it has answered in it."""

    id: str
    started: bool = False


class SessionActor:
    """A root session (or, after a restart, a subagent's, which only can be read)."""

    def __init__(
        self,
        deps: SessionDeps,
        branch: Branch,
        *,
        directory: str,
        open_child: Callable[[SessionActor, str, Fact], Branch],
        rules: Callable[[Branch], list[Rule]],
        on_change: Callable[[SessionActor], None],
        native: dict[str, NativeSession] | None = None,
    ) -> None:
        self.deps = deps
        self.main = branch
        self.directory = directory
        self.children: dict[str, Branch] = {}
        self.native: dict[str, NativeSession] = native or {}
        self.last_active_ms = deps.clock.now_ms()
        self._open_child = open_child
        self._requests = Requests(directory, rules, self._send)
        self._on_change = on_change
        self._accepted: dict[str, Accepted] = {}
        self._agent_name: str | None = None
        self._codec: Codec | None = None
        self._handle: AgentHandle | None = None
        self._generation = 0
        self._launching: asyncio.Task[None] | None = None
        self._waiting_hand: str | None = None
        self._handed: str | None = None
        self._retried_without_resume = False
        self._said_something = False
        self._abort_timer: asyncio.TimerHandle | None = None
        self._stopping: dict[asyncio.Task[None], AgentHandle] = {}
        self.on_interrupt: Callable[[], None] | None = None
        """Set while something of ours (a shell command) runs as the turn, instead of the agent."""

    # --- from clients ------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether an agent's process runs for this session."""
        return self._handle is not None and self._handle.alive

    def prompt(self, accepted: Accepted, title: str | None = None) -> None:
        """Show the prompt, name the session if `title` is given, and hand the prompt over if the agent is free."""
        self._touch()
        self.main.record(EventType.ITEM_COMPLETED, ItemData(item=accepted.item))
        message_id = self.main.projector.transcript.message_of_item(accepted.item.item_id)
        self._accepted[accepted.prompt.key] = replace(accepted, message_id=message_id)
        if title is not None:
            self.main.status("session", title=title)
        self._apply(self.main, Input.PROMPT, accepted.prompt.key)

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
        self._requests.reply_question(reply)

    def wake(self) -> None:
        """A turn of ours begins (a shell command); end it with `finish`."""
        self._touch()
        self._apply(self.main, Input.ACTIVITY)

    def finish(self) -> None:
        """What `wake` began is over."""
        self._apply(self.main, Input.DONE)

    # --- the turn machine's effects ------------------------------------------------------------------------

    def _apply(self, branch: Branch, input_: Input, key: str = "", **metadata: object) -> None:
        self._carry_out(branch, branch.apply(input_, key, **metadata))

    def _carry_out(self, branch: Branch, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Hand(key=key):
                    self._hand(key)
                case Cancelled(keys=keys):
                    for key in keys:
                        self._accepted.pop(key, None)
                        branch.status("prompt", state="cancelled", item_id=key)
                case InterruptAgent():
                    self._interrupt(branch)
                case KillAgent():
                    self._drop_process(kill=True)
                case Ended(reason=reason):
                    if branch is self.main:
                        self._turn_over(reason)
                case _:
                    pass

    def _turn_over(self, reason: str) -> None:
        self._touch()
        self._handed = self._waiting_hand = None
        if self._abort_timer is not None:
            self._abort_timer.cancel()
            self._abort_timer = None
        if reason in ("aborted", "agent_exited"):
            self._end_children()
        self._on_change(self)

    def _end_children(self) -> None:
        for child in self.children.values():
            if child.machine.busy:
                child.apply(Input.ABORT)
                child.apply(Input.ABORT_TIMEOUT)

    def _interrupt(self, branch: Branch) -> None:
        if branch is not self.main:
            return
        if self.on_interrupt is not None:
            self.on_interrupt()
        elif self._waiting_hand is not None:
            # The agent has not been given the prompt: there is nothing to interrupt, and it will not be given.
            self._forget_prompt()
            self._apply(self.main, Input.FAILED)
            return
        elif self.alive:
            self._send(Interrupt())
        else:
            self._apply(self.main, Input.EXIT)
            return
        if self.main.machine.busy:
            loop = asyncio.get_running_loop()
            self._abort_timer = loop.call_later(self.deps.abort_timeout_s, self._abort_timed_out)

    def _abort_timed_out(self) -> None:
        self._abort_timer = None
        log.warning("turn.abort_timed_out", session_id=self.main.id, after_s=self.deps.abort_timeout_s)
        self._apply(self.main, Input.ABORT_TIMEOUT)

    # --- handing prompts over ------------------------------------------------------------------------------

    def _hand(self, key: str) -> None:
        accepted = self._accepted[key]
        if self.alive and self._agent_name == accepted.agent and self._codec is not None:
            self._write_prompt(accepted)
            return
        self._waiting_hand = key
        if self._launching is None or self._launching.done():
            self._launching = asyncio.get_running_loop().create_task(self._launch(), name=f"launch {self.main.id}")

    def _write_prompt(self, accepted: Accepted) -> None:
        self._waiting_hand = None
        self._handed = accepted.prompt.key
        queued = {a.message_id for a in self._accepted.values()}
        missed = context.missed(self.main.conversation, accepted.agent, queued | {accepted.message_id})
        self.main.status(
            "prompt", state="handed", item_id=accepted.item.item_id, agent=accepted.agent, carried=list(missed.message_ids)
        )
        self._said_something = False
        self._send(replace(accepted.prompt, text=missed.text + accepted.prompt.text))

    async def _launch(self) -> None:
        """Start the agent (again) for the prompt that waits, and hand it over, unless it was aborted meanwhile."""
        while (accepted := self._accepted.get(self._waiting_hand or "")) is not None:
            if self.alive and self._agent_name == accepted.agent:
                self._write_prompt(accepted)
                return
            try:
                await self._start(accepted)
            except AgentError as error:
                self._launch_failed(accepted, str(error))
            except Exception as error:
                log.exception("agent.launch_failed", session_id=self.main.id, agent=accepted.agent)
                self._launch_failed(accepted, f"{accepted.agent} could not be started: {error}")

    def _launch_failed(self, accepted: Accepted, message: str) -> None:
        if self._waiting_hand != accepted.prompt.key:
            return
        self._forget_prompt()
        self.main.record(EventType.ERROR, ErrorData(message=message, code="agent_start_failed"))
        self._apply(self.main, Input.FAILED)

    def _forget_prompt(self) -> None:
        """The prompt that was handed over, or waited to be, is answered or lost."""
        for key in (self._waiting_hand, self._handed):
            if key is not None:
                self._accepted.pop(key, None)
        self._waiting_hand = self._handed = None

    async def _start(self, accepted: Accepted) -> None:
        old = self._detach()
        if old is not None:
            await old.stop()
        agent = self.deps.agents.get(accepted.agent)
        if agent is None:
            raise AgentNotFound(f'There is no agent named "{accepted.agent}". Choose another model.')
        name, prompt = agent.spec.name, accepted.prompt
        native = self.native.get(name)
        resume = native is not None and native.started
        codec = agent.spec.make(self.deps.ids.factory())
        self._generation += 1
        generation = self._generation
        options = LaunchOptions(
            binary=agent.located.path or "",
            directory=self.directory,
            native_session_id=native.id if native is not None and resume else None,
            resume=resume,
            model=prompt.model,
            variant=prompt.variant,
            mode=prompt.mode,
        )
        if not resume:
            self._forget(name)
        self._codec, self._agent_name = codec, name  # it may speak, or die, before spawn returns
        try:
            handle = await self.deps.agents.spawn(
                agent,
                options,
                codec,
                lambda lines: self._on_lines(generation, lines),
                lambda exit_: self._on_exit(generation, exit_),
            )
        except BaseException:
            self._codec = None
            raise
        if self._codec is not codec:  # it has exited already, or was dropped (the session is deleted, the server stops)
            handle.kill()
            return
        self._handle = handle
        log.info("agent.spawned", session_id=self.main.id, agent=name, pid=handle.pid, resume=resume)
        self._process(codec.start())

    def _forget(self, agent: str) -> None:
        """A new native conversation begins: the agent knows nothing of what was said before."""
        for message in self.main.conversation.messages.values():
            message.known.discard(agent)

    # --- from the agent --------------------------------------------------------------------------------------

    def _send(self, command: Command) -> None:
        if self._codec is not None:
            self._process(self._codec.send(command))

    def _on_lines(self, generation: int, lines: list[bytes]) -> None:
        codec = self._codec
        self._touch()
        for line in lines:
            if generation != self._generation or codec is None:
                return
            self._process(codec.receive(line))

    def _process(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            match output:
                case Fact():
                    self._fact(output)
                case Signal():
                    self._signal(output)
                case WriteLine(data=data):
                    self._write(data)
                case Stop(why=why, again=again):
                    log.info("agent.stopping", session_id=self.main.id, why=why)
                    self._note_native_id()
                    self._drop_process(kill=False)
                    if again and self._handed is not None:
                        self._hand(self._handed)
                case InterruptProcess():
                    if self._handle is not None:
                        self._handle.interrupt()
        self._note_native_id()

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
        if self._codec is None or self._agent_name is None or self._codec.native_session_id is None:
            return
        native = self.native.get(self._agent_name)
        if native is None or native.id != self._codec.native_session_id:
            self.native[self._agent_name] = NativeSession(self._codec.native_session_id, self._said_something)
            self._on_change(self)
        elif self._said_something and not native.started:
            native.started = True
            self._on_change(self)

    def _branch_of(self, child: str | None) -> Branch:
        return self.children.get(child, self.main) if child is not None else self.main

    def _fact(self, fact: Fact) -> None:
        if fact.type is EventType.SESSION_STARTED and fact.child is None:
            return  # ours was recorded when the session was made
        if fact.child is not None and fact.child not in self.children:
            self.children[fact.child] = self._open_child(self, fact.child, fact)
        if fact.type is EventType.SESSION_STARTED:
            return
        branch = self._branch_of(fact.child)
        if fact.type in (EventType.ITEM_STARTED, EventType.ITEM_DELTA):
            self._said_something = True
            self._retried_without_resume = False
        if fact.type is EventType.PERMISSION_REQUESTED and isinstance(fact.data, PermissionData):
            self._requests.permission(branch, fact, fact.data, self._agent_name or branch.projector.agent)
        elif self._is_lost_conversation(fact):
            branch.status("conversation_lost", text(getattr(fact.data, "message", "")))
        elif fact.type is EventType.QUESTION_REQUESTED and isinstance(fact.data, QuestionData):
            self._requests.question(branch, fact, fact.data)
        else:
            branch.fact(fact)

    def _signal(self, signal: Signal) -> None:
        branch = self._branch_of(signal.child)
        if branch is self.main and signal.input in (Input.DONE, Input.FAILED):
            if self._resume_failed(signal):
                return
            self._forget_prompt()
        elif signal.aborted:  # a subagent's work was stopped: that is no error of it
            branch.apply(Input.ABORT)
        self._apply(branch, signal.input, signal.key, **(signal.metadata or {}))

    def _is_lost_conversation(self, fact: Fact) -> bool:
        """The error that `_resume_failed` mends: nothing that a person should see."""
        return isinstance(fact.data, ErrorData) and fact.data.code == SESSION_NOT_FOUND and not self._retried_without_resume

    def _resume_failed(self, signal: Signal) -> bool:
        """The agent has lost its conversation: start a new one and send ours along as text."""
        return text(obj(signal.error).get("code")) == SESSION_NOT_FOUND and self._start_anew()

    def _start_anew(self) -> bool:
        handed = self._handed
        if handed is None or self._agent_name is None or self._retried_without_resume:
            return False
        self._retried_without_resume = True
        log.warning("agent.conversation_lost", session_id=self.main.id, agent=self._agent_name)
        self.native.pop(self._agent_name, None)
        self._drop_process(kill=True)
        self._hand(handed)
        return True

    def _on_exit(self, generation: int, exit_: Exit) -> None:
        if generation != self._generation or self._codec is None:
            return
        codec, self._codec, self._handle = self._codec, None, None
        log.info("agent.exited", session_id=self.main.id, agent=codec.name, code=exit_.code, signal=exit_.signal)
        self._process(codec.eof(exit_))
        if generation != self._generation:  # its last words were that the conversation is lost: a new process takes the prompt
            return
        for child in self.children.values():
            if child.machine.busy:
                child.apply(Input.EXIT)
        if self.main.machine.busy:
            self._forget_prompt()
            if self.main.machine.state != "aborting":
                self.main.record(EventType.ERROR, _exit_error(codec.name, exit_))
            self._apply(self.main, Input.EXIT)
        self._on_change(self)

    # --- the process's end --------------------------------------------------------------------------------------

    def _touch(self) -> None:
        self.last_active_ms = self.deps.clock.now_ms()

    def _detach(self) -> AgentHandle | None:
        """From now on nothing that the process says counts."""
        handle, self._handle, self._codec = self._handle, None, None
        self._generation += 1
        return handle

    def _drop_process(self, *, kill: bool) -> None:
        handle = self._detach()
        if handle is None:
            return
        if kill:
            handle.kill()
        task = asyncio.get_running_loop().create_task(handle.stop(), name=f"stop {self.main.id}")
        self._stopping[task] = handle
        task.add_done_callback(lambda done: self._stopping.pop(done, None))
        self._on_change(self)

    def reap(self) -> None:
        """The session has been idle for long: its process is not needed; the next prompt resumes."""
        if not self.main.machine.busy and not any(c.machine.busy for c in self.children.values()):
            self._drop_process(kill=False)

    async def close(self, *, delete: bool = False) -> None:
        """End the turn (if any) and the process: politely for CLOSE_S, then it is killed."""
        if delete or self.main.machine.busy:
            self._apply(self.main, Input.DELETE)
        self._end_children()
        if self._launching is not None:
            self._launching.cancel()
            with suppress(asyncio.CancelledError):
                await self._launching
        self._drop_process(kill=False)
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=CLOSE_S)
        for handle in list(self._stopping.values()):
            handle.kill()
        if self._stopping:
            await asyncio.wait(self._stopping)


def _exit_error(agent: str, exit_: Exit) -> ErrorData:
    how = f"signal {exit_.signal}" if exit_.signal is not None else f"exit code {exit_.code}"
    message = f"{agent} exited in the middle of the turn ({how}). Send the prompt again to go on: the conversation is kept."
    stderr = exit_.stderr.strip()[-STDERR_SHOWN_CHARS:]
    if stderr:
        message += f"\n{stderr}"
    return ErrorData(message=message, code="agent_exited", details={"exit_code": exit_.code, "signal": exit_.signal})
