"""A client of OpenCode 2 that makes the calls of its TUI, and folds the events as that of July 2026 did.

The 2.x program is not on every registry, so this one stands for it. `Story` does what that TUI was seen to do with each
event: nothing is fetched again that it does not fetch, and an event that comes too early or twice spoils the picture as there.
Source: what was observed of the real one (docs/clients.md), and the recordings of its server.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from .children import wait_for
from .wire import Api, Json, Stream

AGENT = "opencode/latest/2.0.26/cli"
AT_START = (
    "agent",
    "command",
    "integration",
    "mcp",
    "mcp/resource",
    "provider",
    "reference",
    "shell",
    "form",
    "skill",
    "model",
)
FIRST_FRAME_S = 2
IDLE_S = 60


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: Any


class Client2Api(Api):
    """Calls of that client. It takes nothing but the status that is declared."""

    def ask(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        """A call. AssertionError for another status, and for a 204 with a body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = None if body is None else json.dumps(body)
            headers = {"User-Agent": AGENT, **({} if data is None else {"Content-Type": "application/json"})}
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        assert answer.status == status, (method, path, answer.status, text[:500])
        assert (status == 204) == (text == b""), (method, path, text)
        return json.loads(text) if text else None

    def here(self, path: str) -> Any:
        """`/api/PATH` of the project."""
        return self.ask("GET", f"/api/{path}?location[directory]={quote(self.directory, safe='')}")


class Client2Stream(Stream):
    """Its event stream."""

    headers: Mapping[str, str] = {"Accept": "text/event-stream", "User-Agent": AGENT}


@dataclass
class Story:
    """One session as the screen shows it: built from events alone, as they come."""

    messages: dict[str, Json] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    permissions: dict[str, Json] = field(default_factory=dict)
    forms: dict[str, Json] = field(default_factory=dict)
    running: bool = False
    turns: int = 0
    ends: list[str] = field(default_factory=list)

    def feed(self, kind: str, data: Json) -> None:
        """What the client does with an event; unknown ones are ignored."""
        handler = getattr(self, "on_" + kind.replace(".", "_"), None)
        if handler is not None:
            handler(data)

    def on_session_inbox_enqueued(self, data: Json) -> None:
        if data["item"]["type"] == "user":
            self.inputs[data["inboxID"]] = data["item"]["payload"]["text"]

    def on_session_inbox_delivered(self, data: Json) -> None:
        if data["inboxID"] in self.inputs:
            self.messages[data["inboxID"]] = {"type": "user", "text": self.inputs.pop(data["inboxID"])}

    def on_session_execution_started(self, data: Json) -> None:
        assert not self.running, "two starts"
        self.running = True
        self.turns += 1

    def _end_turn(self, how: str) -> None:
        assert self.running, f"{how} without a start"
        self.running = False
        self.ends.append(how)

    def on_session_execution_succeeded(self, data: Json) -> None:
        self._end_turn("succeeded")

    def on_session_execution_failed(self, data: Json) -> None:
        self._end_turn("failed")

    def on_session_execution_interrupted(self, data: Json) -> None:
        self._end_turn(f"interrupted by {data['reason']}")

    def on_session_step_started(self, data: Json) -> None:
        self.messages.setdefault(data["assistantMessageID"], {"type": "assistant", "texts": [], "reasoning": [], "tools": {}})

    def _step(self, data: Json) -> Json:
        return self.messages[data["assistantMessageID"]]  # KeyError: what belongs to a step came before it

    def on_session_text_started(self, data: Json) -> None:
        texts = self._step(data)["texts"]
        assert len(texts) == data["ordinal"], "texts begin in order"
        texts.append("")

    def on_session_text_delta(self, data: Json) -> None:
        self._step(data)["texts"][data["ordinal"]] += data["delta"]

    def on_session_text_ended(self, data: Json) -> None:
        texts = self._step(data)["texts"]
        assert texts[data["ordinal"]] in ("", data["text"]), "the deltas are not the text"
        texts[data["ordinal"]] = data["text"]

    def on_session_tool_input_started(self, data: Json) -> None:
        assert data["id"] not in self._step(data)["tools"], "a call begins once"
        self._step(data)["tools"][data["id"]] = {"name": data["name"], "status": "streaming"}

    def on_session_tool_called(self, data: Json) -> None:
        self._step(data)["tools"][data["id"]] |= {"status": "running", "input": data["input"]}

    def on_session_tool_success(self, data: Json) -> None:
        self._step(data)["tools"][data["id"]] |= {"status": "completed", "metadata": data.get("metadata", {})}

    def on_session_tool_failed(self, data: Json) -> None:
        self._step(data)["tools"][data["id"]] |= {"status": "error", "error": data["error"]}

    def on_session_step_ended(self, data: Json) -> None:
        self._step(data)["finish"] = data["finish"]

    def on_session_step_failed(self, data: Json) -> None:
        self._step(data)["finish"] = "error"

    def on_permission_asked(self, data: Json) -> None:
        self.permissions[data["id"]] = data

    def on_permission_replied(self, data: Json) -> None:
        self.permissions.pop(data["requestID"], None)

    def on_form_created(self, data: Json) -> None:
        self.forms[data["form"]["id"]] = data["form"]

    def on_form_replied(self, data: Json) -> None:
        self.forms.pop(data["id"], None)

    def on_form_cancelled(self, data: Json) -> None:
        self.forms.pop(data["id"], None)

    def assistant_texts(self) -> list[str]:
        """The assistant's texts."""
        return [text for one in self.messages.values() if one["type"] == "assistant" for text in one["texts"]]

    def tools(self) -> list[Json]:
        """All calls."""
        return [tool for one in self.messages.values() if one["type"] == "assistant" for tool in one["tools"].values()]


class Client2:
    """The client: started, with its stream open."""

    def __init__(self, api: Api) -> None:
        self.api = Client2Api(api.url, api.directory)  # type: ignore[arg-type] - a path or its text
        self.info = self.api.ask("GET", "/api/info")
        self.api.here("fs/list")
        self._opened: dict[str, int] = {}
        self.at_start: dict[str, Any] = {}
        self._connect()

    def _connect(self) -> None:
        """Its stream, and what it asks at each `server.connected`."""
        self.stream = Client2Stream(self.api, "/api/event")
        first = self.stream.events[0][1]
        assert first["type"] == "server.connected" and "created" not in first, first
        self.api.ask("GET", "/api/session/active")
        self.location = self.api.here("location")
        self.api.ask("GET", f"/api/session?limit=50&order=desc&project={self.location['project']['id']}")
        self.at_start = {name: self.api.here(name)["data"] for name in AT_START}

    def reconnect(self) -> dict[str, list[Json]]:
        """After its stream was lost: the same calls but the first one, and the messages of each session that it has opened."""
        self.stream.close()
        self._connect()
        return {one: self.api.ask("GET", f"/api/session/{one}{READ['message']}")["data"] for one in self._opened}

    def begin(self, text: str) -> str:
        """The first prompt: a session, and what the client reads of it."""
        model = self.at_start["model"][0]
        ref = {"providerID": model["providerID"], "id": model["id"]}
        body = {"agent": "build", "model": ref, "location": {"directory": self.api.directory}}
        session = self.api.ask("POST", "/api/session", body)["data"]["id"]
        self._opened[session] = 0
        self.say(session, text)
        self.open(session)
        return session

    def open(self, session: str) -> Json:
        """What it reads of a session that a person opens."""
        found = {name: self.api.ask("GET", f"/api/session/{session}{path}")["data"] for name, path in READ.items()}
        self._opened.setdefault(session, self.stream.mark())
        return found

    def say(self, session: str, text: str) -> Json:
        """A prompt; gives the admitted input."""
        return self.api.ask("POST", f"/api/session/{session}/prompt", {"text": text, "files": [], "agents": []})["data"]

    def story(self, session: str) -> Story:
        """What it shows now."""
        story = Story()
        for _, event in list(self.stream.events):
            data = event["data"]
            if (data.get("sessionID") or data.get("form", {}).get("sessionID")) == session:
                story.feed(event["type"], data)
        return story

    def wait(self, session: str, want: Any, what: str) -> Story:
        """The story, once it is as wanted."""

        def look() -> Story | None:
            story = self.story(session)
            return story if want(story) else None

        return wait_for(look, IDLE_S, lambda: f"{what} not seen: {self.story(session)}")

    def idle(self, session: str, turns: int = 1) -> Story:
        """The story when that many executions are over; the server agrees that nothing runs."""
        story = self.wait(session, lambda one: len(one.ends) >= turns, f"the end of turn {turns}")
        assert len(story.ends) == story.turns == turns, story
        assert session not in self.api.ask("GET", "/api/session/active")["data"]
        return story

    def close(self) -> None:
        self.stream.close()


READ = {
    "info": "",
    "inbox": "/inbox",
    "message": "/message?limit=200&order=desc",
    "permission": "/permission",
    "form": "/form",
}
