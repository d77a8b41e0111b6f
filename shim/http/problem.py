"""Errors of `/v1` and the inspector as RFC 9457 problem details, made at the last moment from OpenCode's form.

{"name": "NotFoundError", "data": {"message", ...}}  ->  {"type": "urn:...:not_found", "title", "status", "detail", ...}
"""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from shim.errors import PROBLEM_TYPE
from shim.http import wire_json
from universal.jsonvalue import obj, text

PREFIXES = ("/v1/", "/inspector/api/")
"""Paths below these answer with problems; with a base path before them too."""
CONTENT_TYPE = "application/problem+json"

KINDS = {"BadRequest": "invalid_request", "UnauthorizedError": "token_invalid", "ForbiddenError": "permission_denied"}
"""Names of errors whose kind is another word; the others are their own: `NotFoundError` -> `not_found`."""


def is_universal(path: str) -> bool:
    """Whether a path belongs to `/v1` or the inspector."""
    return any(prefix in path for prefix in PREFIXES)


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost: an error under `PREFIXES` becomes a problem."""
    response = await handler(request)
    if response.status >= 400 and is_universal(request.path) and isinstance(response, web.Response) and not response.prepared:
        body = response.body
        response.body = wire_json.dumps(problem_of(response.status, _parsed(body if isinstance(body, bytes) else b"")))
        response.content_type = CONTENT_TYPE
    return response


def problem_of(status: int, body: dict[str, Any]) -> dict[str, Any]:
    """The problem that an error of OpenCode's form is. One that is a problem already stays."""
    if text(body.get("type")).startswith(PROBLEM_TYPE):
        return body
    data = obj(body.get("data")) or {key: value for key, value in body.items() if key not in ("_tag", "name")}
    kind = kind_of(text(body.get("_tag")) or text(body.get("name")) or "error")
    more = {key: value for key, value in data.items() if key not in ("message", "type", "title", "status", "detail")}
    return {
        "type": f"{PROBLEM_TYPE}{kind}",
        "title": kind.replace("_", " ").capitalize(),
        "status": status,
        "detail": text(data.get("message")) or "No more is known.",
        **more,
    }


def kind_of(name: str) -> str:
    """`SessionBusyError` -> `session_busy`."""
    return KINDS.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Error")).lower() or "error"


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        return obj(wire_json.loads(body))
    except wire_json.Malformed:
        return {"name": "Error", "data": {"message": body.decode("utf-8", "replace")[:1000]}}
