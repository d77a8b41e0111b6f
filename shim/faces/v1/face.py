"""The face of `/v1` and of the inspector's API."""

from __future__ import annotations

from shim.faces.v1 import errors
from shim.http.faces import Face

FACE = Face("v1", errors.render, ("/v1/", "/inspector/api/"), errors.CONTENT_TYPE)
