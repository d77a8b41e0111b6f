"""API keys for agents: given by clients ("connect provider"), never shown again. Logins stay with the agents' own programs."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from shim.agents.keys import AGENTS, MODEL_PROVIDERS, variables
from shim.errors import InvalidRequest
from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx


class ProviderPath(BaseModel):
    """`{providerID}`: an agent, or who makes models."""

    providerID: str


class Credentials(BaseModel):
    """`PUT /auth/{providerID}`. Only keys are kept; what the other types hold is not even read."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["api", "oauth", "wellknown"]
    key: Any = None
    """Whatever is sent passes here: a complaint about a wrong value would show it."""


@operation("auth.set")
async def set_key(ctx: Ctx, path: ProviderPath, body: Credentials) -> object:
    """Keeps a key. Agents get it at their next start; `/instance/dispose`, which clients call then, ends the running ones."""
    key = body.key.strip() if isinstance(body.key, str) else ""
    if body.type != "api" or not key:
        raise InvalidRequest(
            'Only API keys are kept here: {"type": "api", "key": "..."}. Logins belong to the agent\'s own program, on this'
            " server's machine: for instance `claude auth login`, `codex login`, `opencode auth login`."
        )
    if not variables(path.providerID):
        known = ", ".join([*AGENTS, *MODEL_PROVIDERS])
        raise InvalidRequest(f'No agent could be given a key of "{path.providerID}". Keys are taken for: {known}.')
    await asyncio.to_thread(ctx.services.agents.keys.set, path.providerID, key)
    return True


@operation("auth.remove")
async def remove_key(ctx: Ctx, path: ProviderPath) -> object:
    """Forgets a key; one that is not there is fine, as by native."""
    await asyncio.to_thread(ctx.services.agents.keys.remove, path.providerID)
    return True


@operation("provider.auth")
async def methods(ctx: Ctx) -> object:
    """For which agents a key can be given, and the variable that it becomes."""
    offers = [agent.spec.name for agent in await ctx.services.agents.available()]
    return {name: [{"type": "api", "label": f"API key ({AGENTS[name][0]})"}] for name in offers if name in AGENTS}
