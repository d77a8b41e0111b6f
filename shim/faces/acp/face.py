"""The face of `/acp`, and how it renders errors: as errors of JSON-RPC, over HTTP as in its messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shim.http.faces import Face
from shim.lib import errors
from shim.lib.errors import RequestError, row_of

INTERNAL, NOT_FOUND, LOGIN, INVALID_REQUEST, INVALID_PARAMS = -32603, -32002, -32000, -32600, -32602
ERRORS: Mapping[type[RequestError], tuple[int, int]] = {
    RequestError: (500, INTERNAL),
    errors.InvalidRequest: (400, INVALID_PARAMS),
    errors.PayloadTooLarge: (413, INVALID_PARAMS),
    errors.MethodNotAllowed: (405, INVALID_REQUEST),
    errors.NotFound: (404, NOT_FOUND),
    errors.LimitReached: (429, INTERNAL),
    errors.Forbidden: (403, INVALID_PARAMS),
    errors.LoginRefused: (401, LOGIN),
    errors.TooManyLogins: (429, LOGIN),
    errors.ServiceUnavailable: (503, INTERNAL),
}
"""Class of an error -> HTTP status, code of JSON-RPC. A row counts for subclasses too."""


def rpc_error(error: RequestError) -> dict[str, Any]:
    """Render an error as `{code, message, data}`. `data.name` is its class, for programs."""
    return {"code": row_of(ERRORS, error)[1], "message": error.message, "data": {"name": type(error).__name__}}


def render(error: RequestError) -> tuple[int, dict[str, Any]]:
    """Render an error as status and body."""
    status = error.status if isinstance(error, errors.HttpRefused) else row_of(ERRORS, error)[0]
    return status, {"jsonrpc": "2.0", "id": None, "error": rpc_error(error)}


FACE = Face("acp", render, ("/acp/",))
