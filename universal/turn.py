"""The turn machine: the one place that decides when a session is busy and when a turn ends.

Rule 1: whatever affects turn state is in this file. A turn is one stretch of being busy: it begins when a
prompt is accepted (or when the agent wakes up by itself) and ends exactly once, by one door, `_settle`.

`TRANSITIONS` maps (state, input) to (next state, step). A missing pair is ignored and counted: bookkeeping
after the end can never reopen a turn. After each input the *joint conditions* of `_settle` run to a fixed
point, so that it does not matter in which order the agent said things.

Prompts that arrive in a turn are queued, and handed to the agent one at a time, each when the one before is
answered (Claude 2.1.197 merges prompts otherwise; `wire/AGENTS_WIRE.md`, "Results are not prompts").
They belong to the running turn: one turn, one end, however many prompts.

Laws (tests/properties): L1 each Started(n) is followed by exactly one Ended(n), before Started(n+1).
L2 busy iff started and not ended. L3 nothing is open when idle. L4 accepted = handed + queued + cancelled.
L5 inputs after the end change nothing but ACTIVITY and PROMPT. L6 crash, error, abort: the same door.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias


class State(StrEnum):
    """IDLE no turn; RUNNING the agent works; DRAINING it answered, but something holds the turn open;
    ABORTING we asked it to stop; CLOSED the session is gone."""

    IDLE = "idle"
    RUNNING = "running"
    DRAINING = "draining"
    ABORTING = "aborting"
    CLOSED = "closed"


class Input(StrEnum):
    """What can happen to a turn."""

    PROMPT = "prompt"
    ACTIVITY = "activity"
    DONE = "done"
    FAILED = "failed"
    OPENED = "opened"
    CLOSED = "closed"
    ABORT = "abort"
    ABORT_TIMEOUT = "abort_timeout"
    EXIT = "exit"
    DELETE = "delete"


Reason: TypeAlias = Literal["completed", "aborted", "error", "agent_exited"]


@dataclass(frozen=True, slots=True)
class Started:
    """A turn has begun: the session is busy."""

    turn: int
    origin: Literal["user", "agent"]


@dataclass(frozen=True, slots=True)
class Hand:
    """Give the prompt with this key to the agent now."""

    key: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """These prompts were accepted but will not be handed over by this turn (abort, deletion)."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InterruptAgent:
    """Ask the agent to stop, and come back with ABORT_TIMEOUT if it has not after a while."""


@dataclass(frozen=True, slots=True)
class KillAgent:
    """It did not stop, or the session is deleted: end the process."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over: the session is idle. The last effect of the turn, always."""

    turn: int
    reason: Reason


Effect: TypeAlias = Started | Hand | Cancelled | InterruptAgent | KillAgent | Ended

Step: TypeAlias = Literal[
    "none", "wake", "queue", "answer", "fail", "hold", "release", "interrupt", "stopped", "kill", "lost", "close"
]

TRANSITIONS: dict[tuple[State, Input], tuple[State, Step]] = {
    (State.IDLE, Input.PROMPT): (State.IDLE, "queue"),
    (State.IDLE, Input.ACTIVITY): (State.RUNNING, "wake"),
    (State.IDLE, Input.DELETE): (State.CLOSED, "close"),
    (State.RUNNING, Input.PROMPT): (State.RUNNING, "queue"),
    (State.RUNNING, Input.ACTIVITY): (State.RUNNING, "none"),
    (State.RUNNING, Input.DONE): (State.DRAINING, "answer"),
    (State.RUNNING, Input.FAILED): (State.DRAINING, "fail"),
    (State.RUNNING, Input.OPENED): (State.RUNNING, "hold"),
    (State.RUNNING, Input.CLOSED): (State.RUNNING, "release"),
    (State.RUNNING, Input.ABORT): (State.ABORTING, "interrupt"),
    (State.RUNNING, Input.EXIT): (State.DRAINING, "lost"),
    (State.RUNNING, Input.DELETE): (State.CLOSED, "close"),
    (State.DRAINING, Input.PROMPT): (State.DRAINING, "queue"),
    (State.DRAINING, Input.ACTIVITY): (State.RUNNING, "none"),
    (State.DRAINING, Input.DONE): (State.DRAINING, "answer"),
    (State.DRAINING, Input.FAILED): (State.DRAINING, "fail"),
    (State.DRAINING, Input.OPENED): (State.DRAINING, "hold"),
    (State.DRAINING, Input.CLOSED): (State.DRAINING, "release"),
    (State.DRAINING, Input.ABORT): (State.ABORTING, "interrupt"),
    (State.DRAINING, Input.EXIT): (State.DRAINING, "lost"),
    (State.DRAINING, Input.DELETE): (State.CLOSED, "close"),
    (State.ABORTING, Input.PROMPT): (State.ABORTING, "queue"),
    (State.ABORTING, Input.DONE): (State.ABORTING, "stopped"),
    (State.ABORTING, Input.FAILED): (State.ABORTING, "stopped"),
    (State.ABORTING, Input.OPENED): (State.ABORTING, "hold"),
    (State.ABORTING, Input.CLOSED): (State.ABORTING, "release"),
    (State.ABORTING, Input.ABORT_TIMEOUT): (State.ABORTING, "kill"),
    (State.ABORTING, Input.EXIT): (State.ABORTING, "stopped"),
    (State.ABORTING, Input.DELETE): (State.CLOSED, "close"),
}


@dataclass(slots=True)
class TurnMachine:
    """State of one session's turns. Feed `apply`, act on the effects in order.

    In: an `Input` and a key (PROMPT: the prompt's; OPENED/CLOSED: the work's). Out: effects, in order.
    Raises: nothing; pairs not in the table are counted in `ignored`.
    """

    state: State = State.IDLE
    turn: int = 0
    queue: list[str] = field(default_factory=list[str])
    open: set[str] = field(default_factory=set[str])
    ignored: Counter[tuple[State, Input]] = field(default_factory=Counter[tuple[State, Input]])
    _reason: Reason = "completed"
    _at_work: bool = False
    """The agent has something to answer: a handed prompt, or its own activity."""
    _stopped: bool = False
    """While ABORTING: it has stopped, or we made it."""

    @property
    def busy(self) -> bool:
        """A turn has started and not ended."""
        return self.state in (State.RUNNING, State.DRAINING, State.ABORTING)

    def apply(self, input_: Input, key: str = "") -> list[Effect]:
        """One input; the effects it has, in order."""
        row = TRANSITIONS.get((self.state, input_))
        if row is None:
            self.ignored[(self.state, input_)] += 1
            return []
        before = self.state
        self.state, step = row
        effects: list[Effect] = []
        _STEPS[step](self, key, before, effects)
        if input_ is Input.ACTIVITY:
            self._at_work = True
        self._settle(effects)
        return effects

    def _settle(self, effects: list[Effect]) -> None:
        """The joint conditions, to a fixed point. The only place where a turn ends or a prompt is handed over."""
        while True:
            if self.state is State.ABORTING and (self._stopped or not (self._at_work or self.open)):
                self._end("aborted", effects)
            elif self.state is State.DRAINING and self.queue:
                self.state = State.RUNNING
                self._hand(effects)
            elif self.state is State.DRAINING and not self.open:
                self._end(self._reason, effects)
            elif self.state is State.IDLE and self.queue:
                self._begin("user", effects)
                self._hand(effects)
            else:
                return

    def _begin(self, origin: Literal["user", "agent"], effects: list[Effect]) -> None:
        self.turn += 1
        self.state = State.RUNNING
        self._reason = "completed"
        self._stopped = False
        effects.append(Started(self.turn, origin))

    def _hand(self, effects: list[Effect]) -> None:
        self._at_work = True
        self._reason = "completed"
        effects.append(Hand(self.queue.pop(0)))

    def _end(self, reason: Reason, effects: list[Effect]) -> None:
        self.state = State.IDLE
        self.open.clear()
        self._at_work = False
        self._stopped = False
        effects.append(Ended(self.turn, reason))

    def _cancel(self, effects: list[Effect]) -> None:
        if self.queue:
            effects.append(Cancelled(tuple(self.queue)))
            self.queue.clear()

    # --- steps: what a row of the table does besides changing the state -------------------------------

    def _none(self, key: str, before: State, effects: list[Effect]) -> None:
        pass

    def _wake(self, key: str, before: State, effects: list[Effect]) -> None:
        self._begin("agent", effects)

    def _queue_up(self, key: str, before: State, effects: list[Effect]) -> None:
        self.queue.append(key)

    def _answer(self, key: str, before: State, effects: list[Effect]) -> None:
        self._at_work = False

    def _fail(self, key: str, before: State, effects: list[Effect]) -> None:
        self._at_work = False
        self._reason = "error"

    def _hold(self, key: str, before: State, effects: list[Effect]) -> None:
        self.open.add(key)

    def _release(self, key: str, before: State, effects: list[Effect]) -> None:
        self.open.discard(key)

    def _interrupt(self, key: str, before: State, effects: list[Effect]) -> None:
        self._cancel(effects)
        effects.append(InterruptAgent())

    def _stop(self, key: str, before: State, effects: list[Effect]) -> None:
        self._stopped = True

    def _kill(self, key: str, before: State, effects: list[Effect]) -> None:
        self._stopped = True
        effects.append(KillAgent())

    def _lost(self, key: str, before: State, effects: list[Effect]) -> None:
        self._at_work = False
        self.open.clear()
        self._reason = "agent_exited"

    def _close(self, key: str, before: State, effects: list[Effect]) -> None:
        self._cancel(effects)
        effects.append(KillAgent())
        if before is not State.IDLE:
            self._end("aborted", effects)
            self.state = State.CLOSED


_STEPS: dict[Step, Callable[[TurnMachine, str, State, list[Effect]], Any]] = {
    "none": TurnMachine._none,  # pyright: ignore[reportPrivateUsage]
    "wake": TurnMachine._wake,  # pyright: ignore[reportPrivateUsage]
    "queue": TurnMachine._queue_up,  # pyright: ignore[reportPrivateUsage]
    "answer": TurnMachine._answer,  # pyright: ignore[reportPrivateUsage]
    "fail": TurnMachine._fail,  # pyright: ignore[reportPrivateUsage]
    "hold": TurnMachine._hold,  # pyright: ignore[reportPrivateUsage]
    "release": TurnMachine._release,  # pyright: ignore[reportPrivateUsage]
    "interrupt": TurnMachine._interrupt,  # pyright: ignore[reportPrivateUsage]
    "stopped": TurnMachine._stop,  # pyright: ignore[reportPrivateUsage]
    "kill": TurnMachine._kill,  # pyright: ignore[reportPrivateUsage]
    "lost": TurnMachine._lost,  # pyright: ignore[reportPrivateUsage]
    "close": TurnMachine._close,  # pyright: ignore[reportPrivateUsage]
}
