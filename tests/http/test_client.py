"""The Python client against the whole server with the mock: what the documents print, broken connections, errors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from shim.client import AnswerTimeout, Client, EventType, Problem
from shim.store.sqlite import SqliteStore
from tests.support.live import Live, live
from universal.events import EventData, ItemData, Source, TurnData, UniversalEvent
from universal.items import Item, ItemKind, ItemRole, ItemStatus

ROOT = Path(__file__).resolve().parents[2]
RUN_S = 30.0
"""For one example."""
SOON_S = 3.0
"""Enough for the mock to ask."""
URL = "http://127.0.0.1:4096"


@pytest.fixture
async def client(server: Live) -> AsyncIterator[Client]:
    async with Client(str(server.api.raw.make_url("/"))) as made:
        yield made


def examples() -> list[tuple[str, str, str]]:
    """(document, program, what it prints) of all documents."""
    found: list[tuple[str, str, str]] = []
    for name in ("README.md", "docs/client.md"):
        text = (ROOT / name).read_text()
        found += [(name, code, said) for code, said in re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", text, re.DOTALL)]
    return found


def test_there_are_examples_in_both_documents() -> None:
    assert {name for name, _, _ in examples()} == {"README.md", "docs/client.md"}


@pytest.mark.parametrize(("name", "code", "said"), examples())
async def test_an_example_as_printed(server: Live, name: str, code: str, said: str) -> None:
    assert URL in code
    program = compile(code.replace(URL, str(server.api.raw.make_url("/"))), name, "exec")
    lines: list[str] = []
    names = {"__name__": "__main__", "print": lambda *values: lines.append(" ".join(map(str, values)) + "\n")}
    async with asyncio.timeout(RUN_S):
        await asyncio.to_thread(exec, program, names)
    assert "".join(lines) == said


async def test_the_server_and_its_agents(client: Client) -> None:
    assert (await client.health()).status == "ok"
    assert "mock" in {agent.id for agent in await client.agents()}
    assert (await client.models("mock")).defaultModel == "mock"
    assert [mode.id for mode in await client.modes("mock")] == ["build", "plan"]


async def test_refusals_are_problems(client: Client) -> None:
    await client.create_session("s", agent="mock")
    with pytest.raises(Problem) as taken:
        await client.create_session("s", agent="mock")
    assert (taken.value.status, taken.value.kind) == (409, "session_already_exists")
    with pytest.raises(Problem) as missing:
        await client.session("nobody").send("x")
    assert missing.value.kind == "session_not_found"
    with pytest.raises(Problem):
        await anext(client.session("nobody").events())


async def test_questions(client: Client) -> None:
    session = await client.create_session("s", agent="mock")
    answers: list[list[str]] = []
    async for event in session.prompt("question"):
        if event.type is EventType.QUESTION_REQUESTED:
            answers = [[question.options[-1].label] for question in event.data.questions]
            await session.reply_question(event.data.question_id, answers)
        if event.type is EventType.QUESTION_RESOLVED:
            assert [list(one) for one in event.data.answers] == answers
    assert answers


@pytest.mark.parametrize(
    ("prompt", "waits_for"), [("permission", "a permission (git push origin main)"), ("question", "an answer (")]
)
async def test_ask_says_what_the_agent_waits_for(client: Client, prompt: str, waits_for: str) -> None:
    session = await client.create_session(agent="mock")
    with pytest.raises(AnswerTimeout) as late:
        await session.ask(prompt, timeout_s=SOON_S)
    (request,) = late.value.requests
    assert request.startswith(waits_for)
    assert request in str(late.value)


async def test_ask_waits_for_no_request_that_has_a_reply(client: Client) -> None:
    session = await client.create_session(agent="mock", unattended="reject:0.05")
    assert await session.ask("permission")
    with pytest.raises(AnswerTimeout) as late:
        await session.ask("slow", timeout_s=0.0)
    assert late.value.requests == ()


@pytest.mark.parametrize("of_the_prompt", [True, False])
async def test_rules_answer_what_the_agent_asks(client: Client, of_the_prompt: bool) -> None:
    session = await client.create_session(agent="mock", unattended=None if of_the_prompt else "rules")
    assert (await session.info()).unattended == ("wait" if of_the_prompt else "rules")
    assert await session.ask("permission", unattended="rules" if of_the_prompt else None)


async def test_sessions_without_a_name_are_different_ones(client: Client) -> None:
    one, other = [await client.create_session(agent="mock") for _ in range(2)]
    assert one.id != other.id
    assert {one.id, other.id} == {session.sessionId for session in await client.sessions()}


async def test_files_and_info(client: Client) -> None:
    session = await client.create_session("a b/c".replace("/", "-"), agent="mock", title="T")
    await session.write_file("x/y.bin", b"\x00")
    assert await session.read_file("x/y.bin") == b"\x00"
    assert (await session.info()).title == "T"


class Proxy:
    """A connection to the server that can be cut."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.connections = 0

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there, back = await asyncio.open_connection(*self._target)
        self._writers |= {writer, back}
        await asyncio.gather(self._pipe(reader, back), self._pipe(there, writer), return_exceptions=True)
        for one in (writer, back):
            self._writers.discard(one)
            one.close()

    async def _pipe(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(4096):
            target.write(data)
            await target.drain()
        target.close()


async def test_a_broken_connection_is_taken_up_where_it_was(server: Live) -> None:
    url = server.api.raw.make_url("/")
    async with Proxy(str(url.host), int(url.port or 0)) as proxy, Client(proxy.url) as client:
        session = await client.create_session("s", agent="mock")
        seen: list[int] = []
        async for event in session.events():
            seen.append(event.sequence)
            if event.sequence == 1:
                await session.send("burst 50")
            if len(seen) % 20 == 0:
                proxy.cut()
            if event.type is EventType.TURN_ENDED:
                break
        assert seen == list(range(1, len(seen) + 1))
        assert proxy.connections > 1


async def test_a_prompt_survives_a_broken_connection(server: Live) -> None:
    url = server.api.raw.make_url("/")
    async with Proxy(str(url.host), int(url.port or 0)) as proxy, Client(proxy.url) as client:
        session = await client.create_session("s", agent="mock")
        seen: list[int] = []
        async for event in session.prompt("permission"):
            seen.append(event.sequence)
            if event.type is EventType.PERMISSION_REQUESTED:
                proxy.cut()
                async with Client(str(url)) as other:
                    await other.session("s").reply_permission(event.data.permission_id, "once")
        assert event.type is EventType.TURN_ENDED
        assert seen == list(range(seen[0], seen[0] + len(seen)))


def line(sequence: int, type_: EventType, data: EventData) -> bytes:
    """An event as it stands on a stream."""
    event = UniversalEvent(
        event_id=f"evt_{sequence}",
        sequence=sequence,
        time="2026-01-01T00:00:00.000Z",
        session_id="s",
        source=Source.DAEMON,
        synthetic=True,
        type=type_,
        data=data,
    )
    return b"id: %d\ndata: %b\n\n" % (sequence, event.model_dump_json(by_alias=True).encode())


async def prompt_sequences(*lines: bytes) -> list[int]:
    """Sequences that `prompt` gives, of a server that answers with this stream."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=b"".join(lines), content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/sessions/s/messages/stream", answer)
    async with TestServer(app) as server, Client(str(server.make_url("/"))) as client:
        return [event.sequence async for event in client.session("s").prompt("hello")]


async def test_the_end_of_a_turn_before_the_prompt_is_not_its_end() -> None:
    ended = TurnData(phase="ended", turn_id="t", metadata={"reason": "completed"})
    said = ItemData(item=Item(item_id="i", kind=ItemKind.MESSAGE, role=ItemRole.USER, status=ItemStatus.COMPLETED))
    before, ours = line(4, EventType.TURN_ENDED, ended), line(6, EventType.ITEM_COMPLETED, said)
    assert await prompt_sequences(before, ours, line(7, EventType.TURN_ENDED, ended)) == [4, 6, 7]


async def test_a_stream_without_an_event_is_no_answer() -> None:
    with pytest.raises(aiohttp.ServerDisconnectedError, match="before the turn began"):
        await prompt_sequences()


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    async with Client("http://127.0.0.1:1") as client:
        with pytest.raises(aiohttp.ClientError):
            await client.health()


async def test_history_in_pages_and_raw(tmp_path: Path) -> None:
    async with (
        live(tmp_path, store=SqliteStore(tmp_path / "data" / "j.db")) as server,
        Client(str(server.api.raw.make_url("/"))) as client,
    ):
        session = await client.create_session("s", agent="mock")
        await session.ask("burst 1200")
        events = [event async for event in session.history(include_raw=True)]
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert len(events) > 1200
        assert all(event.raw is not None for event in events if event.source == "agent")
