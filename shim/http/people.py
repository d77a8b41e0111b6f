"""Who may do what: named people with a role, and the role that each route needs. Pure.

    view    reads sessions, files and settings, without secrets
    work    prompts, answers and stops agents as well, and changes and deletes sessions
    admin   all: terminals, files, settings, logins, people

A route that is in no table needs `admin`, whatever its method is, so a new one is closed until it is listed. People with roots
are admitted to routes that keep to the directory, the session or the roots of a request; `WHOLE` are those that do not. So are
people who see only sessions of their own. Who has the password is an admin. Documentation: docs/people.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from universal.lib.jsonvalue import obj
from universal.lib.paths import is_in

Role: TypeAlias = Literal["view", "work", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""The roles, each of which may do what those before it may."""
READING = frozenset({"GET", "HEAD"})


class Quota(NamedTuple):
    """The most that a person may use (`shim.sessions.index.accounts`); 0: any."""

    max_running: int = 0
    max_queued: int = 0
    max_cost_day: float = 0.0


ANY = Quota()


class Person(NamedTuple):
    """Who makes a request. `name` "": the owner of the password. `roots`: absolute directories; none: all of the server's.

    `is_alone`: sessions that others have begun are not there for them.
    """

    name: str = ""
    role: Role = "admin"
    roots: tuple[str, ...] = ()
    is_alone: bool = False
    quota: Quota = ANY

    @property
    def sees_all(self) -> bool:
        """Whether all sessions and directories are there for them."""
        return not (self.roots or self.is_alone)

    def may(self, needed: Role) -> bool:
        """Whether the person's role is the needed one, or above it."""
        return ROLES.index(self.role) >= ROLES.index(needed)


OWNER = Person()


def _rows(text: str) -> frozenset[tuple[str, str]]:
    """(method, path) of lines `METHOD PREFIX END END ...`; an END of `.` is the prefix itself."""
    rows: set[tuple[str, str]] = set()
    for line in text.strip().split("\n"):
        method, prefix, *ends = line.split()
        rows |= {(method, prefix if end == "." else f"{prefix}/{end}") for end in ends}
    return frozenset(rows)


OPEN = _rows(
    """
    GET /global health
    GET /health .
    GET /doc .
    GET /openapi.json .
    GET /v1 health openapi.json
    GET /api health info
    GET /auth connect/{code}
    GET /x-reply {code} {code}/{answer}
    POST /x-reply {code}/{answer}
    """
)
"""Routes that tell nothing of a project, or whose own code is the credential."""

VIEW = _rows(
    """
    GET /agent .
    GET /command .
    GET /config . providers
    GET /event .
    GET /experimental capabilities session tool tool/ids
    GET /file . content status
    GET /find . file symbol
    GET /formatter .
    GET /global config event
    GET /lsp .
    GET /mcp .
    GET /path .
    GET /permission .
    GET /project . current {projectID}/directories
    GET /provider . auth
    GET /question .
    GET /session . status {sessionID} {sessionID}/children {sessionID}/diff {sessionID}/export {sessionID}/message
    GET /session {sessionID}/message/{messageID} {sessionID}/todo
    GET /skill .
    GET /vcs . diff diff/raw status
    GET /api/agent . {agentID}
    POST /api pair
    GET /api command config event form location mcp reference skill integration
    GET /api/fs find list read/{tail}
    GET /api/model . default
    GET /api/permission request
    GET /api/project .
    GET /api/provider . {providerID}
    GET /api/question request
    GET /api/session . active {sessionID} {sessionID}/context {sessionID}/diff {sessionID}/event {sessionID}/form
    GET /api/session {sessionID}/form/{formID} {sessionID}/history {sessionID}/inbox {sessionID}/message {sessionID}/permission
    GET /api/session {sessionID}/message/{messageID} {sessionID}/permission/{requestID} {sessionID}/question
    GET /api/experimental/session {sessionID}/export {sessionID}/instructions/entries {sessionID}/log
    GET /api/vcs . base branch diff status
    GET /v1/agents . {agent}/models {agent}/modes {agent}/x-usage
    GET /v1/sessions . {session_id}/events {session_id}/events/sse
    """
)
WORK = _rows(
    """
    POST /session . {sessionID}/abort {sessionID}/command {sessionID}/fork {sessionID}/init {sessionID}/message
    POST /session {sessionID}/permissions/{permissionID} {sessionID}/prompt_async {sessionID}/revert {sessionID}/summarize
    POST /session {sessionID}/unrevert
    PATCH /session {sessionID} {sessionID}/message/{messageID}/part/{partID}
    DELETE /session {sessionID} {sessionID}/message/{messageID} {sessionID}/message/{messageID}/part/{partID}
    POST /experimental/session {sessionID}/background
    POST /permission {requestID}/reply
    POST /question {requestID}/reply {requestID}/reject
    POST /log .
    POST /api/session . {sessionID}/agent {sessionID}/background {sessionID}/command {sessionID}/compact {sessionID}/fork
    POST /api/session {sessionID}/form/{formID}/reply {sessionID}/interrupt {sessionID}/model {sessionID}/prompt
    POST /api/session {sessionID}/permission/{requestID}/reply {sessionID}/question/{requestID}/reply
    POST /api/session {sessionID}/question/{requestID}/reject {sessionID}/resume {sessionID}/view {sessionID}/wait
    POST /api/session {sessionID}/revert/stage {sessionID}/revert/clear {sessionID}/revert/commit
    POST /api/experimental/session {sessionID}/skill {sessionID}/wait
    PATCH /api/session {sessionID} {sessionID}/inbox/{inboxID}
    DELETE /api/session {sessionID} {sessionID}/form/{formID} {sessionID}/inbox/{inboxID} {sessionID}/revert
    POST /v1/sessions {session_id} {session_id}/messages {session_id}/messages/stream {session_id}/terminate
    POST /v1/sessions {session_id}/permissions/{permission_id}/reply {session_id}/questions/{question_id}/reply
    POST /v1/sessions {session_id}/questions/{question_id}/reject
    POST /v1/x-sessions {session_id}/abort
    """
)
SECRETS = {"mcp": ("environment", "headers", "oauth", "command"), "provider": ("options", "models")}
"""Members of the rows of a configuration's sections that may hold secrets."""
WHOLE = ("/v1/sessions", "/v1/x-sessions", "/global/config")
"""Beginnings of paths whose answers are not of one directory or session: refused to who does not see all."""


def needed_role(method: str, path: str) -> Role | None:
    """The role that a route needs; None for one that is open. In: `path`, as routes are written, without a `/` at its end."""
    row = ("GET" if method in READING else method, path)
    if row in OPEN:
        return None
    return "view" if row in VIEW else "work" if row in WORK else "admin"


def keeps_to_roots(path: str) -> bool:
    """Whether a route's answer is of the directory, the session or the roots of its request alone."""
    return not path.startswith(WHOLE)


def without_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """An OpenCode configuration without the parts in which keys and passwords stand: what people see who are no admins."""
    shown = dict(config)
    for section, keys in SECRETS.items():
        rows = obj(shown.get(section))
        if rows:
            shown[section] = {name: {key: v for key, v in obj(row).items() if key not in keys} for name, row in rows.items()}
    return shown


def meet(roots: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """The directories that lie in both of two lists of roots; an empty list is all. NOWHERE if there are none."""
    ours, theirs = tuple(roots), tuple(others)
    if not ours or not theirs:
        return ours or theirs
    both = [one for one in ours if is_in(one, theirs)] + [one for one in theirs if is_in(one, ours)]
    return tuple(dict.fromkeys(both)) or NOWHERE


NOWHERE = ("/dev/null/nowhere",)
"""Roots without any directory: an empty list would be all."""
