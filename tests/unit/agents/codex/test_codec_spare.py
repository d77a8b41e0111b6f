"""Codex's codec in a process that waits: its thread begins before there is a session."""

from __future__ import annotations

from typing import Any

from tests.unit.agents.codex.test_codec import THREAD, Bench, written_lines
from universal.codec import Prompt
from universal.launch import LaunchOptions
from universal.permissions import Rule

WITHOUT_SEARCH = (Rule("websearch", "*", "deny"),)


def spare(**options: Any) -> Bench:
    """A codec in a process that waits for a session. The thread has begun."""
    bench = Bench(**options)
    assert bench.codec.prepare() == [], "not before the handshake"
    (start,) = (m for m in written_lines(bench.answer(bench.hello, {"userAgent": "x"})) if m["method"] == "thread/start")
    bench.start = start
    bench.answer(start, {"thread": {"id": THREAD}, "model": "gpt-x", "reasoningEffort": "medium"})
    return bench


def test_a_process_that_waits_begins_its_thread_ahead() -> None:
    bench = spare()
    assert bench.start["params"] == {"cwd": "/p", "approvalPolicy": "on-request", "sandbox": "read-only"}
    assert bench.codec.adopt(LaunchOptions("/bin/codex", "/p", mode="plan", model="gpt-y"))
    (turn,) = written_lines(bench.codec.send(Prompt("k", "hello", model="gpt-y", mode="plan")))
    assert (turn["method"], turn["params"]["threadId"], turn["params"]["model"]) == ("turn/start", THREAD, "gpt-y")
    assert turn["params"]["collaborationMode"]["mode"] == "plan"
    assert bench.codec.native_session_id == THREAD


def test_a_prompt_that_comes_before_the_thread_waits_for_it() -> None:
    bench = Bench()
    bench.codec.prepare()
    (start,) = (m for m in written_lines(bench.answer(bench.hello, {"userAgent": "x"})) if m["method"] == "thread/start")
    assert bench.codec.adopt(LaunchOptions("/bin/codex", "/p"))
    assert written_lines(bench.codec.send(Prompt("k", "hello"))) == []
    (turn,) = written_lines(bench.answer(start, {"thread": {"id": THREAD}, "model": "gpt-x"}))
    assert turn["method"] == "turn/start"


def test_a_thread_that_was_begun_ahead_has_the_tools_that_its_rules_leave() -> None:
    bench = spare(rules=WITHOUT_SEARCH)
    assert bench.start["params"]["config"] == {"web_search": "disabled"}
    assert not bench.codec.adopt(LaunchOptions("/bin/codex", "/p"))
    assert bench.codec.adopt(LaunchOptions("/bin/codex", "/p", rules=WITHOUT_SEARCH))
    assert not spare().codec.adopt(LaunchOptions("/bin/codex", "/p", rules=WITHOUT_SEARCH))


def test_an_earlier_conversation_is_not_loaded_ahead() -> None:
    bench = Bench(native_session_id="old", resume=True)
    bench.codec.prepare()
    lines = written_lines(bench.answer(bench.hello, {"userAgent": "x"}))
    assert [line["method"] for line in lines] == ["initialized", "config/read"]
