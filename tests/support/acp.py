"""A client of `/acp` in this process that holds every message, of both sides, against the protocol's own JSON Schema.

    async with editor(server) as client:
        session = await client.open()
        answer = await client.prompt(session, "echo hi")

Schema: compat_fixtures/acp/schema_v1.json.xz, as @agentclientprotocol/sdk 2.4.0 has it.
"""

from __future__ import annotations

import asyncio
import json
import lzma
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from tests.support.live import Live

SCHEMA_FILE = Path(__file__).resolve().parents[2] / "compat_fixtures" / "acp" / "schema_v1.json.xz"
WAIT_S = 20.0
"""The longest that one message may take in a test."""
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
AGENT, CLIENT = "agent", "client"


@cache
def _schema() -> dict[str, Any]:
    return json.loads(lzma.decompress(SCHEMA_FILE.read_bytes()))


@cache
def _judge(name: str) -> Any:
    return jsonschema_rs.Draft202012Validator({**_schema(), "anyOf": [{"$ref": f"#/$defs/{name}"}]})


@cache
def _types() -> dict[tuple[str, str, str], str]:
    """(who is asked, method, what: Request, Response, Notification) -> name of its schema."""
    rows = [(name, row) for name, row in _schema()["$defs"].items() if "x-method" in row]
    kinds = ("Request", "Response", "Notification")
    return {
        (side, row["x-method"], kind): name
        for name, row in rows
        for kind in kinds
        for side in ((AGENT, CLIENT) if row["x-side"] == "protocol" else (row["x-side"],))
        if name.endswith(kind)
    }


def check(name: str, value: Any) -> None:
    """Raise AssertionError if a value is not of this schema."""
    faults = [f"{'/'.join(map(str, error.instance_path))}: {error.message[:300]}" for error in _judge(name).iter_errors(value)]
    assert not faults, f"{name}: {faults}\n{json.dumps(value)[:2000]}"


@dataclass
class Judge:
    """Checks each message of a connection. It remembers the requests, to know what an answer is to."""

    asked: dict[tuple[str, Any], str] = field(default_factory=dict[tuple[str, Any], str])

    def see(self, message: dict[str, Any], *, to: str) -> None:
        """Check a message to the agent or to the client."""
        assert message["jsonrpc"] == "2.0", message
        other = CLIENT if to == AGENT else AGENT
        if "method" in message:
            kind = "Request" if "id" in message else "Notification"
            if kind == "Request":
                assert (to, message["id"]) not in self.asked, f"an id is used twice: {message}"
                self.asked[to, message["id"]] = message["method"]
            check(_types()[to, message["method"], kind], message["params"])
        elif "error" in message:
            check("Error", message["error"])
            self.asked.pop((other, message["id"]), None)
        else:
            check(_types()[other, self.asked.pop((other, message["id"])), "Response"], message["result"])


Reply = Callable[[dict[str, Any]], Any]
"""Answers a request of the server: its result; None leaves it open."""


def allow(message: dict[str, Any]) -> Any:
    """Allow once what is asked."""
    return {"outcome": {"outcome": "selected", "optionId": message["params"]["options"][0]["optionId"]}}


def leave(message: dict[str, Any]) -> Any:
    """Leave a request open."""


@dataclass
class Editor:
    """A connection. `seen`: all messages of the server; `reply` answers its requests."""

    socket: ClientWebSocketResponse
    directory: Path
    reply: Reply = leave
    seen: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    judge: Judge = field(default_factory=Judge)
    last_id: int = 0

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message that the schema allows."""
        message = {"jsonrpc": "2.0", **message}
        self.judge.see(message, to=AGENT)
        await self.socket.send_str(json.dumps(message))

    async def notify(self, method: str, **params: Any) -> None:
        await self.send({"method": method, "params": params})

    async def begin(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        self.last_id += 1
        await self.send({"id": self.last_id, "method": method, "params": params})
        return self.last_id

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request, and wait for its result."""
        answer = await self.answer(await self.begin(method, **params))
        assert "result" in answer, answer
        return answer["result"]

    async def refusal(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request that is refused; the error."""
        answer = await self.answer(await self.begin(method, **params))
        assert "error" in answer, answer
        return answer["error"]

    async def next(self) -> dict[str, Any]:
        """The next message. Requests are answered by `reply`."""
        frame = await self.socket.receive(WAIT_S)
        assert frame.type is WSMsgType.TEXT, frame
        message = json.loads(frame.data)
        self.judge.see(message, to=CLIENT)
        self.seen.append(message)
        if "method" in message and "id" in message and (result := self.reply(message)) is not None:
            await self.answer_with(message["id"], result)
        return message

    async def answer_with(self, id_: Any, result: Any) -> None:
        """Answer a request of the server."""
        await self.send({"id": id_, "result": result})

    async def answer(self, id_: int) -> dict[str, Any]:
        """Wait for the answer to a request."""
        return await self.until(lambda message: message.get("id") == id_ and "method" not in message)

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a message."""
        async with asyncio.timeout(WAIT_S):
            while not wanted(message := await self.next()):
                pass
        return message

    async def request(self, method: str) -> dict[str, Any]:
        """Wait for a request of the server."""
        return await self.until(lambda message: message.get("method") == method)

    async def update(self, kind: str) -> dict[str, Any]:
        """Wait for the next update of a kind."""
        message = await self.until(lambda message: message.get("params", {}).get("update", {}).get("sessionUpdate") == kind)
        return message["params"]["update"]

    async def open(self, **more: Any) -> str:
        """A new session; its id."""
        return str((await self.call("session/new", cwd=str(self.directory), mcpServers=[], **more))["sessionId"])

    async def load(self, session: str, method: str = "session/load") -> dict[str, Any]:
        return await self.call(method, sessionId=session, cwd=str(self.directory), mcpServers=[])

    async def prompt(self, session: str, text: str, *more: dict[str, Any]) -> str:
        """Prompt, and wait for the end of the turn; its reason."""
        return str((await self.answer(await self.begin_prompt(session, text, *more)))["result"]["stopReason"])

    async def begin_prompt(self, session: str, text: str, *more: dict[str, Any]) -> int:
        return await self.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}, *more])

    def updates(self, kind: str = "", session: str = "") -> list[dict[str, Any]]:
        """The updates of a kind so far."""
        params = [message["params"] for message in self.seen if message.get("method") == "session/update"]
        rows = [row["update"] for row in params if session in ("", row["sessionId"])]
        return [row for row in rows if kind in ("", row["sessionUpdate"])]

    def words(self, kind: str = "agent_message_chunk", session: str = "") -> str:
        """The words of all chunks of a kind so far."""
        return "".join(row["content"].get("text", "") for row in self.updates(kind, session))


@asynccontextmanager
async def editor(
    server: Live, *, reply: Reply = leave, forms: bool = True, notices: bool = False, **headers: str
) -> AsyncIterator[Editor]:
    """Connect, and initialize."""
    able: dict[str, Any] = (FORMS if forms else {}) | ({"session": {"notices": {}}} if notices else {})
    async with server.api.raw.ws_connect("/acp", headers=headers) as socket:
        client = Editor(socket, server.directory, reply)
        await client.call("initialize", protocolVersion=1, clientCapabilities=able)
        yield client


@asynccontextmanager
async def editor_of(url: str, directory: Path, *, reply: Reply = leave) -> AsyncIterator[Editor]:
    """The same on a server at a URL."""
    async with ClientSession() as session, session.ws_connect(f"{url}/acp") as socket:
        client = Editor(socket, directory, reply)
        await client.call("initialize", protocolVersion=1, clientCapabilities=FORMS)
        yield client
