"""Claude Code's codec, command by command, and the stories that no recording tells."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shim.dev.record.driver import counting_ids
from tests.support.claude_lines import (
    Msg,
    Story,
    abort_result,
    assistant,
    can_use,
    init,
    lifecycle,
    result,
    state,
    status_requesting,
    task_over,
    task_started,
    text,
    tool_result,
    tool_use,
)
from universal.agents.claude.asks import HOOKS
from universal.agents.claude.codec import NOT_HELD, ClaudeCodec
from universal.agents.claude.spec import CLAUDE
from universal.agents.claude.wire import IGNORED, REFUSED, prompt_uuid
from universal.codec import Attachment, Interrupt, PermissionReply, Prompt, QuestionReply, WriteLine
from universal.events import EventType, ItemData
from universal.items import ItemKind, StatusPart
from universal.launch import Exit, LaunchOptions
from universal.turn import Input

INTERRUPT = {"subtype": "interrupt"}


def requests(lines: list[Msg]) -> list[Msg]:
    return [line["request"] for line in lines if line["type"] == "control_request"]


# --- launch -------------------------------------------------------------------------------------------------


def test_argv() -> None:
    argv = Story().spec.argv
    assert argv == (
        "/bin/claude",
        "--print",
        "--input-format=stream-json",
        "--output-format=stream-json",
        "--verbose",
        "--include-partial-messages",
        "--permission-prompt-tool=stdio",
        "--permission-mode=default",
    )


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({"model": "opus", "variant": "high"}, {"--model=opus", "--effort=high"}),
        ({"model": "default"}, set()),
        ({"mode": "accept-edits"}, {"--permission-mode=acceptEdits"}),
        ({"mode": "nonsense"}, {"--permission-mode=default"}),
        ({"native_session_id": "u"}, {"--session-id=u"}),
        ({"native_session_id": "u", "resume": True}, {"--resume=u"}),
        (
            {"native_session_id": "u", "resume": True, "resume_at": "m"},
            {"--resume=u", "--resume-session-at=m", "--fork-session"},
        ),
        ({"environment": {"HOME": "/h"}}, {"--allow-dangerously-skip-permissions"}),
        ({"environment": {"HOME": "/h"}, "is_root": True}, set()),
        ({"environment": {"IS_SANDBOX": "1"}, "is_root": True}, {"--allow-dangerously-skip-permissions"}),
    ],
)
def test_options_become_flags(options: dict[str, Any], flags: set[str]) -> None:
    assert set(Story(**options).spec.argv) - set(Story().spec.argv) == flags - {"--permission-mode=default"}


def test_environment() -> None:
    story = Story(native_session_id="u")
    env = story.spec.env
    assert env["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] == env["CLAUDE_CODE_BG_TASKS_REPORT_RUNNING"] == "1"
    assert env["CLAUDECODE"] is None
    assert "IS_SANDBOX" not in env
    assert (story.spec.cwd, story.codec.native_session_id) == ("/project", "u")


def test_the_row_of_the_registry() -> None:
    assert {mode.id: mode.native for mode in CLAUDE.abilities.modes} == {
        "build": "default",
        "plan": "plan",
        "accept-edits": "acceptEdits",
        "auto": "auto",
        "bypass": "bypassPermissions",
    }
    assert [model.id for model in CLAUDE.abilities.catalogue.models] == ["default", "opus", "sonnet", "haiku"]
    assert "npm install -g @anthropic-ai/claude-code" in CLAUDE.program.install_hint
    assert isinstance(CLAUDE.make(lambda kind: kind), ClaudeCodec)


def test_nothing_is_both_handled_and_ignored() -> None:
    assert not ClaudeCodec.HANDLERS.keys() & IGNORED.keys()
    assert {f"control_request/{subtype}" for subtype in REFUSED} <= ClaudeCodec.HANDLERS.keys()
    assert all(IGNORED.values())


# --- prompts and settings -----------------------------------------------------------------------------------


def test_a_prompt_is_one_line() -> None:
    story = Story()
    (line,) = story.prompts("/compact")
    assert line == {
        "type": "user",
        "message": {"role": "user", "content": "/compact"},
        "parent_tool_use_id": None,
        "session_id": "default",
        "uuid": prompt_uuid("p1"),
    }


def test_the_text_comes_after_all_else() -> None:
    """Claude looks for slash commands and @files in the last block only."""
    attachments = [
        Attachment("image/png", base64="AAAA"),
        Attachment("application/pdf", base64="BBBB", filename="a.pdf"),
        Attachment("text/plain", path="/p/a.txt", text="words"),
        Attachment("application/zip", path="/p/a.zip"),
        Attachment("audio/wav", base64="CCCC", filename="a.wav"),
    ]
    (line,) = Story().prompts("look", attachments=attachments, system="Be brief.")
    system, image, document, file, zipped, sound, words = line["message"]["content"]
    assert system["text"] == "<system-reminder>\nBe brief.\n</system-reminder>"
    assert image == {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    assert (document["type"], document["title"], document["source"]["media_type"]) == ("document", "a.pdf", "application/pdf")
    assert file["text"] == '<file path="/p/a.txt">\nwords\n</file>'
    assert "/p/a.zip" in zipped["text"]
    assert "a.wav" in sound["text"]
    assert words == {"type": "text", "text": "look"}


def test_settings_go_first_and_only_when_they_differ() -> None:
    story = Story(model="sonnet", variant="low", mode="plan")
    lines = story.prompts(model="sonnet", variant="low", mode="plan")
    assert [line["type"] for line in lines] == ["user"]
    lines = story.prompts(model="opus", variant="max", mode="build")
    assert requests(lines) == [
        {"subtype": "set_permission_mode", "mode": "default"},
        {"subtype": "set_model", "model": "opus"},
        {"subtype": "apply_flag_settings", "settings": {"effortLevel": "max"}},
    ]
    assert lines[-1]["type"] == "user"
    assert requests(story.prompts()) == []
    assert requests(story.prompts(model="opus")) == [{"subtype": "apply_flag_settings", "settings": {"effortLevel": None}}]
    assert requests(story.prompts(mode="nonsense")) == []


def test_a_refused_setting_is_reported_and_reverted() -> None:
    story = Story()
    request, _ = story.prompts(mode="bypass")
    story.answers(request, subtype="error", error="Cannot set permission mode")
    (error,) = story.facts(EventType.ERROR)
    assert (error.data.message, error.data.code) == ("Cannot set permission mode", "set_permission_mode_refused")
    assert [item.metadata for item in story.statuses("mode")] == [{"mode": "build"}]
    assert requests(story.prompts(mode="bypass")) == [{"subtype": "set_permission_mode", "mode": "bypassPermissions"}]


def test_a_mode_that_we_set_is_no_news() -> None:
    story = Story()
    request, _ = story.prompts(mode="plan")
    told = {"type": "system", "subtype": "status", "status": None, "permissionMode": "plan"}
    story.hears({**told, "permissionMode": "default"})  # said before it has read our request
    story.hears(told)
    story.answers(request)
    story.hears(told)
    assert story.statuses("mode") == []
    story.hears({**told, "permissionMode": "default"})
    assert [item.metadata["mode"] for item in story.statuses("mode")] == ["build"]


def test_a_refused_handshake_is_reported() -> None:
    story = Story()
    story.take(story.codec.start())
    (request,) = story.written_lines()
    assert request["request"] == {"subtype": "initialize", "hooks": HOOKS, "forwardSubagentText": True}
    story.answers(request, subtype="error", error="no")
    assert [fact.data.code for fact in story.facts(EventType.ERROR)] == ["initialize_refused"]
    assert [fact.data.details for fact in story.facts(EventType.ERROR)] == [{"hint": NOT_HELD}], "and the rules do not hold"
    assert story.codec.catalogue is None


# --- interrupts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sign", [state("running"), init(), status_requesting(), lifecycle("p1", "started")], ids=lambda m: str(m)[:60]
)
def test_an_interrupt_waits_for_the_turn_to_begin(sign: Msg) -> None:
    """While the CLI is idle it would do nothing, and the prompt would run."""
    story = Story()
    story.prompts()
    assert story.does(Interrupt()) == []
    assert requests(story.hears(sign)) == [INTERRUPT]
    assert requests(story.hears(status_requesting())) == []


def test_an_interrupt_that_came_too_early_is_sent_again() -> None:
    """2.1.330 acknowledges it with `still_queued`, then starts the prompt all the same."""
    story = Story()
    story.prompts()
    story.does(Interrupt())
    (first,) = story.hears(state("running"))
    story.answers(first, response={"still_queued": [prompt_uuid("p1")]})
    (second,) = story.hears(init())
    assert second["request"] == INTERRUPT
    story.hears(abort_result())
    assert story.hears(state("idle"), state("running"), init()) == []


def test_an_interrupt_of_a_running_turn_is_sent_at_once() -> None:
    story = Story()
    story.prompts()
    story.hears(init())
    assert requests(story.does(Interrupt())) == [INTERRUPT]


def test_the_next_prompt_is_not_interrupted() -> None:
    story = Story()
    story.prompts()
    story.hears(state("running"), init())
    story.does(Interrupt())
    story.hears(abort_result())
    story.prompts()
    assert story.hears(state("idle"), state("running"), init(), status_requesting()) == []


def test_an_interrupt_ends_background_commands_too() -> None:
    story = Story()
    story.prompts()
    story.hears(init(), assistant(tool_use("t1", "Bash", command="sleep 9"), tool_use("t2", "Bash", command="sleep 8")))
    story.hears(task_started("b1", "t1", kind="local_bash"), task_started("b2", "t2", kind="local_bash"))
    story.hears(tool_result("t1", "running in background", {"backgroundTaskId": "b1"}))
    story.hears(task_started("b3", "", kind="live_update", ambient=True))
    assert requests(story.does(Interrupt())) == [INTERRUPT, {"subtype": "stop_task", "task_id": "b1"}]
    story.hears(task_over("b1", "t1", "stopped"))
    assert requests(story.does(Interrupt())) == [INTERRUPT]


def backgrounds(story: Story) -> Msg:
    """What is written when the turn's work is to be moved to the background: the control request."""
    (line,) = story.codec.background()
    assert isinstance(line, WriteLine)
    return json.loads(line.data)


def test_a_running_task_is_moved_to_the_background() -> None:
    """A command is a task only after a while, and only tasks are moved; a later one stays where it is."""
    story = Story()
    story.prompts()
    story.hears(state("running"), init(), assistant(tool_use("t1", "Bash", command="sleep 9")))
    assert backgrounds(story)["request"] == {"subtype": "background_tasks"}
    again = story.hears(task_started("b1", "t1", kind="local_bash", is_backgrounded=False))
    assert requests(again) == [{"subtype": "background_tasks", "tool_use_id": "t1"}]
    later = story.hears(
        assistant(tool_use("t2", "Bash", command="sleep 8")), task_started("b2", "t2", kind="local_bash", is_backgrounded=False)
    )
    assert requests(later) == []


def test_a_version_that_cannot_says_so() -> None:
    story = Story()
    story.prompts()
    sent = backgrounds(story)
    refusal = {"subtype": "error", "request_id": sent["request_id"], "error": "Unsupported control request subtype"}
    story.hears({"type": "control_response", "response": refusal})
    told = [fact.data.item for fact in story.facts(EventType.ITEM_COMPLETED) if isinstance(fact.data, ItemData)]
    [part] = told[-1].content
    assert part == StatusPart(label="notice", detail="Nothing was moved to the background: Unsupported control request subtype")


# --- who is answered ----------------------------------------------------------------------------------------


def dones(story: Story) -> list[Input]:
    return [signal.input for signal in story.signals() if signal.input in (Input.DONE, Input.FAILED)]


def test_a_result_for_claudes_own_turn_answers_no_prompt() -> None:
    """A prompt that comes while Claude reports on a background task waits for its own result."""
    story = Story()
    story.hears(state("running"), init())
    story.prompts()
    story.hears(result(origin={"kind": "task-notification"}, total_cost_usd=0.5, usage={"input_tokens": 1}))
    assert dones(story) == []
    story.hears(init(), result(total_cost_usd=0.75, usage={"input_tokens": 2}))
    (done,) = [signal for signal in story.signals() if signal.input is Input.DONE]
    assert (done.metadata["cost"], done.metadata["usage"]["input"]) == (0.75, 3)


def test_results_name_the_prompts_that_they_answer() -> None:
    story = Story()
    story.prompts()
    story.prompts()
    story.hears(result(user_message_uuids=[prompt_uuid("p2")]))
    assert dones(story) == [Input.DONE]
    story.hears(result(user_message_uuids=["of somebody else"]))
    assert dones(story) == [Input.DONE]
    story.hears(result(user_message_uuid=prompt_uuid("p1")))
    assert dones(story) == [Input.DONE] * 2


def test_idle_answers_what_was_begun() -> None:
    """The CLI's authoritative end: a prompt that was merged into a turn has no result of its own."""
    story = Story()
    story.hears(state("running"))
    story.prompts()
    story.hears(init(), result(origin={"kind": "task-notification"}), state("idle"))
    assert dones(story) == [Input.DONE]


def test_idle_answers_nothing_that_was_not_begun() -> None:
    story = Story()
    story.prompts()
    story.hears(state("idle"))
    assert dones(story) == []


def test_a_wake_without_a_result_ends_with_idle() -> None:
    story = Story()
    story.hears(state("running"), state("requires_action"), state("running"), state("idle"))
    assert [signal.input for signal in story.signals()] == [Input.ACTIVITY, Input.OPENED, Input.DONE, Input.CLOSED]
    assert story.turns() == [("agent", "completed")]


@pytest.mark.parametrize(("fate", "is_abort"), [("refused", False), ("discarded", False), ("cancelled", True)])
def test_a_prompt_that_claude_does_not_take(fate: str, is_abort: bool) -> None:
    story = Story()
    story.prompts()
    story.hears(lifecycle("p1", fate))
    (failed,) = story.signals()
    assert (failed.input, failed.aborted, failed.error["code"]) == (Input.FAILED, is_abort, f"prompt_{fate}")
    story.hears(lifecycle("p1", fate))
    assert len(story.signals()) == 1


def test_costs_are_differences_and_a_smaller_total_is_a_restart() -> None:
    story = Story()
    for total in (0.5, 0.75, 0.25):
        story.prompts()
        story.hears(result(total_cost_usd=total))
    assert [signal.metadata["cost"] for signal in story.signals()] == [0.5, 0.25, 0.25]


def test_an_error_line_without_an_error_is_reported() -> None:
    """Held back because the result says the same; if it does not, nothing is lost."""
    story = Story()
    story.prompts()
    story.hears(init(), assistant(text("API Error: flaky"), error="unknown"), result())
    assert story.texts() == ["API Error: flaky"]
    assert story.facts(EventType.ERROR) == []


def test_an_error_line_without_a_result_is_reported() -> None:
    story = Story()
    story.prompts()
    story.hears(init(), assistant(text("API Error: last words"), error="unknown"))
    story.take(story.codec.eof(Exit(1)))
    assert story.texts() == ["API Error: last words"]


def test_each_error_line_before_a_recovery_is_shown_in_its_place() -> None:
    story = Story()
    story.prompts()
    errors = [assistant(text(f"API Error: {n}"), id=f"e{n}", error="unknown") for n in (1, 2)]
    story.hears(init(), *errors, assistant(text("here"), id="m"), result())
    assert story.texts() == ["API Error: 1", "API Error: 2", "here"]
    assert story.facts(EventType.ERROR) == []


@pytest.mark.parametrize("reason", ["aborted_streaming", "aborted_tools"])
def test_a_turn_that_was_cut_off_is_aborted_also_if_it_says_success(reason: str) -> None:
    story = Story()
    story.prompts()
    story.hears(init(), result(terminal_reason=reason))
    (end,) = [signal for signal in story.signals() if signal.input in (Input.DONE, Input.FAILED)]
    assert (end.input, end.aborted) == (Input.FAILED, True)


def test_a_prompt_that_claude_knows_already_ends_with_an_error() -> None:
    story = Story()
    story.prompts()
    story.hears(lifecycle("p1", "completed"))
    (failed,) = story.signals()
    assert (failed.input, failed.error["code"]) == (Input.FAILED, "prompt_answered")
    assert [fact.data.code for fact in story.facts(EventType.ERROR)] == ["prompt_answered"]


def test_a_prompt_that_is_sent_again_has_another_uuid() -> None:
    codec = ClaudeCodec(counting_ids())
    codec.launch(LaunchOptions(binary="claude", directory="/p"))
    outputs = [codec.send(Prompt(key="p1", text="hi")) for _ in range(2)]
    uuids = [json.loads(out.data)["uuid"] for lines in outputs for out in lines if isinstance(out, WriteLine)]
    assert len(set(uuids)) == 2
    assert uuids[0] == prompt_uuid("p1")


# --- asks ---------------------------------------------------------------------------------------------------

TWO = {
    "questions": [
        {"question": "Which fruits?", "header": "Fruit", "multiSelect": True, "options": [{"label": "Apple"}, {"label": "Pear"}]},
        {"question": "Which size?", "header": "Size", "multiSelect": False, "options": [{"label": "S"}, {"label": "L"}]},
    ]
}


@pytest.mark.parametrize(
    ("answers", "given"),
    [
        ([["Apple", "Pear"], ["huge"]], {"Which fruits?": "Apple, Pear", "Which size?": "huge"}),
        ([["Apple"], []], {"Which fruits?": "Apple"}),
        ([["Apple"]], {"Which fruits?": "Apple"}),
    ],
)
def test_several_questions(answers: list[list[str]], given: dict[str, str]) -> None:
    story = Story()
    story.prompts()
    story.hears(init(), assistant(tool_use("t1", "AskUserQuestion", **TWO)), can_use("r1", "AskUserQuestion", "t1", input=TWO))
    (asked,) = story.facts(EventType.QUESTION_REQUESTED)
    assert [question.multiple for question in asked.data.questions] == [True, False]
    (line,) = story.does(QuestionReply(asked.data.question_id, answers))
    assert line["response"]["response"] == {"behavior": "allow", "updatedInput": {**TWO, "answers": given}}
    assert story.does(QuestionReply(asked.data.question_id, answers)) == []
    story.hears(tool_result("t1", "answered"))
    assert story.items(ItemKind.TOOL_RESULT)[0].metadata["answers"] == answers


def test_an_option_shows_its_preview_and_is_answered_by_its_label() -> None:
    options = [{"label": "Left", "description": "A bar", "preview": "+--+\n|  |\n"}, {"label": "None", "preview": "(empty)"}]
    asking: Msg = {"questions": [{"question": "Layout?", "header": "L", "options": options, "multiSelect": False}]}
    story = Story()
    story.prompts()
    story.hears(can_use("r1", "AskUserQuestion", input=asking))
    (asked,) = story.facts(EventType.QUESTION_REQUESTED)
    assert [option.description for option in asked.data.questions[0].options] == ["A bar\n\n+--+\n|  |", "(empty)"]
    (line,) = story.does(QuestionReply(asked.data.question_id, [["Left"]]))
    assert line["response"]["response"] == {"behavior": "allow", "updatedInput": {**asking, "answers": {"Layout?": "Left"}}}


PLAN = {"plan": "# Plan\n1. do it\n", "planFilePath": "/p.md"}


@pytest.mark.parametrize(
    ("answers", "reply"),
    [
        ([["Yes"]], {"behavior": "allow", "updatedInput": PLAN}),
        ([["No"]], {"behavior": "deny", "message": "The user wants to keep planning. Do not start yet."}),
        ([["Use Rust"]], {"behavior": "deny", "message": "Use Rust"}),
        ([[]], {"behavior": "deny", "message": "The user wants to keep planning. Do not start yet."}),
        (None, {"behavior": "deny", "message": "The user wants to keep planning. Do not start yet."}),
    ],
)
def test_replies_to_a_plan(answers: list[list[str]] | None, reply: Msg) -> None:
    story = Story(mode="plan")
    story.hears(can_use("r1", "ExitPlanMode", input=PLAN))
    (asked,) = story.facts(EventType.QUESTION_REQUESTED)
    assert (asked.data.prompt, asked.data.metadata["plan"]) == ("Proceed with this plan?", PLAN["plan"])
    (line,) = story.does(QuestionReply(asked.data.question_id, answers))
    assert line["response"]["response"] == reply


@pytest.mark.parametrize("tool", ["AskUserQuestion", "ExitPlanMode"])
def test_the_reason_of_a_rejected_question_is_its_deny_message(tool: str) -> None:
    story = Story(mode="plan")
    story.hears(can_use("r1", tool, input={**TWO, **PLAN}))
    (asked,) = story.facts(EventType.QUESTION_REQUESTED)
    (line,) = story.does(QuestionReply(asked.data.question_id, None, "Nobody is here."))
    assert line["response"]["response"] == {"behavior": "deny", "message": "Nobody is here."}
    (resolved,) = story.facts(EventType.QUESTION_RESOLVED)
    assert (resolved.data.status, resolved.data.metadata["message"]) == ("rejected", "Nobody is here.")


def test_a_plan_is_taken_from_its_call_if_the_request_has_none() -> None:
    story = Story()
    story.hears(assistant(tool_use("t1", "ExitPlanMode", plan="1. do it")), can_use("r1", "ExitPlanMode", "t1"))
    assert story.facts(EventType.QUESTION_REQUESTED)[0].data.metadata["plan"] == "1. do it"


def test_the_first_option_does_not_approve_a_plan_that_is_too_long_to_be_seen() -> None:
    story = Story(mode="plan")
    story.hears(can_use("r1", "ExitPlanMode", input={"plan": "line\n" * 60}))
    (asked,) = story.facts(EventType.QUESTION_REQUESTED)
    assert asked.data.options == ("No", "Yes")
    (line,) = story.does(QuestionReply(asked.data.question_id, [["Yes"]]))
    assert line["response"]["response"]["behavior"] == "allow"


def test_a_rejection_always_has_words() -> None:
    story = Story()
    story.hears(can_use("r1", "Bash", input={"command": "ls"}))
    (line,) = story.does(PermissionReply("permission_1", "reject"))
    assert line["response"]["response"] == {"behavior": "deny", "message": "The user doesn't want to proceed with this tool use."}


@pytest.mark.parametrize("reply", [PermissionReply("nobody", "accept"), QuestionReply("nobody", [["x"]])])
def test_replies_to_nothing_say_nothing(reply: PermissionReply | QuestionReply) -> None:
    assert Story().does(reply) == []


def test_kinds_of_replies_are_not_mixed_up() -> None:
    story = Story()
    story.hears(can_use("r1", "Bash"), can_use("r2", "AskUserQuestion", input=TWO))
    assert story.does(QuestionReply("permission_1", [["x"]])) == []
    assert story.does(PermissionReply("question_1", "accept")) == []


def test_asks_end_with_the_process() -> None:
    story = Story()
    story.hears(can_use("r1", "Bash"), can_use("r2", "AskUserQuestion", input=TWO))
    story.take(story.codec.eof(Exit(1)))
    (permission,), (question,) = story.facts(EventType.PERMISSION_RESOLVED), story.facts(EventType.QUESTION_RESOLVED)
    assert (permission.data.status, permission.synthetic) == ("reject", True)
    assert (question.data.status, question.data.metadata["withdrawn"]) == ("rejected", True)


@pytest.mark.parametrize("subtype", [*REFUSED, "never_heard_of"])
def test_other_requests_of_the_cli(subtype: str) -> None:
    """None is left waiting, but for the one that must not be answered."""
    story = Story()
    lines = story.hears({"type": "control_request", "request_id": "r1", "request": {"subtype": subtype}})
    how = REFUSED.get(subtype, ("error", ""))[0]
    assert [line["response"]["subtype"] for line in lines] == {"error": ["error"], "silence": []}[how]
    assert len(story.unparsed_lines()) == (subtype not in REFUSED)


# --- before there is a session ------------------------------------------------------------------------------------------


def spare() -> tuple[ClaudeCodec, list[Msg]]:
    """A codec in a process that waits for a session, and its last requests."""
    codec = ClaudeCodec(lambda kind: kind)
    codec.start()
    return codec, [json.loads(out.data) for out in codec.prepare() if isinstance(out, WriteLine)]


def respond(codec: ClaudeCodec, request: Msg, **response: Any) -> list[Msg]:
    """The requests that follow an answer. Nothing but requests does."""
    line = {"type": "control_response", "response": {"request_id": request["request_id"], **response}}
    outputs = codec.receive(json.dumps(line).encode())
    assert all(isinstance(out, WriteLine) for out in outputs)
    return [json.loads(out.data) for out in outputs if isinstance(out, WriteLine)]


def test_a_process_that_waits_builds_its_next_request_ahead() -> None:
    codec, [draft] = spare()
    assert draft["request"] == {"subtype": "prompt_draft_activity"}
    [context] = respond(codec, draft, subtype="success")
    assert context["request"] == {"subtype": "get_context_usage", "detail": "summary"}, "the whole would count tokens"
    assert respond(codec, context, subtype="success", response={"categories": []}) == []


def test_an_older_claude_that_knows_no_preparation_is_asked_nothing_more() -> None:
    codec, [draft] = spare()
    assert respond(codec, draft, subtype="error", error="Unsupported control request subtype") == []


@pytest.mark.parametrize(("last", "reason"), [([result()], "completed"), ([], "agent_exited")])
def test_a_process_that_ends_after_its_result_has_answered(last: list[Msg], reason: str) -> None:
    story = Story()
    story.prompts()
    story.hears(state("running"), init(), assistant(text("Done.")), *last)
    story.exit(1)
    assert story.turns() == [("user", reason)]


@pytest.mark.parametrize(("is_own", "ends"), [(False, []), (True, ["t1"])])
def test_an_abort_leaves_the_commands_of_earlier_turns_unless_claude_works_by_itself(is_own: bool, ends: list[str]) -> None:
    story = Story()
    story.prompts()
    call = tool_use("toolu_1", "Bash", command="npm start", run_in_background=True)
    story.hears(state("running"), init(), assistant(call), task_started("t1", "toolu_1", kind="local_bash"))
    story.hears(tool_result("toolu_1", "Running in the background."), result(), state("idle"))
    if not is_own:
        story.prompts()
    story.hears(state("running"), init())
    assert [request.get("task_id") for request in requests(story.does(Interrupt()))] == [None, *ends]


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("too_few_groups", "Claude Code could not compact the conversation (too_few_groups)."),
        ("Not enough messages to compact.", "Not enough messages to compact."),
    ],
)
def test_a_failed_compaction_has_a_sentence_for_its_reason(why: str, words: str) -> None:
    story = Story()
    story.prompts()
    status: Msg = {"type": "system", "subtype": "status"}
    story.hears(state("running"), init(), {**status, "status": "compacting"})
    story.hears({**status, "status": None, "compact_result": "failed", "compact_error": why})
    (item,) = story.items(ItemKind.STATUS)
    assert item.status_part is not None
    assert item.status_part.detail == words


def test_background_tasks_are_live_work_until_claude_lists_them_no_more() -> None:
    story = Story()
    story.prompts()
    changed = {"type": "system", "subtype": "background_tasks_changed"}
    bash = tool_use("c1", "Bash", command="make", run_in_background=True)
    story.hears(init(), assistant(bash), task_started("t1", "c1", task_type="local_bash", description="make"))
    assert story.codec.live_work() == [], "its call waits for it"
    story.hears(tool_result("c1", "running"), {**changed, "tasks": [{"task_id": "t1"}]}, result())
    assert story.codec.live_work() == ["make"]
    story.hears({**changed, "tasks": []})
    assert story.codec.live_work() == []
