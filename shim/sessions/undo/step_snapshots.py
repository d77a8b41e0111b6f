"""Takes snapshots of a session's files around its prompts and steps, and records the changes.

A snapshot is taken before a prompt is dispatched (for at most `HEAD_START_S`, while the agent starts), after each step with
tools, and when the prompt is answered. If all calls of an agent wait for the server, its lines wait for the first snapshot, and
the prompt does not (docs/adr/0032). The turn is held open for the last one, for at most `LAST_S`, so that idle comes after it.
Only one snapshot is taken at a time, and everything else goes on meanwhile. A turn without tools has no last snapshot. The record
is a `snapshot` status (see `universal.session.reducer`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import structlog

from shim.host.git.snapshot import NoSnapshots, Snapshots, diffs_between
from shim.lib.errors import ShimError
from shim.lib.tasks import end_tasks
from shim.sessions.undo.undo_plan import names_in
from universal.turn import OURS, Input

if TYPE_CHECKING:
    from shim.sessions.session.actor import SessionActor

log = structlog.get_logger()

HEAD_START_S = 5.0
"""Maximum seconds that a prompt, its agent's lines, or a person's command wait for the snapshot before them. A project's first
snapshot takes 0.9 s for 5,000 files, more on a busy machine, later ones 0.02 s. Its agent's start often takes longer."""
LAST_S = 10.0
"""Maximum seconds that a turn waits for its last snapshot. After it the turn ends without, and the changes of its last step
cannot be undone."""
LATE_START = (
    "The files of {directory} were not noted within {after_s:g} s: an undo may leave what changes in this turn. Large files that "
    "need no undo can be listed in .gitignore."
)
LATE_END = "The files of {directory} were not noted within {after_s:g} s: an undo does not bring back what the last step changed."
HOLD = f"{OURS}snapshot"
"""The key with which the last snapshot holds the turn open."""
ENDINGS = (Input.DONE, Input.FAILED, Input.EXIT, Input.ABORT_TIMEOUT)
"""Inputs after which the agent changes nothing more for the prompt, so that the last snapshot is due."""

Phase = Literal["start", "step", "end"]


class StepSnapshots:
    """The snapshots of one session."""

    def __init__(self, session: SessionActor) -> None:
        self._session = session
        self._state = session.main
        self._directory = session.directory
        self._current: Snapshots | None = None
        self._has_notified = False
        self._last: asyncio.Task[None] | None = None
        self._deadline = 0.0
        self.hold: asyncio.Task[None] | None = None
        """What the agent's lines wait for, at most HEAD_START_S. It does not fail."""
        self._step_due = False
        self._ending: asyncio.Task[None] | None = None
        self._late = False

    def look(self) -> bool:
        """Whether snapshots are taken here. The result holds until the next call. Reads the configuration, once a prompt."""
        self._current = self._session.deps.snapshots(self._directory)
        return self._current is not None

    @property
    def are_certain(self) -> bool:
        """Whether this directory surely gets snapshots: the session has one, or another session has had one."""
        if self._state.session.snapshots.last is not None:
            return True
        return self._current is not None and self._current.has_taken(self._directory)

    def before(self, input_: Input) -> None:
        """Take a snapshot, if one is due before the turn machine gets this input."""
        if input_ in ENDINGS:
            self.finish()
        elif input_ is Input.ACTIVITY and not self._state.machine.busy and self.look():
            self._take("start")  # the agent works unprompted, or a person's command begins

    async def begin(self, *, may_lines_wait: bool) -> None:
        """Take the snapshot before a prompt. Returns when it is done, or after HEAD_START_S.

        In: `may_lines_wait`, whether the agent's lines wait for it in the place of the prompt; then this returns at once.
        """
        if self._current is None:
            return
        snapshot = self._take("start")
        self._deadline = asyncio.get_running_loop().time() + HEAD_START_S
        if not may_lines_wait:
            await self._wait_for(snapshot, HEAD_START_S)

    def hold_lines(self) -> None:
        """The agent gets its prompt now: its lines wait for the snapshot of `begin`, if that is not done yet."""
        loop = asyncio.get_running_loop()
        left_s = self._deadline - loop.time()
        if self._last is not None and not self._last.done() and left_s > 0:
            self.hold = loop.create_task(self._hold(self._last, left_s), name=f"lines {self._state.id}")

    async def _hold(self, snapshot: asyncio.Task[None], seconds: float) -> None:
        try:
            await self._wait_for(snapshot, seconds)
        finally:
            if self.hold is asyncio.current_task():
                self.hold = None

    async def _wait_for(self, snapshot: asyncio.Task[None], seconds: float, late: str = LATE_START) -> bool:
        """Wait for a snapshot. False if it is late: the person is told what an undo will not do."""
        turn = self._state.machine.turn
        await asyncio.wait({snapshot}, timeout=seconds)
        if not snapshot.done() and self._is_running(turn):
            log.warning("snapshot.late", session_id=self._state.id, directory=self._directory, after_s=seconds)
            self._state.status("notice", late.format(directory=self._directory, after_s=seconds))
        return snapshot.done()

    def _is_running(self, turn: int) -> bool:
        """Whether this turn runs: nothing of it is recorded after its end."""
        return self._state.machine.turn == turn and self._state.machine.busy

    async def wait_for_start(self) -> None:
        """Wait for the snapshot that is taken when a turn begins without a prompt, at most HEAD_START_S."""
        if self._last is not None:
            await self._wait_for(self._last, HEAD_START_S)

    def on_event(self) -> None:
        """Take a snapshot after an event that ends a step with tools."""
        if self._state.reducer.transcript.awaiting and not self._step_due:
            self._step_due = True
            self._take("step")

    def finish(self) -> None:
        """Take the last snapshot, if files may have changed. The turn is held open until it is recorded, or for LAST_S."""
        trees = self._state.session.snapshots
        if not (self._state.machine.busy and self._ending is None and trees.is_on and trees.is_due):
            return
        self._session.apply(Input.OPENED, HOLD)
        self._late = False
        self.finish_again()

    def finish_again(self) -> None:
        """Take the last snapshot, which a server that has ended had begun."""
        self._ending = asyncio.get_running_loop().create_task(self._finish(), name=f"last snapshot {self._state.id}")

    async def _finish(self) -> None:
        self._late = not await self._wait_for(self._take("end"), LAST_S, LATE_END)
        self._ending = None
        self._session.apply(Input.CLOSED, HOLD)

    async def close(self) -> None:
        """Close the session's snapshots. Nothing more is recorded."""
        await end_tasks(self._ending, self._last, self.hold)

    # --- taking a snapshot ----------------------------------------------------------------------------------------------

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
            report = await self._track(phase)
        except ShimError as error:
            report = {"failed": str(error)}
            self._report(error)
        except Exception as error:  # a turn goes on without its snapshot
            report = {"failed": f"unexpected: {error}"}
            log.exception("snapshot.failed", session_id=self._state.id, directory=self._directory)
        if phase == "end" and self._late:  # the next prompt is being answered
            phase = "step"
        if self._is_running(turn):  # otherwise it is too late for its turn
            self._state.status("snapshot", phase=phase, **report)

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
        snapshots = self._state.session.snapshots
        if phase == "start" or snapshots.last is None or snapshots.base is None:
            return {"tree": tree}
        files = await trees.changed_files(self._directory, snapshots.last, tree)
        if phase == "step":
            return {"tree": tree, "files": files}
        changed = await trees.changed_files(self._directory, snapshots.base, tree)
        diffs = await diffs_between(trees, self._directory, snapshots.base, tree, changed)
        first = snapshots.first or snapshots.base
        touched = sorted({*names_in(self._state.session), *files})
        try:
            whole = await diffs_between(trees, self._directory, first, tree, touched)
        except ShimError as error:  # the first snapshot is so old that it was removed
            log.info("snapshot.first_is_gone", session_id=self._state.id, error=str(error))
            whole = diffs
        return {
            "tree": tree,
            "files": files,
            "diffs": [diff.to_json() for diff in diffs],
            "session_diffs": [diff.to_json() for diff in whole],
        }
