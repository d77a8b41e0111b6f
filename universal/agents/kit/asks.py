"""Keeps the open permissions and questions of an agent.

Each request gives exactly one `requested` and one `resolved` event: by our reply, by the agent, or because the agent does not
wait any more. A check that no rule concerns (`ToolCheck`, `proceed`) gives no event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from universal.codec import Fact
from universal.events import EventType, PermissionData, Question, QuestionData
from universal.items import Json
from universal.permissions import Decision

Answers: TypeAlias = Sequence[Sequence[str]]

WITHDRAWN: dict[str, Json] = {"withdrawn": True}
"""`metadata` of a request that ended without an answer."""


@dataclass(slots=True, kw_only=True)
class Ask:
    """An open request. `questions` is None for a permission; `action` is what a permission is about."""

    ask_id: str
    action: str
    metadata: dict[str, Json]
    child: str | None = None
    questions: tuple[Question, ...] | None = None

    @property
    def is_question(self) -> bool:
        """True for a question, False for a permission."""
        return self.questions is not None


AskT = TypeVar("AskT", bound=Ask)


@dataclass(slots=True)
class OpenAsks(Generic[AskT]):
    """The open requests of one process, by our ids."""

    _open: dict[str, AskT] = field(default_factory=dict[str, AskT])

    def __bool__(self) -> bool:
        return bool(self._open)

    def __iter__(self) -> Iterator[AskT]:
        return iter(list(self._open.values()))

    def begin(self, ask: AskT, raw: Json) -> Fact:
        """Add an open request, and return its `requested` fact."""
        self._open[ask.ask_id] = ask
        if ask.questions is not None:
            return Fact(EventType.QUESTION_REQUESTED, _question(ask, ask.questions, "requested"), raw=raw, child=ask.child)
        return Fact(EventType.PERMISSION_REQUESTED, _permission(ask, "requested"), raw=raw, child=ask.child)

    def permission(self, ask_id: str) -> AskT | None:
        """The open permission with this id, or None."""
        ask = self._open.get(ask_id)
        return None if ask is None or ask.is_question else ask

    def question(self, ask_id: str) -> AskT | None:
        """The open question with this id, or None."""
        ask = self._open.get(ask_id)
        return ask if ask is not None and ask.is_question else None

    def find(self, matches: Callable[[AskT], bool]) -> AskT | None:
        """The first open request that matches."""
        return next((ask for ask in self._open.values() if matches(ask)), None)

    def drop(self, ask: AskT) -> None:
        """Remove a check without an event."""
        del self._open[ask.ask_id]

    def resolve_permission(self, ask: AskT, decision: Decision, message: str | None = None, raw: Json = None) -> Fact:
        """Resolve a permission by a decision. `message`: the person's message."""
        del self._open[ask.ask_id]
        return _permission_resolved(ask, decision, {"message": message} if message else {}, raw)

    def resolve_question(self, ask: AskT, answers: Answers | None, message: str | None = None, raw: Json = None) -> Fact:
        """Resolve a question by its answers, a list of labels for each part. None rejects it."""
        del self._open[ask.ask_id]
        return _question_resolved(ask, answers, {"message": message} if message else {}, raw)

    def withdrawn(self, ask: AskT, raw: Json = None) -> Fact:
        """Resolve a request that the agent does not wait for any more."""
        del self._open[ask.ask_id]
        if ask.questions is not None:
            return _question_resolved(ask, None, WITHDRAWN, raw)
        return _permission_resolved(ask, "reject", WITHDRAWN, raw)

    def close(self, asks: Iterable[AskT] | None = None) -> Iterator[Fact]:
        """Resolve these requests, or all, because the agent does not wait any more."""
        for ask in self if asks is None else asks:
            yield self.withdrawn(ask)


def _permission_resolved(ask: Ask, decision: Decision, extra: dict[str, Json], raw: Json) -> Fact:
    data = _permission(ask, decision, extra)
    return Fact(EventType.PERMISSION_RESOLVED, data, raw=raw, synthetic=raw is None, child=ask.child)


def _question_resolved(ask: Ask, answers: Answers | None, extra: dict[str, Json], raw: Json) -> Fact:
    data = _question(ask, ask.questions or (), "rejected" if answers is None else "answered", answers, extra)
    return Fact(EventType.QUESTION_RESOLVED, data, raw=raw, synthetic=raw is None, child=ask.child)


def _permission(ask: Ask, status: Literal["requested"] | Decision, extra: dict[str, Json] | None = None) -> PermissionData:
    metadata = {**ask.metadata, **(extra or {})}
    return PermissionData(permission_id=ask.ask_id, action=ask.action, status=status, metadata=metadata)


def _question(
    ask: Ask,
    questions: tuple[Question, ...],
    status: Literal["requested", "answered", "rejected"],
    answers: Answers | None = None,
    extra: dict[str, Json] | None = None,
) -> QuestionData:
    labels = tuple(tuple(row) for row in answers) if answers is not None else None
    first = questions[0] if questions else Question(question="")
    return QuestionData(
        question_id=ask.ask_id,
        prompt=first.question,
        options=tuple(option.label for option in first.options),
        status=status,
        response=", ".join(labels[0]) if labels else None,
        questions=questions,
        answers=labels,
        metadata={**ask.metadata, **(extra or {})},
    )
