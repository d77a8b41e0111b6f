"""Decorators that mark handlers of OpenCode 1 with their operation, and with the face that renders their errors."""

from __future__ import annotations

from collections.abc import Callable

from shim.faces.opencode1 import errors
from shim.faces.opencode1._generated.operations import OPERATIONS
from shim.http.faces import Face
from shim.http.operation import HandlerT, mark
from shim.http.operation import extra as extra_route

FACE = Face("opencode1", errors.render)


def operation(operation_id: str) -> Callable[[HandlerT], HandlerT]:
    """Mark a handler of an operation of OpenCode's API document. Raises KeyError for an unknown operation."""
    return mark(operation_id, OPERATIONS[operation_id], FACE)


def extra(operation_id: str, method: str, path: str, *, streams: bool = False) -> Callable[[HandlerT], HandlerT]:
    """Mark a handler of a route that OpenCode has outside of its API document."""
    return extra_route(operation_id, method, path, streams=streams, face=FACE)
