"""Files and terminals of the ACP codec, line by line: what the runtime is asked, what the agent is told, what a card shows."""

from __future__ import annotations

from typing import Any

import pytest

from shim.dev.record.driver import counting_ids
from tests.unit.agents.acp.test_codec import Talk, lines
from universal.agents.acp.codec import AcpCodec
from universal.agents.acp.host import ENDED_TERMINALS, KEPT_BYTES, SHOWN_CHARS, TERMINALS
from universal.agents.acp.profiles import PROFILES
from universal.codec import Fact, Interrupt, Output, PermissionReply, Prompt, ToolCheck
from universal.events import EventType, ItemDeltaData, PermissionData
from universal.host import CommandEnded, CommandOutput, HostAnswer, HostDone, ReadText, RunCommand, StopCommand, WriteText
from universal.items import ItemKind


def talk() -> Talk:
    """In a turn."""
    made = Talk().ready()
    made.send(Prompt("p", "hi"))
    return made


def answer_host_call(made: Talk, answer: HostAnswer) -> list[Output]:
    return made.take(made.codec.on_host_answer(answer))


def terminal(made: Talk, **more: Any) -> str:
    """A terminal that has been started."""
    [call] = made.request(50, "terminal/create", command="make", args=["all"], **more)
    assert isinstance(call, RunCommand)
    [told] = lines(answer_host_call(made, HostDone(call.call)))
    assert told == {"jsonrpc": "2.0", "id": 50, "result": {"terminalId": call.call}}
    return call.call


def result(made: Talk, method: str, id_: str) -> Any:
    [told] = lines(made.request(60, method, terminalId=id_))
    return told.get("result", told.get("error"))


def test_announced_client_capabilities() -> None:
    able = Talk().launch().written_lines()[0]["params"]["clientCapabilities"]
    assert able == {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
        "session": {"notices": {}, "compaction": {}},
        "elicitation": {"form": {}, "url": {}},
    }


def test_the_server_reads_no_files_for_gemini() -> None:
    """Gemini CLI 0.61.0 sees no reason of a read that fails, so it could make no new file."""
    [gemini] = [profile for profile in PROFILES if profile.name == "gemini"]
    made = Talk(AcpCodec(counting_ids(), gemini)).launch()
    able = made.written_lines()[0]["params"]["clientCapabilities"]
    assert able["fs"] == {"readTextFile": False, "writeTextFile": True}
    assert able["terminal"] is True


def test_files() -> None:
    made = talk()
    [read] = made.request(7, "fs/read_text_file", path="/p/a", line=3, limit=2)
    [write] = made.request(8, "fs/write_text_file", path="/p/b", content="")
    assert isinstance(read, ReadText)
    assert isinstance(write, WriteText)
    assert (read.path, read.line, read.limit, write.path, write.text) == ("/p/a", 3, 2, "/p/b", "")
    assert lines(answer_host_call(made, HostDone(write.call)))[0] == {"jsonrpc": "2.0", "id": 8, "result": {}}
    refused = HostDone(read.call, trouble="not_found", error="Resource not found: /p/a")
    [told] = lines(answer_host_call(made, refused))
    assert told["error"] == {"code": -32002, "message": "Resource not found: /p/a"}
    assert answer_host_call(made, refused) == []


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("fs/write_text_file", {"path": "/p/a"}),
        ("terminal/create", {}),
        ("terminal/create", {"command": 5}),
        ("terminal/output", {"terminalId": "term_9"}),
        ("terminal/release", {}),
    ],
)
def test_malformed_host_requests_are_refused(method: str, params: dict[str, Any]) -> None:
    [told] = lines(talk().request(9, method, **params))
    assert told["error"]["code"] in (-32602, -32002)


def test_the_end_of_the_output_is_kept_and_cut_between_characters() -> None:
    made = talk()
    id_ = terminal(made, outputByteLimit=5)
    answer_host_call(made, CommandOutput(id_, "äöü"))
    assert result(made, "terminal/output", id_) == {"output": "öü", "truncated": True}
    whole = terminal(made)
    answer_host_call(made, CommandOutput(whole, "x" * KEPT_BYTES))
    assert result(made, "terminal/output", whole)["truncated"] is False
    answer_host_call(made, CommandOutput(whole, "y"))
    told = result(made, "terminal/output", whole)
    assert (len(told["output"]), told["output"][-1], told["truncated"]) == (KEPT_BYTES, "y", True)


def test_waiting_for_the_end() -> None:
    made = talk()
    id_ = terminal(made)
    assert made.request(70, "terminal/wait_for_exit", terminalId=id_) == []
    told = lines(answer_host_call(made, CommandEnded(id_, None, "SIGTERM")))
    assert told == [{"jsonrpc": "2.0", "id": 70, "result": {"exitCode": None, "signal": "SIGTERM"}}]
    assert result(made, "terminal/wait_for_exit", id_) == {"exitCode": None, "signal": "SIGTERM"}


def test_kill_and_release() -> None:
    made = talk()
    id_ = terminal(made)
    stop, answer = made.request(71, "terminal/kill", terminalId=id_)
    assert stop == StopCommand(id_)
    assert lines([answer])[0]["result"] == {}
    assert "output" in result(made, "terminal/output", id_)
    assert made.request(72, "terminal/release", terminalId=id_)[0] == StopCommand(id_, release=True)
    assert result(made, "terminal/output", id_)["code"] == -32002


def test_an_interrupt_stops_what_runs_and_nothing_new_begins() -> None:
    made = talk()
    running, over = terminal(made), terminal(made)
    answer_host_call(made, CommandEnded(over, 0))
    stops = [out for out in made.send(Interrupt()) if isinstance(out, StopCommand)]
    assert stops == [StopCommand(running, release=True)]
    [told] = lines(made.request(73, "terminal/create", command="ls"))
    assert "interrupted" in told["error"]["message"]


def test_released_terminals_make_room_and_are_forgotten() -> None:
    made = talk()
    for _ in range(3 * TERMINALS):
        id_ = terminal(made)
        answer_host_call(made, CommandEnded(id_, 0))
        made.request(74, "terminal/release", terminalId=id_)
    for _ in range(TERMINALS):
        terminal(made)
    [told] = lines(made.request(75, "terminal/create", command="ls"))
    assert "16 commands are running" in told["error"]["message"]


def test_terminals_whose_command_has_ended_block_no_other() -> None:
    made = talk()
    ids: list[str] = []
    for _ in range(ENDED_TERMINALS + 1):
        ids.append(terminal(made))
        answer_host_call(made, CommandEnded(ids[-1], 0))
    assert result(made, "terminal/output", ids[1])["exitStatus"] == {"exitCode": 0, "signal": None}
    assert result(made, "terminal/output", ids[0])["code"] == -32002


def tool(made: Talk, what: str, **more: Any) -> None:
    """An update of the call `c`."""
    update = {"sessionUpdate": what, "toolCallId": "c", **more}
    made.say({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})


def cards(made: Talk) -> list[tuple[str, str, Any]]:
    """Tool calls and results that are complete: kind, text, metadata."""
    items = [out.data.item for out in made.outputs if isinstance(out, Fact) and out.type is EventType.ITEM_COMPLETED]
    parts = [(item, item.content[0]) for item in items if item.kind in (ItemKind.TOOL_CALL, ItemKind.TOOL_RESULT)]
    return [(str(i.kind), getattr(p, "arguments", getattr(p, "output", "")), i.metadata) for i, p in parts]


def test_a_call_shows_its_terminal() -> None:
    made = talk()
    id_ = terminal(made)
    answer_host_call(made, CommandOutput(id_, "early\n"))
    tool(made, "tool_call", title="Shell", kind="execute", content=[{"type": "terminal", "terminalId": id_}])
    answer_host_call(made, CommandOutput(id_, "late\n"))
    deltas = [out.data.delta for out in made.outputs if isinstance(out, Fact) and isinstance(out.data, ItemDeltaData)]
    assert deltas == ["early\n", "late\n"]
    answer_host_call(made, CommandEnded(id_, 2))
    made.request(76, "terminal/release", terminalId=id_)
    tool(made, "tool_call_update", status="failed", content=[])
    call, told = cards(made)
    assert '"command": "make all"' in call[1]
    assert (told[1], told[2]["exit_code"]) == ("early\nlate\n", 2)


def test_a_call_that_shows_a_terminal_that_was_released_already() -> None:
    made = talk()
    id_ = terminal(made)
    answer_host_call(made, CommandOutput(id_, "done\n"))
    answer_host_call(made, CommandEnded(id_, 0))
    made.request(77, "terminal/release", terminalId=id_)
    block = {"type": "terminal", "terminalId": id_}
    tool(made, "tool_call", title="ls", kind="execute", rawInput={"command": "ls"}, status="pending")
    tool(made, "tool_call_update", status="completed", content=[block])
    call, told = cards(made)
    assert call[1] == '{"command": "ls"}'
    assert (told[1], told[2]["exit_code"]) == ("done\n", 0)


def test_a_flood_is_shown_up_to_a_limit() -> None:
    made = talk()
    id_ = terminal(made)
    tool(made, "tool_call", title="yes", kind="execute", content=[{"type": "terminal", "terminalId": id_}])
    for _ in range(3):
        answer_host_call(made, CommandOutput(id_, "y" * SHOWN_CHARS))
    deltas = [out.data.delta for out in made.outputs if isinstance(out, Fact) and isinstance(out.data, ItemDeltaData)]
    assert SHOWN_CHARS < sum(map(len, deltas)) < SHOWN_CHARS + 100
    assert "not shown" in deltas[-1]


def test_output_after_its_call_is_over_begins_no_new_one() -> None:
    made = talk()
    id_ = terminal(made)
    tool(made, "tool_call", title="x", kind="execute", content=[{"type": "terminal", "terminalId": id_}])
    tool(made, "tool_call_update", status="completed")
    assert answer_host_call(made, CommandOutput(id_, "late")) == []
    assert answer_host_call(made, CommandEnded(id_, 0)) == []


# --- permission rules -------------------------------------------------------------------------------------


def holding_talk() -> Talk:
    made = talk()
    made.holds = True
    return made


def check(outputs: list[Output]) -> PermissionData:
    [output] = outputs
    assert isinstance(output, ToolCheck)
    assert isinstance(output.request.data, PermissionData)
    return output.request.data


@pytest.mark.parametrize(
    ("method", "params", "tool", "input_", "call"),
    [
        ("fs/read_text_file", {"path": "/p/a"}, "read", {"path": "/p/a"}, ReadText),
        ("fs/write_text_file", {"path": "/p/a", "content": "x"}, "write", {"path": "/p/a", "content": "x"}, WriteText),
        ("terminal/create", {"command": "rm", "args": ["a b"]}, "execute", {"command": "rm 'a b'"}, RunCommand),
    ],
)
def test_files_and_commands_wait_for_the_permission_rules(
    method: str, params: dict[str, Any], tool: str, input_: dict[str, str], call: type
) -> None:
    made = holding_talk()
    data = check(made.request(7, method, **params))
    assert (data.action, (data.metadata or {})["input"]) == (tool, input_)
    [carried_out] = made.take(made.codec.proceed(data.permission_id))
    assert isinstance(carried_out, call)
    assert made.codec.proceed(data.permission_id) == []


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("fs/write_text_file", {"path": "/p/a", "content": "x"}),
        ("terminal/create", {"command": "rm", "args": ["a"]}),
    ],
)
def test_a_denied_file_or_command_is_refused_with_the_reason(method: str, params: dict[str, Any]) -> None:
    made = holding_talk()
    data = check(made.request(7, method, **params))
    outputs = made.send(PermissionReply(data.permission_id, "reject", "by rule"))
    [line] = lines(outputs)
    assert "by rule" in line["error"]["message"]
    assert [out.data.status for out in outputs if isinstance(out, Fact) and isinstance(out.data, PermissionData)] == ["reject"]


def test_a_granted_call_is_not_checked_again_for_its_file() -> None:
    made = holding_talk()
    told = {"toolCallId": "c1", "kind": "edit", "title": "write a", "rawInput": {"path": "/p/a"}}
    options = [{"optionId": "yes", "kind": "allow_once", "name": "Yes"}]
    asked = made.request(7, "session/request_permission", sessionId="s", toolCall=told, options=options)
    [request] = [out.data for out in asked if isinstance(out, Fact) and isinstance(out.data, PermissionData)]
    made.send(PermissionReply(request.permission_id, "accept"))
    [write] = made.request(8, "fs/write_text_file", path="/p/a", content="x")
    assert isinstance(write, WriteText)
    check(made.request(9, "fs/write_text_file", path="/p/b", content="x"))


@pytest.mark.parametrize(
    ("words", "cwd", "is_granted"),
    [
        (["/bin/bash", "-c", "touch a"], "/p", True),
        (["/bin/bash", "-c", "cd '/p' && touch a"], "/p", True),
        (["/bin/bash", "-c", "cd '/q' && touch a"], "/p", False),
        (["/bin/bash", "-c", "cd '/p' && touch a && rm b"], "/p", False),
        (["python3", "-c", "touch a"], "/p", False),
    ],
    ids=str,
)
def test_a_granted_line_is_not_checked_again_for_its_terminal(words: list[str], cwd: str, is_granted: bool) -> None:
    made = holding_talk()
    told = {"toolCallId": "c1", "kind": "execute", "title": "Bash", "rawInput": {"command": "touch a"}}
    options = [{"optionId": "yes", "kind": "allow_once", "name": "Yes"}]
    asked = made.request(7, "session/request_permission", sessionId="s", toolCall=told, options=options)
    [request] = [out.data for out in asked if isinstance(out, Fact) and isinstance(out.data, PermissionData)]
    made.send(PermissionReply(request.permission_id, "accept"))
    [run] = made.request(8, "terminal/create", command=words[0], args=words[1:], cwd=cwd)
    assert isinstance(run, RunCommand) == is_granted
    if isinstance(run, RunCommand):
        assert (run.command, list(run.args), run.cwd) == (words[0], words[1:], cwd), "it runs as the agent wants it"


def test_an_interrupt_carries_out_no_checked_call() -> None:
    made = holding_talk()
    data = check(made.request(7, "terminal/create", command="rm", args=["a"]))
    outputs = made.send(Interrupt())
    assert not any(isinstance(out, RunCommand) for out in outputs)
    assert made.codec.proceed(data.permission_id) == []
