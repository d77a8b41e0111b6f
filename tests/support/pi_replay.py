"""A recording of Pi, played to a new codec.

Pi was recorded without the questions about its state that our codec asks; they are answered here from what the
recording says, and only when everything that Pi said at the same moment has been heard.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.recordings import Recording, Row
from tests.support.replay import DIRECTORY, Replay, codec_of, encode, option
from universal.codec import Attachment, PermissionReply, QuestionReply
from universal.events import EventType, PermissionData
from universal.launch import LaunchOptions
from universal.turn import Input

AT_ONCE_S = 0.15
"""What Pi says within this time after something belongs to it."""
_ASKED_AT_START = ("get_state", "get_available_models", "get_commands")
_DECISIONS = {"Allow once": "accept", "Allow always": "accept_for_session", "Deny": "reject"}


@dataclass
class PiReplay(Replay):
    """The codec of Pi at work."""

    agent: str = "pi"
    codec: Any = field(default_factory=lambda: codec_of("pi"))
    _names: dict[str, str] = field(default_factory=dict)
    """Recorded ids -> ours."""
    _at_start: dict[str, str] = field(default_factory=dict)
    _probes: list[str] = field(default_factory=list)
    _aborts: list[str] = field(default_factory=list)
    _due_s: float = 0.0
    _now_s: float = 0.0
    _state: dict[str, Any] = field(default_factory=lambda: {"isStreaming": False, "isCompacting": False})

    def launch(self, recording: Recording) -> None:
        session = option(recording.argv, "session")
        options = LaunchOptions(
            binary="pi",
            directory=DIRECTORY,
            native_session_id=session,
            resume=session is not None,
            model=option(recording.argv, "model"),
            variant=option(recording.argv, "thinking"),
        )
        self.codec.launch(options)
        outputs = self.codec.start()
        self._at_start = {json.loads(out.data)["type"]: json.loads(out.data)["id"] for out in outputs}
        self.outputs += outputs

    def before(self, row: Row) -> None:
        self._now_s = row.at_s
        if self._probes and (row.direction != "out" or row.at_s > self._due_s):
            probes, self._probes = self._probes, []
            for id_ in probes:
                self.answer(id_, "get_state", dict(self._state))
        kind = row.msg.get("type") if row.direction == "out" and isinstance(row.msg, dict) else ""
        if kind in ("agent_start", "agent_end"):
            self._state["isStreaming"] = kind == "agent_start"
        elif kind in ("compaction_start", "compaction_end"):
            self._state["isCompacting"] = kind == "compaction_start"

    def answer(self, id_: str, command: str, data: Any = None) -> None:
        """Pi's answer to a command of ours."""
        self.receive(encode({"id": id_, "type": "response", "command": command, "success": True, "data": data or {}}))

    def written_line(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "get_state":
            self._probes.append(msg["id"])
            self._due_s = self._now_s + AT_ONCE_S
        elif msg["type"] == "abort":
            self._aborts.append(msg["id"])

    def with_our_ids(self, msg: Any) -> Any:
        if isinstance(msg, dict) and msg.get("type") == "response" and "id" in msg:
            if msg["command"] == "abort":
                return {**msg, "id": self._aborts.pop() if self._aborts else "recorded"}
            return {**msg, "id": self._names.get(msg["id"], "recorded")}
        return msg

    def command(self, row: Row) -> None:
        msg = row.msg
        if not isinstance(msg, dict):
            return  # bad_stdin: we send nothing like it
        if msg["type"] == "prompt" and not self.state.machine.busy:
            images = [Attachment(mime=image["mimeType"], base64=image["data"]) for image in msg.get("images", ())]
            before = len(self.written_lines())
            self.prompt(msg["message"], attachments=images)
            [line] = self.written_lines()[before:]
            assert (line["message"], line.get("images")) == (msg["message"], msg.get("images"))
            self._names[msg["id"]] = line["id"]
        elif msg["type"] == "abort":
            self.apply(None, Input.ABORT)
        elif msg["type"] == "extension_ui_response":
            self._reply(msg)
        elif msg["type"] in _ASKED_AT_START:
            self._names[msg["id"]] = self._at_start.pop(msg["type"], "recorded")

    def _reply(self, msg: dict[str, Any]) -> None:
        """Our reply to a dialog, and that it says what the recorded one said. After an interrupt there is none."""
        asked = next(fact for fact in self.facts() if fact.raw and fact.raw.get("id") == msg["id"])
        if isinstance(asked.data, PermissionData):
            assert asked.type is EventType.PERMISSION_REQUESTED
            decision = _DECISIONS[msg.get("value", "Deny")]
            outputs = self.codec.send(PermissionReply(asked.data.permission_id, decision))
        else:
            answers = [[msg["value"]]] if "value" in msg else None
            outputs = self.codec.send(QuestionReply(asked.data.question_id, answers))
        self.take(outputs)
        lines = [json.loads(out.data) for out in outputs if hasattr(out, "data") and isinstance(out.data, bytes)]
        if "cancelled" not in msg:
            assert lines == [msg]
