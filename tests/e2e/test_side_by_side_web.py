"""The web UI with Claude behind us, beside the web UI on native OpenCode: the same scene, the same transcript.

Native's transcripts are kept in compat_fixtures/opencode/1.18.33/screens/web (made by tests/e2e/record_native.py). Where ours
differ for a reason, ours is kept beside it as SCENE.STOP.claude.txt, and `DIFFERENCES` has the reason. With E2E_PICTURES
set, pictures of ours go to docs/pictures/claude, beside those of native.
"""

from __future__ import annotations

import os

import pytest

from .support import webui
from .support.bench import CLAUDE, Bench
from .support.browser import Browser
from .support.normal import assert_same
from .support.places import REPO
from .support.scenes import SCREENS, WEB_SCENES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.server(CLAUDE, SHIM_WEB_UI="true")]
PICTURES = REPO / "docs" / "pictures" / "claude"

DIFFERENCES: dict[str, str] = {
    "task.end": "Claude 2.1.330 runs subagents in the background by default, names their kind, and speaks again at their end.",
    "error.end": "The words are Claude's own.",
}
"""Every other transcript is equal to native's."""


@pytest.mark.nightly
@pytest.mark.parametrize("name", WEB_SCENES)
def test_the_transcript_is_natives(server: Bench, web_ui: Browser, name: str) -> None:
    scene = WEB_SCENES[name]
    server.place.reset()
    webui.new_session(web_ui, server.place, server.url)
    webui.submit(web_ui, scene.prompt)

    def look(stop: str) -> None:
        if os.environ.get("E2E_PICTURES"):
            web_ui.screenshot(PICTURES / f"{name}.{stop}.png")

    for stop, text in scene.play(web_ui, look).items():
        native = (SCREENS / "web" / f"{name}.{stop}.txt").read_text()
        ours = SCREENS / "web" / f"{name}.{stop}.claude.txt"
        if os.environ.get("E2E_ACCEPT") and f"{name}.{stop}" in DIFFERENCES:
            ours.write_text(text)
        assert ours.exists() == (f"{name}.{stop}" in DIFFERENCES)
        assert_same(text, ours.read_text() if ours.exists() else native, f"{name}.{stop}")
