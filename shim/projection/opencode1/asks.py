"""Permissions and questions in the form of OpenCode's wire. Pure.

Source: recordings `perm_*`, `question_*` of 1.18.33.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from shim.opencode.build import Wire
from universal.events import PermissionData, QuestionData
from universal.permissions import Access

ABORTED = "Tool execution aborted"
DISMISSED = "The user dismissed this question"
"""Native's words for calls that did not run. The TUI draws an error that has one of them as refused, not as failed."""


def permission_request(data: PermissionData, session_id: str, access: Access, tool: Wire | None) -> Wire:
    """`PermissionRequest` of the document."""
    wire: Wire = {
        "id": data.permission_id,
        "sessionID": session_id,
        "permission": access.permission,
        "patterns": list(access.patterns),
        "metadata": dict(access.metadata),
        "always": list(access.always),
    }
    if tool:
        wire["tool"] = tool
    return wire


def question_request(data: QuestionData, session_id: str, tool: Wire | None) -> Wire:
    """`QuestionRequest` of the document."""
    questions: list[Wire] = []
    for q in data.questions:
        wire: Wire = {
            "question": q.question,
            "header": q.header,
            "options": [{"label": o.label, "description": o.description} for o in q.options],
        }
        if q.multiple:
            wire["multiple"] = True
        if not q.custom:
            wire["custom"] = False
        questions.append(wire)
    if not questions:
        questions = [{"question": data.prompt, "header": "", "options": [{"label": o, "description": ""} for o in data.options]}]
    request: Wire = {"id": data.question_id, "sessionID": session_id, "questions": questions}
    if tool:
        request["tool"] = tool
    return request


Decision: TypeAlias = Literal["accept", "accept_for_session", "reject"]

REPLIES: dict[Decision, str] = {"accept": "once", "accept_for_session": "always", "reject": "reject"}
"""Universal decision -> OpenCode's reply."""
DECISIONS: dict[str, Decision] = {reply: decision for decision, reply in REPLIES.items()}


def rejection(message: str) -> str:
    """Native's error of a call that a person rejected, with what the person said, if anything."""
    words = "The user rejected permission to use this specific tool call"
    return f"{words} with the following feedback: {message}" if message else f"{words}."
