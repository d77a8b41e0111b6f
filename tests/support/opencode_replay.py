"""A recording of a native OpenCode server: recorded requests are our commands, recorded events are lines.

Each request is answered as recorded. The ids of prompts' messages are put in the place of the recorded ones, as the real
server uses those that it is given.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.recordings import Recording, Row
from tests.support.replay import Replay, codec_of
from universal.codec import PermissionReply, Prompt, QuestionReply
from universal.events import EventType, ItemData, PermissionData, QuestionData
from universal.items import Item, ItemKind, ItemRole, ItemStatus, TextPart
from universal.permissions import DECISIONS
from universal.turn import Input

MODEL = {"providerID": "opencode", "modelID": "scripted/scripted"}
Wire = dict[str, Any]


@dataclass
class OpenCodeReplay(Replay):
    """The codec of OpenCode at work."""

    agent: str = "opencode"
    codec: Any = field(default_factory=lambda: codec_of("opencode"))
    native: list[Wire] = field(default_factory=list)
    """What the native server answered in the end: `GET /session/{id}/message`."""
    _session: str = ""
    _refused: set[int] = field(default_factory=set)
    """Numbers of requests that the native server refused."""
    _bodies: dict[str, Wire] = field(default_factory=dict)
    _pending: list[str] = field(default_factory=list)
    """Message ids of ours that the recording has not shown yet."""
    _names: dict[str, str] = field(default_factory=dict)

    def launch(self, recording: Recording) -> None:
        rows = [row.msg for row in recording.rows if row.direction == "http"]
        self._refused = {row["n"] for row in rows if row["phase"] == "response" and row["status"] >= 400}
        self.take(self.codec.start())

    def row(self, row: Row) -> None:
        msg = row.msg
        if row.direction == "sse":
            self._event(msg["data"])
        elif row.direction == "exit":
            super().row(row)
        elif row.direction == "http" and msg["n"] not in self._refused:
            path = msg["path"].split("?")[0]
            if msg["phase"] == "request" and msg["method"] == "POST":
                self._request(path.strip("/").split("/"), msg.get("body"))
            elif msg["method"] == "GET" and path == f"/session/{self._session}/message":
                self.native = msg["body"]

    def _event(self, event: Wire) -> None:
        info = event["properties"].get("info") or {}
        if info.get("role") == "user" and info.get("sessionID") == self._session and info["id"] not in self._names:
            self._names[info["id"]] = self._pending.pop(0) if self._pending else info["id"]
        text = json.dumps(event)
        for recorded, ours in self._names.items():
            text = text.replace(recorded, ours)
        self.hear(b'{"event":' + text.encode() + b"}")

    def _request(self, path: list[str], body: Any) -> None:
        if path[0] == "session" and len(path) == 3 and path[2] in ("prompt_async", "message"):
            self._session = self._session or path[1]
            if path[1] == self._session:
                self._prompt(body)
        elif path[0] == "session" and len(path) == 3:
            self._session = self._session or path[1]
            if path[1] == self._session and self.codec.native_session_id is None:
                self.codec._know(path[1])
            if path[2] == "abort" and path[1] == self._session:
                self.apply(None, Input.ABORT)
        elif path[0] in ("permission", "question") or "permissions" in path:
            self._reply(path, body or {})

    def _prompt(self, body: Wire) -> None:
        key = f"prompt_{len(self.prompts_by_key) + 1}"
        text = "".join(part["text"] for part in body["parts"] if part["type"] == "text")
        self._bodies[key] = body
        self.give(Prompt(key=key, text=text, model="scripted/scripted"))

    def _reply(self, path: list[str], body: Wire) -> None:
        id_ = path[3] if path[0] == "session" else path[1]
        asked = [f for f in self.facts() if f.raw and f.raw.get("properties", {}).get("id") == id_]
        if not asked:
            return
        data = asked[0].data
        if isinstance(data, PermissionData):
            decision = DECISIONS[body.get("reply") or body["response"]]
            self.take(self.codec.send(PermissionReply(data.permission_id, decision, body.get("message"))))
        elif isinstance(data, QuestionData) and isinstance(body.get("answers", []), list):
            self.take(self.codec.send(QuestionReply(data.question_id, body.get("answers") if path[2] == "reply" else None)))

    def written_line(self, msg: Wire) -> None:
        """The server answers a request of ours."""
        answer: Any = True
        if msg["path"] == "/session":
            answer = {"id": self._session}
        elif msg["path"] == "/config/providers":
            answer = {"providers": [], "default": {}}
        elif msg["path"].endswith("/prompt_async"):
            answer = None
            self._pending.append(msg["body"]["messageID"])
        self.receive(json.dumps({"id": msg["id"], "status": 200, "body": answer}).encode())

    def show_prompt(self, prompt: Prompt) -> None:
        item = Item(
            item_id=prompt.key,
            kind=ItemKind.MESSAGE,
            role=ItemRole.USER,
            status=ItemStatus.COMPLETED,
            content=(TextPart(text=prompt.text),),
            metadata={"opencode": {"model": MODEL, "agent": self._bodies[prompt.key].get("agent", "build")}},
        )
        self.state.record(EventType.ITEM_COMPLETED, ItemData(item=item))
