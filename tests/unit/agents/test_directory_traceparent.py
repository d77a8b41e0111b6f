"""TRACEPARENT reaches the agents that are started while a turn is traced, and nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shim.agents.directory import AgentDirectory
from shim.lib.clock import ManualClock
from shim.lib.ids import Ids
from shim.store.memory import MemoryStore
from universal.agents.acp.spec import custom_spec
from universal.launch import LaunchOptions

WAIT_S = 20.0


@pytest.mark.parametrize("parent", ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None])
async def test_an_agent_gets_it(tmp_path: Path, parent: str | None) -> None:
    out = tmp_path / "seen"
    spec = custom_spec("x", ("sh", "-c", f'echo "[$TRACEPARENT]" > {out}'), None, {})
    clock = ManualClock()
    ids, store = Ids(clock), MemoryStore()
    await store.open()
    directory = AgentDirectory(
        {"x": spec}, clock=clock, ids=ids, store=store, environ={"PATH": "/usr/bin:/bin"}, traceparent=lambda: parent
    )
    await directory.start()
    await directory.settle()
    out.unlink(missing_ok=True)  # discovery has started it too
    over = asyncio.Event()
    agent = directory.get("x")
    assert agent is not None
    options = LaunchOptions(binary="", directory=str(tmp_path))
    handle = await directory.spawn(agent, options, spec.make(ids.new), lambda _: None, lambda _: over.set())
    async with asyncio.timeout(WAIT_S):
        await over.wait()
        await handle.stop()
    assert out.read_text().strip() == f"[{parent or ''}]"
    await directory.close()
    await store.close()
