"""Formats the files that an agent has changed, and puts what that changes into the diffs of its tools.

Lines of the agent behind a result wait until its files are formatted. An agent that waits itself (`FilesChanged`) goes on after
that; with any other, a formatter runs beside the agent's next step, since nothing of its protocol can hold it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from shim.host.files.formatters import FormattedFile
from universal.codec import Fact, FilesChanged, Output
from universal.events import EventType, ItemData
from universal.items import FileRefPart, ItemStatus
from universal.lib.diffs import hunks, text_before, unified_diff

FILES_LIMIT = 50
"""Maximum files of one result that are formatted, and formatted files whose result is still to come."""
RESULT_S = 60.0
"""Seconds after which no further file of a result is formatted: the agent's next lines wait."""


class EditedFiles:
    """The files that the agent of one session changes.

    In: `format`, which formats a file, by its path, and raises nothing; `on_lines` handles lines of a generation,
    and returns what the next ones wait for (`pause`); `proceed` lets an agent go on that waits.
    """

    def __init__(
        self,
        format: Callable[[str], Awaitable[FormattedFile | None]],
        on_lines: Callable[[int, list[bytes]], Awaitable[None] | None],
        proceed: Callable[[str], Sequence[Output]],
    ) -> None:
        self._format, self._on_lines, self._proceed = format, on_lines, proceed
        self.is_on = False
        """Whether the set-up has formatters."""
        self.ready: dict[int, Sequence[Output]] = {}
        """Generation -> outputs whose files are formatted now. They come before its next lines."""
        self._held: dict[int, tuple[Sequence[Output], list[bytes]]] = {}
        self._goes_on = False
        """True while held lines are handled: what they hold is waited for in the same loop."""
        self.is_waiting = False
        """Whether outputs of the agent wait for formatters."""
        self._early: dict[str, FormattedFile | None] = {}
        """Files that were formatted before the result of their call."""

    def hold(self, generation: int, outputs: Sequence[Output], rest: list[bytes]) -> bool:
        """Whether outputs of a generation wait for formatters, and the lines behind them too."""
        if not any(type(output) is FilesChanged or _edits(output) for output in outputs):
            return False
        self._held[generation] = outputs, rest
        self.is_waiting = True
        return True

    def pause(self, generation: int, pause: Awaitable[None] | None) -> Awaitable[None] | None:
        """What the next lines of a generation wait for after these. In: what they wait for anyway."""
        return self._go_on(generation, pause) if generation in self._held and not self._goes_on else pause

    async def _go_on(self, generation: int, pause: Awaitable[None] | None) -> None:
        while True:
            if pause is not None:
                await pause
            if generation not in self._held:
                return
            outputs, rest = self._held.pop(generation)
            self.ready[generation] = [ready for output in outputs for ready in await self._format_all(output)]
            self._goes_on, self.is_waiting = True, False
            try:
                pause = self._on_lines(generation, rest)
            finally:
                self._goes_on = False
            self.ready.pop(generation, None)  # its process was dropped meanwhile

    async def _format_all(self, output: Output) -> Sequence[Output]:
        """What comes in the place of an output when its files are formatted."""
        end = asyncio.get_running_loop().time() + RESULT_S

        async def format(path: str) -> FormattedFile | None:
            return await self._format(path) if asyncio.get_running_loop().time() < end else None

        if isinstance(output, FilesChanged):
            for path in output.paths[:FILES_LIMIT]:
                self._early[path] = await format(path)
            while len(self._early) > FILES_LIMIT:
                del self._early[next(iter(self._early))]
            return self._proceed(output.key)
        edits = _edits(output)
        if not edits:
            return (output,)
        assert isinstance(output, Fact)
        assert isinstance(output.data, ItemData)
        parts: dict[FileRefPart, FileRefPart] = {}
        for part in edits[:FILES_LIMIT]:
            file = self._early.pop(part.path) if part.path in self._early else await format(part.path)
            if file is not None:
                parts[part] = part.model_copy(update={"diff": diff_after(part, file)})
        content = tuple(parts.get(part, part) if isinstance(part, FileRefPart) else part for part in output.data.item.content)
        item = output.data.item.model_copy(update={"content": content})
        return (output._replace(data=ItemData(item=item)),)


def _edits(output: Output) -> list[FileRefPart]:
    """The files that the result of a call says it has changed."""
    if type(output) is not Fact or output.type is not EventType.ITEM_COMPLETED or not isinstance(output.data, ItemData):
        return []
    if output.data.item.status is ItemStatus.FAILED:
        return []
    return [part for part in output.data.item.content if isinstance(part, FileRefPart) and part.action != "read"]


def diff_after(part: FileRefPart, file: FormattedFile) -> str:
    """The diff of a call with what the formatters have changed. If its own does not fit the file, theirs comes behind it."""
    own, theirs = part.diff or "", unified_diff(part.path, file.before, file.after)
    before = text_before(file.before, own)
    if before is not None and own:
        return unified_diff(part.path, before, file.after, created=part.action == "write" and not before)
    return own + hunks(theirs) if own else theirs
