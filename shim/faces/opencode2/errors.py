"""Renders errors as OpenCode 2 does (`{"_tag", "message", ...}`), and defines the errors of its own operations. Pure.

Source: the errors of compat_fixtures/opencode2/operations.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shim.http.faces import Face
from shim.lib import errors
from shim.lib.errors import Conflict, NotFound, RequestError, row_of


@dataclass(frozen=True, slots=True)
class Row:
    """Status and tag of an error, and its members: the wire's name -> the error's field. Fields that are None are left out.

    The message comes first unless the members name its place. `nested` rows have the message and the members in `data`, and
    the tag as `name` too. `text` replaces the message.
    """

    status: int
    tag: str
    members: Mapping[str, str] = field(default_factory=dict[str, str])
    nested: bool = False
    text: Callable[[Any], str] | None = None


# --- errors of this face alone ----------------------------------------------------------------------------


class IdInvalid(RequestError):
    """An id does not have the form of its kind. `field` is its name in the request."""

    def __init__(self, kind: str, field: str) -> None:
        super().__init__(f"Invalid {kind} ID")
        self.field = field


class CursorInvalid(RequestError):
    """The cursor of a list cannot be read."""

    def __init__(self) -> None:
        super().__init__("Invalid cursor")


class AgentModeNotFound(NotFound):
    """No agent in OpenCode's sense (a mode of an agent) has this id."""

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"Agent not found: {agent_id}")
        self.agent_id = agent_id


class ProviderNotFound(NotFound):
    """No provider has this id."""

    def __init__(self, provider_id: str) -> None:
        super().__init__(f"Provider not found: {provider_id}")
        self.provider_id = provider_id


class IntegrationNotFound(NotFound):
    """No integration has this id."""

    def __init__(self, integration_id: str) -> None:
        super().__init__(f"Integration not found: {integration_id}. GET /api/integration lists those that there are.")
        self.integration_id = integration_id


class LoginNotFound(NotFound):
    """No login of an integration has this id, or a later one has taken its place."""

    def __init__(self, integration_id: str, attempt_id: str) -> None:
        super().__init__(f"Login not found: {attempt_id}. It was cancelled, or a later one has taken its place.")
        self.integration_id = integration_id
        self.attempt_id = attempt_id


class CredentialNotFound(NotFound):
    """No credential has this id."""

    def __init__(self, credential_id: str) -> None:
        super().__init__(f"Credential not found: {credential_id}")


class GrantNotFound(NotFound):
    """No saved permission has this id."""

    def __init__(self, id_: str) -> None:
        super().__init__(f"Saved permission not found: {id_}. GET /api/permission/saved lists those that there are.")
        self.id = id_


class SkillNotFound(NotFound):
    """No skill has this id."""

    def __init__(self, skill: str) -> None:
        super().__init__(f"Skill not found: {skill}. GET /api/skill lists those that there are.")
        self.skill = skill


class CommandNotFound(NotFound):
    """No slash command has this name."""

    def __init__(self, command: str, message: str) -> None:
        super().__init__(message)
        self.command = command


class FormNotFound(NotFound):
    """No form has this id."""

    def __init__(self, form_id: str) -> None:
        super().__init__(f"Form not found: {form_id}")
        self.form_id = form_id


class FileUnreadable(NotFound):
    """The file does not exist, or cannot be read."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} cannot be read: {why}")
        self.path = path


class LocationNotFound(NotFound):
    """The directory of the request does not exist."""

    def __init__(self, directory: str, message: str) -> None:
        super().__init__(message)
        self.location = {"directory": directory}


class ResourceConflict(Conflict):
    """The name or id is used by another resource."""

    def __init__(self, message: str, resource: str) -> None:
        super().__init__(message)
        self.resource = resource


class FormSettled(Conflict):
    """The form was answered or cancelled already."""

    def __init__(self, form_id: str) -> None:
        super().__init__(f"Form already settled: {form_id}")
        self.form_id = form_id


class FormAnswerInvalid(RequestError):
    """The form does not take this answer."""

    def __init__(self, form_id: str, why: str) -> None:
        super().__init__(why)
        self.form_id = form_id


class WorktreeRefused(RequestError):
    """A worktree cannot be created or removed. `force_required`: it has changes that would be lost."""

    def __init__(self, message: str, *, force_required: bool = False) -> None:
        super().__init__(message)
        self.force_required = True if force_required else None


class InstructionTooLarge(RequestError):
    """The value of an instruction is too large."""

    def __init__(self, key: str, size: int, limit: int) -> None:
        super().__init__(f"The value of {key} is {size} bytes, at most {limit} are taken: name a file in it instead.")
        self.size = size
        self.limit = limit


class RpcNotFound(RequestError):
    """No plugin registered this RPC."""

    type = "rpc.not_found"


class VcsUnsupported(RequestError):
    """The server creates no repositories of this kind."""

    operation = "vcs.init"

    def __init__(self, provider: str) -> None:
        super().__init__(f"This server makes git repositories, not {provider}.")


# --- the table ----------------------------------------------------------------------------------------------


ERRORS: Mapping[type[RequestError], Row] = {
    RequestError: Row(500, "UnknownError"),
    errors.InternalError: Row(500, "UnknownError", {"ref": "reference"}),
    errors.InvalidRequest: Row(400, "InvalidRequestError", {"message": "message", "kind": "location", "field": "field"}),
    IdInvalid: Row(400, "InvalidRequestError", {"field": "field"}),
    CursorInvalid: Row(400, "InvalidCursorError"),
    errors.PayloadTooLarge: Row(413, "PayloadTooLargeError", {"limit": "limit"}),
    errors.FileTooLarge: Row(413, "PayloadTooLargeError"),
    InstructionTooLarge: Row(413, "InstructionEntryValueTooLargeError", {"actualBytes": "size", "maxBytes": "limit"}),
    errors.RouteUnknown: Row(404, "NotFoundError", text=lambda error: f"{error} GET /openapi.json lists what is served."),
    errors.MethodNotAllowed: Row(405, "MethodNotAllowedError"),
    errors.UnsupportedOperation: Row(501, "UnsupportedError", {"operation": "operation"}),
    VcsUnsupported: Row(501, "UnsupportedError", {"operation": "operation"}),
    RpcNotFound: Row(400, "RpcError", {"type": "type"}),
    NotFound: Row(404, "NotFoundError"),
    errors.SessionNotFound: Row(404, "SessionNotFoundError", {"sessionID": "session_id"}),
    errors.MessageNotFound: Row(404, "MessageNotFoundError", {"sessionID": "session_id", "messageID": "message_id"}),
    errors.PermissionNotFound: Row(404, "PermissionNotFoundError", {"requestID": "request_id", "message": "message"}),
    errors.QuestionNotFound: Row(
        404,
        "QuestionNotFoundError",
        {"requestID": "request_id"},
        text=lambda error: f"Question request not found: {error.request_id}",
    ),
    errors.ProjectNotFound: Row(404, "ProjectNotFoundError", {"projectID": "project_id", "message": "message"}),
    errors.PtyNotFound: Row(404, "PtyNotFoundError", {"ptyID": "pty_id", "message": "message"}),
    errors.ShellNotFound: Row(404, "ShellNotFoundError", {"id": "shell_id"}),
    AgentModeNotFound: Row(404, "AgentNotFoundError", {"agentID": "agent_id"}),
    ProviderNotFound: Row(404, "ProviderNotFoundError", {"providerID": "provider_id"}),
    IntegrationNotFound: Row(404, "IntegrationNotFoundError", {"integrationID": "integration_id"}),
    LoginNotFound: Row(404, "IntegrationAttemptNotFoundError", {"integrationID": "integration_id", "attemptID": "attempt_id"}),
    GrantNotFound: Row(404, "PermissionSavedNotFoundError", {"id": "id"}),
    SkillNotFound: Row(404, "SkillNotFoundError", {"skill": "skill"}),
    CommandNotFound: Row(404, "CommandNotFoundError", {"command": "command"}),
    FormNotFound: Row(404, "FormNotFoundError", {"id": "form_id"}),
    FileUnreadable: Row(404, "FileNotFoundError", {"path": "path"}),
    LocationNotFound: Row(404, "LocationNotFoundError", {"location": "location"}),
    Conflict: Row(409, "ConflictError"),
    errors.MessageExists: Row(409, "ConflictError", {"resource": "message_id"}),
    ResourceConflict: Row(409, "ConflictError", {"resource": "resource"}),
    FormSettled: Row(409, "FormAlreadySettledError", {"id": "form_id"}),
    FormAnswerInvalid: Row(400, "FormInvalidAnswerError", {"id": "form_id"}),
    errors.SessionBusy: Row(409, "SessionBusyError", {"sessionID": "session_id", "message": "message"}),
    errors.LimitReached: Row(429, "LimitReachedError", {"limit": "limit", "value": "value"}),
    errors.Forbidden: Row(403, "ForbiddenError"),
    errors.LoginRefused: Row(401, "UnauthorizedError"),
    errors.PasswordRefused: Row(401, "UnauthorizedError", text=lambda _error: "Authentication required"),
    errors.TooManyLogins: Row(429, "TooManyRequestsError"),
    errors.GitRefused: Row(400, "InvalidRequestError"),
    errors.GitInitFailed: Row(503, "ServiceUnavailableError", {"service": "service"}),
    errors.WorktreeError: Row(400, "WorktreeError", nested=True),
    errors.ProjectCopyError: Row(400, "WorktreeError", {"forceRequired": "force_required"}, nested=True),
    WorktreeRefused: Row(400, "WorktreeError", {"forceRequired": "force_required"}, nested=True),
    errors.AgentUnknown: Row(400, "InvalidRequestError"),
    errors.AgentNotInstalled: Row(400, "InvalidRequestError"),
    errors.ModeNotSupported: Row(400, "InvalidRequestError"),
    errors.ServiceUnavailable: Row(503, "ServiceUnavailableError", {"service": "service"}),
}


def render(error: RequestError) -> tuple[int, dict[str, Any]]:
    """Render an error as status and body."""
    if isinstance(error, errors.HttpRefused):
        return error.status, {"_tag": f"{error.name}Error", "message": error.message}
    row = row_of(ERRORS, error)
    members = {name: value for name, key in row.members.items() if (value := getattr(error, key)) is not None}
    if "message" not in members:
        members = {"message": error.message if row.text is None else row.text(error), **members}
    return row.status, {"_tag": row.tag, "name": row.tag, "data": members} if row.nested else {"_tag": row.tag, **members}


FACE = Face("opencode2", render, ("/api/", "/auth/connect/"))
"""The face of OpenCode 2. It stands apart from the operations, which a start does not import."""
