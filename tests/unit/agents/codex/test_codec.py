"""Codex's codec: what each command of ours writes, what each of Codex's requests becomes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from typing import Any

import pytest

from shim.dev.record.driver import counting_ids
from universal.agents import kit
from universal.agents.codex.codec import CodexCodec
from universal.agents.codex.spec import CODEX
from universal.codec import (
    Attachment,
    Fact,
    Interrupt,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    SetTimer,
    Signal,
    Stop,
    ToolCheck,
    WriteLine,
)
from universal.events import EventType, PermissionData
from universal.items import ItemKind
from universal.launch import LaunchOptions
from universal.permissions import Rule
from universal.setup import DirectorySetup, McpServer
from universal.turn import Input

THREAD, TURN = "thread-1", "turn-1"
MODELS = [{"model": "gpt-x", "displayName": "X", "isDefault": True, "defaultReasoningEffort": "medium",
           "supportedReasoningEfforts": [{"reasoningEffort": "low"}, {"reasoningEffort": "high"}],
           "inputModalities": ["text", "image"]},
          {"model": "secret", "hidden": True}]  # fmt: skip


def written_lines(outputs: Iterable[Output]) -> list[dict[str, Any]]:
    return [json.loads(out.data) for out in outputs if isinstance(out, WriteLine)]


def facts(outputs: Iterable[Output], type_: EventType) -> list[Any]:
    return [out.data for out in outputs if isinstance(out, Fact) and out.type is type_]


def signals(outputs: Iterable[Output]) -> list[tuple[Input, bool]]:
    return [(out.input, out.aborted) for out in outputs if isinstance(out, Signal)]


class Bench:
    """A codec and the lines of a Codex that we play."""

    def __init__(self, **options: Any) -> None:
        self.codec = CodexCodec(counting_ids())
        self.spec = self.codec.launch(LaunchOptions(binary="/bin/codex", directory="/p", **options))
        self.hello = written_lines(self.codec.start())[0]
        self.start: dict[str, Any] = {}

    def say(self, method: str, **params: Any) -> list[Output]:
        params = {"threadId": THREAD, "turnId": TURN, **params}
        return self.codec.receive(json.dumps({"method": method, "params": params}).encode())

    def ask(self, id_: Any, method: str, **params: Any) -> list[Output]:
        params = {"threadId": THREAD, "turnId": TURN, "itemId": "call_1", **params}
        return self.codec.receive(json.dumps({"id": id_, "method": method, "params": params}).encode())

    def answer(self, request: dict[str, Any], result: Any = None, error: str = "") -> list[Output]:
        body = {"error": {"code": -32600, "message": error}} if error else {"result": result}
        return self.codec.receive(json.dumps({"id": request["id"], **body}).encode())

    def ready(self) -> dict[str, Any]:
        """Handshake; the request for models."""
        config = next(m for m in written_lines(self.answer(self.hello, {"userAgent": "x"})) if m["method"] == "config/read")
        return next(m for m in written_lines(self.answer(config, {"config": {}, "origins": {}})) if m["method"] == "model/list")

    def start_turn(self, **prompt: Any) -> dict[str, Any]:
        """Handshake, models, thread, one prompt: its `turn/start`."""
        self.answer(self.ready(), {"data": MODELS})
        (start,) = written_lines(self.codec.send(Prompt(key="k", text="hello", **prompt)))
        (turn,) = written_lines(self.answer(start, {"thread": {"id": THREAD}, "model": "gpt-x", "reasoningEffort": "medium"}))
        return turn

    def with_running_turn(self, **prompt: Any) -> Bench:
        self.answer(self.start_turn(**prompt), {"turn": {"id": TURN}})
        self.say("turn/started", turn={"id": TURN})
        return self

    def command(self, id_: str = "call_1", words: str = "echo hi", **where: Any) -> list[Output]:
        item = {"type": "commandExecution", "id": id_, "command": f"/bin/bash -lc '{words}'", "cwd": "/p"}
        return self.say("item/started", item={**item, "status": "inProgress", "commandActions": []}, **where)

    def end(self, status: str = "completed", **turn: Any) -> list[Output]:
        return self.say("turn/completed", turn={"id": TURN, "status": status, **turn})


# --- start ------------------------------------------------------------------------------------------------


def test_the_handshake_asks_for_models_and_makes_no_thread() -> None:
    bench = Bench()
    assert bench.spec.argv == ("/bin/codex", "app-server")
    assert "jsonrpc" not in bench.hello
    outputs = written_lines(bench.answer(bench.hello, {}))
    assert [m["method"] for m in outputs] == ["initialized", "config/read"]
    (models,) = written_lines(bench.answer(outputs[1], error="unknown variant `config/read`"))
    assert (models["method"], bench.codec.catalogue) == ("model/list", None)
    (more,) = written_lines(bench.answer(models, {"data": MODELS[:1], "nextCursor": "c"}))
    assert more["params"] == {"cursor": "c"}
    bench.answer(more, {"data": MODELS[1:], "nextCursor": None})
    assert bench.codec.catalogue is not None
    (model,) = bench.codec.catalogue.models
    assert (model.id, model.variants, model.images, bench.codec.catalogue.default_model) == (
        "gpt-x",
        ("low", "high"),
        True,
        "gpt-x",
    )


@pytest.mark.parametrize(
    ("configured", "ids", "default"),
    [("gpt-x", ["gpt-x"], "gpt-x"), ("my-own", ["my-own", "gpt-x"], "my-own"), (None, ["gpt-x"], "gpt-x")],
)
def test_the_default_is_the_model_of_the_persons_configuration(configured: str | None, ids: list[str], default: str) -> None:
    bench = Bench()
    _, config = written_lines(bench.answer(bench.hello, {}))
    (models,) = written_lines(bench.answer(config, {"config": {"model": configured}, "origins": {}}))
    bench.answer(models, {"data": MODELS, "nextCursor": None})
    assert bench.codec.catalogue is not None
    assert ([model.id for model in bench.codec.catalogue.models], bench.codec.catalogue.default_model) == (ids, default)


def test_models_that_are_refused_leave_the_default() -> None:
    bench = Bench()
    bench.answer(bench.ready(), error="no")
    assert bench.codec.catalogue == CODEX.abilities.catalogue


def test_a_prompt_waits_for_the_handshake() -> None:
    bench = Bench()
    assert written_lines(bench.codec.send(Prompt(key="k", text="hello"))) == []
    assert "thread/start" in [m["method"] for m in written_lines(bench.answer(bench.hello, {}))]


@pytest.mark.parametrize(
    ("mode", "approval", "sandbox"),
    [("build", "on-request", "read-only"), ("accept-edits", "on-request", "workspace-write"),
     ("bypass", "never", "danger-full-access"), ("plan", "on-request", "read-only"), (None, "on-request", "read-only")],
)  # fmt: skip
def test_modes_are_presets_of_sandbox_and_approval(mode: str | None, approval: str, sandbox: str) -> None:
    bench = Bench()
    bench.ready()
    (start,) = written_lines(bench.codec.send(Prompt(key="k", text="hello", mode=mode)))
    assert start["params"] == {"cwd": "/p", "approvalPolicy": approval, "sandbox": sandbox}


def test_resume_names_the_thread_and_a_lost_one_is_reported() -> None:
    bench = Bench(native_session_id=THREAD, resume=True)
    bench.ready()
    (start,) = written_lines(bench.codec.send(Prompt(key="k", text="hello")))
    assert (start["method"], start["params"]["threadId"]) == ("thread/resume", THREAD)
    outputs = bench.answer(start, error="no rollout found for thread id x")
    assert [e.code for e in facts(outputs, EventType.ERROR)] == ["session_not_found"]
    assert [out.error["code"] for out in outputs if isinstance(out, Signal) and out.error] == ["session_not_found"]
    assert not any(isinstance(out, Stop) for out in outputs)


def test_a_thread_that_cannot_begin_ends_the_prompt_and_the_process() -> None:
    bench = Bench()
    bench.ready()
    (start,) = written_lines(bench.codec.send(Prompt(key="k", text="hello")))
    outputs = bench.answer(start, error="failed to load configuration: config.toml:1")
    assert signals(outputs) == [(Input.FAILED, False)]
    assert any(isinstance(out, Stop) for out in outputs)


# --- prompts ----------------------------------------------------------------------------------------------


def test_a_prompt_says_only_what_it_wants_otherwise() -> None:
    bench = Bench()
    first = bench.start_turn(model="gpt-x", mode="build")
    assert set(first["params"]) == {"threadId", "input"}
    bench.answer(first, {"turn": {"id": TURN}})
    bench.say("turn/started", turn={"id": TURN})
    bench.end()
    (second,) = written_lines(bench.codec.send(Prompt(key="l", text="b", model="gpt-x", variant="high", mode="bypass")))
    assert second["params"]["effort"] == "high"
    assert (second["params"]["approvalPolicy"], second["params"]["sandboxPolicy"]) == ("never", {"type": "dangerFullAccess"})
    bench.answer(second, {"turn": {"id": "t2"}})
    (third,) = written_lines(bench.codec.send(Prompt(key="m", text="c", model="gpt-x", mode="plan")))
    assert third["params"]["effort"] == "medium"
    assert third["params"]["collaborationMode"]["mode"] == "plan"
    (fourth,) = written_lines(bench.codec.send(Prompt(key="n", text="d", model="gpt-x", mode="build")))
    assert fourth["params"]["collaborationMode"]["mode"] == "default"


def test_attachments_and_a_system_text() -> None:
    attachments = [Attachment(mime="image/png", base64="AAAA"), Attachment(mime="image/png", path="/p/a.png"),
                   Attachment(mime="text/plain", path="/p/x", text="body"), Attachment(mime="x/y", filename="f")]  # fmt: skip
    turn = Bench().start_turn(attachments=attachments, system="be brief")
    kinds = [part["type"] for part in turn["params"]["input"]]
    assert kinds == ["text", "image", "localImage", "text", "text", "text"]
    assert turn["params"]["input"][1]["url"] == "data:image/png;base64,AAAA"
    assert "be brief" in turn["params"]["input"][0]["text"]
    assert turn["params"]["input"][-1]["text"] == "hello"


def test_a_refused_prompt_fails() -> None:
    bench = Bench()
    outputs = bench.answer(bench.start_turn(), error="bad input")
    assert signals(outputs) == [(Input.FAILED, False)]
    assert [e.message for e in facts(outputs, EventType.ERROR)] == ["bad input"]


# --- turns and interrupts ---------------------------------------------------------------------------------


def test_only_our_own_thread_ends_the_turn() -> None:
    bench = Bench().with_running_turn()
    assert signals(bench.say("turn/completed", threadId="other", turn={"id": "t", "status": "completed"})) == []
    assert signals(bench.say("turn/completed", turn={"id": "older", "status": "completed"})) == []
    assert signals(bench.end()) == [(Input.DONE, False)]
    assert signals(bench.end()) == []


def test_a_turn_that_ends_before_its_prompt_is_accepted() -> None:
    bench = Bench()
    turn = bench.start_turn()
    assert signals(bench.say("turn/started", turn={"id": TURN})) == []
    assert signals(bench.end()) == [(Input.DONE, False)]
    assert signals(bench.answer(turn, {"turn": {"id": TURN}})) == []


def test_a_turn_without_a_prompt_wakes_the_session() -> None:
    bench = Bench().with_running_turn()
    bench.end()
    assert signals(bench.say("turn/started", turn={"id": "t2"})) == [(Input.ACTIVITY, False)]
    assert signals(bench.say("turn/completed", turn={"id": "t2", "status": "completed"})) == [(Input.DONE, False)]


def test_an_interrupt_before_the_handshake_drops_the_prompt() -> None:
    bench = Bench()
    bench.codec.send(Prompt(key="k", text="hello"))
    assert signals(bench.codec.send(Interrupt())) == [(Input.FAILED, True)]
    assert "thread/start" not in [m["method"] for m in written_lines(bench.answer(bench.hello, {}))]


def test_an_interrupt_before_the_turn_is_known_is_held_and_sent_again() -> None:
    bench = Bench()
    turn = bench.start_turn()
    assert bench.codec.send(Interrupt()) == []
    (early,) = written_lines(bench.answer(turn, {"turn": {"id": TURN}}))
    assert (early["method"], early["params"]) == ("turn/interrupt", {"threadId": THREAD, "turnId": TURN})
    bench.answer(early, error="no active turn to interrupt")
    (again,) = written_lines(bench.say("turn/started", turn={"id": TURN}))
    assert again["params"] == early["params"]
    assert signals(bench.end("interrupted")) == [(Input.FAILED, True)]


def test_an_interrupt_ends_what_is_open_and_cleans_the_terminals() -> None:
    bench = Bench().with_running_turn()
    bench.command()
    bench.say("item/commandExecution/outputDelta", itemId="call_1", delta="tick\n")
    assert [m["method"] for m in written_lines(bench.codec.send(Interrupt()))] == ["turn/interrupt"]
    outputs = bench.end("interrupted")
    assert [m["method"] for m in written_lines(outputs)] == ["thread/backgroundTerminals/clean"]
    assert signals(outputs) == [(Input.FAILED, True)]
    assert facts(outputs, EventType.ERROR) == []
    results = [d.item for d in facts(outputs, EventType.ITEM_COMPLETED) if d.item.kind is ItemKind.TOOL_RESULT]
    assert [(r.metadata, r.content[0].output) for r in results] == [({"interrupted": True}, "tick")]
    late = {"type": "commandExecution", "id": "call_1", "status": "failed", "aggregatedOutput": "tick\n"}
    assert bench.say("item/completed", item=late) == []


def test_idle_interrupts_write_nothing() -> None:
    bench = Bench().with_running_turn()
    bench.end()
    assert bench.codec.send(Interrupt()) == []


def test_an_error_that_is_tried_again_does_not_end_the_turn() -> None:
    bench = Bench().with_running_turn()
    outputs = bench.say("error", error={"message": "Reconnecting... 2/5", "additionalDetails": "503"}, willRetry=True)
    (data,) = facts(outputs, EventType.ITEM_COMPLETED)
    assert (data.item.metadata["attempt"], signals(outputs)) == (2, [])
    error = {"message": "unexpected status 401", "codexErrorInfo": {"httpConnectionFailed": {"httpStatusCode": 401}}}
    assert bench.say("error", error=error, willRetry=False) == [SetTimer("thread-1", kit.END_S)]
    outputs = bench.end("failed", error=error)
    (told,) = facts(outputs, EventType.ERROR)
    assert (told.code, told.details["status_code"]) == ("authentication_failed", 401)
    assert signals(outputs) == [(Input.FAILED, False)]


def test_usage_is_of_the_turn_and_not_of_the_thread() -> None:
    bench = Bench().with_running_turn()
    last = {"inputTokens": 100, "cachedInputTokens": 60, "outputTokens": 20, "reasoningOutputTokens": 5, "totalTokens": 120}
    for total in (1120, 1240, 1240):
        bench.say("thread/tokenUsage/updated", tokenUsage={"total": {"totalTokens": total}, "last": last})
    (done,) = [out for out in bench.end() if isinstance(out, Signal)]
    usage = {"input": 80, "output": 30, "reasoning": 10, "cache_read": 120, "cache_write": 0}
    assert done.metadata == {"usage": usage, "anchor": "turn-1"}


# --- asks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("decision", "native"), [("accept", "accept"), ("accept_for_session", "accept"), ("reject", "decline")])
@pytest.mark.parametrize("id_", [0, "a"])
def test_permissions_for_commands(decision: Any, native: str, id_: Any) -> None:
    bench = Bench().with_running_turn()
    bench.command()
    (asked,) = facts(bench.ask(id_, "item/commandExecution/requestApproval", reason="why"), EventType.PERMISSION_REQUESTED)
    assert (asked.action, asked.metadata["input"]["command"], asked.metadata["call_id"]) == ("shell", "echo hi", "call_1")
    outputs = bench.codec.send(PermissionReply(asked.permission_id, decision))
    assert written_lines(outputs) == [{"id": id_, "result": {"decision": native}}]
    assert [d.status for d in facts(outputs, EventType.PERMISSION_RESOLVED)] == [decision]
    assert bench.codec.send(PermissionReply(asked.permission_id, decision)) == []
    assert bench.say("serverRequest/resolved", requestId=id_) == []


def test_permissions_for_files_carry_the_diff() -> None:
    bench = Bench().with_running_turn()
    change = {"path": "/p/a", "kind": {"type": "add"}, "diff": "one\ntwo\n"}
    bench.say("item/started", item={"type": "fileChange", "id": "call_1", "changes": [change], "status": "inProgress"})
    (asked,) = facts(bench.ask(1, "item/fileChange/requestApproval"), EventType.PERMISSION_REQUESTED)
    assert asked.metadata["diff"] == "--- /dev/null\n+++ /p/a\n@@ -0,0 +1,2 @@\n+one\n+two\n"


def test_more_permissions_are_granted_as_asked() -> None:
    bench = Bench().with_running_turn()
    wanted = {"network": {"enabled": True}, "fileSystem": None}
    for decision, expected in (
        ("accept", {"permissions": {"network": {"enabled": True}}, "scope": "turn"}),
        ("accept_for_session", {"permissions": {"network": {"enabled": True}}, "scope": "turn"}),
        ("reject", {"permissions": {}, "scope": "turn"}),
    ):
        (asked,) = facts(bench.ask(5, "item/permissions/requestApproval", permissions=wanted), EventType.PERMISSION_REQUESTED)
        assert written_lines(bench.codec.send(PermissionReply(asked.permission_id, decision))) == [{"id": 5, "result": expected}]


def test_an_open_ask_ends_with_its_turn() -> None:
    bench = Bench().with_running_turn()
    bench.command()
    bench.ask(0, "item/commandExecution/requestApproval")
    outputs = bench.end("interrupted")
    assert [d.status for d in facts(outputs, EventType.PERMISSION_RESOLVED)] == ["reject"]
    assert bench.say("serverRequest/resolved", requestId=0) == []


def test_questions_are_answered_by_their_ids() -> None:
    bench = Bench().with_running_turn()
    rows = [
        {"id": "a", "question": "A?", "options": [{"label": "x"}], "isOther": False},
        {"id": "b", "question": "B?", "options": None},
    ]
    outputs = bench.ask(3, "item/tool/requestUserInput", questions=rows)
    (asked,) = facts(outputs, EventType.QUESTION_REQUESTED)
    assert [(q.question, q.custom) for q in asked.questions] == [("A?", False), ("B?", True)]
    outputs = bench.codec.send(QuestionReply(asked.question_id, [["x"], ["free text"]]))
    assert written_lines(outputs) == [
        {"id": 3, "result": {"answers": {"a": {"answers": ["x"]}, "b": {"answers": ["free text"]}}}}
    ]
    (asked,) = facts(bench.ask(4, "item/tool/requestUserInput", questions=rows, itemId="c2"), EventType.QUESTION_REQUESTED)
    assert written_lines(bench.codec.send(QuestionReply(asked.question_id, None))) == [{"id": 4, "result": {"answers": {}}}]


def test_the_reason_of_a_rejected_question_stands_in_its_answers_and_in_the_call() -> None:
    bench = Bench().with_running_turn()
    rows = [{"id": "a", "question": "A?", "options": None}, {"id": "b", "question": "B?", "options": None}]
    (asked,) = facts(bench.ask(3, "item/tool/requestUserInput", questions=rows), EventType.QUESTION_REQUESTED)
    outputs = bench.codec.send(QuestionReply(asked.question_id, None, "Nobody is here."))
    told = {"answers": ["Nobody is here."]}
    assert written_lines(outputs) == [{"id": 3, "result": {"answers": {"a": told, "b": told}}}]
    (resolved,) = facts(outputs, EventType.QUESTION_RESOLVED)
    assert (resolved.status, resolved.metadata["message"]) == ("rejected", "Nobody is here.")
    results = [fact.item for fact in facts(outputs, EventType.ITEM_COMPLETED)]
    assert "Nobody is here." in json.dumps([item.model_dump(mode="json") for item in results])


def test_forms_of_mcp_servers() -> None:
    bench = Bench().with_running_turn()
    schema = {"properties": {"ok": {"type": "boolean"}, "n": {"type": "integer"}, "c": {"type": "string", "enum": ["r", "g"]}}}
    form = {"mode": "form", "serverName": "s", "message": "m", "requestedSchema": schema}
    (asked,) = facts(bench.ask(6, "mcpServer/elicitation/request", **form), EventType.QUESTION_REQUESTED)
    (reply,) = written_lines(bench.codec.send(QuestionReply(asked.question_id, [["Yes"], ["3"], ["g"]])))
    assert reply["result"] == {"action": "accept", "content": {"ok": True, "n": 3, "c": "g"}}
    empty = {**form, "requestedSchema": {"properties": {}}}
    (asked,) = facts(bench.ask(7, "mcpServer/elicitation/request", **empty), EventType.PERMISSION_REQUESTED)
    (reply,) = written_lines(bench.codec.send(PermissionReply(asked.permission_id, "reject")))
    assert reply["result"] == {"action": "decline", "content": None}


def test_unknown_requests_of_the_agent_are_refused() -> None:
    bench = Bench().with_running_turn()
    (known,) = written_lines(bench.ask(8, "currentTime/read"))
    assert known["error"]["code"] == -32601
    outputs = bench.ask(9, "no/such/request")
    assert written_lines(outputs)[0]["error"]["code"] == -32601
    assert len(facts(outputs, EventType.UNPARSED)) == 1


# --- subagents --------------------------------------------------------------------------------------------


def test_a_subagent_holds_the_turn_and_is_interrupted_with_it() -> None:
    bench = Bench().with_running_turn()
    item = {"type": "subAgentActivity", "id": "call_2", "kind": "started", "agentThreadId": "child", "agentPath": "/team/look"}
    bench.say("item/started", item=item)
    opened = bench.say("item/completed", item=item)
    (started,) = [out for out in opened if isinstance(out, Fact) and out.type is EventType.SESSION_STARTED]
    assert (started.child, started.data.metadata["title"]) == ("call_2", "look")
    outputs = bench.say("turn/started", threadId="child", turn={"id": "ct"})
    assert [(s.input, s.key, s.child) for s in outputs if isinstance(s, Signal)] == [
        (Input.OPENED, "child", None),
        (Input.ACTIVITY, "", "call_2"),
    ]
    assert signals(bench.end()) == [(Input.DONE, False)]
    (stop,) = written_lines(bench.codec.send(Interrupt()))
    assert stop["params"] == {"threadId": "child", "turnId": "ct"}
    outputs = bench.say("turn/completed", threadId="child", turn={"id": "ct", "status": "interrupted"})
    assert [(s.input, s.aborted, s.key, s.child) for s in outputs if isinstance(s, Signal)] == [
        (Input.FAILED, True, "", "call_2"),
        (Input.CLOSED, False, "child", None),
    ]


def test_a_thread_that_speaks_before_its_call_is_done_belongs_to_it() -> None:
    bench = Bench().with_running_turn()
    item = {"type": "collabAgentToolCall", "id": "call_2", "tool": "spawnAgent", "prompt": "look", "receiverThreadIds": []}
    bench.say("item/started", item={**item, "status": "inProgress"})
    outputs = bench.say("turn/started", threadId="child", turn={"id": "ct"})
    assert [out.child for out in outputs if isinstance(out, Fact)] == ["call_2"]
    again = bench.say("item/completed", item={**item, "status": "completed", "receiverThreadIds": ["child"]})
    assert facts(again, EventType.SESSION_STARTED) == []


# --- items ------------------------------------------------------------------------------------------------


def result_of(item: dict[str, Any]) -> tuple[Any, Any]:
    """The call and the result of an item that starts and completes."""
    bench = Bench().with_running_turn()
    outputs = bench.say("item/started", item={**item, "id": "i", "status": "inProgress"})
    outputs += bench.say("item/completed", item={"status": "completed", **item, "id": "i"})
    items = [d.item for d in facts(outputs, EventType.ITEM_COMPLETED)]
    assert [i.kind for i in items] == [ItemKind.TOOL_CALL, ItemKind.TOOL_RESULT]
    return items[0], items[1]


def test_mcp_calls() -> None:
    result = {"content": [{"type": "text", "text": "T"}, {"type": "image", "data": "QQ", "mimeType": "image/png"}]}
    call, done = result_of({"type": "mcpToolCall", "server": "s", "tool": "t", "arguments": {"a": 1}, "result": result})
    assert (call.content[0].name, json.loads(call.content[0].arguments)) == ("mcp__s__t", {"a": 1})
    assert (done.content[0].output, done.content[1].path) == ("T", "data:image/png;base64,QQ")
    _, failed = result_of({"type": "mcpToolCall", "server": "s", "tool": "t", "error": {"message": "no"}, "status": "failed"})
    assert (failed.status, failed.content[0].output) == ("failed", "no")


def test_searches_and_images() -> None:
    call, _ = result_of({"type": "webSearch", "query": "q", "action": None})
    assert json.loads(call.content[0].arguments) == {"query": "q"}
    _, seen = result_of({"type": "imageView", "path": "/p/a.png"})
    assert seen.content[1].path == "/p/a.png"
    _, made = result_of({"type": "imageGeneration", "savedPath": "/p/b.png", "revisedPrompt": "r"})
    assert made.content[1].path == "/p/b.png"


def test_moved_and_deleted_files() -> None:
    changes = [
        {"path": "/p/a", "kind": {"type": "update", "move_path": "/p/b"}, "diff": "@@ -1 +1 @@\n-x\n+y\n\n\nMoved to: /p/b"},
        {"path": "/p/c", "kind": {"type": "delete"}, "diff": "gone\n"},
    ]
    call, done = result_of({"type": "fileChange", "changes": changes})
    patch = json.loads(call.content[0].arguments)["patch"]
    assert "*** Move to: /p/b" in patch
    assert "*** Delete File: /p/c" in patch
    refs = done.content[1:]
    assert [(r.path, r.action) for r in refs] == [("/p/b", "patch"), ("/p/c", "patch")]
    assert refs[0].diff.startswith("--- /p/a\n+++ /p/b\n@@")
    assert refs[1].diff == "--- /p/c\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-gone\n"


def test_an_unknown_item_is_unparsed_and_the_stream_goes_on() -> None:
    bench = Bench().with_running_turn()
    assert len(facts(bench.say("item/started", item={"type": "new", "id": "x"}), EventType.UNPARSED)) == 1
    assert bench.codec.counters()["unparsed:item/new"] == 1
    assert signals(bench.end()) == [(Input.DONE, False)]


# --- after an undo ----------------------------------------------------------------------------------------


def test_a_conversation_is_taken_up_after_the_turn_that_stays() -> None:
    bench = Bench(native_session_id="old", resume=True, resume_at="turn-7")
    bench.ready()
    (fork,) = written_lines(bench.codec.send(Prompt(key="k", text="hello")))
    assert fork["method"] == "thread/fork"
    assert {"threadId": "old", "lastTurnId": "turn-7", "cwd": "/p"}.items() <= fork["params"].items()
    (turn,) = written_lines(bench.answer(fork, {"thread": {"id": THREAD}, "model": "gpt-x"}))
    assert (turn["method"], turn["params"]["threadId"], bench.codec.native_session_id) == ("turn/start", THREAD, THREAD)


def test_a_lost_turn_makes_the_server_start_over() -> None:
    bench = Bench(native_session_id="old", resume=True, resume_at="turn-7")
    bench.ready()
    (fork,) = written_lines(bench.codec.send(Prompt(key="k", text="hello")))
    (error,) = facts(bench.answer(fork, error="turn not found"), EventType.ERROR)
    assert error.code == "session_not_found"


# --- permission rules -------------------------------------------------------------------------------------

DENY_BASH = (Rule("bash", "rm *", "deny"),)
ACCEPT, DECLINE = {"decision": "accept"}, {"decision": "decline"}


def checks(outputs: Iterable[Output]) -> list[PermissionData]:
    """Requests that are put before the rules only."""
    return [out.request.data for out in outputs if isinstance(out, ToolCheck) and isinstance(out.request.data, PermissionData)]


def approve(bench: Bench, command: str, **params: Any) -> list[Output]:
    actions = [{"type": "unknown", "command": command}]
    line = f"/bin/bash -lc {shlex.quote(command)}"
    return bench.ask(7, "item/commandExecution/requestApproval", command=line, **{"commandActions": actions, **params})


def patch(bench: Bench, *changes: dict[str, Any]) -> list[Output]:
    bench.say("item/started", item={"type": "fileChange", "id": "call_1", "status": "inProgress", "changes": changes})
    return bench.ask(7, "item/fileChange/requestApproval")


@pytest.mark.parametrize("mode", ["build", "plan", "accept-edits", "bypass"])
def test_codex_asks_for_everything_where_a_rule_may_forbid_a_command(mode: str) -> None:
    bench = Bench(mode=mode)
    bench.answer(bench.ready(), {"data": MODELS})
    (start,) = written_lines(bench.codec.send(Prompt(key="k", text="hello", mode=mode, rules=DENY_BASH)))
    assert start["params"]["approvalPolicy"] == "untrusted"


@pytest.mark.parametrize(
    ("mode", "rule", "policy"),
    [
        ("build", Rule("bash", "*", "allow"), "on-request"),
        ("build", Rule("edit", "*", "deny"), "on-request"),
        ("accept-edits", Rule("edit", "*", "deny"), "untrusted"),
        ("bypass", Rule("edit", "*", "ask"), "untrusted"),
        ("bypass", Rule("webfetch", "*", "deny"), "never"),
        ("bypass", Rule("scripted_echo", "*", "deny"), "untrusted"),
        ("bypass", Rule("*", "*", "deny"), "untrusted"),
    ],
)
def test_codex_keeps_its_sandbox_where_no_rule_needs_more(mode: str, rule: Rule, policy: str) -> None:
    bench = Bench(mode=mode)
    bench.answer(bench.ready(), {"data": MODELS})
    (start,) = written_lines(bench.codec.send(Prompt(key="k", text="hello", mode=mode, rules=(rule,))))
    assert start["params"]["approvalPolicy"] == policy


def test_rules_that_come_later_change_the_policy_of_the_next_turn() -> None:
    bench = Bench().with_running_turn()
    bench.end()
    (turn,) = written_lines(bench.codec.send(Prompt(key="l", text="more", rules=DENY_BASH)))
    assert turn["params"]["approvalPolicy"] == "untrusted"


def test_a_command_that_only_reads_is_checked_and_goes_on_unseen() -> None:
    bench = Bench().with_running_turn(rules=DENY_BASH)
    actions = [{"type": "read", "command": "cat a", "name": "a", "path": "/p/a"}]
    (check,) = checks(approve(bench, "cat a", commandActions=actions))
    assert (check.metadata or {})["reads"] == ["/p/a"]
    (answer,) = written_lines(bench.codec.proceed(check.permission_id))
    assert (answer["id"], answer["result"]) == (7, ACCEPT)
    assert bench.codec.proceed(check.permission_id) == []


@pytest.mark.parametrize("command", ["touch a", "cat a > b", "cat a; touch b", "rg --pre sh x", "cat $(touch b)", "eval cat"])
def test_a_command_that_may_change_something_is_asked_in_build_mode(command: str) -> None:
    bench = Bench().with_running_turn(rules=DENY_BASH)
    actions = [{"type": "read", "command": "cat a", "name": "a", "path": "/p/a"}]
    assert facts(approve(bench, command, commandActions=actions), EventType.PERMISSION_REQUESTED)


def test_bypass_mode_is_an_answer_of_ours_where_rules_make_codex_ask() -> None:
    bench = Bench(mode="bypass").with_running_turn(mode="bypass", rules=DENY_BASH)
    (check,) = checks(approve(bench, "touch a"))
    assert written_lines(bench.codec.proceed(check.permission_id))[0]["result"] == ACCEPT


def test_a_checked_call_is_declined_when_a_rule_denies_it() -> None:
    bench = Bench(mode="bypass").with_running_turn(mode="bypass", rules=DENY_BASH)
    (check,) = checks(approve(bench, "rm a"))
    outputs = bench.codec.send(PermissionReply(check.permission_id, "reject", "by rule"))
    assert written_lines(outputs)[0]["result"] == DECLINE
    assert [data.status for data in facts(outputs, EventType.PERMISSION_RESOLVED)] == ["reject"]


def test_accept_edits_checks_patches_and_asks_for_commands() -> None:
    bench = Bench(mode="accept-edits").with_running_turn(mode="accept-edits", rules=DENY_BASH)
    assert checks(patch(bench, {"path": "/p/a", "kind": {"type": "add"}, "diff": "x"}))
    assert facts(approve(bench, "touch a"), EventType.PERMISSION_REQUESTED)


def test_every_path_of_a_patch_and_of_its_moves_is_reported() -> None:
    bench = Bench(mode="accept-edits").with_running_turn(mode="accept-edits", rules=DENY_BASH)
    move = {"path": "/p/b", "kind": {"type": "update", "move_path": "/p/../q/c"}, "diff": "@@ -1 +1 @@\n-a\n+b\n"}
    (check,) = checks(patch(bench, {"path": "/p/a", "kind": {"type": "add"}, "diff": "x"}, move))
    assert (check.metadata or {})["paths"] == ["/p/a", "/p/b", "/p/../q/c"]


def test_an_mcp_tool_is_asked_by_its_name() -> None:
    bench = Bench().with_running_turn()
    meta = {"codex_approval_kind": "mcp_tool_call", "tool_name": "echo", "tool_params": {"text": "hi"}}
    schema = {"type": "object", "properties": {}}
    outputs = bench.ask(7, "mcpServer/elicitation/request", serverName="files", mode="form", _meta=meta, requestedSchema=schema)
    (data,) = facts(outputs, EventType.PERMISSION_REQUESTED)
    assert (data.metadata["tool"], data.metadata["input"]) == ("mcp__files__echo", {"text": "hi"})


def test_tools_that_codex_does_not_ask_about_are_switched_off_where_a_rule_may_forbid_them() -> None:
    bench = Bench()
    bench.answer(bench.ready(), {"data": MODELS})
    rules = (Rule("websearch", "*", "ask"), Rule("task", "*", "deny"))
    (start,) = written_lines(bench.codec.send(Prompt(key="k", text="hello", rules=rules)))
    assert start["params"]["config"]["web_search"] == "disabled"
    assert start["params"]["config"]["features"]["multi_agent"] is False


@pytest.mark.parametrize("permission", ["read", "external_directory", "*"])
def test_codex_has_no_tool_for_images_where_a_rule_may_forbid_reading(permission: str) -> None:
    bench = Bench()
    bench.answer(bench.ready(), {"data": MODELS})
    rules = (Rule("task", "*", "deny"), Rule(permission, "*", "deny"))
    (start,) = written_lines(bench.codec.send(Prompt(key="k", text="hello", rules=rules)))
    features = start["params"]["config"]["features"]
    assert (features["view_image"], features["multi_agent"]) == (False, False)


def test_other_tools_for_other_rules_need_another_process() -> None:
    bench = Bench().with_running_turn()
    bench.end()
    assert bench.codec.send(Prompt(key="l", text="more", rules=(Rule("task", "*", "deny"),))) == [
        Stop("other permission rules or MCP servers need another process", again=True)
    ]


def test_mcp_servers_are_part_of_the_threads_configuration() -> None:
    bench = Bench()
    bench.answer(bench.ready(), {"data": MODELS})
    near = McpServer("near by", command=("near", "-x"), environment={"TOKEN": "t"}, timeout_ms=1500)
    far = McpServer("far", url="https://far.invalid", headers={"h": "v"})
    setup = DirectorySetup((near, far))
    (start,) = written_lines(bench.codec.send(Prompt(key="k", text="hello", setup=setup)))
    limits = {"startup_timeout_sec": 1.5, "tool_timeout_sec": 1.5}
    assert start["params"]["config"]["mcp_servers"] == {
        "near_by": {"command": "near", "args": ["-x"], "env": {"TOKEN": "t"}, **limits},
        "far": {"url": "https://far.invalid", "http_headers": {"h": "v"}},
    }
    line = {"method": "mcpServer/startupStatus/updated", "params": {"name": "near_by", "status": "ready"}}
    (report,) = facts(bench.codec.receive(json.dumps(line).encode()), EventType.ITEM_COMPLETED)
    assert report.item.metadata == {"servers": {"near by": {"status": "connected"}}}


WITHOUT_ONE = DirectorySetup(withheld_skills=("/held/SKILL.md",))


def test_a_skill_that_it_may_not_offer_is_off_in_the_threads_configuration() -> None:
    bench = Bench()
    bench.answer(bench.ready(), {"data": MODELS})
    (start,) = written_lines(bench.codec.send(Prompt(key="k", text="hello", setup=WITHOUT_ONE)))
    assert start["params"]["config"]["skills"] == {"config": [{"path": "/held/SKILL.md", "enabled": False}]}


@pytest.mark.parametrize("setup", [DirectorySetup((McpServer("near", command=("near",)),)), WITHOUT_ONE])
def test_other_mcp_servers_or_skills_need_another_process(setup: DirectorySetup) -> None:
    bench = Bench().with_running_turn()
    bench.end()
    assert [type(output) for output in bench.codec.send(Prompt(key="l", text="more", setup=setup))] == [Stop]


def test_the_mode_in_force_is_known() -> None:
    assert Bench(mode="plan").with_running_turn(mode="plan").codec.mode == "plan"


def test_a_refusal_without_words_ends_the_turn() -> None:
    bench = Bench(mode="default").with_running_turn(mode="default")
    [asked] = facts(approve(bench, "touch a"), EventType.PERMISSION_REQUESTED)
    answer, interrupt = written_lines(bench.codec.send(PermissionReply(asked.permission_id, "reject", stops=True)))
    assert answer["result"] == {"decision": "cancel"}
    assert interrupt["method"] == "turn/interrupt"
