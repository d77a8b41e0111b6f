"""All errors of the server, as types with fields. Each face renders them in its own format.

    ShimError
      RequestError                     a refused request; each face has a table from these types to status and body
        InvalidRequest  NotFound  Conflict  Forbidden  LoginRefused  GitRefused  and others
      AgentError                       a failure of an agent's process
        AgentNotFound  AgentStartFailed  AgentGone  AgentStuck
      StoreError                       the journal cannot be read or written

Each message says what happened, why, and what the user can do. Only the middleware (`shim.http.middleware`) turns errors into
answers, with the table of the request's face (`errors.py` in its folder). A table has rows for base classes, so a new kind of
`NotFound` is a 404 on every face.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

Location: TypeAlias = Literal["Payload", "Query", "Params", "Headers"]
"""The part of a request that has a fault."""

RowT = TypeVar("RowT")


class ShimError(Exception):
    """The base class of all errors of this server."""


def place_text(path: Iterable[str | int]) -> str:
    """Format a place in a body for messages: `\\n  at ["parts"][0]`; empty for the whole body."""
    keys = "".join(f"[{json.dumps(key)}]" for key in path)
    return f"\n  at {keys}" if keys else ""


class RequestError(ShimError):
    """The server refuses the request."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


# --- malformed requests -----------------------------------------------------------------------------------


class InvalidRequest(RequestError):
    """The request is malformed, or asks for something impossible.

    `reason` describes the fault, `path` is its place in that part of the request, and `field` the first key of the path. The
    message has the reason and the place.
    """

    def __init__(self, reason: str, location: Location | None = "Payload", path: Iterable[str | int] = ()) -> None:
        keys = tuple(path)
        super().__init__(reason + place_text(keys))
        self.reason = reason
        self.location = location
        self.path = keys
        self.field = keys[0] if keys and isinstance(keys[0], str) else None


class PayloadTooLarge(RequestError):
    """The body exceeds a bound. `limit`: that bound."""

    def __init__(self, message: str, limit: int | None) -> None:
        super().__init__(message)
        self.limit = limit


class BodyTooLarge(PayloadTooLarge):
    """The body has too many bytes."""

    def __init__(self, method: str, path: str, limit_bytes: int) -> None:
        super().__init__(f"The body of {method} {path} is too large: at most {limit_bytes} bytes are accepted.", None)


class RouteUnknown(RequestError):
    """No route has this path."""

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"No such route: {method} {path}.")


class MethodNotAllowed(RequestError):
    """The path has routes, but none for this method."""

    def __init__(self, method: str, path: str, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(sorted(allowed))
        super().__init__(f"No such method: {method} {path}. Allowed here: {self.allowed}.")


class HttpRefused(RequestError):
    """aiohttp refused the request. `name` is its exception's, such as `PreconditionFailed`."""

    def __init__(self, status: int, name: str, reason: str, method: str, path: str) -> None:
        super().__init__(f"{reason}: {method} {path}")
        self.status = status
        self.name = name


class UnsupportedOperation(RequestError):
    """OpenCode has this operation, and this server does not."""

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(f"{operation} is not served by opencode-shim: {reason}")
        self.operation = operation
        self.reason = reason


# --- missing things -------------------------------------------------------------------------------------


class NotFound(RequestError):
    """The request names something that does not exist."""


class SessionNotFound(NotFound):
    """No session has this id."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session not found: {session_id}")
        self.session_id = session_id


class MessageNotFound(NotFound):
    """The session has no message with this id."""

    def __init__(self, session_id: str, message_id: str) -> None:
        super().__init__(f"Message not found: {message_id}")
        self.session_id = session_id
        self.message_id = message_id


class PartNotFound(NotFound):
    """The message has no part with this id."""

    def __init__(self, part_id: str | None) -> None:
        super().__init__(f"Part not found: {part_id}")


class AnswerNotFound(NotFound):
    """The turn of a prompt ended without an answer."""

    def __init__(self, message_id: str) -> None:
        super().__init__(f"The turn of {message_id} has ended without an answer.")


class PermissionNotFound(NotFound):
    """No open permission request has this id."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"Permission request not found: {request_id}. It was answered already, or its turn has ended.")
        self.request_id = request_id


class QuestionNotFound(NotFound):
    """No open question has this id."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"Question request not found: {request_id}. It was answered already, or its turn has ended.")
        self.request_id = request_id


class NodeNotFound(NotFound):
    """No server of the cluster has this id or name. `known`: names of those that live; none without a cluster."""

    def __init__(self, node: str, known: Iterable[str]) -> None:
        names = ", ".join(known)
        what = f"Those that live: {names}." if names else "This server is in no cluster."
        super().__init__(f"There is no server {node}. {what}")


class ProjectNotFound(NotFound):
    """No project has this id."""

    def __init__(self, project_id: str) -> None:
        super().__init__(f"Project not found: {project_id}")
        self.project_id = project_id


class PtyNotFound(NotFound):
    """No terminal has this id."""

    def __init__(self, pty_id: str) -> None:
        super().__init__(f"PTY session not found: {pty_id}")
        self.pty_id = pty_id


class ShellNotFound(NotFound):
    """No shell command has this id."""

    def __init__(self, shell_id: str) -> None:
        super().__init__(f"Shell not found: {shell_id}")
        self.shell_id = shell_id


class McpServerNotFound(NotFound):
    """The directory has no MCP server of this name in its configuration, and no client has added one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"MCP server not found: {name[:100]}. GET /mcp lists those of OpenCode's configuration and of clients.")
        self.name = name


class PairingTokenNotFound(NotFound):
    """No pairing token has this id."""

    def __init__(self, token_id: str) -> None:
        super().__init__(f"No device has the id {token_id[:100]}. `opencode-shim pair list` shows the ids (GET /api/pair).")


class ShareNotFound(NotFound):
    """No session is shared at this address."""

    def __init__(self) -> None:
        super().__init__("There is no shared session at this address, or it is not shared any more.")


class InspectorFileNotFound(NotFound):
    """The inspector has no such file."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The inspector has no file {name[:100]!r}.")


class PathNotFound(NotFound):
    """The file or folder does not exist."""


# --- conflicts with the present state -----------------------------------------------------------------------


class Conflict(RequestError):
    """The request conflicts with the present state."""


class MessageExists(Conflict):
    """A prompt has the id of an earlier message."""

    def __init__(self, message_id: str) -> None:
        super().__init__(f"Message {message_id} exists already in this session: make a new messageID for each prompt.")
        self.message_id = message_id


class SessionTerminated(Conflict):
    """The session was terminated and takes no prompts."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session {session_id} was terminated. It can be read; fork it or make a new one to go on.")


class SessionExists(Conflict):
    """A new session has the name of an earlier one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Session {name!r} exists already. Choose another id, or use it.")


class PathExists(Conflict):
    """A file or folder exists at the target path."""


class SessionBusy(RequestError):
    """The operation needs an idle session."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session is busy: {session_id}. Wait for it to become idle, or abort it.")
        self.session_id = session_id


class SessionElsewhere(SessionBusy):
    """The session belongs to another live server on the same data. `owner`: its pid and URL."""

    def __init__(self, session_id: str, owner: object) -> None:
        RequestError.__init__(
            self,
            f"Session {session_id} is at work in another opencode-shim ({owner}). Go on with it there, or stop that server. "
            "Until then it can only be read here.",
        )
        self.session_id = session_id
        self.owner = owner


class LimitReached(RequestError):
    """The request exceeds a limit of this server. `problem` says which things are too many, and what to do."""

    def __init__(self, limit: str, value: float, problem: str) -> None:
        super().__init__(f"{problem} The limit is {limit} = {value}.")
        self.limit = limit
        self.value = value


class FileTooLarge(RequestError):
    """A file or archive exceeds the size limit."""


# --- access -----------------------------------------------------------------------------------------------


class Forbidden(RequestError):
    """The client may not do this."""


class RoleTooLow(Forbidden):
    """A person's role does not allow a request."""

    def __init__(self, name: str, role: str, needed: str) -> None:
        super().__init__(
            f"{name} has the role {role}, and this needs {needed}. Whoever runs the server can change it:"
            f" opencode-shim people change {name} --role {needed}."
        )


class PersonUnknown(Forbidden):
    """A proxy has signed a person in whom this server does not know."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"This server does not know {name[:100]}. Whoever runs it can let them in: opencode-shim people add NAME --role view."
        )


class NotForOnesRoots(Forbidden):
    """A person who sees some directories or sessions asks for what is of all."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} may use some directories or sessions of this server only, and this shows all of them.")


class OutsideRoots(Forbidden):
    """This server may not use the directory. The message does not name the roots."""

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"{directory} is outside of the directories that this server may use. Whoever runs the server can add it: --roots,"
            " SHIM_ROOTS."
        )


class HostNotAllowed(Forbidden):
    """The Host header does not name this server."""

    def __init__(self, host: str, name: str) -> None:
        super().__init__(
            f"This server does not answer to the name {host[:100]}. A web page could reach it under a name of its own, so"
            f" it knows its names. If this is one of them, start it with --allowed-hosts {name[:100]} (SHIM_ALLOWED_HOSTS)."
        )


class OriginNotAllowed(Forbidden):
    """A web page of another origin sent the request."""

    def __init__(self, origin: str) -> None:
        short_origin = origin[:100]
        super().__init__(
            f"Pages of {short_origin} may not use this server. If you trust them, start it with --cors {short_origin}."
        )


class EmbeddingNotAllowed(Forbidden):
    """A web page of another site embeds an answer of this server."""

    def __init__(self) -> None:
        super().__init__("Pages of other sites may not embed what this server has. A link to it is fine.")


class PtyForbidden(Forbidden):
    """A terminal request lacks a valid ticket, or a ticket request lacks its header."""


class PathForbidden(Forbidden):
    """The operating system refuses a file operation."""


class LoginRefused(RequestError):
    """The credentials are missing, wrong or expired."""


class PasswordRefused(LoginRefused):
    """The password is missing or wrong. `start` begins the message."""

    def __init__(self, start: str) -> None:
        super().__init__(f"{start}. Set OPENCODE_SERVER_PASSWORD to the server's password, and start this client again.")


class AgentTokenRefused(LoginRefused):
    """The token of an agent is no good: its process has ended, or it was shown elsewhere than at `/mcp`."""

    def __init__(self) -> None:
        super().__init__("This token is of an agent that has ended, or it is for this server's /mcp alone.")


class PairingLinkSpent(LoginRefused):
    """A pairing code is unknown, used or expired."""

    def __init__(self) -> None:
        super().__init__("This pairing link was used already, or is older than five minutes. Make a new one with POST /api/pair.")


class TooManyLogins(RequestError):
    """An address tried too many wrong passwords. `wait_s`: whole seconds until the next try."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = max(1, int(wait_s + 0.999))
        super().__init__(f"Too many wrong passwords from your address. Try again in {self.wait_s} s.")


# --- refusals of git and the host ---------------------------------------------------------------------------


class GitRefused(RequestError):
    """git, or the state of a repository, does not allow the operation."""


class GitTooSlow(GitRefused):
    """git took too long to read a directory."""

    def __init__(self, directory: str, limit_s: float) -> None:
        super().__init__(
            f"git did not finish reading {directory} within {limit_s:g} seconds, so it was stopped. It may wait for a FIFO "
            "named .gitignore or .gitattributes, or for a mount that does not answer: remove it, then try again."
        )


class GitInitFailed(GitRefused):
    """`git init` failed. `service` names the failed program."""

    service = "git"

    def __init__(self, directory: str, output: str) -> None:
        super().__init__(f"git init failed in {directory}: {output}")


class PatchRefused(GitRefused):
    """A patch does not apply, or there is no repository."""

    def __init__(self, reason: Literal["non-git", "not-clean"], message: str) -> None:
        super().__init__(message)
        self.reason = reason


class WorktreeError(GitRefused):
    """The base class of errors of worktrees."""


class WorktreeNotGit(WorktreeError):
    """The project is not in git."""


class WorktreeCreateFailed(WorktreeError):
    """git could not create a worktree."""


class WorktreeNameFailed(WorktreeError):
    """The server found no free name for a worktree."""


class WorktreeStartCommandFailed(WorktreeError):
    """The command that prepares a worktree cannot be run."""


class WorktreeResetFailed(WorktreeError):
    """git could not reset a worktree."""


class WorktreeRemoveFailed(WorktreeError):
    """git could not remove a worktree."""


class ProjectCopyError(GitRefused):
    """git could not create or remove a copy of a project. `force_required`: the copy has changes that would be lost."""

    def __init__(self, message: str, *, force_required: bool = False) -> None:
        super().__init__(message)
        self.force_required = True if force_required else None


# --- agents that a request names ----------------------------------------------------------------------------


class AgentUnknown(RequestError):
    """The agent for a new session does not exist."""

    def __init__(self, name: str, names: Iterable[str]) -> None:
        super().__init__(f"There is no agent {name!r}. Known: {', '.join(names)}.")


class AgentNotInstalled(RequestError):
    """The agent for a new session is not installed."""

    def __init__(self, title: str, why: str | None) -> None:
        super().__init__(f"{title} is not installed: {why}")


class ModeNotSupported(RequestError):
    """The agent does not have the mode for a new session."""


# --- temporary and internal failures ------------------------------------------------------------------------


class ServiceUnavailable(RequestError):
    """The server, or a service that it needs, is unavailable."""

    def __init__(self, message: str, service: str | None = None) -> None:
        super().__init__(message)
        self.service = service


class ServerLost(ServiceUnavailable):
    """Another server of the cluster gives no answer. `was_heard`: it may have done what it was asked."""

    def __init__(self, message: str, *, was_heard: bool = True) -> None:
        super().__init__(message, "cluster")
        self.was_heard = was_heard


class PlacedElsewhere(ServiceUnavailable):
    """Another server of the cluster should take the session. `servers`: which, the best first."""

    def __init__(self, servers: Iterable[object], why: str) -> None:
        super().__init__(f"{why}, and the other servers of the cluster refused.", "cluster")
        self.servers = tuple(servers)


class ServerStopping(ServiceUnavailable):
    """This server is about to stop and begins nothing more, and no other server can."""

    def __init__(self) -> None:
        super().__init__(
            "This server is about to stop: it ends the running turns and begins no others. Try again after its next start.",
        )


class DirectoryElsewhere(ServiceUnavailable):
    """This server of the cluster does not have a directory."""

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"This server has no directory {directory}. Choose one that it has, or start a server where the directory is.",
            "cluster",
        )


class NoServer(ServiceUnavailable):
    """No server of the cluster can take the session."""

    def __init__(self, directory: str, agent: str | None, why: str, labels: Sequence[str] = ()) -> None:
        what = f"the agent {agent}" if agent else "an agent"
        marks = f", with the labels {', '.join(labels)}" if labels else ""
        super().__init__(
            f"{why}, and no other server of the cluster has the directory {directory} and {what}{marks}. Start one there;"
            " until then its sessions can only be read.",
            "cluster",
        )


class NoRoom(NoServer):
    """All servers that could take the session run as many agents as they may. `servers`: their names."""

    def __init__(self, servers: Iterable[str], why: str) -> None:
        ServiceUnavailable.__init__(
            self,
            f"{why}, and the servers that could take the session have no room for another agent: {', '.join(servers)}. Try again"
            " when one of their turns has ended, raise their max_agents, or start another server.",
            "cluster",
        )


class InternalError(RequestError):
    """A bug or an unexpected failure. The log has the details under `reference`."""

    def __init__(self, message: str, reference: str) -> None:
        super().__init__(message)
        self.reference = reference


def row_of(table: Mapping[type[RequestError], RowT], error: RequestError) -> RowT:
    """Return the row of the error's class, or of its nearest base class with one. Every table has `RequestError`."""
    return next(table[base] for base in type(error).__mro__ if base in table)


# --- agents and the store -----------------------------------------------------------------------------------


class AgentError(ShimError):
    """A failure of an agent's process."""


class AgentNotFound(AgentError):
    """The agent's binary is missing. The text says where the server looked, and how to install it."""


class AgentStartFailed(AgentError):
    """The process failed to start, or died before its first output."""


class AgentGone(AgentError):
    """The server wrote to an agent process that ended."""


class AgentStuck(AgentError):
    """The agent does not read its stdin, and the outgoing buffer is full."""


class StoreError(ShimError):
    """The server cannot read or write the journal."""


class StoreUnavailable(StoreError, ServiceUnavailable):
    """The journal is on other machines, and cannot be reached at present. A request may be repeated later."""

    def __init__(self, message: str) -> None:
        ServiceUnavailable.__init__(self, message, "store")


class StoreFull(StoreUnavailable):
    """The journal has no room at present. Deletions of sessions make some."""
