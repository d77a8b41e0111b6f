"""The faces as the HTTP layer knows them: how each says an error, and which one answers for a request.

A route has the face that it was registered with. A request without a route gets the errors of the face whose folder it asked in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from aiohttp import web

from shim.errors import RequestError

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


class Faces(NamedTuple):
    """All faces of a server. `root` answers for each path that is in no folder of the others."""

    root: Face
    others: tuple[Face, ...]

    def owner_of(self, path: str) -> Face:
        """The face whose folder a path is in. In: the path without the base path."""
        return next((face for face in self.others if path.startswith(face.folders)), self.root)


FACES: web.AppKey[Faces] = web.AppKey("faces", Faces)


def belongs_to(face: Face, handler: RouteHandler) -> RouteHandler:
    """Mark a route's handler as one of this face."""
    setattr(handler, _FACE, face)
    return handler


def face_of(request: web.Request, base_path: str) -> Face:
    """The face of the request's route, or of its path if no route has it."""
    face = getattr(request.match_info.handler, _FACE, None)
    return face if isinstance(face, Face) else request.app[FACES].owner_of(request.path.removeprefix(base_path))
