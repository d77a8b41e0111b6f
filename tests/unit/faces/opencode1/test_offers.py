"""What agents offer, in OpenCode 1's form."""

from __future__ import annotations

from shim.agents.catalog import OfferedMode
from shim.agents.offered_commands import OfferedCommand
from shim.faces.opencode1 import offers
from tests.support.specs import change
from universal.registry import agents

SPECS = agents()


def test_a_mode_tells_who_enforces_the_rules_of_each_agent_that_has_it() -> None:
    amp = SPECS["amp"].rules.enforcement
    assert offers.agent(OfferedMode("build", "b", (SPECS["claude"], SPECS["amp"])))["options"]["enforcement"] == {
        "claude": {"by": "a hook before every call", "missing": {}},
        "amp": {"by": amp.by, "missing": dict(amp.missing), "partial": amp.partial, "noAsks": amp.no_asks},
    }
    assert offers.agent(OfferedMode("build", "b"))["options"] == {}


def test_a_command_has_only_the_fields_that_are_set() -> None:
    assert offers.command(OfferedCommand("go", "do $1", ("$1",))) == {
        **{"name": "go", "source": "command", "template": "do $1", "hints": ["$1"]},
    }
    filled = offers.command(OfferedCommand("go", "do", (), "does it", "plan", "claude/opus", subtask=True))
    assert filled.keys() == {"name", "source", "template", "hints", "description", "agent", "model", "subtask"}


def test_a_mode_says_what_the_kernel_holds_of_an_agent_in_a_sandbox() -> None:
    codex = change(SPECS["codex"], sandbox=SPECS["codex"].rules.sandbox._replace(level="strict"))
    row = offers.agent(OfferedMode("build", "b", (codex,)))
    [told] = row["options"]["enforcement"].values()
    assert told["sandbox"] == {"level": "strict", "denies": ["edit", "read", "external_directory", "webfetch"]}
    assert (row["native"], row["description"]) == (False, "In a sandbox (strict). b"), "the TUI says `native` in its place"
    assert offers.agent(OfferedMode("build", "b", (SPECS["codex"],)))["native"]
