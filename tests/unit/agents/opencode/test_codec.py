"""OpenCode's codec: what each command writes, and what it does with answers and events that go wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.dev.record.driver import counting_ids
from universal.agents.opencode.codec import KiloCodec, OpenCodeCodec
from universal.agents.opencode.spec import OPENCODE
from universal.agents.opencode.wire import delay_ms, model_ref, read_catalogue
from universal.codec import Attachment, Fact, Interrupt, Output, PermissionReply, Prompt, QuestionReply, Signal, WriteLine
from universal.events import EventType
from universal.launch import Exit, LaunchOptions
from universal.opencode import message_id
from universal.permissions import Action, Rule
from universal.setup import DirectorySetup, McpServer
from universal.turn import Input

CONFIG_CONTENT = "OPENCODE_CONFIG_CONTENT"
SESSION = "ses_dfff96fbbffeecWh3aiTCkjkr5"
EVENT = "evt_200068f2e001Lirsq1vNpcveCn"


def requests(outputs: list[Output]) -> list[dict[str, Any]]:
    return [json.loads(out.data) for out in outputs if isinstance(out, WriteLine)]


def signals(outputs: list[Output]) -> list[Signal]:
    return [out for out in outputs if isinstance(out, Signal)]


class Server:
    """The other side of a codec: answers and events by hand."""

    def __init__(self, *, resume: bool = False) -> None:
        self.codec = OpenCodeCodec(counting_ids())
        id_ = SESSION if resume else None
        self.launch = self.codec.launch(LaunchOptions("/bin/opencode", "/p", native_session_id=id_, resume=resume))
        self.asked = requests(self.codec.start())

    def answer(self, request: dict[str, Any], status: int = 200, body: Any = True) -> list[Output]:
        return self.codec.receive(json.dumps({"id": request["id"], "status": status, "body": body}).encode())

    def event(self, kind: str, session: str = SESSION, **properties: Any) -> list[Output]:
        event = {"id": EVENT, "type": kind, "properties": {"sessionID": session, **properties}}
        return self.codec.receive(json.dumps({"event": event}).encode())

    def status(self, kind: str, session: str = SESSION) -> list[Output]:
        return self.event("session.status", session, status={"type": kind})

    def assistant(self, id_: str = "msg_2", **more: Any) -> list[Output]:
        info = {"id": id_, "role": "assistant", "time": {"created": 1}, "providerID": "p", "modelID": "m", **more}
        return self.event("message.updated", info=info)

    def start_prompt(self, prompt: Prompt | None = None) -> dict[str, Any]:
        """A prompt that has begun; the request that carried it."""
        self.event("server.connected", "")
        [create] = requests(self.codec.send(prompt or Prompt(key="k", text="hi")))
        [sent] = requests(self.answer(create, body={"id": SESSION}))
        self.answer(sent, 204, None)
        self.status("busy")
        self.assistant()
        return sent


def test_launch_and_start() -> None:
    server = Server()
    assert server.launch.argv == ("/bin/opencode", "serve", "--hostname", "127.0.0.1")
    assert [request["path"] for request in server.asked] == ["/config/providers", "/config", "/command", "/agent"]
    assert OPENCODE.program.transport == "http"


OWN = McpServer("opencode-shim", url="http://127.0.0.1:1/mcp", headers={"Authorization": "Bearer t"}, timeout_ms=9)
OWN_ROW = {"type": "remote", "url": OWN.url, "headers": {"Authorization": "Bearer t"}, "enabled": True, "timeout": 9}


@pytest.mark.parametrize(
    ("content", "trusted", "then"),
    [
        ("", True, {"mcp": {"opencode-shim": OWN_ROW}}),
        ("", False, {"instructions": ["/p/AGENTS.md"], "mcp": {"opencode-shim": OWN_ROW}}),
        ('{"mcp": {"x": {}}, "model": "m"}', True, {"mcp": {"x": {}, "opencode-shim": OWN_ROW}, "model": "m"}),
        ("{spoiled", True, None),
    ],
)
def test_our_tools_stand_in_the_configuration_of_a_process(content: str, trusted: bool, then: object) -> None:
    """And no other MCP server of the set-up: OpenCode reads those itself."""
    setup = DirectorySetup((McpServer("far", url="http://far"), OWN), has_shim=True)
    options = LaunchOptions("/bin/opencode", "/p", setup=setup, project_settings=trusted, environment={CONFIG_CONTENT: content})
    value = OpenCodeCodec(counting_ids()).launch(options).env.get(CONFIG_CONTENT)
    assert (None if value is None else json.loads(value)) == then


def test_kilo_has_its_own_variables_all_servers_and_all_rules() -> None:
    """It does not read OpenCode's configuration."""
    near = McpServer("near", ("serve-near", "-v"), environment={"KEY": "k"}, timeout_ms=5)
    setup = DirectorySetup((near, OWN), has_shim=True)
    codec = KiloCodec(counting_ids())
    launch = codec.launch(LaunchOptions("/bin/kilo", "/p", setup=setup, project_settings=False))
    assert not [name for name in launch.env if name.startswith("OPENCODE_")]
    assert (launch.env["KILO_DISABLE_PROJECT_CONFIG"], launch.env["KILO_SERVER_USERNAME"]) == ("1", "opencode")
    servers = json.loads(launch.env["KILO_CONFIG_CONTENT"] or "")["mcp"]
    row = {"type": "local", "command": ["serve-near", "-v"], "environment": {"KEY": "k"}, "enabled": True, "timeout": 5}
    assert (servers["near"], servers[OWN.name]["type"]) == (row, "remote")
    asked = Rule("edit", "*", "deny")
    [*_, create] = requests(codec.send(Prompt("p1", "hi", rules=(asked,), session_rules=())))
    assert create["body"]["permission"] == [asked.to_json()]


def test_a_spinner_of_kilo_is_no_text() -> None:
    server = Server()
    server.start_prompt()
    server.assistant()
    part = {"id": "prt_1", "messageID": "msg_2", "type": "text", "text": "Initializing", "synthetic": True}
    assert server.event("message.part.updated", part={**part, "metadata": {"kilocode.lifecycle": "transient"}}) == []
    assert server.event("message.part.updated", part=part) != []


def test_kilos_agent_code_is_build() -> None:
    codec = KiloCodec(counting_ids())
    agents = [{"name": "ask", "mode": "primary"}, {"name": "code", "mode": "primary"}]
    bodies = {"/config/providers": {"providers": []}, "/agent": agents}
    for asked in requests(codec.start()):
        answer = {"id": asked["id"], "status": 200, "body": bodies.get(asked["path"], {})}
        codec.receive(json.dumps(answer).encode())
    assert codec.catalogue is not None
    assert [mode.id for mode in codec.catalogue.modes] == ["build", "ask"]


def test_the_catalogue_has_all_models_of_all_providers() -> None:
    server = Server()
    model = {"id": "claude/sonnet", "name": "Sonnet", "limit": {"context": 9, "output": 0}, "variants": {"low": {}, "high": {}}}
    cost = {"input": 3, "output": 15, "cache": {"read": 0.3, "write": "much"}}
    models = {"claude/sonnet": model | {"cost": cost}, "claude/old": {"id": "claude/old"}}
    providers = {"providers": [{"id": "anthropic", "name": "Anthropic", "models": models}], "default": {}}
    server.answer(server.asked[0], body=providers)
    assert server.codec.catalogue is None
    server.answer(server.asked[1], body={"model": "anthropic/claude/sonnet"})
    server.answer(server.asked[2], body=[{"name": "init", "description": "d", "hints": ["$ARGUMENTS"]}])
    agents = [{"name": "review", "mode": "primary", "description": "Reviews."}, {"name": "build", "mode": "primary"}]
    agents += [{"name": "title", "mode": "primary", "hidden": True}, {"name": "explore", "mode": "subagent"}]
    server.answer(server.asked[3], body=[*agents, {"name": "docs", "mode": "all"}])
    catalogue = server.codec.catalogue
    assert catalogue is not None
    assert catalogue.default_model == catalogue.models[0].id == "anthropic/claude/sonnet"
    assert (catalogue.models[0].variants, catalogue.models[0].context, catalogue.models[0].output) == (("low", "high"), 9, None)
    assert [model.price for model in catalogue.models[:2]] == [(3, 15, 0.3, 0), None]
    assert [command.name for command in catalogue.commands] == ["init"]
    assert [(mode.id, mode.native) for mode in catalogue.modes] == [("build", "build"), ("review", "review"), ("docs", "docs")]
    assert model_ref(catalogue.default_model) == {"providerID": "anthropic", "modelID": "claude/sonnet"}


def test_unreadable_providers_are_an_error() -> None:
    server = Server()
    [fact] = server.answer(server.asked[0], 500, {"name": "UnknownError", "data": {"message": "bad config"}})
    assert isinstance(fact, Fact)
    assert fact.type is EventType.ERROR
    assert fact.data.message == "bad config"


def test_a_prompt_makes_the_session_first() -> None:
    image = Attachment(mime="image/png", base64="AAAA", filename="a.png")
    file = Attachment(mime="text/plain", path="/p/a b.txt")
    prompt = Prompt("k", "hi\nthere", (image, file), "p/m/x", "high", "plan", "be brief")
    server = Server()
    server.event("server.connected", "")
    [create] = requests(server.codec.send(prompt))
    assert (create["method"], create["path"], create["body"]) == ("POST", "/session", {"title": "hi"})
    [sent] = requests(server.answer(create, body={"id": SESSION}))
    assert sent["path"] == f"/session/{SESSION}/prompt_async"
    assert sent["body"] == {
        "parts": [
            {"type": "text", "text": "hi\nthere"},
            {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA", "filename": "a.png"},
            {"type": "file", "mime": "text/plain", "url": "file:///p/a%20b.txt"},
        ],
        "messageID": message_id("k", EVENT),
        "model": {"providerID": "p", "modelID": "m/x"},
        "variant": "high",
        "agent": "plan",
        "system": "be brief",
    }
    assert server.codec.native_session_id == SESSION


def test_a_command_of_its_own_is_run_as_one() -> None:
    server = Server(resume=True)
    for request, body in zip(server.asked, ({"providers": []}, {}, [{"name": "init"}], []), strict=True):
        server.answer(request, body=body)
    [sent] = requests(server.codec.send(Prompt("k", "/init the tests", model="p/m")))
    assert sent["path"].endswith("/command")
    assert (sent["body"]["command"], sent["body"]["arguments"], sent["body"]["model"]) == ("init", "the tests", "p/m")
    [sent] = requests(server.codec.send(Prompt("l", "/other thing")))
    assert sent["path"].endswith("/prompt_async")


def test_a_lost_conversation() -> None:
    server = Server(resume=True)
    [sent] = requests(server.codec.send(Prompt("k", "hi")))
    error = {"name": "NotFoundError", "data": {"message": f"Session not found: {SESSION}"}}
    fact, signal = server.answer(sent, 404, error)
    assert isinstance(fact, Fact)
    assert fact.data.code == "session_not_found"
    assert isinstance(signal, Signal)
    assert (signal.input, signal.error["code"]) == (Input.FAILED, "session_not_found")


def test_a_refused_prompt_fails_the_turn() -> None:
    server = Server(resume=True)
    [sent] = requests(server.codec.send(Prompt("k", "hi")))
    [signal] = signals(server.answer(sent, 0, {"message": "connection refused"}))
    assert signal.input is Input.FAILED
    assert "connection refused" in signal.error["message"]


def test_done_comes_with_idle_once() -> None:
    server = Server()
    server.start_prompt()
    tokens = {"input": 3, "output": 2, "reasoning": 0, "cache": {"read": 1, "write": 0}}
    assert signals(server.assistant(finish="stop", tokens=tokens, cost=0.5, time={"created": 1, "completed": 2})) == []
    server.status("busy")
    [signal] = signals(server.status("idle"))
    assert signal.input is Input.DONE
    usage = {"input": 3, "output": 2, "reasoning": 0, "cache_read": 1, "cache_write": 0}
    assert signal.metadata == {"usage": usage, "cost": 0.5, "anchor": "msg_2"}
    assert server.event("session.idle") == []
    assert server.status("idle") == []
    assert server.event("session.updated", info={}) == []


def test_the_first_idle_after_an_error_is_too_early() -> None:
    server = Server()
    server.start_prompt()
    error = {"name": "APIError", "data": {"message": "no", "statusCode": 400, "isRetryable": False}}
    assert signals(server.event("session.error", error=error)) == []
    assert signals(server.status("idle")) == []
    out = server.assistant(error=error, time={"created": 1, "completed": 2})
    assert [f.data.code for f in out if isinstance(f, Fact) and f.type is EventType.ERROR] == ["APIError"]
    assert [s.input for s in signals(out)] == [Input.FAILED]
    assert signals(server.status("idle")) == []


def test_an_abort_before_the_session_is_there() -> None:
    server = Server()
    [create] = requests(server.codec.send(Prompt("k", "hi")))
    assert server.codec.send(Interrupt()) == []
    out = server.answer(create, body={"id": SESSION})
    assert requests(out) == []
    assert [s.aborted for s in signals(out)] == [True]


def test_an_abort_before_the_prompt_has_begun() -> None:
    server = Server(resume=True)
    [sent] = requests(server.codec.send(Prompt("k", "hi")))
    server.answer(sent, 204, None)
    assert server.codec.send(Interrupt()) == []
    assert signals(server.status("idle")) == []
    assert [r["path"] for r in requests(server.status("busy"))] == [f"/session/{SESSION}/abort"]
    [signal] = signals(server.status("idle"))
    assert signal.aborted


def test_an_abort_of_nothing() -> None:
    assert Server(resume=True).codec.send(Interrupt()) == []


@pytest.mark.parametrize(
    ("decision", "message", "body"),
    [
        ("accept", None, {"reply": "once"}),
        ("accept_for_session", None, {"reply": "once"}),
        ("reject", None, {"reply": "reject"}),
        ("reject", "use printf", {"reply": "reject", "message": "use printf"}),
    ],
)
def test_replies_to_a_permission(decision: Any, message: str | None, body: Any) -> None:
    server = Server()
    server.start_prompt()
    [fact] = server.event("permission.asked", id="per_1", permission="bash", patterns=["ls"], always=["ls *"], metadata={})
    assert isinstance(fact, Fact)
    assert fact.data.metadata["patterns"] == ["ls"]
    reply = PermissionReply(fact.data.permission_id, decision, message)
    out = server.codec.send(reply)
    assert [(r["path"], r["body"]) for r in requests(out)] == [("/permission/per_1/reply", body)]
    assert [f.data.status for f in out if isinstance(f, Fact)] == [decision]
    assert server.event("permission.replied", requestID="per_1", reply=body["reply"]) == []
    assert server.codec.send(reply) == []


def test_replies_to_a_question() -> None:
    server = Server()
    server.start_prompt()
    questions = [{"question": "Which?", "header": "h", "options": [{"label": "Red", "description": ""}]}]
    [first] = server.event("question.asked", id="que_1", questions=questions)
    [second] = server.event("question.asked", id="que_2", questions=questions)
    assert isinstance(first, Fact)
    assert isinstance(second, Fact)
    out = server.codec.send(QuestionReply(first.data.question_id, [["Red"]]))
    assert [(r["path"], r["body"]) for r in requests(out)] == [("/question/que_1/reply", {"answers": [["Red"]]})]
    out = server.codec.send(QuestionReply(second.data.question_id, None))
    assert [r["path"] for r in requests(out)] == ["/question/que_2/reject"]


def test_open_items_are_closed_at_an_abort() -> None:
    server = Server()
    server.start_prompt()
    part = {"id": "prt_1", "messageID": "msg_2", "type": "tool", "tool": "bash", "callID": "c"}
    server.event("message.part.updated", part={**part, "state": {"status": "pending", "input": {}, "raw": ""}})
    server.event("permission.asked", id="per_1", permission="bash", tool={"callID": "c", "messageID": "msg_2"})
    assert [r["path"].rsplit("/", 1)[1] for r in requests(server.codec.send(Interrupt()))] == ["abort"]
    server.status("idle")
    out = server.assistant(error={"name": "MessageAbortedError", "data": {}}, time={"created": 1, "completed": 2})
    kinds = [f.type for f in out if isinstance(f, Fact)]
    assert EventType.PERMISSION_RESOLVED in kinds
    assert [s.aborted for s in signals(out)] == [True]
    assert server.codec.eof(Exit(code=0)) == []


def test_a_part_before_its_message_makes_a_stub() -> None:
    server = Server()
    server.start_prompt()
    part = {"id": "prt_9", "messageID": "msg_9", "type": "text", "text": "early", "time": {"start": 1}}
    out = server.event("message.part.updated", part=part)
    assert [f.type for f in out if isinstance(f, Fact)] == [EventType.ITEM_STARTED, EventType.ITEM_DELTA]
    [fact] = server.assistant("msg_9", finish="stop", time={"created": 1, "completed": 2})
    assert isinstance(fact, Fact)
    assert [p.text for p in fact.data.item.content] == ["early"]


def test_the_end_of_the_process_closes_everything() -> None:
    server = Server()
    server.start_prompt()
    server.event("message.part.delta", messageID="msg_2", partID="p", field="text", delta="half")
    [fact] = server.codec.eof(Exit(code=None, signal=9))
    assert isinstance(fact, Fact)
    assert (fact.data.item.status, fact.data.item.content[0].text) == ("failed", "half")


def test_work_without_a_prompt_is_a_turn() -> None:
    server = Server(resume=True)
    assert [s.input for s in signals(server.status("busy"))] == [Input.ACTIVITY]
    assert [s.input for s in signals(server.status("idle"))] == [Input.DONE]


def test_unknown_things_are_reported_and_counted() -> None:
    server = Server()
    server.start_prompt()
    for line in (b"nonsense", b"[]", b'{"event": {"type": "new.thing"}}'):
        [fact] = server.codec.receive(line)
        assert isinstance(fact, Fact)
        assert fact.type is EventType.UNPARSED
    assert server.codec.counters()["unparsed:new.thing"] == 1


def test_events_of_other_sessions_are_left_alone() -> None:
    server = Server()
    server.start_prompt()
    assert server.status("idle", "ses_other") == []
    assert server.event("session.created", "ses_other", info={"id": "ses_other"}) == []


@pytest.mark.parametrize(("next_ms", "attempt", "wait"), [(1795296755758 % 2**36 + 2000, 1, 2000), (0, 3, 8000)])
def test_delays(next_ms: int, attempt: int, wait: int) -> None:
    event = f"evt_{(1795296755758 << 12) % 2**48:012x}rest"
    assert delay_ms(next_ms, event, attempt) == wait


def test_the_model_that_opencode_chose_is_always_accepted() -> None:
    assert read_catalogue(None, None, None, None) == OPENCODE.abilities.catalogue
    assert model_ref(OPENCODE.abilities.catalogue.default_model) is None


WORDS = (
    "id type sessionID info part role time completed messageID partID state status tool callID input metadata sessionId error "
    "name data message tokens cache questions options requestID answers todos parentID text delta field patterns"
)
KEYS = st.sampled_from(WORDS.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(OpenCodeCodec.HANDLERS)), st.dictionaries(KEYS, JSON, max_size=5)),
        min_size=1,
        max_size=6,
    )
)
def test_hostile_events_never_raise(events: list[tuple[str, Any]]) -> None:
    server = Server()
    server.start_prompt()
    for kind, properties in events:
        event = {"id": EVENT, "type": kind, "properties": {**properties, "sessionID": SESSION}}
        server.codec.receive(json.dumps({"event": event}).encode())
    server.codec.eof(Exit(code=1))


@given(JSON, st.integers(), st.sampled_from(["r1", "r2", "r3", "r4", "r9"]))
def test_hostile_answers_never_raise(body: Any, status: int, id_: str) -> None:
    server = Server()
    server.codec.send(Prompt("k", "hi"))
    server.codec.receive(json.dumps({"id": id_, "status": status, "body": body}).encode())
    server.codec.eof(Exit(code=1))


# --- after an undo -----------------------------------------------------------------------------------------


def undone() -> tuple[OpenCodeCodec, Server, dict[str, Any]]:
    """A conversation to be taken up after msg_2, a prompt for it, and the request that it waits for."""
    server = Server()
    options = LaunchOptions("/bin/opencode", "/p", native_session_id=SESSION, resume=True, resume_at="msg_2")
    server.codec.launch(options)
    [history] = requests(server.codec.send(Prompt(key="k", text="hi")))
    assert (history["method"], history["path"]) == ("GET", f"/session/{SESSION}/message")
    return server.codec, server, history


MESSAGES = [{"info": {"id": f"msg_{number}"}, "parts": []} for number in range(1, 5)]


def test_undone_messages_are_deleted_before_the_prompt() -> None:
    codec, server, history = undone()
    [last] = requests(server.answer(history, body=MESSAGES))
    assert (last["method"], last["path"]) == ("DELETE", f"/session/{SESSION}/message/msg_4")
    [next_] = requests(server.answer(last))
    assert next_["path"].endswith("/message/msg_3")
    [prompt] = requests(server.answer(next_, 404, None))
    assert prompt["path"].endswith("/prompt_async")
    server.status("busy")
    server.assistant("msg_9", time={"created": 1, "completed": 2})
    server.status("idle")
    look, again = requests(codec.send(Prompt(key="k2", text="more")))
    assert (look["method"], again["path"].rpartition("/")[2]) == ("GET", "prompt_async"), "nothing is deleted again"


@pytest.mark.parametrize("body", [MESSAGES[:1], {"name": "UnknownError"}])
def test_a_lost_position_makes_the_server_start_over(body: Any) -> None:
    _, server, history = undone()
    [signal] = signals(server.answer(history, body=body))
    assert signal.error is not None
    assert signal.error["code"] == "session_not_found"


def test_a_version_that_deletes_no_messages_makes_the_server_start_over() -> None:
    _, server, history = undone()
    [delete] = requests(server.answer(history, body=MESSAGES))
    outputs = server.answer(delete, 500, None)
    assert (signals(outputs)[0].error or {})["code"] == "session_not_found"
    assert requests(outputs) == []


def test_an_abort_while_it_deletes_sends_no_prompt() -> None:
    codec, server, history = undone()
    assert codec.send(Interrupt()) == []
    outputs = server.answer(history, body=MESSAGES[:2])
    assert requests(outputs) == []
    assert signals(outputs)[0].aborted


# --- permission rules -------------------------------------------------------------------------------------

DENY = Rule("bash", "rm *", "deny")
DENY_JSON = {"permission": "bash", "pattern": "rm *", "action": "deny"}


def test_a_new_session_has_the_rules_of_ours() -> None:
    server = Server()
    server.event("server.connected", "")
    [create] = requests(server.codec.send(Prompt(key="k", text="hi", session_rules=(DENY,))))
    assert create["body"]["permission"] == [DENY_JSON]


def test_rules_that_changed_are_set_before_the_prompt() -> None:
    server = Server()
    server.start_prompt()
    server.status("idle")
    [patch] = requests(server.codec.send(Prompt(key="k2", text="more", session_rules=(DENY,))))
    assert (patch["method"], patch["path"], patch["body"]) == ("PATCH", f"/session/{SESSION}", {"permission": [DENY_JSON]})
    [prompt] = requests(server.answer(patch, body={"id": SESSION}))
    assert prompt["path"].endswith("/prompt_async")


@pytest.mark.parametrize(
    ("permission", "action", "subagents"),
    [
        ("edit", "ask", False),
        ("*", "ask", False),
        ("edit", "deny", True),
        ("task", "ask", True),
        ("external_directory", "ask", True),
    ],
)
def test_a_session_that_asks_has_no_subagents_which_would_not_ask(permission: str, action: Action, subagents: bool) -> None:
    server = Server()
    server.event("server.connected", "")
    rule = Rule(permission, "*", action)
    [create] = requests(server.codec.send(Prompt(key="k", text="hi", session_rules=(rule,))))
    no_subagents = [] if subagents else [{"permission": "task", "pattern": "*", "action": "deny"}]
    assert create["body"]["permission"] == [rule.to_json(), *no_subagents]


def test_a_prompt_is_not_sent_without_its_rules() -> None:
    server = Server()
    server.start_prompt()
    server.status("idle")
    [patch] = requests(server.codec.send(Prompt(key="k2", text="more", session_rules=(DENY,))))
    outputs = server.answer(patch, 500, {"name": "UnknownError", "data": {"message": "no"}})
    assert requests(outputs) == []
    assert [out.input for out in outputs if isinstance(out, Signal)] == [Input.FAILED]


# --- before there is a session ------------------------------------------------------------------------------------------

PROVIDERS = {"providers": [{"id": "p", "models": {"a/b": {"id": "a/b"}}}], "default": {"p": "a/b"}}
TOOLS = "/experimental/tool?provider=p&model=a%2Fb"


def offer(server: Server) -> list[dict[str, Any]]:
    """Answer the requests of the start; what is asked then."""
    bodies = {"/config/providers": PROVIDERS, "/config": {}, "/command": [], "/agent": []}
    return [new for row in server.asked for new in requests(server.answer(row, body=bodies[row["path"]]))]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_process_that_waits_loads_its_directory_and_the_tools_of_the_default_model(is_late: bool) -> None:
    server = Server()
    asked = offer(server) if is_late else []
    asked += requests(server.codec.prepare())
    asked += [] if is_late else offer(server)
    assert [(row["method"], row["path"]) for row in asked] == [("GET", "/file?path="), ("GET", TOOLS)]
    for row in asked:
        assert server.answer(row, body=[{"name": "README.md"}]) == []
        assert server.answer(row, 500, {"_tag": "Refused"}) == []


def test_a_discovery_loads_nothing_more() -> None:
    assert offer(Server()) == []


def test_a_title_reaches_opencode() -> None:
    server = Server()
    assert server.codec.rename("t") == []
    server.start_prompt()
    (request,) = requests(server.codec.rename("t"))
    assert (request["method"], request["path"], request["body"]) == ("PATCH", f"/session/{SESSION}", {"title": "t"})
    assert server.answer(request, 500, {}) == []
