"""The scenes that are recorded in `compat_fixtures/agents/mock`: every word of the mock, and the ways that it can go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shim.processes.mock.scenes import SCENES
from tests.fakes.mock_session import MockSession, Reply, accept, always, reject


@dataclass(frozen=True)
class Scenario:
    """Prompts, one turn after the other; who answers; when it is aborted. `turns`: how many turns that makes."""

    prompts: tuple[str, ...]
    reply: Reply | None = accept
    interrupt_at: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    mode: str | None = None
    ends: tuple[str, ...] = ("completed",)


_USAGE = {"echo": "echo Hello, world", "slow": "slow 2", "burst": "burst 20"}
_ENDS = {"error": ("error",), "crash": ("agent_exited",), "exit": ("agent_exited",), "wake": ("completed", "completed")}
_SPECIAL: dict[str, Scenario] = {
    "hang": Scenario(("hang",), interrupt_at=7, ends=("aborted",)),
    "other": Scenario(("Anything else  is echoed,\nwith its white space.\n",)),
    "edit_existing": Scenario(("edit notes.md",), files={"notes.md": "# Notes\n\none\none\n"}),
    "edit_plan": Scenario(("edit",), mode="plan"),
    "edit_outside": Scenario(("edit ../secret",)),
    "permission_always": Scenario(("permission", "permission"), reply=always, ends=("completed", "completed")),
    "permission_reject": Scenario(("permission",), reply=reject()),
    "permission_feedback": Scenario(("permission",), reply=reject("use a branch")),
    "permission_interrupted": Scenario(("permission",), reply=None, interrupt_at=8, ends=("aborted",)),
    "question_one": Scenario(("question 1",)),
    "question_reject": Scenario(("question",), reply=reject()),
    "plan_reject": Scenario(("plan",), reply=reject()),
    "remember": Scenario(("echo one", "remember"), ends=("completed", "completed")),
    "tool_interrupted": Scenario(("tool",), interrupt_at=6, ends=("aborted",)),
    "subagent_interrupted": Scenario(("subagent",), interrupt_at=14, ends=("aborted",)),
    "background_interrupted": Scenario(("background",), interrupt_at=28, ends=("aborted",)),
}

SCENARIOS: dict[str, Scenario] = {
    **{name: Scenario((_USAGE.get(name, name),), ends=_ENDS.get(name, ("completed",))) for name in SCENES},
    **_SPECIAL,
}


async def play(scenario: Scenario, directory: Path) -> MockSession:
    """Run it to its end; the agent is stopped then."""
    for name, content in scenario.files.items():
        (directory / name).write_text(content)
    session = MockSession(directory, reply=scenario.reply, interrupt_at=scenario.interrupt_at, mode=scenario.mode)
    session.start()
    try:
        for n, prompt in enumerate(scenario.prompts, 1):
            session.prompt(prompt)
            await session.idle(n)
        await session.idle(len(scenario.ends))
        if scenario.prompts == ("late",):
            await session.until(lambda: "And another thing." in session.text())
    finally:
        await session.stop()
    return session
