"""Errors of OpenCode 2's routes in its form, made at the last moment from OpenCode 1's.

{"name": "BadRequest", "data": {"message", "kind"}}  ->  {"_tag": "InvalidRequestError", "message", "kind", "field"?}

Services know one form of an error; which wire asked is known here. Handlers raise `shim.errors.Tagged` where the wire has an
error of its own, which passes as it is. Source: the errors of compat_fixtures/opencode2/operations.json.
"""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from shim.http import wire_json
from shim.http.operation import SERVICES
from universal.jsonvalue import obj, text

PREFIXES = ("/api/", "/auth/connect/")
"""The second wire's paths."""

TAGS = {"BadRequest": "InvalidRequestError", "PtyForbiddenError": "ForbiddenError"}
"""Names of the first wire that the second one has another word for."""

NOT_FOUND = (
    ("messageID", "MessageNotFoundError", "Message "),
    ("sessionID", "SessionNotFoundError", "Session "),
)
"""(placeholder of the path, its error, how the message begins): what a `NotFoundError` of a service is about."""

FIELD = re.compile(r'\n  at \["([^"]+)"\]')
"""Where a complaint says which key is wrong."""


def is_second(path: str, base_path: str = "") -> bool:
    """Whether a path belongs to the second wire."""
    return path.removeprefix(base_path).startswith(PREFIXES)


@web.middleware
async def tags(request: web.Request, handler: Handler) -> web.StreamResponse:
    """An error of a route of the second wire gets its form."""
    response = await handler(request)
    if response.status < 400 or response.prepared or not isinstance(response, web.Response):
        return response
    if not is_second(request.path, request.app[SERVICES].settings.base_path):
        return response
    body = _parsed(response.body if isinstance(response.body, bytes) else b"")
    response.body = wire_json.dumps(tagged(body, request.match_info))
    response.content_type = "application/json"
    return response


def tagged(body: dict[str, Any], params: dict[str, str]) -> dict[str, Any]:
    """The error in the second wire's form. In: `params`, the placeholders of the path."""
    if "_tag" in body:
        return {**body, "_tag": TAGS.get(body["_tag"], body["_tag"])}
    name, data = text(body.get("name")) or "UnknownError", dict(obj(body.get("data")))
    message = text(data.pop("message", "")) or "No more is known."
    if name == "NotFoundError":
        for key, tag, begins in NOT_FOUND:
            if key in params and message.startswith(begins):
                ids = {one: params[one] for one in ("sessionID", key) if one in params}
                return {"_tag": tag, "message": message, **data, **ids}
    error = {"_tag": TAGS.get(name, name), "message": message, **data}
    field = FIELD.search(message) if name == "BadRequest" else None
    return {**error, "field": field[1]} if field else error


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        return obj(wire_json.loads(body))
    except wire_json.Malformed:
        return {"name": "UnknownError", "data": {"message": body.decode("utf-8", "replace")[:1000]}}
