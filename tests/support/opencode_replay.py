"""A recording of a native OpenCode server, played to its codec as a session would, and on through our projection.

Recorded requests become commands (a prompt, an abort, a reply), each answered as recorded; recorded events become lines.
The ids of prompts' messages are put in the place of the recorded ones, as the real server uses those that it is given.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shim.clock import ManualClock
from shim.record.driver import is_own
from shim.sessions.session_state import SessionState
from shim.store.memory import MemoryStore
from tests.support.claude_replay import counting
from tests.support.scripted import Recorder
from tests.support.session_states import bare, begin
from universal.agents.opencode.codec import OpenCodeCodec
from universal.codec import Exit, Fact, Interrupt, Output, PermissionReply, Prompt, QuestionReply, Signal, WriteLine
from universal.events import EventType, ItemData, PermissionData, QuestionData, UnparsedData
from universal.items import Item, ItemKind, ItemRole, ItemStatus, TextPart
from universal.turn import DispatchPrompt, Effect, Ended, Input, Started

ROOT = Path(__file__).parents[2] / "compat_fixtures" / "agents" / "opencode"
DIRECTORY = "/home/user/project"
DECISIONS = {"once": "accept", "always": "accept_for_session", "reject": "reject"}
Wire = dict[str, Any]


def names() -> list[str]:
    """All recordings, as VERSION/SCENE."""
    return [f"{path.parent.name}/{path.stem}" for path in sorted(ROOT.glob("*/*.jsonl")) if not is_own(path)]


def load(name: str) -> list[Wire]:
    """The rows of one recording."""
    return [json.loads(line) for line in (ROOT / f"{name}.jsonl").read_text("utf-8").splitlines()]


@dataclass(slots=True)
class OpenCodeReplay:
    """The codec at work, the journal and the projection of each session, and the stream of their events."""

    codec: OpenCodeCodec = field(default_factory=lambda: OpenCodeCodec(counting()))
    outputs: list[Output] = field(default_factory=list)
    effects: list[tuple[str | None, Effect]] = field(default_factory=list)
    states: dict[str | None, SessionState] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=ManualClock)
    store: MemoryStore = field(default_factory=MemoryStore)
    hub: Recorder = field(default_factory=Recorder)
    native: list[Wire] = field(default_factory=list)
    """What the native server answered in the end: `GET /session/{id}/message`."""
    written: list[Wire] = field(default_factory=list)
    _session: str = ""
    _prompts: dict[str, Prompt] = field(default_factory=dict)
    _bodies: dict[str, Wire] = field(default_factory=dict)
    _pending: list[str] = field(default_factory=list)
    """Message ids of ours that the recording has not shown yet."""
    _names: dict[str, str] = field(default_factory=dict)

    async def begin(self) -> OpenCodeReplay:
        await self.store.open()
        self._open(None)
        return self

    # --- what came of it ------------------------------------------------------------------------------

    def facts(self, type_: EventType | None = None) -> list[Fact]:
        return [out for out in self.outputs if isinstance(out, Fact) and type_ in (None, out.type)]

    def unparsed(self) -> list[UnparsedData]:
        return [fact.data for fact in self.facts(EventType.UNPARSED)]

    def turns(self, child: str | None = None) -> list[tuple[str, str]]:
        """(origin, reason) of each turn of a session."""
        mine = [effect for key, effect in self.effects if key == child]
        origins = [effect.origin for effect in mine if isinstance(effect, Started)]
        reasons = [effect.reason for effect in mine if isinstance(effect, Ended)]
        return list(zip(origins, reasons, strict=True))

    # --- playing --------------------------------------------------------------------------------------

    def play(self, rows: list[Wire]) -> OpenCodeReplay:
        """The whole recording, and then the end of the process."""
        refused = {row["n"] for row in rows if row["dir"] == "http" and row["phase"] == "response" and row["status"] >= 400}
        self.take(self.codec.start())
        for row in rows:
            if row.get("n") in refused:
                continue
            if row["dir"] == "sse":
                self._event(row["data"])
            elif row["dir"] == "http" and row["phase"] == "request" and row["method"] == "POST":
                self._request(row["path"].split("?")[0].strip("/").split("/"), row.get("body"))
            elif (
                row["dir"] == "http"
                and row["method"] == "GET"
                and row["path"].split("?")[0] == f"/session/{self._session}/message"
            ):
                self.native = row["body"]
        self.take(self.codec.eof(Exit(code=0)))
        for child in list(self.states):
            self.apply(child, Input.EXIT)
        return self

    def _event(self, event: Wire) -> None:
        info = event["properties"].get("info") or {}
        if info.get("role") == "user" and info.get("sessionID") == self._session and info["id"] not in self._names:
            self._names[info["id"]] = self._pending.pop(0) if self._pending else info["id"]
        text = json.dumps(event)
        for recorded, ours in self._names.items():
            text = text.replace(recorded, ours)
        self.take(self.codec.receive(b'{"event":' + text.encode() + b"}"))

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
        key = f"prompt_{len(self._prompts) + 1}"
        text = "".join(part["text"] for part in body["parts"] if part["type"] == "text")
        self._prompts[key], self._bodies[key] = Prompt(key=key, text=text, model="scripted/scripted"), body
        self.apply(None, Input.PROMPT, key)

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

    # --- as the session does --------------------------------------------------------------------------

    def take(self, outputs: list[Output]) -> None:
        """Outputs of the codec, as the session acts on them."""
        for output in outputs:
            self.outputs.append(output)
            if isinstance(output, Fact) and output.type is EventType.SESSION_STARTED:
                child = self._open(output.child)
                self.states[None].status("child", call_id=output.child, session_id=child.id)
            elif isinstance(output, Fact):
                self.states[output.child].fact(output)
            elif isinstance(output, Signal):
                if output.child is not None and output.aborted:
                    self.apply(output.child, Input.ABORT)
                self.apply(output.child, output.input, output.key)
            elif isinstance(output, WriteLine):
                self._answer(json.loads(output.data))

    def _answer(self, request: Wire) -> None:
        """What the server answers to a request of ours."""
        self.written.append(request)
        answer: Any = True
        if request["path"] == "/session":
            answer = {"id": self._session}
        elif request["path"] == "/config/providers":
            answer = {"providers": [], "default": {}}
        elif request["path"].endswith("/prompt_async"):
            answer = None
            self._pending.append(request["body"]["messageID"])
        self.take(self.codec.receive(json.dumps({"id": request["id"], "status": 200, "body": answer}).encode()))

    def apply(self, child: str | None, input_: Input, key: str = "") -> None:
        """One input of a session's turn machine."""
        state = self.states[child]
        if input_ is Input.PROMPT:
            model = {"providerID": "opencode", "modelID": "scripted/scripted"}
            item = Item(
                item_id=key,
                kind=ItemKind.MESSAGE,
                role=ItemRole.USER,
                status=ItemStatus.COMPLETED,
                content=(TextPart(text=self._prompts[key].text),),
                metadata={"opencode": {"model": model, "agent": self._bodies[key].get("agent", "build")}},
            )
            state.record(EventType.ITEM_COMPLETED, ItemData(item=item))
        for effect in state.apply(input_, key):
            self.effects.append((child, effect))
            if isinstance(effect, DispatchPrompt):
                state.status("prompt", state="handed", item_id=effect.key, agent="opencode", carried=[])
                self.take(self.codec.send(self._prompts[effect.key]))
            elif type(effect).__name__ == "InterruptAgent" and child is None:
                self.take(self.codec.send(Interrupt()))

    def _open(self, key: str | None) -> SessionState:
        session_id = f"ses_{len(self.states):026d}"
        state = self.state(session_id, self.hub)
        begin(state, DIRECTORY)
        self.states[key] = state
        return state

    def state(self, session_id: str, hub: Recorder) -> SessionState:
        """A session of ours over this replay's journal."""
        return bare(session_id, "opencode", self.store, hub, self.clock)


async def replay(name: str) -> OpenCodeReplay:
    """A recording, played to its end."""
    return (await OpenCodeReplay().begin()).play(load(name))
