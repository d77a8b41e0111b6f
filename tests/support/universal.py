"""A client of `/v1` in this process that holds every answer and event against our document and the peers'.

    async with face(tmp_path) as v1:
        await v1.call("create_session", session_id="a", json={"agent": "mock"})
        async with v1.events("a") as stream: ...

Our document is `shim/faces/v1/openapi.json`, theirs `compat_fixtures/universal/openapi.json` (3.0: `nullable` is read as a type).
"""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
from aiohttp import ClientResponse

from shim.store.base import Store
from tests.support.live import Live, live
from tests.support.oracle import schemas_below

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 20.0
"""The longest that one answer or event may take in a test."""


def _modern(schema: Any) -> Any:
    """A schema of OpenAPI 3.0 as JSON Schema."""
    if isinstance(schema, list):
        return [_modern(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _modern(value) for key, value in schema.items() if key not in ("nullable", "discriminator", "format")}
    return {"anyOf": [out, {"type": "null"}]} if schema.get("nullable") else out


@dataclass(frozen=True)
class Document:
    """One OpenAPI document: operations by id, and a judge for its schemas."""

    raw: Mapping[str, Any]
    schemas: Mapping[str, Any]
    judges: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, *, old: bool = False) -> Document:
        raw = json.loads(path.read_text())
        schemas = raw["components"]["schemas"]
        return cls(raw, _modern(schemas) if old else schemas)

    def operations(self) -> dict[str, tuple[str, str, Mapping[str, Any]]]:
        return {
            operation["operationId"]: (method.upper(), path, operation)
            for path, item in self.raw["paths"].items()
            for method, operation in item.items()
        }

    def faults(self, schema: Mapping[str, Any], value: Any) -> list[str]:
        key = json.dumps(schema)
        judge = self.judges.get(key)
        if judge is None:
            whole = {**schema, "components": {"schemas": schemas_below(schema, self.schemas)}}
            judge = self.judges[key] = jsonschema_rs.Draft202012Validator(whole)
        return ["/".join(map(str, error.instance_path)) + ": " + error.message[:300] for error in judge.iter_errors(value)]

    def check_event(self, event: Any) -> None:
        faults = self.faults({"$ref": "#/components/schemas/UniversalEvent"}, event)
        assert not faults, f"{faults}\n{event}"

    def check_answer(self, operation: str, status: int, kind: str, body: Any) -> None:
        answers = self.operations()[operation][2]["responses"]
        answer = answers.get(str(status), answers.get("default"))
        assert answer is not None, f"{operation} {status} is not declared"
        content = answer.get("content", {})
        if not content:
            assert body in (None, b""), f"{operation} {status} has a body: {body!r}"
            return
        assert kind in content, f"{operation} {status} is {kind}, not {list(content)}"
        if kind.endswith("json"):
            faults = self.faults(_modern(content[kind]["schema"]), body)
            assert not faults, f"{operation} {status}: {faults}\n{json.dumps(body)[:2000]}"


PAYLOADS = {
    "session.started": "SessionStartedData",
    "session.ended": "SessionEndedData",
    "turn.started": "TurnEventData",
    "turn.ended": "TurnEventData",
    "item.started": "ItemEventData",
    "item.delta": "ItemDeltaData",
    "item.completed": "ItemEventData",
    "error": "ErrorData",
    "permission.requested": "PermissionEventData",
    "permission.resolved": "PermissionEventData",
    "question.requested": "QuestionEventData",
    "question.resolved": "QuestionEventData",
    "agent.unparsed": "AgentUnparsedData",
}
"""Event type -> the peers' schema of its payload."""


@cache
def our_document() -> Document:
    """What `GET /v1/openapi.json` answers."""
    return Document.of(ROOT / "shim" / "faces" / "v1" / "openapi.json")


@cache
def peers_document() -> Document:
    """The peers' document."""
    found = Document.of(ROOT / "compat_fixtures" / "universal" / "openapi.json", old=True)
    # See divergences.toml, kind "schema": the payload is judged by the event's type instead.
    return Document(found.raw, {**found.schemas, "UniversalEventData": {"type": "object"}})


@cache
def divergences() -> tuple[Mapping[str, Any], ...]:
    """Differences on purpose."""
    return tuple(tomllib.loads((ROOT / "compat_fixtures" / "universal" / "divergences.toml").read_text())["divergence"])


def diverges(kind: str, operation: str, **more: Any) -> bool:
    """Whether a difference is one on purpose."""
    return any(
        row["kind"] == kind and fnmatchcase(operation, row["operation"]) and all(row[key] == value for key, value in more.items())
        for row in divergences()
    )


def check_event(event: Any) -> None:
    """One event, as sent. Theirs has no question with several parts and the like, but lets more fields pass."""
    our_document().check_event(event)
    peers_document().check_event(event)
    faults = peers_document().faults({"$ref": f"#/components/schemas/{PAYLOADS[event['type']]}"}, event["data"])
    assert not faults, f"{faults}\n{event}"


class Stream:
    """An open stream of `/v1`. Every event that comes out was checked; `id:` is its sequence."""

    def __init__(self, response: ClientResponse) -> None:
        self.response = response
        self.comments = 0

    async def next(self) -> dict[str, Any]:
        """The next event. EOFError at a clean end."""
        id_, data = "", ""
        async with asyncio.timeout(WAIT_S):
            while True:
                raw = await self.response.content.readline()
                if not raw:
                    raise EOFError
                line = raw.decode().rstrip("\n")
                if line.startswith("id: "):
                    id_ = line[4:]
                elif line.startswith("data: "):
                    data = line[6:]
                elif line.startswith(":"):
                    self.comments += 1
                elif not line and data:
                    event = json.loads(data)
                    check_event(event)
                    assert id_ == str(event["sequence"])
                    return event

    async def until(self, type_: str) -> list[dict[str, Any]]:
        """All events up to and with the first of a type."""
        seen = [await self.next()]
        while seen[-1]["type"] != type_:
            seen.append(await self.next())
        return seen

    async def rest(self) -> list[dict[str, Any]]:
        """All events to the end of the stream."""
        seen: list[dict[str, Any]] = []
        try:
            while True:
                seen.append(await self.next())
        except EOFError:
            return seen


@dataclass
class Face:
    """A client of the whole server, the other face included."""

    live: Live

    def _url(self, operation: str, names: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        method, path, _ = our_document().operations()[operation]
        for name in re.findall(r"{(\w+)}", path):
            path = path.replace(f"{{{name}}}", str(names.pop(name)))
        return method, path, names

    async def call(self, operation: str, *, status: int | None = None, **options: Any) -> Any:
        """One operation; its checked answer. Names of path and query are given by name; `json`, `data`, `headers` go on."""
        sent = {key: options.pop(key) for key in ("json", "data", "headers") if key in options}
        method, path, query = self._url(operation, options)
        params = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in query.items()}
        async with asyncio.timeout(WAIT_S), self.live.api.raw.request(method, path, params=params, **sent) as response:
            raw = await response.read()
        wanted = (
            status
            if status is not None
            else next(int(s) for s in our_document().operations()[operation][2]["responses"] if s < "3")
        )
        assert response.status == wanted, f"{operation}: {response.status}, not {wanted}: {raw[:2000]!r}"
        kind = response.content_type
        body = json.loads(raw) if kind.endswith("json") else raw
        our_document().check_answer(operation, response.status, kind, body)
        peer = peers_document().operations().get(operation)
        if peer is not None and (
            str(response.status) in peer[2]["responses"] or not diverges("status", operation, status=status)
        ):
            if kind == "application/problem+json":
                kind = "application/json"  # the peers' document says so of its problems
            peers_document().check_answer(operation, response.status, kind, body)
        return body

    @asynccontextmanager
    async def stream(self, operation: str, **options: Any) -> AsyncIterator[Stream]:
        """An operation that answers with events."""
        sent = {key: options.pop(key) for key in ("json", "headers") if key in options}
        method, path, query = self._url(operation, options)
        params = {key: str(value).lower() for key, value in query.items()}
        async with asyncio.timeout(WAIT_S):
            response = await self.live.api.raw.request(method, path, params=params, **sent)
        try:
            assert response.status == 200, await response.text()
            assert response.content_type == "text/event-stream"
            yield Stream(response)
        finally:
            response.close()

    async def session(self, name: str = "s", **more: Any) -> str:
        """A session with the mock."""
        await self.call("create_session", session_id=name, json={"agent": "mock", **more})
        return name

    async def say(self, name: str, message: str, **query: Any) -> list[dict[str, Any]]:
        """A message; all events of its turn."""
        async with self.stream("post_message_stream", session_id=name, json={"message": message}, **query) as stream:
            return await stream.rest()


@asynccontextmanager
async def face(tmp_path: Path, *, store: Store | None = None, **settings: Any) -> AsyncIterator[Face]:
    """The whole server, with the mock."""
    async with live(tmp_path, store=store, **settings) as made:
        yield Face(made)
