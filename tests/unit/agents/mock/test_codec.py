"""The mock's codec alone: fed with nonsense, with lines that come late, with answers that nobody asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.dev.record.driver import counting_ids
from shim.processes.mock.scenes import SCENES
from tests.fakes.mock_scenarios import SCENARIOS, play
from tests.fakes.mock_session import always
from universal.agents.mock.codec import MockCodec
from universal.agents.mock.spec import MOCK
from universal.codec import Fact, Interrupt, PermissionReply, Prompt, QuestionReply, Signal
from universal.events import EventType
from universal.launch import Exit, LaunchOptions
from universal.turn import Input


def codec() -> MockCodec:
    """A codec that has been launched and has started a step and a tool."""
    made = MockCodec(counting_ids())
    made.launch(LaunchOptions(binary="", directory="/project"))
    for frame, made_of_it in (
        ({"type": "step_start", "step": "s"}, EventType.ITEM_STARTED),
        ({"type": "tool_start", "tool": "t", "step": "s", "name": "bash"}, EventType.ITEM_STARTED),
        ({"type": "tool_run", "tool": "t", "input": {"command": "ls"}}, EventType.ITEM_COMPLETED),
    ):
        assert [o.type for o in made.receive(orjson.dumps(frame)) if isinstance(o, Fact)] == [made_of_it]
    return made


BAD_LINES = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"{}",
    b'{"type":7}',
    b'{"type":"horoscope"}',
    b'{"type":"text","step":"s","part":"p"}',
    b'{"type":"text","step":"unknown","part":"p","delta":"x"}',
    b'{"type":"step_start","step":"s"}',
    b'{"type":"step_finish","step":"s"}',
    b'{"type":"tool_start","tool":"t","step":"s","name":"bash"}',
    b'{"type":"tool_start","tool":"u","step":"none","name":"bash"}',
    b'{"type":"tool_result","tool":"t","files":[{"path":"x","action":"dance"}]}',
    b'{"type":"tool_result","tool":"t","images":[{}]}',
    b'{"type":"question","id":"q","tool":"t","questions":[]}',
    b'{"type":"question","id":"q","tool":"t","questions":[{"options":[{}]}]}',
    b'{"type":"subagent_end","tool":"t","status":"completed"}',
    b'{"type":"background_end","tool":"t"}',
    b'{"type":"hello","models":[{"id":"x"}]}',
    b'{"type":"error"}',
    b'{"type":"done"}',
    b"\xff\xff",
    b'{"type":"todo","todos":[NaN]}',
    b'{"type":"todo","todos":[1e999]}',
    b'{"type":"todo","todos":' + b"[" * 120 + b"]" * 120 + b"}",
    b"[" * 100_000,
]


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line.decode(errors="replace")[:50])
def test_a_bad_line_is_reported_and_changes_nothing(line: bytes) -> None:
    made = codec()
    (fact,) = made.receive(line)
    assert isinstance(fact, Fact) and fact.type is EventType.UNPARSED and fact.synthetic
    assert sum(made.counters().values()) == 1
    closing = made.receive(b'{"type":"tool_result","tool":"t","ok":true,"output":"o"}')
    closing += made.receive(b'{"type":"step_finish","step":"s","finish":"stop"}')
    assert [o.type for o in closing if isinstance(o, Fact)] == [EventType.ITEM_COMPLETED] * 2


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "step",
    "tool",
    "part",
    "delta",
    "finish",
    "name",
    "id",
    "run",
    "status",
    "questions",
    "models",
    "message",
    "todos",
    "usage",
]
FRAMES = st.fixed_dictionaries(
    {"type": st.sampled_from(sorted(MockCodec.HANDLERS))},
    optional={key: st.sampled_from(["s", "t", "x", "completed"]) | JSON for key in KEYS},
)


@given(st.lists(FRAMES.map(orjson.dumps) | st.binary(max_size=30), max_size=30))
def test_no_line_raises(lines: list[bytes]) -> None:
    made = codec()
    for line in lines:
        for output in made.receive(line):
            if isinstance(output, Fact):
                output.data.model_dump_json()
    made.send(Interrupt())
    made.eof(Exit(code=1))
    assert made.eof(Exit(code=1)) == []


def test_the_catalogue_comes_with_the_greeting(tmp_path: Path) -> None:
    made = asyncio.run(play(SCENARIOS["echo"], tmp_path)).codec
    assert made.catalogue is not None
    assert [(m.id, m.name, m.variants) for m in made.catalogue.models] == [("mock", "Mock", ("low", "high"))]
    assert [c.name for c in made.catalogue.commands] == list(SCENES)
    assert made.catalogue.models == MOCK.abilities.catalogue.models


def test_replies_without_a_request_are_dropped() -> None:
    made = codec()
    assert made.send(PermissionReply("per_unknown", "accept")) == []
    assert made.send(QuestionReply("que_unknown", [["x"]])) == []
    assert made.send(Interrupt()) == []


def test_an_ask_is_answered_once() -> None:
    made = codec()
    (fact,) = made.receive(b'{"type":"permission","id":"a","tool":"t","title":"Do it"}')
    assert isinstance(fact, Fact)
    id_ = fact.data.permission_id  # type: ignore[union-attr]  # checked by the event type
    assert made.send(QuestionReply(id_, None)) == []
    assert len(made.send(PermissionReply(id_, "accept"))) == 2
    assert made.send(PermissionReply(id_, "accept")) == []
    assert made.receive(b'{"type":"withdrawn","id":"a"}') == []
    assert made.counters() == {"ignored:withdrawn": 1}


def test_the_end_of_what_it_began_itself_is_not_the_answer_of_a_prompt() -> None:
    made = codec()
    made.send(Prompt("one", "x"))
    assert len(made.receive(b'{"type":"done","run":"one","status":"completed"}')) == 1
    assert made.receive(b'{"type":"wake","run":"two"}') == [Signal(Input.ACTIVITY)]
    made.send(Prompt("three", "x"))
    assert made.receive(b'{"type":"done","run":"two","status":"completed"}') == []
    (done,) = made.receive(b'{"type":"done","run":"three","status":"completed"}')
    assert isinstance(done, Signal) and done.input is Input.DONE


def test_launch_names_the_conversation() -> None:
    made = MockCodec(counting_ids())
    spec = made.launch(LaunchOptions(binary="", directory="/project", mode="plan"))
    assert spec.argv == ("mock", "--session=mock-item_1", "--mode=plan")
    assert made.native_session_id == "mock-item_1"
    again = MockCodec(counting_ids()).launch(LaunchOptions("", "/project", native_session_id="mock-item_1", resume=True))
    assert again.argv == ("mock", "--session=mock-item_1", "--resume")


def test_always_differs_from_once() -> None:
    made = codec()
    (fact,) = made.receive(b'{"type":"permission","id":"a","tool":"t","title":"Do it"}')
    assert isinstance(fact, Fact)
    command = always(fact)
    assert command is not None
    line, _ = made.send(command)
    assert orjson.loads(line.data) == {"type": "permission_reply", "id": "a", "decision": "always"}  # type: ignore[union-attr]  # a WriteLine
