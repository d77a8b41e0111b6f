"""OpenCode 2's codec without a server: requests in their order, prompts held back, interrupts, forms, and what is not known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shim.dev.record.driver import counting_ids
from universal.agents.opencode2 import codec as codec_module
from universal.agents.opencode2.codec import OpenCode2Codec
from universal.agents.opencode2.wire import OFFERS
from universal.codec import Attachment, Fact, Interrupt, Output, PermissionReply, Prompt, QuestionReply, Signal, WriteLine
from universal.events import EventType, QuestionData
from universal.launch import Exit, LaunchOptions
from universal.permissions import Rule
from universal.turn import Input

SESSION = "ses_dffcc5a86ffeX4Bbqcz4z94gtQ"
CHILD = "ses_dffcacd1affek0C9oVBJs7pgKk"
EVENT = "evt_20033a59f001wx50EN1OnYI21d"


class Server:
    """The codec, and the requests that it has made and nobody has answered."""

    def __init__(self, **options: Any) -> None:
        self.codec = OpenCode2Codec(counting_ids())
        self.launched = self.codec.launch(LaunchOptions(binary="/bin/opencode2", directory="/project", **options))
        self.open: list[dict[str, Any]] = []
        self.outputs: list[Output] = []
        self.take(self.codec.start())

    def take(self, outputs: list[Output]) -> list[Output]:
        self.outputs += outputs
        self.open += [json.loads(output.data) for output in outputs if isinstance(output, WriteLine)]
        return outputs

    def answer(self, path: str, status: int = 200, body: Any = None) -> list[Output]:
        """Answer the oldest open request of a path."""
        request = next(row for row in self.open if row["path"].split("?")[0] == path)
        self.open.remove(request)
        return self.take(self.codec.receive(json.dumps({"id": request["id"], "status": status, "body": body}).encode()))

    def event(self, kind: str, session: str = SESSION, id_: str = EVENT, **data: Any) -> list[Output]:
        event = {"id": id_, "created": 1_000, "type": kind, "data": {"sessionID": session, **data}}
        return self.take(self.codec.receive(json.dumps({"event": event}).encode()))

    def send(self, command: Any) -> list[Output]:
        return self.take(self.codec.send(command))

    def with_prompt(self, **more: Any) -> Server:
        """A server of 2.x whose session was made and that has a prompt."""
        self.answer("/api/info", body={"version": "2.1.2"})
        self.send(Prompt(key="prompt_1", text="go", **more))
        self.answer("/api/session", body={"data": {"id": SESSION}})
        return self

    @property
    def paths(self) -> list[tuple[str, str]]:
        """Open requests but those of the catalogue."""
        return [(row["method"], row["path"]) for row in self.open if row["path"].split("?")[0] not in OFFERS]

    def body(self) -> Any:
        """The body of the last request."""
        return self.open[-1].get("body")

    def signals(self) -> list[Signal]:
        return [output for output in self.outputs if isinstance(output, Signal)]

    def facts(self, type_: EventType) -> list[Fact]:
        return [output for output in self.outputs if isinstance(output, Fact) and output.type is type_]


def path(rest: str, session: str = SESSION) -> str:
    return f"/api/session/{session}{rest}"


# --- start -----------------------------------------------------------------------------------------------------


def test_the_agent_is_started_as_a_server_whose_events_are_below_api() -> None:
    launched = Server().launched
    assert launched.argv == ("/bin/opencode2", "serve", "--hostname", "127.0.0.1")
    assert launched.events == "/api/event"


def test_a_prompt_waits_until_it_is_known_which_build_it_is() -> None:
    server = Server()
    server.send(Prompt(key="prompt_1", text="go"))
    assert server.paths == [("GET", "/api/info")]
    server.answer("/api/info", body={"version": "2.1.2"})
    assert server.paths == [("POST", "/api/session")]
    assert server.body() == {"location": {"directory": "/project"}}


@pytest.mark.parametrize(
    ("health", "reply"),
    [
        ({"healthy": True, "version": "2.0.0-v2.20260717", "pid": 1}, {"text": "go"}),
        ({"healthy": True}, {"prompt": {"text": "go"}}),
    ],
)
def test_an_older_build_gets_prompts_in_its_own_form(health: Any, reply: Any) -> None:
    server = Server()
    server.send(Prompt(key="prompt_1", text="go"))
    server.answer("/api/info", 404)
    server.answer("/api/health", body=health)
    server.answer("/api/session", body={"data": {"id": SESSION}})
    assert server.paths == [("POST", path("/prompt"))]
    assert server.body() == reply


def test_a_server_that_is_not_open_code_2_fails_each_prompt_with_a_sentence() -> None:
    server = Server()
    server.send(Prompt(key="prompt_1", text="go"))
    server.answer("/api/info", 404)
    server.answer("/api/health", 404)
    server.send(Prompt(key="prompt_2", text="again"))
    assert [signal.input for signal in server.signals()] == [Input.FAILED, Input.FAILED]
    errors = server.facts(EventType.ERROR)
    assert len(errors) == 2
    assert "SHIM_OPENCODE2_BIN" in errors[0].data.message
    assert server.paths == []


# --- a prompt --------------------------------------------------------------------------------------------------


def test_a_new_session_is_made_with_rules_agent_and_model() -> None:
    server = Server()
    server.answer("/api/info", body={"version": "2.1.2"})
    rules = (Rule("read", "*", "allow"), Rule("bash", "*", "ask"), Rule("bash", "git *", "allow"), Rule("task", "*", "deny"))
    server.send(Prompt(key="prompt_1", text="go", mode="plan", model="scripted/a/b", variant="high", rules=rules))
    assert server.body() == {
        "permissions": [
            {"action": "shell", "resource": "*", "effect": "ask"},
            {"action": "shell", "resource": "git *", "effect": "allow"},
            {"action": "subagent", "resource": "*", "effect": "deny"},
        ],
        "agent": "plan",
        "model": {"providerID": "scripted", "id": "a/b", "variant": "high"},
        "location": {"directory": "/project"},
    }


def test_only_what_has_changed_is_set_before_the_next_prompt() -> None:
    server = Server().with_prompt(mode="build", model="p/m")
    finish(server)
    rules = (Rule("bash", "*", "deny"),)
    server.send(Prompt(key="prompt_2", text="go", mode="plan", model="p/m", rules=rules, system="Be brief."))
    seen: list[tuple[str, str]] = []
    while server.paths[0][1] != path("/prompt"):
        seen += server.paths
        server.answer(server.paths[0][1], 204)
    experimental = f"/api/experimental/session/{SESSION}/instructions/entries/opencode-shim"
    assert seen == [("PATCH", path("")), ("POST", path("/agent")), ("PUT", experimental)]


def test_a_prompt_is_not_sent_without_its_rules() -> None:
    server = Server().with_prompt()
    finish(server)
    server.send(Prompt(key="prompt_2", text="go", rules=(Rule("bash", "*", "deny"),)))
    server.answer(path(""), 500)
    assert server.paths == []
    assert server.signals()[-1].input is Input.FAILED


def test_instructions_that_are_refused_do_not_hold_the_prompt() -> None:
    server = Server().with_prompt(system="Be brief.")
    server.answer(f"/api/experimental/session/{SESSION}/instructions/entries/opencode-shim", 404)
    assert server.paths == [("POST", path("/prompt"))]


def test_files_are_sent_as_urls() -> None:
    files = (
        Attachment(mime="image/png", base64="AAAA", filename="dot.png"),
        Attachment(mime="text/plain", path="/project/a b.txt"),
    )
    server = Server().with_prompt(attachments=files)
    assert server.body()["files"] == [
        {"uri": "data:image/png;base64,AAAA", "name": "dot.png"},
        {"uri": "file:///project/a%20b.txt"},
    ]


def test_a_lost_session_is_reported_so_that_it_is_replaced() -> None:
    server = Server(native_session_id=SESSION, resume=True)
    server.answer("/api/info", body={"version": "2.1.2"})
    server.send(Prompt(key="prompt_1", text="go"))
    body = {"_tag": "SessionNotFoundError", "sessionID": SESSION, "message": "Session not found"}
    server.answer(server.paths[0][1], 404, body)
    assert server.signals()[-1].error == {"message": "Session not found", "code": "session_not_found"}


def test_commands_and_skills_are_offered_and_called() -> None:
    server = Server()
    for offer in OFFERS:
        rows: dict[str, list[Any]] = {
            "/api/model": [{"id": "m", "providerID": "p", "name": "M", "variants": [{"id": "high"}], "enabled": True}],
            "/api/command": [{"name": "init", "description": "Begin"}],
            "/api/skill": [{"id": "demo", "name": "Demo"}],
            "/api/agent": [
                {"id": "plan", "mode": "primary"},
                {"id": "build", "mode": "primary"},
                {"id": "x", "mode": "subagent"},
            ],
        }
        server.answer(offer, body={"data": rows.get(offer, {"id": "m", "providerID": "p"})})
    catalogue = server.codec.catalogue
    assert catalogue is not None
    assert [command.name for command in catalogue.commands] == ["init", "demo"]
    assert [mode.id for mode in catalogue.modes] == ["build", "plan"]
    assert catalogue.default_model == "p/m"
    server.with_prompt()
    finish(server)
    server.send(Prompt(key="prompt_2", text="/init now please"))
    assert (server.paths, server.body()) == ([("POST", path("/command"))], {"name": "init", "text": "now please"})
    finish(server)
    server.send(Prompt(key="prompt_3", text="/demo it"))
    assert server.body()["skills"] == [{"id": "demo"}]


def test_a_catalogue_without_models_waits_for_the_plugins() -> None:
    server = Server()
    for offer in OFFERS:
        server.answer(offer, body={"data": []})
    assert server.codec.catalogue is None
    server.event("model.updated", session="")
    assert [row["path"].split("?")[0] for row in server.open if "location" in row["path"]] == list(OFFERS)


# --- turns -----------------------------------------------------------------------------------------------------


def finish(server: Server, end: str = "session.execution.succeeded", **data: Any) -> None:
    """The turn of the open prompt."""
    request = next(row for row in server.open if row["path"].endswith(("/prompt", "/command")))
    server.answer(request["path"])
    message = request["body"].get("id", "msg_x")
    server.event("session.execution.started")
    server.event("session.inbox.enqueued", inboxID=message, item={"type": "user", "payload": {"text": "go"}, "delivery": "steer"})
    server.event("session.inbox.delivered", inboxID=message)
    server.event(end, **data)


@pytest.mark.parametrize(
    ("end", "data", "signal"),
    [
        ("succeeded", {}, (Input.DONE, False)),
        ("failed", {"error": {"type": "provider.auth", "message": "no key"}}, (Input.FAILED, False)),
        ("interrupted", {"reason": "user"}, (Input.FAILED, True)),
    ],
)
def test_each_prompt_has_one_end(end: str, data: Any, signal: tuple[Input, bool]) -> None:
    server = Server().with_prompt()
    finish(server, f"session.execution.{end}", **data)
    server.event("session.execution.succeeded")
    assert [(found.input, found.aborted) for found in server.signals()] == [signal]


def test_the_end_of_work_that_began_before_the_prompt_is_not_its_answer() -> None:
    server = Server().with_prompt()
    server.event("session.execution.started")
    server.event("session.execution.succeeded")
    assert server.signals() == []
    finish(server)
    assert [signal.input for signal in server.signals()] == [Input.DONE]


def test_a_background_task_that_wakes_the_agent_is_a_turn_of_its_own() -> None:
    server = Server().with_prompt()
    finish(server)
    server.event("session.execution.started")
    server.event("session.inbox.enqueued", inboxID="msg_b", item={"type": "synthetic", "payload": {"text": "It is done."}})
    server.event("session.inbox.delivered", inboxID="msg_b")
    server.event("session.execution.succeeded")
    assert [signal.input for signal in server.signals()] == [Input.DONE, Input.ACTIVITY, Input.DONE]


def test_an_interrupt_before_the_execution_is_sent_when_it_begins() -> None:
    server = Server().with_prompt()
    server.send(Interrupt())
    server.answer(path("/prompt"))
    assert server.paths == []
    server.event("session.execution.started")
    assert server.paths == [("POST", path("/interrupt"))]


def test_an_interrupt_before_the_prompt_keeps_it_back() -> None:
    server = Server()
    server.answer("/api/info", body={"version": "2.1.2"})
    server.send(Prompt(key="prompt_1", text="go"))
    server.send(Interrupt())
    server.answer("/api/session", body={"data": {"id": SESSION}})
    assert server.paths == []
    assert [(signal.input, signal.aborted) for signal in server.signals()] == [(Input.FAILED, True)]


def test_the_end_of_the_process_closes_what_is_open() -> None:
    server = Server().with_prompt()
    server.event("session.execution.started")
    server.event("session.step.started", assistantMessageID="msg_a", model={"id": "m", "providerID": "p"})
    server.event("session.tool.input.started", assistantMessageID="msg_a", id="call_1", name="shell")
    server.event("session.tool.called", assistantMessageID="msg_a", id="call_1", input={"command": "ls"}, executed=False)
    server.event("permission.asked", id="per_1", action="shell", resources=["ls"], source={"type": "tool", "id": "call_1"})
    server.take(server.codec.eof(Exit(code=1)))
    assert len(server.facts(EventType.PERMISSION_RESOLVED)) == 1
    completed = [fact.data.item.kind.value for fact in server.facts(EventType.ITEM_COMPLETED)]
    assert completed == ["tool_call", "message", "tool_result"]
    assert server.signals() == []


def test_a_retry_reopens_no_message() -> None:
    server = Server().with_prompt()
    server.event("session.step.started", assistantMessageID="msg_a")
    server.event("session.retry.scheduled", assistantMessageID="msg_a", attempt=2, at=3_000, error={"message": "overloaded"})
    server.event("session.step.started", assistantMessageID="msg_a")
    [retry] = [fact.data.item.metadata for fact in server.facts(EventType.ITEM_COMPLETED)]
    assert retry == {"attempt": 2, "message": "overloaded", "delay_ms": 2_000}
    assert len(server.facts(EventType.ITEM_STARTED)) == 1


# --- asks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("decision", "reply"), [("accept", "once"), ("accept_for_session", "once"), ("reject", "reject")])
def test_a_permission_is_asked_by_open_code_1s_name_and_answered(decision: Any, reply: str) -> None:
    server = Server().with_prompt()
    server.event("permission.asked", id="per_1", action="shell", resources=["ls"], save=["ls *"])
    [asked] = server.facts(EventType.PERMISSION_REQUESTED)
    assert asked.data.action == "bash"
    server.send(PermissionReply(asked.data.permission_id, decision, "why"))
    assert server.paths[-1] == ("POST", path("/permission/per_1/reply"))
    assert server.body() == {"decision": reply, "message": "why"}
    assert len(server.facts(EventType.PERMISSION_RESOLVED)) == 1


FORM = {
    "id": "frm_1",
    "sessionID": SESSION,
    "title": "Settings",
    "fields": [
        {"key": "q0", "title": "Colour", "type": "string", "options": [{"value": "r", "label": "Red"}], "custom": True},
        {"key": "many", "type": "multiselect", "options": [{"value": "a", "label": "A"}, {"value": "b", "label": "B"}]},
        {"key": "sure", "type": "boolean"},
        {"key": "port", "type": "integer", "when": [{"key": "sure", "op": "eq", "value": True}]},
        {"key": "secret", "type": "string", "hidden": True},
    ],
}


@pytest.mark.parametrize(
    ("answers", "answer"),
    [
        ([["Red"], ["A", "B"], ["Yes"], ["8080"]], {"q0": "r", "many": ["a", "b"], "sure": True, "port": 8080}),
        ([["my own"], [], ["No"], ["8080"]], {"q0": "my own", "sure": False}),
    ],
)
def test_a_form_is_questions_whose_answers_have_the_types_of_its_fields(answers: Any, answer: Any) -> None:
    server = Server().with_prompt()
    server.event("form.created", form=FORM)
    [asked] = server.facts(EventType.QUESTION_REQUESTED)
    assert isinstance(asked.data, QuestionData)
    assert [question.question for question in asked.data.questions] == ["Colour", "many", "sure", "port"]
    server.send(QuestionReply(asked.data.question_id, answers))
    assert server.paths[-1] == ("POST", path("/form/frm_1/reply"))
    assert server.body() == {"answer": answer}


def test_a_form_that_is_rejected_is_cancelled() -> None:
    server = Server().with_prompt()
    server.event("form.created", form={**FORM, "sessionID": "global"})
    [asked] = server.facts(EventType.QUESTION_REQUESTED)
    server.send(QuestionReply(asked.data.question_id, None))
    assert server.paths[-1] == ("DELETE", "/api/session/global/form/frm_1")


def test_a_rejection_that_ends_the_execution_is_no_failure() -> None:
    server = Server().with_prompt()
    server.event("session.execution.started")
    server.event("permission.asked", id="per_1", action="shell", resources=["ls"])
    [asked] = server.facts(EventType.PERMISSION_REQUESTED)
    server.send(PermissionReply(asked.data.permission_id, "reject"))
    server.event("session.execution.interrupted", reason="shutdown")
    assert [signal.input for signal in server.signals()] == [Input.DONE]


# --- what is not known -----------------------------------------------------------------------------------------


def test_an_unknown_event_is_kept_and_counted() -> None:
    server = Server().with_prompt()
    [fact] = server.event("session.teleported", where="far")
    assert isinstance(fact, Fact)
    assert fact.type is EventType.UNPARSED
    assert server.codec.counters()["unparsed:session.teleported"] == 1


def test_a_subagent_that_no_call_names_is_shown_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_module, "EVENTS_HELD", 3)
    server = Server().with_prompt()
    server.event("session.created", CHILD, parentID=SESSION, title="look around")
    for _ in range(3):
        server.event("session.step.started", CHILD, assistantMessageID="msg_a")
    [started] = server.facts(EventType.SESSION_STARTED)
    assert started.child == CHILD


def test_reads_of_the_previews_active_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_module, "ACTIVE_READS", 5)
    server = Server()
    server.send(Prompt(key="prompt_1", text="go"))
    server.answer("/api/info", 404)
    server.answer("/api/health", body={"healthy": True})
    server.answer("/api/session", body={"data": {"id": SESSION}})
    server.answer(path("/prompt"), body={"data": {}})
    server.event("session.next.step.started", assistantMessageID="msg_a")
    server.event("session.next.step.ended", assistantMessageID="msg_a", finish="stop", cost=0, tokens={})
    reads = 0
    while server.paths:
        server.answer("/api/session/active", body={"data": {SESSION: {"type": "running"}}})
        reads += 1
    assert reads == 5
    assert server.signals() == []


# --- undo ------------------------------------------------------------------------------------------------------


def resume_after_undo(**health: Any) -> Server:
    """A server that resumes after the answer `msg_a`, with a prompt."""
    server = Server(native_session_id=SESSION, resume=True, resume_at="msg_a")
    if health:
        server.answer("/api/info", 404)
        server.answer("/api/health", body=health)
    else:
        server.answer("/api/info", body={"version": "2.1.2"})
    server.send(Prompt(key="prompt_1", text="go"))
    return server


def page(*ids: str, next_: str | None = None) -> dict[str, Any]:
    """A page of messages, the newest first: `msg_u...` of a user, all others of the model."""
    data = [{"id": id_, "type": "user" if id_.startswith("msg_u") else "assistant"} for id_ in ids]
    return {"data": data, "cursor": {"previous": None, "next": next_}}


def test_undone_messages_are_cut_without_their_files_before_the_next_prompt() -> None:
    server = resume_after_undo()
    assert server.paths == [("GET", path("/message?order=desc"))]
    server.answer(path("/message"), body=page("msg_d", "msg_u2", "msg_c", "msg_u1", "msg_a", "msg_u0"))
    assert (server.paths, server.body()) == ([("POST", path("/revert/stage"))], {"messageID": "msg_u1", "files": False})
    server.answer(path("/revert/stage"), body={"data": {"messageID": "msg_u1"}})
    assert server.paths == [("POST", path("/revert/commit"))]
    server.answer(path("/revert/commit"), 204)
    server.answer(path(""))  # a resumed session gets its rules again
    assert server.paths == [("POST", path("/prompt"))]


def test_the_answer_that_stays_is_found_on_a_later_page() -> None:
    server = resume_after_undo()
    server.answer(path("/message"), body=page("msg_d", "msg_u2", next_="more/1"))
    assert server.paths == [("GET", path("/message?cursor=more/1"))]
    server.answer(path("/message"), body=page("msg_c", "msg_u1", "msg_a"))
    assert server.body() == {"messageID": "msg_u1", "files": False}


def test_nothing_is_cut_if_nothing_came_after_the_answer() -> None:
    server = resume_after_undo()
    server.answer(path("/message"), body=page("msg_a", "msg_u0"))
    assert "revert" not in str(server.paths)
    assert server.signals() == []


@pytest.mark.parametrize(
    ("rest", "status", "body"),
    [
        ("/message", 200, {"data": [{"id": "msg_x", "type": "assistant"}], "cursor": {}}),
        ("/message", 500, {}),
        ("/revert/stage", 404, {"_tag": "MessageNotFoundError"}),
        ("/revert/commit", 409, {"_tag": "SessionBusyError"}),
    ],
)
def test_the_prompt_fails_if_the_conversation_cannot_be_cut(rest: str, status: int, body: Any) -> None:
    server = resume_after_undo()
    for step, good in (("/message", page("msg_u1", "msg_a")), ("/revert/stage", {}), ("/revert/commit", {})):
        if step == rest:
            break
        server.answer(path(step), body=good)
    server.answer(path(rest), status, body)
    (failed,) = server.signals()
    assert failed.input is Input.FAILED
    assert (failed.error or {})["code"] == "session_not_found", "the server then begins a new conversation"
    assert server.paths == []


def test_an_older_build_does_not_cut_a_conversation() -> None:
    server = resume_after_undo(healthy=True)
    (failed,) = server.signals()
    assert (failed.error or {})["code"] == "session_not_found"


def test_an_answer_tells_where_the_conversation_can_continue() -> None:
    server = Server().with_prompt()
    server.event("session.step.started", assistantMessageID="msg_a", model={})
    server.event("session.step.ended", assistantMessageID="msg_a")
    finish(server)
    (done,) = [signal for signal in server.signals() if signal.input is Input.DONE]
    assert (done.metadata or {})["anchor"] == "msg_a"
