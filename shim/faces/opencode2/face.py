"""The face of OpenCode 2, without its operations: a start needs no more of it."""

from __future__ import annotations

from shim.faces.opencode2 import errors
from shim.http.faces import Face

FACE = Face("opencode2", errors.render, ("/api/", "/auth/connect/"))
