"""Signs of a turn's end. One sign is not enough: each agent has a table of all (`ENDS`), with the wait for the others after each.

An agent that can be asked is asked before a turn ends by a sign alone, and now and then in silence (`Watch`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from universal.codec import SetTimer
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


def unresponsive(title: str) -> dict[str, Json]:
    """The error of an agent that does not answer any more."""
    hint = "Send the prompt again. If it stays so, `opencode-shim doctor` and the server's log say more."
    message = f"{title} does not answer any more, so it was stopped."
    return {"message": message, "code": "agent_unresponsive", "details": {"is_retryable": True, "hint": hint}}


class Sign(NamedTuple):
    """A sign that a turn is over: how it shows that, and the seconds for others to follow. 0: it ends the turn at once."""

    shows: str
    wait_s: float = 0.0


class Watch:
    """Whether sessions of an agent still work, by its signs and its answers. The codec sets the timer `END` and asks.

    A session is over if two answers in a row say that it rests, END_S apart, because events may still be on their way. It is also
    over if it has given a sign and the agent does not answer.
    """

    __slots__ = ("_is_asked", "_resting", "_signs", "_silences")

    def __init__(self) -> None:
        self._signs: set[str] = set()
        self._resting: set[str] = set()
        self._is_asked = False
        self._silences = 0

    @property
    def has_lost_agent(self) -> bool:
        """Whether the agent has not answered several times in a row."""
        return self._silences >= SILENCES

    def on_sign(self, session: str, sign: Sign) -> SetTimer:
        """Note a sign of a session."""
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

    def must_ask(self) -> bool:
        """Return whether to ask, because the time is over. False: the agent was asked, and has not answered."""
        self._is_asked = not self._is_asked
        self._silences += not self._is_asked
        return self._is_asked

    def over_by_signs(self, sessions: Iterable[str]) -> list[str]:
        """Return which of these sessions are over, because the agent does not answer."""
        return [session for session in sessions if session in self._signs]

    def on_answer(self, sessions: Iterable[str], working: Collection[str]) -> tuple[list[str], SetTimer]:
        """Handle an answer: which of these sessions are over, and when to ask again."""
        self._is_asked, self._silences = False, 0
        over: list[str] = []
        for session in sessions:
            if session in working:
                self.on_work(session)
            elif session in self._resting:
                over.append(session)
                self.on_work(session)
            else:
                self._resting.add(session)
        return over, SetTimer(END, END_S if self._resting else POLL_S)
