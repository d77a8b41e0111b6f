"""The modes that an ACP agent reports, under names that people and OpenCode's clients know. Pure.

What a profile knows of a mode (its name, a sentence on what it lets the agent do) is kept; modes that no profile knows are
offered all the same, with the agent's own words, and passed through by the agent's own id.
Source: recordings; runs of Copilot CLI 1.0.102 (ids are URLs), Qwen Code 0.15.10 and 0.24.4, Gemini CLI 0.61.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from universal.agents.acp.context import Msg
from universal.codec import Mode
from universal.lib.jsonline import get_text

BUILD_ID = "build"
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")


def name_of(native: str) -> str:
    """Return our id of an agent's mode: `autoEdit` -> `auto-edit`, Copilot's `https://.../session-modes#plan` -> `plan`."""
    last = re.split(r"[#/]", native.rstrip("#/"))[-1]
    return "-".join(word.lower() for word in _WORDS.split(last) if word) or native


def offered_modes(
    profile_modes: Sequence[Mode], rows: Sequence[Msg], usual: str, has_option: Callable[[str, str], bool]
) -> tuple[Mode, ...]:
    """Return the modes that a person can choose, `build` first.

    In: `profile_modes`, the first one is `build`; `rows`, what the agent offers, {value | id, name, description};
    `usual`, the mode that it begins in; `has_option(option, value)` for modes of the form `option=value`.
    """
    by_id = {get_text(row, "value", "id"): row for row in rows if get_text(row, "value", "id")}
    first, *rest = profile_modes
    build = next((value for value in by_id if name_of(value) == BUILD_ID), first.native or usual)
    native = first.native or (build if build in by_id else "")
    words = get_text(by_id.get(build, {}), "description")
    modes = {BUILD_ID: Mode(BUILD_ID, words if words and not first.native else first.description, native)}
    for mode in rest:
        option, equals, value = mode.native.partition("=")
        if equals and has_option(option, value):
            modes[mode.id] = mode
    for value, row in by_id.items():
        curated = next((mode for mode in rest if value == mode.native), None)
        curated = curated or next((mode for mode in rest if mode.id == name_of(value)), None)
        if value in (build, modes[BUILD_ID].native):
            continue
        mode = curated or Mode(name_of(value), get_text(row, "description", "name"), value)
        modes.setdefault(mode.id, Mode(mode.id, mode.description, value))
    return tuple(modes.values())


def mode_named(modes: Sequence[Mode], name: str | None) -> Mode | None:
    """Return the mode that a prompt asks for, by our name or the agent's own, or None if there is none."""
    if not name or name == BUILD_ID:
        return modes[0]
    return next((mode for mode in modes if name in (mode.id, mode.native)), None)
