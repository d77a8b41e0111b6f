"""The whole server under requests that nobody would write: every one is answered, none with 500, and it goes on.

A failure prints its seed: put it into `SEEDS`. `make fuzz` tries many more.
"""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shim.faces.opencode1._generated.operations import OPERATIONS
from shim.faces.opencode2._generated.operations import OPERATIONS as OPENCODE2_OPERATIONS
from tests.fuzz import mutate
from tests.fuzz.live_server import Server
from tests.support.live import Live, prompt_body

AVOIDED = frozenset(
    {"session.shell", "pty.create", "worktree.create", "tui.control.next", "global.upgrade", "mcp.add", "mcp.connect"}
    | {"shell.create", "experimental.fs.write", "experimental.session.wait"}
)
"""They run what they are told, by the network even, write what they are told where they are told, or wait on purpose."""
WIRES = (OPERATIONS, OPENCODE2_OPERATIONS)
ROWS = sorted((name, row) for wire in WIRES for name, row in wire.items() if name not in AVOIDED and not row.streams)
BODIES: tuple[Any, ...] = (
    prompt_body("echo hi"),
    {"parts": [{"type": "file", "mime": "text/plain", "url": "file:///etc/hostname", "filename": "x"}]},
    {"title": "t", "permission": [{"permission": "bash", "pattern": "*", "action": "ask"}], "parentID": "ses_x"},
    {"model": {"id": "mock", "providerID": "mock"}, "metadata": {"a": [1, 2]}},
    {"text": "x", "command": "help.show", "arguments": "a b", "agent": "build", "message": "m", "variant": "info"},
    {"answers": [["a"]], "reply": "once", "response": "always", "messageID": "msg_x", "partID": "prt_x"},
    {"username": "x", "permission": {"bash": {"git *": "allow"}}, "keybinds": {"leader": "ctrl+x"}},
)
TEXTS = (
    "",
    "x",
    "ses_x",
    "msg_x",
    "prt_x",
    "pty_x",
    "per_x",
    "0",
    "-1",
    "1e9",
    "NaN",
    "true",
    "../..",
    "/",
    "~",
    "é",
    "\ud83d",
    "a" * 1500,  # five of them are still a line that aiohttp reads (8190 bytes)
    "%00",
    "a\0b",
    "*",
)

SEEDS: tuple[int, ...] = ()
"""Found and mended, each with a word on what was wrong. What a test of its own holds is not here: a directory with a name of
3000 bytes (`test_directories_that_no_disk_has`), NUL in what git or ripgrep is asked for (`test_no_program_gets_a_nul`), a
session below itself (`test_a_session_that_is_its_own_parent_is_deleted`)."""


def path_of(random: Random, pattern: str, session: str) -> str:
    """The pattern with something in its places."""
    parts: list[str] = []
    for part in pattern.split("/"):
        if part == "{sessionID}" and random.random() < 0.6:
            parts.append(session)
        elif part.startswith("{") or part == "*":
            parts.append(quote(random.choice(TEXTS).encode("utf-8", "surrogatepass"), safe=""))
        else:
            parts.append(part)
    return "/".join(parts)


def body_of(random: Random) -> bytes:
    raw = json.dumps(random.choice(BODIES)).encode()
    return raw if random.random() < 0.2 else b"" if random.random() < 0.1 else mutate.line(random, raw)


async def ask(server: Live, seed: int, session: str) -> tuple[str, int, str, bytes]:
    """One request: what it was, and its answer."""
    random = Random(seed)
    name, row = random.choice(ROWS)
    method = (
        row.method
        if random.random() < 0.9
        else random.choice(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"))
    )
    names = (
        "directory",
        "path",
        "query",
        "pattern",
        "limit",
        "before",
        "roots",
        "start",
        "search",
        "messageID",
        "type",
        "lines",
        "mode",
        "base",
        "after",
        "cursor",
        "location[directory]",
    )
    params = [
        (random.choice(names), random.choice(TEXTS).encode("utf-8", "replace").decode()) for _ in range(random.randint(0, 3))
    ]
    headers = {"Content-Type": random.choice(("application/json", "text/plain", "multipart/form-data", "x"))}
    if random.random() < 0.2:
        headers["x-opencode-directory"] = quote(random.choice(TEXTS).encode("utf-8", "surrogatepass"), safe="%/")
    data = None if method in ("GET", "HEAD") and random.random() < 0.8 else body_of(random)
    path = path_of(random, row.path, session)
    async with server.api.raw.request(method, path, params=params, headers=headers, data=data, allow_redirects=False) as answer:
        return f"{name}: {method} {path} {params} {data!r}", answer.status, answer.content_type, await answer.read()


def judge(server: Server, seed: int) -> None:
    what, status, kind, body = server.do(ask(server.live, seed, server.session))
    assert status != 500, (seed, what, body[:500])
    assert kind != "text/html", what
    if status >= 400 and body:
        assert kind == "application/json", (what, status, kind, body[:200])
        assert json.loads(body), what


@given(seed=st.integers(0, 2**40))
def test_requests(server: Server, seed: int) -> None:
    judge(server, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_earlier_findings_stay_fixed(server: Server, seed: int) -> None:
    judge(server, seed)


@given(
    last=st.one_of(
        st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f")), st.binary().map(bytes.hex)
    )
)
@example(last="evt_" + "f" * 8000)
@example(last="evt_000000000001")
@example(last="-1")
@example(last="٣")
def test_last_event_id(server: Server, last: str) -> None:
    """Whatever was the last that it saw: the stream begins."""

    async def first(path: str, **options: Any) -> str:
        async with server.live.api.stream(path, **options) as events:
            return str((await events.next())["type"])

    header = {"Last-Event-ID": last.encode("latin-1", "replace").decode("latin-1")}
    for path, name in (("/event", "lastEventID"), ("/api/event", "after")):
        for options in ({"headers": header}, {"params": {name: last}}):
            assert server.do(first(path, **options)) == "server.connected"


@given(raw=st.one_of(st.binary(max_size=300), st.integers(0, 2**40).map(lambda seed: spoiled_request(Random(seed)))))
@example(raw=b"GET /path HTTP/1.1\r\n\r\n")
@example(raw=b"GET http://evil.example/path HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
@example(raw=b"POST /session HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
@example(raw=b"POST /session HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
def test_bytes_that_are_no_http(server: Server, raw: bytes) -> None:
    """On the socket itself: closed or answered, never with what only HTML is, and the next request works."""

    async def talk() -> bytes:
        url = server.live.api.raw.make_url("/")
        reader, writer = await asyncio.open_connection(url.host, url.port)
        try:
            writer.write(raw)
            writer.write_eof()
            return await reader.read(100_000)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    said = server.do(talk())
    assert not said or said.startswith(b"HTTP/1."), said[:100]
    assert b" 500 " not in said.split(b"\r\n")[0], (raw, said)
    assert server.do(server.live.api.get("/global/health")).status == 200


def spoiled_request(random: Random) -> bytes:
    row = random.choice(ROWS)[1]
    lines = [f"{row.method} {row.path} HTTP/1.1", "Host: localhost", "Connection: close", "Content-Type: application/json"]
    body = json.dumps(random.choice(BODIES)).encode()
    lines += random.sample(
        [
            "Transfer-Encoding: chunked",
            "Content-Length: -1",
            "Upgrade: websocket",
            "Expect: 100-continue",
            "Content-Encoding: gzip",
            "X: \x01",
        ],
        random.randint(0, 2),
    )
    head = "\r\n".join([*lines, f"Content-Length: {len(body) if random.random() < 0.7 else random.randint(0, 10**6)}"]).encode(
        "latin-1"
    )
    return mutate.spoiled_bytes(random, head + b"\r\n\r\n" + body) if random.random() < 0.7 else head + b"\r\n\r\n" + body
