"""JSON-RPC 2.0 over lines, without IO: writes messages and classifies lines.

Owns: the ids of our requests and what they wait for. The peer's ids are its own number space (0 is a valid one), so they are
kept as they came, and given back in the answer.
With the `jsonrpc` field (the Agent Client Protocol) or without it (Codex app-server). Source: the specification, recordings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from universal.items import Json
from universal.lib.jsonline import get_text, parse
from universal.lib.jsonvalue import obj

Id: TypeAlias = int | str | float | None
"""An id as the peer sent it."""

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
UNREADABLE = (-32700, -32600)
"""Codes of errors of a peer that could not read a request."""
JOINED_LINES = 2_000


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the peer, which waits for an answer with this id."""

    id: Id
    method: str
    params: dict[str, Any]
    raw: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification of the peer, which expects no answer."""

    method: str
    params: dict[str, Any]
    raw: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Response:
    """The peer's answer to our request.

    `method` is that of the request, or "" for an unknown id. `error` is {} for a success.
    """

    id: Id
    method: str
    result: Json
    error: dict[str, Any]
    raw: dict[str, Any]

    @property
    def is_error(self) -> bool:
        return "error" in self.raw and self.raw["error"] is not None

    @property
    def message(self) -> str:
        """Message of the error, or "" for a success."""
        return (get_text(self.error, "message") or "the request failed") if self.is_error else ""


@dataclass(frozen=True, slots=True)
class MalformedMessage:
    """A line that is no JSON-RPC message. `raw` is its text if it is not even JSON."""

    why: str
    raw: Json


Incoming: TypeAlias = Request | Notification | Response | MalformedMessage


@dataclass(slots=True)
class JsonRpc:
    """One connection. `versioned` adds the `jsonrpc` field to messages."""

    versioned: bool = True
    first_id: int = 1
    _request_count: int = 0
    _waiting: dict[Id, str] = field(default_factory=dict[Id, str])

    # --- out ------------------------------------------------------------------------------------------

    def request(self, method: str, params: Json) -> tuple[int, bytes]:
        """Return the id and the line (without newline) of a new request."""
        id_ = self.first_id + self._request_count
        self._request_count += 1
        self._waiting[id_] = method
        return id_, self._line({"id": id_, "method": method, "params": params})

    def notification(self, method: str, params: Json = None) -> bytes:
        """Return the line of a notification, which gets no answer."""
        message: dict[str, Any] = {"method": method}
        return self._line(message if params is None else {**message, "params": params})

    def response(self, id_: Id, result: Json) -> bytes:
        """Return the line that answers a request of the peer."""
        return self._line({"id": id_, "result": result})

    def error(self, id_: Id, message: str, code: int = METHOD_NOT_FOUND) -> bytes:
        """Return the line that refuses a request of the peer."""
        return self._line({"id": id_, "error": {"code": code, "message": message}})

    def _line(self, message: Mapping[str, Any]) -> bytes:
        """`ensure_ascii` keeps U+2028 and lone surrogates from breaking the framing."""
        head = {"jsonrpc": "2.0"} if self.versioned else {}
        return json.dumps({**head, **message}, separators=(",", ":")).encode()

    # --- in -------------------------------------------------------------------------------------------

    def classify(self, line: bytes) -> Incoming:
        """Classify a line of the peer. Never raises. A message with a method and an id is a request, whatever the id is."""
        try:
            value = parse(line)
        except (ValueError, RecursionError) as error:
            return MalformedMessage(f"not JSON: {error}", line.decode("utf-8", errors="replace"))
        if not isinstance(value, dict):
            return MalformedMessage("a line that is no JSON object", value)
        message = obj(value)
        method = message.get("method")
        if isinstance(method, str):
            params = obj(message.get("params"))
            if "id" in message:
                id_ = message["id"]
                return (
                    Request(id_, method, params, message) if _is_id(id_) else MalformedMessage("an id of no known type", message)
                )
            return Notification(method, params, message)
        if "id" in message and ("result" in message or "error" in message):
            id_ = self._request_id(message["id"], obj(message.get("error")))
            request_method = self._waiting.pop(id_, "") if _is_id(id_) else ""
            return Response(
                id_ if _is_id(id_) else None, request_method, message.get("result"), obj(message.get("error")), message
            )
        return MalformedMessage("neither request, notification nor response", message)

    def _request_id(self, id_: Any, error: Mapping[str, Json]) -> Any:
        """Return the id of the request that an answer is to.

        Some peers make text of it. One that could not read a request has no id for its error, as the specification demands.
        """
        if id_ is None and error.get("code") in UNREADABLE and len(self._waiting) == 1:
            return next(iter(self._waiting))
        if isinstance(id_, str) and id_.isascii() and id_.isdigit() and len(id_) < 16 and int(id_) in self._waiting:
            return int(id_)
        return id_

    @property
    def waiting_requests(self) -> Mapping[Id, str]:
        """Our requests without an answer: id -> method."""
        return self._waiting


class LineJoiner:
    """Joins an object that a peer writes over several lines, as `JSON.stringify(message, null, 2)` does."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def add(self, line: bytes) -> list[bytes]:
        """Return the messages that end with this line: nearly always the line itself, or none while an object is open."""
        text = line.rstrip()
        if not self._lines:
            if text[-1:] not in (b"{", b"[", b",") or b"{" not in text:
                return [line]
            self._lines.append(line)
            return []
        if text.startswith(b"{"):  # another message: the object is never closed
            broken, self._lines = b"\n".join(self._lines), []
            return [broken, *self.add(line)]
        self._lines.append(line)
        if text != b"}" and len(self._lines) < JOINED_LINES:
            return []
        whole, self._lines = b"\n".join(self._lines), []
        return [whole]


def _is_id(value: Json) -> bool:
    return value is None or (isinstance(value, (int, float, str)) and not isinstance(value, bool))
