"""A recording of Codex's app-server, played to a new codec.

The recorder began its thread at once, our codec with the first prompt: the recorded answer is kept until it is asked for.
Ids of requests are put in the place of the recorded ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.recordings import Recording, Row
from tests.support.replay import DIRECTORY, Replay, codec_of, encode
from universal.codec import Attachment, PermissionReply, Prompt, QuestionReply
from universal.events import EventType, PermissionData, QuestionData
from universal.launch import LaunchOptions
from universal.turn import Input

MODES = {
    ("never", "danger-full-access"): "bypass",
    ("on-request", "read-only"): "build",
    ("untrusted", "workspace-write"): "accept-edits",
    ("untrusted", "read-only"): "build",
}
DECISIONS = {"accept": "accept", "acceptForSession": "accept_for_session", "decline": "reject"}
BEGINS = ("thread/start", "thread/resume")


@dataclass
class CodexReplay(Replay):
    """The codec of Codex at work."""

    agent: str = "codex"
    codec: Any = field(default_factory=lambda: codec_of("codex"))
    _asked: dict[Any, str] = field(default_factory=dict)
    """Recorded ids -> method."""
    _pending: dict[str, list[int]] = field(default_factory=dict)
    """Method -> our ids that wait for a recorded answer."""
    _kept: dict[str, Any] = field(default_factory=dict)
    """Method -> a recorded answer that our codec has not asked for yet."""
    _mode: str = "build"

    def launch(self, recording: Recording) -> None:
        begun = [row.msg for row in recording.rows if row.direction == "in" and isinstance(row.msg, dict)]
        resumed = next((m["params"]["threadId"] for m in begun if m.get("method") == "thread/resume"), None)
        options = LaunchOptions(binary="codex", directory=DIRECTORY, native_session_id=resumed, resume=resumed is not None)
        self.codec.launch(options)
        self.take(self.codec.start())

    def command(self, row: Row) -> None:
        msg = row.msg
        if not isinstance(msg, dict):
            return  # bad_stdin: we send nothing like it
        method, params = msg.get("method"), msg.get("params") or {}
        if method is None:
            self._reply(msg["id"], msg["result"])
            return
        self._asked[msg.get("id")] = method
        if method in BEGINS:
            self._mode = MODES.get((params.get("approvalPolicy"), params.get("sandbox")), "build")
        elif method == "turn/start" and "input" in params:
            self._prompt(params)
        elif method == "turn/steer" and "clientUserMessageId" in params:
            self._steer(params)
        elif method == "turn/interrupt":
            self.apply(None, Input.ABORT)

    def _prompt(self, params: dict[str, Any]) -> None:
        text = "".join(part["text"] for part in params["input"] if part["type"] == "text")
        images = [part["url"] for part in params["input"] if part["type"] == "image"]
        paths = [part["path"] for part in params["input"] if part["type"] == "localImage"]
        attachments = [Attachment(mime="image/png", base64=url.partition(",")[2]) for url in images]
        attachments += [Attachment(mime="image/png", path=path) for path in paths]
        plan = (params.get("collaborationMode") or {}).get("mode") == "plan"
        mode = "plan" if plan else self._mode
        self.prompt(text, attachments=attachments, model=params.get("model"), variant=params.get("effort"), mode=mode)

    def _steer(self, params: dict[str, Any]) -> None:
        """The recorder has offered a prompt to the running turn."""
        text = "".join(part["text"] for part in params["input"] if part["type"] == "text")
        prompt = Prompt(key=params["clientUserMessageId"], text=text, mode=self._mode)
        super().give(prompt)
        self.apply(None, Input.OFFERED, prompt.key)
        self.take(self.codec.steer(prompt))

    def give(self, prompt: Prompt) -> None:
        """Codex was given each prompt at once, and queued it itself."""
        super().give(prompt)
        self.take(self.codec.send(prompt))

    def dispatch(self, prompt: Prompt) -> None:
        """It has the prompt already."""

    def written_line(self, msg: dict[str, Any]) -> None:
        method = msg.get("method")
        if method is None or "id" not in msg:
            return
        if method == "config/read":  # the recorder did not ask for it
            self.receive(encode({"id": msg["id"], "result": {"config": {}, "origins": {}}}))
            return
        self._pending.setdefault(method, []).append(msg["id"])
        answer = self._kept.pop(method, None)
        if answer is not None:
            self.receive(encode({**answer, "id": self._pending[method].pop(0)}))

    def with_our_ids(self, msg: Any) -> Any:
        if not isinstance(msg, dict) or "method" in msg or "id" not in msg:
            return msg
        method = self._asked.get(msg["id"], "")
        waiting = self._pending.get(method)
        if waiting:
            return {**msg, "id": waiting.pop(0)}
        if method in BEGINS:
            self._kept.setdefault(method, msg)
        return {**msg, "id": 10_000 + msg["id"]}

    def _reply(self, request_id: Any, result: dict[str, Any]) -> None:
        """Our reply to the last ask with this id, and that it says what the recorded one said."""
        asks = (EventType.PERMISSION_REQUESTED, EventType.QUESTION_REQUESTED)
        ask = next(f for f in reversed(self.facts()) if f.type in asks and f.raw["id"] == request_id)
        if result.get("decision") == "cancel":  # what our abort is
            self.apply(None, Input.ABORT)
            return
        if isinstance(ask.data, QuestionData):
            reply: Any = QuestionReply(ask.data.question_id, [a["answers"] for a in result["answers"].values()])
        else:
            assert isinstance(ask.data, PermissionData)
            reply = PermissionReply(ask.data.permission_id, DECISIONS[result["decision"]])
        before = len(self.written_lines())
        self.take(self.codec.send(reply))
        assert self.written_lines()[before:] == [{"id": request_id, "result": result}]
