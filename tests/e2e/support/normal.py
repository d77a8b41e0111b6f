"""Normalises screens: removes directories, ids, times, durations, tokens, names of models and agents, and spinners.

`tui(screen)` gives the lines of the transcript and of an open dialog; the prompt box below them is left out.
`web(text)` gives the text of the web UI's transcript.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

DURATION = r"(?:\d+h )?(?:\d+m )?(?:\d+(?:\.\d+)?(?:ms|s)|\d+m)"
MODELS = r"Scripted|(?:Claude )?(?:Sonnet|Opus|Haiku|Fable|Mythos)[\w. ]*|Mock|Default \([^)]*\)|Default"
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

_TUI: list[tuple[str, str]] = [
    (r"/tmp/e2e-\w{8}/home/project", "DIRECTORY"),
    (rf"▣  (\w+) · (?:{MODELS})(?: · ({DURATION}|interrupted))?", r"▣  \1 · MODEL\2"),
    (rf"(▣  \w+ · MODEL){DURATION}", r"\1 · TIME"),
    (r"(▣  \w+ · MODEL)interrupted", r"\1 · interrupted"),
    (rf"↳ (\d+ toolcalls? · )?{DURATION}", r"↳ \1TIME"),
    (rf"Thought: {DURATION}", "Thought: TIME"),
    (rf"[{SPINNER}]", "*"),
    (r"(ses|msg|prt|per|que)_[0-9A-Za-z]+", r"\1_ID"),
]


def _replace(text: str, table: Iterable[tuple[str, str]]) -> str:
    for pattern, by in table:
        text = re.sub(pattern, by, text)
    return text


def _without_prompt_box(lines: list[str]) -> list[str]:
    """What is above the input box: it ends with a line `╹▀▀▀`, and begins after the last line without a border above that."""
    ends = [n for n, line in enumerate(lines) if line.lstrip().startswith("╹▀")]
    if not ends:
        return lines
    at = ends[-1] - 1
    while at >= 0 and lines[at].lstrip().startswith("┃"):
        at -= 1
    return lines[: at + 1]


def tui(screen: str) -> str:
    """The transcript, with runs of empty lines as one, and without toasts at the right."""
    lines = [line.rstrip() for line in _without_prompt_box(screen.splitlines())]
    text = "\n".join(re.sub(r"\s{10,}┃.*┃$", "", line).rstrip() for line in lines)
    text = _replace(text, _TUI)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


_WEB: list[tuple[str, str]] = [
    (r"/tmp/e2e-\w{8}/home/project", "DIRECTORY"),
    ("\u00a0", " "),
    ("[\u202a-\u202e]", ""),
    (r"\d{1,2}:\d\d [AP]M", "CLOCK"),
    (rf"\b(Build|Plan) · (?:{MODELS})", r"\1 · MODEL"),
    (r"(MODEL)\s+·\s+CLOCK", r"\1 · CLOCK"),
    (rf"(MODEL · ){DURATION}", r"\1TIME"),
    (r"(ses|msg|prt|per|que)_[0-9A-Za-z]+", r"\1_ID"),
]


def web(text: str) -> str:
    """The transcript's text, one line for each run of text, without empty lines."""
    lines = [line.strip() for line in _replace(text, _WEB).splitlines()]
    return "\n".join(line for line in lines if line) + "\n"


def assert_same(ours: str, expected: str, what: str) -> None:
    """AssertionError with the lines that differ."""
    diff = difflib.unified_diff(expected.splitlines(), ours.splitlines(), "expected", "ours", lineterm="", n=30)
    shown = "\n".join(diff)
    assert not shown, f"{what}:\n{shown}"
