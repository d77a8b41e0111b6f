"""The ACP codec line by line: commands of ours, what holds them back, settings, forms, and whatever an agent may send."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.dev.record.driver import counting_ids
from tests.support.recordings import load_all
from tests.support.replay import encode
from universal.agent_spec import AgentProgram
from universal.agents import kit
from universal.agents.acp.codec import AcpCodec
from universal.agents.acp.ends import END, HISTORY, LATE_S, OWN_S
from universal.agents.acp.profiles import PROFILES, Profile
from universal.agents.acp.spec import ACP_AGENTS, DOWNLOAD_S, HANDSHAKE_S, custom_spec
from universal.codec import (
    Attachment,
    Command,
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
from universal.events import ErrorData, EventType, ItemData, PermissionData, Source, UniversalEvent
from universal.items import ItemKind, ToolResultPart
from universal.launch import Exit, LaunchOptions
from universal.turn import Input

OWN = Profile("own", "Own", AgentProgram(("own",)))
AGENT = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True, "promptCapabilities": {"image": True}}}
MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "plan", "name": "Plan"}]}


def option(id_: str, now: str, *values: str, category: str = "") -> dict[str, Any]:
    rows = [{"value": value, "name": value.title()} for value in values]
    return {"id": id_, "category": category or id_, "type": "select", "currentValue": now, "options": rows}


@dataclass
class Talk:
    """A codec and what came out of it."""

    codec: AcpCodec = field(default_factory=lambda: AcpCodec(counting_ids(), OWN))
    outputs: list[Output] = field(default_factory=list)
    holds: bool = False
    """Checked calls wait for an answer of the test."""
    waits: bool = False
    """Timers run out only by `run_out`, else at once."""
    timers: dict[str, float] = field(default_factory=dict)
    """Key of a timer that is set -> its seconds."""

    def launch(self, **more: Any) -> Talk:
        self.codec.launch(LaunchOptions(binary="/bin/own", directory="/p", **more))
        self.take(self.codec.start())
        return self

    def ready(self, agent: dict[str, Any] = AGENT, **session: Any) -> Talk:
        """A session that waits for a prompt."""
        self.launch()
        self.answer("initialize", agent)
        self.answer("session/new", {"sessionId": "s", **session})
        return self

    def take(self, outputs: list[Output]) -> list[Output]:
        """Keep the outputs. Checked calls go on, as without permission rules, unless `holds`."""
        taken: list[Output] = []
        for output in outputs:
            if isinstance(output, ToolCheck) and isinstance(output.request.data, PermissionData) and not self.holds:
                taken += self.codec.proceed(output.request.data.permission_id)
            else:
                taken.append(output)
            if isinstance(output, SetTimer):
                self.timers.pop(output.key, None)
                self.timers |= {output.key: output.after_s} if output.after_s is not None else {}
        self.outputs += taken
        for key in () if self.waits else (END, HISTORY):
            taken += self.run_out(key) if key in self.timers else []
        return taken

    def run_out(self, key: str = END) -> list[Output]:
        """A timer that is set has run out."""
        del self.timers[key]
        return self.take(self.codec.on_timer(key))

    def send(self, command: Command) -> list[Output]:
        return self.take(self.codec.send(command))

    def say(self, msg: Any) -> list[Output]:
        return self.take(self.codec.receive(encode(msg)))

    def update(self, kind: str, /, **more: Any) -> list[Output]:
        params = {"sessionId": "s", "update": {"sessionUpdate": kind, **more}}
        return self.say({"jsonrpc": "2.0", "method": "session/update", "params": params})

    def chunk(self, text: str, **more: Any) -> list[Output]:
        return self.update("agent_message_chunk", content={"type": "text", "text": text}, **more)

    def request(self, id_: Any, method: str, **params: Any) -> list[Output]:
        return self.say({"jsonrpc": "2.0", "id": id_, "method": method, "params": {"sessionId": "s", **params}})

    def answer(self, method: str, result: Any = None, error: Any = None) -> list[Output]:
        """The agent's answer to the last request of ours of this method."""
        id_ = next(msg["id"] for msg in reversed(self.written_lines()) if msg.get("method") == method)
        return self.say({"jsonrpc": "2.0", "id": id_, **({"error": error} if error else {"result": result})})

    def written_lines(self) -> list[dict[str, Any]]:
        return lines(self.outputs)

    def methods(self) -> list[str]:
        return [msg["method"] for msg in self.written_lines() if "method" in msg]

    def signals(self) -> list[tuple[Input, bool]]:
        return [(out.input, out.aborted) for out in self.outputs if isinstance(out, Signal)]

    def errors(self) -> list[str | None]:
        return [out.data.code for out in self.outputs if isinstance(out, Fact) and out.type is EventType.ERROR]

    def last_request(self) -> Any:
        return next(out.data for out in reversed(self.outputs) if isinstance(out, Fact) and out.type.endswith(".requested"))


def lines(outputs: list[Output]) -> list[dict[str, Any]]:
    return [json.loads(out.data) for out in outputs if isinstance(out, WriteLine)]


# --- prompts --------------------------------------------------------------------------------------------


def test_a_prompt_waits_for_the_session() -> None:
    talk = Talk().launch()
    assert lines(talk.send(Prompt("p", "hi"))) == []
    talk.answer("initialize", AGENT)
    assert lines(talk.answer("session/new", {"sessionId": "s"}))[0]["params"] == {
        "sessionId": "s",
        "prompt": [{"type": "text", "text": "hi"}],
    }


def test_an_interrupt_before_the_session_is_there_drops_the_prompt() -> None:
    talk = Talk().launch()
    talk.send(Prompt("p", "hi"))
    talk.send(Interrupt())
    talk.answer("initialize", AGENT)
    talk.answer("session/new", {"sessionId": "s"})
    assert talk.signals() == [(Input.FAILED, True)]
    assert "session/prompt" not in talk.methods()


def test_an_interrupt_while_settings_are_made_drops_the_prompt() -> None:
    talk = Talk().ready(modes=MODES)
    talk.send(Prompt("p", "hi", mode="plan"))
    talk.send(Interrupt())
    talk.answer("session/set_mode", {})
    assert talk.signals() == [(Input.FAILED, True)]
    assert "session/prompt" not in talk.methods()
    talk.send(Prompt("p2", "again", mode="plan"))
    assert talk.methods().count("session/set_mode") == 1
    assert talk.methods()[-1] == "session/prompt"


def test_cancel_answers_what_is_asked_before_and_after_it() -> None:
    talk = Talk().ready()
    talk.send(Prompt("p", "hi"))
    call = {"toolCallId": "c", "kind": "execute", "title": "ls"}
    talk.request(0, "session/request_permission", toolCall=call, options=[])
    cancelled = {"outcome": {"outcome": "cancelled"}}
    sent = lines(talk.send(Interrupt()))
    assert [sent[0]["method"], sent[1]["id"], sent[1]["result"]] == ["session/cancel", 0, cancelled]
    assert lines(talk.request(1, "session/request_permission", toolCall=call, options=[]))[0]["result"] == cancelled
    talk.answer("session/prompt", {"stopReason": "cancelled"})
    assert talk.signals() == [(Input.FAILED, True)]


def test_attachments() -> None:
    talk = Talk().ready()
    image = Attachment(mime="image/png", base64="AA==")
    text = Attachment(mime="text/plain", path="/p/a.txt", text="A")
    talk.send(Prompt("p", "look", attachments=[image, text], system="Be brief."))
    blocks = talk.written_lines()[-1]["params"]["prompt"]
    assert [block["type"] for block in blocks] == ["text", "image", "text", "text"]
    assert "Be brief." in blocks[0]["text"]
    assert blocks[3]["text"] == "look"


# --- sessions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "method"),
    [({"sessionCapabilities": {"resume": {}}, "loadSession": True}, "session/resume"), ({"loadSession": True}, "session/load")],
)
def test_a_session_is_continued(capabilities: dict[str, Any], method: str) -> None:
    talk = Talk().launch(native_session_id="old", resume=True)
    talk.send(Prompt("p", "hi"))
    talk.answer("initialize", {"agentCapabilities": capabilities})
    assert talk.written_lines()[-1]["params"]["sessionId"] == "old"
    talk.answer(method, {})
    assert talk.written_lines()[-1]["params"]["sessionId"] == "old"
    assert talk.methods()[-1] == "session/prompt"


def test_a_lost_session_is_reported_as_lost() -> None:
    talk = Talk().launch(native_session_id="old", resume=True)
    talk.send(Prompt("p", "hi"))
    talk.answer("initialize", AGENT)
    talk.answer("session/load", error={"code": -32602, "message": "Invalid params", "data": "Unknown sessionId: old"})
    assert talk.errors() == ["session_not_found"]
    [signal] = [out for out in talk.outputs if isinstance(out, Signal)]
    assert (signal.error or {})["code"] == "session_not_found"


def test_an_agent_that_cannot_continue_says_the_same() -> None:
    talk = Talk().launch(native_session_id="old", resume=True)
    talk.send(Prompt("p", "hi"))
    talk.answer("initialize", {"agentCapabilities": {}})
    assert talk.errors() == ["session_not_found"]


def test_a_missing_login_is_reported_with_the_ways_to_log_in() -> None:
    talk = Talk().launch()
    talk.send(Prompt("p", "hi"))
    talk.answer("initialize", {**AGENT, "authMethods": [{"id": "x", "name": "Log in with X"}]})
    talk.answer("session/new", error={"code": -32000, "message": "Authentication required"})
    assert talk.errors() == ["authentication_failed"]
    assert any(isinstance(out, Stop) for out in talk.outputs)
    [message] = [out.data.message for out in talk.outputs if isinstance(out, Fact) and out.type is EventType.ERROR]
    assert "Log in with X" in message


# --- the handshake --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "resume", "missing", "code"),
    [
        ([], False, "initialize", "handshake_timeout"),
        (["initialize"], False, "session/new", "handshake_timeout"),
        (["initialize", "session/new"], False, "session/set_mode", "handshake_timeout"),
        ([], True, "initialize", "session_not_found"),
        (["initialize"], True, "session/load", "session_not_found"),
    ],
)
def test_an_answer_of_the_handshake_that_does_not_come_fails_the_prompt(
    answers: list[str], resume: bool, missing: str, code: str
) -> None:
    talk = Talk().launch(native_session_id="old" if resume else None, resume=resume)
    talk.send(Prompt("p", "hi", mode="plan"))
    for method in answers:
        talk.answer(method, AGENT if method == "initialize" else {"sessionId": "s", "modes": MODES})
    assert talk.timers == {kit.HANDSHAKE: OWN.handshake_s}
    [stop] = talk.run_out(kit.HANDSHAKE)
    assert isinstance(stop, Stop)
    assert stop.error is not None
    assert (stop.error["code"], missing in str(stop.error["message"])) == (code, True)


def test_the_wait_for_the_handshake_ends_with_the_prompt_or_its_interrupt() -> None:
    talk = Talk().launch()
    talk.send(Prompt("p", "hi"))
    talk.send(Interrupt())
    assert talk.timers == {}
    assert talk.codec.on_timer(kit.HANDSHAKE) == []
    talk.send(Prompt("p2", "hi"))
    talk.answer("initialize", AGENT)
    talk.answer("session/new", {"sessionId": "s"})
    assert (talk.methods()[-1], talk.timers) == ("session/prompt", {})


@pytest.mark.parametrize("version", [0, 2, "2", None, 2.5])
def test_a_version_that_is_not_spoken_is_refused_with_a_sentence(version: Any) -> None:
    talk = Talk().launch()
    talk.send(Prompt("p", "hi"))
    assert talk.written_lines()[0]["params"]["protocolVersion"] == 1
    talk.answer("initialize", {"protocolVersion": version})
    [error] = [out.data for out in talk.outputs if isinstance(out, Fact) and isinstance(out.data, ErrorData)]
    assert error.message == (
        f"Own answered with version {version} of the Agent Client Protocol, but this server speaks 1. "
        "Install a version of Own that speaks it, or update opencode-shim."
    )
    assert error.code == "protocol_version"
    assert [out.input for out in talk.outputs if isinstance(out, Signal)] == [Input.FAILED]
    assert any(isinstance(out, Stop) for out in talk.outputs)
    assert talk.methods() == ["initialize"]


@pytest.mark.parametrize(("command", "seconds"), [("/opt/agent", HANDSHAKE_S), ("npx", DOWNLOAD_S), ("/usr/bin/uvx", DOWNLOAD_S)])
def test_an_agent_that_is_downloaded_first_may_take_longer(command: str, seconds: float) -> None:
    codec = custom_spec("mine", (command, "agent"), None, {}).make(counting_ids())
    assert isinstance(codec, AcpCodec)
    talk = Talk(codec).launch()
    talk.send(Prompt("p", "hi"))
    assert talk.timers == {kit.HANDSHAKE: seconds}


DRESSES: dict[str, Callable[[dict[str, Any]], list[bytes]]] = {
    "a byte order mark": lambda msg: [b"\xef\xbb\xbf" + encode(msg)],
    "escapes of a terminal": lambda msg: [b"\x1b[?25h\x1b[0m" + encode(msg) + b"\x1b[0m\r"],
    "the title of a window": lambda msg: [b"\x1b]0;me@host\x07" + encode(msg)],
    "several lines": lambda msg: json.dumps(msg, indent=2).encode().split(b"\n"),
    "several lines after a mark": lambda msg: (b"\xef\xbb\xbf" + json.dumps(msg, indent=1).encode()).split(b"\n"),
    "the id as text": lambda msg: [encode({**msg, "id": str(msg["id"])})],
    "a broken object before it": lambda msg: [b"{", b'  "a": ', encode(msg)],
}


@pytest.mark.parametrize("dress", DRESSES)
def test_an_answer_that_is_no_clean_line_is_read(dress: str) -> None:
    talk = Talk().launch()
    talk.send(Prompt("p", "hi"))
    for method, result in (
        ("initialize", AGENT),
        ("session/new", {"sessionId": "s"}),
        ("session/prompt", {"stopReason": "refusal"}),
    ):
        id_ = talk.written_lines()[-1]["id"]
        assert talk.methods()[-1] == method
        for line in DRESSES[dress]({"jsonrpc": "2.0", "id": id_, "result": result}):
            talk.take(talk.codec.receive(line))
    assert talk.errors() == ["refusal"]
    assert sum(talk.codec.counters().values()) == (3 if dress.startswith("a broken") else 0)


@pytest.mark.parametrize("method", ["initialize", "session/prompt"])
def test_an_agent_that_cannot_read_a_request_has_answered_it(method: str) -> None:
    talk = Talk().launch() if method == "initialize" else Talk().ready()
    talk.send(Prompt("p", "hi"))
    talk.say({"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "no session/cancel here"}})
    assert talk.errors() == []
    talk.say({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}})
    assert (talk.errors(), talk.signals()) == (["agent_error"], [(Input.FAILED, False)])


# --- settings -------------------------------------------------------------------------------------------


def test_settings_go_one_after_the_other_before_the_prompt() -> None:
    options = [option("model", "a", "a", "b"), option("effort", "low", "low", "high", category="thought_level")]
    talk = Talk().ready(configOptions=options, modes=MODES)
    assert talk.codec.catalogue is not None
    assert [(model.id, model.variants) for model in talk.codec.catalogue.models] == [
        ("a", ("low", "high")),
        ("b", ("low", "high")),
    ]
    talk.send(Prompt("p", "hi", model="b", variant="high", mode="plan"))
    assert talk.written_lines()[-1]["params"] == {"sessionId": "s", "configId": "model", "value": "b"}
    talk.answer("session/set_config_option", {"configOptions": [option("model", "b", "a", "b"), options[1]]})
    assert talk.written_lines()[-1]["params"] == {"sessionId": "s", "configId": "effort", "value": "high"}
    talk.answer("session/set_config_option", {})
    assert talk.written_lines()[-1]["params"] == {"sessionId": "s", "modeId": "plan"}
    talk.answer("session/set_mode", {})
    assert talk.methods()[-1] == "session/prompt"
    talk.answer("session/prompt", {"stopReason": "max_tokens"})
    talk.send(Prompt("p2", "hi", model="b", mode="build"))  # all goes back to what the agent began with
    assert talk.written_lines()[-1]["params"]["value"] == "low"
    talk.answer("session/set_config_option", {})
    assert talk.written_lines()[-1]["params"] == {"sessionId": "s", "modeId": "ask"}


def test_a_mode_that_the_agent_does_not_have_is_refused() -> None:
    talk = Talk().ready()
    talk.send(Prompt("p", "hi", mode="plan"))
    assert talk.errors() == ["mode_unavailable"]
    assert talk.signals() == [(Input.FAILED, False)]
    assert "session/prompt" not in talk.methods()


def test_an_unsupported_effort_is_reported_and_the_prompt_goes_out() -> None:
    talk = Talk().ready(configOptions=[option("effort", "low", "low")])
    talk.send(Prompt("p", "hi", variant="high"))
    assert talk.errors() == ["variant_unavailable"]
    assert talk.methods()[-1] == "session/prompt"


def test_older_agents_have_models_of_their_own_kind() -> None:
    models = {
        "currentModelId": "m[low]",
        "availableModels": [{"modelId": f"m[{e}]", "name": f"M ({e})"} for e in ("low", "high")],
    }
    talk = Talk().ready(models=models)
    assert talk.codec.catalogue is not None
    assert [(model.id, model.name, model.variants) for model in talk.codec.catalogue.models] == [("m", "M", ("low", "high"))]
    talk.send(Prompt("p", "hi", model="m", variant="high"))
    assert talk.written_lines()[-1]["params"] == {"sessionId": "s", "modelId": "m[high]"}


# --- asks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "kinds", "chosen"),
    [
        ("accept", ["allow_always", "allow_once", "reject_once"], "allow_once"),
        ("accept_for_session", ["allow_once", "allow_always", "reject_once"], "allow_once"),
        ("accept_for_session", ["allow_once", "allow_always", "allow_always", "reject_once"], "allow_once"),
        ("reject", ["allow_once", "reject_always"], "reject_always"),
        ("reject", ["allow_once", "reject_always", "reject_once"], "reject_once"),
        ("accept", [], None),
    ],
)
def test_permissions_are_answered_by_the_kind_of_option(decision: Any, kinds: list[str], chosen: str | None) -> None:
    talk = Talk().ready()
    talk.send(Prompt("p", "hi"))
    call = {"toolCallId": "c", "kind": "execute", "title": "ls", "rawInput": {"command": ["/bin/bash", "-lc", "ls -l"]}}
    talk.request("r", "session/request_permission", toolCall=call, options=[{"optionId": k, "kind": k} for k in kinds])
    assert talk.last_request().metadata["input"]["command"] == "ls -l"
    [line] = lines(talk.send(PermissionReply(talk.last_request().permission_id, decision)))
    outcome = {"outcome": "selected", "optionId": chosen} if chosen else {"outcome": "cancelled"}
    assert line == {"jsonrpc": "2.0", "id": "r", "result": {"outcome": outcome}}
    assert talk.send(PermissionReply(talk.last_request().permission_id, decision)) == []


def test_a_permission_outside_of_a_prompt_is_a_turn_of_the_agents_own() -> None:
    talk = Talk().ready()
    talk.request(0, "session/request_permission", toolCall={"toolCallId": "c"}, options=[])
    talk.send(PermissionReply(talk.last_request().permission_id, "accept"))
    assert talk.signals() == [(Input.ACTIVITY, False), (Input.DONE, False)]


FORM = {
    "type": "object",
    "required": ["colour"],
    "properties": {
        "colour": {
            "type": "string",
            "title": "Which colour?",
            "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}],
        },
        "colour_note": {"type": "string"},
        "sizes": {"type": "array", "title": "Sizes", "items": {"type": "string", "enum": ["S", "M"]}},
        "sure": {"type": "boolean", "title": "Sure?"},
        "count": {"type": "integer", "title": "How many?"},
    },
}


def test_a_form_is_questions() -> None:
    talk = Talk().ready()
    talk.send(Prompt("p", "hi"))
    talk.request(3, "elicitation/create", mode="form", message="Choose", requestedSchema=FORM)
    questions = talk.last_request().questions
    assert [(q.question, [o.label for o in q.options], q.multiple, q.custom) for q in questions] == [
        ("Which colour?", ["Red", "Blue"], False, True),
        ("Sizes", ["S", "M"], True, False),
        ("Sure?", ["Yes", "No"], False, False),
        ("How many?", [], False, True),
    ]
    [line] = lines(talk.send(QuestionReply(talk.last_request().question_id, [["Pink"], ["S", "M"], ["No"], ["3"]])))
    assert line["result"] == {
        "action": "accept",
        "content": {"colour": "b", "colour_note": "Pink", "sizes": ["S", "M"], "sure": False, "count": 3},
    }


def test_a_form_that_is_refused() -> None:
    talk = Talk().ready()
    talk.send(Prompt("p", "hi"))
    talk.request(3, "elicitation/create", mode="form", message="Choose", requestedSchema=FORM)
    outputs = talk.send(QuestionReply(talk.last_request().question_id, None, "Nobody is here."))
    assert lines(outputs)[0]["result"] == {"action": "decline"}
    [resolved] = [out for out in outputs if isinstance(out, Fact)]
    assert resolved.data.metadata["message"] == "Nobody is here."


# --- ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "signal", "codes"),
    [
        ("end_turn", Input.DONE, []),
        ("max_tokens", Input.DONE, []),
        ("refusal", Input.FAILED, ["refusal"]),
        ("max_turn_requests", Input.FAILED, ["max_turn_requests"]),
        ("something_new", Input.DONE, []),
    ],
)
def test_stop_reasons(reason: str, signal: Input, codes: list[str]) -> None:
    talk = Talk().ready()
    talk.send(Prompt("p", "hi"))
    talk.chunk("Well")
    talk.answer("session/prompt", {"stopReason": reason})
    assert [name for name, _ in talk.signals()] == [signal]
    assert talk.errors() == codes


# --- what single agents do ------------------------------------------------------------------------------


def test_a_card_says_that_gemini_sends_no_output_of_a_command() -> None:
    """Gemini CLI 0.61.0: the call is asked about, then completed without a word."""
    profile = next(profile for profile in PROFILES if profile.name == "gemini")
    talk = Talk(AcpCodec(counting_ids(), profile)).ready()
    talk.send(Prompt("p", "hi"))
    call = {"toolCallId": "c1", "title": "echo hi", "kind": "execute", "locations": []}
    about = [{"type": "content", "content": {"type": "text", "text": "[current working directory /p] (say hi)"}}]
    talk.request(0, "session/request_permission", toolCall={**call, "status": "pending", "content": about}, options=[])
    talk.send(PermissionReply(talk.last_request().permission_id, "accept"))
    talk.update("tool_call_update", **call, status="completed", content=[])
    items = [out.data.item for out in talk.outputs if isinstance(out, Fact) and isinstance(out.data, ItemData)]
    parts = [part for item in items for part in item.content if isinstance(part, ToolResultPart)]
    assert [part.output for part in parts] == ["(Gemini CLI does not tell what the command has written.)"]


def test_qwens_request_for_held_back_prompts_is_refused_and_counted_as_known() -> None:
    talk = Talk().ready()
    talk.request(1, "craft/drainMidTurnQueue")
    assert "error" in talk.written_lines()[-1]
    assert dict(talk.codec.counters()) == {"ignored:craft/drainMidTurnQueue": 1}


def test_work_that_qwen_began_is_a_turn_when_it_says_that_it_is_over() -> None:
    talk = Talk().ready()
    talk.send(Prompt("p", "hi"))
    talk.chunk("Well")
    talk.answer("session/prompt", {"stopReason": "end_turn"})
    talk.waits = True
    talk.request(1, "_qwencode/start_turn")
    talk.chunk("By the way")
    assert talk.timers == {END: OWN_S}
    talk.say({"jsonrpc": "2.0", "method": "_qwencode/end_turn", "params": {"sessionId": "s", "reason": "end_turn"}})
    assert talk.timers == {END: LATE_S}
    talk.run_out()
    assert [name for name, _ in talk.signals()] == [Input.DONE, Input.ACTIVITY, Input.DONE]
    assert not any(name.startswith("unparsed") for name in talk.codec.counters())


# --- the registry ---------------------------------------------------------------------------------------


def test_known_agents_have_names_and_variables_of_their_own() -> None:
    assert len({spec.name for spec in ACP_AGENTS}) == len({spec.program.env_override for spec in ACP_AGENTS}) == len(PROFILES)
    assert all(spec.abilities.modes[0].id == "build" for spec in ACP_AGENTS)


def test_an_agent_of_the_persons_own() -> None:
    spec = custom_spec("mine", ("my-agent", "--acp"), None, {"KEY": "x"})
    launch = spec.make(counting_ids()).launch(LaunchOptions(binary="/bin/my-agent", directory="/p"))
    assert (spec.program.binaries, launch.argv, launch.env, launch.cwd) == (
        ("my-agent",),
        ("/bin/my-agent", "--acp"),
        {"KEY": "x"},
        "/p",
    )
    known = custom_spec("gemini", ("gemini", "--experimental-acp"), None, {})
    assert known.title == "Gemini CLI"
    assert known.program.login_hint == "Run `gemini` in a terminal and log in, or set GEMINI_API_KEY."
    run = custom_spec("codex-acp", ("npx", "--yes", "codex-acp@2.6.0"), None, {}).program.login_run
    assert run is not None
    assert run.args == ("--yes", "codex-acp@2.6.0", "cli", "login", "--device-auth")


def test_a_login_that_an_agent_of_the_persons_own_misses_names_its_settings() -> None:
    codec = custom_spec("mine", ("/opt/my-agent", "--acp"), None, {}).make(counting_ids())
    assert isinstance(codec, AcpCodec)
    talk = Talk(codec).launch()
    talk.answer("initialize", AGENT)
    talk.answer("session/new", error={"code": -32000, "message": "Authentication required"})
    [details] = [out.data.details for out in talk.outputs if isinstance(out, Fact) and isinstance(out.data, ErrorData)]
    assert details is not None
    assert "`my-agent`" in details["hint"]
    assert "[agents.mine]" in details["hint"]


# --- hostile --------------------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


def lines_of_all_kinds() -> list[Any]:
    found: dict[str, Any] = {}
    for recording in load_all("acp"):
        for msg in recording.agent_messages():
            if isinstance(msg, dict):
                update = msg.get("params", {}).get("update", {}) if "method" in msg else {}
                kind = str([msg.get("method"), update.get("sessionUpdate"), sorted(update), sorted(msg.get("result") or {})])
                found.setdefault(kind, msg)
    return list(found.values())


ALL = lines_of_all_kinds()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, item in inner for deeper in places(item, (*path, key)))]


def replace_at(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replace_at(value[path[0]], path[1:], by)
    return copy


def storable(outputs: list[Output]) -> None:
    """Each fact becomes an event that can be written and read again."""
    for number, fact in enumerate(out for out in outputs if isinstance(out, Fact)):
        event = UniversalEvent(
            event_id=f"evt_{number}",
            sequence=number + 1,
            time="2026-11-21T20:43:04.083Z",
            session_id="ses_1",
            source=Source.DAEMON if fact.synthetic else Source.AGENT,
            synthetic=fact.synthetic,
            type=fact.type,
            data=fact.data,
            raw=fact.raw,
        )
        assert UniversalEvent.model_validate_json(event.model_dump_json(by_alias=True)) == event


@given(st.lists(st.binary(max_size=200), max_size=5), st.lists(VALUES, max_size=5))
def test_any_bytes_and_any_json(raw: list[bytes], values: list[Any]) -> None:
    talk = Talk().ready()
    talk.send(Prompt("p", "hi"))
    for line in raw:
        talk.take(talk.codec.receive(line))
    for value in values:
        talk.take(talk.codec.receive(json.dumps(value).encode()))
    storable(talk.outputs)


@given(st.data())
def test_known_lines_with_something_wrong_in_them(data: st.DataObject) -> None:
    """Lines of all kinds in any order, each with any of its values replaced by any other; prompts and replies between them."""
    talk = Talk(AcpCodec(counting_ids(), data.draw(st.sampled_from(PROFILES))))
    talk.launch()
    for _ in range(data.draw(st.integers(1, 12))):
        msg = data.draw(st.sampled_from(ALL))
        if data.draw(st.booleans()):
            msg = replace_at(msg, data.draw(st.sampled_from(places(msg))), data.draw(VALUES))
        if isinstance(msg, dict) and "result" in msg and data.draw(st.booleans()):
            msg = {**msg, "id": data.draw(st.integers(1, 6))}
        talk.take(talk.codec.receive(json.dumps(msg).encode()))
        command = data.draw(st.sampled_from([None, Prompt("p", "hi", mode="plan", variant="high"), Interrupt()]))
        if command is not None:
            talk.send(command)
    talk.send(PermissionReply("permission_1", "accept"))
    talk.send(QuestionReply("question_1", [["a"], ["b"]]))
    talk.take(talk.codec.eof(Exit(1)))
    storable(talk.outputs)


@pytest.mark.parametrize(("can", "method"), [(("close", "delete"), "session/delete"), (("close",), "session/close"), ((), "")])
def test_a_session_for_a_discovery_is_removed_again(can: tuple[str, ...], method: str) -> None:
    """Agents' own lists do not fill with ours."""
    capabilities = {**AGENT["agentCapabilities"], "sessionCapabilities": {name: {} for name in can}}  # type: ignore[dict-item]
    talk = Talk().ready({**AGENT, "agentCapabilities": capabilities})
    assert [msg["method"] for msg in lines(talk.codec.discard())] == ([method] if method else [])


def test_notices_and_compactions_of_the_agent_are_shown() -> None:
    talk = Talk().ready()
    talk.send(Prompt(key="p", text="hi"))
    talk.update("notice", severity="warning", title="Slow network", description="It tries again.")
    talk.update("compaction_update", compactionId="c", status="in_progress")
    talk.update("compaction_summary_chunk", compactionId="c", content={"type": "text", "text": "so far"})
    talk.update("compaction_update", compactionId="c", status="completed")
    told = [out.data.item for out in talk.outputs if isinstance(out, Fact) and isinstance(out.data, ItemData)]
    shown = [(item.content[0].label, item.content[0].detail, item.metadata) for item in told if item.kind is ItemKind.STATUS]
    assert shown == [
        ("notice", "Slow network\nIt tries again.", {}),
        ("compaction", None, {"phase": "started", "auto": True}),
        ("compaction", None, {"phase": "completed", "auto": True}),
    ]
    assert talk.codec.counters().get("ignored:compaction_summary_chunk") == 1


def test_a_compaction_by_a_prompt_ends_once() -> None:
    talk = Talk(waits=True).ready()
    talk.send(Prompt(key="p", text="/compact", compact=True))
    for status in ("in_progress", "failed"):
        talk.update("compaction_update", compactionId="c", status=status)
    talk.answer("session/prompt", {"stopReason": "end_turn"})
    talk.run_out()
    told = [out.data.item for out in talk.outputs if isinstance(out, Fact) and isinstance(out.data, ItemData)]
    phases = [item.metadata["phase"] for item in told if item.kind is ItemKind.STATUS and item.metadata]
    assert phases == ["started", "failed"]
