"""Sessions that others drive by `/mcp`: the official SDK's client over HTTP and stdio, and real agents that drive each other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support.mcp_sdk import over_http, over_stdio
from tests.process.test_serve import run_server

pytestmark = pytest.mark.e2e
SWIFT = {"SHIM_MOCK_DELAY_FACTOR": "0"}


async def test_the_sdk_drives_a_session_over_http(tmp_path: Path) -> None:
    with run_server(tmp_path, "--mcp", **SWIFT) as (_, url):
        async with over_http(url) as mcp:
            tools = (await mcp.client.list_tools()).tools
            assert {tool.name for tool in tools} >= {"start_session", "wait", "read"}
            session = (await mcp.use("start_session", agent="mock", prompt="echo by the SDK"))["session"]
            assert (await mcp.use("wait", session=session))["state"] == "idle"
            assert (await mcp.use("read", session=session))["text"] == "by the SDK"


async def test_the_sdk_shows_progress_and_cancels(tmp_path: Path) -> None:
    with run_server(tmp_path, "--mcp", **SWIFT) as (_, url):
        async with over_http(url) as mcp:
            session = (await mcp.use("start_session", agent="mock", prompt="hang"))["session"]
            told: list[Any] = []

            async def note(progress: float, _total: float | None, message: str | None) -> None:
                told.append((progress, message))

            arguments = {"session": session, "timeout_s": 600}
            waiting = asyncio.create_task(mcp.client.call_tool("wait", arguments, progress_callback=note))
            async with asyncio.timeout(60):
                while len(told) < 2:
                    await asyncio.sleep(0.1)
            assert told[0][0] < told[1][0]
            assert not waiting.done()
            waiting.cancel()
            await asyncio.wait({waiting})
            assert (await mcp.use("abort", session=session))["state"] == "idle"


async def test_the_sdk_drives_a_session_over_stdio(tmp_path: Path) -> None:
    with run_server(tmp_path, "--mcp", **SWIFT) as (_, url):
        async with over_stdio(tmp_path, "--url", url) as mcp:
            session = (await mcp.use("start_session", agent="mock", prompt="echo through a pipe"))["session"]
            assert (await mcp.use("wait", session=session))["state"] == "idle"
            assert (await mcp.use("read", session=session))["text"] == "through a pipe"


async def test_a_server_starts_for_the_program_without_one(tmp_path: Path) -> None:
    async with over_stdio(tmp_path, **SWIFT) as mcp:
        session = (await mcp.use("start_session", agent="mock", prompt="echo alone"))["session"]
        assert (await mcp.use("wait", session=session))["state"] == "idle"
        assert (await mcp.use("read", session=session))["text"] == "alone"
