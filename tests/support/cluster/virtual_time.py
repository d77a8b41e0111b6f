"""An event loop whose time passes only when nothing is left to do, and machines in it that can be paused and killed.

    loop = ClusterLoop()
    machine = Machine("a")
    loop.run(main())                 # in main: loop.spawn(machine, work()), machine.pause(), await elapse(10)

All that a machine starts belongs to it: its tasks, its timers, and the callbacks of what it waits for. A paused machine misses
nothing: what was due meanwhile happens when it goes on, as after SIGSTOP and SIGCONT. A dead one does nothing more.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from enum import Enum
from typing import Any

STEPS = 2_000_000
"""Maximum callbacks of a run. More are a loop without end."""
BEGIN_S = 1_000.0
"""The time at the begin of a run."""
END_S = 60.0
"""Virtual seconds that cancelled tasks have at the end of a run."""
ENDS = 5
"""So often tasks are cancelled that others have started in their end."""


class Life(Enum):
    """What a machine does."""

    RUNS = "runs"
    PAUSED = "paused"
    DEAD = "dead"


class Machine:
    """A machine of a simulation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.life = Life.RUNS
        self.due: list[asyncio.Handle] = []
        """Callbacks that wait for the end of the pause, or of the run."""

    def pause(self) -> None:
        """Do nothing from now on."""
        if self.life is Life.RUNS:
            self.life = Life.PAUSED

    def resume(self) -> None:
        """Go on with what was due."""
        if self.life is Life.PAUSED:
            self.life = Life.RUNS
            due, self.due = self.due, []
            loop = asyncio.get_running_loop()
            assert isinstance(loop, ClusterLoop)
            loop.make_ready(due)

    def kill(self) -> None:
        """Do nothing any more."""
        self.life = Life.DEAD


MACHINE: ContextVar[Machine | None] = ContextVar("MACHINE", default=None)
"""The machine of the code that runs; None: of the test."""


class _Handle(asyncio.Handle):
    """A callback that a machine may hold back."""

    def _run(self) -> None:
        if _may_run(self, self._context):
            super()._run()


class _TimerHandle(asyncio.TimerHandle):
    """A timer that a machine may hold back."""

    def _run(self) -> None:
        if _may_run(self, self._context):
            super()._run()


def _may_run(handle: asyncio.Handle, context: Context) -> bool:
    machine = context.get(MACHINE)
    if machine is None or machine.life is Life.RUNS:
        return True
    machine.due.append(handle)
    return False


class ClusterLoop(asyncio.BaseEventLoop):
    """An event loop without sockets, threads and real time. Its time begins at BEGIN_S."""

    def __init__(self) -> None:
        super().__init__()
        self._now = BEGIN_S
        self._steps = 0
        self._selector = self
        self._machines: set[Machine] = set()
        self._tasks: list[asyncio.Task[Any]] = []
        """All tasks: those of a dead machine must not be collected, which would be reported."""
        self.faults: list[dict[str, Any]] = []
        """What tasks have raised and nobody has awaited."""
        self.set_exception_handler(lambda _, context: self.faults.append(context))

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run a test to its end, then cancel what it has left. Raises what the test raises, and `faults`."""
        asyncio.set_event_loop(None)
        try:
            self.run_until_complete(main)
            assert not self.faults, self.faults
        finally:
            self._end()

    def _end(self) -> None:
        for _ in range(ENDS):
            tasks = asyncio.all_tasks(self)
            for task in tasks:
                task.cancel()
            for machine in self._machines:
                machine.life = Life.RUNS
                self.make_ready(machine.due)
                machine.due.clear()
            if not tasks:
                break
            self.run_until_complete(asyncio.wait(tasks, timeout=END_S))
        self.close()

    def spawn(self, machine: Machine | None, work: Coroutine[Any, Any, Any], name: str = "") -> asyncio.Task[Any]:
        """Start a task on a machine."""
        if machine is not None:
            self._machines.add(machine)
        return self.create_task(work, name=name or None, context=context_of(machine))

    def create_task(self, *args: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(*args, **options)
        self._tasks.append(task)
        return task

    # --- what BaseEventLoop needs ------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Let the time pass until the next timer."""
        self._steps += 1
        assert timeout is not None, "everything waits, and no timer runs: a deadlock"
        assert self._steps < STEPS, "the simulation does not end"
        self._now += timeout
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def make_ready(self, handles: list[asyncio.Handle]) -> None:
        """Run callbacks that were held back, in their order."""
        self._ready.extend(handle for handle in handles if not handle.cancelled())

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Call a blocking function at once: there are no threads."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def context_of(machine: Machine | None) -> Context:
    """A context in which everything belongs to a machine."""
    context = copy_context()
    context.run(MACHINE.set, machine)
    return context


async def elapse(seconds: float) -> None:
    """Let virtual seconds pass. Fails in a loop of real time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClusterLoop)
    over = loop.create_future()
    loop.call_later(seconds, lambda: None if over.done() else over.set_result(None))
    await over
