"""The laws of turns, as a reader of the effects sees them; knows nothing of the table in `universal.turn`.

`LawBook.watch(machine, input, key)` applies one input and raises `LawBroken` with the law's name if what came out
does not fit. Each law says in its name what a client would see if it were broken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, replace

from universal.turn import (
    OURS,
    DispatchPrompt,
    Effect,
    Input,
    InterruptAgent,
    KillAgent,
    PromptsCancelled,
    TurnEnd,
    TurnMachine,
    TurnStart,
)

IDLE_MAY_HEED = (Input.PROMPT, Input.ACTIVITY, Input.DELETE)
REPLAYS = (Input.REPLAY_STARTED, Input.REPLAY_ENDED)
ANSWERS_TO_OFFERS = (Input.TAKEN, Input.RETURNED, Input.WITHDRAWN)
FIRST, LAST = "first", "last"
"""Keys of moves that mean the first or last prompt that may be offered, or that is offered."""


class LawBroken(AssertionError):
    """A law of turns does not hold."""


def law(name: str, holds: bool) -> None:
    """Raise unless it holds."""
    if not holds:
        raise LawBroken(name)


@dataclass
class LawBook:
    """What an observer of one machine knows, and what it therefore expects."""

    turns: int = 0
    live: bool = False
    deleted: bool = False
    restored: bool = False
    """A journal says that a turn began, and nobody works on it."""
    working: bool = False
    """A handed prompt, or activity of the agent's own, has not been answered yet."""
    held: set[str] = field(default_factory=set)
    failure: str | None = None
    """The first failure since the last hand."""
    aborting: bool = False
    interrupted: bool = False
    stopped: bool = False
    pending: list[str] = field(default_factory=list)
    offered: list[str] = field(default_factory=list)
    """What the agent has, and may take in or give back."""
    taken: list[str] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    handed: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    returned: str = ""
    """An offer that the agent gave back in an abort, which must be cancelled at once."""
    accepted: int = 0
    history: list[tuple[Input, str, list[Effect]]] = field(default_factory=list)

    def copy(self) -> LawBook:
        """A book that goes on from here. What its lists hold does not change."""
        made = copy(self)
        for name in _CONTAINERS:
            setattr(made, name, getattr(self, name).copy())
        return made

    def watch(self, machine: TurnMachine, input_: Input, key: str = "") -> list[Effect]:
        """Apply one input to the machine and check all laws."""
        was_live, was_aborting, was_deleted, was_at_work = self.live, self.aborting, self.deleted, self.agent_at_work
        effects = machine.apply(input_, key)
        self.history.append((input_, key, effects))
        try:
            if self.restored or (input_ in REPLAYS and not was_live):
                self._watch_restored(machine, input_, effects)
                return effects
            law(
                "L5 an idle or deleted session does not heed it",
                was_live or not effects or (input_ in IDLE_MAY_HEED and not was_deleted),
            )
            if not was_deleted:
                self._hear(input_, key)
            for index, effect in enumerate(effects):
                self._see(effect, input_, effects[:index])
            self._rest(machine)
            if input_ is Input.ABORT and was_live and not was_aborting:
                law("an abort asks the agent to stop", InterruptAgent() in effects)
            if input_ is Input.TAKEN:
                law("taking in starts and ends no turn", self.live == was_live and not effects)
            if input_ is Input.ABORT and was_live:
                law("nothing accepted before an abort is handed after it", not self.pending)
            if (input_ is Input.DELETE and not was_deleted) or (input_ is Input.ABORT_TIMEOUT and was_aborting):
                law(
                    "the agent is killed, if it does not stop",
                    effects.count(KillAgent()) == (input_ is Input.DELETE or was_at_work),
                )
        except LawBroken as broken:
            told = (f"\n  {heard} {of} -> {came}" for heard, of, came in self.history)
            raise LawBroken(f"{broken}{''.join(told)}") from None
        return effects

    def _watch_restored(self, machine: TurnMachine, input_: Input, effects: list[Effect]) -> None:
        """A turn that a journal holds: nobody works on it, and it ends once, by the journal, a recovery or a copy's abort."""
        reasons = {Input.EXIT: "agent_exited", Input.ABORT: "aborted", Input.DELETE: "aborted"}
        if not self.restored:
            self.restored = input_ is Input.REPLAY_STARTED and not self.deleted
            self.turns += self.restored
            law("a replayed turn has no effects", not effects)
        elif input_ in reasons:
            law("L1 a restored turn ends once, and says why", effects[-1:] == [TurnEnd(self.turns, reasons[input_])])
            law("only a deletion kills", effects[:-1] == ([KillAgent()] if input_ is Input.DELETE else []))
            self.restored, self.deleted = False, input_ is Input.DELETE
        else:
            law("nothing else happens in a restored turn", not effects)
            self.restored = input_ is not Input.REPLAY_ENDED
        law("L2 a restored turn is busy until it has ended", machine.busy == self.restored)
        law("turns that were replayed count", machine.turn == self.turns)

    def _hear(self, input_: Input, key: str) -> None:
        """What the input says, whatever the machine makes of it."""
        if input_ is Input.PROMPT:
            self.accepted += 1
            self.pending.append(key)
        elif input_ is Input.ACTIVITY:
            self.working = True
        elif input_ is Input.DELETE:
            self.deleted = True
            self._take_back()
        elif not self.live or input_ in REPLAYS:
            return
        elif input_ in (Input.OFFERED, *ANSWERS_TO_OFFERS):
            self._hear_of_offer(input_, key)
        elif input_ is Input.OPENED:
            self.held.add(key)
        elif input_ is Input.CLOSED:
            self.held.discard(key)
        elif input_ is Input.ABORT:
            self.aborting = True
        elif input_ is Input.ABORT_TIMEOUT:
            self.stopped = self.aborting
        else:  # DONE, FAILED, EXIT
            idle = input_ is Input.EXIT and not self.agent_at_work
            self.working = False
            self.stopped = self.aborting
            if input_ is Input.EXIT:
                if not self.aborting:
                    self._take_back()
                self.held = {held for held in self.held if held.startswith(OURS)}
            if input_ is not Input.DONE and not idle:
                self.failure = self.failure or ("error" if input_ is Input.FAILED else "agent_exited")

    def _hear_of_offer(self, input_: Input, key: str) -> None:
        """A prompt goes to the agent while it works, is taken in, or comes back. Each is in one place."""
        if input_ is Input.OFFERED:
            if key in self.pending and self.working and not (self.aborting or self.has_local_work):
                self.pending.remove(key)
                self.offered.append(key)
        elif key in self.offered:
            self.offered.remove(key)
            if input_ is Input.TAKEN:
                self.taken.append(key)
                self.working, self.failure = True, None
            elif input_ is Input.WITHDRAWN:
                self.withdrawn.append(key)
            elif self.aborting:
                self.returned = key
            else:
                self.pending.insert(0, key)

    def _take_back(self) -> None:
        """The agent is lost or killed, and with it what it had not taken in."""
        self.pending[:0] = self.offered
        self.offered.clear()

    def _see(self, effect: Effect, input_: Input, before: list[Effect]) -> None:
        match effect:
            case TurnStart(turn, origin):
                law("L1 a turn starts only when none is running", not self.live and not self.deleted)
                law("L1 turns are numbered without gaps", turn == self.turns + 1)
                law("the origin is told", origin == ("agent" if input_ is Input.ACTIVITY else "user"))
                self.turns, self.live = turn, True
            case DispatchPrompt(key):
                law("a prompt is handed only in a running turn", self.live and not self.aborting and not self.deleted)
                law("L4 no prompt is handed twice", key not in self.handed)
                law("prompts are handed in order", self.pending[:1] == [key])
                law("prompts are handed one at a time, and not beside work of ours", not (self.working or self.has_local_work))
                law("nothing is handed beside an offer", not self.offered)
                self.handed.append(self.pending.pop(0))
                self.working, self.failure = True, None
            case PromptsCancelled(keys) if input_ not in (Input.ABORT, Input.DELETE):
                law("only an abort cancels what the agent had", self.aborting)
                law(
                    "exactly what it has not taken in is cancelled",
                    list(keys) == ([self.returned] if self.returned else self.offered),
                )
                self.cancelled += keys
                self.returned = ""
                self.offered = [key for key in self.offered if key not in keys]
            case PromptsCancelled(keys):
                law("only an abort or a deletion cancels", input_ in (Input.ABORT, Input.DELETE) and self.live)
                law("exactly what was queued is cancelled", bool(keys) and list(keys) == self.pending)
                self.cancelled += self.pending
                self.pending.clear()
            case InterruptAgent():
                law("only the first abort of a turn interrupts", input_ is Input.ABORT and self.live and not self.interrupted)
                law("cancelled prompts are told before the interrupt", not self.pending)
                self.interrupted = True
            case KillAgent():
                law("only a deaf agent or a deleted one is killed", input_ is Input.DELETE or (self.stopped and self.aborting))
                law("Ended is the last effect of its turn", not any(isinstance(e, TurnEnd) for e in before))
            case TurnEnd(turn, reason):
                law("L1 exactly one end per turn", self.live and turn == self.turns)
                over = not (self.agent_at_work or self.has_local_work)
                law("L2 a turn ends when nothing goes on, not before", self.deleted or over)
                law("a turn ends only after its queue", self.aborting or not self.pending)
                law("a turn ends only when all that the agent was offered is taken in, given back or cancelled", not self.offered)
                expected = "aborted" if self.aborting or self.deleted else self.failure or "completed"
                law(f"L6 the reason is {expected}", reason == expected)
                self.live = self.working = self.aborting = self.interrupted = self.stopped = False
                self.failure = None
                self.held.clear()

    def key_of(self, input_: Input, key: str, new: str) -> str:
        """The key that a move means now: of a prompt by its place, or `new` for a prompt that comes."""
        if key not in (FIRST, LAST):
            return key or new
        there = self.pending if input_ is Input.OFFERED else self.offered
        return (there[0] if key == FIRST else there[-1]) if there else "nothing"

    @property
    def has_local_work(self) -> bool:
        """Work of the server itself holds the turn, also one that is aborted or has lost its agent."""
        return any(held.startswith(OURS) for held in self.held)

    @property
    def agent_at_work(self) -> bool:
        """The agent owes an answer or something that holds the turn open, and has not stopped."""
        return not self.stopped and (self.working or bool(self.offered) or any(not held.startswith(OURS) for held in self.held))

    def _rest(self, machine: TurnMachine) -> None:
        """What must hold between two inputs."""
        law("L2 busy iff started and not ended", machine.busy == self.live)
        places = self.handed + self.taken + self.pending + self.offered + self.cancelled + self.withdrawn
        law("L4 each accepted prompt is handed, taken in, queued, offered, cancelled or withdrawn", len(places) == self.accepted)
        law("L4 no prompt is in two places", len(set(places)) == len(places))
        law("L4 what waits is what the machine has queued", list(machine.queue) == self.pending)
        law("L4 what the agent may take in is what the machine has offered", machine.offers == self.offered)
        if self.live:
            law("a deleted session is not busy", not self.deleted)
            law("a turn without work ends (no busy for ever)", self.working or bool(self.held) or bool(self.offered))
            law("an abort ends with the agent's stop or the timeout", not self.stopped or self.has_local_work)
            law(
                "a prompt waits only for an answer, an offer or work of ours",
                not self.pending or self.working or self.aborting or self.has_local_work or bool(self.offered),
            )
        else:
            law("L3 nothing is open and nothing waits when idle", not (machine.open or self.pending or self.offered))


MOVES: tuple[tuple[Input, str], ...] = (
    *((input_, "") for input_ in Input if input_ not in (Input.OPENED, Input.CLOSED, Input.OFFERED, *ANSWERS_TO_OFFERS)),
    *((input_, key) for input_ in (Input.OFFERED, *ANSWERS_TO_OFFERS) for key in (FIRST, LAST)),
    *((input_, key) for input_ in (Input.OPENED, Input.CLOSED) for key in ("a", "b", f"{OURS}s")),
)
"""Everything that can happen, with three pieces of work that hold a turn open, one of them the server's own (a snapshot);
a PROMPT gets a key of its own."""


def walk(make: Callable[[], TurnMachine], prompts_waiting: int = 3, states: int = 5_000) -> int:
    """Apply each move in each state that can be reached with at most so many prompts waiting; the number of states.

    Breadth first, so that a broken law comes with its shortest history. Not random: a proof, up to the bound.
    """
    start = (make(), LawBook())
    seen = {_outline(*start)}
    todo = deque([start])
    while todo:
        machine, book = todo.popleft()
        for input_, key in MOVES:
            if input_ is Input.PROMPT and len(book.pending + book.offered) == prompts_waiting:
                continue
            after, notes = _copy(machine), book.copy()
            notes.watch(after, input_, book.key_of(input_, key, f"p{book.accepted + 1}"))
            if (outline := _outline(after, notes)) not in seen:
                seen.add(outline)
                todo.append((after, notes))
        law(f"there are no more than {states} states", len(seen) <= states)
    return len(seen)


_CONTAINERS = tuple(each.name for each in fields(LawBook) if each.default_factory is not MISSING)
_PAST = ("turns", "handed", "taken", "withdrawn", "cancelled", "accepted", "history")
_STATE_NAMES = tuple(
    each.name for each in fields(TurnMachine) if each.name not in ("turn", "ignored", "table", "queue", "offers")
)
_NOTE_NAMES = tuple(each.name for each in fields(LawBook) if each.name not in (*_PAST, "pending", "offered"))


def _copy(machine: TurnMachine) -> TurnMachine:
    return replace(
        machine, queue=list(machine.queue), offers=list(machine.offers), open=set(machine.open), ignored=machine.ignored.copy()
    )


def _outline(machine: TurnMachine, book: LawBook) -> tuple[object, ...]:
    """Two pairs with the same outline behave alike: numbers, names of prompts and the past do not matter."""
    values = (*(getattr(machine, name) for name in _STATE_NAMES), *(getattr(book, name) for name in _NOTE_NAMES))
    lengths = (len(machine.queue), len(machine.offers), len(book.pending), len(book.offered))
    return (*lengths, *(frozenset(value) if isinstance(value, set) else value for value in values))
