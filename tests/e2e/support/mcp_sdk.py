"""The client of the official SDK of MCP. It is installed apart, since it is large: .e2e/python/mcp."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.process.test_serve import RUN, environment

FOLDER = Path(__file__).resolve().parents[3] / ".e2e" / "python" / "mcp"
CALL_S = 120
"""The longest that one call takes in these tests."""


class SdkClient:
    """A connected client."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that must not fail. Out: what it gives."""
        async with asyncio.timeout(CALL_S):
            result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return dict(result.structured_content)


@asynccontextmanager
async def over_http(url: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[SdkClient]:
    """A client over Streamable HTTP."""
    _find()
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    async with (
        httpx2.AsyncClient(headers=dict(headers or {}), timeout=CALL_S) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        yield SdkClient(client)


@asynccontextmanager
async def over_stdio(home: Path, *arguments: str, **env: str) -> AsyncIterator[SdkClient]:
    """A client of `opencode-shim mcp`, which it starts in this home."""
    _find()
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    line = StdioServerParameters(
        command=sys.executable, args=["-c", RUN, "mcp", *arguments], env=environment(home, **env), cwd=home
    )
    with tempfile.TemporaryFile("w") as errors:
        async with Client(stdio_client(line, errors)) as client:
            yield SdkClient(client)


def _find() -> None:
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
