"""Commands of agents in a project's files: listed before the first session there, run, and gone with their file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import Live, live
from tests.support.specs import change
from universal.agent_spec import AgentSpec, ProjectSettingsUse
from universal.agents.mock.codec import MockCodec
from universal.agents.mock.spec import MOCK
from universal.codec import Catalogue, IdFactory
from universal.launch import LaunchOptions, LaunchSpec
from universal.slash_commands import NO_COMMANDS, SlashCommand

HOOK = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "touch hooked"}]}]}}


def plant(directory: Path, name: str, source: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return path


async def names(server: Live) -> set[str]:
    """The same in both lists."""
    listed = {row["name"] for row in (await server.api.get("/command", status=200)).body}
    second = {row["name"] for row in (await server.api.get("/api/command", status=200)).body["data"]}
    assert listed == second
    return listed


async def test_a_projects_commands_are_listed_and_run_before_its_first_session(server: Live) -> None:
    plant(server.directory, ".mock/commands/sub/hello.md", "---\ndescription: says hello\nargument-hint: NAME\n---\nhello")
    [row] = [row for row in (await server.api.get("/command", status=200)).body if row["name"] == "sub:hello"]
    assert (row["description"], row["hints"], row["template"]) == ("says hello", ["NAME"], "/sub:hello $ARGUMENTS")
    session = await server.session()
    body = {"command": "sub:hello", "arguments": "world", "model": "mock/mock"}
    await server.api.post(f"/session/{session}/command", body, status=200)
    assert (await server.messages(session))[0]["parts"][0]["text"] == "/sub:hello world"


async def test_the_list_follows_the_files(server: Live) -> None:
    assert "later" not in await names(server)
    path = plant(server.directory, ".mock/commands/later.md", "later")
    assert "later" in await names(server)
    path.unlink()
    assert "later" not in await names(server)
    session = await server.session()
    refused = await server.api.post(f"/session/{session}/command", {"command": "later", "arguments": ""}, status=400)
    assert 'Command not found: "later"' in refused.body["data"]["message"]


async def test_an_untrusted_project_lists_nothing_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = change(MOCK, project_settings=ProjectSettingsUse(("claude",), leaves_out=True))
    monkeypatch.setattr("shim.agents.setup.known_agents", lambda: {"mock": reader})
    project = tmp_path / "project"
    plant(project, ".mock/commands/hello.md", "hello")
    plant(project, ".claude/settings.json", json.dumps(HOOK))
    async with live(tmp_path) as server:
        assert "hello" not in await names(server)
        session = await server.session()
        await server.api.post(f"/session/{session}/command", {"command": "hello", "arguments": ""}, status=400)
    async with live(tmp_path, trusted_roots=[project]) as server:
        assert "hello" in await names(server)


# --- shell lines of templates of OpenCode, which this server runs ---------------------------------------------------

LINE = "Look: !`touch ran.txt && echo here`"


async def peek(server: Live) -> tuple[str, list[str]]:
    """Run the command; what the agent was sent, and what the person was told."""
    session = await server.session()
    async with server.api.stream("/event") as events:
        await server.api.post(
            f"/session/{session}/command", {"command": "peek", "arguments": "", "model": "mock/mock"}, status=200
        )
        seen = await events.until("session.idle")
    notices = [event["properties"]["message"] for event in seen if event["type"] == "tui.toast.show"]
    return (await server.messages(session))[0]["parts"][0]["text"], notices


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("deny", "denies it"),
        ({"touch *": "deny"}, "denies it"),
        ("ask", "asks about it"),
        ({"*": "ask", "touch *": "allow"}, "asks"),
    ],
)
async def test_a_shell_line_of_a_template_is_held_by_the_rules(tmp_path: Path, rule: Any, reason: str) -> None:
    plant(tmp_path / "home/.config/opencode", "opencode.json", json.dumps({"permission": {"bash": rule}}))
    plant(tmp_path / "home/.config/opencode", "command/peek.md", LINE)
    async with live(tmp_path) as server:
        text, notices = await peek(server)
        assert not (server.directory / "ran.txt").exists()
    assert "not run" in text and "here" not in text
    assert [reason in notice for notice in notices] == [True]


async def test_a_shell_line_of_a_template_is_judged_in_the_mode_of_its_session(tmp_path: Path) -> None:
    config = {"agent": {"plan": {"permission": {"bash": "deny"}}}}
    plant(tmp_path / "home/.config/opencode", "opencode.json", json.dumps(config))
    plant(tmp_path / "home/.config/opencode", "command/peek.md", LINE)
    async with live(tmp_path) as server:
        session = await server.session()
        await server.ask(session, "echo hello", agent="plan")
        body = {"command": "peek", "arguments": "", "model": "mock/mock"}
        await server.api.post(f"/session/{session}/command", body, status=200)
        assert not (server.directory / "ran.txt").exists()


@pytest.mark.parametrize("rule", [{}, {"bash": "allow"}, {"bash": {"rm *": "deny"}}])
async def test_a_shell_line_of_a_template_runs_where_no_rule_holds_it(tmp_path: Path, rule: Any) -> None:
    plant(tmp_path / "home/.config/opencode", "opencode.json", json.dumps({"permission": rule}))
    plant(tmp_path / "home/.config/opencode", "command/peek.md", LINE)
    async with live(tmp_path) as server:
        text, notices = await peek(server)
        assert (server.directory / "ran.txt").exists()
    assert (text, notices) == ("Look: here\n", [])


@pytest.mark.parametrize("place", [".opencode/command/peek.md", "opencode.json"])
async def test_a_shell_line_of_a_project_waits_for_trust(tmp_path: Path, place: str) -> None:
    project = tmp_path / "project"
    plant(project, place, LINE if place.endswith(".md") else json.dumps({"command": {"peek": {"template": LINE}}}))
    async with live(tmp_path, trust_question_s=0.05) as server:
        text, notices = await peek(server)
        assert not (project / "ran.txt").exists()
    assert "not run" in text and any("shell line" in notice and "trusted this project" in notice for notice in notices)
    async with live(tmp_path, trusted_roots=[project]) as server:
        assert (await peek(server))[0] == "Look: here\n"
        assert (project / "ran.txt").exists()


@pytest.fixture(params=["no files"])
async def talkative(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """A server whose agent has no files of commands, and tells one of the project when it runs there."""

    def make(ids: IdFactory) -> MockCodec:
        class TellingCodec(MockCodec):
            def launch(self, options: LaunchOptions) -> LaunchSpec:
                self.is_in_project = options.directory == str((tmp_path / "project").resolve())
                return super().launch(options)

            @property
            def catalogue(self) -> Catalogue | None:
                more = (SlashCommand("of-project", "told"),) if self.is_in_project else ()
                return replace(self._catalogue, commands=more) if self._catalogue is not None else None

            @catalogue.setter
            def catalogue(self, value: Catalogue | None) -> None:
                self._catalogue = value

        return TellingCodec(ids)

    def agents() -> dict[str, AgentSpec]:
        return {
            "mock": change(
                MOCK, make=make, command_sources=NO_COMMANDS if request.param == "no files" else MOCK.abilities.command_sources
            )
        }

    monkeypatch.setattr("shim.agents.setup.known_agents", agents)
    async with live(tmp_path) as server:
        yield server


async def test_commands_that_an_agent_reports_in_a_session_are_kept_for_the_directory(talkative: Live) -> None:
    assert "of-project" not in await names(talkative)
    session = await talkative.session()
    await talkative.ask(session, "echo one")
    assert "of-project" in await names(talkative)
    await talkative.api.delete(f"/session/{session}", status=200)
    assert "of-project" in await names(talkative), "its process has ended"


@pytest.mark.parametrize("talkative", ["files"], indirect=True)
async def test_a_removed_file_is_gone_at_once_though_a_running_agent_still_reports_it(talkative: Live) -> None:
    path = plant(talkative.directory, ".mock/commands/of-project.md", "in a file")
    assert "of-project" in await names(talkative)
    await talkative.ask(await talkative.session(), "echo one")
    assert "of-project" in await names(talkative)
    path.unlink()
    assert "of-project" not in await names(talkative)


# --- heads that name an agent or a model ---------------------------------------------------------------------------


async def run_with_head(server: Live, head: str, status: int = 200) -> tuple[list[Any], list[dict[str, Any]], Any]:
    """Run a template with this head; the messages, the events up to the answer, and its body."""
    plant(server.directory, ".opencode/command/go.md", f"---\n{head}\n---\necho went")
    session = await server.session()
    async with server.api.stream("/event") as events:
        body = {"command": "go", "arguments": ""}
        answer = await server.api.post(f"/session/{session}/command", body, status=status)
        seen = await events.until("session.idle" if status == 200 else "session.error")
    return await server.messages(session), seen, answer.body


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("agent: reviewer", "/go names the agent `reviewer`, not here: it runs with yours."),
        ("model: nowhere/big", "/go names the model `nowhere/big`, not here: it runs with yours."),
        (
            "agent: reviewer\nmodel: nowhere/big",
            "/go names the model `nowhere/big` and the agent `reviewer`, not here: it runs with yours.",
        ),
    ],
)
async def test_a_command_whose_head_names_what_is_not_here_runs_and_says_so(server: Live, head: str, words: str) -> None:
    messages, seen, _ = await run_with_head(server, head)
    assert messages[0]["parts"][0]["text"] == "echo went"
    assert messages[0]["info"]["agent"] == "build"
    assert [e["properties"]["message"] for e in seen if e["type"] == "tui.toast.show"] == [words]


async def test_a_command_whose_head_names_a_mode_runs_in_it(server: Live) -> None:
    messages, seen, _ = await run_with_head(server, "agent: plan")
    assert messages[0]["info"]["agent"] == "plan"
    assert not [e for e in seen if e["type"] == "tui.toast.show"]


async def test_a_command_whose_head_names_a_subagent_is_a_subtask(server: Live) -> None:
    messages, _, _ = await run_with_head(server, "agent: general")
    assert messages[0]["parts"][0]["type"] == "subtask"


RESTRICTED = {
    "JSON": ("opencode.json", '{"agent": {"reviewer": {"disable": true, "permission": {"edit": "deny"}}}}'),
    "an older form": ("opencode.json", '{"mode": {"reviewer": {"disable": true, "tools": {"write": false}}}}'),
    "its own file": (".opencode/agent/reviewer.md", "---\ndisable: true\npermission:\n  edit: deny\n---\nReview."),
    "an older folder": (".opencode/modes/reviewer.md", "---\ndisable: true\ntools:\n  write: false\n---\nReview."),
}
"""Where a project may have an agent that is not offered, and whose rules would be lost with another one."""


@pytest.mark.parametrize("form", RESTRICTED)
async def test_an_agent_with_rules_of_its_own_is_never_replaced(server: Live, form: str) -> None:
    plant(server.directory, *RESTRICTED[form])
    messages, seen, body = await run_with_head(server, "agent: reviewer", status=400)
    assert messages == []
    assert "it names the agent `reviewer`, which is not here" in body["data"]["message"]
    assert seen[-1]["properties"]["error"]["data"]["message"] == body["data"]["message"], "clients do not show the answer"


@pytest.mark.parametrize(("head", "agent"), [("disable: true", "build"), ("description: reads", "reviewer")])
async def test_an_agent_without_rules_may_be_replaced_and_one_that_is_here_is_not(server: Live, head: str, agent: str) -> None:
    plant(server.directory, ".opencode/agent/reviewer.md", f"---\n{head}\nmodel: x/y\n---\npermission: no head")
    messages, _, _ = await run_with_head(server, "agent: reviewer")
    assert messages[0]["info"]["agent"] == agent
