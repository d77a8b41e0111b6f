"""The signs of a turn's end of every agent: each alone ends the turn once, in bounded time, whether it answers or not.

The tables are `ENDS` of each agent's `wire`. Those of ACP have tests of their own (tests/unit/agents/acp/test_ends.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest

from shim.dev.record.driver import counting_ids
from tests.support.claude_lines import assistant, init, lifecycle, result, state, text, tool_result, tool_use
from universal.agent_spec import AgentSpec
from universal.agents import kit
from universal.agents.kit.ends import POLL_S, SILENCES
from universal.codec import Codec, Fact, Output, Prompt, SetTimer, Signal, Stop, WriteLine
from universal.events import EventType, ItemData
from universal.items import ItemKind, ItemStatus
from universal.launch import Exit, LaunchOptions
from universal.registry import agents
from universal.turn import Input, TurnEnd, TurnMachine

Line = dict[str, Any]
Answer = Callable[[Line], Line | None]
LONGEST_S = 2_000.0
"""Seconds of the test's clock in which everything must end."""
SESSION = "ses_dfff96fbbffeecWh3aiTCkjkr5"
EVENT = "evt_200068f2e001Lirsq1vNpcveCn"


def silent(line: Line) -> None:
    """An agent that answers nothing."""


class Bench:
    """A codec, its timers, and an agent that answers requests as a function says."""

    def __init__(self, name: str, *, resume: bool = False, answer: Answer = silent) -> None:
        self.spec: AgentSpec = agents()[name]
        self.codec: Codec = self.spec.make(counting_ids())
        self.answer = answer
        self.outputs: list[Output] = []
        self.lines: list[Line] = []
        self.now_s = 0.0
        self.timers: dict[str, float] = {}
        self.machine = TurnMachine()
        self.turn_ends: list[TurnEnd] = []
        options = LaunchOptions("/bin/agent", "/p", native_session_id=SESSION if resume else None, resume=resume)
        self.codec.launch(options)
        self.take(self.codec.start())

    def take(self, outputs: list[Output]) -> list[Output]:
        self.outputs += outputs
        for output in outputs:
            if isinstance(output, SetTimer):
                self.timers.pop(output.key, None)
                self.timers |= {} if output.after_s is None else {output.key: self.now_s + output.after_s}
            elif isinstance(output, WriteLine):
                self.lines.append(json.loads(output.data))
                if (line := self.answer(self.lines[-1])) is not None:
                    self.hears(line)
            elif isinstance(output, Signal) and output.child is None:
                self.apply(output.input, output.key)
        return outputs

    def apply(self, input_: Input, key: str) -> None:
        self.turn_ends += [effect for effect in self.machine.apply(input_, key) if isinstance(effect, TurnEnd)]

    def hears(self, *lines: Line) -> list[Output]:
        return [output for line in lines for output in self.take(self.codec.receive(json.dumps(line).encode()))]

    def prompts(self, words: str = "hello") -> Line:
        """Send a prompt; the last line that was written for it."""
        self.apply(Input.PROMPT, "k")
        self.take(self.codec.send(Prompt("k", words)))
        return self.lines[-1]

    def run_out(self) -> None:
        """Let all timers run out that lead to something."""
        while self.timers and self.now_s < LONGEST_S and not self.turn_ends and not self.stops():
            key = min(self.timers, key=lambda key: self.timers[key])
            self.now_s = self.timers.pop(key)
            self.take(self.codec.on_timer(key))

    def ends(self) -> list[Signal]:
        ends = [out for out in self.outputs if isinstance(out, Signal) and out.input in (Input.DONE, Input.FAILED)]
        return [end for end in ends if end.child is None]

    def stops(self) -> list[Stop]:
        return [out for out in self.outputs if isinstance(out, Stop) and out.error is not None]


# --- a turn at work, and its signs, agent by agent ------------------------------------------------------------


def http_event(kind: str, key: str = "properties", **values: Any) -> Line:
    return {"event": {"id": EVENT, "created": 1, "type": kind, key: {"sessionID": SESSION, **values}}}


def reply(line: Line, body: Any = None, status: int = 200) -> Line:
    return {"id": line["id"], "status": status, "body": body}


def opencode(bench: Bench) -> Line:
    bench.prompts()
    bench.hears(http_event("server.connected"), reply(bench.lines[-1], {"id": SESSION}))
    prompt = bench.lines[-1]
    bench.hears(reply(prompt, None, 204), http_event("session.status", status={"type": "busy"}), opencode_message())
    return prompt


def opencode_message(**more: Any) -> Line:
    info = {"id": "msg_2", "role": "assistant", "time": {"created": 1}, "providerID": "p", "modelID": "m", **more}
    return http_event("message.updated", info=info)


def opencode2(bench: Bench) -> Line:
    info = next(line for line in bench.lines if line["path"] == "/api/info")
    bench.hears(opencode2_event("server.connected"), reply(info, {"version": "2.1.2"}))
    bench.hears(reply(bench.prompts(), {"data": {"id": SESSION}}))
    prompt = bench.lines[-1]
    bench.hears(reply(prompt, {}), opencode2_event("session.execution.started"))
    return prompt


def opencode2_event(kind: str, **values: Any) -> Line:
    return http_event(kind, "data", **values)


def opencode2_step(bench: Bench) -> Line:
    line = opencode2(bench)
    bench.hears(opencode2_event("session.inbox.delivered", inboxID=line["body"]["id"]))
    bench.hears(opencode2_event("session.step.started", assistantMessageID="msg_a", agent="build", model={}))
    return line


def pi(bench: Bench) -> Line:
    for line in list(bench.lines):
        bench.hears({"id": line["id"], "type": "response", "command": line["type"], "success": True, "data": {}})
    prompt = bench.prompts()
    bench.hears(pi_answer(prompt), {"type": "agent_start"})
    return prompt


def pi_answer(line: Line, **data: Any) -> Line:
    return {"id": line["id"], "type": "response", "command": line["type"], "success": True, "data": data}


def claude(bench: Bench) -> Line:
    bench.hears(claude_hello(bench))
    prompt = bench.prompts()
    bench.hears(lifecycle("k", "queued"), lifecycle("k", "started"), state("running"), init(), assistant(text("Well")))
    return prompt


def claude_hello(bench: Bench) -> Line:
    return {"type": "control_response", "response": {"subtype": "success", "request_id": bench.lines[0]["request_id"]}}


def old_claude(bench: Bench) -> Line:
    bench.hears(claude_hello(bench))
    prompt = bench.prompts()
    bench.hears(init(), assistant(text("Well"), uuid="u1"))
    return prompt


def amp(bench: Bench) -> Line:
    prompt = bench.prompts()
    bench.hears({"type": "system", "subtype": "init", "session_id": "T-1"})
    return prompt


def amp_message(stop: str | None) -> Line:
    return {"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "Well"}], "stop_reason": stop}}


def mock(bench: Bench) -> Line:
    bench.hears({"type": "hello", "models": []})
    return bench.prompts()


@dataclass(frozen=True)
class Play:
    """How a sign comes: a turn at work, then lines. `rests` is an answer of an agent that is asked and rests."""

    begin: Callable[[Bench], Line]
    lines: tuple[Line, ...] = ()
    rests: Answer = silent
    is_asked: bool = False
    end: Input = Input.DONE
    """The input that it ends with. An agent that was asked in vain may end otherwise."""


def opencode_rests(line: Line) -> Line | None:
    return reply(line, {}) if line["path"] == "/session/status" else None


def opencode2_rests(line: Line) -> Line | None:
    return reply(line, {"data": {}}) if line["path"] == "/api/session/active" else None


def pi_rests(line: Line) -> Line | None:
    return pi_answer(line, isStreaming=False, isCompacting=False) if line["type"] == "get_state" else None


def opencode_command(bench: Bench) -> Line:
    for line in list(bench.lines):
        body = [{"name": "peek", "template": "x"}] if line["path"] == "/command" else {"providers": []}
        bench.hears(reply(line, body if line["path"] != "/agent" else []))
    bench.prompts("/peek")
    bench.hears(http_event("server.connected"), reply(bench.lines[-1], {"id": SESSION}))
    prompt = bench.lines[-1]
    assert prompt["path"].endswith("/command")
    bench.hears(http_event("session.status", status={"type": "busy"}), reply(prompt, {}))
    return prompt


IDLE = http_event("session.status", status={"type": "idle"})
_OC = {"rests": opencode_rests, "is_asked": True}
_OC2 = {"rests": opencode2_rests, "is_asked": True}
_PI = {"rests": pi_rests, "is_asked": True}
PLAYS: Mapping[tuple[str, str], Play] = {
    ("claude", "result"): Play(claude, (result(),)),
    ("claude", "idle"): Play(claude, (state("idle"),)),
    ("claude", "command_lifecycle"): Play(claude, (lifecycle("k", "completed"),)),
    ("claude", "end_turn"): Play(
        old_claude,
        ({"type": "stream_event", "event": {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}},),
    ),
    ("pi", "agent_settled"): Play(pi, ({"type": "agent_settled"},)),
    ("pi", "agent_end"): Play(pi, ({"type": "agent_end", "willRetry": False},), **_PI),
    ("pi", "auto_retry_end"): Play(pi, ({"type": "auto_retry_end", "success": False},), **_PI),
    ("pi", "compaction_end"): Play(pi, ({"type": "compaction_end", "reason": "overflow"},), **_PI),
    ("pi", "get_state"): Play(pi, (), **_PI),
    ("amp", "assistant"): Play(amp, (amp_message("end_turn"),)),
    ("amp", "result"): Play(amp, ({"type": "result", "subtype": "success", "is_error": False},)),
    ("opencode", "session.status"): Play(opencode, (IDLE,), **_OC),
    ("opencode", "session.idle"): Play(opencode, (http_event("session.idle"),), **_OC),
    ("opencode", "session.error"): Play(
        opencode, (http_event("session.error", error={"name": "APIError", "data": {"message": "no"}}),), **_OC, end=Input.FAILED
    ),
    ("opencode", "message.updated"): Play(
        opencode, (opencode_message(finish="stop", time={"created": 1, "completed": 2}),), **_OC
    ),
    ("opencode", "POST /session/ID/command"): Play(opencode_command, (), **_OC),
    ("opencode", "GET /session/status"): Play(opencode, (), **_OC),
    ("opencode2", "session.execution.succeeded"): Play(
        opencode2, (opencode2_event("session.execution.succeeded"),), **_OC2, end=Input.FAILED
    ),
    ("opencode2", "session.execution.failed"): Play(
        opencode2, (opencode2_event("session.execution.failed", error={"type": "unknown", "message": "no"}),), end=Input.FAILED
    ),
    ("opencode2", "session.execution.interrupted"): Play(
        opencode2, (opencode2_event("session.execution.interrupted"),), end=Input.FAILED
    ),
    ("opencode2", "session.step.ended"): Play(
        opencode2_step, (opencode2_event("session.step.ended", assistantMessageID="msg_a", finish="stop", tokens={}),), **_OC2
    ),
    ("opencode2", "session.step.failed"): Play(
        opencode2_step,
        (opencode2_event("session.step.failed", assistantMessageID="msg_a", error={"type": "unknown", "message": "no"}),),
        **_OC2,
        end=Input.FAILED,
    ),
    ("opencode2", "GET /api/session/active"): Play(opencode2_step, (), **_OC2),
    ("mock", "done"): Play(mock, ({"type": "done", "run": "k", "status": "completed"},)),
}
"""(agent, sign) -> the sign alone."""
ELSEWHERE = {
    ("claude", "rest"): "test_a_result_without_idle_ends_the_turn",
    ("pi", "response"): "test_a_prompt_that_runs_nothing_ends",
    ("amp", "no login"): "tests/unit/agents/amp/test_codec.py",
}
"""Signs that do not end a dispatched prompt by themselves -> where they are tested."""
TABLES = {
    name: import_module(f"universal.agents.{name}.wire").ENDS for name in ("claude", "pi", "amp", "opencode", "opencode2", "mock")
}


def test_every_sign_of_every_table_is_played() -> None:
    signs = {(name, sign) for name, table in TABLES.items() for sign in table if sign != "eof"}
    assert signs == PLAYS.keys() | ELSEWHERE.keys()
    own_tables = {"codex"}  # and agents of ACP, which have one together
    assert {
        name for name in agents() if agents()[name].make.__module__ != "universal.agents.acp.spec"
    } >= TABLES.keys() | own_tables


@pytest.mark.parametrize(("agent", "sign"), PLAYS)
@pytest.mark.parametrize("is_silent", [False, True])
def test_each_sign_alone_ends_the_turn_once(agent: str, sign: str, *, is_silent: bool) -> None:
    play = PLAYS[agent, sign]
    if is_silent and not play.is_asked:
        pytest.skip("the agent is not asked")
    bench = Bench(agent)
    prompt = play.begin(bench)
    bench.answer = silent if is_silent else play.rests
    assert bench.ends() == []
    bench.hears(*play.lines)
    bench.run_out()
    if not play.lines and is_silent and sign.startswith(("GET", "get_state")):
        (stop,) = bench.stops()
        assert (stop.error or {})["code"] == "agent_unresponsive"
        assert bench.now_s <= POLL_S + 2 * SILENCES * kit.ASK_S
        return
    (end,) = bench.ends()
    assert len(bench.turn_ends) == 1
    if not is_silent:
        assert end.input is play.end
    waits_s = TABLES[agent][sign].wait_s + (TABLES["claude"]["rest"].wait_s if agent == "claude" else 0)
    assert bench.now_s <= waits_s + (2 * kit.END_S + kit.ASK_S if play.lines else POLL_S + 2 * kit.END_S)
    late = [other.lines for (name, _), other in PLAYS.items() if name == agent and other.begin is play.begin]
    bench.hears(*(line for lines in late for line in lines if line.get("type") != "assistant"))  # that would be new work
    bench.run_out()
    assert len(bench.turn_ends) == 1, f"a late sign ends {prompt} again"


@pytest.mark.parametrize("words", ["hello", "/peek"])
def test_a_prompt_that_runs_nothing_ends(words: str) -> None:
    bench = Bench("pi", answer=lambda line: pi_rests(line) if line["id"] != "req_1" else None)
    for line in list(bench.lines):
        bench.hears(pi_answer(line))
    bench.hears(pi_answer(bench.prompts(words)))
    assert [end.input for end in bench.ends()] == [Input.DONE]


def test_a_claude_that_answers_the_handshake_and_says_nothing_is_stopped() -> None:
    bench = Bench("claude")
    bench.hears(claude_hello(bench))
    bench.prompts()
    bench.run_out()
    (stop,) = bench.stops()
    assert "`the first prompt`" in str((stop.error or {})["message"])
    assert bench.now_s <= kit.HANDSHAKE_S


@pytest.mark.parametrize("line", [lifecycle("k", "queued"), {"type": "system", "subtype": "hook_started"}])
def test_a_claude_that_speaks_is_not_stopped(line: Line) -> None:
    """A hook of the prompt may take its time."""
    bench = Bench("claude")
    bench.hears(claude_hello(bench))
    bench.prompts()
    bench.hears(line)
    bench.run_out()
    assert bench.stops() == []


# --- Claude ----------------------------------------------------------------------------------------------------


def test_a_result_without_idle_ends_the_turn() -> None:
    bench = Bench("claude")
    claude(bench)
    bench.hears(result())
    assert [out.input for out in bench.outputs if isinstance(out, Signal)] == [Input.OPENED, Input.DONE]
    bench.timers = {key: at for key, at in bench.timers.items() if key == "rest"}
    bench.take(bench.codec.on_timer("rest"))
    assert [out.input for out in bench.outputs if isinstance(out, Signal)] == [Input.OPENED, Input.DONE, Input.CLOSED]
    assert not [out for out in bench.hears(state("idle")) if isinstance(out, Signal)]


def test_a_prompt_that_an_idle_claude_does_not_begin_fails() -> None:
    bench = Bench("claude")
    bench.hears(claude_hello(bench), state("running"), init(), result(), state("idle"))
    before = len(bench.ends())
    bench.prompts()
    bench.hears(state("idle"))
    key = next(key for key in bench.timers if key.startswith("idle"))
    (fact, signal) = bench.codec.on_timer(key)
    assert isinstance(fact, Fact) and fact.type is EventType.ERROR
    assert isinstance(signal, Signal) and (signal.error or {})["code"] == "prompt_not_begun"
    assert (before, bench.codec.on_timer(key)) == (1, [])


@pytest.mark.parametrize("late", [False, True])
def test_a_tool_result_after_the_result_of_the_turn_is_shown(*, late: bool) -> None:
    bench = Bench("claude")
    claude(bench)
    call = assistant(tool_use("t1", "Bash", command="ls"), id="msg_2")
    answer = tool_result("t1", "a.txt")
    bench.hears(call, *([] if late else [answer]), result(), state("idle"), *([answer] if late else []))
    items = [out.data.item for out in bench.outputs if isinstance(out, Fact) and isinstance(out.data, ItemData)]
    (shown,) = [item for item in items if item.kind is ItemKind.TOOL_RESULT and item.status is not ItemStatus.IN_PROGRESS]
    assert shown.status is ItemStatus.COMPLETED
    assert [out.input for out in bench.outputs if isinstance(out, Signal)] == [Input.OPENED, Input.DONE, Input.CLOSED]
    bench.timers.pop("rest", None)
    bench.run_out()
    assert len(bench.ends()) == 1


def test_a_call_without_a_result_delays_the_end_for_a_second() -> None:
    bench = Bench("claude")
    claude(bench)
    bench.hears(assistant(tool_use("t1", "Bash", command="ls"), id="msg_2"), result(), state("idle"))
    assert bench.ends() == []
    bench.run_out()
    assert (len(bench.ends()), bench.now_s) == (1, TABLES["claude"]["result"].wait_s)


# --- handshakes and resumes, all agents of the registry -------------------------------------------------------------


SLOW_S = {"copilot": 180.0, "fast-agent": 180.0, "kilo": 180.0, "vibe": 180.0}
"""Seconds of agents whose card gives their first start more time (`handshake_s`)."""


@pytest.mark.parametrize("agent", agents())
@pytest.mark.parametrize("resume", [False, True])
def test_an_agent_that_answers_nothing_is_stopped(agent: str, *, resume: bool) -> None:
    bench = Bench(agent, resume=resume)
    bench.prompts()
    bench.run_out()
    (stop,) = bench.stops()
    error = stop.error or {}
    assert error["code"] == ("session_not_found" if resume else "handshake_timeout")
    assert "did not answer" in str(error["message"])
    assert bench.now_s <= SLOW_S.get(agent, kit.HANDSHAKE_S)


@pytest.mark.parametrize("agent", agents())
def test_an_exit_before_a_resumed_agent_has_shown_its_conversation_is_a_loss(agent: str) -> None:
    bench = Bench(agent, resume=True)
    assert not bench.codec.has_conversation
    bench.prompts()
    bench.take(bench.codec.eof(Exit(1, stderr="damaged")))
    assert not bench.codec.has_conversation


ERROR = {"type": "result", "subtype": "error_during_execution", "is_error": True}
REFUSALS: list[tuple[str, Callable[[Bench], object]]] = [
    ("claude", lambda bench: bench.hears({**ERROR, "errors": ["No conversation found with session ID: u"]})),
    ("claude", lambda bench: bench.hears({**ERROR, "errors": ["the transcript is damaged"]})),
    ("pi", lambda bench: bench.take(bench.codec.eof(Exit(1, stderr="No session found matching 'u'")))),
    ("amp", lambda bench: bench.hears({**ERROR, "error": "This thread does not exist"})),
    ("amp", lambda bench: bench.hears({**ERROR, "error": "Bash: require user approval"})),
    ("opencode", lambda bench: bench.hears(reply(bench.lines[-1], {"name": "NotFoundError"}, 404))),
    ("opencode", lambda bench: bench.hears(reply(bench.lines[-1], {"name": "UnknownError"}, 500))),
    ("opencode", lambda bench: bench.hears(reply(bench.lines[-1], {"message": "reset"}, 0))),
    ("opencode2", lambda bench: bench.hears(reply(bench.lines[-1], {"_tag": "SessionNotFoundError"}, 404))),
    ("opencode2", lambda bench: bench.hears(reply(bench.lines[-1], {"_tag": "UnknownError"}, 500))),
]


@pytest.mark.parametrize(("agent", "refuse"), REFUSALS)
def test_a_refused_resume_is_a_loss_whatever_the_reason(agent: str, refuse: Callable[[Bench], object]) -> None:
    bench = Bench(agent, resume=True)
    if agent == "opencode2":
        bench.hears(reply(next(line for line in bench.lines if line["path"] == "/api/info"), {"version": "2.1.2"}))
    bench.prompts()
    refuse(bench)
    (end,) = bench.ends()
    assert (end.input, (end.error or {})["code"]) == (Input.FAILED, "session_not_found")


@pytest.mark.parametrize("status", [401, 429, 529])
def test_a_model_that_refuses_does_not_cost_amp_its_thread(status: int) -> None:
    bench = Bench("amp", resume=True)
    bench.prompts()
    bench.hears({**ERROR, "error": f"{status} no"})
    (end,) = bench.ends()
    assert (end.error or {})["code"] != "session_not_found"


def test_a_refused_prompt_does_not_cost_open_code_its_session() -> None:
    bench = Bench("opencode", resume=True)
    bench.hears(reply(bench.prompts(), {"name": "BadRequest"}, 400))
    (end,) = bench.ends()
    assert (end.error or {})["code"] != "session_not_found"
