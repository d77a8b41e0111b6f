"""HTTP and SSE as a client sees them: calls, a recorder of one event stream, and the state that folding it gives.

Nothing here knows the server's code: state is folded from the events alone, as OpenCode's own clients do it.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from .children import wait_for
from .places import PATIENCE

Json = dict[str, Any]
CALL_S = 60
TURN_S = 60 * PATIENCE
"""Seconds that an event may take. An agent that `make adopt` brings may need 10 s of processor for its start alone."""


class Api:
    """One server, and the directory that all calls name."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, str(directory)
        self.port = urlsplit(url).port or 80

    def call(self, method: str, path: str, body: Any = None, *, timeout_s: float = CALL_S) -> tuple[int, Any]:
        """(status, JSON body or None when it is empty)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            headers = {"x-opencode-directory": quote(self.directory, safe="")}
            data = None if body is None else json.dumps(body)
            if data is not None:
                headers["Content-Type"] = "application/json"
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        status, body = self.call("GET", path)
        assert status == 200, (path, status, body)
        return body

    def post(self, path: str, body: Any = None) -> Any:
        status, answer = self.call("POST", path, {} if body is None else body)
        assert status in (200, 204), (path, status, answer)
        return answer

    def session(self, **fields: Any) -> str:
        return self.post("/session", fields)["id"]

    def prompt(self, session: str, text: str, **fields: Any) -> None:
        self.post(f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}], **fields})

    def messages(self, session: str) -> list[Json]:
        return self.get(f"/session/{session}/message")

    def status(self) -> Json:
        return self.get("/session/status")


class Stream:
    """Records an event stream from the moment that its first event has come. `events`: (seconds, payload)."""

    headers: Mapping[str, str] = {"Accept": "text/event-stream"}

    def __init__(self, api: Api, path: str | None = None, *, last_id: str | None = None, greets: bool = True) -> None:
        """Go on after `last_id`. `greets`: the stream begins with `server.connected`."""
        self.path = path or f"/event?directory={quote(api.directory, safe='')}"
        self.events: list[tuple[float, Json]] = []
        self.ids: list[str | None] = []
        self.ended = False
        self._changed = threading.Condition()
        self._connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=TURN_S)
        self._connection.request("GET", self.path, headers={**self.headers, **({"Last-Event-ID": last_id} if last_id else {})})
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.status
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        if greets:
            self.wait(lambda event: event["type"] == "server.connected", timeout_s=20)

    def _read(self) -> None:
        ident: str | None = None
        data: list[str] = []
        try:
            for raw in self._answer:
                line = raw.decode().rstrip("\r\n")
                if line.startswith("data:"):
                    data.append(line[5:].removeprefix(" "))
                elif line.startswith("id:"):
                    ident = line[3:].strip()
                elif not line and data:
                    event = json.loads("\n".join(data))
                    with self._changed:
                        self.events.append((time.monotonic(), event.get("payload", event)))
                        self.ids.append(ident)
                        self._changed.notify_all()
                    data, ident = [], None
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # our own close, or the server's end
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def mark(self) -> int:
        """A position for `since`."""
        return len(self.events)

    def wait(self, want: Callable[[Json], object], *, since: int = 0, timeout_s: float = TURN_S) -> Json:
        """The first event from `since` on that is wanted."""
        end = time.monotonic() + timeout_s
        at = since
        with self._changed:
            while True:
                while at < len(self.events):
                    event = self.events[at][1]
                    at += 1
                    if want(event):
                        return event
                left = end - time.monotonic()
                if left <= 0 or self.ended:
                    why = "the stream ended" if self.ended else f"not within {timeout_s} s"
                    raise AssertionError(f"{why}; the last events:\n" + "\n".join(brief(e) for _, e in self.events[-25:]))
                self._changed.wait(left)

    def idle(self, session: str, *, since: int = 0, timeout_s: float = TURN_S) -> Json:
        return self.wait(
            lambda e: e["type"] == "session.idle" and e["properties"]["sessionID"] == session, since=since, timeout_s=timeout_s
        )

    def of(self, session: str, since: int = 0) -> list[Json]:
        return [event for _, event in self.events[since:] if session_of(event) == session]

    def quiet(self, for_s: float = 1.0, timeout_s: float = 20) -> None:
        """Waits until nothing but heartbeats has come for `for_s`."""

        def look() -> bool:
            times = [at for at, event in self.events if event["type"] != "server.heartbeat"]
            return not times or time.monotonic() - times[-1] >= for_s

        wait_for(look, timeout_s, "the stream does not fall silent")

    def close(self) -> None:
        sock = self._connection.sock or (getattr(self._answer.fp, "raw", None) and self._answer.fp.raw._sock)
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(2)
        self._thread.join(5)
        self._answer.close()
        self._connection.close()


def session_of(event: Json) -> str | None:
    properties = event.get("properties", {})
    info = properties.get("info") or {}
    return (
        properties.get("sessionID") or info.get("sessionID") or (properties.get("part") or {}).get("sessionID") or info.get("id")
    )


def brief(event: Json) -> str:
    """An event on one short line."""
    kind, properties = event["type"], event.get("properties", {})
    session = (session_of(event) or "")[-6:]
    part, info = properties.get("part"), properties.get("info")
    if part is not None:
        state = part.get("state", {})
        detail = f"{part['type']} {part['id'][-6:]} {part.get('tool', '')} {state.get('status', '')} {part.get('text', '')!r:.60}"
    elif info is not None:
        times = "completed" if info["time"].get("completed") else ""
        detail = f"{info['id'][-6:]} {info.get('role', '')} {info.get('finish', '')} {times} {info.get('error', '')}"
    else:
        shown = {key: value for key, value in properties.items() if key not in ("sessionID", "messageID", "field")}
        detail = json.dumps(shown)[:160]
    return f"{session} {kind} {detail}"


def fold(events: list[Json], session: str) -> list[Json]:
    """The messages of a session as a client that saw only these events has them."""
    infos: dict[str, Json] = {}
    parts: dict[str, dict[str, Json]] = {}
    for event in events:
        kind, properties = event["type"], event.get("properties", {})
        if session_of(event) != session:
            continue
        if kind == "message.updated":
            infos[properties["info"]["id"]] = properties["info"]
        elif kind == "message.removed":
            infos.pop(properties["messageID"], None)
            parts.pop(properties["messageID"], None)
        elif kind == "message.part.updated":
            part = properties["part"]
            assert part["messageID"] in infos, f"a part of an unknown message: {brief(event)}"
            parts.setdefault(part["messageID"], {})[part["id"]] = dict(part)
        elif kind == "message.part.delta":
            part = parts.get(properties["messageID"], {}).get(properties["partID"])
            assert part is not None, f"a delta of an unknown part: {brief(event)}"
            part[properties["field"]] = part.get(properties["field"], "") + properties["delta"]
        elif kind == "message.part.removed":
            parts.get(properties["messageID"], {}).pop(properties["partID"], None)
    order = sorted(infos.values(), key=lambda info: (info["time"]["created"], info["id"]))
    return [{"info": info, "parts": [p for _, p in sorted(parts.get(info["id"], {}).items())]} for info in order]


def texts(messages: list[Json], role: str = "assistant") -> list[str]:
    """The text parts of the messages of a role, in order."""
    return [
        p["text"]
        for m in messages
        if m["info"]["role"] == role
        for p in m["parts"]
        if p["type"] == "text" and not p.get("synthetic")
    ]


def tools(messages: list[Json]) -> list[Json]:
    return [p for m in messages for p in m["parts"] if p["type"] == "tool"]
