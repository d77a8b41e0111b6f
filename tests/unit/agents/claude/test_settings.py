"""How Claude Code is started, and what a prompt changes of its settings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from universal.agents.claude.codec import ClaudeCodec
from universal.agents.claude.settings import Settings
from universal.codec import Fact, Output, Prompt, Stop, WriteLine
from universal.launch import LaunchOptions
from universal.permissions import Rule
from universal.setup import DirectorySetup, McpServer

DENIED = (Rule("bash", "*", "deny"),)


@pytest.mark.parametrize(
    ("rules", "trusted", "is_off"),
    [
        ((), True, False),
        ((Rule("bash", "*", "allow"),), True, False),
        ((Rule("bash", "rm *", "deny"),), True, True),
        ((Rule("*", "*", "ask"),), True, True),
        ((), False, True),
    ],
)
@pytest.mark.parametrize(
    ("version", "is_asked"),
    [(None, False), ("2.1.331 (Claude Code)", False), ("2.1.332 (Claude Code)", True), ("3.0", True), ("later", False)],
)
def test_shell_lines_of_skills_are_off_where_a_rule_could_forbid_them_and_no_hook_asks(
    rules: tuple[Rule, ...], trusted: bool, is_off: bool, version: str | None, is_asked: bool
) -> None:
    options = LaunchOptions("claude", "/p", rules=rules, project_settings=trusted, version=version)
    argv = Settings().launch(options).argv
    assert any("disableSkillShellExecution" in word for word in argv) is (is_off and not is_asked)


def test_a_rule_that_comes_later_leaves_shell_lines_to_the_hook_that_asks() -> None:
    settings = Settings()
    settings.launch(LaunchOptions("claude", "/p", version="2.1.332"))
    assert list(settings.changes_for(Prompt("itm_1", "x", rules=DENIED))) == []


def test_shell_lines_of_skills_are_switched_off_by_a_rule_that_comes_later() -> None:
    settings = Settings()
    settings.launch(LaunchOptions("claude", "/p"))
    denied = Prompt("itm_1", "x", rules=(Rule("bash", "*", "deny"),))
    lines = [output.data for output in settings.changes_for(denied) if isinstance(output, WriteLine)]
    assert [b"disableSkillShellExecution" in line for line in lines] == [True]
    assert list(settings.changes_for(denied)) == []


@pytest.mark.parametrize(("text", "rules", "count"), [("/peek", DENIED, 1), ("/peek", (), 0), ("peek", DENIED, 0)])
def test_a_notice_says_once_that_shell_lines_are_off(text: str, rules: tuple[Rule, ...], count: int) -> None:
    codec = ClaudeCodec(lambda kind: f"{kind}_1")
    codec.launch(LaunchOptions("claude", "/p", rules=rules))
    outputs = [output for key in ("a", "b") for output in codec.send(Prompt(key, text, rules=rules))]
    assert repr(outputs).count("Shell lines") == count


def test_claude_runs_lines_in_bash_and_in_the_project() -> None:
    environment = Settings().launch(LaunchOptions("claude", "/p")).env
    assert (environment["CLAUDE_CODE_SHELL"], environment["CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR"]) == ("/bin/bash", "1")


NEAR = McpServer("near", command=("near", "-x"), environment={"TOKEN": "secret"}, timeout_ms=7)
FAR = McpServer("far", url="https://far.invalid", headers={"Authorization": "secret"})


def requests(outputs: Iterable[Output]) -> list[dict[str, Any]]:
    return [json.loads(output.data).get("request", {}) for output in outputs if isinstance(output, WriteLine)]


def test_mcp_servers_go_over_the_control_channel_and_again_when_they_change() -> None:
    codec = ClaudeCodec(lambda kind: f"{kind}_1")
    launch = codec.launch(LaunchOptions("claude", "/p", setup=DirectorySetup((NEAR, FAR))))
    assert "secret" not in repr(launch)
    near = {"type": "stdio", "command": "near", "args": ["-x"], "env": {"TOKEN": "secret"}, "timeout": 7}
    far = {"type": "http", "url": "https://far.invalid", "headers": {"Authorization": "secret"}}
    _, given = requests(codec.start())
    assert given == {"subtype": "mcp_set_servers", "servers": {"near": near, "far": far}}
    first = requests(codec.send(Prompt("a", "hi", setup=DirectorySetup((NEAR, FAR)))))
    assert "mcp_set_servers" not in [request.get("subtype") for request in first]
    changed, *_ = requests(codec.send(Prompt("b", "hi", setup=DirectorySetup((FAR,)))))
    assert changed == {"subtype": "mcp_set_servers", "servers": {"far": far}}
    (gone,) = requests(codec.change_setup(DirectorySetup()))
    assert gone == {"subtype": "mcp_set_servers", "servers": {}}
    assert codec.change_setup(DirectorySetup()) == []


def test_the_state_of_mcp_servers_is_asked_after_each_change_and_kept_without_their_secrets() -> None:
    codec = ClaudeCodec(lambda kind: f"{kind}_1")
    codec.launch(LaunchOptions("claude", "/p", setup=DirectorySetup((FAR,))))
    codec.start()

    def answer(request_id: str, response: dict[str, Any]) -> list[Output]:
        body = {"subtype": "success", "request_id": request_id, "response": response}
        return codec.receive(json.dumps({"type": "control_response", "response": body}).encode())

    asked = answer("req_2", {"added": ["far"], "removed": [], "errors": {}})
    assert requests(asked) == [{"subtype": "mcp_status"}]
    row = {"name": "far", "status": "failed", "error": "no answer", "config": {"headers": {"Authorization": "secret"}}}
    (fact,) = answer("req_3", {"mcpServers": [row]})
    assert isinstance(fact, Fact)
    assert "secret" not in repr(fact)
    assert "no answer" in repr(fact.data)


@pytest.mark.parametrize(("version", "is_known"), [("2.1.330 (Claude Code)", True), ("2.1.197", False), (None, False)])
def test_instructions_are_system_text_and_others_need_another_process(version: str | None, is_known: bool) -> None:
    codec = ClaudeCodec(lambda kind: f"{kind}_1")
    setup = DirectorySetup(text="BE BRIEF")
    launch = codec.launch(LaunchOptions("claude", "/p", setup=setup, version=version))
    assert ("--system-prompt-snapshot=off" in launch.argv) is is_known
    (start,) = requests(codec.start())
    assert start["appendSystemPrompt"] == "BE BRIEF"
    assert codec.send(Prompt("a", "hi")) == [Stop("other instructions or another schema need another process", again=True)]
    assert Stop not in map(type, codec.send(Prompt("a", "hi", setup=setup)))


def test_claude_is_asked_for_a_title_where_the_prompt_names_the_session() -> None:
    codec = ClaudeCodec(lambda kind: f"{kind}_1")
    codec.launch(LaunchOptions("claude", "/p"))
    codec.start()
    assert "generate_session_title" not in [r.get("subtype") for r in requests(codec.send(Prompt("a", "hi")))]
    (asked,) = [r for r in requests(codec.send(Prompt("b", "hi" * 5_000, names=True))) if r.get("subtype")]
    assert asked == {"subtype": "generate_session_title", "description": "hi" * 1_000, "persist": True}

    def answer(**response: Any) -> list[Output]:
        return codec.receive(json.dumps({"type": "control_response", "response": {"request_id": "req_2", **response}}).encode())

    (fact,) = answer(subtype="success", response={"title": "A greeting"})
    assert isinstance(fact, Fact)
    assert "A greeting" in repr(fact.data)


@pytest.mark.parametrize("response", [{"subtype": "success", "response": {"title": None}}, {"subtype": "error", "error": "?"}])
def test_a_claude_that_makes_no_title_says_nothing(response: dict[str, Any]) -> None:
    codec = ClaudeCodec(lambda kind: f"{kind}_1")
    codec.launch(LaunchOptions("claude", "/p"))
    codec.start()
    codec.send(Prompt("b", "hi", names=True))
    line = {"type": "control_response", "response": {"request_id": "req_2", **response}}
    assert codec.receive(json.dumps(line).encode()) == []
