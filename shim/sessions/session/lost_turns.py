"""What becomes of a turn whose server has ended: it is taken up from the tape of its agent, or ended as lost.

With a tape (`shim.sessions.session.tape`), a fresh codec gets the calls and lines that the store has taken in, silently: those
up to the row, and those whose pieces of text the journal has after it. The session then goes on from the row: its turn machine,
its prompts, its open requests. Lines that the agent has not got are sent, and what it has said since is taken in as if it came
now. Whatever does not fit exactly is refused, and the turn ends as lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, cast

import structlog

from shim.agents.sandboxes import view
from shim.lib.errors import ShimError
from shim.processes import process_family
from shim.processes.held_process import HeldProcess, NumberedLine, dismiss, tape_of
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
from universal.events import ErrorData, EventType, ItemData, PermissionData, QuestionData, UniversalEvent
from universal.host import CommandEnded, HostCall, HostDone, ReadText, RunCommand, StopCommand, WriteText
from universal.launch import LaunchOptions
from universal.lib.jsonvalue import JsonObject, obj, text
from universal.sandbox import Bounds
from universal.turn import Input, State, TurnMachine

log = structlog.get_logger()

COMMAND_LOST = "The server was restarted before the command began. Run it again."
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
    """What the row of a tape says of its session. None if nobody could go on: while the server itself does some of the work."""
    main, dispatcher, process = actor.main, actor.dispatcher, actor.process
    if actor.local_work is not None or process.edits.is_waiting or main.journal.is_behind:
        return None
    children: JsonObject = {}
    for key, child in actor.children.states.items():
        if child.journal.is_behind:
            return None
        children[key] = [child.id, _turn_of(child) if child.machine.busy else None]
    is_busy = main.machine.busy
    return {
        "is_busy": is_busy,
        "is_at_work": is_busy or _is_at_work(actor),
        **_turn_of(main),
        "agent": process.agent,
        "process": [process.resumes, process.reads_project, dispatcher.may_use_project_settings, process.edits.is_on],
        "prompts": [dispatcher.current_key, dispatcher.waiting_key],
        "changes": {key: changes for key, prompt in actor.prompt_queue.pending.items() if (changes := prompt.changes)},
        "cap": actor.cap.to_json(),
        "waits_for_snapshot": actor.snapshots.hold is not None,
        "marks": [actor.refused_turn, actor.dispatcher.has_own_work],
        "chosen": list(process.chosen),
        "children": children,
        "requests": actor.requests.to_json(),
        "counts": actor.requests.counts(),
        "offers": actor.offers.to_json(),
        "limit": actor.limit.to_json(),
    }


def _is_at_work(actor: SessionActor) -> bool:
    """Whether a turn runs, or the agent works in the background."""
    return actor.main.machine.busy or actor.children.is_busy or bool(actor.process.live_work)


def _turn_of(state: SessionState) -> JsonObject:
    return {"machine": state.machine.to_json(), "sequence": state.journal.sequence, "turn_metadata": state.turn_metadata}


def _go_on(state: SessionState, said: JsonObject) -> None:
    """Let the turn of a journal run again. Raises NotExact."""
    machine = TurnMachine.of_json(said["machine"])
    if state.machine.state is not State.RESTORED or not machine.busy or said["sequence"] != state.sequence:
        raise NotExact(f"the journal of {state.id} has {state.sequence} events, the tape speaks of {said['sequence']}")
    state.machine, state.turn_metadata = machine, dict(said["turn_metadata"])


def watch(actor: SessionActor, tape: Tape) -> None:
    """Keep the row of a tape current."""
    tape.state = partial(state_of, actor)
    for state in (actor.main, *actor.children.states.values()):
        state.journal.on_queue = tape.touch
    tape.touch()


def outlives(actor: SessionActor) -> bool:
    """Whether the running turn of a session, or its work in the background, can go on when this server ends."""
    tape = actor.process.tape
    return tape is not None and _is_at_work(actor) and tape.row() is not None


def leave(actor: SessionActor, tapes: Tapes | None) -> bool:
    """Let a working agent go on without this server. False if it is to be ended."""
    tape = actor.process.tape
    if tapes is None or not tapes.leaves or tape is None or not outlives(actor):
        return False
    tape.renew_lease(is_busy=True)
    actor.process.leave()
    log.info("tape.left", session_id=actor.main.id, pid=tape.process.pid if tape.process is not None else None)
    return True


async def is_taken_up(deps: SessionDeps, session_id: str | None) -> bool:
    """Whether a tape speaks of this session."""
    return deps.tapes is not None and session_id in await deps.store.values(ROWS)


LoadChild: TypeAlias = Callable[[str], Awaitable[tuple[SessionState, Callable[[SessionActor], None]]]]
"""Reads the session of a subagent. Out: it, and a function that takes it as that of an actor. Raises ShimError."""


async def take_up(deps: SessionDeps, state: SessionState, actor_of: Callable[[], SessionActor], load_child: LoadChild) -> bool:
    """Take up the turn of a session that was loaded just now. False if it is to be ended: then its agent has ended."""
    tapes = deps.tapes
    row = None if tapes is None else (await deps.store.values(ROWS)).get(state.id)
    if tapes is None or row is None:
        return False
    try:
        await _Replay(deps, tapes, state, row, load_child).take_up(actor_of())
    except Exception as error:  # whatever a codec raises: a server starts without this turn
        if not isinstance(error, (NotExact, OSError, ShimError, LookupError, TypeError, ValueError)):
            log.exception("tape.replay_failed", session_id=state.id)
        elif state.machine.busy:
            log.warning("tape.not_taken_up", session_id=state.id, why=f"{type(error).__name__}: {error}")
        await _end_agent(Tape(tapes, state.id, lambda: None, row), row)
        tapes.remove(state.id, int(row["calls"]))  # together with the end of its turn
        return False
    log.info("tape.taken_up", session_id=state.id, pid=row["pid"], lines=row["lines"])
    return True


async def _end_agent(tape: Tape, row: JsonObject) -> None:
    """End the agent of a row, and its holder. There may be neither."""
    await asyncio.to_thread(process_family.end_owned, row["token"])
    await dismiss(tape.hold, int(row["pid"] or 0))


@dataclass(slots=True)
class Open:
    """What a codec has said that is not answered or over.

    asks      a call, and whether it is a `ToolCheck`
    host      a file or command call, and whether its command has started
    """

    asks: dict[str, tuple[Fact, bool]] = field(default_factory=dict[str, tuple[Fact, bool]])
    questions: dict[str, Fact] = field(default_factory=dict[str, Fact])
    timers: dict[str, SetTimer] = field(default_factory=dict[str, SetTimer])
    host: dict[str, tuple[HostCall, bool]] = field(default_factory=dict[str, tuple[HostCall, bool]])
    bounds: Bounds | None = None
    answer: Answer = field(default_factory=Answer)

    def call(self, name: str, args: Sequence[Any]) -> None:
        """Note a call of the codec."""
        match args:
            case [LaunchOptions(bounds=bounds)]:
                self.bounds = bounds
            case [Prompt()]:
                self.answer = Answer()
            case [HostDone(call=id_, trouble=None)] if isinstance(self.host.get(id_, (None,))[0], RunCommand):
                self.host[id_] = self.host[id_][0], True
            case [HostDone(call=id_) | CommandEnded(call=id_)]:
                self.host.pop(id_, None)
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
                case StopCommand(release=True):
                    self.host.pop(output.call, None)
                case ReadText() | WriteText() | RunCommand():
                    self.host[output.call] = output, False
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


def read_calls(stored: Mapping[str, Any], row: JsonObject, notes: Sequence[bytes]) -> list[tuple[int, str, list[Any]]]:
    """The calls of a codec up to a row: their places among the lines, names and arguments. Raises as `read_call`, KeyError."""
    calls = [stored[str(number)] for number in range(1, int(row["calls"]) + 1)]
    return [(int(call["at"]), *read_call(call, notes)) for call in calls]


def replay(
    tape: Tape, codec: Any, row: JsonObject, lines: Sequence[bytes], calls: Sequence[tuple[int, str, list[Any]]], open_: Open
) -> dict[int, bytes]:
    """Bring a new codec to where the row is. Out: the lines that it has written, by their numbers. Raises NotExact."""
    due = tape.due = {}
    for at, name, args in (*calls, (int(row["lines"]), "", [])):
        while tape.lines < at:
            open_.note(codec.receive(lines[tape.lines]))
        if name:
            open_.call(name, args)
            outputs: Any = getattr(codec, name)(*args)
            if isinstance(outputs, list):
                open_.note(cast("list[Output]", outputs))
    tape.calls, tape.due = int(row["calls"]), None
    if (tape.outputs, tape.writes) != (row["outputs"], row["writes"]):
        raise NotExact("the agent's lines give something else than they gave")
    return due


def replay_pieces(tape: Tape, codec: Any, lines: Sequence[bytes], events: Sequence[UniversalEvent], open_: Open) -> None:
    """Take in the lines after a row whose pieces of text are stored: no row is written for them. Raises NotExact, IndexError."""
    for event in events:
        outputs: list[Output] = codec.receive(lines[tape.lines])
        if [(type(output), getattr(output, "data", None)) for output in outputs] != [(Fact, event.data)]:
            raise NotExact(f"event {event.sequence} of the journal is none that the agent's lines give")
        open_.note(outputs)


def unsent(due: Mapping[int, bytes], written: AbstractSet[int]) -> list[int]:
    """The numbers of the lines that the agent has not got yet. Raises NotExact."""
    if unknown := written - due.keys():
        raise NotExact(f"the agent has got line {min(unknown)}, which could not be stored")
    return sorted(due.keys() - written)


class _Replay:
    """The way from a row to a session at work."""

    def __init__(self, deps: SessionDeps, tapes: Tapes, state: SessionState, row: JsonObject, load_child: LoadChild) -> None:
        self._deps = deps
        self._load_child = load_child
        self._tapes = tapes
        self._main = state
        self._row = row
        self._said: JsonObject = row["state"]
        self._open = Open()
        self._skip = self._unread = 0

    async def take_up(self, actor: SessionActor) -> None:
        """Go on with the turn. Raises NotExact, OSError, and what values of another form raise."""
        if not self._said.get("is_at_work", self._said["is_busy"]):
            raise NotExact("no turn runs")
        if not self._said["is_busy"]:  # what has ended is over
            self._said = {**self._said, "prompts": [None, None]}
        if self._row["pid"] is None:
            await self._start_again(actor)
        else:
            await self._attach(actor)

    async def _start_again(self, actor: SessionActor) -> None:
        """Start an agent for a prompt that none has: the server has ended before."""
        await _end_agent(Tape(self._tapes, self._main.id, lambda: None, self._row), self._row)
        current, waiting = self._said["prompts"]
        prompts = await self._prompts(current, waiting)
        await self._deps.config_refresh(actor.directory)
        if any(turn is not None for _, turn in self._said["children"].values()):
            raise NotExact("a subagent works")
        _go_on(self._main, self._said)
        self._tapes.remove(self._main.id, int(self._row["calls"]))
        self._main.withdraw_requests()  # those of the server itself: it asks again
        self._restore(actor, prompts)
        actor.snapshots.look()
        actor.dispatcher.dispatch(waiting)

    def _restore(self, actor: SessionActor, prompts: dict[str, PendingPrompt]) -> None:
        main, said, dispatcher, current = self._main, self._said, actor.dispatcher, self._said["prompts"][0]
        actor.refused_turn, actor.dispatcher.has_own_work = said["marks"]
        actor.prompt_queue.pending |= prompts
        dispatcher.current_key, dispatcher.answer = current, self._open.answer
        caps = None
        if current is not None or self._row["pid"] is not None:  # else its first prompt begins the turn's configuration
            dispatcher.turn_id, main.config_at_start = main.turn_id, self._deps.config_now(actor.directory)
        if current is not None:
            dispatcher.unattended, caps = prompts[current].unattended_policy, prompts[current].caps
        actor.cap.restore(caps, obj(said.get("cap")))
        actor.requests.restore_counts(obj(said.get("counts")))
        _, reads_project, may_use, actor.process.edits.is_on = said["process"]
        dispatcher.may_use_project_settings, dispatcher.has_project_settings = may_use, reads_project
        actor.process.chosen = (said["chosen"][0], said["chosen"][1])

    async def _attach(self, actor: SessionActor) -> None:
        main, deps, row, said = self._main, self._deps, self._row, self._said
        agent = deps.agents.get(said["agent"])
        if agent is None:
            raise NotExact("its agent is not there")
        tape = Tape(self._tapes, main.id, partial(state_of, actor), row)
        codec = agent.spec.make(tape.new_id)
        take: Any = None

        is_read = asyncio.get_running_loop().create_future()

        def on_lines(lines: list[bytes]) -> Any:
            new = lines[self._skip :]
            self._skip, self._unread = max(0, self._skip - len(lines)), self._unread - len(lines)
            pause = take[0](new) if new else None
            if self._unread <= 0 and not is_read.done():
                is_read.set_result(None)
            return pause

        env = deps.agents.environment()
        process = await HeldProcess.attach(
            tape.hold, int(row["pid"]), env, on_lines=on_lines, on_exit=lambda exit_: take[1](exit_)
        )
        try:
            lines, written = await asyncio.to_thread(tape_of, tape.hold.folder / "tape")
            tape.listen(codec)
            tape.notes = list(process.notes)
            calls = read_calls(await self._deps.store.values(calls_of(main.id)), row, tape.notes)
            due = replay(tape, codec, row, lines, calls, self._open)
            replay_pieces(tape, codec, lines, await deps.store.events(main.id, said["sequence"]), self._open)
            numbers = unsent(due, written)
            self._skip, self._unread = tape.lines, len(lines)
            current, waiting = said["prompts"]
            prompts = await self._prompts(current, waiting)
            children = {key: await self._load_child(id_) for key, (id_, _) in said["children"].items()}
            for key, (_, turn) in said["children"].items():
                if turn is not None:
                    _go_on(children[key][0], turn)
            known = {*self._open.asks, *self._open.questions, *(request["shown_id"] for request in said["requests"])}
            known.add(text(obj(obj(said.get("cap")).get("open")).get("question_id")))
            for state in (main, *(child for child, _ in children.values())):
                if {*state.session.permissions, *state.session.questions} - known:
                    raise NotExact("a question of the server itself is open")
            await deps.config_refresh(actor.directory)
            actor.dispatcher.known_place = await deps.find_place(actor.directory)
            if said["is_busy"]:
                _go_on(main, {**said, "sequence": main.sequence})
        except BaseException:  # whatever it is, its agent ends
            process.leave()
            raise
        for key, (child, adopt) in children.items():
            actor.children.states[key] = child
            adopt(actor)
        self._restore(actor, prompts)
        seen = await view(agent.spec, self._open.bounds, agent.located.path or "", actor.directory, env)
        actor.process.sandbox.hold(self._open.bounds, self._open.bounds, seen, may_change=True)
        tape.attach(process)
        resumes, reads_project, *_ = said["process"]
        take = actor.process.take_up(said["agent"], codec, process, tape, resumes=resumes, reads_project=reads_project)
        for number in numbers:
            process.write(NumberedLine.of(due[number], number))
        await self._resume(actor, waiting)
        process.begin(said["agent"])
        watch(actor, tape)
        if self._unread > 0:  # an agent that has said nothing gives no line to wait for
            self._tapes.unread.append(is_read)

    async def _prompts(self, current: str | None, waiting: str | None) -> dict[str, PendingPrompt]:
        """The prompts of the turn, by their keys."""
        machine = TurnMachine.of_json(self._said["machine"])
        stored = {prompt.prompt.key: prompt for prompt in self._main.pending_prompts.prompts.values()}
        prompts = {key: stored[key] for key in (*machine.queue, *machine.offers)}
        for key in {key for key in (current, waiting) if key} - prompts.keys():
            pending = stored.get(key) or await _find_prompt(self._deps.store, self._main.id, self._main.sequence, key)
            prompts[key] = replace(pending, message_id=self._main.reducer.transcript.prompt_of_item.get(key, ""))
        changes = self._said.get("changes", {})
        return {key: prompt.with_changes(changes.get(key, {})) for key, prompt in prompts.items()}

    async def _resume(self, actor: SessionActor, waiting: str | None) -> None:
        """Begin again what the other server did beside the agent."""
        main, open_, name = self._main, self._open, self._said["agent"]
        actor.snapshots.look()
        if HOLD in main.machine.open:
            actor.snapshots.finish_again()
        elif self._said.get("waits_for_snapshot"):  # else the files were noted before, and the agent may have changed some
            await actor.snapshots.begin(may_lines_wait=True)
            actor.snapshots.hold_lines()
        for timer in open_.timers.values():
            actor.process.set_timer(timer)
        rows = {request["permission_id"]: request for request in self._said["requests"]}
        for id_, (fact, is_check) in open_.asks.items():
            assert isinstance(fact.data, PermissionData)
            state = actor.children.state_of(fact.child)
            if id_ in state.session.permissions or id_ in rows:
                actor.requests.restore(state, fact, fact.data, name, rows.get(id_))
            else:
                (actor.requests.check if is_check else actor.requests.permission)(state, fact, fact.data, name)
        for id_, fact in open_.questions.items():
            state = actor.children.state_of(fact.child)
            if id_ in state.session.questions:
                actor.requests.wait(id_, state)
            elif isinstance(fact.data, QuestionData):
                actor.requests.question(state, fact, fact.data)
        for call, has_started in open_.host.values():
            if not isinstance(call, RunCommand):
                actor.process.call_host(call)
                continue
            lost = CommandEnded(call.call, None, "SIGKILL")
            actor.process.answer_host_call(lost if has_started else HostDone(call.call, trouble="failed", error=COMMAND_LOST))
        actor.offers.restore(self._said["offers"])
        actor.limit.restore(self._said["limit"])
        if main.machine.state is State.ABORTING:
            loop, after_s = asyncio.get_running_loop(), self._deps.settings.abort_timeout_s
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
