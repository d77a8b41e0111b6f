"""What a handler of OpenCode 1 is marked with: the operation that it serves, and the face that says its errors."""

from __future__ import annotations

from collections.abc import Callable

from shim.faces.opencode1 import errors
from shim.faces.opencode1.operations import OPERATIONS
from shim.http.faces import Face
from shim.http.operation import HandlerT, mark
from shim.http.operation import extra as extra_route

FACE = Face("opencode1", errors.render)


def operation(operation_id: str) -> Callable[[HandlerT], HandlerT]:
    """The function serves this operation of OpenCode's document. Raises KeyError if the document has no such one."""
    return mark(operation_id, OPERATIONS[operation_id], FACE)


def extra(operation_id: str, method: str, path: str, *, streams: bool = False) -> Callable[[HandlerT], HandlerT]:
    """The function serves a route that OpenCode has outside of its document."""
    return extra_route(operation_id, method, path, streams=streams, face=FACE)
