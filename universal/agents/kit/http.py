"""The base of codecs for agents that are HTTP servers with an event stream. The runtime converts both to lines.

{"id": "r1", "method": "POST", "path": "/x", "body": {}}   a request, made by the codec
{"id": "r1", "status": 200, "body": {}}                    its answer; status 0 if the server did not answer
{"event": {}}                                              an event of the stream
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from universal.agents.kit.codec import BaseCodec
from universal.agents.kit.context import ContextT
from universal.codec import Attachment, Fact, Output, WriteLine
from universal.items import Json
from universal.lib.jsonline import digest
from universal.lib.jsonvalue import obj, text


class HttpCodec(BaseCodec[ContextT]):
    """A codec that makes requests, and reads their answers and events."""

    def __init__(self, context: ContextT) -> None:
        super().__init__(context)
        self._purposes: dict[str, str] = {}
        """Request without an answer -> its purpose."""
        self._requests = 0

    def _request(self, purpose: str, method: str, path: str, body: Json = None) -> WriteLine:
        """A request line. Its answer comes with `purpose`. Without `body`, none is sent."""
        self._requests += 1
        id_ = f"r{self._requests}"
        self._purposes[id_] = purpose
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
            return self._stamp(self._answer(self._purposes.pop(text(message.get("id")), ""), message))
        return self._stamp((self._ctx.report_unparsed("line", "neither an event nor an answer", message, digest(line)),))

    @staticmethod
    def _parse(line: bytes) -> Json:
        return json.loads(line)  # our runtime wrote it, and the answers at the start are long

    def _event(self, event: dict[str, Any], hash_: str) -> Iterable[Output]:
        """Handle an event of the stream."""
        raise NotImplementedError

    def _answer(self, purpose: str, answer: dict[str, Any]) -> Iterable[Output]:
        """Handle the answer to a request. `purpose` is empty if no such request is open."""
        raise NotImplementedError


def attachment_url(attachment: Attachment) -> str:
    """Return bytes and texts as a data URL, a path as a file URL; empty if there is nothing."""
    if attachment.base64:
        return f"data:{attachment.mime};base64,{attachment.base64}"
    if attachment.path:
        return f"file://{quote(attachment.path)}"
    return f"data:{attachment.mime},{quote(attachment.text)}" if attachment.text is not None else ""
