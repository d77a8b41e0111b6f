"""Rules that do not say plainly what they mean, as a person meets them in the TUI 1.18.33 with the real Claude Code."""

from __future__ import annotations

from contextlib import closing

import pytest

from .support.bench import Bench
from .support.scenes import wait_for_turns
from .support.tui import tui

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(180),
    pytest.mark.parametrize("server", ["claude"], indirect=True, scope="module"),
]


def test_the_file_is_named_before_the_first_prompt_and_a_call_is_asked_about_once(server: Bench) -> None:
    project = server.place.project
    (project / "opencode.json").write_text('{"permission": {"bash": "denied"}}')
    with closing(tui(server.place, server.url)) as terminal:
        terminal.wait(("Permission rules", r"opencode\.json"), 20)
        terminal.submit("[scene:bash:touch made.txt && echo made] make it")
        terminal.wait(("Permission required", r"\$ touch made\.txt"), 40)
        terminal.key("Enter", pause_s=0.5)
        wait_for_turns(terminal)
    assert (project / "made.txt").exists()


def test_a_command_that_another_program_runs_is_asked_about(server: Bench) -> None:
    """`touch` is denied, and `my-wrapper` is in nobody's table: it runs what stands behind it."""
    project = server.place.project
    (project / "opencode.json").write_text('{"permission": {"bash": {"*": "allow", "touch *": "deny"}}}')
    wrapper = project / "my-wrapper"
    wrapper.write_text('#!/bin/sh\nexec "$@"\n')
    wrapper.chmod(0o755)
    with closing(tui(server.place, server.url)) as terminal:
        terminal.submit("[scene:bash:./my-wrapper touch wrapped.txt] make it")
        terminal.wait(("Do you trust them",), 40)
        terminal.key("Enter", pause_s=0.5)
        terminal.wait(("Permission required", r"my-wrapper touch wrapped\.txt"), 60)
        assert not (project / "wrapped.txt").exists()
        terminal.key("Enter", pause_s=0.5)
        wait_for_turns(terminal)
    assert (project / "wrapped.txt").exists()
