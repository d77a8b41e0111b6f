"""What a person chooses from: agents (modes), commands, models, tools; and keys. Source: recording `endpoints`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from shim.agents import catalog, offered_commands
from shim.faces.opencode1 import offers
from shim.faces.opencode1._generated import requests
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.offers import providers
from shim.host.config.skills import Skill
from shim.http.operation import Ctx
from shim.http.services import list_offers
from shim.lib.errors import InvalidRequest
from shim.sessions.prompts.command import with_commands
from shim.sessions.prompts.server_commands import templates
from universal.agent_spec import AgentSpec
from universal.tools import tools_of

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import ToolListItem


@operation("app.agents")
async def modes(ctx: Ctx) -> object:
    """List the modes of all installed agents, `default_agent` first. It is never empty, as clients then send nothing."""
    config, agents = await list_offers(ctx.services, ctx.directory)
    listed = catalog.modes(agents, config.default_agent, config.disabled_agents, config.agents)
    setups = ctx.services.sessions.deps.setups
    setup = setups.now(ctx.directory, with_project=True)
    idle = setups.idle(ctx.directory, with_project=True)
    return [offers.agent(mode, agents, setup, idle) for mode in listed]


@operation("app.skills")
async def skills(ctx: Ctx) -> object:
    """List the skills in the project and in the person's home, where agents look for them."""
    listing = await asyncio.to_thread(ctx.services.config.skills, ctx.directory)
    return [_skill(skill) for skill in listing]


def _skill(skill: Skill) -> dict[str, str]:
    row = {"name": skill.name, "location": skill.path, "content": skill.content}
    return {**row, "description": skill.description} if skill.description else row


# --- commands --------------------------------------------------------------------------------------------


@operation("command.list")
async def commands(ctx: Ctx) -> object:
    """List all slash commands."""
    config, agents = await list_offers(ctx.services, ctx.directory)
    local = templates(ctx.directory, config.commands)
    agents = await with_commands(ctx.services.sessions, agents, ctx.directory)
    rows = offered_commands.commands(agents, local, config.model, has_internal=ctx.services.settings.all_commands)
    return [offers.command(command) for command in rows]


# --- providers and models --------------------------------------------------------------------------------

# Lists the installed agents as providers, with their models. Source: recording `endpoints`.
#
# The TUI and the web UI do not start without these answers. They request them several times a page, so they are small.


@operation("provider.list")
async def list_providers(ctx: Ctx) -> object:
    """List only installed agents, because a client cannot connect a missing one."""
    _, agents = await list_offers(ctx.services, ctx.directory)
    rows = providers(agents)
    return {"all": rows, "default": catalog.default_models(agents), "connected": [row["id"] for row in rows]}


@operation("config.providers")
async def configured_providers(ctx: Ctx) -> object:
    """List the same in the form that the TUI reads at its start."""
    _, agents = await list_offers(ctx.services, ctx.directory)
    return {"providers": providers(agents), "default": catalog.default_models(agents)}


# --- tools -----------------------------------------------------------------------------------------------


@operation("tool.ids")
async def list_tool_ids(ctx: Ctx) -> object:
    """List the tools of all available agents."""
    return tool_names(agent.spec.name for agent in await ctx.services.agents.available())


@operation("tool.list")
async def list_tools(ctx: Ctx, query: requests.ToolQuery) -> object:
    """List the tools of one agent. Raises InvalidRequest for an unknown one."""
    agents = {agent.spec.name: agent for agent in await ctx.services.agents.available()}
    if query.provider not in agents:
        names = ", ".join(agents)
        raise InvalidRequest(f'Provider not found: "{query.provider}". Available: {names}.', "Query", ("provider",))
    return list_items(query.provider, agents[query.provider].spec.title)


# --- tool schemas ----------------------------------------------------------------------------------------

# Lists an agent's tools under OpenCode's names, with their arguments as JSON Schema. Pure.
#
# Agents do not report the schemas of their tools. So this returns the form in which this face shows their calls: OpenCode's names
# (`universal.tools`) and OpenCode's arguments. An agent may send more, so the schemas allow more.
# Source: the answer of a live OpenCode 1.18.33 to `/experimental/tool`, for names, types and required arguments.

SCHEMA = "https://json-schema.org/draft/2020-12/schema"

ARGUMENTS: dict[str, dict[str, str]] = {
    "question": {"questions!": "array"},
    "bash": {"command!": "string", "timeout": "integer", "workdir": "string"},
    "read": {"filePath!": "string", "offset": "integer", "limit": "integer"},
    "glob": {"pattern!": "string", "path": "string"},
    "grep": {"pattern!": "string", "path": "string", "include": "string"},
    "edit": {"filePath!": "string", "oldString": "string", "newString": "string", "replaceAll": "boolean"},
    "write": {"filePath!": "string", "content!": "string"},
    "task": {"description": "string", "prompt!": "string", "subagent_type": "string"},
    "webfetch": {"url!": "string", "format": "string", "timeout": "number"},
    "websearch": {"query!": "string"},
    "todowrite": {"todos!": "array"},
    "skill": {"name!": "string"},
}
"""OpenCode's tool -> its arguments; `!` marks required ones. Any other tool takes an object of unknown members."""


def tool_names(agents: Iterable[str]) -> list[str]:
    """List the tools of these agents by OpenCode's names."""
    return list(dict.fromkeys(row.tool for agent in agents for row in tools_of(agent).values()))


def list_items(agent: str, title: str) -> list[ToolListItem]:
    """List one agent's tools as `ToolListItem` objects."""
    natives: dict[str, list[str]] = {}
    for native, row in tools_of(agent).items():
        natives.setdefault(row.tool, []).append(native)
    return [
        {"id": tool, "description": f"{title}'s {', '.join(names)}, as its calls are shown here.", "parameters": _schema(tool)}
        for tool, names in natives.items()
    ]


def _schema(tool: str) -> dict[str, Any]:
    arguments = ARGUMENTS.get(tool, {})
    properties = {name.rstrip("!"): {"type": kind} for name, kind in arguments.items()}
    required = [name.rstrip("!") for name in arguments if name.endswith("!")]
    return {"$schema": SCHEMA, "type": "object", "properties": properties} | ({"required": required} if required else {})


# --- keys of providers -----------------------------------------------------------------------------------


class Credentials(BaseModel):
    """`PUT /auth/{providerID}`. Only keys are stored; the other types are not even read."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["api", "oauth", "wellknown"]
    key: Any = None
    """Accepts any value, because a validation error would show the value."""


@operation("auth.set")
async def set_key(ctx: Ctx, path: requests.ProviderPath, body: Credentials) -> object:
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
async def remove_key(ctx: Ctx, path: requests.ProviderPath) -> object:
    """Remove a key. A missing one is no error, as in native OpenCode."""
    await asyncio.to_thread(ctx.services.agents.keys.remove, path.providerID)
    return True


@operation("provider.auth")
async def methods(ctx: Ctx) -> object:
    """List the agents that accept a key, and the environment variable for it, and those whose own login can be begun."""
    specs = [agent.spec for agent in await ctx.services.agents.available()]
    ways = {spec.name: _ways(spec) for spec in specs}
    return {name: list(rows) for name, rows in ways.items() if rows}


def _ways(spec: AgentSpec) -> tuple[dict[str, str], ...]:
    """The ways to log in. A client names one by its place."""
    variables = spec.program.key_variables
    keys = ({"type": "api", "label": f"API key ({variables[0]})"},) if variables else ()
    return keys if spec.program.login_run is None else ({"type": "oauth", "label": f"Log in with {spec.title}"}, *keys)


class OauthBody(BaseModel):
    """`method`: the place of the way to log in. `code`: what the page of the login shows."""

    method: float
    code: str | None = None


@operation("provider.oauth.authorize")
async def authorize(ctx: Ctx, path: requests.ProviderPath, body: OauthBody) -> object:
    """Begin the agent's own login on this machine, and return its link."""
    agent = ctx.services.agents.get(path.providerID)
    if agent is None or body.method != 0:
        raise InvalidRequest(f'"{path.providerID}" has no login with this number. GET /provider/auth lists those that there are.')
    login = await ctx.services.logins.begin(agent)
    return {"url": login.url, "method": "code" if login.takes_code else "auto", "instructions": login.instructions}


@operation("provider.oauth.callback")
async def callback(ctx: Ctx, path: requests.ProviderPath, body: OauthBody) -> object:
    """Wait until the person has logged in. A client that goes away cancels nothing: another begin does, or the login's time."""
    login = ctx.services.logins.find(path.providerID)
    if login is None:
        raise InvalidRequest(f'No login of "{path.providerID}" was begun.')
    await ctx.services.logins.finish(login, body.code)
    return True
