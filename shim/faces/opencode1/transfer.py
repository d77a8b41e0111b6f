"""Imports sessions from the documents of `opencode export` 1.x and 2.x.

    {"info": Session, "messages": [{"info": Message, "parts": [Part]}]}

An imported message is one item of the journal: universal readers see its content, and the OpenCode face returns the message
itself, field by field, from `metadata.imported`. As in native OpenCode, the session keeps its id and belongs to the directory
that it is imported into. Source: `opencode export` and `opencode import` of 1.18.33, run and compared.
"""

from __future__ import annotations

import asyncio
import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, cast

from shim.faces.opencode1 import read as wire
from shim.faces.opencode1._generated.operations import OPENCODE_VERSION
from shim.faces.opencode2 import export_reader
from shim.host.files.roots import require
from shim.host.git.projects import Identity
from shim.lib.errors import InvalidRequest, SessionBusy
from shim.lib.ids import ID_FORM, is_id, slug
from shim.sessions.index.manager import SessionManager
from universal.events import EventType, ItemData
from universal.items import (
    ContentPart,
    FileRefPart,
    ImagePart,
    Item,
    ItemKind,
    ItemRole,
    ItemStatus,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from universal.lib.json_schema import mismatch, validator
from universal.lib.jsonvalue import JsonObject, arr, obj, text, whole_numbers
from universal.session import importer
from universal.session.values import SessionRecord, Usage

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

    from shim.faces.opencode1._generated import types


TITLE_LIMIT = 2000
"""Maximum characters of an imported session's title."""
NOT_OURS = ("share", "revert")
"""Fields of a session that are valid only on the exporting server: a URL, a snapshot."""


IMPORTED_MODES = frozenset({"build", "plan", "read-only"})
"""Modes that an imported session keeps. Another mode could allow the agent more than the importing user chose."""


def read(document: Any) -> tuple[types.Session, list[types.MessageWithParts]]:
    """Read the session and messages of a document, with defaults. Raises InvalidRequest with the fault and its place."""
    export = _first(obj(whole_numbers(document)))
    if not isinstance(export.get("info"), dict) or not isinstance(export.get("messages"), list):
        raise InvalidRequest(
            'This is no exported session: it needs "info" and "messages", as `opencode export` (1.x or 2.x) and '
            "`opencode-shim export` write them."
        )
    info = _session(obj(export["info"]))
    messages = [_message(obj(m), text(info.get("id"))) for m in arr(export["messages"])]
    _check_ids(info, messages)
    wrong = problem("Session", info, "info")
    for number, message in enumerate(messages):
        wrong = wrong or problem("Message", message["info"], f"messages/{number}/info")
        for index, part in enumerate(message["parts"]):
            wrong = wrong or problem("Part", part, f"messages/{number}/parts/{index}")
    if wrong:
        raise InvalidRequest(f"This session cannot be imported: {wrong}.")
    return cast("types.Session", info), cast("list[types.MessageWithParts]", messages)


def _check_ids(info: JsonObject, messages: list[JsonObject]) -> None:
    """Raise InvalidRequest for an invalid id, and for a too long title."""
    ids = [("info.id", info.get("id"), "ses"), ("info.parentID", info.get("parentID", "ses"), "ses")]
    for number, message in enumerate(messages):
        ids.append((f"messages[{number}].info.id", message["info"].get("id"), "msg"))
        for index, part in enumerate(message["parts"]):
            ids.append((f"messages[{number}].parts[{index}].id", part.get("id"), "prt"))
    for place, value, prefix in ids:
        if not is_id(value, prefix):
            raise InvalidRequest(f"This session cannot be imported: {place} is not {ID_FORM} that begins with {prefix}.")
    if len(text(info.get("title"))) > TITLE_LIMIT:
        raise InvalidRequest(f"This session cannot be imported: its title has more than {TITLE_LIMIT} characters.")


def _first(document: JsonObject) -> JsonObject:
    """Convert a document of 2.x to the form of 1.x; return others unchanged. Raises InvalidRequest for an incomplete one."""
    info, messages = obj(document.get("info")), arr(document.get("messages"))
    if "location" not in info and not any("type" in obj(m) and "info" not in obj(m) for m in messages):
        return document
    try:
        return export_reader.document(info, [obj(m) for m in messages])
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidRequest(
            f"This session cannot be imported: it is no whole export of OpenCode 2, {error} is missing."
        ) from error


def _session(info: JsonObject) -> JsonObject:
    """Add the fields that older versions do not write, and drop those of `NOT_OURS`."""
    defaults = {"slug": slug(text(info.get("id"))), "version": OPENCODE_VERSION, "title": "Imported session"}
    more = {"cost": 0, "tokens": wire.usage(Usage()), "projectID": "global", "directory": "/"}
    session = {**defaults, **more, **{k: v for k, v in info.items() if k not in NOT_OURS}}
    if "permission" in session:  # the document's author must not grant permissions for this user
        session["permission"] = [rule for rule in arr(session["permission"]) if obj(rule).get("action") != "allow"]
    if session.get("agent") not in IMPORTED_MODES:
        session.pop("agent", None)
    return session


def _message(message: JsonObject, session_id: str) -> JsonObject:
    info = dict(obj(message.get("info")))
    if info.get("role") == "assistant":
        info = {"agent": info.get("mode", "build"), "mode": "build", **info}
    elif info.get("role") == "user":
        info = {"agent": "build", "model": {"providerID": "unknown", "modelID": "unknown"}, **info}
    ids = {"sessionID": session_id}
    parts = [{**obj(p), **ids, "messageID": info.get("id")} for p in arr(message.get("parts"))]
    return {"info": {**info, **ids}, "parts": parts}


async def import_(manager: SessionManager, document: Any, directory: str, project: Identity, path: str) -> SessionRecord:
    """Import a session, and return its record. An existing session gets the messages that it lacks.

    Raises InvalidRequest for an invalid document, SessionBusy if the session exists and is busy.
    """
    info, messages = await asyncio.to_thread(read, document)
    session_id = info["id"]
    here = manager.index.find_record(session_id)
    if here is not None:
        await require(here.directory, manager.deps.roots)
    else:
        await require(directory, manager.deps.roots)
        place = {"directory": directory, "projectID": project.id, "path": path}
        manager.add(importer.session({**info, **place}), _agent(manager, info, messages))
    state = await manager.state(session_id)
    if state.machine.busy:
        raise SessionBusy(session_id)
    for message in messages:
        if message["info"]["id"] not in state.session.messages:
            state.record(EventType.ITEM_COMPLETED, ItemData(item=item_of(manager.deps.ids.new("item"), message)))
    return state.session.record


def _agent(manager: SessionManager, info: types.Session, messages: list[types.MessageWithParts]) -> str | None:
    """Return the agent that ran the session, if it is available here; None for the default one."""
    names = [text(obj(info.get("model")).get("providerID"))]
    names += [text(m["info"].get("providerID")) for m in reversed(messages)]
    return next((name for name in names if name and manager.deps.agents.get(name) is not None), None)


def item_of(item_id: str, message: types.MessageWithParts) -> Item:
    """Convert an imported message to a universal item."""
    info = message["info"]
    failed = "error" in info
    return Item(
        item_id=item_id,
        native_item_id=info["id"],
        kind=ItemKind.MESSAGE,
        role=ItemRole.USER if info["role"] == "user" else ItemRole.ASSISTANT,
        status=ItemStatus.FAILED if failed else ItemStatus.COMPLETED,
        content=tuple(piece for part in message["parts"] for piece in _content(part)),
        metadata={"imported": message},
    )


def _content(part: types.Part) -> list[ContentPart]:
    match part["type"]:
        case "text":
            return [TextPart(text=part["text"])]
        case "reasoning":
            return [ReasoningPart(text=part["text"])]
        case "tool":
            state = part["state"]
            call = ToolCallPart(name=part["tool"], arguments=json.dumps(state["input"]), call_id=part["callID"])
            output = state.get("output", state.get("error"))
            return [call] if output is None else [call, ToolResultPart(call_id=part["callID"], output=str(output))]
        case "file":
            if part["mime"].startswith("image/"):
                return [ImagePart(path=part["url"], mime=part["mime"])]
            return [FileRefPart(path=part["url"], action="read")]
        case _:
            return []


# --- the form of a document ------------------------------------------------------------------------------

# Keys outside of a schema are allowed, because newer versions add some. Numbers may be integers.


@cache
def _validator(schema: str) -> Draft202012Validator:
    """The check of values of this schema of OpenCode's API document."""

    def allow_more(row: JsonObject) -> JsonObject:
        return {key: value for key, value in row.items() if (key, value) != ("additionalProperties", False)}

    document = resources.files("shim.faces.opencode1").joinpath("openapi.json").read_bytes()
    components = obj(json.loads(document, object_hook=allow_more))["components"]
    return validator({"$ref": f"#/components/schemas/{schema}", "components": components})


def problem(schema: str, value: Any, where: str = "") -> str:
    """Describe the first fault of `value` and its place; "" if it is valid. `schema`: a name in OpenCode's API document."""
    return mismatch(value, _validator(schema), where)
