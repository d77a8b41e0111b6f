"""Turns, prompts, steps and asks on the OpenCode 2 face, event by event."""

from __future__ import annotations

from typing import Any

import pytest

from shim.faces.opencode2 import events, read
from shim.faces.opencode2.wire_event import Event
from tests.support.opencode2_fold import ENDS
from tests.support.opencode2_story import START_MS, Story, synthetic_stories
from tests.support.two_faces import check_opencode2
from universal.events import Question, QuestionOption
from universal.items import ReasoningPart, TextPart


def types(story: Story, since: int = 0) -> list[str]:
    """What was told, without the pieces of texts, the totals, and what accompanies executions."""
    beside = ("session.text.delta", "session.reasoning.delta", "session.usage.updated", "session.status", "session.idle")
    return [event.type.removeprefix("session.") for event in story.told[since:] if event.type not in beside]


def assistants(story: Story) -> list[dict[str, Any]]:
    return [m for m in story.now.messages.values() if m["type"] == "assistant"]


def end(story: Story) -> Event:
    """The end of the last execution."""
    return next(event for event in reversed(story.told) if event.type in ENDS)


def event_data(story: Story, kind: str) -> list[dict[str, Any]]:
    return [event.data for event in story.told if event.type == kind]


TURN = [
    *("created", "inbox.enqueued", "execution.started", "inbox.delivered", "step.started", "text.started", "text.ended"),
    *("step.streamed", "step.ended", "execution.succeeded"),
]


def test_a_turn() -> None:
    story = Story()
    story.turn("hello", "Hi.")
    assert types(story) == TURN
    assert [event.seq for event in story.told if event.seq is not None] == list(range(len(TURN)))
    user, step, idle = story.now.messages.values()
    assert (user["type"], user["text"]) == ("user", "hello")
    assert [part["text"] for part in step["content"]] == ["Hi."]
    assert step["tokens"] == {"input": 12, "output": 3, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    assert (idle["type"], idle["outcome"]) == ("idle", "succeeded")
    assert idle["id"] == end(story).id.replace("evt_", "msg_")


@pytest.mark.parametrize(
    ("reason", "outcome", "data"),
    [
        ("completed", "succeeded", {}),
        ("aborted", "interrupted", {"reason": "user"}),
        ("error", "failed", {"error": {"type": "unknown", "message": "broken"}}),
        ("agent_exited", "failed", {"error": {"type": "unknown", "message": "broken"}}),
    ],
)
def test_the_end_of_a_turn(reason: str, outcome: str, data: dict[str, Any]) -> None:
    story = Story()
    story.prompt("hello")
    assert (story.now.is_running, story.now.outcome) == (True, None)
    if "error" in data:
        story.error("broken")
    story.end(reason)
    assert end(story).type == f"session.execution.{outcome}"
    assert end(story).data == {"sessionID": story.id, **data}
    assert "location" not in end(story).wire()
    assert (story.now.is_running, story.now.outcome) == (False, outcome)
    assert story.now.info["time"]["idle"] == end(story).created


def test_an_execution_that_fails_without_a_word_says_so() -> None:
    story = Story()
    story.prompt("hello")
    story.end("agent_exited")
    assert end(story).data["error"]["message"]


def test_the_outcome_of_the_last_turn_is_gone_when_another_runs() -> None:
    story = Story()
    story.turn()
    story.prompt("again")
    assert story.now.outcome is None
    assert "idle" not in story.now.info["time"]


@pytest.mark.parametrize(
    ("code", "details", "type_"),
    [
        ("authentication_failed", {}, "provider.auth"),
        (None, {"status_code": 401}, "provider.auth"),
        (None, {"status_code": 400}, "provider.invalid-request"),
        (None, {"status_code": 529}, "provider.internal"),
        ("aborted", {}, "aborted"),
        (None, {}, "unknown"),
    ],
)
def test_errors_have_types(code: str | None, details: dict[str, Any], type_: str) -> None:
    story = Story()
    story.prompt("hello")
    story.message()
    story.error("no", code, **details)
    story.end("error")
    (failed,) = event_data(story, "session.step.failed")
    assert failed["error"]["type"] == type_
    assert end(story).data["error"] == failed["error"] == assistants(story)[0]["error"]


# --- prompts --------------------------------------------------------------------------------------------------


def test_a_prompt_is_in_the_inbox_until_the_agent_has_it() -> None:
    story = Story()
    first = story.prompt("one")
    second = story.accept("two", delivery="queue")
    (waiting,) = story.now.inbox.values()
    assert waiting["id"] == story.message_id(second)
    assert (waiting["payload"], waiting["delivery"]) == ({"text": "two"}, "queue")
    assert list(story.now.messages) == [story.message_id(first)]
    story.say("One.")
    story.hand(second)
    assert story.now.inbox == {}
    assert list(story.now.messages)[-1] == story.message_id(second)
    story.say("Two.")
    story.end()
    assert types(story).count("execution.started") == types(story).count("execution.succeeded") == 1


def test_prompts_that_an_abort_cancels_go_along_with_the_next_prompt() -> None:
    """The agent is told of it then (`shim.sessions.prompts.context`); native keeps it in the inbox as well."""
    story = Story()
    story.prompt("one")
    parked = story.accept("two")
    story.status("prompt", state="cancelled", item_id=parked)
    story.end("aborted")
    assert list(story.now.inbox) == [story.message_id(parked)]
    third = story.accept("three")
    story.start()
    story.hand(third, carried=[story.message_id(parked)])
    assert [d["inboxID"] for d in event_data(story, "session.inbox.delivered")][-2:] == [
        story.message_id(parked),
        story.message_id(third),
    ]
    assert story.now.inbox == {}


def test_a_skill_is_sent_at_once_and_never_waits() -> None:
    story = Story()
    item = story.accept("<skill>", kind="skill", skill={"id": "demo", "name": "Demo", "text": "Do the demo."})
    assert types(story) == ["created", "skill.activated"]
    assert story.now.inbox == {}
    (message,) = story.now.messages.values()
    assert (message["type"], message["skill"], message["text"]) == ("skill", "demo", "Do the demo.")
    story.start()
    story.hand(item)
    story.say("Done.")
    story.end()
    assert types(story)[2:4] == ["execution.started", "step.started"]
    assert [m["type"] for m in story.now.messages.values()] == ["skill", "assistant", "idle"]
    story.status("revert", revert={"messageID": story.message_id(item)}, diffs=[])
    assert story.now.revert is not None and story.now.revert["messageID"] == message["id"]


def test_a_cancelled_wish_to_compact_is_gone() -> None:
    story = Story()
    story.prompt("one")
    wish = story.accept("", parts=[{"type": "compaction", "auto": False}])
    story.status("prompt", state="cancelled", item_id=wish)
    assert types(story)[-1] == "inbox.cancelled"
    assert story.now.inbox == {}


def test_a_subagents_prompt_is_its_own_from_the_start() -> None:
    """Nobody hands it over: its agent has it already."""
    story = Story(parentID=f"ses_{9:026d}")
    story.start("agent")
    story.accept("look around")
    assert types(story) == ["created", "execution.started", "inbox.enqueued", "inbox.delivered"]
    assert story.told[0].data["parentID"] == f"ses_{9:026d}"


@pytest.mark.parametrize(
    ("info", "title"),
    [
        ({"parentID": f"ses_{9:026d}", "title": "look around (@general subagent)"}, "look around"),
        ({"title": "my (@general subagent)"}, "my (@general subagent)"),
    ],
)
def test_a_subagents_title_is_its_description_alone(info: dict[str, str], title: str) -> None:
    story = Story(**info)
    assert story.told[0].data["title"] == title
    assert story.now.info["title"] == title


@pytest.mark.parametrize(
    ("part", "file"),
    [
        (
            {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA", "filename": "a.png"},
            {"data": "AAAA", "mime": "image/png", "source": {"type": "inline"}, "name": "a.png"},
        ),
        (
            {"type": "file", "mime": "text/plain", "url": "data:text/plain,a%20b"},
            {"data": "YSBi", "mime": "text/plain", "source": {"type": "inline"}},
        ),
        (
            {"type": "file", "mime": "text/plain", "url": "file:///a.txt"},
            {"data": "", "mime": "text/plain", "source": {"type": "uri", "uri": "file:///a.txt"}},
        ),
    ],
)
def test_files_of_a_prompt(part: dict[str, Any], file: dict[str, Any]) -> None:
    story = Story()
    story.prompt("look", parts=[{"type": "text", "text": "look"}, part, {"type": "text", "text": "x", "synthetic": True}])
    (user,) = story.now.messages.values()
    assert (user["text"], user["files"]) == ("look", [file])


# --- agents and models ----------------------------------------------------------------------------------------


def test_a_session_without_a_choice_has_that_of_its_first_step() -> None:
    story = Story()
    story.turn()
    assert (story.now.info["agent"], story.now.info["model"]) == ("build", {"id": "default", "providerID": "mock"})
    assert event_data(story, "session.agent.selected") == []


def test_a_prompt_with_another_model_selects_it() -> None:
    story = Story()
    story.turn()
    story.prompt("again", model={"providerID": "mock", "modelID": "other", "variant": "high"})
    (selected,) = event_data(story, "session.model.selected")
    assert selected["model"] == {"id": "other", "providerID": "mock", "variant": "high"}
    assert selected["previous"] == {"id": "default", "providerID": "mock"}
    event = next(e for e in story.told if e.type == "session.model.selected")
    assert story.now.messages[event.id.replace("evt_", "msg_")]["type"] == "model-switched"


def test_a_choice_is_published_at_once() -> None:
    story = Story()
    story.status("session", agent="plan")
    assert types(story)[-1] == "agent.selected"
    assert "previous" not in story.told[-1].data


# --- steps ----------------------------------------------------------------------------------------------------


def test_a_new_title_chooses_nothing() -> None:
    """What the first prompt brought along is not told as somebody's choice."""
    story = Story()
    story.accept("hello", agent="build", model={"modelID": "m", "providerID": "p"})
    story.status("session", title="A title")
    assert types(story) == ["created", "inbox.enqueued", "renamed"]


def test_a_text_is_empty_in_get_until_it_has_ended() -> None:
    story = Story()
    story.prompt("hello")
    item = story.message()
    story.delta(item, "Hi")
    assert assistants(story)[0]["content"] == [{"type": "text", "text": ""}]
    story.whole(item, TextPart(text="Hi"))
    assert assistants(story)[0]["content"] == [{"type": "text", "text": "Hi"}]


def test_a_thought_ends_when_the_answer_begins_and_ordinals_count_for_each_kind() -> None:
    story = Story()
    story.prompt("hello")
    item = story.message()
    story.delta(item, "Hm.", 0, "reasoning")
    story.delta(item, "Hi.", 1)
    story.whole(item, ReasoningPart(text="Hm."), TextPart(text="Hi."))
    story.end()
    said = [e for e in story.told if e.type.startswith(("session.reasoning", "session.text"))]
    assert [e.type.removeprefix("session.") for e in said] == [
        *("reasoning.started", "reasoning.delta", "reasoning.ended"),
        *("text.started", "text.delta", "text.ended"),
    ]
    assert {e.data["ordinal"] for e in said} == {0}


def test_more_of_a_text_that_seemed_to_have_ended_comes_in_the_end() -> None:
    story = Story()
    story.prompt("hello")
    item = story.message()
    story.delta(item, "Let me")
    story.call("bash", {"command": "ls"}, parent=item)
    story.ask()
    story.allow()
    story.delta(item, " see.")
    story.result("a")
    story.whole(item, TextPart(text="Let me see."))
    story.end()
    assert [d["text"] for d in event_data(story, "session.text.ended")] == ["Let me", "Let me see."]
    assert [d["delta"] for d in event_data(story, "session.text.delta")] == ["Let me"]
    check_opencode2(story.journal, "mock", story.opencode1)


def test_a_retry_keeps_the_message() -> None:
    story = Story()
    story.prompt("hello")
    story.status("retry", attempt=1, message="overloaded", delay_ms=500)
    (retry,) = event_data(story, "session.retry.scheduled")
    assert (retry["attempt"], retry["error"]) == (2, {"type": "provider.internal", "message": "overloaded"})
    assert assistants(story)[0]["retry"]["at"] == story.told[-1].created + 500
    story.say("Back again.")
    story.end()
    started = event_data(story, "session.step.started")
    assert [d["assistantMessageID"] for d in started] == [retry["assistantMessageID"]] * 2
    (step,) = assistants(story)
    assert "retry" not in step
    assert end(story).type == "session.execution.succeeded"


def test_each_attempt_is_a_start_of_the_step() -> None:
    story = Story()
    story.prompt("hello")
    for attempt in (1, 2, 2):
        story.status("retry", attempt=attempt, message="overloaded")
    assert types(story)[4:] == ["step.started", "retry.scheduled", "step.started", "retry.scheduled", "retry.scheduled"]
    assert [d["attempt"] for d in event_data(story, "session.retry.scheduled")] == [2, 3, 3]
    story.say("Back again.")
    story.end()
    assert len({d["assistantMessageID"] for d in event_data(story, "session.step.started")}) == 1
    check_opencode2(story.journal, "mock", story.opencode1)


def test_a_retry_that_leads_to_nothing_fails_its_step() -> None:
    story = Story()
    story.prompt("hello")
    story.status("retry", attempt=1, message="overloaded")
    story.end("aborted")
    assert types(story)[-2:] == ["step.failed", "execution.interrupted"]
    assert assistants(story)[0]["error"]["type"] == "aborted"


@pytest.mark.parametrize(("reason", "end"), [("completed", "step.ended"), ("aborted", "step.failed"), ("error", "step.failed")])
def test_a_step_that_was_broken_off_ends_once(reason: str, end: str) -> None:
    """Agents close their message before they say why."""
    story = Story()
    story.prompt("hello")
    story.whole(story.message(), TextPart(text="I beg"), failed=True)
    assert "completed" not in assistants(story)[0]["time"]
    if reason == "error":
        story.error("broken")
    story.end(reason)
    assert [kind for kind in types(story) if kind in ("step.ended", "step.failed")] == [end]
    assert "completed" in assistants(story)[0]["time"]
    check_opencode2(story.journal, "mock", story.opencode1)


def test_a_step_that_was_broken_off_has_ended_when_the_turn_goes_on() -> None:
    """A call that its agent interrupts by itself, say."""
    story = Story()
    story.prompt("hello")
    message = story.message()
    story.call("bash", {"command": "ls"}, parent=message)
    story.whole(message, finish="tool-calls")
    story.result("stopped", failed=True, interrupted=True)
    assert types(story)[-1] == "tool.failed"
    story.say("I go on.")
    assert types(story)[types(story).index("tool.failed") :][:3] == ["tool.failed", "step.ended", "step.started"]
    story.end()
    check_opencode2(story.journal, "mock", story.opencode1)


def test_late_text_between_turns_is_not_shown() -> None:
    story = Story()
    story.turn()
    before = len(story.told)
    story.say("late")
    assert story.told[before:] == []


# --- asks -----------------------------------------------------------------------------------------------------


def story_with_permission() -> Story:
    story = Story()
    story.prompt("hello")
    item = story.message()
    story.delta(item, "Let me run that.")
    story.call("bash", {"command": "echo hi"}, parent=item)
    return story


def test_a_permission_comes_after_the_text_before_it() -> None:
    story = story_with_permission()
    before = len(story.told)
    story.ask(command="echo hi")
    assert types(story, before) == ["text.ended", "permission.asked"]
    asked = story.told[-1].data
    assert (asked["action"], asked["resources"], asked["save"]) == ("shell", ["echo hi"], ["echo *"])
    assert asked["source"] == {"type": "tool", "messageID": assistants(story)[0]["id"], "id": "call_1"}
    assert list(story.now.permissions) == ["per_1"]
    story.allow()
    assert story.told[-1].data == {"sessionID": story.id, "requestID": "per_1", "reply": "once"}
    assert story.now.permissions == {}


def test_a_refused_call_was_aborted() -> None:
    story = story_with_permission()
    story.ask()
    story.allow(status="reject")
    story.result("", failed=True)
    assert event_data(story, "session.tool.failed")[0]["error"]["type"] == "aborted"


def test_a_call_that_was_refused_with_a_reason_failed() -> None:
    """The model hears the reason; native ends the turn only without one."""
    story = story_with_permission()
    story.ask()
    story.allow(status="reject", message="use ls")
    story.result("no", failed=True)
    assert event_data(story, "session.tool.failed")[0]["error"]["type"] == "unknown"


def test_a_question_is_a_form() -> None:
    story = story_with_permission()
    red = QuestionOption(label="Red", description="warm")
    one = Question(question="Which colour?", header="Colour", options=(red,), custom=False)
    story.question("que_1", one, Question(question="And?", options=(red, QuestionOption(label="Blue")), multiple=True))
    (form,) = story.now.forms.values()
    assert read.question_of_form(story.reducer.session, form["id"]) == story.reducer.session.questions["que_1"]
    assert form["metadata"] == {"kind": "question", "tool": {"messageID": assistants(story)[0]["id"], "id": "call_1"}}
    assert [(f["key"], f["type"], f["custom"]) for f in form["fields"]] == [("q0", "string", False), ("q1", "multiselect", True)]
    story.answer("que_1", ("Red",), ("Red", "Blue"))
    answer = {"q0": "Red", "q1": ["Red", "Blue"]}
    assert event_data(story, "form.replied") == [{"sessionID": story.id, "id": form["id"], "answer": answer}]
    assert story.now.closed_forms[form["id"]]["state"] == {"status": "answered", "answer": answer}


def test_a_text_ends_with_the_question_behind_it() -> None:
    story = Story()
    story.prompt("hello")
    message = story.message()
    story.delta(message, "I need to know.")
    story.call("question", {"questions": []}, parent=message)
    story.question("que_1", Question(question="Which?"))
    assert types(story)[-3:] == ["tool.called", "form.created", "text.ended"]


def test_an_unanswered_question_is_cancelled() -> None:
    story = story_with_permission()
    story.question("que_1", Question(question="Which?"))
    story.answer("que_1")
    (detail,) = story.now.closed_forms.values()
    assert detail["state"] == {"status": "cancelled"}
    assert types(story)[-1].endswith("form.cancelled")


# --- the rest -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", synthetic_stories(), ids=["all", "fork"])
def test_stories_that_no_recording_has(story: Story) -> None:
    check_opencode2(story.journal, "mock", story.opencode1)


def test_an_import_is_published_at_its_original_time() -> None:
    story = Story()
    tool = {"type": "tool", "tool": "bash", "callID": "c", "state": {"status": "completed", "input": {"command": "ls"}}}
    tool["state"] |= {"output": "a", "title": "ls", "metadata": {"exit": 0}, "time": {"start": 1, "end": 2}}
    created = START_MS - 5_000
    story.import_message("user", {"type": "text", "text": "list"}, message_id="msg_a", created=created)
    story.import_message(
        "assistant", {"type": "text", "text": "Yes."}, tool, message_id="msg_b", created=created + 1, finish="stop"
    )
    user, step = story.now.messages.values()
    assert (user["text"], user["time"]) == ("list", {"created": created})
    assert [part["type"] for part in step["content"]] == ["text", "tool"]
    assert (step["finish"], step["time"]["created"]) == ("stop", created + 1)
    check_opencode2(story.journal, "mock", story.opencode1)


def test_a_fork_is_no_new_session() -> None:
    fork = {"sessionID": f"ses_{1:026d}", "boundary": {"type": "before", "messageID": "msg_1"}}
    story = Story(fork=fork)
    assert [(e.type, e.seq) for e in story.told] == [("session.forked", 0)]
    assert story.now.info["fork"] == fork


def test_the_end_of_a_session() -> None:
    story = Story()
    deleted = events.session_deleted(story.reducer.session, START_MS)
    assert (deleted.type, deleted.seq, deleted.version) == ("session.deleted", 1, 2)
