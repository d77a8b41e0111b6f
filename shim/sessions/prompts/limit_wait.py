"""Lets a turn that has hit a limit of the person's plan go on when the limit resets (`continue_at_reset`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from shim.lib.errors import InvalidRequest
from shim.sessions.permissions.unattended_policy import Timer
from universal.lib.jsonvalue import obj, whole

if TYPE_CHECKING:
    from shim.sessions.session.actor import SessionActor

KEY = "continue_at_reset"
"""Key in a session's `metadata`: how often a turn may go on, in place of the server's setting."""
MOST = 100
GRACE_S = 2
"""Seconds after the reset: the provider's clock may be another one."""
LOOK_S = 60.0
"""Longest time between two looks at the clock. A timer stands still while the machine sleeps."""
GO_ON = "The limit that stopped you has reset. Go on with what you were doing."


def check_continue_at_reset(metadata: Any) -> None:
    """Raise InvalidRequest if a session's `metadata` has an invalid number."""
    value = obj(metadata).get(KEY)
    if value is not None and not (type(value) is int and 0 <= value <= MOST):
        raise InvalidRequest(f"metadata.{KEY} cannot be used: give a whole number from 0 to {MOST}, not {str(value)[:100]!r}.")


class LimitWait:
    """The wait of one session. While it lasts, the turn is running and nothing was given to the agent."""

    def __init__(self, session: SessionActor) -> None:
        self._deps = session.deps
        self._state = session.main
        self._queue = session.prompt_queue
        self._dispatcher = session.dispatcher
        self._timer: Timer | None = None
        self._until_s = self._count = 0

    @property
    def is_waiting(self) -> bool:
        return self._timer is not None

    def may_wait(self, details: Mapping[str, Any] | None) -> bool:
        """Whether an error is a used up limit after whose reset the turn goes on. In: its `details`."""
        limit = whole((self._state.session.record.metadata or {}).get(KEY), self._deps.settings.continue_at_reset)
        is_limit = bool(details) and whole(obj(details).get("resets_at")) > 0
        return (
            is_limit and self._count < limit and self._state.machine.state == "running" and self._dispatcher.current is not None
        )

    def begin(self, details: Mapping[str, Any]) -> None:
        self._count += 1
        self._until_s = whole(details.get("resets_at")) + GRACE_S
        when = f"{datetime.fromtimestamp(self._until_s, UTC):%d %b, %H:%M} UTC"
        text = f"A limit of your plan is used up. It goes on by itself at {when}."
        self._state.status("retry", text, message=text, attempt=self._count, delay_ms=self._left_ms())
        self._look()

    def cancel(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def end(self) -> None:
        self.cancel()
        self._count = 0

    def to_json(self) -> list[int]:
        """How often it has waited in this turn, and until when it waits: 0 if it does not."""
        return [self._count, self._until_s if self._timer is not None else 0]

    def restore(self, said: Sequence[int]) -> None:
        """Go on with the wait of a server that has ended."""
        self._count, self._until_s = said
        if self._until_s:
            self._look()

    def _left_ms(self) -> int:
        return max(self._until_s * 1000 - self._deps.clock.now_ms(), 0)

    def _look(self) -> None:
        left_ms = self._left_ms()
        if left_ms:
            self._timer = self._deps.call_later(min(left_ms / 1000, LOOK_S), self._look)
            return
        self._timer = None
        pending = self._dispatcher.current
        if pending is not None:
            if self._dispatcher.answer.has_begun:  # it has done some of it: it is not told to do that again
                self._queue.pending[pending.prompt.key] = pending.with_text(GO_ON, pending.retries)
            self._dispatcher.dispatch_again()
