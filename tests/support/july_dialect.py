"""The dialect `v2_july`, of the build of 17 July 2026, in which the only recordings of a server of 2.x are. Pure.

The product does not speak it: nobody can get that build any more. `speak_july` adds it to the servers of a test, which compares
them with the recordings.

`EVENTS` has a row for each type of event that differs from `v2_0`: its name, its version and the names of its fields (None: the
field is left out). A change that is more than a rename is a function in the row. Types without a row are the same in both.
Source: recordings `compat_fixtures/opencode2/v2-20260717`, compared with `compat_fixtures/opencode2/events.json`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from shim.faces.opencode2.dialects import DIALECTS, Dialect
from shim.faces.opencode2.dialects.preview import (
    ZERO,
    Alias,
    Answer,
    Ask,
    no_content,
    of_data,
    of_each,
    rename_body,
    rename_fields,
    result_of,
    without_types,
)
from shim.faces.opencode2.stream import ENCODERS, DialectEncoder
from shim.faces.opencode2.wire_event import Event, ReadOnlyWire, Wire
from shim.http.operations import RequestInput
from shim.routes.table import _shared_table
from universal.lib.jsonvalue import arr, obj, text

Fields = Mapping[str, str | None]
Maker = Callable[[Event, Wire], Wire]


@dataclass(frozen=True, slots=True)
class Row:
    """How an event differs. `type` None: `v2_july` has no such event. `then` gets the event and its renamed data."""

    type: str | None = ""
    fields: Fields = field(default_factory=dict[str, "str | None"])
    version: int | None = None
    then: Maker | None = None


def plain(error: Mapping[str, object]) -> Wire:
    """An error without the status and the response of the model's API."""
    return {key: value for key, value in error.items() if key not in ("status", "response")}


def chosen_model(model: Mapping[str, object]) -> Wire:
    """The model of a session, always with a variant.

    July's TUI sends `variant: "default"` and compares it with the session's. While they differ, it selects its model again before
    each prompt.
    """
    return {**model, "variant": model.get("variant", "default")}


def _session_created(event: Event, data: Wire) -> Wire:
    """The event holds the whole session in `v2_july`."""
    info = {k: v for k, v in data.items() if k not in ("sessionID", "location", "subpath", "metadata", "permissions")}
    time = {"created": event.created, "updated": event.created}
    place = {"directory": obj(data.get("location")).get("directory"), "path": text(data.get("subpath"))}
    whole = {"id": data["sessionID"], **place, "cost": 0, "tokens": ZERO, "title": "", **info, "time": time}
    return {"sessionID": data["sessionID"], "info": whole}


def _session_forked(event: Event, data: Wire) -> Wire:
    boundary = obj(data.pop("boundary", None))
    before = {"from": boundary["messageID"]} if boundary.get("type") == "before" else {}
    return {**data, "parentSeq": 0, **before}


def _prompt_enqueued(event: Event, data: Wire) -> Wire:
    """A prompt that was enqueued. A request to compact has an event type of its own, which `event` sets."""
    item = obj(data.pop("input", None))
    if item.get("type") == "compaction":
        return data
    payload = rename_fields(obj(item.get("payload")), {"skills": None, "metadata": None})
    return {**data, "input": {"type": item["type"], "data": payload, "delivery": item["delivery"]}}


def _with_plain_error(event: Event, data: Wire) -> Wire:
    return {**data, "error": plain(obj(data["error"]))}


NO_EVENT = Row(None)
CALL: Fields = {"id": "callID"}
INPUT: Fields = {"inboxID": "inputID", "item": "input"}
COMPACTION_ADMITTED = "session.compaction.admitted"

EVENTS: dict[str, Row] = {
    "session.created": Row(then=_session_created),
    "session.forked": Row(fields={"instructions": None, "instructionEntries": None}, then=_session_forked),
    "session.agent.selected": Row(fields={"previous": None}),
    "session.model.selected": Row(
        fields={"previous": None}, then=lambda _, data: {**data, "model": chosen_model(obj(data["model"]))}
    ),
    "session.metadata.updated": NO_EVENT,
    "session.permissions": NO_EVENT,
    "session.viewed": NO_EVENT,
    "session.archived": NO_EVENT,
    "session.unarchived": NO_EVENT,
    "session.status": NO_EVENT,
    "session.idle": NO_EVENT,
    "session.inbox.enqueued": Row("session.input.admitted", INPUT, then=_prompt_enqueued),
    "session.inbox.delivered": Row("session.input.promoted", INPUT),
    "session.inbox.cancelled": NO_EVENT,
    "session.inbox.delivery.changed": NO_EVENT,
    "session.execution.failed": Row(then=_with_plain_error),
    "session.execution.interrupted": Row(
        then=lambda _, data: {**data, "reason": "shutdown"} if data.get("reason") == "inactivity" else data
    ),
    "session.step.started": Row(fields={"started": None}),
    "session.step.streamed": NO_EVENT,
    "session.step.ended": Row(fields={"rawFinish": None, "native": None}),
    "session.step.failed": Row(
        fields=dict.fromkeys(("finish", "rawFinish", "native", "snapshot", "files"), None), then=_with_plain_error
    ),
    "session.retry.scheduled": Row(then=_with_plain_error),
    "session.tool.input.started": Row(fields=CALL),
    "session.tool.input.delta": Row(fields=CALL),
    "session.tool.input.ended": Row(fields=CALL),
    "session.tool.called": Row(fields=CALL),
    "session.tool.progress": Row(fields={**CALL, "metadata": "structured"}, then=lambda _, data: _so_far(data)),
    "session.tool.success": Row(
        fields={**CALL, "metadata": "structured", "native": None},
        version=1,
        then=lambda _, data: {**data, "structured": obj(data.get("structured"))},
    ),
    "session.tool.failed": Row(
        fields={**CALL, "metadata": None, "content": None, "native": None},
        version=1,
        then=lambda _, data: {**data, **result_of(obj(data["error"]))},
    ),
    "session.message.content.updated": NO_EVENT,
    "session.compaction.ended": Row(fields=dict.fromkeys(("model", "native", "cost", "tokens"), None)),
    "session.compaction.failed": Row(fields={"cost": None, "tokens": None}),
    "permission.asked": Row("permission.v2.asked", {"message": None}, then=lambda _, data: permission(data)),
    "permission.replied": Row("permission.v2.replied"),
    "form.created": Row(then=lambda _, data: {**data, "form": form(obj(data["form"]))}),
    "provider.updated": Row("catalog.updated"),
    "model.updated": NO_EVENT,
    "websearch.updated": NO_EVENT,
    "location.shutdown": NO_EVENT,
}


def event(event: Event) -> Event | None:
    """Convert an event. None if `v2_july` has no such event."""
    row = EVENTS.get(event.type)
    if row is None:
        return event
    if row.type is None or (event.type == "session.inbox.delivered" and event.note == "compaction"):
        return None
    kind = row.type or event.type
    if event.type == "session.inbox.enqueued" and obj(event.data["item"]).get("type") == "compaction":
        kind = COMPACTION_ADMITTED
    data = rename_fields(event.data, row.fields)
    if row.then is not None:
        data = row.then(event, data)
    version = row.version if row.version is not None and event.seq is not None else event.version
    return replace(event, type=kind, data=data, version=version)


# --- messages, sessions, requests ---------------------------------------------------------------------------------------------

NO_MESSAGES = frozenset({"idle", "location-switched"})
"""Types of messages that `v2_july` does not have."""

MESSAGES: dict[str, Fields] = {
    "assistant": {"rawFinish": None, "native": None},
    "agent-switched": {"previous": None},
    "user": {"skills": None},
    "compaction": dict.fromkeys(("model", "native", "cost", "tokens"), None),
}
"""Type of message -> new names of its fields."""

EMPTY: Wire = {"content": list[Wire](), "structured": dict[str, object]()}
"""Fields that the state of a tool call always has, once the tool runs."""

SESSION: Fields = dict.fromkeys(("outcome", "subpath", "metadata", "permissions"), None)
"""New names of a session's fields."""


def message(message: ReadOnlyWire) -> Wire | None:
    """Convert a message. None if `v2_july` has no such message."""
    kind = message["type"]
    if kind in NO_MESSAGES:
        return None
    wire = rename_fields(message, MESSAGES.get(kind, {}))
    if kind == "assistant":
        wire["time"] = rename_fields(obj(message["time"]), {"streamed": None})
        wire["content"] = [_content(obj(entry)) for entry in arr(message["content"])]
        wire |= {"error": plain(obj(message["error"]))} if "error" in message else {}
    return wire


def _content(entry: ReadOnlyWire) -> ReadOnlyWire:
    if entry["type"] != "tool" or entry["state"]["status"] == "streaming":
        return entry
    state = rename_fields(obj(entry["state"]), {"metadata": "structured"})
    state = EMPTY | state
    if state["status"] == "running":
        state = _so_far(state)
    elif state["status"] == "error":
        state |= result_of(obj(state["error"]))
    return {**entry, "state": state}


def _so_far(running: ReadOnlyWire) -> Wire:
    structured = obj(running["structured"])
    output = text(structured.get("output"))
    content = [{"type": "text", "text": output}] if output else []
    return {**running, "structured": {k: v for k, v in structured.items() if k != "output"}, "content": content}


def session(session: ReadOnlyWire) -> Wire:
    """Convert a `SessionInfo`."""
    wire = rename_fields(session, SESSION)
    wire["time"] = rename_fields(obj(session["time"]), {"idle": None, "viewed": None})
    wire.setdefault("title", "")
    if model := obj(session.get("model")):
        wire["model"] = chosen_model(model)
    if fork := obj(session.get("fork")):
        boundary = obj(fork.get("boundary"))
        before = {"messageID": boundary["messageID"]} if boundary.get("type") == "before" else {}
        wire["fork"] = {"sessionID": fork["sessionID"], **before}
    return wire


def form(form: ReadOnlyWire) -> ReadOnlyWire:
    """Convert a `FormInfo`."""
    metadata = obj(form.get("metadata"))
    tool = obj(metadata.get("tool"))
    return {**form, "metadata": {**metadata, "tool": rename_fields(tool, {"id": "callID"})}} if tool else form


def permission(request: ReadOnlyWire) -> Wire:
    """Convert a `PermissionRequest`."""
    source = obj(request.get("source"))
    wire = rename_fields(request, {"message": None})
    return {**wire, "source": rename_fields(source, {"id": "callID"})} if source else wire


# --- routes, requests and answers ---------------------------------------------------------------------------------------------

ROUTE = "/api/session/{sessionID}"

ALIASES: tuple[Alias, ...] = (
    Alias("GET", "/api/server", "server.info"),
    Alias("GET", "/api/form/request", "form.list"),
    Alias("GET", "/api/project/current", "location.get"),
    Alias("GET", "/api/project/{projectID}/directories", "worktree.list"),
    Alias("PUT", "/api/mcp/{server}", "experimental.mcp.add"),
    Alias("DELETE", "/api/mcp/{server}", "experimental.mcp.remove"),
    Alias("POST", "/api/mcp/{server}/connect", "experimental.mcp.connect"),
    Alias("POST", "/api/mcp/{server}/disconnect", "experimental.mcp.disconnect"),
    Alias("POST", "/api/generate", "experimental.generate.text"),
    Alias("GET", f"{ROUTE}/pending", "session.inbox.list"),
    Alias("GET", f"{ROUTE}/form/{{formID}}/state", "session.form.get"),
    Alias("POST", f"{ROUTE}/form/{{formID}}/cancel", "session.form.cancel"),
    Alias("POST", f"{ROUTE}/rename", "session.update"),
    Alias("POST", f"{ROUTE}/skill", "experimental.session.skill"),
    Alias("GET", f"{ROUTE}/instructions/entries", "experimental.session.instructions.entry.list"),
    Alias("PUT", f"{ROUTE}/instructions/entries/{{key}}", "experimental.session.instructions.entry.put"),
    Alias("DELETE", f"{ROUTE}/instructions/entries/{{key}}", "experimental.session.instructions.entry.remove"),
)


def _command(input_: RequestInput) -> RequestInput:
    """`{command, arguments?}` is `{name, text}` in `v2_0`."""
    renamed = rename_body(command="name", arguments="text")(input_)
    return renamed._replace(body={"text": "", **obj(renamed.body)}) if "name" in obj(renamed.body) else renamed


REQUESTS: Mapping[str, Ask] = {
    "session.permission.reply": rename_body(reply="decision"),
    "session.message.list": without_types(*NO_MESSAGES),
    "session.fork": rename_body(messageID="before"),
    "session.command": _command,
    "experimental.session.skill": rename_body(skill="id"),
}


def inbox(item: ReadOnlyWire) -> Wire:
    """Convert an `Inbox.Info` to an admitted input. `admittedSeq` is 0 if the handler did not add it."""
    admitted: Wire = {"admittedSeq": item.get("admittedSeq", 0), "id": item["id"], "sessionID": item["sessionID"]}
    admitted |= {"timeCreated": item["time"]["created"], "type": item["type"]}
    if item["type"] != "compaction":
        admitted |= {"data": item["payload"], "delivery": item["delivery"]}
    return admitted


def project(wire: ReadOnlyWire) -> Wire:
    """Convert a `Project`: the main working tree is named `worktree`, and there is no time of the last use."""
    time = {key: value for key, value in wire["time"].items() if key != "active"}
    row = {key: value for key, value in wire.items() if key != "canonical"}
    return {**row, "worktree": wire["canonical"], "time": time}


def _without(field: str) -> Callable[[ReadOnlyWire], Wire]:
    return lambda wire: rename_fields(wire, {field: None})


SAVED_PERMISSION = _without("time")
_PROVIDER = _without("activation")

ANSWERS: Mapping[str, Answer] = {
    "session.create": of_data(session),
    "session.get": of_data(session),
    "session.fork": of_data(session),
    "session.list": of_each(session),
    "session.message.list": of_each(message),
    "session.message.get": lambda body: {**body, "data": message(body["data"]) or body["data"]},
    "session.context": of_each(message),
    "session.prompt": of_data(inbox),
    "session.synthetic": of_data(inbox),
    "session.compact": of_data(inbox),
    "session.inbox.list": of_each(inbox),
    "session.interrupt": no_content,
    "session.permission.list": of_each(permission),
    "session.permission.get": of_data(permission),
    "permission.request.list": of_each(permission),
    "permission.saved.list": of_each(SAVED_PERMISSION),
    "session.form.list": of_each(form),
    "form.list": of_each(form),
    "session.form.create": of_data(form),
    "session.form.get": of_data(form),
    "location.get": lambda body: {**body, "project": {key: body["project"][key] for key in ("id", "directory")}},
    "project.list": lambda body: [project(row) for row in body],
    "project.update": project,
    "provider.list": of_each(_PROVIDER),
    "provider.get": of_data(_PROVIDER),
}

PARTS: Mapping[str, Callable[[Any], Any]] = {
    r"/api/server": lambda body: {"urls": body["urls"]},
    r"/api/project/current": lambda body: body["project"],
    r"/api/session/\w+/form/\w+/state": lambda body: {**body, "data": body["data"]["state"]},
}
"""Routes that answer with a part of what `v2_0` has at one place. Path -> that part."""


def part_of(path: str, body: Any) -> Any:
    """The part of a successful answer that July's route has, or the whole answer."""
    return next((part(body) for pattern, part in PARTS.items() if re.fullmatch(pattern, path)), body)


V2_JULY = Dialect("v2_july", event, message, ANSWERS, REQUESTS, ALIASES)


@contextmanager
def speak_july() -> Iterator[None]:
    """Servers that are made meanwhile speak this dialect too, to clients that name it."""
    DIALECTS[V2_JULY.name] = V2_JULY
    ENCODERS[V2_JULY.name] = DialectEncoder(V2_JULY)
    _shared_table.cache_clear()
    try:
        yield
    finally:
        del DIALECTS[V2_JULY.name], ENCODERS[V2_JULY.name]
        _shared_table.cache_clear()
