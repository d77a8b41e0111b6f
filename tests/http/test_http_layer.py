"""What all routes have in common: bodies, errors, methods, CORS. The handlers are three of this file."""

from __future__ import annotations

import gc
import logging
import sys
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import pytest
import structlog
from aiohttp import web
from pydantic import BaseModel, Field

from shim.faces.opencode1._generated.operations import OPERATIONS
from shim.faces.opencode1.endpoint import extra, operation
from shim.faces.opencode1.unsupported_operations import UNSUPPORTED
from shim.http import wire_json
from shim.http.operation import Ctx, collect
from shim.http.operations import Operation
from shim.lib.errors import AgentNotFound, PermissionNotFound
from shim.routes import application
from tests.fakes.agents_directory import FakeAgents, claude
from tests.http.conftest import Place, services_for
from tests.support import oracle
from tests.support.api import ApiClient

ERROR_KEYS = {"name", "data"}


class Part(BaseModel):
    """A part of a body."""

    type: Literal["a", "b"]
    id: Annotated[str, Field(pattern="^prt")] | None = None


class Body(BaseModel):
    """A body with everything."""

    title: str | None = None
    count: int = 0
    answers: list[list[str]] = []
    parts: list[Part] = []


class Query(BaseModel):
    """A query."""

    limit: Annotated[int, Field(ge=1, le=5)] = 2


class Path_(BaseModel):
    """A path."""

    name: str


@extra("test.echo", "POST", "/echo")
async def echo(ctx: Ctx, body: Body) -> object:
    return body


@extra("test.optional", "POST", "/optional")
async def optional(ctx: Ctx, body: Body | None) -> object:
    return {"body": body is not None, "directory": ctx.directory}


@extra("test.any", "POST", "/any")
async def echo_body(ctx: Ctx, body: Any) -> object:
    return {"got": body}


@extra("test.get", "GET", "/thing/{name}")
async def thing(ctx: Ctx, path: Path_, query: Query) -> object:
    return {"name": path.name, "limit": query.limit}


@extra("test.nothing", "DELETE", "/thing/{name}")
async def delete_thing(ctx: Ctx) -> object:
    return None


@extra("test.fail", "GET", "/fail/{name}")
async def fail(ctx: Ctx, path: Path_) -> object:
    raise {
        "bug": ZeroDivisionError("secret detail"),
        "agent": AgentNotFound("claude is not installed: npm i -g @anthropic-ai/claude-code"),
        "asked": PermissionNotFound("per_1"),
        "gone": ConnectionResetError(),
    }[path.name]


answered: list[weakref.ref[web.Request]] = []


@extra("test.note", "GET", "/note")
async def note(ctx: Ctx) -> object:
    answered.append(weakref.ref(ctx.request))
    return {}


@extra("test.half", "GET", "/half")
async def half(ctx: Ctx) -> object:
    response = web.StreamResponse()
    await response.prepare(ctx.request)
    await response.write(b"first ")
    raise ZeroDivisionError


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[ApiClient]:
    services, _ = services_for(tmp_path, tmp_path, FakeAgents(claude()), tmp_path / "data")
    async with ApiClient(application(services, [sys.modules[__name__]], body_limit_bytes=1000)) as made:
        yield made


async def post(client: ApiClient, path: str, data: bytes, content_type: str = "application/json") -> tuple[int, Any]:
    response = await client.raw.post(path, data=data, headers={"Content-Type": content_type})
    return response.status, await response.json()


async def test_an_answered_request_is_freed_without_the_garbage_collector(client: ApiClient) -> None:
    answered.clear()
    gc.disable()
    try:
        for _ in range(2):  # the connection holds its last request
            assert (await client.raw.get("/note")).status == 200
        assert answered[0]() is None
    finally:
        gc.enable()


# --- bodies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/x-www-form-urlencoded", "nonsense"])
async def test_any_content_type(client: ApiClient, content_type: str) -> None:
    assert await post(client, "/echo", b'{"title":"x"}', content_type) == (
        200,
        {"title": "x", "count": 0, "answers": [], "parts": []},
    )


@pytest.mark.parametrize(("data", "there"), [(b"", False), (b" \n", False), (b"{}", True)])
async def test_optional_body(client: ApiClient, data: bytes, there: bool) -> None:
    status, body = await post(client, "/optional", data)
    assert (status, body["body"]) == (200, there)


async def test_a_body_is_parsed_once_and_written_never(client: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    written: list[object] = []
    loads, dumps = wire_json.loads, wire_json.dumps

    def counted_loads(raw: bytes) -> Any:
        parsed.append(raw)
        return loads(raw)

    def counted_dumps(value: object) -> bytes:
        written.append(value)
        return dumps(value)

    monkeypatch.setattr(wire_json, "loads", counted_loads)
    monkeypatch.setattr(wire_json, "dumps", counted_dumps)
    sent = b'{"title":"x","parts":[{"type":"a"}]}'
    assert (await post(client, "/echo", sent))[0] == 200
    assert parsed == [sent]
    assert [type(value) for value in written] == [Body]  # the answer


async def test_null_is_no_body_that_was_left_out(client: ApiClient) -> None:
    refused = {"name": "BadRequest", "data": {"message": "Expected object, got null", "kind": "Payload"}}
    assert await post(client, "/optional", b"null") == (400, refused)


async def test_empty_body_is_an_empty_object(client: ApiClient) -> None:
    assert (await post(client, "/echo", b""))[0] == 200


async def test_unknown_keys_are_ignored(client: ApiClient) -> None:
    assert (await post(client, "/echo", b'{"nosuch":1}'))[0] == 200


@pytest.mark.parametrize(
    "data", [b"{", b"{]", b"nope", b'{"title":NaN}', b'{"title":"\x00"}', b"[" * 500, b'{"a":1}{"b":2}', b'"']
)
async def test_malformed_json(client: ApiClient, data: bytes) -> None:
    status, body = await post(client, "/echo", data)
    assert (status, body["name"], body["data"]["kind"]) == (400, "BadRequest", "Payload")
    assert body["data"]["message"].startswith("The body is not JSON: ")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"answers":"Red"}', 'Expected array, got "Red"\n  at ["answers"]'),
        (b'{"answers":[1]}', 'Expected array, got 1\n  at ["answers"][0]'),
        (b'{"title":5}', 'Expected string, got 5\n  at ["title"]'),
        (b'{"count":"5"}', 'Expected an integer, got "5"\n  at ["count"]'),
        (b'{"parts":[{"type":"a"},{"type":"c"}]}', 'Expected "a" | "b", got "c"\n  at ["parts"][1]["type"]'),
        (b'{"parts":[{}]}', 'Missing key\n  at ["parts"][0]["type"]'),
        (b'{"parts":[{"type":"a","id":"xyz"}]}', 'Expected a string starting with "prt", got "xyz"\n  at ["parts"][0]["id"]'),
        (b'{"parts":[5]}', 'Expected object, got 5\n  at ["parts"][0]'),
        (b"[]", "Expected object, got []"),
        (b"null", "Expected object, got null"),
    ],
)
async def test_wrong_types(client: ApiClient, data: bytes, message: str) -> None:
    assert await post(client, "/echo", data) == (400, {"name": "BadRequest", "data": {"message": message, "kind": "Payload"}})


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"title":"\\ud83d!"}', "\ufffd!"),  # half of an emoji, as JavaScript sends it
        (b'{"title":"\xff"}', "\ufffd"),
        (b'\xef\xbb\xbf{"title":"bom"}', "bom"),
        ('{"title":"ä😀"}'.encode(), "ä😀"),
    ],
)
async def test_broken_unicode_is_replaced(client: ApiClient, data: bytes, text: str) -> None:
    status, body = await post(client, "/echo", data)
    assert (status, body["title"]) == (200, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": "x\ud83dy", "b": ["\udc00"]}, '{"a": "x\ufffdy", "b": ["\ufffd"]}'),
        ({"n": 2**70}, '{"n": 1180591620717411303424}'),
        ({"body": Body(title="t", count=1)}, '{"body":{"title":"t","count":1,"answers":[],"parts":[]}}'),
    ],
)
def test_answers_hold_what_json_cannot(value: object, text: str) -> None:
    """Lone surrogates from an agent, integers above 64 bits, models in the middle."""
    assert wire_json.dumps(value).decode() == text


@pytest.mark.parametrize(("level", "lines"), [(logging.DEBUG, 1), (logging.WARNING, 0)])
async def test_a_request_is_logged_at_debug(client: ApiClient, caplog: pytest.LogCaptureFixture, level: int, lines: int) -> None:
    caplog.set_level(level, "shim.http.middleware")
    with structlog.testing.capture_logs() as logged:
        await post(client, "/echo", b"{}")
    assert [entry["path"] for entry in logged if entry["event"] == "request.done"] == ["/echo"] * lines


async def test_too_large(client: ApiClient) -> None:
    status, body = await post(client, "/echo", b'{"title":"' + b"x" * 2000 + b'"}')
    assert (status, body["name"]) == (413, "PayloadTooLargeError")
    assert "1000 bytes" in body["data"]["message"]


# --- paths, queries, methods -------------------------------------------------------------------------------


async def test_path_and_query(client: ApiClient) -> None:
    response = await client.raw.get("/thing/a%2Fb", params={"limit": "3"})
    assert await response.json() == {"name": "a/b", "limit": 3}


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("abc", 'Expected an integer, got "abc"\n  at ["limit"]'),
        ("0", 'Expected a value greater than or equal to 1, got 0\n  at ["limit"]'),
        ("9", 'Expected a value less than or equal to 5, got 9\n  at ["limit"]'),
    ],
)
async def test_bad_query(client: ApiClient, limit: str, message: str) -> None:
    response = await client.raw.get("/thing/a", params={"limit": limit})
    assert (response.status, await response.json()) == (
        400,
        {"name": "BadRequest", "data": {"message": message, "kind": "Query"}},
    )


async def test_trailing_slash(client: ApiClient) -> None:
    assert (await client.raw.get("/thing/a/")).status == 200


async def test_no_content(client: ApiClient) -> None:
    response = await client.raw.delete("/thing/a")
    assert (response.status, await response.read()) == (204, b"")


async def test_head(client: ApiClient) -> None:
    response = await client.raw.head("/thing/a")
    assert (response.status, response.content_type, await response.read()) == (200, "application/json", b"")


async def test_unknown_path_names_it(client: ApiClient) -> None:
    answer = await client.request("POST", "/nosuch/thing", status=404)
    assert answer.body["name"] == "NotFoundError"
    assert "POST /nosuch/thing" in answer.body["data"]["message"]


async def test_wrong_method_names_the_right_ones(client: ApiClient) -> None:
    answer = await client.request("PUT", "/thing/a", status=405)
    assert answer.headers["Allow"] == "DELETE, GET, HEAD"
    assert "DELETE, GET, HEAD" in answer.body["data"]["message"]


@pytest.mark.parametrize("path", ["/", "/index.html", "/api/nosuch", "/%2e%2e/etc/passwd", "/<script>", "/a//x"])
async def test_never_html(client: ApiClient, path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
        response = await client.raw.request(method, path)
        assert (response.status, response.content_type) == (404, "application/json"), method


async def test_unknown_may_answer(tmp_path: Path) -> None:
    """The web UI's files, on our origin."""

    async def unknown(request: web.Request) -> web.StreamResponse | None:
        return web.Response(text="page", content_type="text/plain") if request.path == "/" else None

    services, _ = services_for(tmp_path, tmp_path, FakeAgents(claude()), tmp_path / "data")
    async with ApiClient(application(services, [], unknown=unknown)) as client:
        assert await (await client.raw.get("/")).text() == "page"
        await client.get("/other", status=404)


# --- errors ------------------------------------------------------------------------------------------------


async def test_a_bug_says_nothing_but_its_reference(client: ApiClient) -> None:
    with structlog.testing.capture_logs() as logs:
        response = await client.raw.get("/fail/bug")
        body = await response.json()
    assert (response.status, set(body), body["name"]) == (500, ERROR_KEYS, "UnknownError")
    assert body["data"]["message"] == "Unexpected server error. Check server logs for details."
    assert [(line["event"], line["ref"]) for line in logs if line["log_level"] == "error"] == [
        ("request.failed", body["data"]["ref"])
    ]


async def test_errors_for_people_are_shown(client: ApiClient) -> None:
    with structlog.testing.capture_logs() as logs:
        body = await (await client.raw.get("/fail/agent")).json()
    assert body["data"]["message"].startswith("claude is not installed")
    (line,) = [line for line in logs if line["event"] == "request.failed"]
    assert (line["error"], "exc_info" in line) == (body["data"]["message"], False), (
        "a store that fails is no bug with a traceback"
    )


async def test_errors_of_another_form(client: ApiClient) -> None:
    response = await client.raw.get("/fail/asked")
    assert (response.status, (await response.json())["_tag"]) == (404, "PermissionNotFoundError")


async def test_half_an_answer_breaks_off(client: ApiClient) -> None:
    """A JSON error behind the first half would pass for a whole answer."""
    response = await client.raw.get("/half")
    with pytest.raises(Exception, match=r"payload|closed|Connection"):
        await response.read()


# --- CORS --------------------------------------------------------------------------------------------------

GOOD = [
    "http://localhost:3000",
    "http://127.0.0.1:5173",
    "https://app.opencode.ai",
    "https://a.b.opencode.ai",
    "https://opencode.ai",
    "tauri://localhost",
    "http://tauri.localhost",
    "https://tauri.localhost",
    "https://ide.example",
]
FOREIGN = [
    "https://localhost.evil.example",
    "http://[::2]:3000",
    "http://evil.example",
    "https://evilopencode.ai",
    "http://localhost:3000.evil.example",
    "vscode-webview://x",
    "null",
]


@pytest.mark.parametrize(("path", "status"), [("/thing/a", 200), ("/nosuch", 404), ("/fail/bug", 500), ("/half", 200)])
async def test_origins(client: ApiClient, path: str, status: int) -> None:
    """The same on answers, errors and streams; a foreign origin is refused, without the header."""
    for origin in GOOD + FOREIGN:
        good = origin in GOOD
        response = await client.raw.get(path, headers={"Origin": origin})
        assert (response.status, response.headers["Vary"]) == (status if good else 403, "Origin")
        assert response.headers.get("Access-Control-Allow-Origin") == (origin if good else None), origin
        assert response.headers.get("Access-Control-Expose-Headers") == ("Link, X-Next-Cursor" if good else None), origin
        assert "Access-Control-Allow-Credentials" not in response.headers
        response.close()


@pytest.mark.parametrize("path", ["/thing/a", "/nosuch"])
async def test_preflight(client: ApiClient, path: str) -> None:
    asked = {
        "Origin": "http://localhost:3000",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,x-opencode-directory",
    }
    response = await client.raw.options(path, headers=asked)
    assert (response.status, await response.read()) == (204, b"")
    assert response.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    assert response.headers["Access-Control-Allow-Methods"] == "GET, HEAD, PUT, PATCH, POST, DELETE"
    assert response.headers["Access-Control-Allow-Headers"] == "content-type,x-opencode-directory"
    assert response.headers["Access-Control-Max-Age"] == "86400"


# --- the decorators ----------------------------------------------------------------------------------------


def test_decorators_leave_the_function_alone() -> None:
    async def handler(ctx: Ctx) -> object:
        return 5

    assert operation("session.list")(handler) is handler
    assert collect([ModuleType("empty")]) == []


def test_unknown_operation() -> None:
    with pytest.raises(KeyError):
        operation("session.nosuch")


def _module(*handlers: Any) -> ModuleType:
    module = ModuleType("made")
    for number, handler in enumerate(handlers):
        handler.__module__ = "made"
        setattr(module, f"h{number}", handler)
    return module


def test_two_handlers_for_one_operation() -> None:
    async def handler(ctx: Ctx) -> object: ...
    async def two(ctx: Ctx) -> object: ...

    with pytest.raises(ValueError, match=r"session\.list is served by"):
        collect([_module(operation("session.list")(handler), operation("session.list")(two))])


def test_unknown_parameter() -> None:
    async def handler(ctx: Ctx, boddy: Body) -> object: ...

    with pytest.raises(ValueError, match="boddy"):
        collect([_module(operation("session.list")(handler))])


def test_collect_knows_what_a_handler_takes() -> None:
    found = {handler.id: handler for handler in collect([sys.modules[__name__]])}
    assert found["test.optional"].body_optional and not found["test.echo"].body_optional
    assert found["test.get"].query is not None and found["test.get"].body is None
    assert found["test.get"].operation == Operation("GET", "/thing/{name}", "extra")


# --- what is not served --------------------------------------------------------------------------------------


async def test_unsupported_operations_say_why(client: ApiClient) -> None:
    for name, (status, reason) in UNSUPPORTED.items():
        row = OPERATIONS[name]
        response = await client.raw.request(row.method, row.path.replace("{", "").replace("}", "").replace("*", "x"))
        body = await response.json()
        said = body if row.path.startswith("/api/") else body["data"]
        assert (response.status, said["operation"]) == (status, name)
        assert reason in said["message"]
        if said is not body:
            oracle.check_response(name, response.status, body)


async def test_streams_answer_head_without_a_stream(place: Place) -> None:
    response = await place.api.raw.head("/event")
    assert (response.status, response.content_type) == (200, "text/event-stream")
    assert place.services.hub.stats().readers == 0
