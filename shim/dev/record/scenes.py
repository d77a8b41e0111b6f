"""The scenes of recordings, as data. The scripted model's part is in `shim.dev.scripted.answers`.

A scene is one session: prompts, waits, and answers to the agent's requests, in one or more processes. Permissions are accepted
unless the scene says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from universal.permissions import Decision

Until: TypeAlias = Literal["end", "delta", "tool", "ask", "accepted"]
"""The wait after a prompt: for the end of the turn, the first piece of text, a running tool, an open request, or nothing."""


@dataclass(frozen=True, slots=True)
class Say:
    """A prompt. `model`: no model, the default one or another one. `effort`: the strongest effort level.

    `steer`: for the turn that runs, as soon as the agent takes it in.
    """

    tag: str
    text: str = "please"
    until: Until = "end"
    model: Literal["", "usual", "other"] = ""
    effort: bool = False
    image: bool = False
    file: bool = False
    steer: bool = False


@dataclass(frozen=True, slots=True)
class Abort:
    """Interrupt the turn, and wait for its end."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the process, and wait for its exit."""


@dataclass(frozen=True, slots=True)
class Again:
    """End the process, and start another one that continues the conversation."""


@dataclass(frozen=True, slots=True)
class End:
    """Wait for the end of the running turn."""


Step: TypeAlias = Say | Abort | Kill | Again | End


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene. `permission` None leaves requests open; `answers` None refuses a question; `needs`: see `homes.Target.lacks`.

    `shows`: kinds of facts (`driver.KIND_CHECKS`) that a recording must have; without them it is not written.
    """

    steps: tuple[Step, ...]
    permission: Decision | None = "accept"
    answers: tuple[tuple[str, ...], ...] | None = (("Blue",),)
    needs: str = ""
    shows: tuple[str, ...] = ()


TOUCH = "touch made.txt && echo made"

SCENES: Mapping[str, Scene] = {
    "text": Scene((Say("text", "hello there"),)),
    "long": Scene((Say("long:40"),)),
    "reason": Scene((Say("reason", effort=True),), shows=("reasoning",)),
    "read_edit": Scene((Say("read_edit"),), shows=("tool",)),
    "write": Scene((Say("write"),), shows=("tool",)),
    "bash_once": Scene((Say(f"ask_bash:{TOUCH}"),), shows=("tool",)),
    "bash_always": Scene(
        (Say(f"ask_bash:{TOUCH}", "first"), Say(f"ask_bash:{TOUCH}", "again, this need not ask")),
        permission="accept_for_session",
        shows=("tool",),
    ),
    "bash_reject": Scene((Say(f"ask_bash:{TOUCH}"),), permission="reject", needs="permissions", shows=("ask",)),
    "bash_fails": Scene((Say("bash:echo out; echo err >&2; exit 3"),), shows=("tool",)),
    "slow_bash": Scene((Say("slow_bash:3"),), shows=("tool",)),
    "parallel": Scene((Say("parallel"),), shows=("tool",)),
    "fail_tool": Scene((Say("fail_tool"),), shows=("tool",)),
    "question": Scene((Say("question"),), needs="questions", shows=("question",)),
    "question_reject": Scene((Say("question"),), answers=None, needs="questions", shows=("question",)),
    "todo": Scene((Say("todo"),), needs="todos", shows=("todo",)),
    "task": Scene((Say("task:bash"),), needs="subagents", shows=("tool",)),
    "checked": Scene((Say("read_edit"), Say("task:read_edit", "and delegate")), needs="subagents", shows=("tool",)),
    "mcp": Scene((Say("mcp:echo"),), needs="mcp", shows=("tool",)),
    "image": Scene((Say("see:magenta", "what is this?", image=True),), needs="images"),
    "file": Scene((Say("see:magenta", "what is in it?", file=True),)),
    "error": Scene((Say("error"),), needs="errors", shows=("error",)),
    "limits": Scene((Say("used:92"), Say("limit", "all is used")), needs="plan", shows=("error",)),
    "overload": Scene((Say("overload", "be patient"),)),
    "drop": Scene((Say("drop", "be patient too"),)),
    "length": Scene((Say("length"),)),
    "abort_text": Scene((Say("hang", until="delta"), Abort(), Say("text", "after the abort"))),
    "abort_tool": Scene((Say("slow_bash:20", until="tool"), Abort(), Say("text", "after the abort"))),
    "abort_ask": Scene(
        (Say(f"ask_bash:{TOUCH}", until="ask"), Abort(), Say("text", "after the abort")),
        permission=None,
        needs="permissions",
        shows=("ask",),
    ),
    "queue": Scene((Say("slow_bash:2", "first", until="tool"), Say("text", "second, while the tool runs"))),
    "steer": Scene(
        (Say("slow_bash:3", "first", until="delta"), Say("text", "second, for the same turn", steer=True)), needs="steer"
    ),
    "three_turns": Scene((Say("text", "one"), Say("read_edit", "two"), Say("text", "three"))),
    "model_switch": Scene(
        (Say("text", "one", model="usual"), Say("text", "two", model="other"), Say("text", "three", model="usual")),
        needs="models",
    ),
    "resume": Scene((Say("text", "remember me"), Again(), Say("text", "resumed"))),
    "kill": Scene((Say("slow_bash:20", until="tool"), Kill(), Again(), Say("text", "after the kill"))),
}
