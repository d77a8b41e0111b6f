"""Decorators that mark handlers of OpenCode 1 with their operation, and with the face that renders their errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from aiohttp import web

from shim.faces.opencode1 import errors
from shim.faces.opencode1._generated.operations import OPERATIONS
from shim.http.faces import Face
from shim.http.operation import SERVICES, HandlerT, mark
from shim.http.operation import extra as extra_route
from shim.lib.errors import RequestError, SessionElsewhere, ShimError

FACE = Face("opencode1", errors.render)
PROMPTING = frozenset(f"session.{name}" for name in ("prompt", "prompt_async", "command", "shell", "init", "summarize"))
"""Operations whose answers clients do not show: a person sees a refusal only as an event."""


def operation(operation_id: str) -> Callable[[HandlerT], HandlerT]:
    """Mark a handler of an operation of OpenCode's API document. Raises KeyError for an unknown operation."""
    return mark(operation_id, OPERATIONS[operation_id], FACE, show_refusal if operation_id in PROMPTING else show_elsewhere)


async def show_refusal(request: web.Request, error: RequestError) -> None:
    """Publish `session.error` for a refused prompt, as native does. Nothing for a session that cannot be read."""
    from universal.session.changes import PromptFailed  # late: a start has no session
    from universal.session.values import Failure

    services = request.app[SERVICES]
    session_id = error.session_id if isinstance(error, SessionElsewhere) else request.match_info["sessionID"]
    with suppress(ShimError):
        session = await services.sessions.session(session_id)
        failed = PromptFailed(Failure(error.message))
        services.sessions.deps.changes.publish((failed,), session, services.clock.now_ms())


async def show_elsewhere(request: web.Request, error: RequestError) -> None:
    """Publish `session.error` if another server has the session: OpenCode's TUI shows no other sign of a refused answer."""
    if isinstance(error, SessionElsewhere):
        await show_refusal(request, error)


def extra(operation_id: str, method: str, path: str, *, streams: bool = False) -> Callable[[HandlerT], HandlerT]:
    """Mark a handler of a route that OpenCode has outside of its API document."""
    return extra_route(operation_id, method, path, streams=streams, face=FACE)
