"""A recording of a native OpenCode 2 server: recorded requests are our commands, recorded events are lines.

The recordings are those of `compat_fixtures/opencode2`, of two builds; what their server said is what the codec reads. Requests
of ours are answered as that build answers them. Ids of prompts are put in the place of the recorded ones, since the server uses
the ids that it is given.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from shim.dev.record.packs import read_rows, recordings_in
from tests.support.recordings import ROOT, Recording, Row
from tests.support.replay import Replay, codec_of
from universal.codec import PermissionReply, Prompt, QuestionReply
from universal.events import EventType, ItemData, PermissionData, QuestionData
from universal.items import Item, ItemKind, ItemRole, ItemStatus, TextPart
from universal.permissions import DECISIONS
from universal.turn import Input

RECORDINGS = ROOT.parent / "opencode2"
JULY, PREVIEW = "v2-20260717", "lildax-1.18.18"
PUBLISHED = "published"
"""July's recordings by the names of the published contract, which is newer than every build that could be recorded."""
BUILDS = (PUBLISHED, JULY, PREVIEW)
STREAM = "/api/event"
MODEL = {"providerID": "opencode2", "modelID": "scripted/scripted"}
ADMITTED = ("session.inbox.enqueued", "session.input.admitted", "session.next.prompt.admitted")
WORK = ("session.step.", "session.next.")
Wire = dict[str, Any]


def scenes(build: str) -> list[str]:
    """The recorded scenes of a build."""
    return [path.stem for path in recordings_in(RECORDINGS / (JULY if build == PUBLISHED else build))]


def read(build: str, scene: str) -> Recording:
    """One recording, as the replay engine takes it. For `PUBLISHED`: that of July, with the events of the release."""
    folder = JULY if build == PUBLISHED else build
    rows = [row for row in read_rows(RECORDINGS / folder / f"{scene}.jsonl") if row.get("stream", STREAM) == STREAM]
    if build == PUBLISHED:
        rows = [{**row, "data": event_of_release(row["data"])} if "data" in row else row for row in rows]
        rows = [row for row in rows if row.get("data", True) is not None]
    messages = tuple(Row(row["dir"], row, row.get("t", 0.0)) for row in rows)
    return Recording("opencode2", build, scene, (), {}, (*messages, Row("exit", {"code": 0}, 0.0)))


# --- July's events as those of the release ---------------------------------------------------------------------

RENAMED = {
    "session.input.admitted": "session.inbox.enqueued",
    "session.compaction.admitted": "session.inbox.enqueued",
    "session.input.promoted": "session.inbox.delivered",
    "permission.v2.asked": "permission.asked",
    "permission.v2.replied": "permission.replied",
    "catalog.updated": "model.updated",
}
DROPPED = ("plugin.added", "session.forked")
"""Events that the release does not have, or whose content is another."""
VERSIONS = {"session.tool.success": 2, "session.tool.failed": 2, "session.deleted": 2}
OPTIONAL = ("title", "agent", "model", "parentID")


def event_of_release(event: Wire) -> Wire | None:
    """An event of July by the names of the published contract; None if the release does not send it."""
    kind = event["type"]
    if kind in DROPPED:
        return None
    name = RENAMED.get(kind, kind)
    changed = {**event, "type": name, "created": event.get("created", 0), "data": _data_of_release(event)}
    if name == "session.tool.progress":
        changed.pop("durable", None)  # live only
    elif "durable" in event:
        changed["durable"] = {**event["durable"], "version": VERSIONS.get(name, event["durable"]["version"])}
    return changed


def _data_of_release(event: Wire) -> Wire:
    kind, data = event["type"], dict(event["data"])
    session = {"sessionID": data.get("sessionID")}
    match kind:
        case "session.created":
            info = data["info"]
            rest = {key: info[key] for key in OPTIONAL if key in info}
            location = {"directory": info["directory"]}
            fixed = {key: info[key] for key in ("projectID", "slug", "version")}
            return {**session, **fixed, "location": location, **rest}
        case "session.input.admitted":
            admitted = data["input"]
            item = {"type": admitted["type"], "payload": admitted["data"], "delivery": admitted["delivery"]}
            return {**session, "inboxID": data["inputID"], "item": item}
        case "session.compaction.admitted":
            return {**session, "inboxID": data["inputID"], "item": {"type": "compaction", "payload": {}, "delivery": "steer"}}
        case "session.input.promoted":
            return {**session, "inboxID": data["inputID"]}
        case "session.step.started":
            return {**data, "started": event["created"]}
        case "permission.v2.asked":
            return {**data, "source": _source(data["source"])}
        case "form.created":
            form = data["form"]
            return {"form": {**form, "metadata": {**form["metadata"], "tool": _source(form["metadata"]["tool"])}}}
        case _ if kind.startswith("session.tool."):
            return _tool_of_release(kind, data)
        case _:
            return data


def _source(value: Wire) -> Wire:
    return {"id" if key == "callID" else key: field for key, field in value.items()}


def _tool_of_release(kind: str, data: Wire) -> Wire:
    renamed = _source(data)
    renamed.pop("result", None)
    if "structured" in renamed:
        renamed["metadata"] = renamed.pop("structured")
    if kind == "session.tool.progress":
        del renamed["content"]  # the release tells no output before the end
    elif kind == "session.tool.success" and not renamed["content"]:
        renamed["content"] = [{"type": "text", "text": renamed["metadata"]["content"]}]
    return renamed


# --- the replay -------------------------------------------------------------------------------------------------


def play(build: str, scene: str) -> OpenCode2Replay:
    """One recording, played to its end."""
    return OpenCode2Replay().play(read(build, scene))


@dataclass
class OpenCode2Replay(Replay):
    """The codec of OpenCode 2 at work."""

    agent: str = "opencode2"
    codec: Any = field(default_factory=lambda: codec_of("opencode2"))
    _session: str = ""
    _build: str = ""
    _rows: tuple[Row, ...] = ()
    _place: int = 0
    _refused: set[int] = field(default_factory=set)
    """Numbers of requests that the native server refused."""
    _pending: list[str] = field(default_factory=list)
    """Message ids of ours that the recording has not shown yet."""
    _ids: set[str] = field(default_factory=set)
    _names: dict[str, str] = field(default_factory=dict)
    _reads: list[Wire] = field(default_factory=list)
    """Reads of the active sessions that wait for the recording to go on."""

    def launch(self, recording: Recording) -> None:
        self._build, self._rows = recording.version, recording.rows
        rows = [row.msg for row in recording.rows if row.direction == "http"]
        self._refused = {row["n"] for row in rows if row["phase"] == "response" and row["status"] >= 400}
        self.take(self.codec.start())

    def before(self, row: Row) -> None:
        self._place = next(i for i, other in enumerate(self._rows) if other is row)

    def row(self, row: Row) -> None:
        msg = row.msg
        if row.direction == "sse" and "data" in msg:
            self._event(msg["data"])
            for read in self._take_reads():
                self._answer_active(read)
        elif row.direction == "exit":
            super().row(row)
        elif row.direction == "http" and _is_taken(msg, self._refused):
            self._request(msg["path"].split("?")[0].strip("/").split("/")[1:], msg.get("body"))

    def _take_reads(self) -> list[Wire]:
        reads, self._reads = self._reads, []
        return reads

    def _event(self, event: Wire) -> None:
        data = event["data"]
        id_ = data.get("inboxID") or data.get("inputID") or data.get("messageID")
        item = data.get("item") or data.get("input") or {"type": "user"}
        if event["type"] in ADMITTED and data["sessionID"] == self._session and item["type"] == "user":
            self._names.setdefault(id_, self._pending.pop(0) if self._pending else id_)
        text = json.dumps(event)
        for recorded, ours in self._names.items():
            text = text.replace(recorded, ours)
        self.hear(b'{"event":' + text.encode() + b"}")

    def _request(self, path: list[str], body: Any) -> None:
        if path == ["session"] or path[0] != "session":
            return
        self._session = self._session or path[1]
        if path[1] == self._session and path[2:] in (["prompt"], ["compact"]):
            self._prompt(body, compact=path[2] == "compact")
        elif path[1] == self._session and path[2:] == ["interrupt"]:
            self.apply(None, Input.ABORT)
        elif path[2] in ("permission", "form", "question"):
            self._reply(path[3], path[4], body or {})

    def _prompt(self, body: Wire, *, compact: bool) -> None:
        # Our server sends a prompt once, runs it, and steers no turn: these prompts are somebody else's.
        is_again = bool(body.get("id")) and body["id"] in self._ids
        self._ids.add(body.get("id", ""))
        if body.get("resume") is False or is_again or self.state.machine.busy:
            return
        text = "/compact" if compact else body.get("prompt", body)["text"]
        self.give(Prompt(key=f"prompt_{len(self.prompts_by_key) + 1}", text=text, model="scripted/scripted", compact=compact))

    def _reply(self, id_: str, what: str, body: Wire) -> None:
        asked = [fact.data for fact in self.facts() if id_ in (json.dumps(fact.raw) if fact.raw else "")]
        data = next((data for data in asked if isinstance(data, (PermissionData, QuestionData))), None)
        if isinstance(data, PermissionData):
            self.take(self.codec.send(PermissionReply(data.permission_id, DECISIONS[body["reply"]], body.get("message"))))
        elif isinstance(data, QuestionData):
            labels = body.get("answers") or [[value] for value in body.get("answer", {}).values()]
            self.take(self.codec.send(QuestionReply(data.question_id, labels if what == "reply" else None)))

    def written_line(self, msg: Wire) -> None:
        """The server answers a request of ours."""
        path = msg["path"].split("?")[0]
        if path == "/api/session/active":
            self._answer_active(msg)
            return
        status, body = 200, {}
        if path == "/api/info":
            status, body = (200, {"version": "2.1.2"}) if self._build == PUBLISHED else (404, None)
        elif path == "/api/health":
            body = {"healthy": True, **({"version": "2.0.0", "pid": 1} if self._build == JULY else {})}
        elif path == "/api/session":
            body = {"data": {"id": self._session}}
        elif path.endswith("/prompt"):
            self._pending.append(msg["body"]["id"])
        elif path in ("/api/model", "/api/agent", "/api/command", "/api/skill"):
            body = {"data": []}
        self._answer(msg, status, body)

    def _answer(self, msg: Wire, status: int, body: Any) -> None:
        self.receive(json.dumps({"id": msg["id"], "status": status, "body": body}).encode())

    def _answer_active(self, msg: Wire) -> None:
        """The session works while the recording has more of its work, up to the next prompt."""
        if self._is_working():
            self._reads.append(msg)
            return
        self._answer(msg, 200, {"data": {}})

    def _is_working(self) -> bool:
        for row in self._rows[self._place + 1 :]:
            msg = row.msg
            if row.direction == "http" and msg["phase"] == "request" and msg["path"].endswith("/prompt"):
                return False
            data = msg.get("data", {}) if row.direction == "sse" else {}
            if data.get("type", "").startswith(WORK) and data["data"]["sessionID"] == self._session:
                return True
        return False

    def show_prompt(self, prompt: Prompt) -> None:
        item = Item(
            item_id=prompt.key,
            kind=ItemKind.MESSAGE,
            role=ItemRole.USER,
            status=ItemStatus.COMPLETED,
            content=(TextPart(text=prompt.text),),
            metadata={"opencode": {"model": MODEL, "agent": "build"}},
        )
        self.state.record(EventType.ITEM_COMPLETED, ItemData(item=item))


def _is_taken(msg: Wire, refused: set[int]) -> bool:
    return msg["phase"] == "request" and msg["method"] == "POST" and msg["n"] not in refused
