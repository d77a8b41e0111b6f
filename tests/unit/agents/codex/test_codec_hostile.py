"""Codex's codec never raises, and never says what cannot be stored, whatever comes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shim.dev.record.driver import counting_ids
from tests.support.recordings import load_all
from tests.unit.agents.codex.test_codec import THREAD, TURN, Bench
from universal.agents.codex.codec import CodexCodec
from universal.codec import Fact, Interrupt, Output, Prompt
from universal.launch import Exit, LaunchOptions

LINES = [json.dumps(m, ensure_ascii=False).encode() for r in load_all("codex") if "exec" not in r.argv
         for m in r.agent_messages() if isinstance(m, dict)]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.sampled_from([THREAD, TURN, "call_1"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(sorted(
        {"item", "turn", "id", "type", "status", "changes", "kind", "delta", "error", "tokenUsage", "questions", "plan", "path"}
    )), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip
METHODS = sorted({*CodexCodec.NOTIFICATIONS, *CodexCodec.REQUESTS})
ITEMS = ["agentMessage", "commandExecution", "fileChange", "mcpToolCall", "webSearch", "subAgentActivity", "reasoning"]


def check(outputs: list[Output]) -> None:
    for out in outputs:
        if isinstance(out, Fact):
            out.data.model_dump_json()


FIELDS = ["item", "turn", "itemId", "delta", "error", "plan", "questions", "tokenUsage", "permissions", "requestedSchema"]
MESSAGES = st.tuples(st.sampled_from(METHODS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4), st.booleans())


@given(st.lists(MESSAGES, max_size=12))
def test_odd_messages_never_raise(messages: list[tuple[str, dict[str, Any], bool]]) -> None:
    bench = Bench().with_running_turn()
    for number, (method, params, asks) in enumerate(messages):
        check(bench.ask(number, method, **params) if asks else bench.say(method, **params))
    check(bench.codec.eof(Exit(1)))


@given(st.lists(st.tuples(st.sampled_from(ITEMS), st.booleans(), JSON), max_size=10))
def test_odd_items_never_raise(items: list[tuple[str, bool, Any]]) -> None:
    bench = Bench().with_running_turn()
    for kind, completed, rest in items:
        item = {**(rest if isinstance(rest, dict) else {}), "type": kind, "id": "call_1"}
        check(bench.say("item/completed" if completed else "item/started", item=item))
    check(bench.end())


@given(st.lists(st.sampled_from(LINES), max_size=40), st.lists(st.binary(max_size=30), max_size=3))
def test_lines_in_any_order_never_raise(lines: list[bytes], junk: list[bytes]) -> None:
    codec = CodexCodec(counting_ids())
    codec.launch(LaunchOptions(binary="codex", directory="/p"))
    codec.start()
    codec.send(Prompt(key="k", text="x"))
    for line in [*lines, *junk]:
        check(codec.receive(line))
    check(codec.send(Interrupt()))
    check(codec.eof(Exit(0)))
