"""The faces from the view of the HTTP layer: how each renders an error, and which paths it owns.

A route has the face that registered it. A request without a route gets the errors of the face that owns its path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from aiohttp import web

from shim.lib.errors import RequestError

Render: TypeAlias = Callable[[RequestError], tuple[int, dict[str, Any]]]
"""Renders an error as status and body."""
RouteHandler = TypeVar("RouteHandler", bound=Callable[[web.Request], Awaitable[web.StreamResponse]])

_FACE = "__face__"


@dataclass(frozen=True, slots=True)
class Face:
    """One API of the server. `folders`: the path prefixes of its routes, ending with `/`; () for the face of all other paths."""

    name: str
    render: Render
    folders: tuple[str, ...] = ()
    error_type: str = "application/json"


class Faces(NamedTuple):
    """All faces of a server. `root` owns each path that no other face owns."""

    root: Face
    folder_faces: tuple[Face, ...]

    def owner_of(self, path: str) -> Face:
        """Return the face that owns a path. In: the path without the base path."""
        return next((face for face in self.folder_faces if path.startswith(face.folders)), self.root)


FACES: web.AppKey[Faces] = web.AppKey("faces", Faces)


def belongs_to(face: Face, handler: RouteHandler) -> RouteHandler:
    """Mark a route's handler as this face's."""
    setattr(handler, _FACE, face)
    return handler


def face_of(request: web.Request, base_path: str) -> Face:
    """Return the face of the request's route, or the owner of its path if there is no route."""
    face = getattr(request.match_info.handler, _FACE, None)
    return face if isinstance(face, Face) else request.app[FACES].owner_of(request.path.removeprefix(base_path))
