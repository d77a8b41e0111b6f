"""Turn machines with one planted bug each: the tests of the laws' tests.

A first version of the laws drew all inputs from one rule and did not see a lost queue in 400 runs; since then
every bug that somebody may plausibly write is planted here, and `test_mutants.py` wants each of them found.
"""

from __future__ import annotations

from collections.abc import Callable

from universal.turn import (
    OURS,
    TRANSITIONS,
    DispatchPrompt,
    Effect,
    Input,
    InterruptAgent,
    KillAgent,
    PromptsCancelled,
    Reason,
    State,
    Step,
    Table,
    TurnEnd,
    TurnMachine,
)

Row = tuple[State, Input]


def table(change: dict[Row, tuple[State, Step] | None]) -> Callable[[], TurnMachine]:
    """A machine with these rows changed; None takes the row away."""
    merged: dict[Row, tuple[State, Step] | None] = {**TRANSITIONS, **change}
    rows: Table = {pair: row for pair, row in merged.items() if row is not None}
    return lambda: TurnMachine(table=rows)


class IdleOnStrayDone(TurnMachine):
    """A DONE after the end says idle once more (duplicate `session.idle`)."""

    def apply(self, input_: Input, key: str = "") -> list[Effect]:
        if self.state is State.IDLE and input_ is Input.DONE and self.turn:
            return [TurnEnd(self.turn, "completed")]
        return super().apply(input_, key)


class DoneEndsAtOnce(TurnMachine):
    """A DONE ends the turn though background work goes on."""

    def _step(self, step: Step, key: str, effects: list[Effect]) -> None:
        super()._step(step, key, effects)
        if step == "answer":
            self.open.clear()


class QueueLostAtEnd(TurnMachine):
    """What arrived while aborting is forgotten at the end."""

    def _end(self, reason: Reason, effects: list[Effect]) -> None:
        super()._end(reason, effects)
        self.queue.clear()


class QueueLostInExit(TurnMachine):
    """A crash takes the queued prompts with it."""

    def _fail(self, *, is_lost: bool) -> None:
        super()._fail(is_lost=is_lost)
        if is_lost:
            self.queue.clear()


class OpenNotCleared(TurnMachine):
    """What the ended turn left open holds the next one."""

    def _end(self, reason: Reason, effects: list[Effect]) -> None:
        left = set(self.open)
        super()._end(reason, effects)
        self.open |= left


class OpenSurvivesExit(TurnMachine):
    """The process is gone, its background work is waited for all the same."""

    def _fail(self, *, is_lost: bool) -> None:
        left = set(self.open)
        super()._fail(is_lost=is_lost)
        self.open |= left


class LocalWorkLostInExit(TurnMachine):
    """The process is gone, and with it the snapshot of what it changed: idle is said too early."""

    def _fail(self, *, is_lost: bool) -> None:
        super()._fail(is_lost=is_lost)
        if is_lost:
            self.open.clear()


class LocalWorkLostInAbort(TurnMachine):
    """An aborted turn ends while the snapshot of what it changed is still being taken."""

    def _is_held(self) -> bool:
        return False


class DispatchBesideLocalWork(TurnMachine):
    """A prompt is handed over while a command of the person's runs, or the snapshot of the one before is being taken."""

    def _is_held(self) -> bool:
        return self.state is State.ABORTING and super()._is_held()


class ExitFailsTheAnswered(TurnMachine):
    """The agent has answered and goes; the turn that only waits for a snapshot is told to have lost it."""

    @property
    def agent_at_work(self) -> bool:
        return not self._stopped and (self._at_work or bool(self.open))


class LocalWorkNeverReleased(TurnMachine):
    """The snapshot is taken, the turn waits for it all the same."""

    def _step(self, step: Step, key: str, effects: list[Effect]) -> None:
        if step != "release" or not key.startswith(OURS):
            super()._step(step, key, effects)


class AllHoldTheAbort(TurnMachine):
    """The agent's background work holds an aborted turn as the server's does."""

    def _is_held(self) -> bool:
        return bool(self.open)


class DoubleEnd(TurnMachine):
    """An abort says idle at once, and the agent's stop says it again."""

    def _step(self, step: Step, key: str, effects: list[Effect]) -> None:
        super()._step(step, key, effects)
        if step == "interrupt":
            effects.append(TurnEnd(self.turn, "aborted"))


class DoubleEndAfterKill(TurnMachine):
    """The abort's timeout ends the turn twice."""

    def _step(self, step: Step, key: str, effects: list[Effect]) -> None:
        super()._step(step, key, effects)
        if step == "kill":
            effects.append(TurnEnd(self.turn, "aborted"))


class DispatchTwice(TurnMachine):
    """The prompt stays in the queue and is handed again."""

    def _dispatch(self, effects: list[Effect]) -> None:
        again = self.queue[0]
        super()._dispatch(effects)
        if self.turn % 2 == 0:
            self.queue.insert(0, again)


class DispatchAtOnce(TurnMachine):
    """A prompt that arrives while another is answered is handed at once; the agent merges them."""

    def _step(self, step: Step, key: str, effects: list[Effect]) -> None:
        super()._step(step, key, effects)
        if step == "queue" and self.state is State.RUNNING:
            self._dispatch(effects)


class LastInFirstOut(TurnMachine):
    """The newest prompt overtakes."""

    def _dispatch(self, effects: list[Effect]) -> None:
        self.queue.insert(0, self.queue.pop())
        super()._dispatch(effects)


class StartedWithoutHand(TurnMachine):
    """Busy is said, but the prompt waits for the next input."""

    def _settle(self, effects: list[Effect]) -> None:
        if self.state is State.IDLE and self.queue:
            self._begin("user", effects)
        else:
            super()._settle(effects)


class AbortKeepsQueue(TurnMachine):
    """An abort stops the running prompt only; the queued ones run all the same."""

    def _cancel(self, effects: list[Effect]) -> None:
        if self.state is State.CLOSED:
            super()._cancel(effects)


class CancelledVanish(TurnMachine):
    """Cancelled prompts are dropped without a word, their HTTP requests wait for ever."""

    def _cancel(self, effects: list[Effect]) -> None:
        self.queue.clear()


class CancelledAfterInterrupt(TurnMachine):
    """The interrupt goes out first."""

    def apply(self, input_: Input, key: str = "") -> list[Effect]:
        effects = super().apply(input_, key)
        if len(effects) == 2 and isinstance(effects[0], PromptsCancelled) and effects[1] == InterruptAgent():
            effects.reverse()
        return effects


class DeleteWithoutEnd(TurnMachine):
    """A deleted session never says idle."""

    def _end(self, reason: Reason, effects: list[Effect]) -> None:
        if self.state is not State.CLOSED:
            super()._end(reason, effects)


class KillAfterEnd(TurnMachine):
    """Something follows `Ended` in its own turn."""

    def apply(self, input_: Input, key: str = "") -> list[Effect]:
        effects = super().apply(input_, key)
        if input_ is Input.DELETE and len(effects) > 1:
            effects.remove(KillAgent())
            effects.append(KillAgent())
        return effects


class DeletedTwice(TurnMachine):
    """A deleted session can be prompted back to life."""

    def apply(self, input_: Input, key: str = "") -> list[Effect]:
        if self.state is State.CLOSED and input_ is Input.PROMPT:
            return [DispatchPrompt(key)]
        return super().apply(input_, key)


class FailureForgotten(TurnMachine):
    """A failed turn ends as if it had been completed."""

    def _fail(self, *, is_lost: bool) -> None:
        super()._fail(is_lost=is_lost)
        self._reason = "completed"


class FailureSticks(TurnMachine):
    """The failure of one prompt is told of the next one, which went well."""

    def _dispatch(self, effects: list[Effect]) -> None:
        reason = self._reason
        super()._dispatch(effects)
        self._reason = reason


class LastFailureWins(TurnMachine):
    """The exit after an error hides the error."""

    def _fail(self, *, is_lost: bool) -> None:
        self._reason = "completed"
        super()._fail(is_lost=is_lost)


class AbortLooksCompleted(TurnMachine):
    """An aborted turn ends as completed."""

    def _end(self, reason: Reason, effects: list[Effect]) -> None:
        super()._end("completed" if reason == "aborted" else reason, effects)


class StopIsSticky(TurnMachine):
    """The next turn's abort ends before the agent has stopped."""

    def _end(self, reason: Reason, effects: list[Effect]) -> None:
        stopped = self._stopped
        super()._end(reason, effects)
        self._stopped = stopped


class WakesUnnumbered(TurnMachine):
    """A turn that the agent began has the number of the one before."""

    def _step(self, step: Step, key: str, effects: list[Effect]) -> None:
        if step == "wake":
            self.turn -= 1
        super()._step(step, key, effects)


class OfferLostInExit(TurnMachine):
    """A crash takes along what the agent was offered."""

    def _take_back(self) -> None:
        self.offers.clear()


class OfferOutlivesAbort(TurnMachine):
    """An aborted turn ends, and what the agent had not taken in is forgotten."""

    def _end(self, reason: Reason, effects: list[Effect]) -> None:
        self.offers.clear()
        super()._end(reason, effects)


class OfferDoesNotHold(TurnMachine):
    """A turn ends with its answer, although the agent is about to answer what it was offered."""

    def _step(self, step: Step, key: str, effects: list[Effect]) -> None:
        super()._step(step, key, effects)
        if step == "answer" and self.state is State.DRAINING:
            self.queue[:0], self.offers = self.offers, []


class OfferIsQueuedToo(TurnMachine):
    """What was taken in is given to the agent again."""

    def _step(self, step: Step, key: str, effects: list[Effect]) -> None:
        if step == "take" and key in self.offers:
            self.queue.append(key)
        super()._step(step, key, effects)


class AbortSendsOffers(TurnMachine):
    """What the agent gives back in an abort starts another turn."""

    def _step(self, step: Step, key: str, effects: list[Effect]) -> None:
        if step == "return" and self.state is State.ABORTING and key in self.offers:
            self.offers.remove(key)
            self.queue.append(key)
        else:
            super()._step(step, key, effects)


class WorkOfNoOffer(TurnMachine):
    """The answer to an offer that nobody made counts as work."""

    def _step(self, step: Step, key: str, effects: list[Effect]) -> None:
        super()._step(step, key, effects)
        if step == "take" and self.state is State.DRAINING:
            self.state = State.RUNNING


class WithdrawnIsQueued(TurnMachine):
    """What a person has withdrawn is sent all the same."""

    def _step(self, step: Step, key: str, effects: list[Effect]) -> None:
        super()._step("return" if step == "withdraw" else step, key, effects)


MUTANTS: dict[str, Callable[[], TurnMachine]] = {
    **{
        mutant.__name__: mutant
        for mutant in (
            IdleOnStrayDone,
            DoneEndsAtOnce,
            QueueLostAtEnd,
            QueueLostInExit,
            OpenNotCleared,
            OpenSurvivesExit,
            LocalWorkLostInExit,
            LocalWorkLostInAbort,
            DispatchBesideLocalWork,
            ExitFailsTheAnswered,
            LocalWorkNeverReleased,
            AllHoldTheAbort,
            DoubleEnd,
            DoubleEndAfterKill,
            DispatchTwice,
            DispatchAtOnce,
            LastInFirstOut,
            StartedWithoutHand,
            AbortKeepsQueue,
            CancelledVanish,
            CancelledAfterInterrupt,
            DeleteWithoutEnd,
            KillAfterEnd,
            DeletedTwice,
            FailureForgotten,
            FailureSticks,
            LastFailureWins,
            AbortLooksCompleted,
            StopIsSticky,
            WakesUnnumbered,
            OfferLostInExit,
            OfferOutlivesAbort,
            OfferDoesNotHold,
            OfferIsQueuedToo,
            AbortSendsOffers,
            WorkOfNoOffer,
            WithdrawnIsQueued,
        )
    },
    "RestoredTurnNeverEnds": table({(State.RESTORED, Input.EXIT): None}),
    "RestoredTurnIsAborted": table({(State.RESTORED, Input.EXIT): (State.RESTORED, "drop")}),
    "ReplayMissed": table({(State.IDLE, Input.REPLAY_STARTED): None}),
    "ReplayStartsWork": table({(State.IDLE, Input.REPLAY_STARTED): (State.RUNNING, "wake")}),
    "ExitWithoutEnd": table({(State.RUNNING, Input.EXIT): (State.IDLE, "lost")}),
    "ExitIgnoredInDraining": table({(State.DRAINING, Input.EXIT): None}),
    "ExitIgnoredInAborting": table({(State.ABORTING, Input.EXIT): None}),
    "FailedByAnotherDoor": table({(State.RUNNING, Input.FAILED): (State.IDLE, "fail")}),
    "FailedIgnored": table({(State.RUNNING, Input.FAILED): None}),
    "HoldIgnoredInRunning": table({(State.RUNNING, Input.OPENED): None}),
    "HoldIgnoredInDraining": table({(State.DRAINING, Input.OPENED): None}),
    "ReleaseIgnoredInDraining": table({(State.DRAINING, Input.CLOSED): None}),
    "ReleaseIgnoredInAborting": table({(State.ABORTING, Input.CLOSED): None}),
    "PromptLostInDraining": table({(State.DRAINING, Input.PROMPT): None}),
    "PromptLostInAborting": table({(State.ABORTING, Input.PROMPT): None}),
    "BusyAfterDelete": table({(State.RUNNING, Input.DELETE): (State.RUNNING, "close")}),
    "DeleteIgnoredInAborting": table({(State.ABORTING, Input.DELETE): None}),
    "AbortTimeoutIgnored": table({(State.ABORTING, Input.ABORT_TIMEOUT): None}),
    "AbortIgnoredInDraining": table({(State.DRAINING, Input.ABORT): None}),
    "SecondAbortIgnored": table({(State.ABORTING, Input.ABORT): None}),
    "SecondAbortInterrupts": table({(State.ABORTING, Input.ABORT): (State.ABORTING, "interrupt")}),
    "StopHeededTooEarly": table({(State.RUNNING, Input.ABORT): (State.ABORTING, "stopped")}),
    "WakeMissed": table({(State.IDLE, Input.ACTIVITY): None}),
    "ActivityMissedInDraining": table({(State.DRAINING, Input.ACTIVITY): None}),
    "ActivityMissedInAborting": table({(State.ABORTING, Input.ACTIVITY): None}),
    "StrayDoneWakes": table({(State.IDLE, Input.DONE): (State.RUNNING, "wake")}),
    "AbortWhenIdleInterrupts": table({(State.IDLE, Input.ABORT): (State.IDLE, "interrupt")}),
}
