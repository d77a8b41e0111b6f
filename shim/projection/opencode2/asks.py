"""Permissions and questions as OpenCode 2 asks them: permission requests and forms. Pure.

Source: recordings `permission_*`, `question*` of `v2-20260717`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shim.opencode2.events import Wire
from shim.projection.opencode2.names import ACTIONS
from universal.jsonvalue import arr, obj, text

TITLE = "Questions"


def form_id(question_id: str) -> str:
    """The form that is this question."""
    return f"frm_{question_id.removeprefix('que_')}"


def source(tool: Mapping[str, object]) -> Wire:
    """Where a 1.x request came from, `{messageID, callID}`, by R's names; empty if it came from no call."""
    return {"messageID": tool["messageID"], "id": tool["callID"]} if tool else {}


def permission(asked: Wire) -> Wire:
    """`PermissionRequest` from `permission.asked` of 1.x."""
    tool, metadata = source(obj(asked.get("tool"))), obj(asked.get("metadata"))
    wire: Wire = {
        "id": asked["id"],
        "sessionID": asked["sessionID"],
        "action": ACTIONS.get(asked["permission"], asked["permission"]),
        "resources": list(asked["patterns"]),
        "save": list(asked["always"]),
    }
    if metadata:
        wire["metadata"] = metadata
    return {**wire, "source": {"type": "tool", **tool}} if tool else wire


def form(asked: Wire) -> Wire:
    """`FormInfo` from `question.asked` of 1.x: fields `q0`, `q1` ..."""
    tool = source(obj(asked.get("tool")))
    return {
        "id": form_id(asked["id"]),
        "sessionID": asked["sessionID"],
        "title": TITLE,
        "metadata": {"kind": "question", **({"tool": tool} if tool else {})},
        "fields": [_field(number, obj(question)) for number, question in enumerate(arr(asked.get("questions")))],
    }


def _field(number: int, question: Wire) -> Wire:
    multiple = question.get("multiple") is True
    field: Wire = {"key": f"q{number}", "title": text(question.get("header")), "description": text(question.get("question"))}
    field["type"] = "multiselect" if multiple else "string"
    field["options"] = [
        {"value": text(o.get("label")), "label": text(o.get("label")), "description": text(o.get("description"))}
        for o in map(obj, arr(question.get("options")))
    ]
    field["custom"] = question.get("custom") is not False
    return field


def answer(form: Wire, answers: Sequence[Sequence[str]]) -> Wire:
    """`FormAnswer` from the answers, one list for each question. A question without an answer has no key."""
    told: Wire = {}
    for field, given in zip(form["fields"], answers, strict=False):
        if given:
            told[field["key"]] = list(given) if field["type"] == "multiselect" else ", ".join(given)
    return told


def answers(form: Wire, answer: Mapping[str, object]) -> list[list[str]]:
    """The other way: the answers to each question of the form, empty where there is none."""
    given = [answer.get(field["key"]) for field in form["fields"]]
    return [[str(v) for v in arr(value)] if isinstance(value, list) else [] if value is None else [str(value)] for value in given]
