"""Replays a recording of `opencode-shim record`, which holds the commands (`do`) that the session sent.

Ids of our requests may have changed since: the n-th request of a kind is the n-th of that kind in the recording, and its
recorded answer is the answer to ours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from shim.dev.record.report import request_of
from tests.support.recordings import Recording, Row
from tests.support.replay import DIRECTORY, Replay
from universal import host
from universal.codec import Attachment, Output, PermissionReply, Prompt, QuestionReply, Stop
from universal.host import HostAnswer
from universal.launch import LaunchOptions
from universal.turn import Input

Wire = dict[str, Any]


@dataclass
class CommandReplay(Replay):
    """The codec of any agent at work."""

    recorded: list[Wire] = field(default_factory=list)
    """What was written to the agent in the recording."""
    _ours: dict[str, list[Any]] = field(default_factory=dict)
    """Kind of request -> ids of ours that have no recorded one yet."""
    _names: dict[str, Any] = field(default_factory=dict)
    """Recorded id of a request, as JSON -> ours."""
    _at_once: list[str] = field(default_factory=list)
    """Keys of prompts that were written while a turn ran, so that the agent queued them itself."""
    _is_over: bool = False
    """Whether the codec has stopped the agent, so that what it still says does not count."""
    _asked: set[str] = field(default_factory=set)
    """Recorded ids of requests, as JSON."""

    def launch(self, recording: Recording) -> None:
        self.codec.launch(LaunchOptions(binary=recording.argv[0], directory=DIRECTORY, **recording.launch))
        self.take(self.codec.start())

    def row(self, row: Row) -> None:
        match row.direction:
            case "do":
                self._do(dict(row.msg))
            case "out":
                line = self._as_ours(row.msg)
                if line is not None:
                    self.hear(line)
            case "err":
                self.stderr += str(row.msg)
            case _:
                super().row(row)

    def command(self, row: Row) -> None:
        """A line that was written then: whose answer is whose."""
        self.recorded.append(row.msg)
        request = request_of(row.msg) if isinstance(row.msg, dict) else None
        if request is None or request[0] is None:
            return
        self._asked.add(json.dumps(request[0]))
        waiting = self._ours.get(request[1])
        if waiting:
            self._names[json.dumps(request[0])] = waiting.pop(0)

    def _as_ours(self, msg: Any) -> bytes | None:
        """A line of the agent with our id in it; None for the answer to a request that we do not make any more."""
        if not isinstance(msg, dict):
            return str(msg).encode()
        place = msg["response"] if msg.get("type") == "control_response" else msg
        key = "request_id" if place is not msg else "id"
        answer = place is not msg or ("id" in msg and "method" not in msg and msg.get("type", "response") == "response")
        id_ = json.dumps(place.get(key))
        if answer and id_ in self._asked:
            if id_ not in self._names:
                return None
            place = {**place, key: self._names[id_]}
            msg = {**msg, "response": place} if key == "request_id" else place
        return json.dumps(msg, ensure_ascii=False).encode()

    def _do(self, msg: Wire) -> None:
        match msg.pop("command"):
            case "prompt":
                attachments = tuple(Attachment(**row) for row in msg.pop("attachments", ()))
                at_once = msg.pop("at_once", False)
                prompt = Prompt(**msg, attachments=attachments)
                self._at_once += [prompt.key] * at_once
                self.give(prompt)
                if at_once:
                    self.take(self.codec.send(prompt))
            case "abort":
                self.apply(None, Input.ABORT)
            case "permission":
                self.take(self.codec.send(PermissionReply(**msg)))
            case "question":
                self.take(self.codec.send(QuestionReply(**msg)))
            case "host":
                answer: HostAnswer = getattr(host, msg.pop("answer"))(**msg)
                self.take(self.codec.on_host_answer(answer))

    def dispatch(self, prompt: Prompt) -> None:
        if prompt.key not in self._at_once:
            super().dispatch(prompt)

    def receive(self, line: bytes) -> None:
        if not self._is_over:
            super().receive(line)

    def take(self, outputs: list[Output]) -> None:
        self._is_over = self._is_over or any(isinstance(output, Stop) for output in outputs)
        super().take(outputs)

    def written_line(self, msg: Wire) -> None:
        request = request_of(msg)
        if request is not None and request[0] is not None:
            self._ours.setdefault(request[1], []).append(request[0])
