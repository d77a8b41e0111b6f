"""A recording of Codex's app-server, played to a new codec.

The recorder began its thread at once, our codec with the first prompt: the recorded answer is kept until it is asked for.
Ids of requests are put in the place of the recorded ones. Subagents have states of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shim.sessions.session_state import SessionState
from tests.support.oracle import check_event, check_response
from tests.support.played import DIRECTORY, Played, counting, encode
from tests.support.recordings import Recording, Row
from tests.support.session_states import bare
from tests.support.views import view
from universal.agents.codex.codec import CodexCodec
from universal.codec import Attachment, Fact, Interrupt, LaunchOptions, Output, PermissionReply, QuestionReply, Signal
from universal.events import EventType, PermissionData, QuestionData, SessionStartedData
from universal.items import ItemKind, ItemRole
from universal.turn import Effect, Ended, Input, Started

MODES = {
    ("never", "danger-full-access"): "bypass",
    ("on-request", "read-only"): "build",
    ("untrusted", "workspace-write"): "accept-edits",
    ("untrusted", "read-only"): "build",
}
DECISIONS = {"accept": "accept", "acceptForSession": "accept_for_session", "decline": "reject"}
BEGINS = ("thread/start", "thread/resume")


@dataclass(slots=True)
class CodexReplay(Played):
    """The codec of Codex at work."""

    agent: str = "codex"
    codec: CodexCodec = field(default_factory=lambda: CodexCodec(counting()))
    children: dict[str, SessionState] = field(default_factory=dict)
    child_effects: dict[str, list[Effect]] = field(default_factory=dict)
    _asked: dict[Any, str] = field(default_factory=dict)
    """Recorded ids -> method."""
    _pending: dict[str, list[int]] = field(default_factory=dict)
    """Method -> our ids that wait for a recorded answer."""
    _kept: dict[str, Any] = field(default_factory=dict)
    """Method -> a recorded answer that our codec has not asked for yet."""
    _mode: str = "build"

    # --- rows -----------------------------------------------------------------------------------------

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
        elif method == "turn/interrupt":
            self.apply(Input.ABORT)
            self.take(self.codec.send(Interrupt()))

    def _prompt(self, params: dict[str, Any]) -> None:
        text = "".join(part["text"] for part in params["input"] if part["type"] == "text")
        images = [part["url"] for part in params["input"] if part["type"] == "image"]
        paths = [part["path"] for part in params["input"] if part["type"] == "localImage"]
        attachments = [Attachment(mime="image/png", base64=url.partition(",")[2]) for url in images]
        attachments += [Attachment(mime="image/png", path=path) for path in paths]
        plan = (params.get("collaborationMode") or {}).get("mode") == "plan"
        mode = "plan" if plan else self._mode
        self.prompt(text, attachments=attachments, model=params.get("model"), variant=params.get("effort"), mode=mode)

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

    def ours(self, msg: Any) -> Any:
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
            self.apply(Input.ABORT)
            self.take(self.codec.send(Interrupt()))
            return
        if isinstance(ask.data, QuestionData):
            reply: Any = QuestionReply(ask.data.question_id, [a["answers"] for a in result["answers"].values()])
        else:
            assert isinstance(ask.data, PermissionData)
            reply = PermissionReply(ask.data.permission_id, DECISIONS[result["decision"]])
        before = len(self.written())
        self.take(self.codec.send(reply))
        assert self.written()[before:] == [{"id": request_id, "result": result}]

    # --- subagents ------------------------------------------------------------------------------------

    def take(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, (Fact, Signal)) and output.child is not None:
                self.outputs.append(output)
                self._child(output, output.child)
            else:
                Played.take(self, [output])

    def _child(self, output: Fact | Signal, key: str) -> None:
        if isinstance(output, Fact) and output.type is EventType.SESSION_STARTED:
            self._open(output, key)
            return
        state = self.children[key]
        if isinstance(output, Signal):
            self.child_effects[key] += state.apply(output.input, output.key)
            return
        item = getattr(output.data, "item", None)
        if not state.machine.busy and item is not None and item.kind is not ItemKind.STATUS and item.role is not ItemRole.USER:
            self.idle_items.append(output)
        state.fact(output)

    def _open(self, fact: Fact, key: str) -> None:
        session_id = f"ses_{len(self.children) + 1:026d}"
        state = bare(session_id, "codex", self.store, self.hub, self.clock)
        info = {**view(self.state.session).info, "id": session_id, "parentID": self.state.id}
        state.record(EventType.SESSION_STARTED, SessionStartedData(metadata={**(fact.data.metadata or {}), "opencode": info}))
        self.children[key] = state
        self.child_effects[key] = []
        self.state.status("child", call_id=fact.data.metadata["call_id"], session_id=session_id)

    def cards_of(self, state: SessionState) -> list[dict[str, Any]]:
        """The tool parts of a session."""
        parts = [p for m in view(state.session).messages.values() for p in m.wire()["parts"]]
        return [p for p in parts if p["type"] == "tool"]

    def check_children(self) -> None:
        """Their turns begin and end once, and clients see what HTTP answers."""
        for key, state in self.children.items():
            assert not state.machine.busy
            ends = [type(effect) for effect in self.child_effects[key] if isinstance(effect, (Started, Ended))]
            assert ends == [Started, Ended] * (len(ends) // 2)
            http = [m.wire() for m in view(state.session).messages.values()]
            check_response("session.messages", 200, http)
            fold = self.hub.folds[state.id]
            fold.check()
            assert fold.wire() == http
        for number, event in enumerate(self.hub.events):
            check_event({"id": f"evt_{number:026d}", "type": event.type, "properties": event.properties})
