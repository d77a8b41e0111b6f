"""The sessions of a session's subagents."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shim.sessions.session.session_state import SessionState
from universal.codec import Fact
from universal.turn import Input


class ChildSessions:
    """The children of one session, by the agent's keys.

    In: `open_child` creates the session of a new subagent; `on_end` is called when this class has ended a child's turn.
    """

    def __init__(
        self, parent: SessionState, open_child: Callable[[str, Fact], SessionState], on_end: Callable[[SessionState], None]
    ) -> None:
        self._parent = parent
        self._open_child = open_child
        self._on_end = on_end
        self._states: dict[str, SessionState] = {}

    def __iter__(self) -> Iterator[SessionState]:
        return iter(self._states.values())

    @property
    def is_busy(self) -> bool:
        """Whether a subagent works."""
        return any(state.machine.busy for state in self._states.values())

    def state_of(self, key: str | None) -> SessionState:
        """The session that a fact, check or signal belongs to: a child's, or the parent's."""
        return self._states.get(key, self._parent) if key is not None else self._parent

    def open(self, key: str, fact: Fact) -> SessionState:
        """The session of a child, which is created at its first fact."""
        if key not in self._states:
            self._states[key] = self._open_child(key, fact)
        return self._states[key]

    def abort(self) -> None:
        """End the turns of all children, as aborted."""
        self._end(Input.ABORT, Input.ABORT_TIMEOUT)

    def lose(self) -> None:
        """End the turns of all children, because their process has ended."""
        self._end(Input.EXIT)

    def _end(self, *inputs: Input) -> None:
        for state in self._states.values():
            if state.machine.busy:
                for input_ in inputs:
                    state.apply(input_)
                self._on_end(state)
