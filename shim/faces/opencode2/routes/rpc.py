"""The route of plugins' RPCs. Source: models of `opencode-python-sdk` 0.2.3 (OpenCode 2.1.2)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import RpcNotFound
from shim.http.operation import Ctx


class RpcPath(BaseModel):
    """`{rpcID}/{method}`."""

    rpcID: str
    method: str


class RpcBody(BaseModel):
    """`input` is defined by the plugin."""

    input: Any = None


@operation("rpc.call")
async def call(ctx: Ctx, path: RpcPath, body: RpcBody) -> object:
    """Answer 400 RpcError, as OpenCode does for an unknown plugin: no RPC is registered here."""
    message = (
        f'There is no RPC "{path.rpcID}" here: plugins of OpenCode register RPCs, and this server loads none of them. '
        "Plugins here are Python packages that bring agents (docs/adding-an-agent.md)."
    )
    raise RpcNotFound(message)
