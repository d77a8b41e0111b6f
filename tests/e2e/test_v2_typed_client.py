"""`opencode-python-sdk` 0.2.3, a typed client of OpenCode 2.1.2: each operation of all its groups, with each answer and event in
its models. The SDK keeps what it does not know (`Unknown...` variants, fields beside the model); here both are failures.

Tests use one server and run in their order; the last one tells which operations nobody has asked for. A failed test ends the
server, and is tried again with a new one: what was asked and seen is kept beside them (`Record`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import opencode
import pydantic
import pytest
from opencode import Opencode, session_id_of
from opencode.types import ModelRef, SessionIdleEvent, SessionMessageAssistant, SessionMessageAssistantTool, SessionMessageIdle

from tools.contract2 import operations_of_sdk

from .support.bench import CLAUDE, MOCK, Bench, nightly
from .support.children import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240), pytest.mark.server(MOCK, *nightly(CLAUDE))]

TURN_S = 60
QUIET_S = 1.0
"""How long nothing may come after an idle."""
ENDS = ("session.execution.succeeded", "session.execution.failed", "session.execution.interrupted")
OURS = {
    ("SessionCompactionStartedEventData", "recent"),
    ("SessionCompactionEndedEventData", "recent"),
    ("ServerInfoPaths", "home"),
}
"""Fields beside the models, which clients of 2.0 read (`compat_fixtures/opencode2/contract_2.1.2.toml`)."""
OPEN = {"ModelSettings"}
"""Models of options that each provider has of its own."""
OUR_EVENTS = {"session.status"}
RECENT = re.compile("SessionMessageCompaction")
TERMINALS = "/api/experimental/persistent-pty"
LEFT_S = 0.3
"""How long a closing stream is read for events that nobody has taken."""


def complaints(value: object) -> list[str]:
    """What of a parsed answer or event is not in the SDK's models."""
    if isinstance(value, pydantic.BaseModel):
        name = type(value).__name__
        found = [f"{name}: {value!r}"[:300]] if name.startswith("Unknown") else []
        found += [
            f"{name} has {key} beside"
            for key in value.model_extra or ()
            if (name, key) not in OURS and name not in OPEN and not (key == "recent" and RECENT.match(name))
        ]
        return found + [one for key in type(value).model_fields for one in complaints(getattr(value, key))]
    if isinstance(value, Mapping):
        return [one for inner in value.values() for one in complaints(inner)]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [one for inner in value for one in complaints(inner)]
    data = getattr(value, "data", None)
    return complaints(data) if data is not None else []


class RecordingTransport(httpx.HTTPTransport):
    """Notes which operations are asked for."""

    def __init__(self, asked: set[str]) -> None:
        super().__init__()
        self._asked = asked

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._asked.add(f"{request.method} {request.url.path}")
        return super().handle_request(request)


@dataclass
class Record:
    """What the tests of one agent have asked, and the events that each of their servers has sent."""

    asked: set[str] = field(default_factory=set)
    streams: list[list[Any]] = field(default_factory=list)

    def stream(self) -> list[Any]:
        """A list for the events of a new server."""
        self.streams.append([])
        return self.streams[-1]


RECORDS: dict[str, Record] = {}
"""By agent. They outlive the fixtures, which a failed test takes with it."""


@dataclass
class TypedClient:
    """A client, the events of its server, and the record of its agent."""

    server: Bench
    client: Opencode
    events: Any
    record: Record
    seen: list[Any]

    def ok(self, value: Any) -> Any:
        """An answer, whole and in the models."""
        assert complaints(value) == []
        return value

    def unsupported_reason(self, call: Callable[[], Any]) -> str:
        """The reason of an operation that this server has not (501)."""
        with pytest.raises(opencode.NotImplementedServerError) as caught:
            call()
        body = caught.value.response.json()
        assert body["_tag"] == "UnsupportedError"
        assert len(body["message"]) > 30
        return str(body["message"])

    def session(self, **more: Any) -> str:
        return str(self.ok(self.client.session.create(**more)).id)

    def say(self, scene: str, mock: str) -> str:
        return self.server.say(scene, mock)

    def turn(self, session: str, text: str) -> str:
        """A prompt, waited for as the SDK's README does; how it ended."""
        with self.client.events.of_type(SessionIdleEvent).for_session(session) as idle:
            self.ok(self.client.session.prompt(session, text=text))
            event = idle.get(timeout=TURN_S)
            assert event.data.session_id == session
            with pytest.raises(TimeoutError):
                idle.get(timeout=QUIET_S)
        return str(self.ok(self.client.session.get(session)).outcome)

    def take(self) -> list[Any]:
        """The events that were sent since, which are kept. A new session's event tells that all before it have come."""
        last = self.session()
        fresh: list[Any] = []
        while session_id_of(fresh[-1] if fresh else None) != last:
            fresh.append(self.events.get(timeout=TURN_S))
            self.seen.append(fresh[-1])
        return fresh

    def take_what_is_left(self) -> None:
        """As `take`, of a server that may no longer answer."""
        with suppress(TimeoutError, StopIteration, opencode.OpencodeError):
            while True:
                self.seen.append(self.events.get(timeout=LEFT_S))

    def active(self) -> list[str]:
        """Sessions that are at work. `client.session.active()` fails in the SDK itself (0.2.3: `Any` is not defined)."""
        return list(self.client.get("/api/session/active")["data"])

    def tools(self, session: str) -> list[SessionMessageAssistantTool]:
        steps = [one for one in self.client.message.list(session) if isinstance(one, SessionMessageAssistant)]
        return [part for step in steps for part in step.content if isinstance(part, SessionMessageAssistantTool)]

    def texts(self, session: str) -> str:
        steps = [one for one in self.client.message.list(session) if isinstance(one, SessionMessageAssistant)]
        return "\n".join(getattr(part, "text", "") for step in steps for part in step.content)


@pytest.fixture(scope="module")
def typed_client(server: Bench) -> Iterator[TypedClient]:
    server.models()
    record = RECORDS.setdefault(server.agent, Record())
    client = Opencode(server.url, directory=str(server.place.project), timeout=TURN_S, transport=RecordingTransport(record.asked))
    with client, client.events.subscribe() as events:
        typed_client = TypedClient(server, client, events, record, record.stream())
        typed_client.seen.append(events.get(timeout=TURN_S))
        yield typed_client
        typed_client.take_what_is_left()


@pytest.fixture(autouse=True)
def fresh(typed_client: TypedClient) -> None:
    typed_client.server.place.reset()


def test_server_location_and_configuration(typed_client: TypedClient) -> None:
    client, ok = typed_client.client, typed_client.ok
    info = ok(client.server.info())
    assert info.version == opencode.API_VERSION
    code = ok(client.server.pair())
    assert ok(client.server.connect(code.code))
    here = ok(client.location.get())
    assert here.directory == str(typed_client.server.place.project)
    client.location.reload()
    ok(client.config.get())
    shell = ok(client.config.shells())[0].path
    client.config.update(shell=shell)
    ok(client.debug.location.list())
    client.debug.location.evict()


def test_agents_models_and_what_they_offer(typed_client: TypedClient) -> None:
    client, ok = typed_client.client, typed_client.ok
    agents = ok(client.agent.list()).data
    assert ok(client.agent.get(agents[0].id)).data == agents[0]
    ok(client.command.list())
    ok(client.skill.list())
    ok(client.reference.list())
    models = ok(client.model.list()).data
    assert typed_client.server.shim.provider in {one.provider_id for one in models}
    ok(client.model.default())
    provider = ok(client.provider.list()).data[0]
    assert ok(client.provider.get(provider.id)).data == provider
    ok(client.plugin.list())
    typed_client.unsupported_reason(client.plugin.check)
    typed_client.unsupported_reason(lambda: client.plugin.update(targets=["x"]))
    ok(client.mcp.list())
    ok(client.mcp.resource.catalog())
    typed_client.unsupported_reason(lambda: client.mcp.add("x", config={"type": "local", "command": ["true"]}))
    for name in ("remove", "connect", "disconnect"):
        typed_client.unsupported_reason(lambda name=name: getattr(client.mcp, name)("x"))
    ok(client.websearch.providers())
    typed_client.unsupported_reason(lambda: client.websearch.query(query="x"))
    typed_client.unsupported_reason(client.migration.v1.status)


def test_integrations_and_credentials(typed_client: TypedClient) -> None:
    client, ok = typed_client.client, typed_client.ok
    names = [one.id for one in ok(client.integration.list()).data]
    assert names
    ok(client.integration.get(names[0]))
    client.integration.connect.key(names[0], key="a-key-that-is-not-one")
    client.credential.activate(names[0])
    client.credential.remove(names[0])
    typed_client.unsupported_reason(client.credential.list)
    typed_client.unsupported_reason(lambda: client.credential.create(integration_id=names[0], value={"type": "key", "key": "x"}))
    typed_client.unsupported_reason(lambda: client.credential.update(names[0], label="x"))
    typed_client.unsupported_reason(lambda: client.integration.wellknown.add(url="https://example.org"))
    typed_client.unsupported_reason(lambda: client.integration.connect.external(names[0], method_id="x"))
    login = client.integration.oauth
    with pytest.raises(opencode.InvalidRequestError):
        login.connect(names[0], method_id="x")
    with pytest.raises(opencode.IntegrationAttemptNotFoundError):
        login.status(names[0], "x")
    with pytest.raises(opencode.IntegrationAttemptNotFoundError):
        login.cancel(names[0], "x")
    with pytest.raises(opencode.IntegrationAttemptNotFoundError):
        login.complete(names[0], "x", code="x")
    group = client.integration.command
    typed_client.unsupported_reason(lambda: group.connect(names[0], method_id="x"))
    typed_client.unsupported_reason(lambda: group.status(names[0], "x"))
    typed_client.unsupported_reason(lambda: group.cancel(names[0], "x"))


def test_voice_and_rpc_say_what_is_missing(typed_client: TypedClient) -> None:
    client = typed_client.client
    assert "voice model" in typed_client.unsupported_reason(
        lambda: client.voice.session(model="x", transport={"type": "websocket"})
    )
    with pytest.raises(opencode.RpcError) as caught:
        client.rpc.call("counter", "add", input={"amount": 2})
    assert "counter" in typed_client.ok(caught.value.error).message


def test_files_versions_and_working_trees(typed_client: TypedClient) -> None:
    client, ok, project = typed_client.client, typed_client.ok, typed_client.server.place.project
    ok(client.file.write(path="typed.txt", payload=b"written\n"))
    assert client.file.read("typed.txt") == b"written\n"
    assert "typed.txt" in [Path(one.path).name for one in ok(client.file.list()).data]
    assert ok(client.file.find(query="typed")).data
    with pytest.raises(opencode.ConflictError):
        client.vcs.init()
    ok(client.vcs.get())
    ok(client.vcs.base())
    assert "typed.txt" in str(ok(client.vcs.status()).data)
    ok(client.vcs.diff(mode="working"))
    assert "main" in str(ok(client.vcs.branch.list()).data)
    row = next(one for one in ok(client.project.list()) if one.canonical == str(project))
    assert ok(client.project.update(row.id, name="Typed")).name == "Typed"
    made = ok(client.worktree.create(project_id=row.id, name="typed"))
    client.worktree.refresh(project_id=row.id)
    assert made.directory in str(ok(client.worktree.list(project_id=row.id)))
    client.worktree.remove(project_id=row.id, directory=made.directory, force=True)


def test_terminals_and_commands(typed_client: TypedClient) -> None:
    client, ok = typed_client.client, typed_client.ok
    pty = ok(client.pty.create(command="/bin/sh")).data
    assert ok(client.pty.get(pty.id)).data.id == pty.id
    assert pty.id in [one.id for one in ok(client.pty.list()).data]
    ok(client.pty.update(pty.id, title="Typed", size={"rows": 30, "cols": 100}))
    ok(client.pty.connect.token(pty.id, x_opencode_ticket="1"))
    client.pty.remove(pty.id)
    shell = ok(client.shell.create(command="until [ -e go ]; do sleep 0.05; done; echo typed")).data
    assert shell.id in [one.id for one in ok(client.shell.list()).data]  # which lists commands that run
    (typed_client.server.place.project / "go").touch()
    wait_for(lambda: ok(client.shell.get(shell.id)).data.status == "exited", TURN_S, "the command does not end")
    assert "typed" in ok(client.shell.output(shell.id)).data.output
    client.shell.remove(shell.id)
    session, persistent = typed_client.session(), client.experimental.persistent_pty
    for call in (
        lambda: persistent.list(session),
        lambda: persistent.read(session),
        lambda: persistent.create(session, args=[], title="x", env={}),
        lambda: persistent.get("pty_x"),
        lambda: persistent.update("pty_x", size={"rows": 1, "cols": 1}),
        lambda: persistent.remove("pty_x"),
        lambda: persistent.snapshot("pty_x"),
        lambda: persistent.connect_token("pty_x", x_opencode_ticket="1"),
        persistent.shutdown,
        persistent.handoff,
    ):
        typed_client.unsupported_reason(call)


def test_a_turn_is_waited_for_by_its_idle(typed_client: TypedClient) -> None:
    """As the README says it; one idle, and the answer is there when it comes."""
    session = typed_client.session(title="Typed")
    assert typed_client.turn(session, typed_client.say("[scene:text] hello", "echo You said: hello")) == "succeeded"
    assert "You said: hello" in typed_client.texts(session)
    told = [event.type for event in typed_client.take() if getattr(event.data, "session_id", "") == session]
    assert [kind for kind in told if kind in (*ENDS, "session.idle")] == ["session.execution.succeeded", "session.idle"]
    assert told[-1] == "session.idle"


def test_run_in_one_call(typed_client: TypedClient) -> None:
    result = typed_client.client.session.run(typed_client.say("[scene:text] once", "echo You said: once"), timeout=TURN_S)
    assert (result.outcome, result.text, result.error) == ("succeeded", "You said: once", None)
    typed_client.ok(result.messages)


def test_sessions_are_made_listed_changed_and_removed(typed_client: TypedClient) -> None:
    client, ok = typed_client.client, typed_client.ok
    rules = [{"action": "shell", "resource": "git *", "effect": "allow"}]
    session = typed_client.session(title="One", metadata={"a": 1}, permissions=rules)
    child = typed_client.session(parent_id=session)
    assert [one.id for one in ok(client.session.list(parent_id=session))] == [child]
    client.session.update(session, title="Two", metadata={"b": 2}, archived=True)
    assert [one.id for one in ok(client.session.list(archived=True, limit=1))] == [session]
    assert session not in [one.id for one in client.session.list(archived=False)]
    first = typed_client.server.api.get(f"/session/{session}")["time"]["archived"]
    assert isinstance(first, int)
    assert first == ok(client.session.get(session)).time.archived
    client.session.update(session, archived=False)
    assert ok(client.session.get(session)).time.archived is None
    client.session.switch_agent(session, agent="plan")
    client.session.switch_agent(session, agent="build")
    provider = typed_client.server.shim.provider
    client.session.switch_model(session, model=ModelRef(id=typed_client.server.models()[0], provider_id=provider))
    client.session.environment(session, variables={"GREETING": "good day"})
    entry = client.session.instructions.entry
    entry.put(session, "style", value="Speak like a sailor.")
    assert [one.key for one in ok(entry.list(session))] == ["style"]
    entry.remove(session, "style")
    other = typed_client.server.place.project / "elsewhere"
    other.mkdir()
    client.session.move(session, directory=str(other))
    assert ok(client.session.get(session)).location.directory == str(other)
    client.session.remove(child)
    with pytest.raises(opencode.SessionNotFoundError) as caught:
        client.session.get(child)
    assert caught.value.error.session_id == child
    kinds = [event.type for event in typed_client.take()]
    assert kinds.count("session.archived") == kinds.count("session.unarchived") == 1


def test_the_typed_client_reads_a_conversation(typed_client: TypedClient) -> None:
    client, ok = typed_client.client, typed_client.ok
    session = typed_client.session()
    typed_client.turn(session, typed_client.say("[scene:text] first", "echo first"))
    typed_client.turn(session, typed_client.say("[scene:text] second", "echo second"))
    idle = ok(list(client.message.list(session, type="idle")))
    assert [type(one) for one in idle] == [SessionMessageIdle] * 2
    page = ok(client.message.list(session, order="asc", limit=1))
    everything = ok(list(page))
    assert ok(client.session.message.get(session, everything[0].id)) == everything[0]
    ok(client.session.context(session))
    ok(client.session.diff(session))
    assert typed_client.active() == []
    client.session.view(session, idle=ok(client.session.get(session)).time.idle)
    with client.session.log(session) as log:
        items = ok(list(log))
    assert items[-1].type == "log.synced"
    assert "session.idle" not in [item.type for item in items]
    ok(client.session.stats(tools="detail"))
    before = next(one for one in reversed(everything) if one.type == "user")
    fork = ok(client.session.fork(session, before=before.id))
    assert [one.type for one in client.message.list(fork.id)].count("user") == 1
    document = ok(client.session.export(session))
    client.session.remove(session)
    info, messages = document.info.to_dict(), [one.to_dict() for one in document.messages]
    assert info["time"]["created"] > 1_700_000_000_000, "milliseconds, and no text"
    assert ok(client.session.import_(info=info, messages=messages)).id == session


def test_prompts_that_wait(typed_client: TypedClient) -> None:
    client, ok = typed_client.client, typed_client.ok
    session = typed_client.session()
    with client.events.of_type(SessionIdleEvent).for_session(session) as idle:
        client.session.prompt(session, text=typed_client.say("[scene:hang] think", "hang"))
        wait_for(lambda: session in typed_client.active(), TURN_S, "nothing runs")
        queued = ok(client.session.prompt(session, text=typed_client.say("[scene:text] later", "echo later"), delivery="queue"))
        assert queued.id in [one.id for one in ok(client.session.inbox.list(session))]
        client.session.inbox.update(session, queued.id, delivery="steer")
        client.session.inbox.cancel(session, queued.id)
        if typed_client.server.real:
            client.session.background(session)
        else:
            with pytest.raises(opencode.InvalidRequestError):
                client.session.background(session)
        ok(client.session.interrupt(session))
        idle.get(timeout=TURN_S)
        with pytest.raises(TimeoutError):
            idle.get(timeout=QUIET_S)
    client.session.wait(session)
    assert ok(client.session.get(session)).outcome == "interrupted"


def test_the_typed_client_writes_into_a_conversation(typed_client: TypedClient) -> None:
    client, ok = typed_client.client, typed_client.ok
    skill = typed_client.server.place.project / ".claude" / "skills" / "greet"
    skill.mkdir(parents=True, exist_ok=True)
    (skill / "SKILL.md").write_text("---\nname: greet\ndescription: Greets.\n---\necho You said: greetings\n")
    session = typed_client.session()
    ok(client.session.synthetic(session, text=typed_client.say("[scene:text] told", "echo told"), description="A note"))
    client.session.wait(session)
    assert "greet" in [one.id for one in ok(client.skill.list()).data]
    client.session.skill(session, id="greet")
    client.session.wait(session)
    with client.events.of_type(SessionIdleEvent).for_session(session) as idle:
        client.session.shell(session, command="echo by hand")
        idle.get(timeout=TURN_S)
    commands = [one.name for one in client.command.list().data]
    assert commands
    client.session.command(session, name="init" if "init" in commands else commands[0], text="")
    client.session.wait(session)
    ok(client.session.compact(session))
    client.session.wait(session)
    kinds = {one.type for one in ok(list(client.message.list(session)))}
    assert {"synthetic", "skill", "shell", "idle"} <= kinds
    made = ok(client.session.generate(session, prompt=typed_client.say("[scene:text] a title", "echo a title")))
    assert "a title" in made.text
    assert "another" in ok(client.generate.text(prompt=typed_client.say("[scene:text] another", "echo another"))).text


def test_permissions(typed_client: TypedClient) -> None:
    client, ok = typed_client.client, typed_client.ok
    session = typed_client.session()
    with client.events.of_type(SessionIdleEvent).for_session(session) as idle:
        client.session.prompt(session, text=typed_client.say("[scene:bash:touch made.txt] make it", "permission"))
        asked = wait_for(lambda: client.permission.list(session), TURN_S, "nothing is asked")[0]
        assert ok(client.permission.get(session, asked.id)) == asked
        assert asked.id in [one.id for one in ok(client.permission.request_.list()).data]
        client.permission.reply(session, asked.id, decision="always")
        idle.get(timeout=TURN_S)
    assert [tool.state.status for tool in typed_client.tools(session)] == ["completed"]
    ok(client.permission.create(session, action="shell", resources=["touch made.txt"]))
    saved = ok(client.permission.saved.list())[0]
    changed = ok(client.permission.saved.update(saved.id, resource="git fetch *"))
    assert (changed.id, changed.resource) == (saved.id, "git fetch *")
    client.permission.saved.remove(saved.id)
    with pytest.raises(opencode.PermissionSavedNotFoundError) as caught:
        client.permission.saved.update(saved.id, resource="x")
    assert ok(caught.value.error).id == saved.id


def test_forms(typed_client: TypedClient) -> None:
    client, ok = typed_client.client, typed_client.ok
    session = typed_client.session()
    with client.events.of_type(SessionIdleEvent).for_session(session) as idle:
        client.session.prompt(session, text=typed_client.say("[scene:question] ask", "question"))
        form = wait_for(lambda: client.session.form.list(session), TURN_S, "nothing is asked")[0]
        assert form.id in [one.id for one in ok(client.form.list()).data]
        ok(client.session.form.get(session, form.id))
        client.session.form.cancel(session, form.id, message="not now")
        idle.get(timeout=TURN_S)
    mine = ok(client.session.form.create(session, title="Who?", fields=[{"key": "name", "type": "string", "title": "Name"}]))
    client.session.form.reply(session, mine.id, answer={"name": "Ann"})
    assert ok(client.session.form.get(session, mine.id)).state.status == "answered"


def test_an_undo(typed_client: TypedClient) -> None:
    client, ok = typed_client.client, typed_client.ok
    session = typed_client.session()
    typed_client.turn(session, typed_client.say("[scene:text] one", "echo one"))
    prompt = next(one for one in client.message.list(session, order="asc") if one.type == "user")
    ok(client.session.revert.stage(session, message_id=prompt.id))
    assert ok(client.session.get(session)).revert.message_id == prompt.id
    client.session.revert.clear(session)
    ok(client.session.revert.stage(session, message_id=prompt.id, files=False))
    client.session.revert.commit(session)
    assert [one for one in client.message.list(session) if one.type == "user"] == []


def test_an_unknown_model_shows_the_prompt_and_what_to_do(typed_client: TypedClient) -> None:
    client, ok, provider = typed_client.client, typed_client.ok, typed_client.server.shim.provider
    session = typed_client.session(model=ModelRef(id="no-such-model", provider_id=provider))
    assert typed_client.turn(session, typed_client.say("[scene:text] asked before", "echo asked before")) == "failed"
    prompt, idle = ok(list(client.message.list(session, order="asc")))
    assert (prompt.type, idle.type, idle.outcome) == ("user", "idle", "failed")
    assert f"{provider}/no-such-model" in idle.error.message
    assert "send the next prompt" in idle.error.message
    client.session.switch_model(session, model=ModelRef(id=typed_client.server.models()[0], provider_id=provider))
    assert typed_client.turn(session, typed_client.say("[scene:text] go on", "echo go on")) == "succeeded"


def test_every_event_is_in_the_models_and_each_end_has_one_idle(typed_client: TypedClient) -> None:
    """Of all that was told in the tests before. A server that a failed test has ended may have ended within a turn."""
    typed_client.take()
    streams = typed_client.record.streams
    assert sum(map(len, streams)) > 100
    wrong = [one for seen in streams for event in seen if event.type not in OUR_EVENTS for one in complaints(event)]
    assert wrong == []
    for seen in streams:
        sessions = {event.data.session_id for event in seen if event.type in ENDS}
        for session in sessions:
            events = [event.type for event in seen if session_id_of(event) == session]
            turns = [kind for kind in events if kind in (*ENDS, "session.execution.started", "session.idle")]
            cut = len(turns) % 3
            assert cut == 0 or seen is not typed_client.seen
            for place in range(0, len(turns) - cut, 3):
                start, end, idle = turns[place : place + 3]
                assert (start, end in ENDS, idle) == ("session.execution.started", True, "session.idle")


def test_every_operation_was_asked_for(typed_client: TypedClient) -> None:
    def is_asked(operation: str) -> bool:
        pattern = re.compile(re.escape(operation).replace(re.escape("{}"), "[^/]+").replace(re.escape("*"), ".+"))
        return any(pattern.fullmatch(one) for one in typed_client.record.asked)

    assert sorted(one for one in operations_of_sdk() if not is_asked(one)) == []
