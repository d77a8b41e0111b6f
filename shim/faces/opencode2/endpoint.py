"""Decorators that mark handlers of OpenCode 2 with their operation, and with the face that renders their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shim.faces.opencode2._generated.operations import OPERATIONS
from shim.faces.opencode2.errors import FACE
from shim.http.operation import HandlerT, mark
from shim.http.operation import extra as extra_route
from shim.http.operations import Operation

PREVIEW: Mapping[str, Operation] = {
    "v2.health.get": Operation("GET", "/api/health", "opencode HttpApi"),
    "v2.session.history": Operation("GET", "/api/session/{sessionID}/history", "sessions"),
    "v2.session.events": Operation("GET", "/api/session/{sessionID}/event", "sessions", streams=True),
    "v2.question.request.list": Operation("GET", "/api/question/request", "session questions"),
    "v2.session.question.list": Operation("GET", "/api/session/{sessionID}/question", "session questions"),
    "v2.session.question.reply": Operation("POST", "/api/session/{sessionID}/question/{requestID}/reply", "session questions"),
    "v2.session.question.reject": Operation("POST", "/api/session/{sessionID}/question/{requestID}/reject", "session questions"),
}
"""Operations that only the preview in 1.18 has, by their ids in OpenCode 1's document."""


def operation(operation_id: str) -> Callable[[HandlerT], HandlerT]:
    """Mark a handler of an operation of OpenCode 2. Raises KeyError for an unknown operation."""
    return mark(operation_id, OPERATIONS[operation_id], FACE)


def preview_operation(operation_id: str) -> Callable[[HandlerT], HandlerT]:
    """Mark a handler of an operation of `PREVIEW`. Raises KeyError for an unknown operation."""
    return mark(operation_id, PREVIEW[operation_id], FACE)


def extra(operation_id: str, method: str, path: str, *, streams: bool = False) -> Callable[[HandlerT], HandlerT]:
    """Mark a handler of a route that OpenCode 2 has outside of its contract."""
    return extra_route(operation_id, method, path, streams=streams, face=FACE)
