"""Stores API keys for agents ("connect provider" in clients), and never returns them. Agents' own programs do logins."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx
from shim.lib.errors import InvalidRequest


class ProviderPath(BaseModel):
    """`{providerID}`: an agent, or a model vendor."""

    providerID: str


class Credentials(BaseModel):
    """`PUT /auth/{providerID}`. Only keys are stored; the other types are not even read."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["api", "oauth", "wellknown"]
    key: Any = None
    """Accepts any value, because a validation error would show the value."""


@operation("auth.set")
async def set_key(ctx: Ctx, path: ProviderPath, body: Credentials) -> object:
    """Store a key. Agents get it at their next start; clients then call `/instance/dispose`, which ends the running ones."""
    key = body.key.strip() if isinstance(body.key, str) else ""
    if body.type != "api" or not key:
        raise InvalidRequest(
            'Only API keys are kept here: {"type": "api", "key": "..."}. Logins belong to the agent\'s own program, on this'
            " server's machine: for instance `claude auth login`, `codex login`, `opencode auth login`."
        )
    providers = ctx.services.agents.key_variables()
    if path.providerID not in providers:
        raise InvalidRequest(f'No agent could be given a key of "{path.providerID}". Keys are taken for: {", ".join(providers)}.')
    await asyncio.to_thread(ctx.services.agents.keys.set, path.providerID, key)
    return True


@operation("auth.remove")
async def remove_key(ctx: Ctx, path: ProviderPath) -> object:
    """Remove a key. A missing one is no error, as in native OpenCode."""
    await asyncio.to_thread(ctx.services.agents.keys.remove, path.providerID)
    return True


@operation("provider.auth")
async def methods(ctx: Ctx) -> object:
    """List the agents that accept a key, and the environment variable for it."""
    specs = [agent.spec for agent in await ctx.services.agents.available()]
    return {spec.name: [{"type": "api", "label": f"API key ({spec.key_variables[0]})"}] for spec in specs if spec.key_variables}
