"""claude-agent-acp is made to ask for every call where a rule may forbid one; what its mode allows is only checked."""

from __future__ import annotations

from typing import Any

import pytest

from shim.dev.record.driver import counting_ids
from tests.unit.agents.acp.test_codec import AGENT, Talk, option
from universal.agents.acp.codec import AcpCodec, denied_tools
from universal.agents.acp.profiles import PROFILES
from universal.codec import Fact, PermissionReply, Prompt, Stop, ToolCheck
from universal.events import EventType, PermissionData
from universal.launch import LaunchOptions
from universal.permissions import BYPASS, PLAN, Policy, Rule, with_home
from universal.registry import agents
from universal.setup import HEADER_VARIABLE, DirectorySetup, McpServer
from universal.tools.accesses import Place, accesses_of

STRICT = (Rule("webfetch", "*.example/*", "deny"),)
NAME = "claude-agent-acp"
NATIVE = {"build": "default", "plan": "plan", "accept-edits": "acceptEdits", "bypass": "bypassPermissions"}
OPTIONS = [{"optionId": f"id-{kind}", "kind": kind, "name": kind} for kind in ("allow_once", "allow_always", "reject_once")]


def talk(*rules: Rule, mode: str = "build", version: str = "0.100.0", **more: Any) -> Talk:
    """A session in a mode with a prompt at work."""
    made = Talk(AcpCodec(counting_ids(), next(p for p in PROFILES if p.name == NAME)), holds=True)
    made.launch(rules=rules, **more)
    made.answer("initialize", {**AGENT, "agentInfo": {"name": NAME, "version": version}})
    if "session/new" in made.methods():
        made.answer("session/new", {"sessionId": "s", "configOptions": [option("mode", NATIVE[mode], *NATIVE.values())]})
        made.send(Prompt("p", "hi", mode=mode, rules=rules))
    return made


def permission_outcome(made: Talk, tool: str, **arguments: Any) -> Any:
    """The agent asks about a call; what becomes of it: a fact for a person, a check, or the answer."""
    call = {"toolCallId": "c1", "name": tool, "title": tool, "kind": "other", "rawInput": arguments}
    outputs = made.request(7, "session/request_permission", toolCall=call, options=OPTIONS)
    asked = (EventType.PERMISSION_REQUESTED, EventType.QUESTION_REQUESTED)
    return next(out for out in outputs if not isinstance(out, Fact) or out.type in asked)


def option_id(made: Talk) -> str:
    return made.written_lines()[-1]["result"]["outcome"]["optionId"]


def test_claude_acp_asks_for_every_call_where_a_rule_may_forbid_it() -> None:
    [params] = [line["params"] for line in talk(*STRICT).written_lines() if line.get("method") == "session/new"]
    settings = params["_meta"]["claudeCode"]["options"]["settings"]
    assert settings["permissions"] == {"ask": ["*"]}
    assert settings["sandbox"] == {"autoAllowBashIfSandboxed": False}


@pytest.mark.parametrize(
    ("rules", "tools"),
    [
        ([Rule("bash", "*", "deny")], {"Bash", "PowerShell", "Monitor", "EnterWorktree", "ExitWorktree"}),
        ([Rule("edit", "*", "deny")], {"Edit", "MultiEdit", "Write", "NotebookEdit"}),
        ([Rule("task", "*", "deny")], {"Agent", "Task", "SendMessage", "TeamCreate", "Workflow"}),
        ([Rule("bash", "*", "deny"), Rule("bash", "git *", "allow")], set()),
        ([Rule("bash", "*", "deny"), Rule("bash", "git *", "ask")], set()),
        ([Rule("bash", "rm *", "deny")], set()),
        ([Rule("webfetch", "*", "ask")], set()),
    ],
)
def test_keys_denied_whole_are_denied_by_claude_too(rules: list[Rule], tools: set[str]) -> None:
    """So a `PermissionRequest` hook, whose answer may come first, cannot allow it."""
    [params] = [line["params"] for line in talk(*rules).written_lines() if line.get("method") == "session/new"]
    permissions = params["_meta"]["claudeCode"]["options"]["settings"]["permissions"]
    assert set(permissions.get("deny", [])) == tools and permissions["ask"] == ["*"]


def test_questions_and_plans_are_not_denied_with_everything_else() -> None:
    assert {"AskUserQuestion", "ExitPlanMode", "ToolSearch"}.isdisjoint(denied_tools([Rule("*", "*", "deny")]))
    assert {"Bash", "Edit", "Read", "WebFetch", "Skill", "Grep"} <= set(denied_tools([Rule("*", "*", "deny")]))


def test_a_tool_that_is_denied_no_longer_needs_another_process() -> None:
    made = talk(Rule("bash", "*", "deny"))
    [stop] = made.codec.send(Prompt("q", "hi", rules=STRICT))
    assert isinstance(stop, Stop) and stop.again


def test_a_denied_pattern_reaches_the_hook_that_may_allow_it() -> None:
    enforcement = agents()[NAME].rules.enforcement
    assert enforcement.gaps([Rule("bash", "*", "deny"), Rule("edit", "*", "ask")]) == {}
    assert set(enforcement.gaps([Rule("bash", "rm *", "deny")])) == {"bash"}
    assert set(enforcement.gaps([Rule("bash", "*", "deny"), Rule("bash", "git *", "allow")])) == {"bash"}
    assert "PermissionRequest" in enforcement.gaps([Rule("files_*", "*", "deny")])["mcp"]


def test_claude_acp_keeps_its_mode_without_such_a_rule() -> None:
    made = talk(Rule("*", "*", "allow"))
    [params] = [line["params"] for line in made.written_lines() if line.get("method") == "session/new"]
    assert "_meta" not in params
    assert isinstance(permission_outcome(made, "Read", file_path="/p/x"), Fact)


@pytest.mark.parametrize("method", ["session/resume", "session/load"])
def test_a_conversation_that_goes_on_is_held_to_the_rules_too(method: str) -> None:
    made = Talk(AcpCodec(counting_ids(), next(p for p in PROFILES if p.name == NAME)))
    made.launch(rules=STRICT, native_session_id="s", resume=True)
    capabilities = {"sessionCapabilities": {"resume": {}}} if method == "session/resume" else {"loadSession": True}
    made.answer("initialize", {"agentCapabilities": capabilities, "agentInfo": {"version": "0.100.0"}})
    assert made.written_lines()[-1]["method"] == method
    assert "_meta" in made.written_lines()[-1]["params"]


@pytest.mark.parametrize("now", [(), STRICT])
def test_other_rules_need_another_process(now: tuple[Rule, ...]) -> None:
    made = talk(*(() if now else STRICT))
    made.answer("session/prompt", {"stopReason": "end_turn"})
    stop = Stop("other permission rules or MCP servers need another process", again=True)
    assert made.send(Prompt("p2", "hi", rules=now)) == [stop]


@pytest.mark.parametrize(
    ("setup", "stops"),
    [(DirectorySetup(text="Be brief."), False), (DirectorySetup((McpServer("near", command=("near",)),)), True)],
)
def test_other_mcp_servers_need_another_process_and_other_instructions_do_not(setup: DirectorySetup, stops: bool) -> None:
    """Instructions go with the prompt."""
    made = talk()
    made.answer("session/prompt", {"stopReason": "end_turn"})
    outputs = made.send(Prompt("p2", "hi", setup=setup))
    assert any(isinstance(output, Stop) for output in outputs) == stops


def test_the_token_of_our_tools_is_no_argument() -> None:
    """Claude Code gets MCP servers as an argument, and puts the variable of its environment into it."""
    own = McpServer("opencode-shim", url="http://127.0.0.1:1/mcp", headers={"Authorization": "Bearer t"})
    far = McpServer("far", url="http://far", headers={"Authorization": "Bearer f"})
    made = Talk(AcpCodec(counting_ids(), next(p for p in PROFILES if p.name == NAME)))
    setup = DirectorySetup((far, own), has_shim=True)
    made.launch(setup=setup)
    made.answer("initialize", {"agentCapabilities": {"mcpCapabilities": {"http": True}}, "agentInfo": {"version": "0.100.0"}})
    [params] = [line["params"] for line in made.written_lines() if line.get("method") == "session/new"]
    header = {"name": "Authorization", "value": f"${{{HEADER_VARIABLE}}}"}
    assert [(row["name"], row["headers"]) for row in params["mcpServers"]] == [("opencode-shim", [header])]
    assert made.codec.launch(LaunchOptions(NAME, "/p", setup=setup)).env[HEADER_VARIABLE] == "Bearer t"


@pytest.mark.parametrize("version", ["0.99.1", ""])
def test_a_version_that_may_not_keep_to_it_is_refused(version: str) -> None:
    made = talk(*STRICT, version=version)
    assert made.errors() == ["agent_too_old"]
    assert any(isinstance(out, Stop) and "Update it to 0.100.0" in out.why for out in made.outputs)
    assert "session/new" not in made.methods()


FOR_PERSON = [
    ("build", "Write", {"file_path": "/p/x"}),
    ("build", "Bash", {"command": "touch x"}),
    ("build", "Bash", {"command": "cat x > y"}),
    ("build", "mcp__s__t", {"a": 1}),
    ("build", "WebFetch", {"url": "https://x.invalid"}),
    ("build", "ToolOfTomorrow", {"a": 1}),
    ("plan", "Bash", {"command": "touch x"}),
    ("accept-edits", "Bash", {"command": "touch x"}),
    ("accept-edits", "mcp__s__t", {"a": 1}),
    ("bypass", "ExitPlanMode", {"plan": "p"}),
]
CHECKED = [
    ("build", "Read", {"file_path": "/p/x"}),
    ("build", "Bash", {"command": "cat x"}),
    ("build", "Skill", {"skill": "probe"}),
    ("build", "Agent", {"prompt": "look"}),
    ("plan", "Write", {"file_path": "/home/.claude/plans/x.md"}),
    ("accept-edits", "Edit", {"file_path": "/p/x"}),
    ("bypass", "Write", {"file_path": "/p/x"}),
    ("bypass", "Bash", {"command": "rm -r x"}),
    ("bypass", "ToolOfTomorrow", {"a": 1}),
]


@pytest.mark.parametrize(("mode", "tool", "arguments"), FOR_PERSON)
def test_a_person_is_asked_what_the_mode_would_ask(mode: str, tool: str, arguments: dict[str, Any]) -> None:
    assert isinstance(permission_outcome(talk(*STRICT, mode=mode), tool, **arguments), Fact)


@pytest.mark.parametrize(("mode", "tool", "arguments"), CHECKED)
def test_calls_that_the_mode_allows_are_checked_by_the_rules_alone(mode: str, tool: str, arguments: dict[str, Any]) -> None:
    made = talk(*STRICT, mode=mode)
    check = permission_outcome(made, tool, **arguments)
    assert isinstance(check, ToolCheck)
    assert isinstance(check.request.data, PermissionData)
    before = len([out for out in made.outputs if isinstance(out, Fact)])
    made.take(made.codec.proceed(check.request.data.permission_id))
    assert option_id(made) == "id-allow_once"
    assert len([out for out in made.outputs if isinstance(out, Fact)]) == before, "nothing is told of a call that goes on"


def test_a_rule_that_denies_a_checked_call_rejects_it() -> None:
    made = talk(*STRICT, mode="bypass")
    check = permission_outcome(made, "Write", file_path="/p/x")
    made.send(PermissionReply(check.request.data.permission_id, "reject"))
    assert option_id(made) == "id-reject_once"


def test_tools_that_need_no_permission_go_on_at_once() -> None:
    made = talk(*STRICT)
    permission_outcome(made, "TaskOutput", task_id="t")
    assert option_id(made) == "id-allow_once"


def test_the_questions_arguments_count_and_not_earlier_ones() -> None:
    made = talk(*STRICT, mode="bypass")
    call = {"toolCallId": "c1", "name": "Bash", "title": "ls", "kind": "execute", "rawInput": {"command": "ls"}}
    update = {"sessionUpdate": "tool_call", **call, "status": "in_progress"}
    made.say({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
    check = permission_outcome(made, "Bash", command="rm x")
    assert check.request.data.metadata["input"]["command"] == "rm x"


def test_a_worktree_is_the_command_that_makes_it() -> None:
    check = permission_outcome(talk(*STRICT, mode="bypass"), "EnterWorktree", name="side")
    assert check.request.data.metadata["commands"] == ["git worktree add side"]


@pytest.mark.parametrize(
    ("mode", "path", "action"),
    [
        ("accept-edits", "src/x.py", None),
        ("accept-edits", ".git/hooks/pre-commit", "ask"),
        ("accept-edits", "sub/.claude/settings.json", "ask"),
        ("accept-edits", "link/pre-commit", "ask"),
        (BYPASS, ".git/hooks/pre-commit", None),
        (PLAN, "src/x.py", "deny"),
        (PLAN, "/home/me/.claude/plans/x.md", "allow"),
    ],
)
def test_hidden_files_are_asked_about_in_accept_edits_also_behind_a_link(mode: str, path: str, action: str | None) -> None:
    place = Place("/p", home="/home/me", resolve=lambda path: path.replace("/p/link", "/p/.git/hooks"))
    metadata: Any = {"tool": "Write", "input": {"file_path": path}}
    data = PermissionData(permission_id="x", action="Write", status="requested", metadata=metadata)
    policy = Policy(with_home(agents()[NAME].rules.defaults_in({}), "/home/me"), STRICT, mode=mode)
    assert policy.action(accesses_of(NAME, data, place)[-1]) == action
