"""Routes of integrations and credentials: keys for agents and for model providers (`shim.agents.keys`).

A key is never shown again. An agent's login belongs to the agent's program, so there is no OAuth here. A credential has the id of
its integration, because each has at most one key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from shim.agents.keys import MODEL_PROVIDERS
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import CredentialNotFound, IntegrationNotFound
from shim.faces.opencode2.routes.location_answer import locate_answer, publish_changes
from shim.host.changes import EVERYWHERE, AllDisposed
from shim.http.operation import NO_CONTENT, Ctx
from shim.lib.errors import InvalidRequest

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import host_types

TITLES = {
    "anthropic": "Anthropic",
    "openai": "OpenAI",
    "google": "Google",
    "openrouter": "OpenRouter",
    "groq": "Groq",
    "xai": "xAI",
    "mistral": "Mistral",
    "deepseek": "DeepSeek",
}


class IntegrationPath(BaseModel):
    """`{integrationID}` of a path."""

    integrationID: str


class CredentialPath(BaseModel):
    """`{credentialID}` of a path."""

    credentialID: str


class Key(BaseModel):
    """A key. `answer` and `label` are ignored, because a key has no options and no name."""

    key: Any = None
    """Any value passes, because a validation error would show it."""


@operation("integration.list")
async def listing(ctx: Ctx) -> object:
    """The installed agents that take a key, and the model providers, whose keys every agent gets."""
    return await locate_answer(ctx, await _integrations(ctx))


@operation("integration.get")
async def get(ctx: Ctx, path: IntegrationPath) -> object:
    """One integration."""
    return await locate_answer(ctx, await _need_integration(ctx, path.integrationID))


@operation("integration.connect.key")
async def connect(ctx: Ctx, path: IntegrationPath, body: Key) -> object:
    """Store a key. Agents get it at their next start."""
    await _need_integration(ctx, path.integrationID)
    key = body.key.strip() if isinstance(body.key, str) else ""
    if not key:
        raise InvalidRequest("Expected a key that is not empty", path=("key",))
    await asyncio.to_thread(ctx.services.agents.keys.set, path.integrationID, key)
    _publish_change(ctx)
    return NO_CONTENT


@operation("credential.remove")
async def remove(ctx: Ctx, path: CredentialPath) -> object:
    """Remove a key. Succeeds also if there is none."""
    await asyncio.to_thread(ctx.services.agents.keys.remove, path.credentialID)
    _publish_change(ctx)
    return NO_CONTENT


@operation("credential.activate")
async def activate(ctx: Ctx, path: CredentialPath) -> object:
    """Succeeds if the key exists: the only key of an integration is always active. Raises 404 otherwise."""
    if path.credentialID not in await asyncio.to_thread(ctx.services.agents.keys.providers):
        raise CredentialNotFound(path.credentialID)
    return NO_CONTENT


async def _integrations(ctx: Ctx) -> list[host_types.IntegrationInfo]:
    offers = {agent.spec.name: agent.spec.title for agent in await ctx.services.agents.available()}
    variables = ctx.services.agents.key_variables()
    titles = {name: title for name, title in offers.items() if name in variables} | {
        name: TITLES[name] for name in MODEL_PROVIDERS
    }
    with_key = await asyncio.to_thread(ctx.services.agents.keys.providers)
    environment = ctx.services.agents.environment()
    return [_integration(name, title, variables[name], name in with_key, environment) for name, title in titles.items()]


def _integration(
    name: str, title: str, variables: Sequence[str], is_kept: bool, environment: Mapping[str, str]
) -> host_types.IntegrationInfo:
    connections: list[host_types.ConnectionInfo] = [
        {"type": "env", "name": variable} for variable in variables if environment.get(variable)
    ]
    if is_kept:
        connections.insert(0, {"type": "credential", "id": name, "label": "API key", "method": "key"})
    return {
        "id": name,
        "name": title,
        "methods": [{"type": "key", "label": f"API key ({variables[0]})"}, {"type": "env", "names": variables}],
        "connections": connections,
    }


async def _need_integration(ctx: Ctx, name: str) -> host_types.IntegrationInfo:
    for row in await _integrations(ctx):
        if row["id"] == name:
            return row
    raise IntegrationNotFound(name)


def _publish_change(ctx: Ctx) -> None:
    """Clients of OpenCode 1 read everything again. Clients of OpenCode 2 read again what a key may have changed."""
    ctx.services.host.publish(AllDisposed(), EVERYWHERE)
    publish_changes(ctx, "credential.updated", "integration.updated", "provider.updated", "model.updated")
