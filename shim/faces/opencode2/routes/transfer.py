"""Routes that export and import sessions. Source: `SessionTransferData` of 2.0.21."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from pydantic import BaseModel

from shim.faces.opencode1.transfer import import_
from shim.faces.opencode2 import read
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.events import ReadOnlyWire
from shim.faces.opencode2.routes.session import Location
from shim.faces.opencode2.routes.sessions import SessionPath, read_session
from shim.http.directory import resolve
from shim.http.operation import Ctx
from universal.lib.jsonvalue import JsonObject

HARMLESS_KEYS = frozenset(
    {"id", "type", "role", "time", "status", "mime", "finish", "outcome", "reason", "agent", "model", "name"}
)
"""Keys whose values reveal nothing of the work. `sanitize` keeps them."""
NUMBERS = (bool, int, float)
REDACTED = "[redacted]"
AT_ONCE = 32
"""Messages that are read before others have their turn: a few ms, if they were packed."""


class ExportQuery(BaseModel):
    """`sanitize`: replace all texts of prompts, answers, files and commands."""

    sanitize: Literal["true", "false"] = "false"


@operation("experimental.session.export")
async def export(ctx: Ctx, path: SessionPath, query: ExportQuery) -> object:
    """Export a session with all its messages, oldest first."""
    session = await read_session(ctx, path.sessionID)
    messages: list[ReadOnlyWire] = []
    for number, id_ in enumerate(list(session.timeline.entries), 1):
        messages += [] if (wire := read.message_at(session, id_)) is None else [wire]
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)  # other requests go on
    info = {key: value for key, value in read.info(session).items() if key != "revert"}
    if query.sanitize == "true":
        info = {**info, "title": REDACTED, "location": {"directory": "/"}, **({"metadata": {}} if "metadata" in info else {})}
        messages = [sanitize(message) for message in messages]
    return {"data": {"info": info, "messages": messages}}


def sanitize(message: ReadOnlyWire) -> JsonObject:
    """Replace each text of a message. Its shape stays."""
    return {key: value if key in HARMLESS_KEYS else _hide(value) for key, value in message.items()}


def _hide(value: Any) -> Any:
    if isinstance(value, str):
        return REDACTED
    if isinstance(value, list):
        return [_hide(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - JSON
    if isinstance(value, dict):
        return sanitize(value)  # pyright: ignore[reportUnknownArgumentType] - JSON
    return value


class ImportBody(BaseModel):
    """An exported session. `location`: where it goes on."""

    info: dict[str, Any]
    messages: list[dict[str, Any]]
    location: Location | None = None


@operation("experimental.session.import")
async def take_in(ctx: Ctx, body: ImportBody) -> object:
    """Import a session. If a session with this id exists, it gets the messages that it lacks."""
    named = ctx.directory if body.location is None else resolve({"directory": body.location.directory}, {}, ctx.directory)
    directory = await ctx.services.links.real(named)
    project = await ctx.services.projects.identity(directory)
    document = {"info": body.info, "messages": body.messages}
    record = await import_(ctx.services.sessions, document, directory, project, "")
    await ctx.services.store.flush(record.id)
    return {"data": read.info(await read_session(ctx, record.id))}
