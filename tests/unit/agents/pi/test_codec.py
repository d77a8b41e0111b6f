"""Pi's codec: commands as lines, ends that no recording shows, hostile input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.dev.record.driver import counting_ids
from tests.support.recordings import load
from universal.agents.pi.codec import SERVERS_EXTENSION, PiCodec
from universal.agents.pi.spec import PI
from universal.agents.pi.tools import input_diff, numbered_diff, read_result
from universal.agents.pi.wire import error_of, read_models
from universal.codec import (
    Attachment,
    Command,
    Fact,
    Interrupt,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    Signal,
    Stop,
    ToolCheck,
    WriteLine,
)
from universal.events import EventType, ItemData, PermissionData
from universal.items import FileRefPart
from universal.launch import Exit, LaunchOptions
from universal.setup import DirectorySetup, McpServer
from universal.turn import Input


class Story:
    """A codec; `hears` lines of Pi, `does` commands of ours."""

    def __init__(self, **options: Any) -> None:
        self.codec = PiCodec(counting_ids())
        self.spec = self.codec.launch(LaunchOptions(binary="/bin/pi", directory="/project", **options))
        self.outputs: list[Output] = []
        state = {"thinkingLevel": "medium", "sessionId": "s1", "model": {"provider": "p", "id": "m"}}
        for line in self._lines(self.codec.start()):
            self.hears({"id": line["id"], "type": "response", "command": line["type"], "success": True, "data": state})

    @staticmethod
    def _lines(outputs: list[Output]) -> list[Any]:
        return [json.loads(out.data) for out in outputs if isinstance(out, WriteLine)]

    def hears(self, *messages: dict[str, Any]) -> list[Any]:
        found: list[Output] = []
        for message in messages:
            found += self.codec.receive(json.dumps(message).encode())
        self.outputs += found
        return self._lines(found)

    def does(self, command: Command) -> list[Any]:
        outputs = self.codec.send(command)
        self.outputs += outputs
        return self._lines(outputs)

    def prompts(self, text: str = "hello", **more: Any) -> Any:
        """Prompt; Pi accepts it. The prompt's line."""
        line = self.does(Prompt("k", text, **more))[-1]
        self.answers(line)
        return line

    def answers(self, line: Any, error: str = "", **data: Any) -> list[Any]:
        more = {"success": False, "error": error} if error else {"success": True, "data": data}
        return self.hears({"id": line["id"], "type": "response", "command": line["type"], **more})

    def signals(self) -> list[tuple[Input, bool]]:
        return [(out.input, out.aborted) for out in self.outputs if isinstance(out, Signal)]

    def facts(self, type_: EventType) -> list[Any]:
        return [out.data for out in self.outputs if isinstance(out, Fact) and out.type is type_]


START = {"type": "agent_start"}
IDLE = {"isStreaming": False, "isCompacting": False}


def message_end(stop: str, **more: Any) -> dict[str, Any]:
    return {"type": "message_end", "message": {"role": "assistant", "content": [], "stopReason": stop, **more}}


def test_launch() -> None:
    argv = Story(model="p/m", variant="high", native_session_id="s1", resume=True).spec.argv
    assert argv[:4] == ("/bin/pi", "--mode", "rpc", "-e")
    assert argv[4].endswith("/gate.ts")
    assert argv[5:] == ("--model", "p/m", "--thinking", "high", "--session", "s1")


def test_the_gate_is_shipped() -> None:
    with open(Story().spec.argv[4], encoding="utf-8") as file:
        gate = file.read()
    assert '"Allow " + event.toolName + "? " + JSON.stringify(event.input)' in gate
    assert '"Questions: " + JSON.stringify(params.questions)' in gate


def test_model_and_level_follow_the_prompt() -> None:
    story = Story()
    assert [line["type"] for line in story.does(Prompt("a", "x", model="p/m"))] == ["prompt"]
    lines = story.does(Prompt("b", "x", model="q/n/1", variant="high"))
    assert [{k: v for k, v in line.items() if k != "id"} for line in lines] == [
        {"type": "set_model", "provider": "q", "modelId": "n/1"},
        {"type": "set_thinking_level", "level": "high"},
    ]
    assert story.answers(lines[0]) == []
    assert [line["message"] for line in story.answers(lines[1])] == ["x"]
    assert [line["type"] for line in story.does(Prompt("c", "x", model="q/n/1"))] == ["set_thinking_level"]


def test_a_refused_model_is_reported_and_requested_again() -> None:
    story = Story()
    first = story.does(Prompt("a", "x", model="q/n"))
    assert [line["type"] for line in story.answers(first[0], error="Model not found: q/n")] == ["prompt"]
    assert [data.code for data in story.facts(EventType.ERROR)] == ["set_model_refused"]
    assert story.does(Prompt("b", "x", model="q/n"))[0]["type"] == "set_model"


def test_images_files_and_notes() -> None:
    image = Attachment(mime="image/png", base64="AA==")
    file = Attachment(mime="text/plain", path="/a.txt", text="content")
    line = Story().prompts("look", attachments=[image, file], system="be brief")
    assert line["images"] == [{"type": "image", "data": "AA==", "mimeType": "image/png"}]
    assert line["message"].split("\n\n") == [
        "<system-reminder>\nbe brief\n</system-reminder>",
        '<file path="/a.txt">\ncontent\n</file>',
        "look",
    ]


def test_a_refused_prompt_fails() -> None:
    story = Story()
    story.answers(story.does(Prompt("k", "x"))[-1], error="No API key found for the selected model.")
    assert story.signals() == [(Input.FAILED, False)]
    [error] = story.facts(EventType.ERROR)
    assert error.code == "authentication_failed"
    assert "/login" in error.details["hint"]


def test_a_command_of_an_extension_runs_no_model() -> None:
    story = Story()
    [probe] = story.answers(story.does(Prompt("k", "/stats"))[-1])
    assert probe["type"] == "get_state"
    story.answers(probe, **IDLE)
    assert story.signals() == [(Input.DONE, False)]


def test_an_interrupt_before_the_run_has_begun_is_held() -> None:
    story = Story()
    story.prompts()
    assert story.does(Interrupt()) == []
    [abort] = story.hears(START)
    assert abort["type"] == "abort"
    story.hears(message_end("aborted"), {"type": "agent_end", "willRetry": False}, {"type": "agent_settled"})
    assert story.signals() == [(Input.FAILED, True)]
    story.answers(abort)
    story.prompts("next")
    assert story.hears(START) == []


def test_an_interrupt_while_a_retry_waits_ends_an_old_pi() -> None:
    story = Story()
    story.prompts()
    story.hears(
        START, message_end("error", errorMessage="503 no"), {"type": "agent_end"}, {"type": "auto_retry_start", "delayMs": 1}
    )
    [abort] = story.does(Interrupt())
    [probe] = story.hears({"type": "auto_retry_end", "success": False, "finalError": "Retry cancelled"})
    story.answers(probe, **IDLE)
    assert story.signals() == [(Input.FAILED, True)]
    story.answers(story.answers(abort)[0], **IDLE)
    assert story.signals() == [(Input.FAILED, True)]


def test_an_old_pi_that_compacts_after_its_answer_is_not_done() -> None:
    story = Story()
    story.prompts()
    story.hears(START, message_end("stop"))
    [probe] = story.hears({"type": "agent_end"})
    story.hears({"type": "compaction_start", "reason": "threshold"})
    story.answers(probe, isStreaming=False, isCompacting=True)
    assert story.signals() == []
    [probe] = story.hears({"type": "compaction_end", "reason": "threshold", "willRetry": False, "aborted": False})
    story.answers(probe, **IDLE)
    assert story.signals() == [(Input.DONE, False)]


def test_a_run_without_a_prompt() -> None:
    story = Story()
    story.hears(START, message_end("stop"), {"type": "agent_settled"})
    assert story.signals() == [(Input.ACTIVITY, False), (Input.DONE, False)]


def select(tool: str = "edit", **arguments: Any) -> dict[str, Any]:
    title = f"Allow {tool}? {json.dumps(arguments)}"
    options = ["Allow once", "Allow always", "Deny"]
    return {"type": "extension_ui_request", "id": "u1", "method": "select", "title": title, "options": options}


@pytest.mark.parametrize(
    ("decision", "message", "value"),
    [
        ("accept", None, "Allow once"),
        ("accept_for_session", None, "Allow always"),
        ("reject", None, "Deny"),
        ("reject", "not there", "Deny: not there"),
    ],
)
def test_permissions(decision: Any, message: str | None, value: str) -> None:
    story = Story()
    assert story.hears(select("edit", path="a", edits=[{"oldText": "x", "newText": "y"}])) == []
    [asked] = story.facts(EventType.PERMISSION_REQUESTED)
    assert asked.metadata["diff"] == "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n"
    reply = PermissionReply(asked.permission_id, decision, message)
    assert story.does(reply) == [{"type": "extension_ui_response", "id": "u1", "value": value}]
    assert story.does(reply) == []
    assert [data.status for data in story.facts(EventType.PERMISSION_RESOLVED)] == [decision]


@pytest.mark.parametrize(
    ("mode", "tool", "is_asked"),
    [
        ("bypass", "bash", False),
        ("accept-edits", "edit", False),
        ("accept-edits", "bash", True),
        ("plan", "write", True),
        ("plan", "bash", True),
        ("build", "edit", True),
        ("build", "read", False),
        ("build", "mine", True),
    ],
)
def test_rules_check_calls_that_a_mode_lets_through(mode: str, tool: str, is_asked: bool) -> None:
    story = Story(mode=mode)
    assert story.hears(select(tool, path="a", command="c")) == []
    assert len(story.facts(EventType.PERMISSION_REQUESTED)) == is_asked
    assert len([out for out in story.outputs if isinstance(out, ToolCheck)]) == (not is_asked)
    assert story.codec.mode == mode


def test_a_checked_call_goes_on_unseen() -> None:
    story = Story()
    story.hears(select("read", path="a"))
    [check] = [out.request.data for out in story.outputs if isinstance(out, ToolCheck)]
    assert isinstance(check, PermissionData)
    [line] = [json.loads(out.data) for out in story.codec.proceed(check.permission_id) if isinstance(out, WriteLine)]
    assert line == {"type": "extension_ui_response", "id": "u1", "value": "Allow once"}
    assert story.codec.proceed(check.permission_id) == []


def test_a_checked_call_that_a_rule_denies_is_blocked() -> None:
    story = Story(mode="bypass")
    story.hears(select("read", path="a"))
    [check] = [out.request.data for out in story.outputs if isinstance(out, ToolCheck)]
    assert isinstance(check, PermissionData)
    [line] = story.does(PermissionReply(check.permission_id, "reject", "by rule"))
    assert line["value"] == "Deny: by rule"


def test_several_questions_at_once() -> None:
    story = Story()
    rows = [{"question": "Which?", "options": [{"label": "A"}, {"label": "B"}], "multiple": True}, {"question": "Why?"}]
    title = f"Questions: {json.dumps(rows)}"
    story.hears({"type": "extension_ui_request", "id": "u2", "method": "input", "title": title})
    [asked] = story.facts(EventType.QUESTION_REQUESTED)
    assert [question.question for question in asked.questions] == ["Which?", "Why?"]
    [line] = story.does(QuestionReply(asked.question_id, [["A", "B"], ["because"]]))
    assert json.loads(line["value"]) == [["A", "B"], ["because"]]


@pytest.mark.parametrize(
    ("method", "fields", "answer", "sent"),
    [
        ("confirm", {"message": "really?"}, [["Yes"]], {"confirmed": True}),
        ("confirm", {"message": "really?"}, [["No"]], {"confirmed": False}),
        ("input", {"placeholder": "name"}, [["me"]], {"value": "me"}),
        ("editor", {"prefill": "draft"}, [["text"]], {"value": "text"}),
        ("select", {"options": ["a", "b"]}, [["b"]], {"value": "b"}),
        ("select", {"options": ["a", "b"]}, None, {"cancelled": True}),
    ],
)
def test_dialogs_of_other_extensions_are_questions(method: str, fields: Any, answer: Any, sent: Any) -> None:
    story = Story()
    story.hears({"type": "extension_ui_request", "id": "u3", "method": method, "title": "T", **fields})
    [asked] = story.facts(EventType.QUESTION_REQUESTED)
    assert story.does(QuestionReply(asked.question_id, answer)) == [{"type": "extension_ui_response", "id": "u3", **sent}]


@pytest.mark.parametrize(
    ("title", "sent"),
    [
        ('Questions: [{"question": "Which?", "options": []}]', {"value": '{"rejected": "Nobody is here."}'}),
        ("A dialog of another extension", {"cancelled": True}),
    ],
)
def test_the_reason_of_a_rejected_question_goes_to_our_own_tool(title: str, sent: Any) -> None:
    story = Story()
    story.hears({"type": "extension_ui_request", "id": "u3", "method": "input", "title": title})
    [asked] = story.facts(EventType.QUESTION_REQUESTED)
    assert story.does(QuestionReply(asked.question_id, None, "Nobody is here.")) == [
        {"type": "extension_ui_response", "id": "u3", **sent}
    ]
    [resolved] = story.facts(EventType.QUESTION_RESOLVED)
    assert resolved.metadata["message"] == "Nobody is here."


def test_the_gate_fails_a_question_with_its_reason() -> None:
    with open(Story().spec.argv[4], encoding="utf-8") as file:
        assert "throw new Error(answers.rejected)" in file.read()


def test_open_dialogs_end_with_the_process() -> None:
    story = Story()
    story.hears(select("bash", command="c"))
    story.outputs += story.codec.eof(Exit(code=1))
    assert [data.status for data in story.facts(EventType.PERMISSION_RESOLVED)] == ["reject"]


def test_levels_of_a_model_that_has_its_own() -> None:
    told = {"minimal": None, "high": "max", "xhigh": "xhigh"}
    row = {"provider": "p", "id": "m", "reasoning": True, "thinkingLevelMap": told}
    assert read_models([row, row, {}])[0].variants == ("off", "low", "medium", "high", "xhigh")


def test_a_numbered_diff_with_a_gap() -> None:
    shown = "  1 one\n- 2 two\n+ 2 TWO\n+ 3 more\n  3 three\n    ...\n 20 x\n-21 y"
    assert numbered_diff("/f", shown) == (
        "--- /f\n+++ /f\n@@ -1,3 +1,4 @@\n one\n-two\n+TWO\n+more\n three\n@@ -20,2 +21,1 @@\n x\n-y\n"
    )
    assert numbered_diff("/f", "") is None


def test_a_write_shows_its_content_as_added() -> None:
    assert input_diff("write", {"path": "/f", "content": "a\nb\n"}) == "--- /dev/null\n+++ /f\n@@ -0,0 +1,2 @@\n+a\n+b\n"


def test_paths_of_results_are_absolute() -> None:
    result = read_result("c", "read", {"path": "./a.txt"}, {"content": []}, failed=False, directory="/p")
    assert [part.path for part in result.content if isinstance(part, FileRefPart)] == ["/p/a.txt"]


def test_exit_codes() -> None:
    failed = {"content": [{"type": "text", "text": "oops\n\nCommand exited with code 3"}]}
    assert read_result("c", "bash", {}, failed, failed=True).metadata == {"exit_code": 3, "stdout": "oops"}


def test_errors_say_their_status() -> None:
    assert error_of('503: {"message":"down","type":"x"}')["message"] == "503: down"
    assert error_of("429 slow down")["details"]["is_retryable"] is True


def test_a_spec() -> None:
    assert (PI.name, PI.program.env_override, PI.abilities.catalogue.models) == ("pi", "SHIM_PI_BIN", ())


# --- hostile input ----------------------------------------------------------------------------------------

KINDS = [*sorted(PiCodec.HANDLERS), "turn_end", "message_start/custom", "nonsense"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "id", "message", "assistantMessageEvent", "toolCallId", "toolName", "args", "result", "partialResult", "isError", "data",
    "success", "error", "title", "options", "method", "command", "willRetry", "attempt", "delayMs", "reason",
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=5)), max_size=12))
def test_any_fields(messages: list[tuple[str, dict[str, Any]]]) -> None:
    codec = PiCodec(counting_ids())
    codec.start()
    codec.send(Prompt("k", "x"))
    for kind, fields in messages:
        type_, _, second = kind.partition("/")
        message = {**fields, "type": type_}
        if type_ in ("message_start", "message_end"):
            message["message"] = {**(fields["message"] if isinstance(fields.get("message"), dict) else {}), "role": second}
        elif type_ == "message_update":
            event = fields.get("assistantMessageEvent")
            message["assistantMessageEvent"] = {**(event if isinstance(event, dict) else {}), "type": second}
        elif type_ == "extension_ui_request":
            message["method"] = second
        codec.receive(json.dumps(message).encode())
    codec.send(Interrupt())
    codec.eof(Exit(code=1))


@given(st.binary(max_size=60))
def test_any_bytes(line: bytes) -> None:
    outputs = PiCodec(counting_ids()).receive(line)
    assert [out.type for out in outputs if isinstance(out, Fact)] in ([EventType.UNPARSED], [])


@given(st.data())
def test_recorded_lines_in_any_order(data: st.DataObject) -> None:
    said_ = load("pi", data.draw(st.sampled_from(["0.73.1", "0.87.1"])), "question").agent_messages()
    codec = PiCodec(counting_ids())
    codec.send(Prompt("k", "x"))
    for message in data.draw(st.lists(st.sampled_from(said_), max_size=30)):
        codec.receive(json.dumps(message).encode())
    codec.eof(Exit(code=None, signal=9))


# --- after an undo -----------------------------------------------------------------------------------------

PROMPTS = [{"entryId": name, "text": name} for name in ("e1", "e2", "e3")]


def resumed_story(at: str) -> tuple[Story, Any]:
    """A conversation to be taken up after the answer to the prompt `at`, and the question that a prompt waits for."""
    story = Story.__new__(Story)
    story.codec, story.outputs = PiCodec(counting_ids()), []
    story.codec.launch(LaunchOptions("/bin/pi", "/project", native_session_id="s1", resume=True, resume_at=at))
    *_, ask = story._lines(story.codec.start())
    assert ask["type"] == "get_fork_messages"
    assert story.does(Prompt("k", "hello")) == []
    return story, ask


def test_pi_forks_before_the_prompt_that_was_undone() -> None:
    story, ask = resumed_story("e1")
    (fork,) = story.answers(ask, messages=PROMPTS)
    assert (fork["type"], fork["entryId"]) == ("fork", "e2")
    (state,) = story.answers(fork, text="e2", cancelled=False)
    (prompt,) = story.answers(state, sessionId="s2")
    assert (prompt["message"], story.codec.native_session_id) == ("hello", "s2")


def test_nothing_after_it_needs_no_fork() -> None:
    story, ask = resumed_story("e3")
    (prompt,) = story.answers(ask, messages=PROMPTS)
    assert prompt["type"] == "prompt"


@pytest.mark.parametrize("step", ["gone", "refused", "cancelled"])
def test_an_undo_that_the_agent_cannot_do_starts_it_again(step: str) -> None:
    story, ask = resumed_story("e9" if step == "gone" else "e1")
    lines = story.answers(ask, messages=PROMPTS)
    if step == "refused":
        lines = story.answers(lines[0], "Invalid entry ID for forking")
    elif step == "cancelled":
        lines = story.answers(lines[0], cancelled=True)
    assert lines == []
    assert [error.code for error in story.facts(EventType.ERROR)] == ["session_not_found"]
    assert story.signals() == [(Input.FAILED, False)]


def test_the_gate_tells_which_prompt_was_answered() -> None:
    story = Story()
    story.prompts()
    line = {"type": "extension_ui_request", "method": "setStatus", "id": "u"}
    story.hears(START, {**line, "statusKey": "other", "statusText": "x"}, message_end("stop"))
    story.hears({**line, "statusKey": "opencode-shim.prompt", "statusText": "e4"}, {"type": "agent_settled"})
    (signal,) = [out for out in story.outputs if isinstance(out, Signal)]
    assert (signal.metadata or {})["anchor"] == "e4"
    assert story.codec.counters()["ignored:extension_ui_request/setStatus"] == 1


def test_pi_gets_mcp_servers_by_a_dialog_and_tells_their_states() -> None:
    near = McpServer("near", command=("run", "it"), environment={"TOKEN": "secret"})
    story = Story(setup=DirectorySetup(servers=(near, McpServer("far", url="http://far"))))
    assert story.spec.argv[5:7] == ("-e", SERVERS_EXTENSION)
    assert "secret" not in "".join((*story.spec.argv, *map(str, story.spec.env.values())))
    (answer,) = story.hears({"type": "extension_ui_request", "id": "u", "method": "input", "title": "opencode-shim.mcp"})
    assert json.loads(answer["value"]) == [
        {"name": "near", "argv": ["run", "it"], "environment": {"TOKEN": "secret"}},
        {"name": "far", "url": "http://far"},
    ]
    rows = [{"name": "near", "status": "connected"}, {"name": "far", "status": "failed", "error": "why"}]
    line = {"type": "extension_ui_request", "method": "setStatus", "id": "v", "statusKey": "opencode-shim.mcp"}
    story.hears({**line, "statusText": json.dumps(rows)}, {**line, "statusText": "no rows"})
    reports = [out.data.item.metadata for out in story.outputs if isinstance(out, Fact) and isinstance(out.data, ItemData)]
    states = {"near": {"status": "connected"}, "far": {"status": "failed", "error": "why"}}
    assert reports == [{"servers": states}, {"servers": {}}]


WITHOUT_ONE = DirectorySetup(withheld_skills=("/held/SKILL.md",))


@pytest.mark.parametrize("setup", [DirectorySetup(servers=(McpServer("near", command=("run",)),)), WITHOUT_ONE])
def test_other_mcp_servers_or_skills_need_another_process(setup: DirectorySetup) -> None:
    assert Story().codec.send(Prompt("p1", "hello", setup=setup)) == [
        Stop("other MCP servers or skills need another process", again=True)
    ]


def test_pi_finds_no_skills_if_it_may_not_offer_one() -> None:
    assert "--no-skills" in Story(setup=WITHOUT_ONE).spec.argv
    assert "--no-skills" not in Story().spec.argv


def test_a_refusal_without_words_aborts_before_pi_reads_it() -> None:
    story = Story()
    story.hears({"type": "agent_start"}, select("bash", command="touch a"))
    [asked] = story.facts(EventType.PERMISSION_REQUESTED)
    lines = story.does(PermissionReply(asked.permission_id, "reject", stops=True))
    assert [line["type"] for line in lines] == ["abort", "extension_ui_response"]


# --- prompts during an answer ---------------------------------------------------------------------------------


def make_offers(version: str = "1.5.2", *, is_answered: bool = True) -> Story:
    """Pi answers "one" and was given "two" and "three"."""
    story = Story(version=version)
    story.does(Prompt("one", "one"))
    story.hears({"type": "agent_start"})
    for key in ("two", "three"):
        outputs = story.codec.steer(Prompt(key, key))
        story.outputs += outputs
        if is_answered:
            story.answers(Story._lines(outputs)[0])
    return story


def echo(words: str) -> dict[str, Any]:
    return {"type": "message_end", "message": {"role": "user", "content": [{"type": "text", "text": words}]}}


def offers_of(story: Story) -> list[tuple[Input, str]]:
    found = [signal for signal in story.outputs if isinstance(signal, Signal)]
    return [(signal.input, signal.key) for signal in found if signal.input in (Input.TAKEN, Input.RETURNED)]


def test_a_steered_prompt_is_taken_in_where_pi_echoes_it_and_the_others_come_back_at_the_end() -> None:
    story = make_offers()
    assert story.codec.may_steer
    story.hears(echo("one"), echo("two"))
    assert offers_of(story) == [(Input.TAKEN, "two")]
    lines = story.hears({"type": "agent_settled"})
    assert [line["type"] for line in lines] == ["clear_queue"]
    story.answers(lines[0], steering=["three"])
    assert offers_of(story)[1:] == [(Input.RETURNED, "three")]
    assert not story.codec.may_steer


def test_an_interrupt_empties_pis_queue_first() -> None:
    story = make_offers()
    clear, abort = story.does(Interrupt())
    assert (clear["type"], abort["type"]) == ("clear_queue", "abort")
    story.answers(clear, steering=["two", "three"])
    assert offers_of(story) == [(Input.RETURNED, "three"), (Input.RETURNED, "two")]


def test_pis_queue_empties_after_the_answers_to_all_steers() -> None:
    story = make_offers(is_answered=False)
    two, three = [line for line in Story._lines(story.outputs) if line["type"] == "steer"]
    assert [line["type"] for line in story.does(Interrupt())] == ["abort"], "it would overtake them"
    assert story.answers(two) == []
    assert [line["type"] for line in story.answers(three)] == ["clear_queue"]


def test_a_recall_gives_back_all_and_of_what_pi_has_taken_in_nothing() -> None:
    story = make_offers()
    story.hears(echo("two"))
    assert story.codec.recall("two") == []
    assert make_offers(is_answered=False).codec.recall("two"), "an answer comes later"
    (clear,) = Story._lines(story.codec.recall("three"))
    story.answers(clear, steering=["three"], followUp=[])
    assert offers_of(story) == [(Input.TAKEN, "two"), (Input.RETURNED, "three")]


def test_a_prompt_that_pi_takes_in_before_a_recall_does_not_come_back() -> None:
    story = make_offers()
    (clear,) = Story._lines(story.codec.recall("two"))
    story.hears(echo("two"))
    story.answers(clear, steering=["three"], followUp=[])
    assert offers_of(story) == [(Input.TAKEN, "two"), (Input.RETURNED, "three")]


def test_a_refused_steer_comes_back_and_an_old_pi_gets_none() -> None:
    story = make_offers(is_answered=False)
    (line,) = [line for line in Story._lines(story.outputs) if line.get("message") == "two"]
    story.hears({"id": line["id"], "type": "response", "command": "steer", "success": False, "error": "no"})
    assert offers_of(story) == [(Input.RETURNED, "two")]
    assert not make_offers("0.73.1").codec.may_steer


def test_a_steered_prompt_that_an_extension_handles_or_changes_holds_no_turn_open() -> None:
    story = make_offers()
    lines = story.hears(echo("one"), echo("TWO, CHANGED"), {"type": "agent_settled"})
    story.answers(lines[-1], steering=[], followUp=[])
    assert offers_of(story) == [(Input.TAKEN, "two"), (Input.TAKEN, "three")]


def test_a_recall_brings_back_what_an_extension_changed() -> None:
    story = make_offers()
    story.hears(echo("two"))
    (clear,) = Story._lines(story.codec.recall("three"))
    story.answers(clear, steering=["THREE, CHANGED"], followUp=[])
    assert offers_of(story) == [(Input.TAKEN, "two"), (Input.RETURNED, "three")]
