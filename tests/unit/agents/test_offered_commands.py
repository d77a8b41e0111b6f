"""Which slash commands a client is offered, and under which names."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from shim.agents._generated.client_commands import CLIENT_COMMANDS
from shim.agents.offered_commands import BREAKING, RESERVED_NAMES, commands, native_command, withheld
from shim.sessions.prompts.server_commands import templates
from tests.fakes.agents_directory import FakeAgent, agent
from tests.support.recordings import load_all
from tests.support.specs import change
from universal.agents.claude.spec import CLAUDE
from universal.claude_code import INTERNAL_COMMANDS, WITHHELD_COMMANDS
from universal.codec import Catalogue
from universal.lib.jsonvalue import arr, obj
from universal.slash_commands import ConfigCommand, SlashCommand


@dataclass(frozen=True)
class CommandAgent:
    """An agent that offers commands of these names."""

    name: str
    title: str
    commands: tuple[str, ...]
    is_program: bool = True

    def offer(self) -> FakeAgent:
        made = agent(self.name, self.title, Catalogue(commands=tuple(SlashCommand(c, f"does {c}") for c in self.commands)))
        return made if self.is_program else replace(made, spec=change(made.spec, binaries=()))


def command_descriptions(
    *agents: CommandAgent, chosen: str | None = None, config: tuple[ConfigCommand, ...] = ()
) -> dict[str, str]:
    """Name -> description."""
    found = commands([one.offer() for one in agents], config, chosen)
    return {command.name: command.description for command in found}


CLAUDE_CODE = CommandAgent("claude", "Claude Code", ("rename", "usage"))
MOCK = CommandAgent("mock", "Mock", ("echo", "help"), is_program=False)


def test_a_name_of_a_client_is_offered_with_the_agents_prefix() -> None:
    assert command_descriptions(CLAUDE_CODE) == {"claude:rename": "does rename", "usage": "does usage"}


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_no_agents_command_has_a_name_of_a_client(name: str) -> None:
    assert name not in command_descriptions(CommandAgent("claude", "Claude Code", (name,)))


@pytest.mark.parametrize("name", sorted(BREAKING))
def test_a_command_that_would_break_the_session_is_not_offered(name: str) -> None:
    assert command_descriptions(CommandAgent("pi", "Pi", (name,))) == {}


def test_claudes_commands_of_no_use_here_are_withheld_with_a_reason() -> None:
    assert "Choose the model in your client" in withheld(CLAUDE, "model")
    assert withheld(CLAUDE, "__remote-workflow")
    assert not withheld(CLAUDE, "rename")


def test_a_template_keeps_its_name_and_the_agents_command_gets_the_prefix() -> None:
    config = (ConfigCommand("exit", "go", "mine"), ConfigCommand("usage", "count", "mine too"))
    assert command_descriptions(CLAUDE_CODE, config=config) == {
        "exit": "mine",
        "usage": "mine too",
        "claude:rename": "does rename",
        "claude:usage": "does usage",
    }


def test_a_command_of_some_agents_names_them_all() -> None:
    codex, pi = CommandAgent("codex", "Codex", ("usage", "go")), CommandAgent("pi", "Pi", ("go",))
    assert command_descriptions(CLAUDE_CODE, codex, pi) == {
        "claude:rename": "does rename",
        "usage": "does usage (Claude Code, Codex)",
        "go": "does go (Codex, Pi)",
    }


def test_scenes_of_the_mock_are_offered_only_where_it_is_wanted() -> None:
    scenes = {"echo": "does echo", "mock:help": "does help"}
    assert command_descriptions(MOCK) == scenes
    assert command_descriptions(CLAUDE_CODE, MOCK) == {"claude:rename": "does rename", "usage": "does usage"}
    assert "mock:help" in command_descriptions(MOCK, CLAUDE_CODE), "the default agent"
    assert "mock:help" in command_descriptions(CLAUDE_CODE, MOCK, chosen="mock/mock"), "the model of the config"


def test_a_description_is_one_line() -> None:
    config = (ConfigCommand("go", "go", " two\n\n  lines\r\nof it "),)
    made = agent("pi", "Pi", Catalogue(commands=(SlashCommand("deep", "a\nb\tc"), SlashCommand("bare"))))
    found = {command.name: command.description for command in commands([made], config)}
    assert found == {"go": "two lines of it", "deep": "a b c", "bare": ""}


def test_a_name_with_the_prefix_is_the_agents_own_command() -> None:
    def name_of(offer: FakeAgent, name: str) -> str | None:
        command = native_command(offer, name)
        return None if command is None else command.name

    claude = CLAUDE_CODE.offer()
    assert name_of(claude, "claude:rename") == "rename"
    assert name_of(claude, "rename") == "rename"
    assert name_of(claude, "codex:rename") is None
    assert name_of(claude, "claude:nothing") is None
    plugin = CommandAgent("claude", "Claude Code", ("claude:go", "go")).offer()
    assert name_of(plugin, "claude:go") == "claude:go", "a plugin's command may look like ours"


def test_a_command_of_the_config_replaces_the_servers() -> None:
    mine = ConfigCommand("review", "mine", "")
    assert [command.name for command in templates("/p", [mine])] == ["init", "review"]
    assert templates("/p", [mine])[1] is mine
    assert "/p" in templates("/p", [])[0].template


def test_the_terminal_and_the_web_ui_were_both_read() -> None:
    """The list is generated: an empty one would reserve nothing."""
    assert {"rename", "clear", "quit", "timeline", "summarize"} <= set(CLIENT_COMMANDS["opencode 1.18.33"])
    assert {"terminal", "open", "workspace"} <= set(CLIENT_COMMANDS["opencode 1.18.33"]), "of the web UI"
    assert all(len(names) > 20 for names in CLIENT_COMMANDS.values())


def test_internal_commands_are_listed_if_all_are_asked_for_and_may_be_sent_anyway() -> None:
    rows = (SlashCommand("usage"), SlashCommand("heapdump"), SlashCommand("doctor", is_file=True))
    made = agent("claude", "Claude Code", Catalogue(commands=rows))
    claude = replace(made, spec=change(made.spec, internal_commands=INTERNAL_COMMANDS))
    assert [command.name for command in commands([claude], ())] == ["usage", "doctor"], "a person's own is listed"
    assert [command.name for command in commands([claude], (), has_internal=True)] == ["usage", "heapdump", "doctor"]
    assert native_command(claude, "heapdump") is not None


USEFUL_COMMANDS = frozenset(
    {
        *("batch", "clear", "code-review", "compact", "context", "cost", "debug", "deep-research", "fast", "goal", "insights"),
        *("loop", "recap", "rename", "review", "run", "schedule", "security-review", "simplify", "usage", "verify"),
    }
)
"""Commands of Claude Code up to 2.1.332 that work on a project, or tell of the session."""


def test_each_command_that_comes_with_claude_is_internal_useful_or_withheld() -> None:
    """It says which are its own from 2.1.330 on. A new one needs a place in one of the tables."""
    known = INTERNAL_COMMANDS | USEFUL_COMMANDS | WITHHELD_COMMANDS.keys()
    assert not INTERNAL_COMMANDS & (USEFUL_COMMANDS | WITHHELD_COMMANDS.keys())
    found: set[str] = set()
    for recording in load_all("claude"):
        for message in recording.agent_messages():
            if (response := obj(obj(obj(message).get("response")).get("response"))).get("commands"):
                found |= {str(row["name"]) for row in map(obj, arr(response.get("commands"))) if row.get("builtin") is True}
    assert found, "no recording has the list"
    assert found <= known
