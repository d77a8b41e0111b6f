"""Renders errors of `/v1` and the inspector as RFC 9457 problem details, and defines the errors of their own. Pure.

{"type": "urn:opencode-shim:error:session_busy", "title": "Session busy", "status": 409, "detail": "...", "sessionID": "..."}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shim.http.faces import Face
from shim.lib import errors
from shim.lib.errors import NotFound, RequestError, row_of

CONTENT_TYPE = "application/problem+json"
PROBLEM_TYPE = "urn:opencode-shim:error:"
"""The prefix of every problem's `type`."""


@dataclass(frozen=True, slots=True)
class Row:
    """Status, kind and further members of a problem. `members`: wire name -> the error's field.

    Fields that are None are left out. `text` replaces the message.
    """

    status: int
    kind: str
    members: Mapping[str, str] = field(default_factory=dict[str, str])
    text: Callable[[Any], str] | None = None


class PermissionNotOpen(NotFound):
    """No permission request with this id is open in the session."""

    def __init__(self, session: str, id_: str) -> None:
        super().__init__(f"Session {session!r} waits for no permission {id_!r}: it was answered already, or its turn has ended.")


class QuestionNotOpen(NotFound):
    """No question with this id is open in the session."""

    def __init__(self, session: str, id_: str) -> None:
        super().__init__(f"Session {session!r} waits for no question {id_!r}: it was answered already, or its turn has ended.")


class AgentNotServed(RequestError):
    """The agent that the path names does not exist."""

    def __init__(self, name: str, choices: str) -> None:
        super().__init__(f"There is no agent {name!r}. Known: {choices}.")


class AgentInstallFailed(RequestError):
    """An agent could not be installed."""

    def __init__(self, agent: str, message: str) -> None:
        super().__init__(message)
        self.agent = agent


ERRORS: Mapping[type[RequestError], Row] = {
    RequestError: Row(500, "unknown"),
    errors.InternalError: Row(500, "unknown", {"ref": "reference"}),
    errors.InvalidRequest: Row(400, "invalid_request", {"kind": "location"}),
    errors.PayloadTooLarge: Row(413, "payload_too_large", {"limit": "limit"}),
    errors.FileTooLarge: Row(413, "too_large"),
    errors.RouteUnknown: Row(404, "not_found", text=lambda error: f"{error} GET /doc lists what is served."),
    errors.MethodNotAllowed: Row(405, "method_not_allowed"),
    errors.UnsupportedOperation: Row(501, "unsupported", {"operation": "operation"}),
    NotFound: Row(404, "not_found"),
    errors.SessionNotFound: Row(
        404,
        "session_not_found",
        text=lambda error: f"There is no session {error.session_id!r}. GET /v1/sessions lists them.",
    ),
    errors.PermissionNotFound: Row(404, "permission_not_found", {"requestID": "request_id"}),
    errors.QuestionNotFound: Row(404, "question_not_found", {"requestID": "request_id"}),
    PermissionNotOpen: Row(404, "permission_not_found"),
    QuestionNotOpen: Row(404, "question_not_found"),
    AgentNotServed: Row(404, "unsupported_agent"),
    errors.Conflict: Row(409, "conflict"),
    errors.SessionExists: Row(409, "session_already_exists"),
    errors.SessionTerminated: Row(
        409,
        "session_ended",
        text=lambda _error: "This session was terminated: it can be read, and takes no messages. Make a new one.",
    ),
    errors.PathExists: Row(409, "already_exists"),
    errors.SessionBusy: Row(409, "session_busy", {"sessionID": "session_id"}),
    errors.LimitReached: Row(429, "limit_reached", {"limit": "limit", "value": "value"}),
    errors.Forbidden: Row(403, "permission_denied"),
    errors.LoginRefused: Row(401, "token_invalid"),
    errors.TooManyLogins: Row(429, "too_many_requests"),
    errors.GitRefused: Row(400, "invalid_request"),
    errors.AgentUnknown: Row(400, "unsupported_agent"),
    errors.AgentNotInstalled: Row(400, "agent_not_installed"),
    errors.ModeNotSupported: Row(400, "mode_not_supported"),
    AgentInstallFailed: Row(500, "install_failed", {"agent": "agent"}),
    errors.ServiceUnavailable: Row(503, "service_unavailable", {"service": "service"}),
}


def render(error: RequestError) -> tuple[int, dict[str, Any]]:
    """Render an error as status and body."""
    if isinstance(error, errors.HttpRefused):
        return error.status, _problem(error.status, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", error.name).lower(), error.message)
    row = row_of(ERRORS, error)
    members = {name: value for name, key in row.members.items() if (value := getattr(error, key)) is not None}
    return row.status, {**_problem(row.status, row.kind, error.message if row.text is None else row.text(error)), **members}


def _problem(status: int, kind: str, detail: str) -> dict[str, Any]:
    return {"type": f"{PROBLEM_TYPE}{kind}", "title": kind.replace("_", " ").capitalize(), "status": status, "detail": detail}


FACE = Face("v1", render, ("/v1/", "/inspector/api/"), CONTENT_TYPE)
"""The face of `/v1` and of the inspector's API."""
