"""All errors of the server.

    ShimError
      ApiError(status, name, message, data)   what a client gets: {"name", "data": {"message", ...}}
        NotFound  BadRequest  Conflict  SessionBusy  RequestNotFound  Tagged  Unsupported  LimitReached
      AgentError                              something about an agent's process
        AgentNotFound  AgentStartFailed  AgentGone  AgentStuck
      StoreError                              the journal cannot be read or written

The text of each says what happened, why, and what the person can do. The middleware is the only place that
turns them into answers.
"""

from __future__ import annotations

from typing import Any

PROBLEM_TYPE = "urn:opencode-shim:error:"
"""What the `type` of every problem of `/v1` begins with."""


class ShimError(Exception):
    """Base of all errors that are ours."""


class ApiError(ShimError):
    """An answer that is an error, in OpenCode's `{name, data}` form.

    `body` replaces the whole body where OpenCode uses another form (`{"_tag": ...}`); `headers` go with the answer.
    """

    def __init__(
        self,
        status: int,
        name: str,
        message: str,
        *,
        data: dict[str, Any] | None = None,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.body: dict[str, Any] = body if body is not None else {"name": name, "data": {"message": message, **(data or {})}}


class NotFound(ApiError):
    """404, as OpenCode 1.18.33 says it."""

    def __init__(self, message: str) -> None:
        super().__init__(404, "NotFoundError", message)


class BadRequest(ApiError):
    """400; `kind` is where the fault is: Payload, Query, Path."""

    def __init__(self, message: str, kind: str = "Payload") -> None:
        super().__init__(400, "BadRequest", message, data={"kind": kind})


class Conflict(ApiError):
    """409: it clashes with what is there already."""

    def __init__(self, message: str) -> None:
        super().__init__(409, "ConflictError", message)


class SessionBusy(ApiError):
    """409: the operation needs an idle session."""

    def __init__(self, session_id: str) -> None:
        message = f"Session is busy: {session_id}. Wait for it to become idle, or abort it."
        super().__init__(
            409, "SessionBusyError", message, body={"_tag": "SessionBusyError", "sessionID": session_id, "message": message}
        )


class RequestNotFound(ApiError):
    """404 for a permission or question that is unknown or was answered already; `tag` as OpenCode names it."""

    def __init__(self, kind: str, request_id: str) -> None:
        message = f"{kind} request not found: {request_id}. It was answered already, or its turn has ended."
        super().__init__(
            404,
            f"{kind}NotFoundError",
            message,
            body={"_tag": f"{kind}NotFoundError", "requestID": request_id, "message": message},
        )


class Problem(ApiError):
    """An error of `/v1` (RFC 9457). `kind` is the last part of its `type`; `more` are further members."""

    def __init__(self, status: int, kind: str, detail: str, **more: Any) -> None:
        body = {
            "type": f"{PROBLEM_TYPE}{kind}",
            "title": kind.replace("_", " ").capitalize(),
            "status": status,
            "detail": detail,
            **more,
        }
        super().__init__(status, kind, detail, body=body)


class Tagged(ApiError):
    """An error of OpenCode 2's own kind: `{"_tag", "message", ...}`; `more` are the further members, as its wire names them."""

    def __init__(self, status: int, tag: str, message: str, **more: Any) -> None:
        super().__init__(status, tag, message, body={"_tag": tag, "message": message, **more})


class Unsupported(ApiError):
    """501: a known operation that this server does not serve; the message gives the reason."""

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(
            501, "UnsupportedError", f"{operation} is not served by opencode-shim: {reason}", data={"operation": operation}
        )


class LimitReached(ApiError):
    """429: a bound of this server; the message names it and says how to go on."""

    def __init__(self, limit: str, value: int, what: str) -> None:
        super().__init__(
            429, "LimitReachedError", f"{what} The limit is {limit} = {value}.", data={"limit": limit, "value": value}
        )


class AgentError(ShimError):
    """Something about an agent's process."""


class AgentNotFound(AgentError):
    """Its binary is not there; the text says where it was looked for and how to install it."""


class AgentStartFailed(AgentError):
    """The process could not be started, or died before it said anything."""


class AgentGone(AgentError):
    """A write to a process that is no more."""


class AgentStuck(AgentError):
    """The agent does not read what it is sent; the outgoing buffer is full."""


class StoreError(ShimError):
    """The journal cannot be read or written."""
