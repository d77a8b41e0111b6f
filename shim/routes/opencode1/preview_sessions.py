"""`GET /api/session` of OpenCode 2's preview API: the web UI's home page lists the sessions of all projects with it.

Source: a live OpenCode 1.18.33 and its document; recording `api_v2`.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from shim.errors import BadRequest
from shim.host.roots import visible
from shim.http.operation import Ctx, operation
from shim.opencode.build import Wire
from shim.routes.opencode1.session import DEFAULT_LIMIT
from universal.jsonvalue import obj, text, whole

Anchor = tuple[int, str]
"""Where a page begins: time of creation and id of a session, the order of the list."""


class Query(BaseModel):
    """`cursor`: one of an earlier answer, which goes on in its direction. `workspace` ones do not exist here."""

    directory: str | None = None
    project: str | None = None
    subpath: str | None = None
    workspace: str | None = None
    search: str = ""
    order: Literal["asc", "desc"] = "desc"
    limit: Annotated[int, Field(gt=0)] = DEFAULT_LIMIT
    cursor: str | None = None


@operation("v2.session.list")
async def listing(ctx: Ctx, query: Query) -> object:
    """By time of creation, the newest first if nothing else is said. Raises BadRequest for a cursor of somebody else's."""
    found = sorted(
        (i for i in visible(ctx.services.sessions.infos(), ctx.services.settings.roots) if _wanted(i, query)),
        key=_anchor,
        reverse=query.order == "desc",
    )
    limit = query.limit
    if query.cursor is None:
        page = found[:limit]
    else:
        anchor, back = _read(query.cursor)
        newer, older = [i for i in found if _anchor(i) > anchor], [i for i in found if _anchor(i) < anchor]
        before, after = (newer, older) if query.order == "desc" else (older, newer)
        page = before[max(0, len(before) - limit) :] if back else after[:limit]
    ends = {"previous": page[0], "next": page[-1]} if page else {}
    return {"data": [session(info) for info in page], "cursor": {way: _cursor(_anchor(info), way) for way, info in ends.items()}}


def session(info: Wire) -> Wire:
    """A session of 1.x in the preview's form."""
    tokens = obj(info.get("tokens"))
    wire: Wire = {
        **{key: info[key] for key in ("id", "parentID", "projectID", "agent", "title") if key in info},
        "cost": info.get("cost", 0),
        "tokens": {key: tokens[key] for key in ("input", "output", "reasoning", "cache")},
        "time": {key: value for key, value in info["time"].items() if key in ("created", "updated", "archived")},
        "location": {"directory": info["directory"]},
    }
    if info.get("model"):
        wire["model"] = {"variant": "default", **info["model"]}
    if info.get("path"):
        wire["subpath"] = info["path"]
    return wire


def _wanted(info: Wire, query: Query) -> bool:
    return (
        query.workspace is None
        and query.directory in (None, info["directory"])
        and query.project in (None, info["projectID"])
        and query.subpath in (None, info.get("path", ""))
        and query.search.casefold() in info["title"].casefold()
    )


def _anchor(info: Wire) -> Anchor:
    return info["time"]["created"], info["id"]


def _cursor(anchor: Anchor, direction: str) -> str:
    value = {"anchor": {"id": anchor[1], "time": anchor[0], "direction": direction}}
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def _read(cursor: str) -> tuple[Anchor, bool]:
    """The anchor, and whether the page before it is wanted."""
    try:
        value: Any = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError) as error:
        raise BadRequest("The cursor is none of this server's. Leave it out to begin anew.", "Query") from error
    anchor = obj(obj(value).get("anchor"))
    return (whole(anchor.get("time")), text(anchor.get("id"))), anchor.get("direction") == "previous"
