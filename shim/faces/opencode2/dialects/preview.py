"""The dialect `preview`, of the preview in 1.18 (`session.next.*`). Pure.

`EVENTS` maps a type of `v2_0` to the preview's type, its version and the function that makes its data. Types without a row are
not sent: the preview has no end of a turn (`session.execution.*`), no totals, no titles and no inbox.
An event has no `created` in its envelope, and has `timestamp` in the data of `session.next.*`. Texts have ids. Errors have one
type. Questions are no forms and have routes of their own (`shim.faces.opencode2.routes.form`).
Source: OpenCode's OpenAPI document of 1.18.33, recordings `compat_fixtures/opencode2/lildax-1.18.18`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from shim.faces.opencode2.wire_event import NO_LOCATION, Event, EventJson, ReadOnlyWire, Wire
from shim.http.operations import RequestInput
from universal.lib.jsonvalue import arr, obj, text, whole

NEXT = "session.next."
TOOLS = {"shell": "bash", "subagent": "task", "patch": "apply_patch"}
"""Tools and actions that have another name in the preview."""
PROVIDER: Wire = {"executed": False}
ZERO: Wire = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}

Maker = Callable[[Event], "Wire | None"]


@dataclass(frozen=True, slots=True)
class PreviewEvent(Event):
    """An event in the preview's envelope, which has no `created`."""

    def wire(self) -> EventJson:
        """`{id, type, durable?, location?, data}`."""
        envelope = Event.wire(self)
        envelope.pop("created", None)
        return envelope


# --- kinds of rows ----------------------------------------------------------------------------------------------


class Alias(NamedTuple):
    """A route of a dialect that `v2_0` has at another place. `operation` is the operation of `v2_0` that serves it.

    Placeholders have the names of the path or of the query of that operation.
    """

    method: str
    path: str
    operation: str


Ask: TypeAlias = Callable[[RequestInput], RequestInput]
Answer: TypeAlias = Callable[[Any], Any]


def rename_fields(data: Mapping[str, object], fields: Mapping[str, str | None]) -> Wire:
    """Rename the fields of `data`. A field whose new name is None is left out."""
    return {name: value for key, value in data.items() if (name := fields.get(key, key)) is not None}


def rename_body(**names: str) -> Ask:
    """Rename fields of a request's body: `rename_body(reply="decision")` turns `reply` into `decision`."""

    def rename(request: RequestInput) -> RequestInput:
        body = obj(request.body)  # the operation itself refuses a body that is no object
        return request._replace(body={names.get(key, key): value for key, value in body.items()}) if body else request

    return rename


def without_types(*kinds: str) -> Ask:
    """Ask for messages without these types, which the dialect does not have. So a page of the list is still full."""
    return lambda request: request._replace(query={**request.query, "without": ",".join(sorted(kinds))})


def no_content(_body: Any) -> None:
    """204 in the place of an answer."""


def of_data(change: Callable[[ReadOnlyWire], ReadOnlyWire]) -> Answer:
    """Convert an answer whose `data` is one object."""

    def answer(body: Any) -> Any:
        return {**body, "data": change(body["data"])}

    return answer


def of_each(change: Callable[[ReadOnlyWire], ReadOnlyWire | None]) -> Answer:
    """Convert an answer whose `data` is a list. An item that becomes None is left out."""

    def answer(body: Any) -> Any:
        return {**body, "data": [changed for item in body["data"] if (changed := change(item)) is not None]}

    return answer


# --- parts of events and messages ----------------------------------------------------------------------------------


def error(data: Mapping[str, Any]) -> Wire:
    """Convert an error."""
    return {"type": "unknown", "message": text(data.get("message"))}


def result_of(error: Mapping[str, object]) -> Wire:
    """The `result` beside the `error` of a tool call. An interrupted call has none."""
    return {} if error.get("type") == "aborted" else {"result": {"type": "error", "value": error.get("message")}}


def title(session: Mapping[str, Any], created: int) -> str:
    """The title of a session, or OpenCode's placeholder with the time of creation (`created`, in milliseconds)."""
    moment = datetime.fromtimestamp(created / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return text(session.get("title")) or f"New session - {moment}"


def prompt(payload: ReadOnlyWire) -> Wire:
    """The user's prompt `{text, files?, agents?}`, from the payload of an inbox item or a message."""
    fields: Wire = {"text": text(payload.get("text"))}
    if payload.get("files"):
        fields["files"] = [_file(obj(file)) for file in arr(payload["files"])]
    if payload.get("agents"):
        fields["agents"] = [_mention(obj(agent)) for agent in arr(payload["agents"])]
    return fields


def _mention(item: ReadOnlyWire) -> Wire:
    source = {"source": item["mention"]} if item.get("mention") else {}
    return {**rename_fields(item, {"mention": None}), **source}


def _file(file: ReadOnlyWire) -> Wire:
    source = obj(file.get("source"))
    uri = text(source.get("uri")) or f"data:{file['mime']};base64,{text(file.get('data'))}"
    return _mention({"uri": uri, **rename_fields(file, {"data": None, "source": None})})


def permission(request: ReadOnlyWire) -> Wire:
    """Convert a `PermissionRequest`."""
    wire = rename_fields(request, {"message": None}) | {"action": TOOLS.get(request["action"], request["action"])}
    source = obj(request.get("source"))
    return {**wire, "source": rename_fields(source, {"id": "callID"})} if source else wire


def question(form: ReadOnlyWire) -> Wire | None:
    """Convert a form to a question. None for every other form, which the preview does not have."""
    metadata = obj(form.get("metadata"))
    if metadata.get("kind") != "question":
        return None
    tool = obj(metadata.get("tool"))
    request: Wire = {"id": question_id(form["id"]), "sessionID": form["sessionID"]}
    request["questions"] = [_question(obj(field)) for field in arr(form["fields"])]
    return {**request, "tool": rename_fields(tool, {"id": "callID"})} if tool else request


def _question(field: ReadOnlyWire) -> Wire:
    rows = map(obj, arr(field.get("options")))  # a form that a client has made may have no options
    options = [{"label": text(row.get("label")), "description": text(row.get("description"))} for row in rows]
    wire: Wire = {"question": text(field.get("description")), "header": text(field.get("title")), "options": options}
    multiple = {"multiple": True} if field["type"] == "multiselect" else {}
    return wire | multiple | ({"custom": False} if field.get("custom") is False else {})


def question_id(form_id: str) -> str:
    """The id of the question that this form is."""
    return f"que_{form_id.removeprefix('frm_')}"


def _answers(answer: ReadOnlyWire) -> list[list[str]]:
    numbers = [int(key[1:]) for key in answer if key[1:].isdigit()]
    return [_labels(answer.get(f"q{number}")) for number in range(1 + max(numbers, default=-1))]


def _labels(value: object) -> list[str]:
    if value is None:
        return []
    return [str(label) for label in arr(value)] if isinstance(value, list) else [str(value)]


def revert(state: ReadOnlyWire) -> Wire:
    """Convert a `SessionRevert`."""
    fields = {key: state[key] for key in ("messageID", "partID", "snapshot") if state.get(key)}
    files = [{"path": file["file"], **rename_fields(file, {"file": None})} for file in map(obj, arr(state.get("files")))]
    return {**fields, **({"files": files} if "files" in state else {})}


# --- events ---------------------------------------------------------------------------------------------------


def _message_of(event: Event) -> str:
    return f"msg_{event.id.removeprefix('evt_')}"


def _drop(*names: str) -> Maker:
    return lambda event: rename_fields(event.data, dict.fromkeys(names))


def _unchanged_data(event: Event) -> Wire:
    return dict(event.data)


def _session_created(event: Event) -> Wire:
    data = event.data
    place: Wire = {"directory": obj(data["location"])["directory"], "path": text(data.get("subpath"))}
    fields = {key: data[key] for key in ("slug", "projectID", "parentID", "agent", "model", "version") if key in data}
    start: Wire = {"cost": 0, "tokens": ZERO, "title": title(data, event.created)}
    time = {"created": event.created, "updated": event.created}
    return {"sessionID": data["sessionID"], "info": {"id": data["sessionID"], **fields, **place, **start, "time": time}}


def _prompt_admitted(event: Event) -> Wire | None:
    return _prompt_data(event, event.data["inboxID"], obj(event.data["item"]))


def _prompt_delivered(event: Event) -> Wire | None:
    return _prompt_data(event, event.data["inboxID"], obj((event.beside or {}).get("item")))


def _prompt_data(event: Event, message_id: str, item: ReadOnlyWire) -> Wire | None:
    if item.get("type") != "user":
        return None
    fields = {"messageID": message_id, "prompt": prompt(obj(item["payload"])), "delivery": item["delivery"]}
    return {"sessionID": event.data["sessionID"], **fields}


def _synthetic(event: Event) -> Wire:
    item = obj((event.beside or {}).get("item"))
    fields = {"messageID": event.data["inboxID"], "text": text(obj(item.get("payload")).get("text"))}
    return {"sessionID": event.data["sessionID"], **fields}


def _ordinal(kind: str) -> Maker:
    def make(event: Event) -> Wire:
        data = rename_fields(event.data, {"ordinal": None, "state": None})
        return {**data, f"{kind}ID": f"{kind}-{event.data['ordinal']}"}

    return make


def _failed_step(event: Event) -> Wire:
    data = event.data
    return {**{key: data[key] for key in ("sessionID", "assistantMessageID")}, "error": error(data["error"])}


def _call(event: Event) -> Wire:
    data = rename_fields(event.data, {"id": "callID"})
    return {**data, "name": TOOLS.get(data["name"], data["name"])} if "name" in data else data


def _tool_called(event: Event) -> Wire:
    tool = text((event.beside or {}).get("tool"))
    fields = rename_fields(event.data, {"id": "callID", "executed": None, "state": None})
    return {**fields, "tool": TOOLS.get(tool, tool), "provider": PROVIDER}


def _progress(event: Event) -> Wire:
    metadata = obj(event.data.get("metadata"))
    output = text(metadata.get("output"))
    progress = {"structured": {k: v for k, v in metadata.items() if k != "output"}, "content": _texts(output)}
    return {**rename_fields(event.data, {"id": "callID", "metadata": None}), **progress}


def _texts(output: str) -> list[Wire]:
    return [{"type": "text", "text": output}] if output else []


TOOL_END = {"id": "callID", "executed": None, "native": None, "metadata": None, "content": None, "error": None}


def _success(event: Event) -> Wire:
    result: Wire = {"structured": obj(event.data.get("metadata")), "content": event.data["content"]}
    return {**rename_fields(event.data, TOOL_END), **result, "outputPaths": list[str](), "provider": PROVIDER}


def _tool_failed(event: Event) -> Wire:
    failure = obj(event.data["error"])
    return {**rename_fields(event.data, TOOL_END), "error": error(failure), **result_of(failure), "provider": PROVIDER}


def _retry_scheduled(event: Event) -> Wire:
    failure = {"message": text(obj(event.data["error"]).get("message")), "isRetryable": True}
    return {"sessionID": event.data["sessionID"], "attempt": event.data["attempt"] - 1, "error": failure}


def _choice_switched(event: Event) -> Wire:
    return {**rename_fields(event.data, {"previous": None}), "messageID": _message_of(event)}


def _compaction(event: Event) -> Wire:
    data = {key: event.data[key] for key in ("sessionID", "reason", "text", "recent") if key in event.data}
    if event.type == "session.compaction.started":
        data.pop("recent", None)
        return {**data, "messageID": event.data.get("inputID") or _message_of(event)}
    return {**data, "messageID": text((event.beside or {}).get("messageID"))}


def _shell_started(event: Event) -> Wire:
    shell = obj(event.data["shell"])
    ids = {"messageID": _message_of(event), "callID": shell["id"]}
    return {"sessionID": event.data["sessionID"], **ids, "command": shell["command"]}


def _shell_ended(event: Event) -> Wire:
    output = text(obj(event.data["output"]).get("output"))
    return {"sessionID": event.data["sessionID"], "callID": obj(event.data["shell"])["id"], "output": output}


def _session_moved(event: Event) -> Wire:
    sub = {"subdirectory": event.data["subpath"]} if event.data.get("subpath") else {}
    return {"sessionID": event.data["sessionID"], "location": event.data["location"], **sub}


@dataclass(frozen=True, slots=True)
class Row:
    """How an event is converted. `version`: that of a durable event's shape, or None for the version of `v2_0`."""

    type: str
    make: Maker
    version: int | None = None


_COMPACTIONS = {
    f"session.compaction.{stage}": Row(f"{NEXT}compaction.{stage}", _compaction) for stage in ("started", "delta", "ended")
}
_TEXTS = {
    f"session.{kind}.{stage}": Row(f"{NEXT}{kind}.{stage}", _ordinal(kind))
    for kind in ("text", "reasoning")
    for stage in ("started", "delta", "ended")
}
_INPUT = {f"session.tool.input.{stage}": Row(f"{NEXT}tool.input.{stage}", _call) for stage in ("started", "delta", "ended")}

EVENTS: dict[str, Row] = {
    "session.created": Row("session.created", _session_created),
    "session.inbox.enqueued": Row(f"{NEXT}prompt.admitted", _prompt_admitted),
    "session.inbox.delivered": Row(f"{NEXT}prompted", _prompt_delivered),
    "session.agent.selected": Row(f"{NEXT}agent.switched", _choice_switched),
    "session.model.selected": Row(f"{NEXT}model.switched", _choice_switched),
    "session.moved": Row(f"{NEXT}moved", _session_moved),
    "session.step.started": Row(f"{NEXT}step.started", _drop("started")),
    "session.step.ended": Row(f"{NEXT}step.ended", _drop("rawFinish", "native"), version=2),
    "session.step.failed": Row(f"{NEXT}step.failed", _failed_step, version=2),
    **_TEXTS,
    **_INPUT,
    "session.tool.called": Row(f"{NEXT}tool.called", _tool_called),
    "session.tool.progress": Row(f"{NEXT}tool.progress", _progress),
    "session.tool.success": Row(f"{NEXT}tool.success", _success, version=1),
    "session.tool.failed": Row(f"{NEXT}tool.failed", _tool_failed, version=1),
    "session.retry.scheduled": Row(f"{NEXT}retried", _retry_scheduled),
    **_COMPACTIONS,
    "session.shell.started": Row(f"{NEXT}shell.started", _shell_started),
    "session.shell.ended": Row(f"{NEXT}shell.ended", _shell_ended),
    "session.revert.staged": Row(
        f"{NEXT}revert.staged", lambda event: {**event.data, "revert": revert(obj(event.data["revert"]))}
    ),
    "session.revert.cleared": Row(f"{NEXT}revert.cleared", _unchanged_data),
    "session.revert.committed": Row(f"{NEXT}revert.committed", lambda event: rename_fields(event.data, {"to": "messageID"})),
    "permission.asked": Row("permission.v2.asked", lambda event: permission(event.data)),
    "permission.replied": Row("permission.v2.replied", _unchanged_data),
    "form.created": Row("question.v2.asked", lambda event: question(obj(event.data["form"]))),
    "form.replied": Row(
        "question.v2.replied",
        lambda event: {
            **{"sessionID": event.data["sessionID"], "requestID": question_id(event.data["id"])},
            "answers": _answers(obj(event.data["answer"])),
        },
    ),
    "form.cancelled": Row(
        "question.v2.rejected",
        lambda event: {"sessionID": event.data["sessionID"], "requestID": question_id(event.data["id"])},
    ),
    "filesystem.changed": Row("file.watcher.updated", _unchanged_data),
    "provider.updated": Row("catalog.updated", _unchanged_data),
    **{
        name: Row(name, _unchanged_data)
        for name in (
            *("pty.created", "pty.updated", "pty.exited", "pty.deleted", "vcs.branch.updated", "reference.updated"),
            *("tui.prompt.append", "tui.command.execute", "tui.toast.show", "tui.session.select"),
            *("integration.updated", "installation.updated", "installation.update-available"),
        )
    },
}


def event(event: Event) -> Event | None:
    """Convert an event. None if the preview has no such event."""
    row = EVENTS.get(event.type)
    if row is None:
        return None
    synthetic = event.type == "session.inbox.delivered" and event.note == "synthetic"
    data = _synthetic(event) if synthetic else row.make(event)
    if data is None:
        return None
    kind = f"{NEXT}synthetic" if synthetic else row.type
    if kind.startswith(NEXT):
        data = {"timestamp": event.created, **data}
    version = row.version if row.version is not None and event.seq is not None else event.version
    directory = None if event.type in NO_LOCATION else event.directory
    return PreviewEvent(event.id, event.created, kind, data, event.session, event.seq, version, directory)


# --- messages and sessions ---------------------------------------------------------------------------------------------

NO_MESSAGES = frozenset({"idle", "location-switched", "skill"})


def message(message: ReadOnlyWire) -> Wire | None:
    """Convert a message. None if the preview has no such message."""
    kind = message["type"]
    if kind in NO_MESSAGES:
        return None
    base = {key: message[key] for key in ("id", "metadata") if key in message}
    time = {key: message["time"][key] for key in ("created", "completed") if key in message["time"]}
    return {**base, "time": time, "type": kind, **MESSAGES[kind](message)}


def _assistant(message: ReadOnlyWire) -> Wire:
    counts = {"text": 0, "reasoning": 0}
    content: list[Wire] = []
    for entry in map(obj, arr(message["content"])):
        kind = entry["type"]
        if kind == "tool":
            content.append(_tool(entry))
        else:
            content.append({"type": kind, "id": f"{kind}-{counts[kind]}", **rename_fields(entry, {"type": None, "state": None})})
            counts[kind] += 1
    fields = {key: message[key] for key in ("agent", "model", "snapshot", "finish", "cost", "tokens") if key in message}
    failed = {"error": error(obj(message["error"]))} if message.get("error") else {}
    return {**fields, "content": content, **failed}


def _tool(entry: ReadOnlyWire) -> Wire:
    state = obj(entry["state"])
    status = state["status"]
    wire: Wire = {"status": status, "input": state["input"]}
    if status == "streaming":
        wire["status"] = "pending"
    else:
        metadata = obj(state.get("metadata"))
        wire |= {"structured": {k: v for k, v in metadata.items() if k != "output"}, "content": arr(state.get("content"))}
    if status == "completed":
        wire["outputPaths"] = list[str]()
    if status == "error":
        wire["error"] = error(obj(state["error"]))
        wire |= result_of(obj(state["error"]))
    name = TOOLS.get(entry["name"], entry["name"])
    time = {key: entry["time"][key] for key in ("created", "ran", "completed") if key in entry["time"]}
    return {"type": "tool", "id": entry["id"], "name": name, "provider": PROVIDER, "state": wire, "time": time}


def _shell(message: ReadOnlyWire) -> Wire:
    output = text(obj(message.get("output")).get("output"))
    return {"callID": message["shellID"], "command": message["command"], "output": output}


def _system(message: ReadOnlyWire) -> Wire:
    """A synthetic message becomes a system message: the preview's synthetic messages need a session id, which is not here."""
    return {"type": "system", "text": message["text"]}


MESSAGES: Mapping[str, Callable[[ReadOnlyWire], Wire]] = {
    "assistant": _assistant,
    "user": prompt,
    "synthetic": _system,
    "system": _system,
    "shell": _shell,
    "agent-switched": lambda message: {"agent": message["agent"]},
    "model-switched": lambda message: {"model": message["model"]},
    "compaction": lambda message: {
        "reason": message["reason"],
        "summary": text(message.get("summary")),
        "recent": text(message.get("recent")),
    },
}
"""Type of message -> the function that makes its fields, except id, type and time."""

SESSION = ("id", "parentID", "projectID", "agent", "model", "cost", "tokens", "location", "subpath")


def session(session: ReadOnlyWire) -> Wire:
    """Convert a `SessionInfo`."""
    time = {key: session["time"][key] for key in ("created", "updated", "archived") if key in session["time"]}
    wire = {key: session[key] for key in SESSION if key in session}
    wire |= {"time": time, "title": title(session, whole(time.get("created")))}
    return {**wire, "revert": revert(obj(session["revert"]))} if session.get("revert") else wire


# --- routes, requests and answers ---------------------------------------------------------------------------------------------

ROUTE = "/api/session/{sessionID}"

ALIASES: tuple[Alias, ...] = (
    Alias("POST", f"{ROUTE}/wait", "experimental.session.wait"),
    Alias("POST", f"{ROUTE}/revert/clear", "session.revert.clear"),
)


def _prompt(input_: RequestInput) -> RequestInput:
    """`{prompt: {text, files?, agents?}}` is `{text, files?, agents?}` in `v2_0`."""
    body = obj(input_.body)
    fields = obj(body.get("prompt"))
    if not fields:
        return input_
    lists = {key: arr(fields[key]) for key in ("files", "agents") if key in fields}
    mentions = {key: [rename_fields(obj(item), {"source": "mention"}) for item in items] for key, items in lists.items()}
    return input_._replace(body={**rename_fields(body, {"prompt": None}), **fields, **mentions})


REQUESTS: Mapping[str, Ask] = {
    "session.prompt": _prompt,
    "session.permission.reply": rename_body(reply="decision"),
    "session.message.list": without_types(*NO_MESSAGES),
}


def _admitted_prompt(item: ReadOnlyWire) -> Wire:
    """Convert an inbox item to an admitted prompt. `admittedSeq` is 0 if the handler did not add it."""
    ids: Wire = {"admittedSeq": item.get("admittedSeq", 0), "id": item["id"], "sessionID": item["sessionID"]}
    return ids | {"prompt": prompt(obj(item["payload"])), "delivery": item["delivery"], "timeCreated": item["time"]["created"]}


def _agent(agent: ReadOnlyWire) -> Wire:
    return {**rename_fields(agent, {"name": None}), "request": rename_fields(obj(agent["request"]), {"settings": None})}


def _model(model: ReadOnlyWire) -> Wire:
    moved = ("modelID", "canonical", "compatibility", "package", "settings", "headers", "body")
    api: Wire = {"id": model.get("modelID", model["id"]), "type": "aisdk", "package": model.get("package", "")}
    variants = [{"id": variant["id"], **_request(variant)} for variant in model["variants"]]
    fields = rename_fields(model, dict.fromkeys(moved))
    return {**fields, "api": {**api, **_settings(model)}, "request": _request(model), "variants": variants}


def _request(source: ReadOnlyWire) -> Wire:
    return {"headers": obj(source.get("headers")), "body": obj(source.get("body"))}


def _settings(source: ReadOnlyWire) -> Wire:
    return {"settings": source["settings"]} if source.get("settings") else {}


def _provider(provider: ReadOnlyWire) -> Wire:
    fields = {key: provider[key] for key in ("id", "integrationID", "name") if key in provider}
    disabled = {"disabled": True} if provider.get("activation") == "disabled" else {}
    api = {"type": "aisdk", "package": provider["package"], **_settings(provider)}
    return {**fields, **disabled, "api": api, "request": _request(provider)}


def _skill(skill: ReadOnlyWire) -> Wire:
    fields = {key: skill[key] for key in ("name", "description", "content") if key in skill}
    return {**fields, "location": skill["path"]}


def _location(body: ReadOnlyWire) -> Wire:
    return {**body, "project": {key: body["project"][key] for key in ("id", "directory")}}


ANSWERS: Mapping[str, Answer] = {
    "location.get": _location,
    "agent.list": of_each(_agent),
    "model.list": of_each(_model),
    "provider.list": of_each(_provider),
    "provider.get": of_data(_provider),
    "command.list": of_each(lambda command: {"template": "", **command}),
    "skill.list": of_each(_skill),
    "integration.list": of_each(lambda integration: rename_fields(integration, {"metadata": None})),
    "integration.get": of_data(lambda integration: rename_fields(integration, {"metadata": None})),
    "session.create": of_data(session),
    "session.get": of_data(session),
    "session.list": of_each(session),
    "session.message.list": of_each(message),
    "session.message.get": of_data(lambda body: message(body) or body),
    "session.context": of_each(message),
    "session.prompt": of_data(_admitted_prompt),
    "session.compact": no_content,
    "session.interrupt": no_content,
    "session.revert.stage": of_data(revert),
    "session.permission.list": of_each(permission),
    "session.permission.get": of_data(permission),
    "permission.request.list": of_each(permission),
    "permission.saved.list": of_each(lambda wire: permission(rename_fields(wire, {"time": None}))),
}
