"""A server is killed at each place where a turn could be lost or doubled, and the next one goes on with the turn."""

from __future__ import annotations

import http.client
import json
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from tests.e2e.support.children import wait_for
from tests.process.test_serve import environment
from tests.support import recordings
from tests.support.replay import encode

pytestmark = pytest.mark.timeout(600)
FAKE = Path(__file__).resolve().parent.parent / "fakes" / "acp_hands.py"
TURN_S, CALL_S, MOST = 120.0, 60.0, 60
SERVER = """
import os, sys
from shim.cli import main
from shim.processes import child_process, held_process, holder_link
from shim.sessions.session import lost_turns, tape
from shim.sessions.undo import step_snapshots
from shim.store import writer

point, left, armed = sys.argv.pop(1), int(sys.argv.pop(1)), False

def crash():
    global left
    left -= armed
    if left == 0:
        os.kill(os.getpid(), 9)

def around(real, place):
    def call(*args, **more):
        if point == "before " + place:
            crash()
        result = real(*args, **more)
        if point == "after " + place:
            crash()
        return result
    return call

def later(real, place):
    async def call(*args, **more):
        if point == "before " + place:
            crash()
        result = await real(*args, **more)
        if point == "after " + place:
            crash()
        return result
    return call

def arm(real):
    def call(*args):
        global armed
        armed = True
        return real(*args)
    return call

begin, send = writer.GroupWriter.__init__, holder_link.Link.send
writer.GroupWriter.__init__ = lambda self, commit, *more: begin(self, around(commit, "a commit"), *more)
given = around(send, "a line for the agent")
holder_link.Link.send = lambda self, kind, data=b"": (given if kind == b"W" else send)(self, kind, data)
child_process.hold = later(child_process.hold, "the start of an agent")
tape.Tapes.expect = arm(tape.Tapes.expect)
lost_turns._Replay._attach = arm(lost_turns._Replay._attach)
holder_link.Link.data_received = around(holder_link.Link.data_received, "lines of the agent")
begin_snapshot = step_snapshots.StepSnapshots.begin
async def begin_stored(self, **more):
    if point == "before a snapshot":
        await self._state.journal.flush()
        crash()
    await begin_snapshot(self, **more)
step_snapshots.StepSnapshots.begin = begin_stored
for place, owner, name in (("attaching", held_process.HeldProcess, "attach"), ("going on", lost_turns._Replay, "_resume")):
    setattr(owner, name, later(getattr(owner, name), place))
    if point.endswith(place):
        armed = True
end = lost_turns._end_agent
async def end_agent(of, row):
    if point == "before ending an agent":
        await of._tapes.flush()
        os.kill(os.getpid(), 9)
    await end(of, row)
lost_turns._end_agent = end_agent
if point == "a bug in a replay":
    lost_turns.replay = lambda *_: 1 / 0
sys.exit(main())
"""


class Place:
    """A server that is started again after each death, one session, and a log of what its agent has got.

    In: `ends`, where each server is killed: a point, and how often it was passed. The last one is not. `settings`: variables of
    its servers.
    """

    def __init__(self, home: Path, *ends: tuple[str, int], **settings: str) -> None:
        self.settings = settings
        self.home, self.log, self.crashes = home, home / "agent.log", 0
        self.ends = ends
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        agents = json.dumps({"hands": {"command": [sys.executable, str(FAKE), str(self.log)]}})
        settings = {"SHIM_AGENTS": agents, "SHIM_OUTLIVE": "true", "SHIM_SANDBOX": "off", "SHIM_DEFAULT_AGENT": "hands"}
        settings |= self.settings
        point, number = [*self.ends, ("never", 1), ("never", 1)][self.crashes]
        argv = [sys.executable, "-c", SERVER, point, str(number), "serve", "--port", str(self.port)]
        argv += ["--directory", str(self.home), "--data-dir", str(self.home / "data")]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, env=environment(self.home, **settings), stdout=log, stderr=log)
        wait_for(self.is_up, TURN_S, lambda: (self.home / "log").read_text()[-3000:])

    def is_up(self) -> bool:
        try:
            return self.ask("GET", "/global/health") is not None
        except (OSError, http.client.HTTPException):
            return self.process is not None and self.process.poll() is not None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=CALL_S) as answer:
            text = answer.read()
            return json.loads(text) if text else None

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Ask until a server answers. One that was killed is started again, for its own end if there is one."""
        while True:
            try:
                return self.ask(method, path, body)
            except (URLError, OSError, http.client.HTTPException):
                assert self.process is not None
                assert self.process.wait(CALL_S) == -signal.SIGKILL, (self.home / "log").read_text()[-3000:]
                assert self.crashes < max(1, len(self.ends))
                self.crashes += 1
                self.start()
                if (
                    method == "POST"
                    and path.endswith("/prompt_async")
                    and self.call("GET", path.replace("prompt_async", "message"))
                ):
                    return None

    def lines(self) -> Counter[str]:
        """How often the agent got each method, or an answer."""
        text = self.log.read_text() if self.log.exists() else ""
        return Counter(json.loads(line).get("method", "answer") for line in text.splitlines())

    def events(self, session: str) -> Counter[str]:
        with closing(sqlite3.connect(f"file:{self.home / 'data' / 'opencode-shim.db'}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT sequence, type FROM event WHERE session_id = ? ORDER BY sequence", (session,))
            found = rows.fetchall()
        assert [sequence for sequence, _ in found] == list(range(1, len(found) + 1))
        return Counter(kind for _, kind in found)


@contextmanager
def run_place(home: Path, *ends: tuple[str, int], **settings: str) -> Iterator[Place]:
    with ExitStack() as stack:
        place = Place(home, *ends, **settings)
        place.start()
        stack.callback(lambda: place.process and (place.process.send_signal(signal.SIGINT), place.process.wait(CALL_S)))
        yield place


def play(place: Place) -> None:
    """One turn with a permission and a file, over whatever happens to the server. The laws of a turn hold."""
    (place.home / "notes.txt").write_text("some notes")
    session = place.call("POST", "/session", {})["id"]
    text = f"allow touch x // read {place.home / 'notes.txt'}"
    place.call("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]})

    def is_idle() -> bool:
        for request in place.call("GET", "/permission"):
            place.call("POST", f"/permission/{request['id']}/reply", {"reply": "once"})
        return session not in place.call("GET", "/session/status")

    wait_for(is_idle, TURN_S, lambda: (place.home / "log").read_text()[-3000:])
    messages = place.call("GET", f"/session/{session}/message")
    said = [part["text"] for message in messages[1:] for part in message["parts"] if part["type"] == "text"]
    assert [message["info"]["role"] for message in messages] == ["user", "assistant", "assistant"], messages
    assert said == ['allow_once {"content": "some notes"}'], (said, (place.home / "log").read_text()[-3000:])
    events = wait_for(lambda: (found := place.events(session))["turn.ended"] and found, TURN_S, "no end is stored")
    assert (events["turn.started"], events["turn.ended"], events["error"]) == (1, 1, 0), events
    assert events["permission.requested"] == events["permission.resolved"] > 0, events
    assert place.lines()["session/prompt"] == 1, "the agent gets a prompt once"
    assert place.lines()["answer"] == 2, "and each answer once"


@pytest.fixture
def top() -> Iterator[Path]:
    """A folder with a short path: a holder's socket below that of a test may be too long for the system."""
    with TemporaryDirectory(prefix="outlive-") as folder:
        yield Path(folder)


PLACES = ("a commit", "a line for the agent", "lines of the agent", "the start of an agent")
POINTS = [f"{when} {place}" for place in PLACES for when in ("before", "after")]
SOME = (
    ("before the start of an agent", 1),
    ("after a line for the agent", 2),
    ("before lines of the agent", 2),
    ("after a commit", 2),
    ("after attaching", 1),
    ("before going on", 1),
    ("after going on", 1),
)
"""The short form: where the servers of one turn are killed, one after the other."""


def test_a_turn_goes_on_in_the_next_servers(top: Path) -> None:
    with run_place(top, *SOME) as place:
        play(place)
        assert place.crashes == len(SOME)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("point", POINTS)
def test_a_turn_goes_on_wherever_its_server_is_killed(top: Path, point: str) -> None:
    """At each time that the place is passed, until it is passed no more."""
    for number in range(1, MOST):
        home = top / str(number)
        home.mkdir()
        with run_place(home, (point, number)) as place:
            play(place)
            if not place.crashes:
                break
    assert 1 < number < MOST, number


def test_an_agent_cannot_answer_its_own_permission_and_its_tape_goes_with_the_session(top: Path) -> None:
    """It finds the socket, and is not let in."""
    with run_place(top) as place:
        session = place.call("POST", "/session", {})["id"]
        text = f"attack {top / 'data' / 'held'} // allow touch x"
        place.call("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]})
        wait_for(lambda: place.call("GET", "/permission"), TURN_S, lambda: (top / "log").read_text()[-3000:])
        [request] = place.call("GET", "/permission")
        check_tape(place, session)
        place.call("POST", f"/permission/{request['id']}/reply", {"reply": "reject"})
        wait_for(lambda: session not in place.call("GET", "/session/status"), TURN_S, "the turn does not end")
        said = [part.get("text") for message in place.call("GET", f"/session/{session}/message") for part in message["parts"]]
        assert "0 of 1 reject_once" in said, said
        check_tape(place, session, is_deleted=True)


def check_tape(place: Place, session: str, *, is_deleted: bool = False) -> None:
    """A session has a tape, and a deleted one has none."""
    held, rows = place.home / "data" / "held", "SELECT count(*) FROM value WHERE namespace LIKE 'tape%'"

    def count_rows() -> int:
        with closing(sqlite3.connect(f"file:{place.home / 'data' / 'opencode-shim.db'}?mode=ro", uri=True)) as database:
            return int(database.execute(rows).fetchone()[0])

    [folder] = held.iterdir()
    assert count_rows() > 1
    [listed] = place.call("GET", "/v1/x-holders")["holders"]
    assert (listed["id"], listed["session"], listed["isAlive"], len(listed["pids"]) > 0) == (folder.name, session, True, True)
    if not is_deleted:
        return
    place.call("DELETE", f"/session/{session}")
    wait_for(lambda: not list(held.iterdir()) and not count_rows(), CALL_S, "something is left")


def test_an_agent_that_is_not_taken_up_ends_although_its_next_server_dies_too(top: Path) -> None:
    """The tape goes with the end of the turn, after the agent: else nobody would know of it until its lease is over."""
    with run_place(top, ("never", 1), ("before ending an agent", 1)) as place:
        session = place.call("POST", "/session", {})["id"]
        place.call("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": "allow touch x"}]})
        wait_for(lambda: place.call("GET", "/permission"), TURN_S, lambda: (top / "log").read_text()[-3000:])
        [held] = place.call("GET", "/v1/x-holders")["holders"]
        assert place.process is not None
        place.process.kill()
        place.settings |= {"SHIM_AGENTS": "{}", "SHIM_DEFAULT_AGENT": "mock"}
        assert session not in place.call("GET", "/session/status"), (top / "log").read_text()[-3000:]
        assert place.crashes == 2
        wait_for(lambda: not list((top / "data" / "held").iterdir()), CALL_S, "the holder stays")
        assert not any(Path(f"/proc/{pid}").exists() for pid in held["pids"])
        events = wait_for(lambda: (found := place.events(session))["turn.ended"] and found, TURN_S, "no end is stored")
        assert (events["turn.started"], events["turn.ended"], events["error"]) == (1, 1, 1), events


def test_a_server_starts_although_a_codec_fails_over_a_tape(top: Path) -> None:
    """Its turn ends, and its agent."""
    with run_place(top, ("never", 1), ("a bug in a replay", 1)) as place:
        session = place.call("POST", "/session", {})["id"]
        place.call("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": "allow touch x"}]})
        wait_for(lambda: place.call("GET", "/permission"), TURN_S, lambda: (top / "log").read_text()[-3000:])
        assert place.process is not None
        place.process.kill()
        wait_for(lambda: session not in place.call("GET", "/session/status"), TURN_S, "the turn does not end")
        wait_for(lambda: not list((top / "data" / "held").iterdir()), CALL_S, "the holder stays")
        events = wait_for(lambda: (found := place.events(session))["turn.ended"] and found, TURN_S, "no end is stored")
        assert (events["turn.started"], events["turn.ended"], events["error"]) == (1, 1, 1), events


def test_a_question_about_a_cap_is_answered_to_the_next_server(top: Path) -> None:
    """It is asked once, and what was used and agreed to still counts."""
    with run_place(top, ("never", 1), ("never", 1), SHIM_MAX_TURN_SECONDS="6", SHIM_UNATTENDED="reject:600") as place:
        session = place.call("POST", "/session", {})["id"]
        text = "run sleep 600 // allow touch x"
        place.call("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]})
        [asked] = wait_for(lambda: place.call("GET", "/question"), TURN_S, lambda: (top / "log").read_text()[-3000:])
        wait_for(lambda: place.events(session)["question.requested"], TURN_S, "the question is not stored")
        assert place.process is not None
        place.process.kill()
        assert place.call("GET", "/question") == [asked], (top / "log").read_text()[-3000:]
        place.call("POST", f"/question/{asked['id']}/reply", {"answers": [["Go on"]]})
        [request] = wait_for(lambda: place.call("GET", "/permission"), TURN_S, lambda: (top / "log").read_text()[-3000:])
        assert place.process is not None
        place.process.kill()
        place.call("POST", f"/permission/{request['id']}/reply", {"reply": "once"})
        wait_for(lambda: session not in place.call("GET", "/session/status"), TURN_S, "the turn does not end")
        events = wait_for(lambda: (found := place.events(session))["turn.ended"] and found, TURN_S, "no end is stored")
        assert (events["turn.started"], events["turn.ended"], events["error"]) == (1, 1, 0), events
        assert events["question.requested"] == events["question.resolved"] == 1, events


def test_a_request_has_waited_since_the_first_server_and_a_loop_is_counted_on(top: Path) -> None:
    """Three equal calls are a loop, whichever server has judged them; the third one is asked about as that."""
    with run_place(top, *[("never", 1)] * 3, SHIM_UNATTENDED="reject:600") as place:
        session = place.call("POST", "/session", {})["id"]
        text = " // ".join(["allow touch x"] * 3)
        place.call("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]})
        shown: list[str] = []
        for _ in range(3):
            [request] = wait_for(lambda: place.call("GET", "/permission"), TURN_S, lambda: (top / "log").read_text()[-3000:])
            [before] = place.call("GET", "/v1/sessions")["sessions"]
            wait_for(lambda: place.events(session)["permission.requested"] > len(shown), TURN_S, "the request is not stored")
            assert place.process is not None
            place.process.kill()
            [after] = place.call("GET", "/v1/sessions")["sessions"]
            assert after["waitingSince"] == before["waitingSince"] is not None
            place.call("POST", f"/permission/{request['id']}/reply", {"reply": "once"})
            shown.append(request["permission"])
        assert shown == ["bash", "bash", "doom_loop"]


def test_a_call_that_the_configuration_allows_is_asked_by_no_server(top: Path) -> None:
    """It starts the agent, since the first one was killed before."""
    (top / ".config" / "opencode").mkdir(parents=True)
    (top / ".config" / "opencode" / "opencode.json").write_text('{"permission": {"bash": "allow"}}')
    with run_place(top, ("before the start of an agent", 1)) as place:
        session = place.call("POST", "/session", {})["id"]
        place.call("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": "allow touch x"}]})
        wait_for(
            lambda: session not in place.call("GET", "/session/status") or place.call("GET", "/permission"),
            TURN_S,
            lambda: (top / "log").read_text()[-3000:],
        )
        assert place.crashes == 1
        assert place.call("GET", "/permission") == []


def test_an_undo_takes_back_what_an_agent_has_done_without_a_server(top: Path) -> None:
    """The files were noted before its prompt. It has changed some before the next server has read a word of it."""
    project = top / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    with run_place(top, ("after a line for the agent", 3)) as place:
        session = place.call("POST", f"/session?directory={project}", {})["id"]
        text = f"make {project / 'made.txt'} // allow touch x"
        place.call("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]})
        [request] = wait_for(
            lambda: place.call("GET", f"/permission?directory={project}"), TURN_S, lambda: (top / "log").read_text()[-3000:]
        )
        place.call("POST", f"/permission/{request['id']}/reply?directory={project}", {"reply": "once"})
        wait_for(
            lambda: session not in place.call("GET", f"/session/status?directory={project}"), TURN_S, "the turn does not end"
        )
        assert place.crashes == 1
        assert (project / "made.txt").exists()
        prompt = place.call("GET", f"/session/{session}/message")[0]["info"]["id"]
        place.call("POST", f"/session/{session}/revert", {"messageID": prompt})
        assert not (project / "made.txt").exists()


def test_an_answer_in_a_schema_is_asked_for_as_often_as_its_prompt_says(top: Path) -> None:
    """The server is killed when it is to ask again, and when it has."""
    with run_place(top, ("before a snapshot", 2), ("after a line for the agent", 1)) as place:
        session = place.call("POST", "/session", {})["id"]
        format_ = {"type": "json_schema", "schema": {"type": "integer"}, "retryCount": 1}
        body = {"parts": [{"type": "text", "text": "allow touch x"}], "format": format_}
        place.call("POST", f"/session/{session}/prompt_async", body)
        [request] = wait_for(lambda: place.call("GET", "/permission"), TURN_S, lambda: (top / "log").read_text()[-3000:])
        place.call("POST", f"/permission/{request['id']}/reply", {"reply": "once"})
        wait_for(lambda: session not in place.call("GET", "/session/status"), TURN_S, "the turn does not end")
        assert (place.crashes, place.lines()["session/prompt"]) == (2, 2), (top / "log").read_text()[-3000:]
        events = wait_for(lambda: (found := place.events(session))["turn.ended"] and found, TURN_S, "no end is stored")
        assert (events["turn.started"], events["turn.ended"], events["error"]) == (1, 1, 0), events


@pytest.mark.slow
def test_ten_thousand_lines_are_taken_up(top: Path) -> None:
    """The text goes on where it was, and comes once."""
    with run_place(top) as place:
        session = place.call("POST", "/session", {})["id"]
        text = "flood 10000 // allow touch x"
        place.call("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]})
        [request] = wait_for(lambda: place.call("GET", "/permission"), TURN_S, lambda: (top / "log").read_text()[-3000:])
        assert place.process is not None
        place.process.kill()
        assert place.call("GET", "/permission") == [request], (top / "log").read_text()[-3000:]
        place.call("POST", f"/permission/{request['id']}/reply", {"reply": "once"})
        wait_for(lambda: session not in place.call("GET", "/session/status"), TURN_S, "the turn does not end")
        messages = place.call("GET", f"/session/{session}/message")
        said = "".join(part["text"] for message in messages[1:] for part in message["parts"] if part["type"] == "text")
        assert said == "".join(f"{step} " for step in range(10_000)) + "done allow_once"


def test_work_of_the_server_itself_ends_with_it(top: Path) -> None:
    """An agent is told that its command was killed, and its turn goes on. An agent in the server ends; the log says so before."""
    with run_place(top) as place:
        mocked = place.call("POST", "/session", {})["id"]
        body = {"parts": [{"type": "text", "text": "hang"}], "model": {"providerID": "mock", "modelID": "default"}}
        place.call("POST", f"/session/{mocked}/prompt_async", body)
        log = top / "log"
        wait_for(lambda: "it runs in this server" in log.read_text(), TURN_S, lambda: log.read_text()[-3000:])
        [listed] = place.call("GET", "/v1/sessions")["sessions"]
        assert listed["outlives"] is False
        session = place.call("POST", "/session", {})["id"]
        text = "run touch begun; sleep 600"
        place.call("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]})
        wait_for((top / "begun").exists, TURN_S, lambda: (top / "log").read_text()[-3000:])
        assert place.process is not None
        place.process.kill()
        wait_for(lambda: session not in place.call("GET", "/session/status"), TURN_S, "the turn does not end")
        messages = place.call("GET", f"/session/{session}/message")
        said = "".join(part.get("text") or "" for message in messages for part in message["parts"])
        assert '"signal": "SIGKILL"' in said, said
        events = place.events(session)
        assert (events["turn.started"], events["turn.ended"], events["error"]) == (1, 1, 0), events
        assert mocked not in place.call("GET", "/session/status")
        errors = [message["info"].get("error") for message in place.call("GET", f"/session/{mocked}/message")]
        assert any(errors), errors


def test_a_turn_of_amp_goes_on(top: Path) -> None:
    """As it was recorded: current versions need an account. Its server is killed between two tools."""
    recording = recordings.read("amp/0.0.1774569934-g39e3ec/read_edit")
    said, script, go = top / "said.jsonl", top / "amp", top / "go"
    said.write_bytes(b"".join(encode(row.msg) + b"\n" for row in recording.rows if row.direction == "out"))
    words = (sys.executable, str(FAKE.with_name("amp_recorded.py")), str(said), "4", str(go), str(top / "starts"))
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    script.chmod(0o755)
    model = {"providerID": "amp", "modelID": "smart"}
    with run_place(top, SHIM_AMP_BIN=str(script), AMP_API_KEY="x", SHIM_DEFAULT_AGENT="amp") as place:
        session = place.call("POST", "/session", {})["id"]
        prompt = {"type": "text", "text": "[scene:read_edit] please"}
        place.call("POST", f"/session/{session}/prompt_async", {"parts": [prompt], "model": model})

        def tools() -> list[tuple[str, str]]:
            messages = place.call("GET", f"/session/{session}/message")
            parts = [part for message in messages for part in message["parts"] if part["type"] == "tool"]
            return [(part["tool"], part["state"]["status"]) for part in parts]

        wait_for(lambda: tools() == [("read", "completed")], TURN_S, lambda: f"{tools()}\n{(top / 'log').read_text()[-3000:]}")
        assert place.process is not None
        place.process.kill()
        assert session in place.call("GET", "/session/status"), (top / "log").read_text()[-3000:]
        go.touch()
        wait_for(lambda: session not in place.call("GET", "/session/status"), TURN_S, "the turn does not end")
        assert tools() == [("read", "completed"), ("edit", "completed")]
        events = place.events(session)
        assert (events["turn.started"], events["turn.ended"], events["error"]) == (1, 1, 0), events
        assert (top / "starts").read_text().count("start") == 1
