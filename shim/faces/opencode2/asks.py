"""Converts permission requests and questions to OpenCode 2's permission requests and forms. Pure.

Source: recordings `permission_*`, `question*` of `v2-20260717`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shim.faces.opencode2.events import Wire
from shim.faces.opencode2.names import ACTIONS
from universal.events import Question
from universal.jsonvalue import arr
from universal.session.model import CallRef, PermissionRequest, QuestionRequest

TITLE = "Questions"


def form_id(question_id: str) -> str:
    """The id of the form that shows a question."""
    return f"frm_{question_id.removeprefix('que_')}"


def source(call: CallRef | None, message_id: str) -> Wire:
    """`source` of a request: its tool call and the message, by OpenCode 2's ids. Empty for a request without a call."""
    return {"messageID": message_id, "id": call.call_id} if call is not None else {}


def permission(request: PermissionRequest, session_id: str, tool: Wire) -> Wire:
    """The `PermissionRequest` of a request. In: `tool`, its `source`."""
    access = request.access
    wire: Wire = {
        "id": request.id,
        "sessionID": session_id,
        "action": ACTIONS.get(access.permission, access.permission),
        "resources": list(access.patterns),
        "save": list(access.always),
    }
    if access.metadata:
        wire["metadata"] = dict(access.metadata)
    return {**wire, "source": {"type": "tool", **tool}} if tool else wire


def form(request: QuestionRequest, session_id: str, tool: Wire) -> Wire:
    """The `FormInfo` of a question request, with fields `q0`, `q1` ... In: `tool`, its `source`."""
    return {
        "id": form_id(request.id),
        "sessionID": session_id,
        "title": TITLE,
        "metadata": {"kind": "question", **({"tool": tool} if tool else {})},
        "fields": [_field(number, question) for number, question in enumerate(request.questions)],
    }


def question(request: QuestionRequest, session_id: str) -> Wire:
    """The `QuestionV2Request` of builds before 2.0, which have no forms."""
    questions: list[Wire] = []
    for asked in request.questions:
        options = [{"label": option.label, "description": option.description} for option in asked.options]
        wire: Wire = {"question": asked.question, "header": asked.header, "options": options}
        wire |= {"multiple": True} if asked.multiple else {}
        wire |= {} if asked.custom else {"custom": False}
        questions.append(wire)
    call = request.call
    tool = {"tool": {"messageID": call.message_id, "callID": call.call_id}} if call is not None else {}
    return {"id": request.id, "sessionID": session_id, "questions": questions, **tool}


def _field(number: int, question: Question) -> Wire:
    options = [{"value": one.label, "label": one.label, "description": one.description} for one in question.options]
    return {
        "key": f"q{number}",
        "title": question.header,
        "description": question.question,
        "type": "multiselect" if question.multiple else "string",
        "options": options,
        "custom": question.custom,
    }


def answer(form: Wire, answers: Sequence[Sequence[str]]) -> Wire:
    """The `FormAnswer` of the answers, which are one list for each question. A question without an answer has no key."""
    told: Wire = {}
    for field, given in zip(form["fields"], answers, strict=False):
        if given:
            told[field["key"]] = list(given) if field["type"] == "multiselect" else ", ".join(given)
    return told


def answers(form: Wire, answer: Mapping[str, object]) -> list[list[str]]:
    """The answers to each question, from a `FormAnswer`. A question without an answer has an empty list."""
    given = [answer.get(field["key"]) for field in form["fields"]]
    return [[str(v) for v in arr(value)] if isinstance(value, list) else [] if value is None else [str(value)] for value in given]
