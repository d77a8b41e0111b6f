"""A recording of an ACP agent, played to a new codec.

The recorder's requests are not ours: it set modes that we do not, listed sessions, and sent broken lines. Its answers reach
us only where we have asked the same; what we set by ourselves is accepted at once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from shim.dev.record.driver import counting_ids
from tests.support.recordings import Recording, Row
from tests.support.replay import DIRECTORY, Replay, encode
from universal.agent_spec import AgentProgram
from universal.agents.acp.cards import PROFILES as ACP_PROFILES
from universal.agents.acp.codec import AcpCodec
from universal.agents.acp.profiles import Profile
from universal.codec import PermissionReply, Prompt, QuestionReply
from universal.events import PermissionData, QuestionData
from universal.launch import LaunchOptions
from universal.turn import Input

PROFILES = {
    "claude-agent-acp-0.100.0": "claude-agent-acp",
    "codex-acp-2.6.0": "codex-acp",
    "opencode-1.18.33": "opencode-acp",
    "pi-acp-0.0.34": "pi-acp",
    "zed-codex-acp-0.16.0": "",
}
"""Folder of recordings -> known agent; the older Rust adapter is played as one of which nothing is known."""
_DECISIONS = {"allow_once": "accept", "allow_always": "accept_for_session", "reject_once": "reject"}
_SESSIONS = ("session/new", "session/load", "session/resume")


def profile_of(version: str) -> Profile:
    return next((p for p in ACP_PROFILES if p.name == PROFILES[version]), Profile("own", "Own", AgentProgram(("own",))))


@dataclass
class AcpReplay(Replay):
    """The codec at work. `asked`: what we sent and has no answer yet, by method."""

    agent: str = "claude-agent-acp"
    codec: AcpCodec = field(default_factory=lambda: AcpCodec(counting_ids(), ACP_PROFILES[0]))
    asked: dict[str, list[Any]] = field(default_factory=dict)
    _recorded: dict[Any, str] = field(default_factory=dict)
    """Recorded id of a request -> its method."""
    _own: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, version: str) -> AcpReplay:
        """For recordings of this folder."""
        profile = profile_of(version)
        return cls(agent=profile.name, codec=AcpCodec(counting_ids(), profile))

    def launch(self, recording: Recording) -> None:
        loads = [row.msg["params"]["sessionId"] for row in recording.rows if _method(row) == "session/load" and _works(row)]
        options = LaunchOptions(
            binary=self.agent,
            directory=DIRECTORY,
            native_session_id=loads[0] if loads else None,
            resume=bool(loads),
        )
        self.codec.launch(options)
        self.take(self.codec.start())

    def written_line(self, msg: dict[str, Any]) -> None:
        method = msg.get("method", "")
        if method.startswith("session/set_"):
            self._own.append({"jsonrpc": "2.0", "id": msg["id"], "result": {}})
        elif "id" in msg and method:
            self.asked.setdefault("session/new" if method in _SESSIONS else method, []).append(msg["id"])

    def before(self, row: Row) -> None:
        self.run_timers(is_given=True)  # the agent had the next prompt already, and waited for nothing after an end
        self._accept()

    def _accept(self) -> None:
        """What we set by ourselves is accepted."""
        while self._own:
            self.receive(encode(self._own.pop(0)))

    def command(self, row: Row) -> None:
        msg = row.msg
        if not isinstance(msg, dict):
            return
        method = msg.get("method")
        if method and "id" in msg:
            self._recorded[msg["id"]] = method
        if method == "session/prompt" and _works(row):
            blocks = msg["params"]["prompt"]
            self.prompt("".join(b["text"] for b in blocks if b["type"] == "text"), mode="build")
        elif method == "session/cancel":
            self.apply(None, Input.ABORT)
        elif not method:
            self._reply(msg)

    def dispatch(self, prompt: Prompt) -> None:
        super().dispatch(prompt)
        self._accept()

    def receive(self, line: bytes) -> None:
        """Answers of the recording are answers to us, if we have asked the same."""
        msg = json.loads(line) if line.startswith(b"{") else {}
        if "method" not in msg and msg.get("id") in self._recorded and msg not in self._own:
            method = self._recorded.pop(msg["id"])
            ours = self.asked.get("session/new" if method in _SESSIONS else method, [])
            if not ours:
                return
            line = encode({**msg, "id": ours.pop(0)})
        super().receive(line)

    def _reply(self, msg: dict[str, Any]) -> None:
        asks = [fact for fact in self.facts() if isinstance(fact.data, (PermissionData, QuestionData)) and fact.raw]
        ask = next((fact for fact in reversed(asks) if fact.raw.get("id") == msg["id"]), None)
        result = msg["result"]
        if ask is None or result is None:
            return
        if isinstance(ask.data, PermissionData):
            chosen = result["outcome"].get("optionId")
            kinds = {option["optionId"]: option["kind"] for option in ask.raw["params"]["options"]}
            if chosen is not None:
                self.take(self.codec.send(PermissionReply(ask.data.permission_id, _DECISIONS[kinds[chosen]])))
            return
        labels = [[value] for value in result["content"].values()]
        self.take(self.codec.send(QuestionReply(ask.data.question_id, labels)))


def _method(row: Row) -> str:
    return row.msg.get("method", "") if row.direction == "in" and isinstance(row.msg, dict) else ""


def _works(row: Row) -> bool:
    """Not one of the requests with a session that does not exist."""
    return row.msg["params"].get("sessionId") != "no-such-session"
