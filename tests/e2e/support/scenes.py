"""The scenes that are played on native OpenCode and on ours alike, in the TUI and in the web UI.

A scene is a prompt for the scripted model and what a person does meanwhile. Playing it gives one normalised screen per
stop of the scene ("asked", "end" ...). Those of native OpenCode are kept in compat_fixtures/opencode/VERSION/screens.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import normal, webui
from .browser import Browser
from .places import CURRENT, REPO
from .tmux import Terminal
from .tui import abort

SCREENS = REPO / "compat_fixtures" / "opencode" / CURRENT / "screens"
CONFIG = {"permission": {"edit": "allow", "read": "allow", "bash": {"*": "allow", "touch *": "ask", "git push *": "ask"}}}
"""OpenCode's configuration for the scenes: only `touch` and `git push` are asked about, whichever agent runs them.

Reading is allowed as it is without a rule, for agents that ask about it by themselves (fast-agent).
"""
TURN_S = 40
FINISHED = re.compile(rf"▣ .* · {normal.DURATION}\b")
Shots = dict[str, str]
Look = Callable[[str], None]
"""Takes a picture of a stop."""


def wait_for_turns(terminal: Terminal, turns: int = 1) -> None:
    """Waits for the foot line of the last turn, which has its duration."""
    terminal.wait(lambda screen: len(FINISHED.findall(screen)) >= turns, TURN_S)


@dataclass(frozen=True)
class TuiScene:
    name: str
    prompt: str
    play: Callable[[Terminal], Shots]


def _shot(terminal: Terminal) -> str:
    terminal.settle(0.8)
    return normal.tui(terminal.screen())


def _simple(terminal: Terminal) -> Shots:
    wait_for_turns(terminal)
    return {"end": _shot(terminal)}


def _answer_dialog(want: str, *keys: str) -> Callable[[Terminal], Shots]:
    """Waits for a dialog, answers it with keys, and waits for the end."""

    def play(terminal: Terminal) -> Shots:
        terminal.wait(want, TURN_S)
        asked = _shot(terminal)
        terminal.key(*keys, pause_s=0.4)
        wait_for_turns(terminal)
        return {"asked": asked, "end": _shot(terminal)}

    return play


_TICK = "echo tick 1; sleep 24"
"""Claude tells what a command wrote only when it has ended, so only the call itself can be waited for, not its output."""


def _abort_turn(want: str, after_s: float = 0) -> Callable[[Terminal], Shots]:
    def play(terminal: Terminal) -> Shots:
        terminal.wait(want, TURN_S)
        time.sleep(after_s)
        abort(terminal)
        return {"end": _shot(terminal)}

    return play


def _wait_for_failure(terminal: Terminal) -> Shots:
    terminal.wait("scripted failure", TURN_S)
    terminal.wait("esc interrupt", TURN_S, gone=True)
    return {"end": _shot(terminal)}


TUI_SCENES: dict[str, TuiScene] = {
    scene.name: scene
    for scene in (
        TuiScene("text", "[scene:text] say hello", _simple),
        TuiScene("markdown", "[scene:markdown] write", _simple),
        TuiScene("read_edit", "[scene:read_edit] Read README.md and add a line", _simple),
        TuiScene("write", "[scene:write] write a file", _simple),
        TuiScene("bash", "[scene:bash] run something", _simple),
        TuiScene("parallel", "[scene:parallel] read both", _simple),
        TuiScene("reason", "[scene:reason] think", _simple),
        TuiScene("todo", "[scene:todo] plan", _simple),
        TuiScene("task", "[scene:task] delegate", _simple),
        TuiScene("fail_tool", "[scene:fail_tool] read what is missing", _simple),
        TuiScene("bash_fail", "[scene:bash:echo out; echo err >&2; exit 3] fail", _simple),
        TuiScene("question", "[scene:question] ask me", _answer_dialog(r"Which colour\?[\s\S]*enter submit", "Enter")),
        TuiScene("permission", "[scene:bash:touch made.txt] make a file", _answer_dialog("Permission required", "Enter")),
        TuiScene("abort", "[scene:hang] think", _abort_turn("for a long time")),
        TuiScene("tool_abort", f"[scene:bash:{_TICK}] run", _abort_turn(rf"[{normal.SPINNER}$] echo tick 1", 2.5)),
        TuiScene("error", "[scene:error] fail", _wait_for_failure),
    )
}


# --- the web UI ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WebScene:
    """As `TuiScene`; screenshots are taken at the same stops by `look`."""

    name: str
    prompt: str
    play: Callable[[Browser, Look], Shots]


def _web_shot(browser: Browser, look: Look, stop: str) -> str:
    text = webui.settled_transcript(browser)
    look(stop)
    return text


def _web_simple(browser: Browser, look: Look) -> Shots:
    browser.wait_text(WEB_FINISHED, TURN_S)
    webui.wait_idle(browser)
    return {"end": _web_shot(browser, look, "end")}


def _web_asked(want: str, *clicks: str) -> Callable[[Browser, Look], Shots]:
    def play(browser: Browser, look: Look) -> Shots:
        browser.wait_text(want, TURN_S)
        browser.do("rest")
        look("asked")
        asked = normal.web(browser.text(webui.DIALOG))
        for click in clicks:
            browser.click(click)
        browser.wait_text(WEB_FINISHED, TURN_S)
        webui.wait_idle(browser)
        return {"asked": asked, "end": _web_shot(browser, look, "end")}

    return play


def _web_opened(*clicks: str) -> Callable[[Browser, Look], Shots]:
    """After the end, opens cards by clicks."""

    def play(browser: Browser, look: Look) -> Shots:
        shots = _web_simple(browser, look)
        for click in clicks:
            browser.click(click)
        return {**shots, "opened": _web_shot(browser, look, "opened")}

    return play


def _web_stopped(want: str) -> Callable[[Browser, Look], Shots]:
    def play(browser: Browser, look: Look) -> Shots:
        browser.wait_text(want, TURN_S)
        browser.click(webui.STOP)
        webui.wait_idle(browser)
        browser.wait_text("Interrupted", 10)
        return {"end": _web_shot(browser, look, "end")}

    return play


def _web_failed(browser: Browser, look: Look) -> Shots:
    browser.wait_text("scripted failure", TURN_S)
    webui.wait_idle(browser)
    return {"end": _web_shot(browser, look, "end")}


WEB_FINISHED = r"(Build|Plan)\s+·\s+[^\n]+\s+·\s+\d+(\.\d+)?m?s"
CHOOSE_RED = ('[data-slot="question-option"]', 'button:text-is("Submit")')
ALLOW = 'button:text-is("Allow once")'
CARD = '[data-slot="collapsible-trigger"]'
WEB_SCENES: dict[str, WebScene] = {
    scene.name: scene
    for scene in (
        WebScene("text", "[scene:text] say hello", _web_simple),
        WebScene("markdown", "[scene:markdown] write", _web_simple),
        WebScene("read_edit", "[scene:read_edit] Read README.md and add a line", _web_opened(f'{CARD}:has-text("Edit")')),
        WebScene("write", "[scene:write] write a file", _web_opened(f'{CARD}:has-text("Write")')),
        WebScene("bash", "[scene:bash] run something", _web_opened(f'{CARD}:has-text("Shell")')),
        WebScene("reason", "[scene:reason] think", _web_simple),
        WebScene("todo", "[scene:todo] plan", _web_simple),
        WebScene("task", "[scene:task] delegate", _web_simple),
        WebScene("fail_tool", "[scene:fail_tool] read what is missing", _web_simple),
        WebScene(
            "question",
            "[scene:question] ask me",
            _web_asked("Which colour", '[data-slot="question-option"]', 'button:text-is("Submit")'),
        ),
        WebScene(
            "permission", "[scene:bash:touch made.txt] make a file", _web_asked("Allow once", 'button:text-is("Allow once")')
        ),
        WebScene("stop", "[scene:hang] think", _web_stopped("for a long time")),
        WebScene("error", "[scene:error] fail", _web_failed),
    )
}
