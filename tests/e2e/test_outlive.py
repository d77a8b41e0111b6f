"""A turn of the real Claude Code outlives its server: the next one takes it up from its holder (`outlive`)."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

import pytest

from shim.dev.record.homes import MCP_SERVER
from shim.processes.sandbox import find_tool

from .support.bench import CLAUDE, DATABASE, Bench, bench, nightly
from .support.children import connections_to, processes_with, wait_for
from .support.places import ADOPTED
from .support.scenes import CONFIG
from .support.tui import tui
from .support.wire import Json, Stream, fold, texts, tools

TOOL = find_tool(os.environ.get("PATH", os.defpath))
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
TURN_S = 90
SEEDS = range(first := int(os.environ.get("SEED", "1")), first + int(os.environ.get("SEEDS", "1")))
WEATHER = """
export default {
  description: "Tells the weather of a city",
  args: {},
  async execute(args) { return `sunny in ${args.city}` },
}
"""
SECRET = "planted-secret-of-an-mcp-server"
WORDS = 200
"""Of the text that streams over the kills, ten a second: time for three restarts."""


NAMES = [CLAUDE, "codex", *nightly(f"{CLAUDE} in a sandbox", "opencode", "pi", "claude-agent-acp")]


@pytest.fixture(params=[ADOPTED[0]] if ADOPTED[0] else NAMES)
def server(request: pytest.FixtureRequest) -> Iterator[Bench]:
    name, _, is_held = request.param.partition(" ")
    if is_held and TOOL.why:
        pytest.skip(f"no sandbox can be made here: {TOOL.why}")
    with bench(name, SHIM_OUTLIVE="true", **({"SHIM_SANDBOX": "project"} if is_held else {})) as made:
        yield made


def request_of(server: Bench) -> Json:
    """The only open permission request."""
    [request] = wait_for(lambda: server.api.get("/permission"), TURN_S, "no permission is asked")
    return request


def until_idle(server: Bench, session: str) -> list[Json]:
    wait_for(lambda: session not in server.api.status(), TURN_S, lambda: f"busy: {server.shim.child.log()[-4000:]}")
    return server.api.messages(session)


def journal(server: Bench, session: str) -> Counter[str]:
    """How often each type of event stands in the session's journal, whose sequence has no gap."""
    with closing(sqlite3.connect(f"file:{server.place.home / 'data' / DATABASE}?mode=ro", uri=True)) as database:
        query = "SELECT coalesce(first, sequence), sequence, type FROM event WHERE session_id = ? ORDER BY sequence"
        rows = database.execute(query, (session,)).fetchall()
    events = [(sequence, kind) for first, last, kind in rows for sequence in range(first, last + 1)]
    assert [sequence for sequence, _ in events] == list(range(1, len(events) + 1))
    return Counter(kind for _, kind in events)


def check_one_turn(server: Bench, session: str) -> None:
    def look() -> Counter[str]:
        found = journal(server, session)
        return found if found["turn.ended"] else Counter()

    events = wait_for(look, 5, "the end is not stored")
    assert (events["turn.started"], events["turn.ended"], events["error"]) == (1, 1, 0), events
    assert events["permission.requested"] == events["permission.resolved"], events


ENDS = {"/event": "session.idle", "/global/event": "session.idle", "/api/event": "session.execution.succeeded"}
"""Stream -> the event that a turn has ended."""


class Reader:
    """A client of a stream that comes again with its last id when its server has gone. `events`: since it has read all anew."""

    def __init__(self, server: Bench, path: str) -> None:
        self._server, self._path = server, path
        self.events: list[Json] = []
        self.last_id: str | None = None
        self.read_anew = 0
        self.come()

    def come(self) -> None:
        greets = not self._path.startswith("/v1")
        path = None if self._path == "/event" else self._path  # with the directory
        self.stream = Stream(self._server.api, path, last_id=self.last_id, greets=greets)
        if greets and self.stream.ids[0] != self.last_id:
            self.read_anew += self.last_id is not None
            self.events = []

    def leave(self) -> list[Json]:
        """Note what it has got, when the stream has ended. Out: the events."""
        wait_for(lambda: self.stream.ended, TURN_S, "the stream goes on")
        self.stream.close()
        self.events += [event for _, event in self.stream.events]
        self.last_id = next(filter(None, reversed(self.stream.ids)), self.last_id)
        return self.events


def count_pieces(events: list[Json], text: str) -> int:
    """How many pieces came of the text of a turn. All of it came once: each state of its part has what has grown."""
    grown, count = "", 0
    for event in events:
        properties = event.get("properties", {})
        if event["type"] == "message.part.delta":
            grown, count = grown + properties["delta"], count + 1
            assert text.startswith(grown), (grown[-200:], text[-200:])
        elif event["type"] == "message.part.updated" and properties["part"]["type"] == "text":
            shown = properties["part"]["text"]
            assert shown == grown or not grown, (grown[-200:], properties)
            grown = shown if text.startswith(shown) else grown  # a client that reads all anew gets what there is at once
    return count


@pytest.mark.parametrize("path", ["/event", "/api/event", *nightly("/global/event")])
def test_a_stream_goes_on_with_the_last_id_of_the_server_before(claude: Bench, path: str) -> None:
    reader = Reader(claude, path)
    session = claude.api.session()
    claude.api.prompt(session, "[scene:bash:touch made.txt] make")
    request = request_of(claude)
    for _ in range(2):
        reader.stream.quiet()
        claude.restart(kill=True)
        reader.leave()
        reader.come()
    claude.api.post(f"/permission/{request['id']}/reply", {"reply": "once"})
    until_idle(claude, session)
    reader.stream.wait(lambda event: event["type"] == ENDS[path])
    claude.restart(kill=True)
    events = reader.leave()
    assert reader.read_anew == 0
    assert [event["type"] for event in events].count(ENDS[path]) == 1
    assert len({event["id"] for event in events}) == len(events)
    if path == "/event":
        assert fold(events, session) == claude.api.messages(session)


def test_a_person_at_the_tui_answers_the_next_server(claude: Bench) -> None:
    """The picture of the README: asked, `kill -9`, a start, allowed, "Done", one idle."""
    terminal = tui(claude.place, claude.url)
    claude.later(terminal.close)
    terminal.submit("[scene:bash:touch made.txt] make")
    terminal.wait("(?s)Permission required.*Allow once", TURN_S)
    claude.restart(kill=True)
    wait_for(lambda: connections_to(claude.shim.port) > 0, TURN_S, "the TUI does not come back")
    terminal.wait("(?s)Permission required.*Allow once", TURN_S)
    terminal.key("Enter", pause_s=0.5)
    terminal.wait("Done!", TURN_S)
    [session] = claude.api.get("/session?roots=true")
    assert texts(until_idle(claude, session["id"]))[-1] == "Done!"
    assert (claude.place.project / "made.txt").exists()
    check_one_turn(claude, session["id"])


def test_a_client_that_comes_back_late_learns_of_the_end(claude: Bench) -> None:
    """The TUI names no last id and reads nothing again. It may be away for 30 s: its dialog is to go, and the answer to come."""
    session = claude.api.session()
    claude.api.prompt(session, "[scene:bash:touch made.txt] make")
    request = request_of(claude)
    claude.restart(kill=True)
    claude.api.post(f"/permission/{request_of(claude)['id']}/reply", {"reply": "once"})
    until_idle(claude, session)
    stream = Stream(claude.api)
    claude.later(stream.close)

    def events() -> list[Json]:
        return stream.of(session, 0)

    wait_for(lambda: any(event["type"] == "session.status" for event in events()), TURN_S, lambda: str(events()))
    kinds = [event["type"] for event in events()]
    assert kinds.index("message.updated") < kinds.index("session.status") < kinds.index("permission.replied")
    [replied] = [event["properties"] for event in events() if event["type"] == "permission.replied"]
    assert (replied["requestID"], replied["reply"]) == (request["id"], "once")
    parts = [event["properties"]["part"] for event in events() if event["type"] == "message.part.updated"]
    assert [part["text"] for part in parts if part["type"] == "text"][-1] == "Done!"


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])
def test_an_open_permission_is_answered_to_the_next_server(server: Bench, kill: bool) -> None:
    session = server.api.session()
    server.api.prompt(session, "[scene:bash:touch made.txt] make")
    request = request_of(server)
    if not kill:
        server.shim.child.send(15)
        assert server.shim.child.wait(10) == 0
    server.restart(kill=kill)
    assert session in server.api.status(), server.shim.child.log()[-4000:]
    if "SHIM_SANDBOX" in server.settings:
        assert any("bwrap" in line for line in processes_with(str(server.place.root)).values()), "the holder is outside"
    again = request_of(server)
    assert (again["id"], again["sessionID"]) == (request["id"], session)
    server.api.post(f"/permission/{again['id']}/reply", {"reply": "once"})
    messages = until_idle(server, session)
    assert [call["state"]["status"] for call in tools(messages)] == ["completed"], json.dumps(messages)[-3000:]
    if server.agent != "codex":  # its own sandbox has no writable place here
        assert (server.place.project / "made.txt").exists()
    assert texts(messages)[-1]
    check_one_turn(server, session)
    server.api.prompt(session, "[scene:text] once more")
    assert texts(until_idle(server, session))[-1] == "You said: once more"


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed-{seed}")
def test_text_streams_on_over_kills_at_random(server: Bench, seed: int) -> None:
    chance = random.Random(seed)
    session = server.api.session()
    reader, journalist = Reader(server, "/event"), Reader(server, f"/v1/sessions/{session}/events/sse")
    server.api.prompt(session, f"[scene:drip:{WORDS}] talk")
    wait_for(lambda: texts(server.api.messages(session)), TURN_S, "no text")
    for _ in range(3):
        time.sleep(chance.random())
        server.restart(kill=True)
        for client in (reader, journalist):
            client.leave()
            client.come()
        if session not in server.api.status():  # a slow machine has heard all meanwhile
            break
    assert "tape.taken_up" in server.shim.child.log(), server.shim.child.log()[-4000:]
    messages = until_idle(server, session)
    said = texts(messages)
    assert len(said) == 1, said
    assert len(said[0].split()) == WORDS, said
    check_one_turn(server, session)
    reader.stream.idle(session)
    server.restart(kill=True)
    events = reader.leave()
    assert reader.read_anew or count_pieces(events, said[0])
    told = [event["sequence"] for event in journalist.leave()]
    assert told == list(range(1, len(told) + 1)), "each event of the journal, once"


def test_an_abort_reaches_the_agent_of_the_server_before(server: Bench) -> None:
    session = server.api.session()
    server.api.prompt(session, "[scene:slow_bash:20] wait")
    wait_for(lambda: tools(server.api.messages(session)), TURN_S, "no tool runs")
    server.restart(kill=True)
    server.api.post(f"/session/{session}/abort")
    until_idle(server, session)
    events = journal(server, session)
    assert (events["turn.started"], events["turn.ended"]) == (1, 1), events


@pytest.fixture
def claude() -> Iterator[Bench]:
    server = {"type": "local", "command": [sys.executable, str(MCP_SERVER)], "environment": {"PLANTED": SECRET}}
    with bench(CLAUDE, SHIM_OUTLIVE="true", config={**CONFIG, "mcp": {"scripted": server}}) as made:
        yield made


def answer_all(server: Bench, session: str) -> list[Json]:
    """Allow all that is asked until the session is idle. Out: its messages."""

    def look() -> bool:
        for request in server.api.get("/permission"):
            server.api.post(f"/permission/{request['id']}/reply", {"reply": "once"})
        return session not in server.api.status()

    wait_for(look, TURN_S, lambda: f"busy: {server.shim.child.log()[-4000:]}")
    return server.api.messages(session)


@pytest.mark.parametrize("steer", ["true", "false"], ids=["steered", "queued"])
def test_a_prompt_that_waits_is_answered_by_the_next_server(steer: str) -> None:
    with bench(CLAUDE, SHIM_OUTLIVE="true", SHIM_STEER=steer) as server:
        session = server.api.session()
        server.api.prompt(session, "[scene:slow_bash:6] wait")
        wait_for(lambda: tools(server.api.messages(session)), TURN_S, "no tool runs")
        server.api.prompt(session, "[scene:text] and this")
        server.restart(kill=True)
        assert session in server.api.status(), server.shim.child.log()[-4000:]
        messages = until_idle(server, session)
        assert [call["state"]["status"] for call in tools(messages)] == ["completed"], json.dumps(messages)[-3000:]
        assert texts(messages)[-1] == "You said: and this"
        check_one_turn(server, session)


def subagent_asks(server: Bench) -> Iterator[None]:
    session = server.api.session()
    server.api.prompt(session, "[scene:task:bash:touch made.txt] hand it on")
    request = request_of(server)
    child = request["sessionID"]
    assert child != session
    yield
    assert {session, child} <= server.api.status().keys(), server.shim.child.log()[-4000:]
    assert request_of(server)["id"] == request["id"]
    yield
    server.api.post(f"/permission/{request['id']}/reply", {"reply": "once"})
    until_idle(server, session)
    assert (server.place.project / "made.txt").exists()
    for name in (session, child):
        check_one_turn(server, name)
    assert server.api.status() == {}


def question_is_open(server: Bench) -> Iterator[None]:
    session = server.api.session()
    server.api.prompt(session, "[scene:question] ask me")
    [question] = wait_for(lambda: server.api.get("/question"), TURN_S, "no question is asked")
    yield
    [again] = server.api.get("/question")
    assert again == question
    server.api.post(f"/question/{again['id']}/reply", {"answers": [[question["questions"][0]["options"][0]["label"]]]})
    assert texts(until_idle(server, session))[-1] == "Done!"
    check_one_turn(server, session)


def tool_of_an_mcp_server(server: Bench) -> Iterator[None]:
    """Its secrets stand in no file of the server."""
    session = server.api.session()
    server.api.prompt(session, "[scene:mcp] ask it")
    request_of(server)
    yield
    assert session in server.api.status(), server.shim.child.log()[-4000:]
    [call] = tools(answer_all(server, session))
    assert (call["state"]["status"], "hello" in call["state"]["output"]) == ("completed", True), call
    check_one_turn(server, session)
    for path in (server.place.home / "data").rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def background_work(server: Bench) -> Iterator[None]:
    """No turn runs. The agent goes on, and speaks again when its command has ended."""
    session = server.api.session()
    server.api.prompt(session, "[scene:slow_bash:15] run")
    wait_for(lambda: tools(server.api.messages(session)), TURN_S, "no tool runs")
    server.api.post(f"/api/session/{session}/background")
    said = len(texts(until_idle(server, session)))
    [held] = server.api.get("/v1/x-holders")["holders"]
    yield
    [again] = server.api.get("/v1/x-holders")["holders"]
    assert (again["id"], again["pids"][0]) == (held["id"], held["pids"][0]), server.shim.child.log()[-4000:]
    wait_for(lambda: len(texts(until_idle(server, session))) > said, TURN_S, "the end of its command is not told")
    events = journal(server, session)
    assert events["turn.started"] == events["turn.ended"] == 2, events


def abort_in_progress(server: Bench) -> Iterator[None]:
    session = server.api.session()
    server.api.prompt(session, "[scene:slow_bash:30] wait")
    wait_for(lambda: tools(server.api.messages(session)), TURN_S, "no tool runs")
    server.api.post(f"/session/{session}/abort")
    yield
    until_idle(server, session)
    events = journal(server, session)
    assert (events["turn.started"], events["turn.ended"]) == (1, 1), events


def undo_of_a_turn(server: Bench) -> Iterator[None]:
    """The snapshot is of the first server, the file of the second, and the third takes it back."""
    session, made = server.api.session(), server.place.project / "made.txt"
    server.api.prompt(session, "[scene:bash:touch made.txt] make")
    request = request_of(server)
    yield
    server.api.post(f"/permission/{request['id']}/reply", {"reply": "once"})
    prompt = until_idle(server, session)[0]["info"]["id"]
    assert made.exists()
    yield
    server.api.post(f"/session/{session}/revert", {"messageID": prompt})
    assert not made.exists()


def agent_that_waited(server: Bench) -> Iterator[None]:
    """Its handshake and what it loaded ahead were before there was a session."""
    first = server.api.session()
    server.api.prompt(first, "[scene:text] one")
    until_idle(server, first)
    wait_for(lambda: "agent.spare_prepared" in server.shim.child.log(), TURN_S, "no agent waits")
    held = {row["id"] for row in server.api.get("/v1/x-holders")["holders"]}
    assert len(held) == 2
    session = server.api.session()
    server.api.prompt(session, "[scene:bash:touch made.txt] make")
    request = request_of(server)
    assert "spare=True" in server.shim.child.log()
    yield
    assert session in server.api.status(), server.shim.child.log()[-4000:]
    server.api.post(f"/permission/{request['id']}/reply", {"reply": "once"})
    assert texts(until_idle(server, session))[-1]
    check_one_turn(server, session)
    left = {row["id"]: row["session"] for row in server.api.get("/v1/x-holders")["holders"]}
    assert session in left.values(), left
    assert left.keys() <= held, left


def ends(server: Bench) -> Iterator[None]:
    """The turn ends with its server, which `/v1` says before."""
    session = server.api.session()
    server.api.prompt(session, "[scene:bash:touch made.txt] make")
    request_of(server)
    [told] = server.api.get("/v1/sessions")["sessions"]
    assert told["outlives"] is False
    yield
    assert session not in server.api.status()
    assert server.api.get("/permission") == []
    events = journal(server, session)
    assert (events["turn.ended"], events["error"]) == (1, 1), events


class Row(NamedTuple):
    """What runs when its server is killed at each `yield`. `why`: a word of the log, for a turn that ends."""

    steps: Callable[[Bench], Iterator[None]]
    why: str = ""
    settings: Mapping[str, str] = {}
    plugin: str = ""


ROWS = {
    "a subagent asks": Row(subagent_asks),
    "a question": Row(question_is_open),
    "a tool of the persons mcp server": Row(tool_of_an_mcp_server),
    "background work": Row(background_work),
    "an abort": Row(abort_in_progress),
    "an undo": Row(undo_of_a_turn),
    "an agent that waited": Row(agent_that_waited, settings={"SHIM_SPARE_AGENTS": "1"}),
    "a tool of a plugin": Row(ends, "this server runs tools of it", plugin=WEATHER),
    "tools of mcp": Row(ends, "this server runs tools of it", {"SHIM_MCP": "true"}),
    "strict": Row(ends, "its sandbox reaches its model by this server", {"SHIM_SANDBOX": "strict"}),
    "without the setting": Row(ends, settings={"SHIM_OUTLIVE": "false"}),
}


@pytest.mark.parametrize("name", ROWS)
def test_work_goes_on_or_says_that_it_ends(name: str) -> None:
    row = ROWS[name]
    if row.settings.get("SHIM_SANDBOX") and TOOL.why:
        pytest.skip(f"no sandbox can be made here: {TOOL.why}")
    mcp = {"type": "local", "command": [sys.executable, str(MCP_SERVER)], "environment": {"PLANTED": SECRET}}
    settings = {"SHIM_OUTLIVE": "true", **row.settings}
    with bench(CLAUDE, config={**CONFIG, "mcp": {"scripted": mcp}}, **settings) as server:
        if row.plugin:
            file = server.place.home / ".config" / "opencode" / "tool" / "weather.ts"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(row.plugin)
            server.models()
        for number, _ in enumerate(row.steps(server)):
            assert row.why in server.shim.child.log()
            server.restart(kill=True)
            assert number < 5
