"""Questions of agents in one form: the fields of MCP servers' forms (elicitation), a person's answers to them, and plans."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from universal.events import Question, QuestionOption
from universal.items import Json
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text

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


def form_questions(properties: dict[str, Json], message: str) -> tuple[Question, ...]:
    """The questions of a form's fields, in their order. Each begins with the form's message."""
    return tuple(_field(name, obj(schema), message) for name, schema in properties.items())


def form_content(properties: dict[str, Json], answers: Sequence[Sequence[str]]) -> dict[str, Json]:
    """The content of a form by the answers to its questions. A field without an answer is left out."""
    pairs = zip(properties.items(), answers, strict=False)
    return {name: _value(obj(schema), list(labels)) for (name, schema), labels in pairs if labels}


def _field(name: str, schema: dict[str, Json], message: str) -> Question:
    """One field of a form as a question."""
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
    """An answer as the field's type."""
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
