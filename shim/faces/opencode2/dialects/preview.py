"""P, the preview in 1.18 (`session.next.*`): how its events, messages and sessions differ from R's. Pure.

`EVENTS` is the table: R's type -> P's type, version, and what its data is made of. Types of R without a row are not told: the
preview has no end of a turn (`session.execution.*`), no totals, no titles, no inbox.
P has no `created` around an event, and `timestamp` in the data of `session.next.*`; texts have ids; errors have one type.
Source: OpenCode's own document of 1.18.33, recordings `compat_fixtures/opencode2/lildax-1.18.18`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shim.faces.opencode2.dialects.v2_july import rename_fields, result_of
from shim.faces.opencode2.events import Event, Wire
from universal.jsonvalue import arr, obj, text, whole

NEXT = "session.next."
TOOLS = {"shell": "bash", "subagent": "task", "patch": "apply_patch"}
"""Tools and actions as the preview names them; all others are called the same."""
PROVIDER: Wire = {"executed": False}
ZERO: Wire = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}

Maker = Callable[[Event], "Wire | None"]


@dataclass(frozen=True, slots=True)
class PreviewMessages(Event):
    """An event in P's envelope."""

    def wire(self) -> Wire:
        """`{id, type, durable?, location?, data}`."""
        return {key: value for key, value in Event.wire(self).items() if key != "created"}


# --- parts that are shared ----------------------------------------------------------------------------------


def error(given: Mapping[str, Any]) -> Wire:
    """R's error."""
    return {"type": "unknown", "message": text(given.get("message"))}


def title(given: Mapping[str, Any], created: int) -> str:
    """A session's title; the preview's sessions always have one."""
    moment = datetime.fromtimestamp(created / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return text(given.get("title")) or f"New session - {moment}"


def prompt(payload: Wire) -> Wire:
    """What a person wrote: `{text, files?, agents?}` of R's payload."""
    made: Wire = {"text": text(payload.get("text"))}
    if payload.get("files"):
        made["files"] = [_file(obj(one)) for one in arr(payload["files"])]
    if payload.get("agents"):
        made["agents"] = [_mention(obj(one)) for one in arr(payload["agents"])]
    return made


def _mention(one: Wire) -> Wire:
    source = {"source": one["mention"]} if one.get("mention") else {}
    return {**rename_fields(one, {"mention": None}), **source}


def _file(one: Wire) -> Wire:
    source = obj(one.get("source"))
    uri = text(source.get("uri")) or f"data:{one['mime']};base64,{text(one.get('data'))}"
    return _mention({"uri": uri, **rename_fields(one, {"data": None, "source": None})})


def permission(request: Wire) -> Wire:
    """R's `PermissionRequest`."""
    shown = rename_fields(request, {"message": None}) | {"action": TOOLS.get(request["action"], request["action"])}
    source = obj(request.get("source"))
    return {**shown, "source": rename_fields(source, {"id": "callID"})} if source else shown


def question(form: Wire) -> Wire | None:
    """R's form as a question; None if it is none: the preview has no other forms."""
    metadata = obj(form.get("metadata"))
    if metadata.get("kind") != "question":
        return None
    tool = obj(metadata.get("tool"))
    made: Wire = {"id": question_id(form["id"]), "sessionID": form["sessionID"]}
    made["questions"] = [_question(obj(field)) for field in arr(form["fields"])]
    return {**made, "tool": rename_fields(tool, {"id": "callID"})} if tool else made


def _question(field: Wire) -> Wire:
    rows = map(obj, arr(field.get("options")))  # of a client's own form there may be none
    options = [{"label": text(one.get("label")), "description": text(one.get("description"))} for one in rows]
    asked: Wire = {"question": text(field.get("description")), "header": text(field.get("title")), "options": options}
    many = {"multiple": True} if field["type"] == "multiselect" else {}
    return asked | many | ({"custom": False} if field.get("custom") is False else {})


def question_id(form_id: str) -> str:
    """The question that is this form."""
    return f"que_{form_id.removeprefix('frm_')}"


def _answers(answer: Wire) -> list[list[str]]:
    numbers = [int(key[1:]) for key in answer if key[1:].isdigit()]
    given = [answer.get(f"q{number}") for number in range(1 + max(numbers, default=-1))]
    return [[str(v) for v in arr(one)] if isinstance(one, list) else [] if one is None else [str(one)] for one in given]


def revert(given: Wire) -> Wire:
    """R's `SessionRevert`."""
    kept = {key: given[key] for key in ("messageID", "partID", "snapshot") if given.get(key)}
    files = [{"path": one["file"], **rename_fields(one, {"file": None})} for one in map(obj, arr(given.get("files")))]
    return {**kept, **({"files": files} if "files" in given else {})}


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
    kept = {key: data[key] for key in ("slug", "projectID", "parentID", "agent", "model", "version") if key in data}
    spent: Wire = {"cost": 0, "tokens": ZERO, "title": title(data, event.created)}
    time = {"created": event.created, "updated": event.created}
    return {"sessionID": data["sessionID"], "info": {"id": data["sessionID"], **kept, **place, **spent, "time": time}}


def _prompt_admitted(event: Event) -> Wire | None:
    return _prompt_data(event, event.data["inboxID"], obj(event.data["item"]))


def _prompt_delivered(event: Event) -> Wire | None:
    return _prompt_data(event, event.data["inboxID"], obj((event.beside or {}).get("item")))


def _prompt_data(event: Event, message_id: str, item: Wire) -> Wire | None:
    if item.get("type") != "user":
        return None
    said = {"messageID": message_id, "prompt": prompt(obj(item["payload"])), "delivery": item["delivery"]}
    return {"sessionID": event.data["sessionID"], **said}


def _synthetic(event: Event) -> Wire:
    item = obj((event.beside or {}).get("item"))
    said = {"messageID": event.data["inboxID"], "text": text(obj(item.get("payload")).get("text"))}
    return {"sessionID": event.data["sessionID"], **said}


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
    kept = rename_fields(event.data, {"id": "callID", "executed": None, "state": None})
    return {**kept, "tool": TOOLS.get(tool, tool), "provider": PROVIDER}


def _progress(event: Event) -> Wire:
    metadata = obj(event.data.get("metadata"))
    output = text(metadata.get("output"))
    told = {"structured": {k: v for k, v in metadata.items() if k != "output"}, "content": _texts(output)}
    return {**rename_fields(event.data, {"id": "callID", "metadata": None}), **told}


def _texts(output: str) -> list[Wire]:
    return [{"type": "text", "text": output}] if output else []


ENDED = {"id": "callID", "executed": None, "native": None, "metadata": None, "content": None, "error": None}


def _success(event: Event) -> Wire:
    told: Wire = {"structured": obj(event.data.get("metadata")), "content": event.data["content"]}
    return {**rename_fields(event.data, ENDED), **told, "outputPaths": list[str](), "provider": PROVIDER}


def _tool_failed(event: Event) -> Wire:
    given = obj(event.data["error"])
    return {**rename_fields(event.data, ENDED), "error": error(given), **result_of(given), "provider": PROVIDER}


def _retry_scheduled(event: Event) -> Wire:
    said = {"message": text(obj(event.data["error"]).get("message")), "isRetryable": True}
    return {"sessionID": event.data["sessionID"], "attempt": event.data["attempt"] - 1, "error": said}


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
    """How an event is told. `version`: of its shape, if it is durable; None: as R's."""

    type: str
    make: Maker
    version: int | None = None


_COMPACTED = {
    f"session.compaction.{what}": Row(f"{NEXT}compaction.{what}", _compaction) for what in ("started", "delta", "ended")
}
_SAID = {
    f"session.{kind}.{what}": Row(f"{NEXT}{kind}.{what}", _ordinal(kind))
    for kind in ("text", "reasoning")
    for what in ("started", "delta", "ended")
}
_INPUT = {f"session.tool.input.{what}": Row(f"{NEXT}tool.input.{what}", _call) for what in ("started", "delta", "ended")}

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
    **_SAID,
    **_INPUT,
    "session.tool.called": Row(f"{NEXT}tool.called", _tool_called),
    "session.tool.progress": Row(f"{NEXT}tool.progress", _progress),
    "session.tool.success": Row(f"{NEXT}tool.success", _success, version=1),
    "session.tool.failed": Row(f"{NEXT}tool.failed", _tool_failed, version=1),
    "session.retry.scheduled": Row(f"{NEXT}retried", _retry_scheduled),
    **_COMPACTED,
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
    """One of R's events as P tells it; None if P has no such event."""
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
    return PreviewMessages(event.id, event.created, kind, data, event.session, event.seq, version, event.directory)


# --- what is read ---------------------------------------------------------------------------------------------

NO_MESSAGES = frozenset({"idle", "location-switched", "skill"})
"""Types of messages that P has not."""


def message(message: Wire) -> Wire | None:
    """One of R's messages as P shows it; None if P has no such message."""
    kind = message["type"]
    if kind in NO_MESSAGES:
        return None
    base = {key: message[key] for key in ("id", "metadata") if key in message}
    time = {key: message["time"][key] for key in ("created", "completed") if key in message["time"]}
    return {**base, "time": time, "type": kind, **MESSAGES[kind](message)}


def _assistant(message: Wire) -> Wire:
    counts = {"text": 0, "reasoning": 0}
    content: list[Wire] = []
    for entry in map(obj, arr(message["content"])):
        kind = entry["type"]
        if kind == "tool":
            content.append(_tool(entry))
        else:
            content.append({"type": kind, "id": f"{kind}-{counts[kind]}", **rename_fields(entry, {"type": None, "state": None})})
            counts[kind] += 1
    kept = {key: message[key] for key in ("agent", "model", "snapshot", "finish", "cost", "tokens") if key in message}
    failed = {"error": error(obj(message["error"]))} if message.get("error") else {}
    return {**kept, "content": content, **failed}


def _tool(entry: Wire) -> Wire:
    state = obj(entry["state"])
    status = state["status"]
    shown: Wire = {"status": status, "input": state["input"]}
    if status == "streaming":
        shown["status"] = "pending"
    else:
        metadata = obj(state.get("metadata"))
        shown |= {"structured": {k: v for k, v in metadata.items() if k != "output"}, "content": arr(state.get("content"))}
    if status == "completed":
        shown["outputPaths"] = list[str]()
    if status == "error":
        shown["error"] = error(obj(state["error"]))
        shown |= result_of(obj(state["error"]))
    name = TOOLS.get(entry["name"], entry["name"])
    time = {key: entry["time"][key] for key in ("created", "ran", "completed") if key in entry["time"]}
    return {"type": "tool", "id": entry["id"], "name": name, "provider": PROVIDER, "state": shown, "time": time}


def _shell(message: Wire) -> Wire:
    output = text(obj(message.get("output")).get("output"))
    return {"callID": message["shellID"], "command": message["command"], "output": output}


def _system(message: Wire) -> Wire:
    """P's synthetic messages name their session, which a message alone does not tell: so they are a system's."""
    return {"type": "system", "text": message["text"]}


MESSAGES: Mapping[str, Callable[[Wire], Wire]] = {
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
"""Type of message -> what P says beside id and time."""

SESSION = ("id", "parentID", "projectID", "agent", "model", "cost", "tokens", "location", "subpath")


def session(session: Wire) -> Wire:
    """R's `SessionInfo` as P's."""
    time = {key: session["time"][key] for key in ("created", "updated", "archived") if key in session["time"]}
    shown = {key: session[key] for key in SESSION if key in session}
    shown |= {"time": time, "title": title(session, whole(time.get("created")))}
    return {**shown, "revert": revert(obj(session["revert"]))} if session.get("revert") else shown
