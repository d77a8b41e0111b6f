"""Snapshots of one session's files around its prompts and steps: when they are taken, and what is recorded of them.

A snapshot is taken before a prompt is handed to the agent (at most `HEAD_START_S` are waited for it, while the agent
starts), after each step that used tools, and when the prompt is answered: the turn is held open for that one, at most
`LAST_S`, so that idle comes after it. One at a time; everything else goes on meanwhile. A turn without tools pays
nothing at its end. What is recorded is a `snapshot` status (see `universal.session.reducer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol

import structlog

from shim.errors import ShimError
from shim.host.snapshot import NoSnapshots
from shim.sessions.session_state import SessionState
from shim.sessions.undo.undo_plan import names_in
from universal.diffs import FileDiff, file_diff
from universal.turn import OURS, Input

log = structlog.get_logger()

HEAD_START_S = 1.0
"""How long a prompt waits for the snapshot before it. Only a project's first one takes so long (0.9 s for 5,000 files);
later ones 0.02 s, and a first prompt waits longer for its agent to start."""
LAST_S = 3.0
"""How long a turn waits for its last snapshot. If it takes longer, the turn ends without, and what its last step changed
cannot be undone."""
HOLD = f"{OURS}snapshot"
"""The key by which the last one holds the turn."""
ENDINGS = (Input.DONE, Input.FAILED, Input.EXIT, Input.ABORT_TIMEOUT)
"""After these the agent changes nothing more for the prompt: time for the last snapshot."""
WHOLE_FILE = 1_000_000
"""Lines of context in the diffs that clients show: native gives whole files."""

Phase = Literal["start", "step", "end"]


class Change(Protocol):
    """A changed file, as git tells it."""

    @property
    def file(self) -> str: ...
    @property
    def additions(self) -> int: ...
    @property
    def deletions(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def patch(self) -> str | None: ...


class Trees(Protocol):
    """Where snapshots are kept: `shim.host.snapshot.Snapshots`. Everything raises ShimError."""

    async def track(self, directory: str) -> str:
        """The files as they are now; the name of a tree."""
        ...

    async def changed_files(self, directory: str, before: str, after: str) -> list[str]:
        """Names of files that differ."""
        ...

    async def diff(self, directory: str, before: str, after: str, names: list[str], context: int) -> list[Any]:
        """`Change`s of these files."""
        ...

    async def patch(self, directory: str, before: str, after: str) -> str:
        """All differences, as git shows them."""
        ...

    async def restore(self, directory: str, wanted: dict[str, str]) -> list[str]:
        """Put files back to what they are in a tree; sentences about those that were left alone."""
        ...


async def diffs_of(trees: Trees, directory: str, before: str, after: str, names: list[str]) -> list[FileDiff]:
    """The diffs from one tree to another, of these files, with all their lines."""
    return await diffs_between(trees, directory, before, after, names, WHOLE_FILE)


async def diffs_between(trees: Trees, directory: str, before: str, after: str, names: list[str], context: int) -> list[FileDiff]:
    """The same with so many lines around each change."""
    changes: list[Change] = await trees.diff(directory, before, after, names, context)
    return [file_diff(c.file, c.patch or "", c.additions, c.deletions, c.status) for c in changes]


def to_json(diffs: Iterable[FileDiff]) -> list[dict[str, Any]]:
    """Diffs as the journal keeps them."""
    return [diff.to_json() for diff in diffs]


class StepSnapshots:
    """The snapshots of one session. `trees` gives None when the person has switched them off, and in tests.

    `turn` gives an input and its key to the session's turn machine.
    """

    def __init__(
        self, state: SessionState, directory: str, trees: Callable[[str], Trees | None], turn: Callable[[Input, str], None]
    ) -> None:
        self._state = state
        self._turn = turn
        self._directory = directory
        self._trees = trees
        self._current: Trees | None = None
        self._has_notified = False
        self._last: asyncio.Task[None] | None = None
        self._step_due = False
        self._ending: asyncio.Task[None] | None = None
        self._late = False

    def look(self) -> bool:
        """Whether snapshots are to be taken here at all, until it is asked again. Reads the config: once a prompt."""
        self._current = self._trees(self._directory)
        return self._current is not None

    def before(self, input_: Input) -> None:
        """The turn machine is about to be given this: a snapshot may be due first."""
        if input_ in ENDINGS:
            self.finish()
        elif input_ is Input.ACTIVITY and not self._state.machine.busy:
            self._begin_soon()

    async def begin(self) -> None:
        """Before a prompt is handed: the files as they are. Returns when it is done, or after HEAD_START_S."""
        if self._current is not None:
            await asyncio.wait({self._take("start")}, timeout=HEAD_START_S)

    def _begin_soon(self) -> None:
        """The agent began to work by itself, or a command of the person's."""
        if self.look():
            self._take("start")

    async def wait_for_start(self) -> None:
        """Wait for the snapshot that is taken when a turn begins without a prompt, at most HEAD_START_S."""
        if self._last is not None:
            await asyncio.wait({self._last}, timeout=HEAD_START_S)

    def on_event(self) -> None:
        """Something was recorded: is a step over whose changes are not known yet?"""
        if self._state.reducer.transcript.awaiting and not self._step_due:
            self._step_due = True
            self._take("step")

    def finish(self) -> None:
        """The prompt is answered. If that may have changed something, hold the turn until it is recorded, or for LAST_S."""
        trees = self._state.session.snapshots
        if not (self._state.machine.busy and self._ending is None and trees.is_on and trees.is_due):
            return
        self._turn(Input.OPENED, HOLD)
        self._late = False
        self._ending = asyncio.get_running_loop().create_task(self._finish(), name=f"last snapshot {self._state.id}")

    async def _finish(self) -> None:
        task = self._take("end")
        await asyncio.wait({task}, timeout=LAST_S)
        self._late = not task.done()
        if self._late:
            log.warning("snapshot.late", session_id=self._state.id, directory=self._directory, after_s=LAST_S)
        self._ending = None
        self._turn(Input.CLOSED, HOLD)

    async def close(self) -> None:
        """The session is closed: nothing is recorded any more."""
        tasks = [t for t in (self._ending, self._last) if t is not None and not t.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- taking one ----------------------------------------------------------------------------------------------

    def _take(self, phase: Phase) -> asyncio.Task[None]:
        before = self._last if self._last is not None and not self._last.done() else None
        name = f"snapshot {self._state.id}"
        self._last = asyncio.get_running_loop().create_task(self._take_in_order(phase, before), name=name)
        return self._last

    async def _take_in_order(self, phase: Phase, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        turn = self._state.machine.turn
        if phase == "step":
            self._step_due = False
        try:
            said = await self._track(phase)
        except ShimError as error:
            said = {"failed": str(error)}
            self._report(error)
        except Exception as error:
            said = {"failed": f"unexpected: {error}"}
            log.exception("snapshot.failed", session_id=self._state.id, directory=self._directory)
        if phase == "end" and self._late:  # the next prompt is being answered
            phase = "step"
        if self._state.machine.turn == turn and self._state.machine.busy:  # else it is too late for its turn
            self._state.status("snapshot", phase=phase, **said)

    def _report(self, error: ShimError) -> None:
        if not isinstance(error, NoSnapshots):
            log.warning("snapshot.failed", session_id=self._state.id, directory=self._directory, error=str(error))
        elif not self._has_notified:
            self._state.status("notice", str(error))
            self._has_notified = True

    async def _track(self, phase: Phase) -> dict[str, Any]:
        trees = self._current
        assert trees is not None
        tree = await trees.track(self._directory)
        known = self._state.session.snapshots
        if phase == "start" or known.last is None or known.base is None:
            return {"tree": tree}
        files = await trees.changed_files(self._directory, known.last, tree)
        if phase == "step":
            return {"tree": tree, "files": files}
        mine = await trees.changed_files(self._directory, known.base, tree)
        diffs = await diffs_of(trees, self._directory, known.base, tree, mine)
        first = known.first or known.base
        touched = sorted({*names_in(self._state.session), *files})
        try:
            whole = await diffs_of(trees, self._directory, first, tree, touched)
        except ShimError as error:  # the first snapshot is so old that it was removed
            log.info("snapshot.first_is_gone", session_id=self._state.id, error=str(error))
            whole = diffs
        return {"tree": tree, "files": files, "diffs": to_json(diffs), "session_diffs": to_json(whole)}
