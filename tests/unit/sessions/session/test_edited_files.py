"""Lines behind an edit wait until its file is formatted, and its diff has the formatter's change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from shim.host.files.formatters import FormattedFile
from shim.sessions.session import edited_files
from shim.sessions.session.edited_files import EditedFiles
from tests.support.scripted_model import ask, world
from universal.codec import Fact, FilesChanged, Output, WriteLine
from universal.events import EventType, ItemData
from universal.items import FileRefPart, Item, ItemKind, ItemStatus
from universal.lib.diffs import unified_diff
from universal.sandbox import Bounds

LINES: dict[bytes, list[Output]] = {
    b"changed": [FilesChanged("key", ("/p/a",))],
    b"text": [WriteLine(b"text")],
}


def edit(status: ItemStatus = ItemStatus.COMPLETED, diff: str | None = None) -> Fact:
    part = FileRefPart(path="/p/a", action="patch", diff=diff or unified_diff("/p/a", "old\n", "new\n"))
    item = Item(item_id="itm_1", kind=ItemKind.TOOL_RESULT, status=status, content=(part,))
    return Fact(EventType.ITEM_COMPLETED, ItemData(item=item))


class Agent:
    """Gives lines to the file's room as `SessionAgent.receive` does. `seen`: what came out of it, in order."""

    def __init__(self) -> None:
        self.seen: list[Output] = []
        self.formatted: list[str] = []
        self.gate = asyncio.Event()
        self.generation = 1
        self.files = EditedFiles(self._format, self.on_lines, lambda key: [WriteLine(key.encode())])
        self.files.is_on = True

    async def _format(self, path: str) -> FormattedFile | None:
        await self.gate.wait()
        self.formatted.append(path)
        return FormattedFile("new\n", "NEW\n")

    def on_lines(self, generation: int, lines: list[bytes]) -> Awaitable[None] | None:
        self._receive(generation, lines)
        return self.files.pause(generation, None) if self.files.is_on else None

    def _receive(self, generation: int, lines: list[bytes]) -> None:
        if generation != self.generation:
            return
        self.seen += self.files.ready.pop(generation, ())
        for at, line in enumerate(lines):
            outputs = LINES.get(line, [edit()])
            if self.files.is_on and self.files.hold(generation, outputs, lines[at + 1 :]):
                return
            self.seen += outputs

    def diffs(self) -> list[str | None]:
        items = [output.data.item for output in self.seen if isinstance(output, Fact) and isinstance(output.data, ItemData)]
        return [part.diff for item in items for part in item.content if isinstance(part, FileRefPart)]


async def test_lines_behind_an_edit_wait_and_its_diff_has_the_formatters_change() -> None:
    agent = Agent()
    pause = agent.on_lines(1, [b"text", b"edit", b"text", b"edit"])
    assert pause is not None
    assert agent.seen == [WriteLine(b"text")]
    agent.gate.set()
    await pause
    assert agent.diffs() == [unified_diff("/p/a", "old\n", "NEW\n")] * 2
    assert [type(output) for output in agent.seen] == [WriteLine, Fact, WriteLine, Fact]


async def test_an_agent_that_waits_goes_on_and_its_file_is_formatted_once() -> None:
    agent = Agent()
    agent.gate.set()
    pause = agent.on_lines(1, [b"changed", b"edit"])
    assert pause is not None
    await pause
    assert agent.seen[0] == WriteLine(b"key")
    assert agent.diffs() == [unified_diff("/p/a", "old\n", "NEW\n")]
    assert agent.formatted == ["/p/a"]


async def test_lines_do_not_wait_without_formatters() -> None:
    agent = Agent()
    agent.files.is_on = False
    assert agent.on_lines(1, [b"edit"]) is None
    assert (agent.formatted, len(agent.seen)) == ([], 1)


async def test_nothing_is_formatted_in_a_sandbox() -> None:
    """What an agent writes there could be code of the formatter's settings."""
    formatters: Any = SimpleNamespace(format=AsyncMock(return_value=FormattedFile("", "more\n")))
    w = world()
    w.manager.deps.setups.formatters = formatters
    await w.store.open()
    session = w.session()
    await ask(w, session)
    actor = await w.manager.actor(session)
    assert await actor.process.format_file("a") == FormattedFile("", "more\n")
    actor.process.sandbox.hold(Bounds("project"), None, None, may_change=True)
    assert await actor.process.format_file("a") is None


def test_a_failed_edit_is_not_formatted() -> None:
    assert not Agent().files.hold(1, [edit(ItemStatus.FAILED)], [])


async def test_results_of_a_dropped_process_are_dropped_with_it() -> None:
    """A turn that is aborted while a formatter hangs: the next process has none of the first one's results."""
    agent = Agent()
    first = agent.on_lines(1, [b"edit", b"text"])
    assert first is not None
    agent.generation = 2
    assert agent.on_lines(2, [b"text"]) is None
    agent.gate.set()
    await first
    assert agent.on_lines(2, [b"text"]) is None
    assert agent.seen == [WriteLine(b"text")] * 2
    assert not agent.files.ready


async def test_a_result_with_slow_files_does_not_hold_the_agent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent()
    agent.gate.set()
    monkeypatch.setattr(edited_files, "RESULT_S", 0.0)
    pause = agent.on_lines(1, [b"edit", b"text"])
    assert pause is not None
    await pause
    assert agent.formatted == []
    assert agent.diffs() == [unified_diff("/p/a", "old\n", "new\n")]
    assert agent.seen[-1] == WriteLine(b"text")


async def test_a_diff_that_does_not_fit_gets_the_formatters_behind_it() -> None:
    agent, own = Agent(), "@@ -1 +1 @@\n-x\n+y\n"
    agent.gate.set()
    LINES[b"strange"] = [edit(diff=own)]
    pause = agent.on_lines(1, [b"strange"])
    assert pause is not None
    await pause
    assert agent.diffs() == [f"{own}@@ -1 +1 @@\n-new\n+NEW\n"]
