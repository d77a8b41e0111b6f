"""A command that lies in a project, chosen in the TUI 1.18.33 before the first session there, with the real Claude Code."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from .support.bench import Bench, Watch
from .support.scenes import wait_for_turns
from .support.tui import tui
from .support.wire import Stream

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(180),
    pytest.mark.parametrize("server", ["claude"], indirect=True, scope="module"),
]
COMMAND = "---\ndescription: Says the word of this project\nargument-hint: NAME\n---\nSay heron42 to $ARGUMENTS\n"


def test_a_command_of_the_project_is_in_the_list_and_claude_expands_it(server: Bench) -> None:
    file = server.place.project / ".claude/commands/birds/greet.md"
    file.parent.mkdir(parents=True)
    file.write_text(COMMAND)
    [row] = [row for row in server.api.get("/command") if row["name"] == "birds:greet"]
    assert (row["description"].partition(" (")[0], row["hints"]) == ("Says the word of this project", ["NAME"])
    with closing(tui(server.place, server.url)) as terminal:
        terminal.type("/birds")
        terminal.wait("/birds:greet +Says the word of this project", 20)
        terminal.key("Enter", pause_s=0.5)
        terminal.submit("everybody")
        wait_for_turns(terminal)
    [session] = server.api.get("/session")
    assert server.api.messages(session["id"])[0]["parts"][0]["text"] == "/birds:greet everybody"
    assert "Say heron42 to everybody" in json.dumps(server.model.requests()), "what the model got"
    file.unlink()
    assert "birds:greet" not in [row["name"] for row in server.api.get("/command")]


def test_a_shell_line_of_a_command_does_not_run_where_a_rule_may_forbid_it(server: Bench) -> None:
    """It is no tool call: a hook of its own asks the rules, from Claude Code 2.1.332 on. The person is told."""
    project = server.place.project
    (project / "opencode.json").write_text('{"permission": {"bash": "deny"}}')
    file = project / ".claude/commands/peek.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("---\nallowed-tools: Bash(touch:*)\n---\nLook: !`touch ran.txt && echo here`\n")
    with closing(Stream(server.api)) as stream:
        watch = Watch.on(server.api, stream)
        at = watch.prompt("/peek")
        asked = watch.wait("question.asked", at)  # whether the project is trusted
        trust = next(option["label"] for option in asked["questions"][0]["options"] if option["label"].startswith("Trust"))
        server.api.post(f"/question/{asked['id']}/reply", {"answers": [[trust]]})
        told = stream.wait(lambda event: event["type"] == "tui.toast.show", since=at, timeout_s=40)["properties"]["message"]
        watch.wait_for_end(at)
    file.unlink()
    (project / "opencode.json").unlink()
    assert told.startswith("Not run in /peek: touch ran.txt")
    assert not (project / "ran.txt").exists()
