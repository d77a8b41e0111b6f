"""What "always" covers for tools that OpenCode does not have: the tool that was asked about, of its agent, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any

import pytest

from shim.dev.record.driver import counting_ids
from tests.unit.agents.acp.test_codec import OWN
from universal.agents.acp.asks import Asks as AcpAsks
from universal.agents.acp.setup import Setup
from universal.agents.acp.wire import Context as AcpContext
from universal.agents.claude.asks import Asks as ClaudeAsks
from universal.agents.claude.speech import Context as ClaudeContext
from universal.agents.codex.asks import Asks as CodexAsks
from universal.agents.codex.speech import Context as CodexContext
from universal.agents.codex.speech import Thread
from universal.agents.kit import Context
from universal.agents.pi.asks import Asks as PiAsks
from universal.codec import Fact, Output
from universal.events import PermissionData
from universal.lib.jsonrpc import JsonRpc, Request
from universal.permissions import Access, Policy, Rule
from universal.tools.accesses import Place, accesses_of

OPTIONS = [{"optionId": kind, "name": kind, "kind": kind} for kind in ("allow_once", "allow_always", "reject_once")]


def acp(**tool_call: Any) -> Iterator[Output]:
    params = {"toolCall": {"toolCallId": "c", **tool_call}, "options": OPTIONS}
    asks = AcpAsks(AcpContext("own", counting_ids(), lambda: None), JsonRpc(), Setup(OWN))
    yield from asks.permission(Request(1, "session/request_permission", params, {"params": params}), None)


def codex(method: str, **params: Any) -> Iterator[Output]:
    ctx = CodexContext("codex", counting_ids(), dict, lambda: "/p")
    asks = CodexAsks(ctx, JsonRpc(), lambda *_, **__: True)
    request = Request(1, method, params, {"params": params})
    handler = asks.elicitation if method == "mcpServer/elicitation/request" else asks.permissions
    yield from handler(request, Thread(ctx, "t"))


def claude(tool: str, **arguments: Any) -> Iterator[Output]:
    request = {"tool_name": tool, "tool_use_id": "u", "input": arguments}
    yield from ClaudeAsks(ClaudeContext("claude", counting_ids(), lambda _: {})).ask(
        {"request_id": "r", "request": request}, None, None
    )


def claude_asks(server: str, message: str) -> Iterator[Output]:
    request = {"mcp_server_name": server, "message": message}
    yield from ClaudeAsks(ClaudeContext("claude", counting_ids(), lambda _: {})).elicitation(
        {"request_id": "r", "request": request}
    )


def pi(tool: str) -> Iterator[Output]:
    msg = {"id": "d", "method": "select", "title": f'Allow {tool}? {{"a": 1}}', "options": ["Allow once", "Allow always", "Deny"]}
    yield from PiAsks(Context("pi", counting_ids()), {}).ask(msg)


def accesses(agent: str, outputs: Iterator[Output]) -> tuple[Access, ...]:
    (fact,) = outputs
    assert isinstance(fact, Fact) and isinstance(fact.data, PermissionData)
    return accesses_of(agent, fact.data, Place("/p"))


def claude_tool(server: str, tool: str) -> Iterator[Output]:
    return claude(f"mcp__{server}__{tool}", server="b", patch="*** Delete File: x")


def codex_tool(server: str, tool: str) -> Iterator[Output]:
    return codex(MCP, serverName=server, message="?", _meta={**CALL, "tool_name": tool})


MCP = "mcpServer/elicitation/request"
MORE = "item/permissions/requestApproval"
CALL = {"codex_approval_kind": "mcp_tool_call"}
CASES: dict[str, tuple[str, Any, tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    "acp MCP title": (
        "own",
        lambda: acp(kind="other", title="get (db MCP Server)", rawInput={"a": 1}),
        ("db_get", ("*",), ("*",)),
    ),
    "acp other MCP title": (
        "own",
        lambda: acp(kind="other", title="drop (db MCP Server)", rawInput={"a": 1}),
        ("db_drop", ("*",), ("*",)),
    ),
    "acp wildcard": ("own", lambda: acp(kind="other", title="*", rawInput={"a": 1}), ("other", ("*",), ())),
    "acp question mark": ("own", lambda: acp(kind="other", title="Dro?", rawInput={"a": 1}), ("other", ("Dro?",), ())),
    "acp nothing": ("own", lambda: acp(kind="other", rawInput={"a": 1}), ("other", ("*",), ())),
    "acp title alone": ("own", lambda: acp(kind="other", title="Deploy"), ("other", ("Deploy",), ())),
    "acp think": ("own", lambda: acp(kind="think", title="Plan it", rawInput={"a": 1}), ("think", ("Plan it",), ("Plan it",))),
    "acp no kind": ("own", lambda: acp(title="Send mail", rawInput={"a": 1}), ("other", ("Send mail",), ("Send mail",))),
    "acp name": ("own", lambda: acp(name="deploy", kind="other", title="x", rawInput={"a": 1}), ("deploy", ("*",), ("*",))),
    "acp wildcard name": ("own", lambda: acp(name="*", kind="other", title="x", rawInput={"a": 1}), ("*", ("*",), ())),
    "acp mcp": ("own", lambda: acp(name="mcp__db__get", kind="other", rawInput={"a": 1}), ("db_get", ("*",), ("*",))),
    "acp search": ("own", lambda: acp(kind="search", title="cats", rawInput={"pattern": "cats"}), ("grep", ("cats",), ("cats",))),
    "acp fetch": (
        "own",
        lambda: acp(kind="fetch", title="Post", rawInput={"url": "https://x/a"}),
        ("webfetch", ("https://x/a",), ("https://x/a",)),
    ),
    "acp fetch of nothing": ("own", lambda: acp(kind="fetch", title="Mail", rawInput={"to": "x"}), ("webfetch", ("",), ())),
    "acp read of nothing": ("own", lambda: acp(kind="read", title="Secret", rawInput={"id": 1}), ("read", ("*",), ())),
    "acp edit of nothing": ("own", lambda: acp(kind="edit", title="Row", rawInput={"id": 1}), ("edit", ("",), ())),
    "acp line alone": ("own", lambda: acp(kind="execute", title="rm x"), ("bash", ("",), ())),
    "acp shell": (
        "own",
        lambda: acp(kind="other", title="Developer: Shell", rawInput={"command": "ls -l"}),
        ("bash", ("ls -l",), ("ls *",)),
    ),
    "acp shell elsewhere": (
        "own",
        lambda: acp(kind="other", title="Remote", rawInput={"command": "ls", "host": "prod"}),
        ("bash", ("ls",), ()),
    ),
    "codex mcp": (
        "codex",
        lambda: codex(MCP, serverName="db", message="?", _meta={**CALL, "tool_name": "get"}),
        ("db_get", ("*",), ("*",)),
    ),
    "codex mcp asks": ("codex", lambda: codex(MCP, serverName="db", message="Drop?"), ("db_ask", ("*",), ())),
    "codex more": (
        "codex",
        lambda: codex(MORE, permissions={"network": True}),
        ("request_permissions", ('{"network": true}',), ('{"network": true}',)),
    ),
    "codex most": (
        "codex",
        lambda: codex(MORE, permissions={"fileSystem": "all"}),
        ("request_permissions", ('{"fileSystem": "all"}',), ('{"fileSystem": "all"}',)),
    ),
    "claude mcp": ("claude", lambda: claude("mcp__db__get", a=1), ("db_get", ("*",), ("*",))),
    "claude mcp drop": ("claude", lambda: claude("mcp__db__drop", a=1), ("db_drop", ("*",), ("*",))),
    "claude mcp asks": ("claude", lambda: claude_asks("db", "Drop?"), ("db_ask", ("*",), ())),
    **{
        f"{agent} {server} {tool}": (agent, partial(call, server, tool), (permission, ("*",), ("*",)))
        for agent, call in (("claude", claude_tool), ("codex", codex_tool))
        for server, tool, permission in (
            ("a_b", "c", "a_b_c"),
            ("a", "b_c", "a_b_c"),
            ("a", "resource", "a_resource"),
            ("A_b", "c", "A_b_c"),
            ("a-b", "c", "a-b_c"),
            ("apply", "patch", "mcp__apply__patch"),
            ("external", "directory", "mcp__external__directory"),
            ("doom", "loop", "mcp__doom__loop"),
            ("mcp", "resource", "mcp__mcp__resource"),
        )
    },
    "codex a.b c": ("codex", partial(codex_tool, "a.b", "c"), ("a_b_c", ("*",), ("*",))),
    "claude resource": ("claude", lambda: claude("ReadMcpResource", server="a", uri="*"), ("a_resource", ("*",), ("*",))),
    "claude unknown": ("claude", lambda: claude("Teleport", a=1), ("Teleport", ("*",), ("*",))),
    "pi extension": ("pi", lambda: pi("deploy"), ("deploy", ("*",), ("*",))),
    "pi wildcard": ("pi", lambda: pi("*"), ("*", ("*",), ())),
}


@pytest.mark.parametrize("name", CASES)
def test_always_names_the_tool(name: str) -> None:
    agent, outputs, expected = CASES[name]
    *_, call = accesses(agent, outputs())
    assert (call.permission, call.patterns, call.always) == expected


@pytest.mark.parametrize("name", CASES)
def test_a_grant_holds_for_a_tool_of_its_own_agent_only(name: str) -> None:
    agent, outputs, (permission, _, always) = CASES[name]
    *_, call = accesses(agent, outputs())
    if always and permission not in ("bash", "grep", "webfetch"):
        assert call.agent == agent


def test_always_allows_no_other_tool() -> None:
    calls = {name: accesses(agent, outputs()) for name, (agent, outputs, _) in CASES.items()}
    for one, other in permutations(calls, 2):
        *_, granted = calls[one]
        *_, wanted = calls[other]
        rules = tuple(Rule(granted.permission, pattern, "allow", granted.tool) for pattern in granted.always)
        same = (granted.permission, granted.patterns, granted.tool) == (wanted.permission, wanted.patterns, wanted.tool)
        reached = granted.agent in ("", CASES[other][0])
        if reached and not same:
            assert Policy(grants=rules).action(wanted) != "allow", f"always for {one} allows {other}"


@pytest.mark.parametrize(
    ("servers", "rule", "asked"),
    [
        (("a", "a_b"), "a_b_c", True),
        (("a", "a_b"), "a_b_*", True),
        (("a", "a_b"), "a_*", True),
        (("a", "a_b"), "*", False),
        (("a", "a_b"), "a*", False),
        (("a",), "a_b_c", False),
        (("a_b", "other"), "a_*", False),
        (("a.b", "a_b"), "a_b_c", True),
        (("a__b", "a"), "a_*", True),
    ],
)
def test_an_allow_for_a_name_of_two_servers_is_asked(servers: tuple[str, ...], rule: str, asked: bool) -> None:
    """The agents' own names, and those of an agent that tells the joined name alone."""
    tools = [accesses("claude", claude_tool(server, tool))[-1] for server, tool in (("a_b", "c"), ("a", "b_c"))]
    for call in (*tools, Access("a_b_c", ("*",))):
        for policy in (Policy(config=(Rule(rule, "*", "allow"),)), Policy(session=(Rule(rule, "*", "allow"),))):
            policy = replace(policy, servers=servers)
            assert policy.action(call) == (None if asked else "allow")
            grants = (Rule(call.permission, "*", "allow", call.tool),)
            is_joined = not call.tool or ("a.b" in servers and call.tool == "mcp__a_b__c")
            assert replace(policy, grants=grants).action(call) == (None if asked and is_joined else "allow")
        assert Policy(config=(Rule(rule, "*", "deny"),), servers=servers).action(call) == "deny"


def test_a_denial_holds_by_the_name_of_a_server_as_it_is_configured() -> None:
    """OpenCode writes `a.b` as `a_b`; Codex leaves it."""
    for rule in ("a.b_*", "a_b_*"):
        assert "deny" in map(Policy(config=(Rule(rule, "*", "deny"),)).action, accesses("codex", codex_tool("a.b", "c")))


@pytest.mark.parametrize("title", ["Developer: Shell", "Terminal", ""])
@pytest.mark.parametrize(
    "raw_input", [{"command": "rm x"}, {"cmd": ["rm", "x"]}, {"commands": ["rm x"]}, {"input": {"command": "rm x"}}]
)
@pytest.mark.parametrize("kind", ["other", "think", "", "fetch", "search"])
def test_a_denial_of_bash_beats_every_grant_for_a_shell_command(kind: str, raw_input: dict[str, Any], title: str) -> None:
    deny, all_of_it = (Rule("bash", "rm *", "deny"),), (Rule("*", "*", "allow"),)
    calls = accesses("own", acp(kind=kind, title=title, rawInput=raw_input))
    for policy in (Policy(session=deny, grants=all_of_it), Policy(config=deny, session=all_of_it)):
        assert "deny" in map(policy.action, calls)


def test_a_denial_of_the_kind_holds_for_its_shell_commands() -> None:
    calls = accesses("own", acp(kind="other", title="Shell", rawInput={"command": "ls"}))
    assert "deny" in map(Policy(config=(Rule("other", "*", "deny"),)).action, calls)
