"""OpenCode's web UI in Chromium: open a project, send a prompt, read the transcript, answer dialogs."""

from __future__ import annotations

import json
import re

from . import normal
from .browser import Browser, url64
from .children import wait_for
from .places import Place

EDITOR = '[data-component="prompt-input"], [contenteditable="true"]'
MODEL_PICKER = '[data-action="prompt-model"]'
TURNS = '[data-component="session-turn"]'
STOP = '[data-action="prompt-submit"][aria-label="Stop"]'
DIALOG = '[data-component="dock-prompt"]'
START_S = 60


def know_project(browser: Browser, place: Place) -> None:
    """The UI asks for a project in a dialog unless its storage names one; "local" is a server on this machine."""
    directory = str(place.project)
    servers = {
        "list": [],
        "projects": {"local": [{"worktree": directory, "expanded": True}]},
        "lastProject": {"local": directory},
        "recentlyClosed": {},
    }
    browser.do("storage", entries={"opencode.global.dat:server": json.dumps(servers)})


def new_session(browser: Browser, place: Place, url: str) -> None:
    """The page of a new session in the place's project, ready for a prompt: before it has a model, Enter does nothing."""
    browser.goto(f"{url}/{url64(str(place.project))}/session")
    browser.wait(MODEL_PICKER, timeout_s=START_S)
    browser.wait(EDITOR)


def submit(browser: Browser, prompt: str) -> None:
    browser.do("type", selector=EDITOR, text=prompt)
    browser.press("Enter")
    wait_for(lambda: prompt not in browser.text(EDITOR), 10, lambda: f"the prompt was not taken:\n{browser.text()}")


def transcript(browser: Browser) -> str:
    """The text of all turns on the page, normalised. Rolling digits show as their value."""
    return normal.web("\n".join(browser.do("turns", selector=TURNS)))


def settled_transcript(browser: Browser) -> str:
    """The transcript when three looks in a row give the same: Markdown and diffs are drawn a moment after their text came."""
    seen: list[str] = []

    def look() -> str | None:
        browser.do("rest")
        seen.append(transcript(browser))
        return seen[-1] if len(seen) > 2 and seen[-1] == seen[-2] == seen[-3] else None

    return wait_for(look, 20, "the page does not come to rest")


def busy(browser: Browser) -> bool:
    return browser.do("count", selector=STOP) > 0


def wait_idle(browser: Browser, timeout_s: float = 40) -> None:
    wait_for(lambda: not busy(browser), timeout_s, lambda: f"still busy:\n{browser.text()}")


def session_id(browser: Browser) -> str:
    found = re.search(r"/session/(ses_\w+)", browser.do("url"))
    assert found, f"no session is open: {browser.do('url')}"
    return found[1]


def wait_for_turn_end(browser: Browser) -> None:
    """Waits for the foot line of the turn, and until nothing is busy."""
    browser.wait_text(r"·\s+\d+(\.\d+)?m?s", 60)
    wait_idle(browser)
