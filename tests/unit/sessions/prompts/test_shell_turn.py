"""A shell command of the person's is a turn of the session's own, whatever the agent, the person and the server do meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shim.sessions.prompts.shell_turn import shell
from tests.support.opencode1_views import view
from tests.support.scripted_model import Project, World, ask
from universal.codec import Interrupt, Signal
from universal.turn import Input

LIMIT_S = 10
"""For a command to begin, or to have ended."""
WAITS = "echo st''arted; cat fifo; echo end >> end.txt; echo o''ver"
"""Says that it has begun, and goes on when somebody opens `fifo` for writing. The quotes: its own text is no output of it."""


def session_in(w: World, directory: Path) -> str:
    return w.manager.create(str(directory), Project()).id


@asynccontextmanager
async def waiting_shell(w: World, session: str, directory: Path) -> AsyncIterator[asyncio.Future[None]]:
    """The command of WAITS as the session's turn, once it has begun."""
    if not (directory / "fifo").exists():
        (directory / "end.txt").touch()
        os.mkfifo(directory / "fifo")
    async with asyncio.timeout(LIMIT_S):
        running = asyncio.ensure_future(shell(w.manager, session, WAITS, "build", None))
        await w.hub.until("started")
        yield running
        await running


async def let_go(directory: Path) -> None:
    """The command goes on."""
    await asyncio.to_thread((directory / "fifo").write_text, "go\n")


async def outputs(w: World, session: str) -> list[str]:
    messages = view(await w.manager.session(session)).messages.values()
    return [p["state"].get("output", "") for m in messages for p in m.wire()["parts"] if p["type"] == "tool"]


async def test_a_shell_command_is_a_turn(w: World, tmp_path: Path) -> None:
    session = session_in(w, tmp_path)
    async with asyncio.timeout(LIMIT_S):
        await shell(w.manager, session, "echo out; echo err >&2; exit 3", "build", None)
    _, answer = (m.wire() for m in view(await w.manager.session(session)).messages.values())
    [tool] = answer["parts"]
    assert (tool["tool"], tool["state"]["status"], tool["state"]["metadata"]["exit"]) == ("bash", "completed", 3)
    assert tool["state"]["output"] == "out\nerr\n"
    assert w.hub.folds[session].idles == 1
    await ask(w, session, "what happened?")
    assert "out\nerr" in w.agent.prompts[0]
    w.agent.end_turn()


async def test_a_shell_command_can_be_aborted(w: World, tmp_path: Path) -> None:
    session = session_in(w, tmp_path)
    async with waiting_shell(w, session, tmp_path):
        await w.manager.abort(session)
    assert w.hub.folds[session].idles == 1
    assert (tmp_path / "end.txt").read_text() == ""


async def test_an_agent_that_dies_meanwhile_had_nothing_to_do_with_it(w: World, tmp_path: Path) -> None:
    session = session_in(w, tmp_path)
    await ask(w, session)
    w.agent.text("done")
    w.agent.end_turn()
    fold = w.hub.folds[session]
    async with waiting_shell(w, session, tmp_path):
        w.agent.exits(1)
        assert (fold.idles, fold.errors) == (1, [])
        await let_go(tmp_path)
    assert (fold.idles, fold.errors) == (2, [])
    assert w.hub.kinds(session)[-1] == "session.idle"
    assert await outputs(w, session) == ["started\ngo\nover\n"]


async def test_agent_activity_during_a_shell_command_belongs_to_its_turn(w: World, tmp_path: Path) -> None:
    session = session_in(w, tmp_path)
    await ask(w, session)
    w.agent.end_turn()
    fold = w.hub.folds[session]
    async with waiting_shell(w, session, tmp_path):
        w.agent.says(Signal(Input.ACTIVITY))
        w.agent.text("my background work is over")
        w.agent.end_turn()
        assert fold.idles == 1
        w.agent.says(Signal(Input.ACTIVITY))
        await let_go(tmp_path)
    assert fold.idles == 1
    w.agent.text("so is this")
    w.agent.end_turn()
    assert fold.idles == 2
    assert w.hub.kinds(session)[-1] == "session.idle"


async def test_an_abort_stops_it_and_what_the_agent_does_by_itself(w: World, tmp_path: Path) -> None:
    session = session_in(w, tmp_path)
    await ask(w, session)
    w.agent.end_turn()
    async with waiting_shell(w, session, tmp_path):
        w.agent.says(Signal(Input.ACTIVITY))
        aborting = asyncio.ensure_future(w.manager.abort(session))
        await w.settle()
        assert any(isinstance(c, Interrupt) for c in w.agent.commands)
        w.agent.abort_turn()
        await aborting
    assert w.hub.folds[session].idles == 2
    assert not w.agent.killed


async def test_a_prompt_meanwhile_waits_for_it(w: World, tmp_path: Path) -> None:
    session = session_in(w, tmp_path)
    await ask(w, session, "first")
    w.agent.end_turn()
    async with waiting_shell(w, session, tmp_path):
        await ask(w, session, "second")
        assert len(w.agent.prompts) == 1
        await let_go(tmp_path)
    await w.settle()
    assert w.agent.prompts[1].endswith("second")
    assert "over" in w.agent.prompts[1]
    w.agent.end_turn()
    assert w.hub.folds[session].idles == 2


async def test_a_deleted_session_leaves_no_command_behind(w: World, tmp_path: Path) -> None:
    session = session_in(w, tmp_path)
    async with waiting_shell(w, session, tmp_path):
        await w.manager.delete(session)
    assert w.hub.folds[session].idles == 1
    assert w.hub.kinds(session)[-1] == "session.deleted"
    assert (tmp_path / "end.txt").read_text() == ""


async def test_a_server_that_stops_leaves_no_command_behind(w: World, tmp_path: Path) -> None:
    session = session_in(w, tmp_path)
    async with waiting_shell(w, session, tmp_path):
        await w.manager.close()
    assert w.hub.folds[session].idles == 1
    assert w.hub.kinds(session)[-1] == "session.idle"
    assert (tmp_path / "end.txt").read_text() == ""


async def test_a_request_that_is_cancelled_takes_its_command_with_it(w: World, tmp_path: Path) -> None:
    session = session_in(w, tmp_path)
    running: asyncio.Future[None] | None = None
    try:
        async with waiting_shell(w, session, tmp_path) as running:
            running.cancel()
    except asyncio.CancelledError:
        pass
    assert running is not None and running.cancelled()
    assert w.hub.folds[session].idles == 1
    assert (tmp_path / "end.txt").read_text() == ""
