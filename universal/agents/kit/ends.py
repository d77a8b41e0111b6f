"""Signs of a turn's end. One sign is not enough: each agent has a table of all (`ENDS`), with the wait for the others after each.

An agent that can be asked is asked before a turn ends by a sign alone, and now and then in silence (`Watch`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from universal.agents.kit.context import make_error
from universal.codec import Output, SetTimer, Stop
from universal.items import Json

END = "end"
"""Key of the timer for the end of a turn."""
END_S = 2.0
"""Seconds for the other signs after one."""
ASK_S = 5.0
"""Seconds for the answer of an agent that is asked whether it still works."""
POLL_S = 30.0
"""Seconds of work after which an agent is asked without a sign."""
SILENCES = 3
"""Questions in a row that an agent may leave unanswered without a sign. Then it is given up."""


class Sign(NamedTuple):
    """A sign that a turn is over: how it shows that, and the seconds for others to follow. 0: it ends the turn at once."""

    shows: str
    wait_s: float = 0.0


class Watch:
    """Finds out whether sessions of an agent still work, by its signs and its answers. Its timer is END.

    A session is over if two answers in a row say that it rests, END_S apart, because events may still be on their way. It is also
    over if it has given a sign and the agent does not answer. In: the agent's name for a person; `ask`, which makes the request;
    `active`, which lists the sessions that have something to answer; `end`, which ends one of them.
    """

    def __init__(
        self,
        title: str,
        ask: Callable[[], Output],
        active: Callable[[], Sequence[str]],
        end: Callable[[str, dict[str, Any]], Iterable[Output]],
    ) -> None:
        self._title, self._ask, self._active, self._end = title, ask, active, end
        self._signs: set[str] = set()
        self._resting: set[str] = set()
        self._is_asked = False
        self._silences = 0

    def on_sign(self, session: str, sign: Sign) -> SetTimer:
        self._signs.add(session)
        return SetTimer(END, sign.wait_s)

    def on_work(self, session: str) -> None:
        """Note that a session works, which takes back its signs."""
        self._signs.discard(session)
        self._resting.discard(session)

    def begin(self, session: str) -> SetTimer:
        """Note that a session has something to answer."""
        self.on_work(session)
        self._is_asked, self._silences = False, 0
        return SetTimer(END, POLL_S)

    def on_timer(self) -> Iterator[Output]:
        """Ask. If the agent was asked and has not answered, end what has given a sign, or give the agent up."""
        if not self._active():
            return
        self._is_asked = not self._is_asked
        if self._is_asked:
            yield self._ask()
            yield SetTimer(END, ASK_S)
            return
        self._silences += 1
        for session in self._active():
            if session in self._signs:
                yield from self._end(session, {})
        if not self._active():
            return
        if self._silences >= SILENCES:
            yield Stop("it does not say whether it works", error=_unresponsive(self._title))
        else:
            yield SetTimer(END, ASK_S)

    def on_answer(self, working: Collection[str], raw: dict[str, Any]) -> Iterator[Output]:
        self._is_asked, self._silences = False, 0
        for session in self._active():
            if session in working:
                self.on_work(session)
            elif session in self._resting:
                self.on_work(session)
                yield from self._end(session, raw)
            else:
                self._resting.add(session)
        if self._active():
            yield SetTimer(END, END_S if self._resting else POLL_S)


def _unresponsive(title: str) -> dict[str, Json]:
    hint = "Send the prompt again. If it stays so, `opencode-shim doctor` and the server's log say more."
    message = f"{title} does not answer any more, so it was stopped."
    return make_error(message, "agent_unresponsive", hint=hint, is_retryable=True)
