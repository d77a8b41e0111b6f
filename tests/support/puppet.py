"""An agent inside of the server that a test controls line by line.

    puppet = Puppet()
    async with live(tmp_path, agent=puppet) as server: ...
    run = await puppet.next_prompt()            # what the server handed to it: {run, text, ...}
    await puppet.say(run, type="step_start", step="s1")

It speaks the mock's protocol (`universal.agents.mock`), and lines that the mock has no need of: `tool_input {tool, delta}`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from shim.agents import setup
from shim.agents.directory import AgentDirectory
from shim.processes.inprocess import Stdio
from tests.support.specs import change
from universal import codec as c
from universal.agents.mock.codec import MockCodec
from universal.agents.mock.spec import MOCK
from universal.agents.mock.wire import Frame, line_of, need
from universal.codec import Output
from universal.events import EventType, ItemDeltaData
from universal.lib.jsonline import parse
from universal.lib.jsonvalue import obj

NAME = "scripted"
"""How the recorded models' provider is called."""
MODELS = ("scripted", "other")
LIMITS = {"context": 100_000, "output": 8000}
HEARD_S = 5.0
"""For the server to hand over a prompt that it has accepted."""


class PuppetCodec(MockCodec):
    """The mock's, and pieces of a call's arguments."""

    name = NAME

    def _tool_input(self, frame: Frame) -> list[Output]:
        tool = self._tools[self._find(frame, "tool")]
        delta = need(frame, "delta")
        data = ItemDeltaData(item_id=tool.item_id, native_item_id=tool.call_id, delta=delta, part_index=0, part_type="tool_input")
        return [tool.items.fact(EventType.ITEM_DELTA, data, frame)]

    HANDLERS: ClassVar[dict[str, Any]] = {**MockCodec.HANDLERS, "tool_input": _tool_input}


@dataclass(frozen=True, eq=False)
class PuppetPrompt:
    """A prompt, and where its answer goes."""

    frame: Frame
    stdio: Stdio

    @property
    def run(self) -> str:
        """Its key."""
        return str(self.frame["run"])


@dataclass
class Puppet:
    """The program of all sessions. `lines`: what the server wrote beside prompts (replies, interrupts)."""

    lines: list[Frame] = field(default_factory=list)
    _told: dict[str, int] = field(default_factory=dict[str, int])
    _heard: asyncio.Condition = field(default_factory=asyncio.Condition)
    _prompts: asyncio.Queue[PuppetPrompt] = field(default_factory=asyncio.Queue)

    async def __call__(self, stdio: Stdio) -> int:
        while (line := await stdio.read()) is not None:
            frame = obj(parse(line))
            if frame["type"] == "hello":
                models = [
                    {"id": id_, "name": id_.title(), "reasoning": True, "context": 100_000, "output": 8000} for id_ in MODELS
                ]
                await stdio.write(line_of({"type": "hello", "models": models, "commands": []}))
            elif frame["type"] == "prompt":
                self._prompts.put_nowait(PuppetPrompt(frame, stdio))
            else:
                async with self._heard:
                    self.lines.append(frame)
                    self._heard.notify_all()
        return 0

    async def next_prompt(self) -> PuppetPrompt:
        """The next prompt that the server hands over. Raises TimeoutError."""
        async with asyncio.timeout(HEARD_S):
            return await self._prompts.get()

    async def answer(self) -> None:
        """From now on, answer each prompt without a word."""
        while True:
            heard = await self._prompts.get()
            await self.say(heard, type="done", run=heard.run, status="completed")

    async def wait_for_line(self, kind: str) -> None:
        """Wait for the next line of this kind (see `lines`). Raises TimeoutError."""
        seen = self._told.get(kind, 0)
        async with asyncio.timeout(HEARD_S), self._heard:
            await self._heard.wait_for(lambda: sum(line["type"] == kind for line in self.lines) > seen)
        self._told[kind] = seen + 1

    async def say(self, to: PuppetPrompt, **frame: Any) -> None:
        """One line."""
        await to.stdio.write(line_of({key: value for key, value in frame.items() if value is not None}))

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be the only agent of servers that are built from now on."""
        models = tuple(c.Model(id=id_, name=id_.title(), reasoning=True, **LIMITS) for id_ in MODELS)
        catalogue = c.Catalogue(models=models, commands=(), default_model=MODELS[0])
        spec = change(MOCK, name=NAME, title="Scripted", make=PuppetCodec, catalogue=catalogue)

        def directory(specs: Any, **options: Any) -> AgentDirectory:
            return AgentDirectory(specs, **{**options, "programs": {NAME: self}})

        monkeypatch.setattr(setup, "known_agents", lambda: {NAME: spec})
        monkeypatch.setattr(setup, "AgentDirectory", directory)
