"""A client of OpenCode 2 that does what the TUI of 17 July does, call by call, in `v2_0` or `v2_july`.

    async with tui(server, "v2_july") as client:          # the calls at the start
        turn = await client.turn("echo hello")      # the first prompt makes the session, later ones are a POST alone
        turn.shown()                                # what is on the screen, by the events alone

It believes its events without a second look, as the TUI does: an event twice, a delta before its start, or an item of an
unknown step stand on the screen at once, and in `wrong`. Source: docs/wire2.md, "What a client of the TUI's kind needs".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.support.api import Answer, EventStream
from tests.support.live import TURN_S, Live

Wire = dict[str, Any]
Act = Callable[["Tui", Wire], Awaitable[None]]

FIRST_FRAME_S = 2.0
"""The TUI waits so long for `server.connected`, and comes back a second later."""
NAMES: dict[str, dict[str, str]] = {
    "v2_0": {},
    "v2_july": {
        "session.inbox.enqueued": "session.input.admitted",
        "session.inbox.delivered": "session.input.promoted",
        "permission.asked": "permission.v2.asked",
        "permission.replied": "permission.v2.replied",
        "inboxID": "inputID",
        "item": "input",
        "payload": "data",
        "id": "callID",
        "inbox": "pending",
        "decision": "reply",
    },
}
"""Names of events, keys and paths in `v2_0` -> those of the dialect."""
ENDS = ("session.execution.succeeded", "session.execution.failed", "session.execution.interrupted")
LATE = {"session.usage.updated", "session.renamed"}
"""May come after the end."""
AT_START = ("agent", "command", "integration", "mcp", "mcp/resource", "provider", "reference", "shell", "skill", "model")


@dataclass
class Tui:
    """One client. `screen`: message id -> {role, text, tools: {id: status}, open}."""

    live: Live
    dialect: str
    events: EventStream
    session: str = ""
    running: bool = False
    screen: dict[str, Wire] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    types: list[str] = field(default_factory=list)
    starts: int = 0
    ends: list[str] = field(default_factory=list)
    seqs: dict[str, int] = field(default_factory=dict)

    def name(self, r: str) -> str:
        """The dialect's name for a name of `v2_0`."""
        return NAMES[self.dialect].get(r, r)

    # --- calls ---------------------------------------------------------------------------------------------

    async def call(self, method: str, path: str, body: Any = None, *, status: int = 200, **query: str) -> Answer:
        """One request; its answer has exactly this status."""
        options: Wire = {} if body is None else {"json": body}
        params = {**query, "dialect": self.dialect}
        answer = await self.live.api.request(method, path, status=status, params=params, **options)
        if status == 204:
            assert answer.body is None
        return answer

    async def at_start(self) -> None:
        """What it asks before anything can be typed."""
        place = {"location[directory]": str(self.live.directory)}
        if self.dialect == "v2_july":
            await self.call("GET", "/api/health")
        else:
            await self.call("GET", "/api/info")
        await self.call("GET", "/api/fs/list", **place)
        assert (await self.call("GET", "/api/session/active")).body == {"data": {}}
        location = (await self.call("GET", "/api/location", **place)).body
        await self.call("GET", "/api/session", limit="50", order="desc", project=location["project"]["id"])
        for what in (*AT_START, "form/request" if self.dialect == "v2_july" else "form"):
            answer = (await self.call("GET", f"/api/{what}", **place)).body
            assert answer["location"]["directory"] == str(self.live.directory)

    async def new(self) -> str:
        """The session of the first prompt."""
        model = {"providerID": "mock", "id": "mock", "variant": "default"}
        body = {"agent": "build", "model": model, "location": {"directory": str(self.live.directory)}}
        self.session = (await self.call("POST", "/api/session", body)).body["data"]["id"]
        return self.session

    async def prompt(self, text: str, **more: Any) -> Wire:
        """What it POSTs; the admitted prompt."""
        body = {"text": text, "files": [], "agents": [], **more}
        return (await self.call("POST", f"/api/session/{self.session}/prompt", body)).body["data"]

    async def open(self) -> None:
        """What it reads when a session is opened."""
        base = f"/api/session/{self.session}"
        await self.call("GET", base)
        for entry in (await self.call("GET", f"{base}/{self.name('inbox')}")).body["data"]:
            self.waiting[entry["id"]] = entry[self.name("payload")].get("text", "")
        page = (await self.call("GET", f"{base}/message", limit="200", order="desc")).body["data"]
        for message in reversed(page):
            self._read(message)
        await self.call("GET", f"{base}/permission")
        await self.call("GET", f"{base}/form")

    async def reply(self, request: Wire, decision: str, **more: str) -> None:
        """A person's answer to a permission."""
        body = {self.name("decision"): decision, **more}
        path = f"/api/session/{request['sessionID']}/permission/{request['id']}/reply"
        await self.call("POST", path, body, status=204)

    async def interrupt(self) -> None:
        """Esc, twice."""
        await self.call("POST", f"/api/session/{self.session}/interrupt", status=204 if self.dialect == "v2_july" else 200)

    # --- events --------------------------------------------------------------------------------------------

    async def take_next(self, act: Act | None = None) -> Wire:
        """Take in the next event."""
        event = await self.events.next()
        self.take(event)
        if act is not None:
            await act(self, event)
        return event

    async def turn(self, text: str, act: Act | None = None, **more: Any) -> str:
        """One prompt, to the end of its execution; how that ended. Nothing of it may come later."""
        first = not self.session
        if first:
            await self.new()
        await self.prompt(text, **more)
        if first:
            await self.open()
        return await self.end(act)

    async def end(self, act: Act | None = None) -> str:
        """Read to the end of the execution, and what was published in the same moment."""
        count = len(self.ends)
        async with asyncio.timeout(TURN_S):
            while len(self.ends) == count:
                await self.take_next(act)
            await self.call("PATCH", f"/api/session/{self.session}", {"title": f"over {count}"}, status=204)
            while (await self.take_next(act))["data"].get("title") != f"over {count}":
                pass
        return self.ends[-1].rpartition(".")[2]

    def take(self, event: Wire) -> None:
        """As the TUI does: no second look."""
        type_, data = event["type"], event["data"]
        if event["id"] in self.seen:
            self.wrong.append(f"{type_} twice")
        self.seen.add(event["id"])
        if data.get("sessionID") != self.session:
            return
        self.types.append(type_)
        if (durable := event.get("durable")) is not None:
            assert durable["aggregateID"] == self.session
            if durable["seq"] <= self.seqs.get(self.session, -1):
                self.wrong.append(f"{type_} has seq {durable['seq']} again")
            self.seqs[self.session] = durable["seq"]
        if self.ends and not self.running and type_.startswith(("session.step", "session.text", "session.tool", "permission")):
            self.wrong.append(f"{type_} after the end")
        handler = self._HANDLERS.get(type_.replace("session.input.admitted", "session.inbox.enqueued"))
        handler = handler or self._HANDLERS.get(type_.replace("session.input.promoted", "session.inbox.delivered"))
        if handler is not None:
            handler(self, data)
        if type_ in ENDS:
            if not self.running:
                self.wrong.append(f"{type_} while idle")
            self.running = False
            self.ends.append(type_)

    def _start_turn(self, data: Wire) -> None:
        if self.running:
            self.wrong.append("started twice")
        self.running = True
        self.starts += 1

    def _enqueue_prompt(self, data: Wire) -> None:
        payload = data[self.name("item")].get(self.name("payload"), {})
        self.waiting[data[self.name("inboxID")]] = payload.get("text", "")

    def _deliver_prompt(self, data: Wire) -> None:
        id_ = data[self.name("inboxID")]
        if id_ not in self.waiting:
            self.wrong.append(f"{id_} delivered, but never enqueued")
        self.screen[id_] = {"role": "user", "text": self.waiting.pop(id_, "")}

    def _step(self, data: Wire) -> Wire | None:
        found = self.screen.get(data["assistantMessageID"])
        if found is None:
            self.wrong.append(f"of a step that has not started: {data}")
        return found

    def _step_started(self, data: Wire) -> None:
        new = {"role": "assistant", "texts": [], "tools": {}, "over": False}
        self.screen[data["assistantMessageID"]] = {**self.screen.get(data["assistantMessageID"], new), "over": False}

    def _step_over(self, data: Wire) -> None:
        if (step := self._step(data)) is not None:
            step["over"] = True
            if any(not done for _, done in step["texts"]):
                self.wrong.append("a step is over, and a text of it is not")

    def _text_started(self, data: Wire) -> None:
        if (step := self._step(data)) is not None:
            if data["ordinal"] != len(step["texts"]):
                self.wrong.append(f"not the next text: {data}")
            step["texts"].append(["", False])

    def _text_delta(self, data: Wire) -> None:
        if (step := self._step(data)) is not None:
            if data["ordinal"] >= len(step["texts"]):
                self.wrong.append(f"a delta of a text that has not started: {data}")
            else:
                step["texts"][data["ordinal"]][0] += data["delta"]

    def _text_ended(self, data: Wire) -> None:
        if (step := self._step(data)) is not None:
            said = step["texts"][data["ordinal"]][0]
            if said and said != data["text"]:
                self.wrong.append(f"the deltas said {said!r}, the end says {data['text']!r}")
            step["texts"][data["ordinal"]] = [data["text"], True]

    def _read(self, message: Wire) -> None:
        """A message of GET stands in the place of what was shown."""
        if message["type"] == "user":
            self.screen[message["id"]] = {"role": "user", "text": message["text"]}
            self.waiting.pop(message["id"], None)
        elif message["type"] == "assistant":
            self.screen[message["id"]] = as_shown(message)

    def texts(self) -> list[str]:
        """What the agent has said."""
        return [text for item in self.screen.values() if item["role"] == "assistant" for text, _ in item["texts"]]

    def tools(self) -> list[tuple[str, str]]:
        """(name, status) of all calls."""
        return [tuple(tool) for item in self.screen.values() if item["role"] == "assistant" for tool in item["tools"].values()]

    async def assert_matches_server(self) -> None:
        """What is on the screen is what GET says; nothing was wrong; and nothing runs."""
        assert self.wrong == [], self.wrong[:3]
        assert self.starts == len(self.ends)
        page = (await self.call("GET", f"/api/session/{self.session}/message", limit="200", order="asc")).body["data"]
        read: Wire = {}
        for message in page:
            if message["type"] == "user":
                read[message["id"]] = {"role": "user", "text": message["text"]}
            elif message["type"] == "assistant":
                read[message["id"]] = as_shown(message)
        assert self.screen == read
        assert self.session not in (await self.call("GET", "/api/session/active")).body["data"]

    _HANDLERS: ClassVar[dict[str, Callable[[Tui, Wire], None]]] = {}


def as_shown(message: Wire) -> Wire:
    """An assistant message of GET as it stands on the screen."""
    over = "completed" in message["time"]
    texts = [[part["text"], over or part["text"] != ""] for part in message["content"] if part["type"] == "text"]
    tools = {part["id"]: [part["name"], part["state"]["status"]] for part in message["content"] if part["type"] == "tool"}
    return {"role": "assistant", "texts": texts, "tools": tools, "over": over}


def _tool_handler(status: str) -> Callable[[Tui, Wire], None]:
    def handler(tui: Tui, data: Wire) -> None:
        step = tui._step(data)
        id_ = data[tui.name("id")]
        if step is None:
            return
        if status == "streaming":
            if id_ in step["tools"]:
                tui.wrong.append(f"a call begins twice: {data}")
            step["tools"][id_] = [data["name"], status]
        elif id_ not in step["tools"]:
            tui.wrong.append(f"of a call that has not begun: {data}")
        else:
            step["tools"][id_][1] = status

    return handler


Tui._HANDLERS = {
    "session.execution.started": Tui._start_turn,
    "session.inbox.enqueued": Tui._enqueue_prompt,
    "session.inbox.delivered": Tui._deliver_prompt,
    "session.step.started": Tui._step_started,
    "session.step.ended": Tui._step_over,
    "session.step.failed": Tui._step_over,
    "session.text.started": Tui._text_started,
    "session.text.delta": Tui._text_delta,
    "session.text.ended": Tui._text_ended,
    "session.tool.input.started": _tool_handler("streaming"),
    "session.tool.called": _tool_handler("running"),
    "session.tool.success": _tool_handler("completed"),
    "session.tool.failed": _tool_handler("error"),
}


@asynccontextmanager
async def tui(live: Live, dialect: str, **query: str) -> AsyncIterator[Tui]:
    """Connected, and with its first answers."""
    async with live.api.stream("/api/event", params={"dialect": dialect, **query}) as events:
        first = await events.next(FIRST_FRAME_S)
        assert first["type"] == "server.connected"
        assert set(first) == {"id", "type", "data"}
        client = Tui(live, dialect, events)
        await client.at_start()
        yield client
