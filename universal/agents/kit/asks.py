"""Keeps the open permissions and questions of an agent.

Each request gives exactly one `requested` and one `resolved` event: by our reply, by the agent, or because the agent does not
wait any more. A check that no rule concerns (`ToolCheck`, `proceed`) gives no event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from universal.codec import Fact
from universal.events import EventType, PermissionData, Question, QuestionData, QuestionOption
from universal.items import Json
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text
from universal.permissions import Decision

# --- questions --------------------------------------------------------------------------------------------------

PLAN_QUESTION = "Proceed with this plan?"
LONG_PLAN_LINES = 15
"""Lines of a plan that a terminal shows above its question."""


def plan_question(
    plan: str, options: Sequence[QuestionOption], refusals: Collection[str], *, words: str = PLAN_QUESTION, custom: bool
) -> Question:
    """The question whether to carry out a plan. The plan itself goes into `metadata.plan`: it is shown as text, to be scrolled.

    Clients choose the first option at Enter. Of a plan that is too long to be seen beside it, that is one of `refusals` (labels).
    """
    is_long = plan.count("\n") >= LONG_PLAN_LINES
    ordered = sorted(options, key=lambda option: option.label not in refusals) if is_long else options
    return Question(question=words, header="Plan", options=tuple(ordered), custom=custom)


def read_question(row: dict[str, Json], *, multiple: str = "multiple", custom: bool = True) -> Question:
    """A question {question, header, options: [{label, description}]}. In: `multiple`, the key for several answers."""
    return Question(
        question=get_text(row, "question"),
        header=get_text(row, "header"),
        options=tuple(
            QuestionOption(label=get_text(option, "label"), description=get_text(option, "description"))
            for option in map(obj, arr(row.get("options")))
        ),
        multiple=row.get(multiple) is True,
        custom=custom,
    )


def form_questions(properties: dict[str, Json], message: str) -> tuple[Question, ...]:
    """The questions of a form's fields, in their order. Each begins with the form's message."""
    return tuple(_field(name, obj(schema), message) for name, schema in properties.items())


def form_content(properties: dict[str, Json], answers: Sequence[Sequence[str]]) -> dict[str, Json]:
    """The content of a form by the answers to its questions. A field without an answer is left out."""
    pairs = zip(properties.items(), answers, strict=False)
    return {name: _value(obj(schema), list(labels)) for (name, schema), labels in pairs if labels}


def _field(name: str, schema: dict[str, Json], message: str) -> Question:
    items = obj(schema.get("items"))
    labels = (
        ["Yes", "No"] if schema.get("type") == "boolean" else [as_text(v) for v in arr(schema.get("enum") or items.get("enum"))]
    )
    labels = labels or [get_text(obj(v), "const") for v in arr(schema.get("oneOf") or items.get("anyOf"))]
    options = tuple(QuestionOption(label=label) for label in labels if label)
    words = get_text(schema, "description", "title") or name
    return Question(
        question=f"{message}\n{words}" if message else words,
        header=get_text(schema, "title") or name,
        options=options,
        multiple=schema.get("type") == "array",
        custom=not options,
    )


def _value(schema: dict[str, Json], labels: list[str]) -> Json:
    kind, first = get_text(schema, "type"), labels[0]
    if kind == "array":
        return labels
    if kind == "boolean":
        return first == "Yes"
    if kind in ("integer", "number"):
        try:
            return int(first) if kind == "integer" else float(first)
        except ValueError:
            return first
    return first


# --- open requests ----------------------------------------------------------------------------------------------

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
        ask = self._open.get(ask_id)
        return None if ask is None or ask.is_question else ask

    def take_permission(self, ask_id: str) -> AskT | None:
        """The same, which is then not open any more: a check that the agent's mode allows gives no event."""
        if (ask := self.permission(ask_id)) is not None:
            self.drop(ask)
        return ask

    def question(self, ask_id: str) -> AskT | None:
        ask = self._open.get(ask_id)
        return ask if ask is not None and ask.is_question else None

    def find(self, matches: Callable[[AskT], bool]) -> AskT | None:
        return next((ask for ask in self._open.values() if matches(ask)), None)

    def drop(self, ask: AskT) -> None:
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
