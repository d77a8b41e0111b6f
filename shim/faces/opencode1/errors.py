"""Renders errors as OpenCode 1 does: `{"name", "data": {"message", ...}}`, and some as `{"_tag", ...}`. Pure.

Source: the API document of OpenCode 1.18.33, and recordings of a live one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shim.lib import errors
from shim.lib.errors import RequestError, row_of


@dataclass(frozen=True, slots=True)
class Row:
    """Status, name and members of an error. `members`: wire name -> the error's field; None values are left out.

    `tagged` rows are `{"_tag", members}`; all others `{"name", "data": {"message", members}}`. `text` replaces the message.
    """

    status: int
    name: str
    members: Mapping[str, str] = field(default_factory=dict[str, str])
    tagged: bool = False
    text: Callable[[Any], str] | None = None


class CursorInvalid(RequestError):
    """The cursor of a list of messages is invalid. The text is native OpenCode's."""

    def __init__(self) -> None:
        super().__init__("Invalid cursor")


class SessionNotMoved(RequestError):
    """The session cannot move to another directory."""


ERRORS: Mapping[type[RequestError], Row] = {
    RequestError: Row(500, "UnknownError"),
    errors.InternalError: Row(500, "UnknownError", {"ref": "reference"}),
    errors.InvalidRequest: Row(400, "BadRequest", {"kind": "location"}),
    CursorInvalid: Row(400, "BadRequest", tagged=True),
    errors.PayloadTooLarge: Row(413, "PayloadTooLargeError", {"limit": "limit"}),
    errors.FileTooLarge: Row(413, "PayloadTooLargeError"),
    errors.RouteUnknown: Row(404, "NotFoundError", text=lambda error: f"{error} GET /doc lists what is served."),
    errors.MethodNotAllowed: Row(405, "MethodNotAllowedError"),
    errors.UnsupportedOperation: Row(501, "UnsupportedError", {"operation": "operation"}),
    errors.NotFound: Row(404, "NotFoundError"),
    errors.PermissionNotFound: Row(
        404, "PermissionNotFoundError", {"requestID": "request_id", "message": "message"}, tagged=True
    ),
    errors.QuestionNotFound: Row(404, "QuestionNotFoundError", {"requestID": "request_id", "message": "message"}, tagged=True),
    errors.ProjectNotFound: Row(404, "ProjectNotFoundError", {"projectID": "project_id", "message": "message"}, tagged=True),
    errors.PtyNotFound: Row(404, "PtyNotFoundError", {"ptyID": "pty_id", "message": "message"}, tagged=True),
    errors.McpServerNotFound: Row(404, "McpServerNotFoundError", {"name": "name", "message": "message"}, tagged=True),
    errors.Conflict: Row(409, "ConflictError"),
    errors.SessionBusy: Row(409, "SessionBusyError", {"sessionID": "session_id", "message": "message"}, tagged=True),
    errors.LimitReached: Row(429, "LimitReachedError", {"limit": "limit", "value": "value"}),
    errors.Forbidden: Row(403, "ForbiddenError"),
    errors.PtyForbidden: Row(403, "PtyForbiddenError", {"message": "message"}, tagged=True),
    errors.LoginRefused: Row(401, "UnauthorizedError"),
    errors.TooManyLogins: Row(429, "TooManyRequestsError"),
    errors.GitRefused: Row(400, "BadRequest"),
    errors.PatchRefused: Row(400, "VcsApplyError", {"reason": "reason"}),
    errors.WorktreeNotGit: Row(400, "WorktreeNotGitError"),
    errors.WorktreeCreateFailed: Row(400, "WorktreeCreateFailedError"),
    errors.WorktreeNameFailed: Row(400, "WorktreeNameGenerationFailedError"),
    errors.WorktreeStartCommandFailed: Row(400, "WorktreeStartCommandFailedError"),
    errors.WorktreeResetFailed: Row(400, "WorktreeResetFailedError"),
    errors.WorktreeRemoveFailed: Row(400, "WorktreeRemoveFailedError"),
    errors.ProjectCopyError: Row(400, "ProjectCopyError", {"forceRequired": "force_required"}),
    SessionNotMoved: Row(400, "MoveSessionError"),
    errors.AgentUnknown: Row(400, "BadRequest"),
    errors.AgentNotInstalled: Row(400, "BadRequest"),
    errors.ModeNotSupported: Row(400, "BadRequest"),
    errors.ServiceUnavailable: Row(503, "ServiceUnavailableError", {"service": "service"}),
}


def render(error: RequestError) -> tuple[int, dict[str, Any]]:
    """Render an error as status and body."""
    if isinstance(error, errors.HttpRefused):
        return error.status, {"name": f"{error.name}Error", "data": {"message": error.message}}
    row = row_of(ERRORS, error)
    members = {name: value for name, key in row.members.items() if (value := getattr(error, key)) is not None}
    if row.tagged:
        return row.status, {"_tag": row.name, **members}
    message = error.message if row.text is None else row.text(error)
    return row.status, {"name": row.name, "data": {"message": message, **members}}
