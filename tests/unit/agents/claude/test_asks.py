"""Claude's calls that wait for our hook: how they are checked, answered and withdrawn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.claude_lines import (
    Msg,
    Story,
    assistant,
    can_use,
    cancel,
    hook,
    init,
    task_started,
    tool_result,
    tool_use,
)
from tests.support.replay import encode
from universal.agents.claude.asks import HOOKS
from universal.agents.claude.codec import NOT_HELD
from universal.claude_code import UNCHECKED
from universal.codec import FilesChanged, PermissionReply, QuestionReply, ToolCheck, WriteLine
from universal.events import EventType, PermissionData
from universal.launch import Exit
from universal.permissions import Rule

RULES = (Rule("edit", "*", "deny"),)


def turn_story(**options: Any) -> Story:
    story = Story(**options)
    story.prompts()
    story.hears(init())
    return story


def checks(story: Story) -> list[Any]:
    return [out.request for out in story.outputs if isinstance(out, ToolCheck)]


def answers(lines: list[Msg]) -> list[Msg]:
    return [line["response"]["response"] for line in lines if line["type"] == "control_response"]


def decision(answer: Msg) -> str | None:
    return answer.get("hookSpecificOutput", {}).get("permissionDecision")


def test_a_call_waits_until_it_is_answered() -> None:
    story = turn_story()
    assert story.hears(hook("h1", "Write", file_path="/project/a", content="x\n")) == []
    (request,) = checks(story)
    data = request.data
    assert isinstance(data, PermissionData)
    assert (request.type, data.action, data.status, request.child) == (EventType.PERMISSION_REQUESTED, "Write", "requested", None)
    assert data.metadata is not None
    assert (data.metadata["call_id"], data.metadata["input"]) == ("toolu_1", {"file_path": "/project/a", "content": "x\n"})
    assert "+x" in str(data.metadata["diff"])
    assert story.facts(EventType.PERMISSION_REQUESTED) == [], "whether it is asked is for the session"


def test_a_call_that_claudes_mode_allows_makes_no_event() -> None:
    story = turn_story()
    story.hears(hook("h1", "Read", file_path="/project/a"))
    outputs = story.codec.proceed("permission_1")
    story.take(outputs)
    assert [line["response"] for line in story.written_lines()[-1:]] == [
        {"subtype": "success", "request_id": "h1", "response": {}}
    ]
    assert story.facts(EventType.PERMISSION_RESOLVED) == []
    assert story.codec.proceed("permission_1") == []


def test_a_rejected_call_is_denied_with_the_reason() -> None:
    story = turn_story()
    story.hears(hook("h1", "Bash", command="touch x"))
    (answer,) = answers(story.does(PermissionReply("permission_1", "reject", "not here")))
    output = answer["hookSpecificOutput"]
    assert (output["hookEventName"], output["permissionDecision"]) == ("PreToolUse", "deny")
    assert output["permissionDecisionReason"] == "not here"
    assert [fact.data.status for fact in story.facts(EventType.PERMISSION_RESOLVED)] == ["reject"]


@pytest.mark.parametrize("reply", ["accept", "accept_for_session"])
def test_claude_does_not_ask_again_about_a_call_that_a_person_allowed(reply: Any) -> None:
    story = turn_story()
    story.hears(hook("h1", "Bash", command="touch x"))
    (answer,) = answers(story.does(PermissionReply("permission_1", reply)))
    assert decision(answer) == "allow"
    (again,) = answers(story.hears(can_use("r1", "Bash", input={"command": "touch x"})))
    assert again == {"behavior": "allow", "updatedInput": {"command": "touch x"}}
    assert story.facts(EventType.PERMISSION_REQUESTED) == []


def test_a_call_that_changed_after_it_was_allowed_is_asked_about() -> None:
    """A hook of the project may have rewritten the arguments."""
    story = turn_story()
    story.hears(hook("h1", "Bash", command="touch x"))
    story.does(PermissionReply("permission_1", "accept"))
    assert story.hears(can_use("r1", "Bash", input={"command": "rm x"})) == []
    assert len(story.facts(EventType.PERMISSION_REQUESTED)) == 1


def test_an_allowed_call_is_forgotten_with_its_result() -> None:
    story = turn_story()
    story.hears(assistant(tool_use("toolu_1", "Bash", command="ls")), hook("h1", "Bash", command="ls"))
    story.does(PermissionReply("permission_1", "accept"))
    story.hears(tool_result("toolu_1", "a"))
    assert story.hears(can_use("r1", "Bash", input={"command": "ls"})) == []


@pytest.mark.parametrize("tool", sorted(UNCHECKED))
def test_calls_that_need_no_permission_go_on_at_once(tool: str) -> None:
    story = turn_story()
    assert answers(story.hears(hook("h1", tool))) == [{}]
    assert checks(story) == []


def test_a_hook_of_another_event_goes_on_at_once() -> None:
    story = turn_story()
    line = hook("h1", "Bash", command="ls")
    line["request"]["input"]["hook_event_name"] = "PostToolUseFailure"
    assert answers(story.hears(line)) == [{}]


def test_claude_waits_behind_an_edit_until_its_file_is_formatted() -> None:
    story = turn_story()
    line = hook("h1", "Edit", file_path="/p/a")
    line["request"]["input"]["hook_event_name"] = "PostToolUse"
    assert story.codec.receive(encode(line)) == [FilesChanged("h1", ("/p/a",))]
    (output,) = story.codec.proceed("h1")
    assert isinstance(output, WriteLine)
    assert answers([json.loads(output.data)]) == [{}]
    assert story.codec.proceed("h1") == []


def test_a_subagents_call_is_checked_in_its_session() -> None:
    story = turn_story()
    story.hears(assistant(tool_use("t1", "Agent", prompt="go")), task_started("a1", "t1"))
    story.hears(assistant(tool_use("t2", "Bash", command="ls"), id="m2", parent="t1"))
    story.hears(hook("h1", "Bash", "t2", agent_id="a1", command="ls"), hook("h2", "Bash", "t3", agent_id="a1", command="ls"))
    story.hears(hook("h3", "Bash", "t4", command="ls"))
    assert [request.child for request in checks(story)] == ["t1", "t1", None]


def test_a_call_tells_where_it_runs_if_that_is_not_the_sessions_directory() -> None:
    """A subagent with `isolation: worktree`, and the conversation itself behind EnterWorktree (2.1.332)."""
    story, worktree = turn_story(), "/project/.claude/worktrees/agent-1"
    story.hears(hook("h1", "Bash", "t1", cwd=worktree, command="ls"), hook("h2", "Bash", "t2", cwd="/project", command="ls"))
    assert [request.data.metadata.get("cwd") for request in checks(story)] == [worktree, None]
    story.take(story.codec.proceed("permission_1"))
    story.hears(can_use("r1", "Bash", "t1"))
    (request,) = story.facts(EventType.PERMISSION_REQUESTED)
    assert isinstance(request.data, PermissionData)
    assert (request.data.metadata or {})["cwd"] == worktree


def test_a_cancelled_check_is_withdrawn() -> None:
    story = turn_story()
    story.hears(hook("h1", "Bash", command="ls"), cancel("h1"))
    (resolved,) = story.facts(EventType.PERMISSION_RESOLVED)
    assert (resolved.data.status, resolved.data.metadata["withdrawn"]) == ("reject", True)
    assert story.does(PermissionReply("permission_1", "accept")) == []
    assert story.codec.proceed("permission_1") == []


def test_checks_end_with_the_process() -> None:
    story = turn_story()
    story.hears(hook("h1", "Bash", command="ls"))
    story.take(story.codec.eof(Exit(None, signal=9)))
    assert [fact.data.metadata["withdrawn"] for fact in story.facts(EventType.PERMISSION_RESOLVED)] == [True]


@pytest.mark.parametrize(
    ("tool", "given", "metadata"),
    [
        ("EnterWorktree", {"name": "a b"}, {"commands": ["git worktree add 'a b'"]}),
        ("EnterWorktree", {}, {"commands": ["git worktree add"]}),
        ("ExitWorktree", {"action": "remove"}, {"commands": ["git worktree remove"]}),
        ("PowerShell", {"command": "ls"}, {"opaque": True}),
        ("Bash", {"command": "ls"}, {}),
    ],
)
def test_a_check_tells_what_the_input_does_not(tool: str, given: Msg, metadata: Msg) -> None:
    story = turn_story()
    story.hears(hook("h1", tool, **given))
    (request,) = checks(story)
    assert {key: request.data.metadata[key] for key in ("commands", "opaque") if key in request.data.metadata} == metadata


# --- the mode -----------------------------------------------------------------------------------------------


def test_the_codec_tells_its_mode_before_any_hook() -> None:
    assert turn_story().codec.mode == "build"


def test_the_hook_tells_the_mode_before_the_call_is_checked() -> None:
    story = turn_story()
    assert story.codec.mode == "build"
    story.hears(hook("h1", "Write", mode="acceptEdits"))
    assert story.codec.mode == "accept-edits"


def test_a_subagents_mode_is_not_the_conversations() -> None:
    story = turn_story(mode="plan")
    story.hears(init(permissionMode="plan"), hook("h1", "Write", agent_id="a1", mode="bypassPermissions"))
    assert story.codec.mode == "plan"


def test_a_mode_of_a_newer_version_has_claudes_name() -> None:
    story = turn_story()
    story.hears(hook("h1", "Write", mode="somethingNew"))
    assert story.codec.mode == "somethingNew"


# --- a version that does not wait -------------------------------------------------------------------------------


def notices(story: Story) -> list[str | None]:
    return [item.content[0].detail for item in story.statuses("notice")]


def test_calls_that_did_not_wait_are_reported_once_where_there_are_rules() -> None:
    story = turn_story(rules=RULES)
    for call in ("t1", "t2"):
        story.hears(assistant(tool_use(call, "Bash", command="ls")), tool_result(call, "a"))
    assert notices(story) == [NOT_HELD]


@pytest.mark.parametrize(("rules", "tool", "failed"), [((), "Bash", False), (RULES, "TaskList", False), (RULES, "Bash", True)])
def test_no_report_without_a_call_that_slipped_through(rules: tuple[Rule, ...], tool: str, failed: bool) -> None:
    """A call that fails may have been refused before the hook."""
    story = turn_story(rules=rules)
    story.hears(assistant(tool_use("t1", tool)), tool_result("t1", "a", error=failed))
    assert notices(story) == []


def test_a_call_that_waited_makes_no_report() -> None:
    story = turn_story(rules=RULES)
    story.hears(assistant(tool_use("t1", "Bash", command="ls")), hook("h1", "Bash", "t1", command="ls"))
    story.codec.proceed("permission_1")
    story.hears(tool_result("t1", "a"))
    assert notices(story) == []


# --- forms of MCP servers -------------------------------------------------------------------------------------------


def elicitation(**request: Any) -> Msg:
    request = {"subtype": "elicitation", "mcp_server_name": "mail", "message": "Send this?", **request}
    return {"type": "control_request", "request_id": "e1", "request": request}


FORM = {"type": "object", "properties": {"confirm": {"type": "boolean"}, "copies": {"type": "integer", "title": "Copies"}}}


@pytest.mark.parametrize(
    ("answers", "response"),
    [
        ([["Yes"], ["2"]], {"action": "accept", "content": {"confirm": True, "copies": 2}}),
        ([["No"], []], {"action": "accept", "content": {"confirm": False}}),
        (None, {"action": "decline"}),
    ],
)
def test_a_form_of_an_mcp_server_is_a_question(answers: list[list[str]] | None, response: Msg) -> None:
    story = turn_story()
    assert story.hears(elicitation(mode="form", requested_schema=FORM)) == []
    (asked,) = story.facts(EventType.QUESTION_REQUESTED)
    assert [(q.question, [o.label for o in q.options]) for q in asked.data.questions] == [
        ("Send this?\nconfirm", ["Yes", "No"]),
        ("Send this?\nCopies", []),
    ]
    (line,) = story.does(QuestionReply(asked.data.question_id, answers))
    assert line["response"] == {"subtype": "success", "request_id": "e1", "response": response}
    (resolved,) = story.facts(EventType.QUESTION_RESOLVED)
    assert resolved.data.status == ("rejected" if answers is None else "answered")


@pytest.mark.parametrize("request_", [{"mode": "url", "url": "https://x.test/login"}, {"mode": "form"}])
@pytest.mark.parametrize(("decision", "action"), [("accept", "accept"), ("reject", "decline")])
def test_a_form_without_fields_and_a_link_are_permissions(request_: Msg, decision: Any, action: str) -> None:
    story = turn_story()
    story.hears(elicitation(**request_))
    (asked,) = story.facts(EventType.PERMISSION_REQUESTED)
    assert (asked.data.action, asked.data.metadata["title"]) == ("mcp__mail__ask", "Send this?")
    (line,) = story.does(PermissionReply(asked.data.permission_id, decision))
    assert line["response"]["response"]["action"] == action
    assert [fact.data.status for fact in story.facts(EventType.PERMISSION_RESOLVED)] == [decision]


# --- shell lines of commands and skills (2.1.332) ---------------------------------------------------------------


def story_with_shell_line() -> Story:
    story = turn_story()
    line = hook("h1", "Bash", "u1:inner:preamble-0", command="touch ran.txt")
    line["request"]["input"] |= {"hook_event_name": "PreSkillShellCommand", "command_name": "peek", "invoked_by": "user"}
    assert story.hears(line) == []
    return story


def test_a_shell_line_of_a_command_is_judged_as_a_call_of_bash() -> None:
    (request,) = checks(story_with_shell_line())
    metadata = request.data.metadata
    assert (metadata["tool"], metadata["input"], metadata["call_id"]) == ("Bash", {"command": "touch ran.txt"}, "")
    assert "/peek" in metadata["description"]


@pytest.mark.parametrize("reply", ["accept", "reject"])
def test_the_answer_to_a_shell_line_is_that_of_its_own_hook(reply: Any) -> None:
    (answer,) = answers(story_with_shell_line().does(PermissionReply("permission_1", reply)))
    assert answer["hookSpecificOutput"]["hookEventName"] == "PreSkillShellCommand"
    assert decision(answer) == ("allow" if reply == "accept" else "deny")


def test_a_shell_line_that_no_rule_concerns_goes_on() -> None:
    story = story_with_shell_line()
    story.take(story.codec.proceed("permission_1"))
    assert story.written_lines()[-1]["response"]["response"] == {}


def test_the_shell_hook_blocks_what_is_not_answered() -> None:
    registered: Any = HOOKS
    assert registered["PreSkillShellCommand"][0]["onFailure"] == "block"


@pytest.mark.parametrize(
    ("request_line", "word"), [(hook("h1", "Bash", command="touch x"), "continue"), (can_use("h1", "Bash"), "interrupt")]
)
def test_a_refusal_without_words_ends_the_turn(request_line: Any, word: str) -> None:
    story = turn_story()
    story.hears(request_line)
    answer, *_ = answers(story.does(PermissionReply("permission_1", "reject", stops=True)))
    assert answer[word] is (word == "interrupt")
    assert story.written_lines()[-1]["request"]["subtype"] == "interrupt", "2.1.197 goes on without it"
