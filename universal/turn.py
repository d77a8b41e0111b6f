"""The turn machine alone decides when a session is busy and when a turn ends. Pure.

All turn state is in this file. A turn begins when a prompt is accepted, or when the agent starts to work without a prompt. It
ends exactly once, in `_end`.

`TRANSITIONS` maps (state, input) to (next state, step). A missing pair is ignored and counted, so that messages after the end
cannot reopen a turn. After each input, `_settle` checks its conditions until none applies, so that the order of the agent's
messages does not matter.

Prompts that arrive during a turn are queued. The agent gets one at a time, when it has answered the one before (Claude 2.1.197
would merge them; docs/agents-wire.md, "Results ≠ prompts"). All of them belong to the running turn, which has one end. The reason
of the end is that of the last dispatched prompt: the first FAILED or EXIT after its dispatch, else completed. It is aborted if
ABORT or DELETE ended the turn.

An agent that can be steered may be offered a queued prompt while it works (OFFERED). It takes it in at a step of its own (TAKEN),
also after it has answered what it had, or gives it back (RETURNED). What was taken in belongs to the work that it joined, and one
DONE or FAILED answers both. The turn does not end, and nothing else is dispatched, while an offer is open. An abort cancels the
offers that the agent has not taken in when it stops; those that a lost agent had are queued again.

A key that begins with `OURS` is work of the server itself (a snapshot, a person's shell command). Until it is closed, no prompt
is dispatched and the turn does not end, even if it is aborted or the agent has exited. Only DELETE does not wait.

Laws (tests/properties/laws.py):

    L1  each TurnStart(n) is followed by exactly one TurnEnd(n), before TurnStart(n+1)
    L2  the session is busy if and only if a turn has started and not ended
    L3  nothing is open while it is idle
    L4  accepted prompts = dispatched + taken in + queued + offered + cancelled + withdrawn, each in one place
    L5  after the end, only ACTIVITY and PROMPT change anything
    L6  a crash, an error and an abort end the turn in the same place

docs/turn.md has a diagram of the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias, assert_never


class State(StrEnum):
    """The state of a session.

    IDLE      no turn
    RUNNING   the agent works
    DRAINING  the agent has answered, but something holds the turn open
    ABORTING  the agent was asked to stop
    RESTORED  a turn of a journal that no agent works on
    CLOSED    the session is deleted
    """

    IDLE = "idle"
    RUNNING = "running"
    DRAINING = "draining"
    ABORTING = "aborting"
    RESTORED = "restored"
    CLOSED = "closed"


class Input(StrEnum):
    """The inputs of the machine. REPLAY_STARTED and REPLAY_ENDED come from a journal that is read or copied.

    OFFERED    the agent was given a queued prompt while it works
    TAKEN      it has taken this offer in
    RETURNED   it has given this offer back
    WITHDRAWN  as RETURNED, and a person does not want it any more
    """

    PROMPT = "prompt"
    ACTIVITY = "activity"
    DONE = "done"
    FAILED = "failed"
    OPENED = "opened"
    CLOSED = "closed"
    OFFERED = "offered"
    TAKEN = "taken"
    RETURNED = "returned"
    WITHDRAWN = "withdrawn"
    ABORT = "abort"
    ABORT_TIMEOUT = "abort_timeout"
    EXIT = "exit"
    DELETE = "delete"
    REPLAY_STARTED = "replay_started"
    REPLAY_ENDED = "replay_ended"


Reason: TypeAlias = Literal["completed", "aborted", "error", "agent_exited"]


@dataclass(frozen=True, slots=True)
class TurnStart:
    """A turn has begun, so the session is busy."""

    turn: int
    origin: Literal["user", "agent"]


@dataclass(frozen=True, slots=True)
class DispatchPrompt:
    """Give the prompt with this key to the agent now."""

    key: str


@dataclass(frozen=True, slots=True)
class PromptsCancelled:
    """These prompts were accepted, but this turn will not dispatch them (abort, deletion)."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InterruptAgent:
    """Ask the agent to stop. Apply ABORT_TIMEOUT if the turn has not ended after a while.

    The timer belongs to this turn. Cancel it at `TurnEnd`, because it would shorten the abort of a later turn.
    """


@dataclass(frozen=True, slots=True)
class KillAgent:
    """Kill the process: the agent did not stop, or the session is deleted.

    Apply no more inputs of this process, not even its EXIT. A `DispatchPrompt` after this effect is for a new process.
    """


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The turn is over, so the session is idle. This is always the last effect of a turn."""

    turn: int
    reason: Reason


Effect: TypeAlias = TurnStart | DispatchPrompt | PromptsCancelled | InterruptAgent | KillAgent | TurnEnd

Step: TypeAlias = Literal[
    "wake",
    "work",
    "queue",
    "answer",
    "fail",
    "hold",
    "release",
    "offer",
    "take",
    "return",
    "withdraw",
    "interrupt",
    "cancel",
    "stopped",
    "kill",
    "lost",
    "close",
    "restore",
    "replayed",
    "recover",
    "drop",
]

OURS = "server:"
"""Prefix of keys of OPENED and CLOSED for the server's own work, which must be closed soon after an abort at the latest."""

Table: TypeAlias = Mapping[tuple[State, Input], tuple[State, Step]]

TRANSITIONS: Table = {
    (State.IDLE, Input.PROMPT): (State.IDLE, "queue"),
    (State.IDLE, Input.ACTIVITY): (State.RUNNING, "wake"),
    (State.IDLE, Input.DELETE): (State.CLOSED, "close"),
    (State.RUNNING, Input.PROMPT): (State.RUNNING, "queue"),
    (State.RUNNING, Input.ACTIVITY): (State.RUNNING, "work"),
    (State.RUNNING, Input.DONE): (State.DRAINING, "answer"),
    (State.RUNNING, Input.FAILED): (State.DRAINING, "fail"),
    (State.RUNNING, Input.OPENED): (State.RUNNING, "hold"),
    (State.RUNNING, Input.CLOSED): (State.RUNNING, "release"),
    (State.RUNNING, Input.OFFERED): (State.RUNNING, "offer"),
    (State.RUNNING, Input.TAKEN): (State.RUNNING, "take"),
    (State.RUNNING, Input.RETURNED): (State.RUNNING, "return"),
    (State.RUNNING, Input.WITHDRAWN): (State.RUNNING, "withdraw"),
    (State.RUNNING, Input.ABORT): (State.ABORTING, "interrupt"),
    (State.RUNNING, Input.EXIT): (State.DRAINING, "lost"),
    (State.RUNNING, Input.DELETE): (State.CLOSED, "close"),
    (State.DRAINING, Input.PROMPT): (State.DRAINING, "queue"),
    (State.DRAINING, Input.ACTIVITY): (State.RUNNING, "work"),
    (State.DRAINING, Input.DONE): (State.DRAINING, "answer"),
    (State.DRAINING, Input.FAILED): (State.DRAINING, "fail"),
    (State.DRAINING, Input.OPENED): (State.DRAINING, "hold"),
    (State.DRAINING, Input.CLOSED): (State.DRAINING, "release"),
    (State.DRAINING, Input.TAKEN): (State.DRAINING, "take"),
    (State.DRAINING, Input.RETURNED): (State.DRAINING, "return"),
    (State.DRAINING, Input.WITHDRAWN): (State.DRAINING, "withdraw"),
    (State.DRAINING, Input.ABORT): (State.ABORTING, "interrupt"),
    (State.DRAINING, Input.EXIT): (State.DRAINING, "lost"),
    (State.DRAINING, Input.DELETE): (State.CLOSED, "close"),
    (State.ABORTING, Input.PROMPT): (State.ABORTING, "queue"),
    (State.ABORTING, Input.ACTIVITY): (State.ABORTING, "work"),
    (State.ABORTING, Input.DONE): (State.ABORTING, "stopped"),
    (State.ABORTING, Input.FAILED): (State.ABORTING, "stopped"),
    (State.ABORTING, Input.OPENED): (State.ABORTING, "hold"),
    (State.ABORTING, Input.CLOSED): (State.ABORTING, "release"),
    (State.ABORTING, Input.TAKEN): (State.ABORTING, "take"),
    (State.ABORTING, Input.RETURNED): (State.ABORTING, "return"),
    (State.ABORTING, Input.WITHDRAWN): (State.ABORTING, "withdraw"),
    (State.ABORTING, Input.ABORT): (State.ABORTING, "cancel"),
    (State.ABORTING, Input.ABORT_TIMEOUT): (State.ABORTING, "kill"),
    (State.ABORTING, Input.EXIT): (State.ABORTING, "stopped"),
    (State.ABORTING, Input.DELETE): (State.CLOSED, "close"),
    (State.IDLE, Input.REPLAY_STARTED): (State.RESTORED, "restore"),
    (State.RESTORED, Input.REPLAY_ENDED): (State.IDLE, "replayed"),
    (State.RESTORED, Input.EXIT): (State.RESTORED, "recover"),
    (State.RESTORED, Input.ABORT): (State.RESTORED, "drop"),
    (State.RESTORED, Input.DELETE): (State.CLOSED, "close"),
}


@dataclass(slots=True)
class TurnMachine:
    """The turns of one session. Give inputs to `apply`, and carry out its effects in order.

    An input has a key: of the prompt (PROMPT, OFFERED ...), or of the work (OPENED, CLOSED). Raises nothing.
    Pairs without a row in the table are counted in `ignored`, also a PROMPT of a CLOSED session, which the caller must check.
    """

    state: State = State.IDLE
    turn: int = 0
    queue: list[str] = field(default_factory=list[str])
    offers: list[str] = field(default_factory=list[str])
    """Prompts that the agent has and has not taken in."""
    open: set[str] = field(default_factory=set[str])
    ignored: Counter[tuple[State, Input]] = field(default_factory=Counter[tuple[State, Input]])
    table: Table = field(default_factory=lambda: TRANSITIONS, repr=False)
    """The transitions. Only the mutation tests (tests/properties/mutants.py) use another table."""
    _reason: Reason = "completed"
    _at_work: bool = False
    """True while the agent works on a dispatched prompt or on its own activity."""
    _stopped: bool = False
    """True while ABORTING if the agent has stopped or was killed."""

    @property
    def busy(self) -> bool:
        """True while a turn has started and not ended."""
        return self.state in (State.RUNNING, State.DRAINING, State.ABORTING, State.RESTORED)

    @property
    def agent_at_work(self) -> bool:
        """True while the agent has to answer, has an offer or has open work, and has not stopped."""
        return not self._stopped and (self._at_work or bool(self.offers) or any(not key.startswith(OURS) for key in self.open))

    def apply(self, input_: Input, key: str = "") -> list[Effect]:
        """Apply one input and return its effects, in order."""
        row = self.table.get((self.state, input_))
        if row is None:
            self.ignored[(self.state, input_)] += 1
            return []
        was_busy = self.busy
        self.state, step = row
        effects: list[Effect] = []
        self._step(step, key, effects)
        if self.state is State.CLOSED and was_busy:
            self._end("aborted", effects)
        self._settle(effects)
        return effects

    def to_json(self) -> dict[str, object]:
        """Its state, as `of_json` takes it."""
        lists = {"queue": list(self.queue), "offers": list(self.offers), "open": sorted(self.open)}
        return {
            "state": str(self.state),
            "turn": self.turn,
            **lists,
            "reason": self._reason,
            "marks": [self._at_work, self._stopped],
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> TurnMachine:
        """The machine with a state that `to_json` has told."""
        self = cls(State(row["state"]), row["turn"], list(row["queue"]), list(row["offers"]), set(row["open"]))
        self._reason = row["reason"]
        self._at_work, self._stopped = row["marks"]
        return self

    def withdraw(self, key: str) -> bool:
        """Remove a prompt from the queue. False if it is not queued (any more)."""
        queued = key in self.queue
        if queued:
            self.queue.remove(key)
        return queued

    def take_waiting(self) -> list[str]:
        """Remove and return all prompts that the agent has not taken in, offers first."""
        waiting = [*self.offers, *self.queue]
        self.offers.clear()
        self.queue.clear()
        return waiting

    def advance(self, key: str, others: Collection[str]) -> None:
        """Move a queued prompt before the first of `others` that is queued before it. Otherwise nothing changes."""
        place = next((index for index, queued in enumerate(self.queue) if queued in others or queued == key), len(self.queue))
        if key in self.queue[place:]:
            self.queue.remove(key)
            self.queue.insert(place, key)

    def _step(self, step: Step, key: str, effects: list[Effect]) -> None:
        match step:
            case "wake":
                self._begin("agent", effects)
                self._at_work = True
            case "work":
                self._at_work = True
            case "queue":
                self.queue.append(key)
            case "answer":
                self._at_work = False
            case "fail" | "lost":
                self._fail(is_lost=step == "lost")
            case "hold":
                self.open.add(key)
            case "release":
                self.open.discard(key)
            case "offer" | "take" | "return" | "withdraw":
                self._step_offer(step, key, effects)
            case "interrupt" | "cancel":
                self._cancel(effects)
                effects += [InterruptAgent()] if step == "interrupt" else []
            case "stopped" | "kill":
                if step == "kill" and self.agent_at_work:
                    effects.append(KillAgent())
                self._stopped = True
            case "close":
                self._take_back()
                self._cancel(effects)
                effects.append(KillAgent())
            case "restore" | "replayed" | "recover" | "drop":
                self._step_restored(step, effects)
            case _:
                assert_never(step)

    def _step_offer(self, step: Literal["offer", "take", "return", "withdraw"], key: str, effects: list[Effect]) -> None:
        """A step for a prompt that the agent gets while it works. Nothing happens if the key is not where the step needs it."""
        if step == "offer":
            if key in self.queue and self._at_work and not self._is_held():
                self.queue.remove(key)
                self.offers.append(key)
            return
        if key not in self.offers:
            return
        self.offers.remove(key)
        if step == "take":
            self._at_work = True
            self._reason = "completed"
            self.state = State.RUNNING if self.state is State.DRAINING else self.state
        elif step == "return" and self.state is State.ABORTING:
            effects.append(PromptsCancelled((key,)))
        elif step == "return":
            self.queue.insert(0, key)

    def _take_back(self) -> None:
        """Queue the open offers again, before all others."""
        self.queue[:0] = self.offers
        self.offers.clear()

    def _step_restored(self, step: Literal["restore", "replayed", "recover", "drop"], effects: list[Effect]) -> None:
        """A step for a turn of a journal: it begins, has ended, was lost with the server, or is left out of a copy."""
        if step == "restore":
            self.turn += 1
        elif step != "replayed":
            self._end("agent_exited" if step == "recover" else "aborted", effects)

    def _settle(self, effects: list[Effect]) -> None:
        """Check the conditions for the next dispatch and for the end, until none applies. Only this method dispatches prompts."""
        while not self._is_held():
            if self.state is State.ABORTING and not self.agent_at_work:
                self._end("aborted", effects)
            elif self.state is State.DRAINING and self.offers:
                return
            elif self.state is State.DRAINING and self.queue:
                self.state = State.RUNNING
                self._dispatch(effects)
            elif self.state is State.DRAINING and not self.open:
                self._end(self._reason, effects)
            elif self.state is State.IDLE and self.queue:
                self._begin("user", effects)
                self._dispatch(effects)
            else:
                return

    def _is_held(self) -> bool:
        """True while our own work (such as a snapshot) holds back prompts and the turn's end."""
        return bool(self.open) and any(key.startswith(OURS) for key in self.open)

    def _begin(self, origin: Literal["user", "agent"], effects: list[Effect]) -> None:
        self.turn += 1
        self.state = State.RUNNING
        self._reason = "completed"
        effects.append(TurnStart(self.turn, origin))

    def _dispatch(self, effects: list[Effect]) -> None:
        self._at_work = True
        self._reason = "completed"
        effects.append(DispatchPrompt(self.queue.pop(0)))

    def _fail(self, *, is_lost: bool) -> None:
        """Note a failure: FAILED, or the exit of the process (`lost`), which closes all its open work.

        The first failure is the reason of the turn's end. The exit of a process that had nothing to do is no failure.
        """
        failed = not is_lost or self.agent_at_work
        self._at_work = False
        if is_lost:
            self._take_back()
            self.open -= {key for key in self.open if not key.startswith(OURS)}
        if failed and self._reason == "completed":
            self._reason = "agent_exited" if is_lost else "error"

    def _end(self, reason: Reason, effects: list[Effect]) -> None:
        """End the turn. Only this method does."""
        if self.offers:
            effects.append(PromptsCancelled(tuple(self.offers)))
            self.offers.clear()
        if self.state is not State.CLOSED:
            self.state = State.IDLE
        self.open.clear()
        self._at_work = False
        self._stopped = False
        effects.append(TurnEnd(self.turn, reason))

    def _cancel(self, effects: list[Effect]) -> None:
        if self.queue:
            effects.append(PromptsCancelled(tuple(self.queue)))
            self.queue.clear()
