"""A recording of the mock, whose own protocol is in it: the lines that were written to it are our commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.recordings import Row
from tests.support.replay import Replay, codec_of
from universal.codec import Fact, PermissionReply, Prompt, QuestionReply
from universal.events import PermissionData, QuestionData
from universal.permissions import DECISIONS
from universal.turn import Input

SETTINGS = ("mode", "model", "variant")


@dataclass
class MockReplay(Replay):
    """The codec of the mock at work."""

    agent: str = "mock"
    codec: Any = field(default_factory=lambda: codec_of("mock"))
    asks: dict[str, str] = field(default_factory=dict)
    """The mock's id of an ask -> ours."""

    def command(self, row: Row) -> None:
        msg = row.msg
        if not isinstance(msg, dict):
            return
        match msg["type"]:
            case "prompt":
                settings = {key: msg[key] for key in SETTINGS if key in msg}
                self.give(Prompt(msg["run"], msg["text"], **settings))
            case "interrupt":
                self.apply(None, Input.ABORT)
            case "permission_reply":
                self.take(self.codec.send(PermissionReply(self.asks[msg["id"]], DECISIONS[msg["decision"]], msg.get("message"))))
            case "question_reply":
                self.take(self.codec.send(QuestionReply(self.asks[msg["id"]], msg["answers"])))
            case _:
                pass

    def fact(self, fact: Fact) -> None:
        data = fact.data
        if isinstance(fact.raw, dict) and isinstance(data, PermissionData | QuestionData):
            id_ = data.permission_id if isinstance(data, PermissionData) else data.question_id
            self.asks.setdefault(fact.raw["id"], id_)
        super().fact(fact)
