"""What permission rules see of a request of an ACP agent, and the questions that Qwen Code asks by such a request."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from shim.dev.record.driver import counting_ids
from tests.unit.agents.acp.test_codec import OWN
from universal.agents.acp.asks import Asks
from universal.agents.acp.setup import Setup
from universal.agents.acp.tools import name_of, rule_metadata, rule_name
from universal.agents.acp.wire import Context
from universal.codec import Fact, Output, QuestionReply, WriteLine
from universal.events import PermissionData, QuestionData
from universal.lib.jsonrpc import JsonRpc, Request
from universal.permissions import Policy, Rule
from universal.tools.accesses import Place, accesses_of

PATCH = (
    "*** Begin Patch\n*** Update File: ./a\n@@\n-x\n+y\n*** Add File: b\n+z\n*** Update File: c\n*** Move to: ../d\n*** End Patch"
)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"kind": "execute", "title": "run_commands: ...", "rawInput": {"commands": ["a", "rm b"]}}, {"commands": ["a", "rm b"]}),
        ({"kind": "execute", "title": "rm x", "rawInput": {}}, {"opaque": True}),
        ({"kind": "execute", "title": "ls", "rawInput": {"command": "rm x"}}, {}),
        (
            {"kind": "other", "title": "apply_patch: {...", "rawInput": {"input": PATCH}},
            {"paths": ["./a", "b", "c", "../d"], "also": {"kind": "other", "title": "apply_patch: {..."}},
        ),
        ({"kind": "read", "title": "read_files: ...", "rawInput": {"files": [{"path": "/p/a"}]}}, {"paths": ["/p/a"]}),
        ({"kind": "edit", "title": "edit", "rawInput": {}, "content": [{"type": "diff", "path": "/p/a"}]}, {"paths": ["/p/a"]}),
        ({"kind": "move", "title": "mv", "rawInput": {"path": "/p/a", "destination": "/q/b"}}, {"paths": ["/p/a", "/q/b"]}),
        ({"kind": "delete", "title": "rm", "rawInput": {}}, {"opaque": True}),
        ({"kind": "other", "title": "something", "rawInput": {}}, {"opaque": True, "identity": "something"}),
        ({"kind": "search", "title": "cats", "rawInput": {"a": 1}}, {"identity": "cats"}),
        (
            {"kind": "other", "title": "Shell", "rawInput": {"command": "ls"}},
            {"identity": "Shell", "shell": True, "commands": ["ls"]},
        ),
        (
            {"kind": "other", "title": "Run", "rawInput": {"input": {"cmd": ["sh", "-c", "ls"], "host": "prod"}}},
            {"identity": "Run", "shell": True, "commands": ["ls"], "opaque": True},
        ),
        (
            {"kind": "think", "title": "Run", "rawInput": '{"command": "ls"}'},
            {"identity": "Run", "shell": True, "commands": ["ls"]},
        ),
        ({"name": "mcp__a__run", "kind": "other", "title": "Run", "rawInput": {"command": "ls"}}, {}),
        ({"name": "my_tool", "kind": "other", "title": "My tool", "rawInput": {"a": 1}}, {}),
        ({"kind": "other", "title": "my_tool", "rawInput": {"a": 1}}, {"also": {"kind": "other", "title": "my_tool"}}),
        ({"kind": "", "title": "fs/read", "rawInput": {"a": 1}}, {"also": {"kind": "other", "title": "fs/read"}}),
        ({"kind": "think", "title": "skill", "rawInput": {"a": 1}}, {"also": {"kind": "think", "title": "skill"}}),
    ],
)
def test_metadata_of_a_request_for_the_rules(request_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert rule_metadata(None, request_) == expected


TITLES = (
    *(
        "scripted/echo",
        "scripted-echo",
        "echo (scripted MCP Server)",
        "mcp__scripted__echo",
        "my_tool",
        "my_tool: now",
        "Tool: {}",
    ),
    *("read", "edit", "bash", "webfetch", "task", "skill", "todowrite", "question", "AskUserQuestion", "invalid", "think"),
)
NO_NAME = "Do it now"
RULES = [
    *(Rule(kind, pattern, action) for kind in ("other", "think", "edit", "bash", "*") for pattern in ("*", "{title}")
      for action in ("ask", "deny")),
]  # fmt: skip
STRICTNESS = (None, "allow", "ask", "deny")


def strictest(kind: str, title: str, rule: Rule, arguments: dict[str, Any]) -> int:
    """How strictly a call is judged by a rule, in which `{title}` is this title, after one that allows everything."""
    request = {"toolCallId": "c", "kind": kind, "title": title, "rawInput": arguments}
    metadata = {"tool": rule_name(None, request), "call_id": "c", "input": arguments, **rule_metadata(None, request)}
    data = PermissionData(permission_id="p", action=metadata["tool"], status="requested", metadata=metadata)
    rules = (Rule("*", "*", "allow"), replace(rule, pattern=rule.pattern.replace("{title}", title)))
    policy = Policy(config=rules, person=rules)
    return max(STRICTNESS.index(policy.action(access)) for access in accesses_of("gemini", data, Place("/p")))


@pytest.mark.parametrize("kind", ["", "other", "think", "edit", "delete", "execute", "fetch", "search"])
def test_no_title_makes_the_rules_for_a_call_less_strict(kind: str) -> None:
    """Compared with a title that is no tool's name, by rules for the kind, for what it does, and for its title."""
    looser: list[tuple[str, dict[str, Any], Rule]] = []
    for arguments, rule in itertools.product(({"a": "x"}, {"path": "/p/x"}, {"command": "rm x"}, {}), RULES):
        unnamed = strictest(kind, NO_NAME, rule, arguments)
        looser += [(title, arguments, rule) for title in TITLES if strictest(kind, title, rule, arguments) < unnamed]
    assert looser == []


@pytest.mark.parametrize(
    ("title", "key"), [("scripted-echo", "scripted_*"), ("my-server-echo", "my-server_*"), ("scripted/echo", "scripted_echo")]
)
def test_a_rule_for_the_tools_of_a_server_holds_for_a_title_with_its_name(title: str, key: str) -> None:
    for action in ("ask", "deny"):
        assert STRICTNESS[strictest("other", title, Rule(key, "*", action), {"a": "x"})] == action


def test_a_title_that_begins_with_a_name_gives_it() -> None:
    assert name_of({"kind": "other", "title": "apply_patch: {...", "rawInput": {"input": PATCH}}) == "apply_patch"


def test_opencodes_question_about_a_folder_is_no_edit() -> None:
    request = {"kind": "other", "title": "external_directory", "rawInput": {"filepath": "/etc/x", "parentDir": "/etc"}}
    asked = rule_metadata(None, request)["opencode"]
    assert (asked["permission"], asked["patterns"]) == ("external_directory", ["/etc/*"])


# --- Qwen Code's questions -------------------------------------------------------------------------------------

COLOUR = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cool"}],
}
SIZES = {"question": "Which sizes?", "header": "Sizes", "multiSelect": True, "options": [{"label": "S", "description": ""}]}
QWEN_REQUEST = {
    "options": [
        {"optionId": "proceed_once", "name": "Submit", "kind": "allow_once"},
        {"optionId": "cancel", "name": "Cancel", "kind": "reject_once"},
    ],
    "toolCall": {
        "toolCallId": "call_1",
        "title": "Ask user 2 questions",
        "kind": "think",
        "rawInput": {"questions": [COLOUR, SIZES]},
        "_meta": {
            "toolName": "ask_user_question",
            "qwenInteractionKind": "user_question",
            "qwenQuestions": [COLOUR, SIZES],
        },
    },
}


def open_question() -> tuple[Asks, QuestionData]:
    """An agent's open request for a permission that holds two questions (compat_fixtures/agents/acp/qwen-0.24.4/question)."""
    asks = Asks(Context("qwen", counting_ids(), lambda: None), JsonRpc(), Setup(OWN))
    raw = {"method": "session/request_permission", "params": QWEN_REQUEST}
    (fact,) = asks.permission(Request(7, "session/request_permission", QWEN_REQUEST, raw), None)
    assert isinstance(fact, Fact) and isinstance(fact.data, QuestionData)
    return asks, fact.data


def result_of(output: Output) -> dict[str, Any]:
    assert isinstance(output, WriteLine)
    return json.loads(output.data)["result"]


def test_a_question_in_a_request_for_a_permission_is_a_question() -> None:
    _, data = open_question()
    colour, sizes = data.questions
    assert (colour.question, colour.header, [o.label for o in colour.options]) == ("Which colour?", "Colour", ["Red", "Blue"])
    assert (colour.multiple, sizes.multiple, sizes.custom) == (False, True, True)


def test_the_answers_of_such_a_question_stand_beside_the_chosen_option() -> None:
    asks, data = open_question()
    line, _ = asks.answer(QuestionReply(data.question_id, (("Blue",), ("S", "huge"))))
    assert result_of(line) == {
        "outcome": {"outcome": "selected", "optionId": "proceed_once"},
        "answers": {"0": "Blue", "1": "S, huge"},
    }


def test_a_dismissed_question_of_this_kind_is_rejected_and_a_cancelled_one_cancelled() -> None:
    asks, data = open_question()
    line, _ = asks.answer(QuestionReply(data.question_id, None))
    assert result_of(line) == {"outcome": {"outcome": "selected", "optionId": "cancel"}}
    asks, _ = open_question()
    assert result_of(asks.cancel()[0]) == {"outcome": {"outcome": "cancelled"}}


@pytest.mark.parametrize(
    ("meta", "name"),
    [
        ({"toolName": "mcp__scripted__echo", "provenance": "mcp"}, "mcp__scripted__echo"),
        ({"toolName": "ask_user_question", "provenance": "builtin"}, "AskUserQuestion"),
        ({"toolName": "grep_search", "provenance": "builtin"}, "think"),
        ({"toolName": "mcp__of__another_agent"}, "think"),
    ],
)
def test_a_tool_of_qwen_code_has_the_name_of_its_card(meta: dict[str, Any], name: str) -> None:
    assert name_of({"kind": "think", "title": "Some words", "rawInput": {}, "_meta": meta}) == name
