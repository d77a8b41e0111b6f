"""Routes of agents (modes), commands, skills, models, references and keys. Source: recording `endpoints` of v2-20260717."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from shim.agents import catalog, offered_commands
from shim.agents.catalog import with_models
from shim.agents.keys import MODEL_PROVIDERS
from shim.agents.logins import Login
from shim.faces.opencode2 import host, offers
from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import (
    AgentModeNotFound,
    CredentialNotFound,
    IntegrationNotFound,
    LoginNotFound,
    ProviderNotFound,
)
from shim.faces.opencode2.names import rules
from shim.faces.opencode2.routes.location_answer import locate_answer, publish_changes
from shim.host.changes import EVERYWHERE, AllDisposed
from shim.http.operation import Ctx
from shim.http.services import list_offers
from shim.lib.errors import InvalidRequest
from shim.sessions.prompts.command import with_commands
from shim.sessions.prompts.server_commands import templates
from universal.permissions import rules_from_config

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import host_types


@operation("agent.list")
async def listing(ctx: Ctx) -> object:
    """The modes of all installed agents, the config's `default_agent` first. Never empty, because clients send nothing then."""
    return await locate_answer(ctx, await _agents(ctx))


@operation("agent.get")
async def get(ctx: Ctx, path: requests.AgentPath) -> object:
    """One mode."""
    for row in await _agents(ctx):
        if row["id"] == path.agentID:
            return await locate_answer(ctx, row)
    raise AgentModeNotFound(path.agentID)


async def _agents(ctx: Ctx) -> list[host_types.AgentInfo]:
    config, agents = await list_offers(ctx.services, ctx.directory)
    modes = catalog.modes(agents, config.default_agent, config.disabled_agents, config.agents)
    shared = rules_from_config(config.permission)
    own = [mode.own.rules if mode.own is not None else () for mode in modes]
    permissions = [rules([rule.to_json() for rule in (*shared, *more)]) for more in own]
    return [offers.agent(mode, rows) for mode, rows in zip(modes, permissions, strict=True)]


@operation("command.list")
async def commands(ctx: Ctx) -> object:
    """The slash commands of the directory."""
    config, agents = await list_offers(ctx.services, ctx.directory)
    local = templates(ctx.directory, config.commands)
    agents = await with_commands(ctx.services.sessions, agents, ctx.directory)
    rows = offered_commands.commands(agents, local, config.model, has_internal=ctx.services.settings.all_commands)
    return await locate_answer(ctx, [offers.command(command) for command in rows])


@operation("skill.list")
async def skill_listing(ctx: Ctx) -> object:
    """The skills in the project and in the person's home, where agents look for them."""
    listing = await asyncio.to_thread(ctx.services.config.skills, ctx.directory)
    return await locate_answer(ctx, [host.skill(skill) for skill in listing])


# --- providers and models --------------------------------------------------------------------------------


@operation("model.list")
async def models(ctx: Ctx) -> object:
    """The models of all installed agents, the default agent's first."""
    _, agents = await list_offers(ctx.services, ctx.directory)
    return await locate_answer(ctx, offers.models(agents))


@operation("model.default")
async def default(ctx: Ctx) -> object:
    """The config's `model` if it exists, else the default agent's; null if no agent offers a model."""
    config, agents = await list_offers(ctx.services, ctx.directory)
    return await locate_answer(ctx, offers.default_model(agents, config.model))


@operation("provider.list")
async def list_providers(ctx: Ctx) -> object:
    """The installed agents that offer a model."""
    return await locate_answer(ctx, await _provider_infos(ctx))


@operation("provider.get")
async def get_provider(ctx: Ctx, path: requests.ProviderPath) -> object:
    """One provider."""
    for row in await _provider_infos(ctx):
        if row["id"] == path.providerID:
            return await locate_answer(ctx, row)
    raise ProviderNotFound(path.providerID)


async def _provider_infos(ctx: Ctx) -> list[host_types.ProviderInfo]:
    keyed = ctx.services.agents.key_variables()
    _, agents = await list_offers(ctx.services, ctx.directory)
    return [offers.provider(agent, keyed=agent.spec.name in keyed) for agent in with_models(agents)]


# --- web search and references ---------------------------------------------------------------------------


@operation("websearch.providers")
async def search_providers(ctx: Ctx) -> object:
    """An empty list: agents search the web themselves."""
    return await locate_answer(ctx, [])


@operation("reference.list")
async def references(ctx: Ctx) -> object:
    """An empty list: agents look things up themselves."""
    return await locate_answer(ctx, [])


# --- integrations and credentials ------------------------------------------------------------------------

# Routes of integrations and credentials: keys for agents and for model providers (`shim.agents.keys`).
#
# A key is never shown again. A login is the agent's own program in a terminal (`shim.agents.logins`). A credential has the id of
# its integration, because each has at most one key.

LOGIN = "login"
"""The id of the way to log in by the agent's own program."""
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


class Key(BaseModel):
    """A key. `answer` and `label` are ignored, because a key has no options and no name."""

    key: Any = None
    """Any value passes, because a validation error would show it."""


@operation("integration.list")
async def list_integrations(ctx: Ctx) -> object:
    """The installed agents that take a key, and the model providers, whose keys every agent gets."""
    return await locate_answer(ctx, await _integrations(ctx))


@operation("integration.get")
async def get_integration(ctx: Ctx, path: requests.IntegrationPath) -> object:
    """One integration."""
    return await locate_answer(ctx, await _need_integration(ctx, path.integrationID))


@operation("integration.connect.key")
async def connect(ctx: Ctx, path: requests.IntegrationPath, body: Key) -> None:
    """Store a key. Agents get it at their next start."""
    await _need_integration(ctx, path.integrationID)
    key = body.key.strip() if isinstance(body.key, str) else ""
    if not key:
        raise InvalidRequest("Expected a key that is not empty", path=("key",))
    await asyncio.to_thread(ctx.services.agents.keys.set, path.integrationID, key)
    _publish_change(ctx)


@operation("credential.remove")
async def remove(ctx: Ctx, path: requests.CredentialPath) -> None:
    """Remove a key. Succeeds also if there is none."""
    await asyncio.to_thread(ctx.services.agents.keys.remove, path.credentialID)
    _publish_change(ctx)


@operation("credential.activate")
async def activate(ctx: Ctx, path: requests.CredentialPath) -> None:
    """Succeeds if the key exists: the only key of an integration is always active. Raises 404 otherwise."""
    if path.credentialID not in await asyncio.to_thread(ctx.services.agents.keys.providers):
        raise CredentialNotFound(path.credentialID)


class OauthBody(BaseModel):
    """The way to log in. `answer` and `label` are ignored, because it has no options and no name."""

    methodID: str


class CompleteBody(BaseModel):
    """What the page of the login shows."""

    code: str | None = None


class AttemptPath(requests.IntegrationPath):
    """`{integrationID}` and `{attemptID}`."""

    attemptID: str


@operation("integration.oauth.connect")
async def begin_login(ctx: Ctx, path: requests.IntegrationPath, body: OauthBody) -> object:
    """Begin the agent's own login on this machine, and return its link."""
    await _need_integration(ctx, path.integrationID)
    agent = ctx.services.agents.get(path.integrationID)
    if agent is None or body.methodID != LOGIN:
        raise InvalidRequest(
            f"{path.integrationID} has no login {body.methodID!r}. GET /api/integration lists them.", path=("methodID",)
        )
    login = await ctx.services.logins.begin(agent)
    mode = "code" if login.takes_code else "auto"
    row = {"attemptID": login.id, "url": login.url, "instructions": login.instructions, "mode": mode, "time": _time_of(login)}
    return await locate_answer(ctx, row)


@operation("integration.oauth.status")
async def login_status(ctx: Ctx, path: AttemptPath) -> object:
    """How far a login is."""
    login = _need_login(ctx, path)
    failure = {"message": login.words or "The program has said nothing."} if login.status == "failed" else {}
    return await locate_answer(ctx, {"status": login.status, **failure, "time": _time_of(login)})


@operation("integration.oauth.cancel")
async def cancel_login(ctx: Ctx, path: AttemptPath) -> None:
    """End a login."""
    await ctx.services.logins.cancel(_need_login(ctx, path).agent)


@operation("integration.oauth.complete")
async def complete_login(ctx: Ctx, path: AttemptPath, body: CompleteBody) -> None:
    """Type the code that the page shows, and wait for the end of the login."""
    await ctx.services.logins.finish(_need_login(ctx, path), body.code)


def _need_login(ctx: Ctx, path: AttemptPath) -> Login:
    login = ctx.services.logins.find(path.integrationID, path.attemptID)
    if login is None:
        raise LoginNotFound(path.integrationID, path.attemptID)
    return login


def _time_of(login: Login) -> dict[str, int]:
    return {"created": login.created_ms, "expires": login.expires_ms}


async def _integrations(ctx: Ctx) -> list[host_types.IntegrationInfo]:
    specs = {agent.spec.name: agent.spec for agent in await ctx.services.agents.available()}
    variables = ctx.services.agents.key_variables()
    runs = {name for name, spec in specs.items() if spec.program.login_run is not None}
    titles = {name: spec.title for name, spec in specs.items() if name in variables or name in runs}
    titles |= {name: TITLES[name] for name in MODEL_PROVIDERS}
    with_key = await asyncio.to_thread(ctx.services.agents.keys.providers)
    environment = ctx.services.agents.environment()
    return [
        _integration(name, title, variables.get(name, ()), name in with_key, environment, has_login=name in runs)
        for name, title in titles.items()
    ]


def _integration(
    name: str, title: str, variables: Sequence[str], is_kept: bool, environment: Mapping[str, str], *, has_login: bool
) -> host_types.IntegrationInfo:
    connections: list[host_types.ConnectionInfo] = [
        {"type": "env", "name": variable} for variable in variables if environment.get(variable)
    ]
    if is_kept:
        connections.insert(0, {"type": "credential", "id": name, "label": "API key", "method": "key"})
    methods: list[host_types.IntegrationMethod] = []
    if has_login:
        methods.append({"type": "oauth", "id": LOGIN, "label": f"Log in with {title}"})
    if variables:
        methods.append({"type": "key", "label": f"API key ({variables[0]})"})
        methods.append({"type": "env", "names": variables})
    return {"id": name, "name": title, "methods": methods, "connections": connections}


async def _need_integration(ctx: Ctx, name: str) -> host_types.IntegrationInfo:
    for row in await _integrations(ctx):
        if row["id"] == name:
            return row
    raise IntegrationNotFound(name)


def _publish_change(ctx: Ctx) -> None:
    """Clients of OpenCode 1 read everything again. Clients of OpenCode 2 read again what a key may have changed."""
    ctx.services.host.publish(AllDisposed(), EVERYWHERE)
    publish_changes(ctx, "credential.updated", "integration.updated", "provider.updated", "model.updated")
