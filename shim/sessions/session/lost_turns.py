"""What becomes of a turn whose server has ended: it is taken up from the tape of its agent, or ended as lost.

With a tape (`shim.sessions.session.tape`), a fresh codec gets the calls and lines that the store has taken in, silently. The
session then goes on from the row: its turn machine, its prompts, its open requests. Lines that the agent has not got are sent,
and what it has said since is taken in as if it came now. Whatever does not fit exactly is refused, and the turn ends as lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import structlog

from shim.agents.sandboxes import view
from shim.lib.errors import StoreError
from shim.processes import process_family
from shim.processes.held_process import HeldProcess, NumberedLine, tape_of
from shim.sessions.prompts.pending_prompt import PendingPrompt
from shim.sessions.prompts.prompt_dispatch import Answer
from shim.sessions.prompts.prompt_payload import pending_prompt_of
from shim.sessions.session.actor import SessionActor
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.exit_errors import SERVER_LOST, SERVER_STOPPED
from shim.sessions.session.session_state import SessionState
from shim.sessions.session.tape import ROWS, Tape, Tapes, calls_of, read_call
from shim.sessions.undo.step_snapshots import HOLD
from shim.store.base import Store
from universal.codec import Fact, Output, PermissionReply, Prompt, QuestionReply, SetTimer, ToolCheck
from universal.events import ErrorData, EventType, ItemData, PermissionData, QuestionData
from universal.lib.jsonvalue import JsonObject
from universal.sandbox import Bounds
from universal.turn import Input, State, TurnMachine

log = structlog.get_logger()

PAGE = 1_000
"""Events of a journal that are read at once, from its end on, to find a prompt."""


class NotExact(Exception):
    """The turn cannot be taken up as it was."""


def end_turn(state: SessionState, lost_server: str = "") -> bool:
    """End the turn that ran when the server stopped, if the journal has one, and all prompts that waited then.

    In: `lost_server`, the name of another. Out: whether there was any of it.
    """
    lost_prompts = state.pending_prompts.without_answer()
    is_lost = state.machine.busy or bool(lost_prompts)
    if state.machine.busy:
        log.warning("turn.lost", session_id=state.id, server=lost_server)
        message = SERVER_LOST.format(name=lost_server) if lost_server else SERVER_STOPPED
        state.record(EventType.ERROR, ErrorData(message=message, code="agent_exited"))
    for pending in lost_prompts:
        state.lose_prompt(pending)
    if state.machine.busy:
        state.apply(Input.EXIT)
    return is_lost


def state_of(actor: SessionActor) -> JsonObject | None:
    """What the row of a tape says of its session. None if nobody could go on: with subagents, offers, or work of the server."""
    main, dispatcher, process = actor.main, actor.dispatcher, actor.process
    has_more = any(True for _ in actor.children) or actor.local_work.is_running or actor.limit.is_waiting or main.machine.offers
    if has_more or main.journal.is_behind or process.agent is None:
        return None
    return {
        "is_busy": main.machine.busy,
        "machine": main.machine.to_json(),
        "sequence": main.sequence,
        "turn_metadata": main.turn_metadata,
        "agent": process.agent,
        "process": [process.resumes, process.reads_project, dispatcher.may_use_project_settings],
        "prompts": [dispatcher.current_key, dispatcher.waiting_key],
        "marks": [actor.refused_turn, actor.has_own_work],
        "chosen": list(process.chosen),
    }


def watch(actor: SessionActor, tape: Tape) -> None:
    """Keep the row of a tape current."""
    tape.state = partial(state_of, actor)
    actor.main.journal.on_queue = tape.touch
    tape.touch()


def leave(actor: SessionActor, tapes: Tapes | None) -> bool:
    """Let a working agent go on without this server. False if it is to be ended."""
    tape = actor.process.tape
    if tapes is None or not tapes.leaves or tape is None or tape.process is None or not actor.main.machine.busy:
        return False
    if tape.row() is None:
        return False
    tape.renew_lease(is_busy=True)
    tape.process.leave()
    log.info("tape.left", session_id=actor.main.id, pid=tape.process.pid)
    return True


async def take_up(deps: SessionDeps, state: SessionState, actor_of: Callable[[], SessionActor]) -> bool:
    """Take up the turn of a session that was loaded just now. False if it is to be ended: then its agent has ended."""
    tapes = deps.tapes
    row = None if tapes is None else (await deps.store.values(ROWS)).get(state.id)
    if tapes is None or row is None:
        return False
    try:
        await _Replay(deps, tapes, state, row).take_up(actor_of())
    except (NotExact, OSError, StoreError, LookupError, TypeError, ValueError) as error:
        if state.machine.busy:
            log.warning("tape.not_taken_up", session_id=state.id, why=f"{type(error).__name__}: {error}")
        tapes.remove(state.id, int(row["calls"]))
        await asyncio.to_thread(process_family.end_owned, row["token"])
        return False
    log.info("tape.taken_up", session_id=state.id, pid=row["pid"], lines=row["lines"])
    return True


@dataclass(slots=True)
class _Open:
    """What a codec has said that is not answered or over. `asks`: a call, and whether it is a `ToolCheck`."""

    asks: dict[str, tuple[Fact, bool]] = field(default_factory=dict[str, tuple[Fact, bool]])
    questions: dict[str, Fact] = field(default_factory=dict[str, Fact])
    timers: dict[str, SetTimer] = field(default_factory=dict[str, SetTimer])
    answer: Answer = field(default_factory=Answer)

    def call(self, name: str, args: Sequence[Any]) -> None:
        """Note a call of the codec."""
        match args:
            case [Prompt()]:
                self.answer = Answer()
            case [PermissionReply(permission_id=id_)]:
                self.asks.pop(id_, None)
            case [QuestionReply(question_id=id_)]:
                self.questions.pop(id_, None)
            case [str() as id_]:
                (self.asks if name == "proceed" else self.timers).pop(id_, None)
            case _:
                pass

    def note(self, outputs: Sequence[Output]) -> None:
        """Note what the codec has said."""
        for output in outputs:
            match output:
                case Fact():
                    self._fact(output)
                case ToolCheck(request=request) if isinstance(request.data, PermissionData):
                    self.asks[request.data.permission_id] = request, True
                case SetTimer():
                    self.timers.pop(output.key, None)
                    if output.after_s is not None:
                        self.timers[output.key] = output
                case _:
                    pass

    def _fact(self, fact: Fact) -> None:
        if fact.type in (EventType.ITEM_DELTA, EventType.ITEM_STARTED):
            self.answer.begin()
        self.answer.note((fact,))
        match fact.type, fact.data:
            case EventType.PERMISSION_REQUESTED, PermissionData(permission_id=id_):
                self.asks[id_] = fact, False
            case EventType.PERMISSION_RESOLVED, PermissionData(permission_id=id_):
                self.asks.pop(id_, None)
            case EventType.QUESTION_REQUESTED, QuestionData(question_id=id_):
                self.questions[id_] = fact
            case EventType.QUESTION_RESOLVED, QuestionData(question_id=id_):
                self.questions.pop(id_, None)
            case _:
                pass


class _Replay:
    """The way from a row to a session at work."""

    def __init__(self, deps: SessionDeps, tapes: Tapes, state: SessionState, row: JsonObject) -> None:
        self._deps = deps
        self._tapes = tapes
        self._main = state
        self._row = row
        self._said = row["state"]
        self._open = _Open()
        self._skip = int(row["lines"])
        self._bounds: Bounds | None = None

    async def take_up(self, actor: SessionActor) -> None:
        """Go on with the turn. Raises NotExact, OSError, and what values of another form raise."""
        main, deps, row, said = self._main, self._deps, self._row, self._said
        machine = TurnMachine.of_json(said["machine"])
        if main.machine.state is not State.RESTORED or not machine.busy or said["sequence"] != main.sequence:
            raise NotExact(f"the journal has {main.sequence} events, the tape speaks of {said['sequence']}")
        agent = deps.agents.get(said["agent"])
        if agent is None:
            raise NotExact("its agent is not there")
        tape = Tape(self._tapes, main.id, partial(state_of, actor), row)
        codec = agent.spec.make(tape.new_id)
        take: Any = None

        def on_lines(lines: list[bytes]) -> Any:
            new = lines[self._skip :]
            self._skip = max(0, self._skip - len(lines))
            return take[0](new) if new else None

        env = deps.agents.environment()
        process = await HeldProcess.attach(
            tape.hold, int(row["pid"]), env, on_lines=on_lines, on_exit=lambda exit_: take[1](exit_)
        )
        try:
            lines, written = await asyncio.to_thread(tape_of, tape.hold.folder / "tape")
            tape.listen(codec)
            due = self._replay(tape, codec, lines, await self._calls())
            current, waiting = said["prompts"]
            prompts = await self._prompts(machine, current, waiting)
            open_ids = {*main.session.permissions, *main.session.questions}
            if open_ids - self._open.asks.keys() - self._open.questions.keys():
                raise NotExact("a question of the server itself is open")
            await deps.config_refresh(actor.directory)
            actor.dispatcher.known_place = await deps.find_place(actor.directory)
        except BaseException:  # whatever it is, its agent ends
            process.leave()
            raise
        main.machine, main.turn_metadata = machine, dict(said["turn_metadata"])
        main.config_at_start = deps.config_now(actor.directory)
        actor.refused_turn, actor.has_own_work = said["marks"]
        actor.prompt_queue.pending |= prompts
        dispatcher = actor.dispatcher
        dispatcher.current_key, dispatcher.turn_id, dispatcher.answer = current, main.turn_id, self._open.answer
        if current is not None:
            dispatcher.unattended = prompts[current].unattended_policy
            actor.gate.cap.begin(prompts[current].caps)
        resumes, reads_project, may_use = said["process"]
        dispatcher.may_use_project_settings, dispatcher.has_project_settings = may_use, reads_project
        seen = await view(agent.spec, self._bounds, agent.located.path or "", actor.directory, env)
        actor.process.sandbox.hold(self._bounds, self._bounds, seen, may_change=True)
        tape.process = process
        actor.process.chosen = (said["chosen"][0], said["chosen"][1])
        take = actor.process.take_up(said["agent"], codec, process, tape, resumes=resumes, reads_project=reads_project)
        for number in sorted(due.keys() - written):
            process.write(NumberedLine.of(due[number], number))
        await self._resume(actor, waiting)
        process.begin(said["agent"])
        watch(actor, tape)

    async def _calls(self) -> list[tuple[int, str, list[Any]]]:
        stored = await self._deps.store.values(calls_of(self._main.id))
        calls = [stored[str(number)] for number in range(1, int(self._row["calls"]) + 1)]
        return [(int(call["at"]), *read_call(call)) for call in calls]

    def _replay(
        self, tape: Tape, codec: Any, lines: Sequence[bytes], calls: Sequence[tuple[int, str, list[Any]]]
    ) -> dict[int, bytes]:
        """Bring a codec to where the row is. Out: the lines that it has written, by their numbers."""
        due = tape.due = {}
        for at, name, args in (*calls, (int(self._row["lines"]), "", [])):
            while tape.lines < at:
                self._open.note(codec.receive(lines[tape.lines]))
            if name:
                self._bounds = args[0].bounds if name == "launch" else self._bounds
                self._open.call(name, args)
                outputs: Any = getattr(codec, name)(*args)
                if isinstance(outputs, list):
                    self._open.note(cast("list[Output]", outputs))
        tape.calls, tape.due = int(self._row["calls"]), None
        if (tape.outputs, tape.writes) != (self._row["outputs"], self._row["writes"]):
            raise NotExact("the agent's lines give something else than they gave")
        return due

    async def _prompts(self, machine: TurnMachine, current: str | None, waiting: str | None) -> dict[str, PendingPrompt]:
        """The prompts of the turn, by their keys."""
        stored = {prompt.prompt.key: prompt for prompt in self._main.pending_prompts.prompts.values()}
        prompts = {key: stored[key] for key in (*machine.queue, *([waiting] if waiting else ()))}
        if current is not None and current not in prompts:
            pending = await _find_prompt(self._deps.store, self._main.id, self._main.sequence, current)
            prompts[current] = replace(pending, message_id=self._main.reducer.transcript.prompt_of_item.get(current, ""))
        return prompts

    async def _resume(self, actor: SessionActor, waiting: str | None) -> None:
        """Begin again what the other server did beside the agent."""
        main, open_, name = self._main, self._open, self._said["agent"]
        actor.snapshots.look()
        if HOLD in main.machine.open:
            actor.snapshots.finish_again()
        elif self._said["prompts"][0] is not None and not open_.answer.has_begun:
            await actor.snapshots.begin(may_lines_wait=True)
            actor.snapshots.hold_lines()
        for timer in open_.timers.values():
            actor.process.set_timer(timer)
        for id_, (fact, is_check) in open_.asks.items():
            assert isinstance(fact.data, PermissionData)
            if id_ in main.session.permissions:
                actor.requests.restore(main, fact, fact.data, name)
            else:
                (actor.requests.check if is_check else actor.requests.permission)(main, fact, fact.data, name)
        for id_, fact in open_.questions.items():
            if id_ in main.session.questions:
                actor.requests.wait(id_, main)
            elif isinstance(fact.data, QuestionData):
                actor.requests.question(main, fact, fact.data)
        if main.machine.state is State.ABORTING:
            loop, after_s = asyncio.get_running_loop(), self._deps.abort_timeout_s
            actor.abort_timer = loop.call_later(after_s, actor.on_abort_timeout)
        if waiting:
            actor.dispatcher.dispatch(waiting)


async def _find_prompt(store: Store, session_id: str, sequence: int, key: str) -> PendingPrompt:
    """The prompt with this key, searched from the end of a journal on. Raises NotExact."""
    while sequence > 0:
        sequence = max(0, sequence - PAGE)
        for event in await store.events(session_id, sequence, PAGE):
            item = event.data.item if isinstance(event.data, ItemData) else None
            if item is not None and item.item_id == key and (pending := pending_prompt_of(item)) is not None:
                return pending
    raise NotExact("its prompt is not in the journal")
