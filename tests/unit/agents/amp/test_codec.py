"""Amp's codec: commands, and hostile input."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shim.dev.record.driver import counting_ids
from tests.support.recordings import load
from universal.agents import kit
from universal.agents.amp.codec import AmpCodec
from universal.agents.amp.spec import AMP
from universal.agents.amp.wire import read_result
from universal.codec import (
    Attachment,
    Fact,
    Interrupt,
    InterruptProcess,
    PermissionReply,
    Prompt,
    QuestionReply,
    Signal,
    Stop,
    WriteLine,
)
from universal.events import EventType
from universal.items import FileRefPart
from universal.launch import Exit, LaunchOptions
from universal.permissions import Rule
from universal.turn import Input


def launch_argv(**options: Any) -> tuple[AmpCodec, tuple[str, ...]]:
    codec = AmpCodec(counting_ids())
    return codec, codec.launch(LaunchOptions(binary="/bin/amp", directory="/p", **options)).argv


def test_launch() -> None:
    flags = ("--execute", "--stream-json", "--stream-json-thinking", "--stream-json-input")
    assert launch_argv()[1] == ("/bin/amp", *flags)
    assert launch_argv(model="rush", mode="bypass")[1] == ("/bin/amp", *flags, "--mode", "rush", "--dangerously-allow-all")
    resumed = launch_argv(native_session_id="T-1", resume=True)[1]
    assert resumed == ("/bin/amp", "threads", "continue", "T-1", *flags)


def test_a_prompt_with_a_file() -> None:
    codec, _ = launch_argv()
    file = Attachment(mime="text/plain", path="/a.txt", text="content")
    line, timer = codec.send(Prompt("k", "look", attachments=[file], system="be brief"))
    assert timer == kit.await_handshake()
    assert isinstance(line, WriteLine)
    [block] = json.loads(line.data)["message"]["content"]
    expected = ["<system-reminder>\nbe brief\n</system-reminder>", '<file path="/a.txt">\ncontent\n</file>', "look"]
    assert block == {"type": "text", "text": "\n\n".join(expected)}


def test_another_mode_is_another_process() -> None:
    codec, _ = launch_argv(model="rush")
    assert isinstance(codec.send(Prompt("a", "x", model="rush", mode="build"))[0], WriteLine)
    [stop] = codec.send(Prompt("b", "x", model="smart"))
    assert isinstance(stop, Stop)
    assert stop.again
    [stop] = codec.send(Prompt("b", "x", mode="bypass"))
    assert isinstance(stop, Stop)


def test_an_interrupt_is_a_signal_to_the_process() -> None:
    codec, _ = launch_argv()
    codec.send(Prompt("a", "x"))
    assert codec.send(Interrupt()) == [InterruptProcess()]
    result = {"type": "result", "subtype": "error_during_execution", "is_error": True, "error": "Connection closed"}
    stop, failed = codec.receive(json.dumps(result).encode())
    assert isinstance(stop, Stop)
    assert isinstance(failed, Signal)
    assert (failed.input, failed.aborted) == (Input.FAILED, True)


def test_a_thread_that_waits_for_an_approval_is_lost() -> None:
    words = "The following tools require user approval, which is not supported in stream JSON mode: Bash"
    result = json.dumps({"type": "result", "subtype": "error_during_execution", "is_error": True, "error": words}).encode()
    for more, code in (({}, "approval_needed"), ({"native_session_id": "T-1", "resume": True}, "session_not_found")):
        codec, _ = launch_argv(**more)
        codec.send(Prompt("a", "x"))
        stop, error, failed = codec.receive(result)
        assert isinstance(stop, Stop)  # before the signal, which may hand the next prompt over
        assert isinstance(error, Fact)
        assert isinstance(failed, Signal)
        assert error.data.code == code  # type: ignore[union-attr]
        assert "bypass" in error.data.details["hint"]  # type: ignore[union-attr]


def test_a_refused_key_tells_what_to_do() -> None:
    codec, _ = launch_argv()
    codec.send(Prompt("a", "x"))
    stderr = "Error: Invalid or missing API key. Run 'amp login' to authenticate.\n\x1b[?25h"
    error, failed = codec.eof(Exit(code=1, stderr=stderr))
    assert isinstance(error, Fact)
    assert isinstance(failed, Signal)
    assert (error.data.code, failed.input) == ("authentication_failed", Input.FAILED)  # type: ignore[union-attr]


def test_nothing_is_asked_so_nothing_is_answered() -> None:
    codec, _ = launch_argv()
    assert codec.send(PermissionReply("p", "accept")) == codec.send(QuestionReply("q", None)) == []


def test_results_that_are_no_json_stay_as_they_are() -> None:
    result = read_result("Grep", {}, {"tool_use_id": "c", "content": "{not json"}, "/p")
    assert [part.output for part in result.content] == ["{not json"]  # type: ignore[union-attr]


def test_a_new_file_is_shown_as_added() -> None:
    block = {"tool_use_id": "c", "content": "{}"}
    result = read_result("create_file", {"path": "a.txt", "content": "one\ntwo\n"}, block, "/p")
    [ref] = [part for part in result.content if isinstance(part, FileRefPart)]
    assert (ref.path, ref.diff) == ("/p/a.txt", "--- /dev/null\n+++ /p/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n")


def test_a_spec() -> None:
    can = AMP.abilities.capabilities
    assert (can.deltas, can.permissions, can.questions, can.interrupt) == (False, False, False, True)
    assert launch_argv()[0].catalogue == AMP.abilities.catalogue


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("message", "subtype", "is_error", "error", "result", "session_id", "parent_tool_use_id")
BLOCK = st.dictionaries(st.sampled_from(["type", "text", "id", "name", "input", "tool_use_id", "content"]), JSON, max_size=4)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["system", "user", "assistant", "result", "new"]),
            st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4),
            st.lists(st.tuples(st.sampled_from(["text", "thinking", "tool_use", "tool_result", "x"]), BLOCK), max_size=3),
        ),
        max_size=8,
    )
)
def test_any_fields(messages: list[tuple[str, dict[str, Any], list[tuple[str, dict[str, Any]]]]]) -> None:
    codec, _ = launch_argv()
    codec.send(Prompt("k", "x"))
    for kind, fields, blocks in messages:
        content = [{**block, "type": type_} for type_, block in blocks]
        message = {**fields, "type": kind, **({"message": {"content": content}} if content else {})}
        codec.receive(json.dumps(message).encode())
    codec.eof(Exit(code=0))


@given(st.binary(max_size=60))
def test_any_bytes(line: bytes) -> None:
    outputs = launch_argv()[0].receive(line)
    assert [out.type for out in outputs if isinstance(out, Fact)] in ([EventType.UNPARSED], [])


@given(st.data())
def test_recorded_lines_in_any_order(data: st.DataObject) -> None:
    said = load("amp", "0.0.1774569934-g39e3ec", "multi_turn").agent_messages()
    codec, _ = launch_argv()
    for message in data.draw(st.lists(st.sampled_from(said), max_size=20)):
        codec.receive(json.dumps(message).encode())
    codec.eof(Exit(code=None, signal=9))


def test_rules_become_settings_of_the_process_and_bypass_loses_its_flag() -> None:
    codec = AmpCodec(counting_ids())
    rules = (Rule("bash", "*", "deny"),)
    launch = codec.launch(LaunchOptions("/bin/amp", "/p", mode="bypass", rules=rules, environment={"HOME": "/h"}))
    assert "--dangerously-allow-all" not in launch.argv
    assert launch.settings is not None and launch.settings.sources[0] == "/h/.config/amp/settings.json"
    assert "Bash" in launch.settings.change({})["amp.tools.disable"]


def test_other_rules_are_another_process() -> None:
    codec, _ = launch_argv()
    allow, deny = (Rule("bash", "*", "allow"),), (Rule("bash", "*", "deny"),)
    assert isinstance(codec.send(Prompt("a", "x", rules=allow))[0], WriteLine)
    [stop] = codec.send(Prompt("b", "x", rules=deny))
    assert isinstance(stop, Stop) and stop.again
