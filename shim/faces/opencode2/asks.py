"""Converts permission requests and questions to OpenCode 2's permission requests and forms. Pure.

Source: recordings `permission_*`, `question*` of `v2-20260717`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from shim.faces.opencode2.names import ACTIONS
from universal.events import Question
from universal.lib.jsonvalue import arr, present
from universal.session.values import PermissionRequest, QuestionRequest

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import types

TITLE = "Questions"


class CallSource(TypedDict):
    """The tool call of a request and its message, by OpenCode 2's ids."""

    messageID: str
    id: str


def form_id(question_id: str) -> str:
    """The id of the form that shows a question."""
    return f"frm_{question_id.removeprefix('que_')}"


def permission(request: PermissionRequest, session_id: str, tool: CallSource | None) -> types.PermissionRequest:
    """The `PermissionRequest` of a request. In: `tool`, its `source`."""
    access = request.access
    wire = present(
        id=request.id,
        sessionID=session_id,
        action=ACTIONS.get(access.permission, access.permission),
        resources=list(access.patterns),
        save=list(access.always),
        metadata=dict(access.metadata) or None,
        source={"type": "tool", **tool} if tool else None,
    )
    return cast("types.PermissionRequest", wire)


def form(request: QuestionRequest, session_id: str, tool: CallSource | None) -> types.FormInfo:
    """The `FormInfo` of a question request, with fields `q0`, `q1` ... In: `tool`, its `source`."""
    return {
        "id": form_id(request.id),
        "sessionID": session_id,
        "title": TITLE,
        "metadata": {"kind": "question", **({"tool": tool} if tool else {})},
        "fields": [_field(number, question) for number, question in enumerate(request.questions)],
    }


def _field(number: int, question: Question) -> types.FormField:
    options: list[types.FormOption] = [
        {"value": option.label, "label": option.label, "description": option.description} for option in question.options
    ]
    field: types.FormFieldString = {
        "key": f"q{number}",
        "title": question.header,
        "description": question.question,
        "type": "string",
        "options": options,
        "custom": question.custom,
    }
    return {**field, "type": "multiselect"} if question.multiple else field


def answer(form: types.FormInfo, answers: Sequence[Sequence[str]]) -> types.FormAnswer:
    """The `FormAnswer` of the answers, which are one list for each question. A question without an answer has no key."""
    values: dict[str, str | list[str]] = {}
    for field, labels in zip(form["fields"], answers, strict=False):
        if labels:
            values[field["key"]] = list(labels) if field["type"] == "multiselect" else ", ".join(labels)
    return values


def answers(form: types.FormInfo, answer: Mapping[str, object]) -> list[list[str]]:
    """The answers to each question, from a `FormAnswer`. A question without an answer has an empty list."""
    values = [answer.get(field["key"]) for field in form["fields"]]
    return [
        [str(v) for v in arr(value)] if isinstance(value, list) else [] if value is None else [str(value)] for value in values
    ]
