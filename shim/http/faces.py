"""The faces as the HTTP layer knows them: how each says an error, and which one answers for a request.

A route has the face that it was registered with. A request without a route gets the errors of the face whose folder it asked in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from aiohttp import web

from shim.errors import RequestError
from shim.faces.opencode1 import errors as opencode1
from shim.faces.opencode2 import errors as opencode2
from shim.faces.v1 import errors as v1

Render: TypeAlias = Callable[[RequestError], tuple[int, dict[str, Any]]]
"""Status and body of an error."""
RouteHandler = TypeVar("RouteHandler", bound=Callable[[web.Request], Awaitable[web.StreamResponse]])

_FACE = "__face__"


@dataclass(frozen=True, slots=True)
class Face:
    """One API of the server. `folders`: where its routes are, with a `/` at the end; () for the face of all other paths."""

    name: str
    render: Render
    folders: tuple[str, ...] = ()
    error_type: str = "application/json"


OPENCODE1 = Face("opencode1", opencode1.render)
OPENCODE2 = Face("opencode2", opencode2.render, ("/api/", "/auth/connect/"))
V1 = Face("v1", v1.render, ("/v1/", "/inspector/api/"), v1.CONTENT_TYPE)


def owner_of(path: str) -> Face:
    """The face whose folder a path is in. In: the path without the base path."""
    return next((face for face in (OPENCODE2, V1) if path.startswith(face.folders)), OPENCODE1)


def belongs_to(face: Face, handler: RouteHandler) -> RouteHandler:
    """Mark a route's handler as one of this face."""
    setattr(handler, _FACE, face)
    return handler


def face_of(request: web.Request, base_path: str) -> Face:
    """The face of the request's route, or of its path if no route has it."""
    face = getattr(request.match_info.handler, _FACE, None)
    return face if isinstance(face, Face) else owner_of(request.path.removeprefix(base_path))
