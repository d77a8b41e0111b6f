"""The face of OpenCode 2. It stands apart from the operations, which a start does not import."""

from __future__ import annotations

from shim.faces.opencode2 import errors
from shim.http.faces import Face

FACE = Face("opencode2", errors.render, ("/api/", "/auth/connect/"))
