"""The base of codecs for agents that are HTTP servers with an event stream. The runtime converts both to lines.

{"id": "r1", "method": "POST", "path": "/x", "body": {}}   a request, made by the codec
{"id": "r1", "status": 200, "body": {}}                    its answer; status 0 if the server did not answer
{"event": {}}                                              an event of the stream
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from universal.agents.kit.codec import HANDSHAKE, BaseCodec, await_handshake, end_handshake, handshake_failed
from universal.agents.kit.context import ContextT, make_error
from universal.agents.kit.ends import Watch
from universal.codec import Fact, Output, SetTimer, WriteLine
from universal.items import Json
from universal.lib.jsonline import digest
from universal.lib.jsonvalue import obj, text


class HttpCodec(BaseCodec[ContextT]):
    """A codec that makes requests, and reads their answers and events."""

    def __init__(self, context: ContextT) -> None:
        super().__init__(context)
        self._purposes: dict[str, str] = {}
        """Request without an answer -> its purpose."""
        self._asked: dict[str, str] = {}
        """Request without an answer -> its method and path."""
        self._requests = 0

    def _request(self, purpose: str, method: str, path: str, body: Json = None) -> WriteLine:
        """A request line. Its answer comes with `purpose`. Without `body`, none is sent."""
        self._requests += 1
        id_ = f"r{self._requests}"
        self._purposes[id_], self._asked[id_] = purpose, f"{method} {path}"
        message: dict[str, Any] = {"id": id_, "method": method, "path": path}
        if body is not None:
            message["body"] = body
        return WriteLine(json.dumps(message, ensure_ascii=False).encode())

    def receive(self, line: bytes) -> list[Output]:
        """Handle an event or an answer. Any other line becomes `agent.unparsed`."""
        message = self._object(line)
        if isinstance(message, Fact):
            return self._stamp((message,))
        if "event" in message:
            return self._stamp(self._event(obj(message["event"]), digest(line)))
        if "status" in message:
            id_ = text(message.get("id"))
            self._asked.pop(id_, None)
            return self._stamp(self._answer(self._purposes.pop(id_, ""), message))
        return self._stamp((self._ctx.report_unparsed("line", "neither an event nor an answer", message, digest(line)),))

    @staticmethod
    def _parse(line: bytes) -> Json:
        return json.loads(line)  # our runtime wrote it, and the answers at the start are long

    def _event(self, event: dict[str, Any], hash_: str) -> Iterable[Output]:
        raise NotImplementedError

    def _answer(self, purpose: str, answer: dict[str, Any]) -> Iterable[Output]:
        """Handle the answer to a request. `purpose` is empty if no such request is open."""
        raise NotImplementedError


class WatchedCodec(HttpCodec[ContextT]):
    """A codec whose server is asked which sessions work: after a sign that one is over, and now and then.

    It also bounds the time until the server has taken a prompt, and knows whether it has the conversation.
    """

    TITLE: ClassVar[str]
    """The agent's name for a person."""
    STATUS_PATH: ClassVar[str]
    """The path whose answer lists the sessions that work."""

    def __init__(self, context: ContextT) -> None:
        super().__init__(context)
        self._watch = Watch(self.TITLE, self._ask_status, self._active, self._end_by_sign)
        self._resumed = False
        self._is_awaited = False
        """True while the server has not taken the prompt."""
        self._has_answered = False
        """True since a prompt was taken in this process."""

    @property
    def has_conversation(self) -> bool:
        """Whether the server has taken a prompt of the conversation, or has begun a new one."""
        return self._has_answered or not self._resumed

    def _await(self) -> SetTimer:
        """Begin to wait for the server to take a prompt."""
        self._is_awaited = True
        return await_handshake()

    def _accept(self) -> Iterator[Output]:
        """Note that the server has the prompt, and begin to ask whether it works."""
        if self._is_awaited:
            self._is_awaited, self._has_answered = False, True
            yield end_handshake()
            yield self._watch.begin(self.native_session_id or "")

    def _is_lost(self, status: int) -> bool:
        """Return whether this refusal means that a resumed conversation cannot be opened, whatever the reason."""
        return not self.has_conversation and (status == 404 or not 400 <= status < 500)

    def _active(self) -> Sequence[str]:
        """Ids of the sessions that have something to answer, which the server has."""
        raise NotImplementedError

    def _at_work(self, body: Json) -> Collection[str]:
        """Ids of the sessions that work, in the answer of `STATUS_PATH`."""
        raise NotImplementedError

    def _end_by_sign(self, session_id: str, msg: dict[str, Any]) -> Iterator[Output]:
        """End an answer whose end was not told, or a prompt that the server has taken and does not work on."""
        raise NotImplementedError

    def on_timer(self, key: str) -> list[Output]:
        """Give up the handshake, or ask which sessions work."""
        if key == HANDSHAKE:
            missing = next(reversed(self._asked.values()), "the prompt")
            late = handshake_failed(self.TITLE, missing, resumes=not self.has_conversation)
            return [late] if self._is_awaited else []
        return self._stamp(self._watch.on_timer())

    def _ask_status(self) -> Output:
        return self._request("status", "GET", self.STATUS_PATH)

    def _on_status_answer(self, good: bool, body: Json, msg: dict[str, Any]) -> Iterator[Output]:
        """Handle the server's word on what works. A refusal is no answer."""
        if good:
            yield from self._watch.on_answer(self._at_work(body), msg)
        else:
            self._ctx.ignore("status: refused")

    def _not_begun(self) -> dict[str, Json]:
        """The error of a prompt that the server has taken and does not work on."""
        message = f"{self.TITLE} has taken the prompt and does not work on it."
        return make_error(message, "prompt_not_begun", hint="Send the prompt again.", is_retryable=True)
