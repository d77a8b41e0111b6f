"""Version 2 of the Agent Client Protocol: who chooses it, begin and end of turns, upserts, terminals, permissions."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from shim.dev.record.driver import counting_ids
from tests.unit.agents.acp.test_codec import OWN, Talk
from universal.agents.acp.cards import PROFILES
from universal.agents.acp.codec import AcpCodec
from universal.agents.acp.ends import ACCEPT_S, END, LATE_S, OWN_S, SILENT_S
from universal.agents.acp.turns2 import Turns2
from universal.codec import Fact, Interrupt, PermissionReply, Prompt, Signal, Stop, WriteLine
from universal.events import ErrorData, EventType, ItemData, ItemDeltaData, PermissionData
from universal.items import FileRefPart, Item, ItemKind, TextPart, ToolResultPart
from universal.turn import Input

AGENT: dict[str, Any] = {
    "protocolVersion": 2,
    "info": {"name": "two", "version": "1"},
    "capabilities": {"session": {"prompt": {"image": {}}}},
}
PROMPT = Prompt("p", "hi")


def ready(**session: Any) -> Talk:
    return Talk().ready(AGENT, **session)


def busy_talk(**session: Any) -> Talk:
    """A prompt is accepted and at work."""
    talk = ready(**session)
    talk.send(PROMPT)
    talk.answer("session/prompt", {"messageId": "u1"})
    state(talk, "running")
    return talk


def state(talk: Talk, name: str, **more: Any) -> None:
    talk.update("state_update", state=name, **more)


def deltas(talk: Talk) -> list[str]:
    return [out.data.delta for out in talk.outputs if isinstance(out, Fact) and isinstance(out.data, ItemDeltaData)]


def completed_items(talk: Talk, kind: ItemKind) -> list[Item]:
    facts = [out for out in talk.outputs if isinstance(out, Fact) and out.type is EventType.ITEM_COMPLETED]
    return [fact.data.item for fact in facts if isinstance(fact.data, ItemData) and fact.data.item.kind is kind]


def texts(talk: Talk) -> list[str]:
    parts = [part for item in completed_items(talk, ItemKind.MESSAGE) for part in item.content]
    return [part.text for part in parts if isinstance(part, TextPart)]


def results(talk: Talk) -> list[str]:
    parts = [part for item in completed_items(talk, ItemKind.TOOL_RESULT) for part in item.content]
    return [part.output for part in parts if isinstance(part, ToolResultPart)]


def inputs(talk: Talk) -> list[Input]:
    return [out.input for out in talk.outputs if isinstance(out, Signal)]


# --- who chooses the version ------------------------------------------------------------------------------


def test_both_forms_of_the_handshake_are_sent() -> None:
    [line] = Talk().launch().written_lines()
    assert line["params"]["protocolVersion"] == 1
    assert {"clientInfo", "clientCapabilities", "info", "capabilities"} <= line["params"].keys()


def test_the_profile_says_which_version_is_asked_for() -> None:
    talk = Talk(AcpCodec(counting_ids(), replace(OWN, protocol=2))).launch()
    assert talk.written_lines()[0]["params"]["protocolVersion"] == 2
    talk.answer("initialize", {"protocolVersion": 1, "agentCapabilities": {}})
    assert talk.methods()[-1] == "session/new"
    assert {profile.protocol for profile in PROFILES} == {1}  # docs/agents-wire.md: why no agent is asked for the draft


@pytest.mark.parametrize("version", [0, 3, "2", None, 2.5])
def test_a_version_that_is_not_spoken_is_refused_with_a_sentence(version: Any) -> None:
    talk = Talk().launch()
    talk.send(PROMPT)
    talk.answer("initialize", {"protocolVersion": version})
    [error] = [out.data for out in talk.outputs if isinstance(out, Fact) and isinstance(out.data, ErrorData)]
    assert error.message == (
        f"Own answered with version {version} of the Agent Client Protocol, but this server speaks 1 and 2. "
        "Install a version of Own that speaks one of them, or update opencode-shim."
    )
    assert error.code == "protocol_version"
    assert inputs(talk) == [Input.FAILED]
    assert any(isinstance(out, Stop) for out in talk.outputs)
    assert talk.methods() == ["initialize"]


def test_an_agent_of_version_2_without_sessions_is_refused() -> None:
    talk = Talk().launch()
    talk.answer("initialize", {"protocolVersion": 2, "info": {"name": "x"}, "capabilities": {}})
    assert talk.errors() == ["no_sessions"]


def test_a_session_is_resumed_without_a_replay() -> None:
    talk = Talk().launch(native_session_id="old", resume=True)
    talk.answer("initialize", AGENT)
    request = talk.written_lines()[-1]
    assert request["method"] == "session/resume"
    assert request["params"] == {"cwd": "/p", "mcpServers": [], "sessionId": "old"}


# --- begin and end of a turn ------------------------------------------------------------------------------


def test_idle_ends_the_turn_once_and_the_answer_to_the_prompt_does_not() -> None:
    talk = ready()
    talk.send(PROMPT)
    talk.answer("session/prompt", {"messageId": "u1"})
    state(talk, "running")
    talk.chunk("Hello", messageId="a1")
    assert inputs(talk) == []
    state(talk, "idle", stopReason="end_turn", usage={"inputTokens": 3, "outputTokens": 2, "totalTokens": 5})
    state(talk, "idle", stopReason="end_turn")
    [signal] = [out for out in talk.outputs if isinstance(out, Signal)]
    assert signal.input is Input.DONE
    assert signal.metadata == {"usage": {"input": 3, "output": 2, "reasoning": 0, "cache_read": 0, "cache_write": 0}}
    assert texts(talk) == ["Hello"]


def test_idle_before_the_prompt_is_accepted_ends_nothing() -> None:
    talk = ready()
    talk.waits = True
    talk.send(PROMPT)
    state(talk, "running")  # of its own work
    state(talk, "idle", stopReason="end_turn")
    assert talk.timers == {END: ACCEPT_S}
    talk.answer("session/prompt", {"messageId": "u1"})
    state(talk, "idle")  # a snapshot
    assert (inputs(talk), talk.timers) == ([], {})
    state(talk, "running")
    talk.chunk("Hello", messageId="a1")
    state(talk, "idle", stopReason="end_turn")
    talk.run_out()
    assert inputs(talk) == [Input.DONE]


@pytest.mark.parametrize("goes_on", [True, False])
def test_idle_without_an_acceptance_ends_the_turn_unless_the_work_goes_on(goes_on: bool) -> None:
    talk = ready()
    talk.waits = True
    talk.send(PROMPT)
    state(talk, "running")
    talk.chunk("Hello", messageId="a1")
    state(talk, "idle", stopReason="end_turn")
    if goes_on:
        state(talk, "running")
        assert talk.timers == {}
    else:
        talk.run_out()  # no acceptance
        talk.run_out()  # nothing after the end
    assert inputs(talk) == ([] if goes_on else [Input.DONE])


def test_the_echo_of_the_prompt_is_its_acceptance() -> None:
    talk = ready()
    talk.send(PROMPT)
    talk.update("user_message", messageId="u1", content=[])
    state(talk, "running")
    talk.chunk("Hello", messageId="a1")
    state(talk, "idle", stopReason="end_turn")
    talk.answer("session/prompt", {"messageId": "u1"})
    assert inputs(talk) == [Input.DONE]
    assert talk.codec.counters()["ignored:answer to a prompt that is over"] == 1


def test_a_refused_prompt_is_a_failed_turn() -> None:
    talk = ready()
    talk.send(PROMPT)
    talk.answer("session/prompt", error={"code": -32603, "message": "no such block"})
    assert (inputs(talk), talk.errors()) == ([Input.FAILED], ["agent_error"])


def test_an_answer_with_a_stop_reason_ends_the_turn_as_in_version_1() -> None:
    talk = ready()
    talk.send(PROMPT)
    talk.chunk("Hello", messageId="a1")
    talk.answer("session/prompt", {"stopReason": "end_turn"})
    assert inputs(talk) == [Input.DONE]


def test_an_error_of_the_model_comes_with_idle() -> None:
    talk = busy_talk()
    state(talk, "idle", stopReason="error", error={"code": -32000, "message": "Authentication required"})
    assert (inputs(talk), talk.errors()) == ([Input.FAILED], ["authentication_failed"])


def test_an_error_that_is_also_a_message_is_reported_once() -> None:
    profile = next(profile for profile in PROFILES if profile.name == "codex-acp")
    talk = Talk(AcpCodec(counting_ids(), profile)).ready(AGENT)
    talk.send(PROMPT)
    talk.answer("session/prompt", {"messageId": "u1"})
    talk.chunk("Hel", messageId="a1")
    talk.chunk("lo", messageId="a1")
    words = "Incomplete response returned, reason: max_output_tokens"
    talk.chunk(words + "\n\n", messageId="a2")
    state(talk, "idle", stopReason="error", error={"code": -32603, "message": words})
    assert (deltas(talk), talk.errors()) == (["Hel", "lo"], ["max_output_tokens"])


def test_an_answer_without_a_word_is_waited_for_but_not_one_to_work_that_the_agent_began() -> None:
    talk = busy_talk()
    talk.waits = True
    state(talk, "idle", stopReason="end_turn")
    assert talk.timers == {END: SILENT_S}
    talk.run_out()
    state(talk, "running")
    state(talk, "idle", stopReason="end_turn")
    assert talk.timers == {END: LATE_S}
    talk.run_out()
    assert inputs(talk) == [Input.DONE, Input.ACTIVITY, Input.DONE]


def test_work_that_the_agent_began_is_a_turn_of_its_own() -> None:
    talk = ready()
    state(talk, "running")
    talk.chunk("Your build is ready.", messageId="b1")
    state(talk, "requires_action")
    state(talk, "running")
    assert inputs(talk) == [Input.ACTIVITY]
    state(talk, "idle", stopReason="end_turn")
    assert inputs(talk) == [Input.ACTIVITY, Input.DONE]
    assert texts(talk) == ["Your build is ready."]


def test_a_prompt_waits_for_the_end_of_work_that_the_agent_began() -> None:
    talk = ready()
    state(talk, "running")
    talk.send(PROMPT)
    assert "session/prompt" not in talk.methods()
    state(talk, "idle", stopReason="end_turn")
    assert talk.methods()[-1] == "session/prompt"


def test_text_while_idle_is_of_the_turn_before_it_or_of_its_own() -> None:
    talk = busy_talk()
    talk.waits = True
    talk.chunk("Hello", messageId="a1")
    state(talk, "idle", stopReason="end_turn")
    talk.chunk(" there", messageId="a1")
    talk.run_out()
    assert (inputs(talk), texts(talk)) == ([Input.DONE], ["Hello there"])
    talk.chunk("Meanwhile.", messageId="a2")
    assert inputs(talk)[1:] == [Input.ACTIVITY]
    assert talk.timers == {END: OWN_S}
    talk.run_out()
    assert (inputs(talk)[2:], texts(talk)[1:]) == ([Input.DONE], ["Meanwhile."])


def test_work_that_is_announced_after_its_first_words_is_one_turn() -> None:
    talk = busy_talk()
    state(talk, "idle", stopReason="end_turn")
    talk.waits = True
    talk.chunk("The build ", messageId="a2")
    state(talk, "running")
    assert talk.timers == {}  # its end is told
    talk.chunk("is done.", messageId="a2")
    state(talk, "idle", stopReason="end_turn")
    talk.run_out()
    assert (inputs(talk), texts(talk)) == ([Input.DONE, Input.ACTIVITY, Input.DONE], ["The build is done."])


def test_new_work_ends_the_turn_before_it() -> None:
    talk = busy_talk()
    talk.waits = True
    state(talk, "idle", stopReason="end_turn")
    state(talk, "running")
    assert inputs(talk) == [Input.DONE, Input.ACTIVITY]


@pytest.mark.parametrize("own", [True, False])
def test_an_interrupt_ends_with_the_cancelled_idle(own: bool) -> None:
    talk = ready() if own else busy_talk()
    state(talk, "running")
    talk.chunk("Hel", messageId="a1")
    talk.send(Interrupt())
    assert talk.methods()[-1] == "session/cancel"
    talk.request(7, "session/request_permission", title="late", options=[])
    assert talk.written_lines()[-1]["result"] == {"outcome": {"outcome": "cancelled"}}
    state(talk, "idle", stopReason="cancelled")
    assert talk.signals()[-1] == (Input.FAILED, True)
    assert len([signal for signal in inputs(talk) if signal is not Input.ACTIVITY]) == 1


def test_a_session_that_is_resumed_at_work_is_no_turn() -> None:
    talk = Talk().launch(native_session_id="old", resume=True)
    talk.answer("initialize", AGENT)
    state(talk, "idle")
    talk.chunk("long ago", messageId="a0")
    talk.answer("session/resume", {})
    assert (inputs(talk), deltas(talk)) == ([], [])


# --- upserts ----------------------------------------------------------------------------------------------


def test_an_update_of_an_unknown_call_creates_it_and_content_chunks_are_appended() -> None:
    talk = busy_talk()
    talk.update("tool_call_update", toolCallId="t1", title="Look", kind="other", status="in_progress", rawInput={"a": 1})
    for text in ("one", "two"):
        block = {"type": "content", "content": {"type": "text", "text": text}}
        talk.update("tool_call_content_chunk", toolCallId="t1", content=block)
    talk.update("tool_call_update", toolCallId="t1", status="completed")
    assert results(talk) == ["one\ntwo"]


def test_null_clears_the_content_of_a_call() -> None:
    talk = busy_talk()
    block = {"type": "content", "content": {"type": "text", "text": "draft"}}
    talk.update("tool_call_update", toolCallId="t1", title="Look", kind="other", status="in_progress", content=[block])
    talk.update("tool_call_update", toolCallId="t1", status="completed", content=None)
    assert results(talk) == [""]


def test_a_whole_message_adds_what_goes_on_and_replaces_what_differs() -> None:
    talk = busy_talk()
    talk.chunk("Hel", messageId="a1")
    talk.update("agent_message", messageId="a1", content=[{"type": "text", "text": "Hello"}])
    talk.update("agent_message", messageId="a1")
    assert deltas(talk) == ["Hel", "lo"]
    talk.update("agent_message", messageId="a1", content=[{"type": "text", "text": "Good day"}])
    talk.chunk("!", messageId="a1")
    state(talk, "idle", stopReason="end_turn")
    assert texts(talk) == ["Good day!"]


def test_a_thought_and_a_message_come_whole() -> None:
    talk = busy_talk()
    talk.update("agent_thought", messageId="r1", content=[{"type": "text", "text": "Hm."}])
    talk.update("agent_message", messageId="a1", content=[{"type": "text", "text": "Yes."}])
    state(talk, "idle", stopReason="end_turn")
    assert (deltas(talk), texts(talk)) == (["Hm.", "Yes."], ["Yes."])


def test_a_diff_brings_its_patch_for_each_file() -> None:
    patch = (
        "diff --git a/p/a b/p/a\n--- a/p/a\n+++ b/p/a\n@@ -1 +1 @@\n-x\n+y\n"
        "diff --git a/p/b b/p/b\nnew file mode 100644\n--- /dev/null\n+++ b/p/b\n@@ -0,0 +1 @@\n+z\n"
    )
    changes = [{"operation": "modify", "path": "/p/a"}, {"operation": "add", "path": "/p/b"}]
    talk = busy_talk()
    block = {"type": "diff", "changes": changes, "patch": {"format": "git_patch", "text": patch}}
    talk.update("tool_call_update", toolCallId="t1", title="Edit", kind="edit", status="completed", content=[block])
    [result] = completed_items(talk, ItemKind.TOOL_RESULT)
    files = [part for part in result.content if isinstance(part, FileRefPart)]
    assert [(part.path, part.action) for part in files] == [("/p/a", "patch"), ("/p/b", "write")]
    assert files[0].diff == "--- /p/a\n+++ /p/a\n@@ -1 +1 @@\n-x\n+y\n"
    assert files[1].diff == "--- /dev/null\n+++ /p/b\n@@ -0,0 +1 @@\n+z\n"


def test_an_edit_shows_the_texts_of_its_patch() -> None:
    talk = busy_talk()
    patch = "diff --git a/p/a b/p/a\n--- a/p/a\n+++ b/p/a\n@@ -1,2 +1,2 @@\n k\n-x\n+y\n"
    change = {"operation": "modify", "path": "/p/a"}
    block = {"type": "diff", "changes": [change], "patch": {"format": "git_patch", "text": patch}}
    talk.update("tool_call_update", toolCallId="t1", title="Edit", kind="edit", status="completed", content=[block])
    [call] = completed_items(talk, ItemKind.TOOL_CALL)
    assert (call.metadata or {})["input"] == {"path": "/p/a", "oldText": "k\nx\n", "newText": "k\ny\n"}


def b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def test_a_terminal_is_shown_by_the_call_that_names_it() -> None:
    talk = busy_talk()
    talk.update("terminal_update", terminalId="x", command="make")
    talk.update("terminal_output_chunk", terminalId="x", data=b64("é".encode()[:1]))
    content = [{"type": "terminal", "terminalId": "x"}]
    talk.update("tool_call_update", toolCallId="t1", title="make", kind="execute", status="in_progress", content=content)
    talk.update("terminal_output_chunk", terminalId="x", data=b64("é".encode()[1:] + b"n"))
    talk.update("terminal_update", terminalId="x", output={"data": b64("én\nend".encode())}, exitStatus={"exitCode": 3})
    talk.update("tool_call_update", toolCallId="t1", status="failed")
    [result] = completed_items(talk, ItemKind.TOOL_RESULT)
    assert (results(talk), (result.metadata or {})["exit_code"]) == (["én\nend"], 3)
    assert deltas(talk) == ["én", "\nend"]


def test_a_terminal_that_is_rewritten_shows_its_last_output() -> None:
    talk = busy_talk()
    content = [{"type": "terminal", "terminalId": "x"}]
    talk.update("tool_call_update", toolCallId="t1", title="make", kind="execute", status="in_progress", content=content)
    talk.update("terminal_output_chunk", terminalId="x", data=b64(b"10 %"))
    talk.update("terminal_update", terminalId="x", output={"data": b64(b"done")})
    talk.update("tool_call_update", toolCallId="t1", status="completed")
    assert results(talk) == ["done"]


def test_plans_notices_and_compactions_are_sent() -> None:
    talk = busy_talk()
    entries = [{"content": "look", "status": "pending", "priority": "high"}]
    talk.update("plan_update", plan={"type": "items", "planId": "1", "entries": entries})
    talk.update("plan_update", plan={"type": "markdown", "planId": "2", "content": "# Plan"})
    talk.update("plan_removed", planId="1")
    talk.update("compaction_update", compactionId="c", status="in_progress")
    talk.update("notice", severity="warning", title="Slow", description="Very slow")
    metadata = [item.metadata or {} for item in completed_items(talk, ItemKind.STATUS)]
    assert [data["todos"] for data in metadata if "todos" in data] == [entries, []]
    assert [data["phase"] for data in metadata if "phase" in data] == ["started"]
    [note] = completed_items(talk, ItemKind.SYSTEM)
    assert note.content == (TextPart(text="Slow\nVery slow"),)
    assert talk.codec.counters()["ignored:plan of type markdown"] == 1


@pytest.mark.parametrize(("kind", "count"), [("_acme_widget", "ignored:_acme_widget"), ("widget", "unparsed:widget")])
def test_updates_of_unknown_kinds_are_counted(kind: str, count: str) -> None:
    talk = busy_talk()
    talk.update(kind)
    assert talk.codec.counters()[count] == 1


def test_a_batch_is_its_messages() -> None:
    talk = busy_talk()
    content = {"type": "text", "text": "Hello"}
    update = {"sessionUpdate": "agent_message_chunk", "messageId": "a1", "content": content}
    idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
    rows = [{"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": row}} for row in (update, idle)]
    talk.take(talk.codec.receive(json.dumps(rows).encode()))
    assert (texts(talk), inputs(talk)) == (["Hello"], [Input.DONE])
    talk.take(talk.codec.receive(b"[1]"))
    assert talk.codec.counters()["unparsed:no JSON-RPC"] == 1


# --- settings ---------------------------------------------------------------------------------------------


def test_options_are_set_by_their_config_id() -> None:
    rows = [{"value": "a", "name": "A"}, {"value": "b", "name": "B"}]
    model = {"configId": "model", "category": "model", "type": "select", "currentValue": "a", "options": rows}
    commands = [{"type": "command", "name": "go", "description": "Go"}, {"type": "widget", "name": "x", "description": "y"}]
    talk = ready(configOptions=[model], availableCommands=commands)
    assert talk.codec.catalogue is not None
    assert [command.name for command in talk.codec.catalogue.commands] == ["go"]
    talk.send(Prompt("p", "hi", model="b"))
    request = talk.written_lines()[-1]
    assert request["method"] == "session/set_config_option"
    assert request["params"] == {"sessionId": "s", "configId": "model", "value": "b", "type": "id"}


# --- what the agent asks ----------------------------------------------------------------------------------

OPTIONS = [{"optionId": "yes", "kind": "allow_once", "name": "Yes"}, {"optionId": "no", "kind": "reject_once", "name": "No"}]


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (
            {"type": "tool_call", "toolCall": {"toolCallId": "t1", "kind": "execute", "rawInput": {"command": "rm x"}}},
            {"input": {"command": "rm x"}, "tool": "execute"},
        ),
        ({"type": "command", "command": "rm x", "cwd": "/p"}, {"input": {"command": "rm x"}, "tool": "execute"}),
        ({"type": "something_new"}, {"opaque": True, "title": "Really?"}),
        (None, {"opaque": True, "title": "Really?"}),
    ],
)
def test_rules_see_the_subject_of_a_permission(subject: Any, expected: dict[str, Any]) -> None:
    talk = busy_talk()
    talk.request(3, "session/request_permission", title="Really?", subject=subject, options=OPTIONS)
    asked = talk.last_request()
    assert isinstance(asked, PermissionData)
    assert expected.items() <= (asked.metadata or {}).items()
    talk.send(PermissionReply(asked.permission_id, "reject"))
    assert talk.written_lines()[-1]["result"] == {"outcome": {"outcome": "selected", "optionId": "no"}}


def test_rules_see_each_path_of_a_diff() -> None:
    changes = [{"operation": "move", "oldPath": "/p/a", "path": "/q/b"}, {"operation": "delete", "path": "/p/c"}]
    call = {"toolCallId": "t1", "kind": "edit", "title": "Edit", "content": [{"type": "diff", "changes": changes}]}
    talk = busy_talk()
    subject = {"type": "tool_call", "toolCall": call}
    talk.request(3, "session/request_permission", title="Edit?", subject=subject, options=OPTIONS)
    assert (talk.last_request().metadata or {})["paths"] == ["/q/b", "/p/a", "/p/c"]


def test_a_subagents_calls_are_shown_and_what_it_says_is_counted() -> None:
    talk = busy_talk()
    talk.update("subagent_update", sessionId="child")
    for session_id in ("child", "stranger"):
        updates: list[dict[str, Any]] = [
            {"sessionUpdate": "tool_call_update", "toolCallId": f"t-{session_id}", "kind": "read", "status": "completed"},
            {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"},
        ]
        for update in updates:
            talk.say({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session_id, "update": update}})
    assert len(completed_items(talk, ItemKind.TOOL_RESULT)) == 1
    assert inputs(talk) == []
    assert talk.codec.counters()["ignored:update of another session"] == 3


@pytest.mark.parametrize("method", ["fs/read_text_file", "fs/write_text_file", "terminal/create"])
def test_files_and_terminals_of_the_client_are_gone(method: str) -> None:
    talk = busy_talk()
    [line, _] = talk.request(4, method, path="/p/a", content="x", command="ls")
    assert isinstance(line, WriteLine)
    assert json.loads(line.data)["error"]["message"] == f"not supported: {method}"


def test_the_answered_version_chooses_the_turns() -> None:
    codecs: dict[int, AcpCodec] = {1: Talk().ready().codec, 2: ready().codec}
    kinds = {version: any(isinstance(value, Turns2) for value in vars(codec).values()) for version, codec in codecs.items()}
    assert kinds == {1: False, 2: True}
