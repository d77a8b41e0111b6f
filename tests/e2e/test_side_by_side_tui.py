"""The TUI with Claude behind us, beside the TUI on native OpenCode: the same scene, the same screen.

Native's screens are kept in compat_fixtures/opencode/1.18.33/screens/tui (made by tests/e2e/record_native.py). Where ours
differ for a reason, ours is kept beside it as SCENE.STOP.claude.txt, and `DIFFERENCES` has the reason.
"""

from __future__ import annotations

import pytest

from .support.bench import CLAUDE, Bench, nightly
from .support.normal import assert_same
from .support.scenes import SCREENS, TUI_SCENES
from .support.tmux import Terminal
from .support.tui import new_session

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

DIFFERENCES: dict[str, str] = {
    "todo.end": "Claude makes its list one entry a call (TaskCreate), so there are more cards.",
    "task.end": "Claude 2.1.330 runs subagents in the background, names their kind otherwise, and speaks again.",
    "tool_abort.end": "Claude says nothing of what an interrupted command wrote, and shows no output before a command ends.",
    "error.end": "The words are Claude's own.",
}
"""Every other screen is equal to native's."""
IN_E2E = frozenset({"read_edit", "permission"})
"""The other scenes are nightly; questions and aborts are in `test_tui` too."""


@pytest.mark.parametrize("server", [CLAUDE], indirect=True)
@pytest.mark.parametrize("name", [name if name in IN_E2E else nightly(name)[0] for name in TUI_SCENES])
def test_the_screen_is_natives(server: Bench, terminal: Terminal, name: str) -> None:
    scene = TUI_SCENES[name]
    server.place.reset()
    new_session(terminal)
    terminal.submit(scene.prompt)
    for stop, screen in scene.play(terminal).items():
        native = (SCREENS / "tui" / f"{name}.{stop}.txt").read_text()
        ours = SCREENS / "tui" / f"{name}.{stop}.claude.txt"
        assert ours.exists() == (f"{name}.{stop}" in DIFFERENCES)
        assert_same(screen, ours.read_text() if ours.exists() else native, f"{name}.{stop}")
