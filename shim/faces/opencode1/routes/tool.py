"""Lists the tools of agents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx
from shim.lib.errors import InvalidRequest
from universal.tools import tools_of

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import ToolListItem


class ToolQuery(BaseModel):
    """An agent and one of its models, which all have the same tools."""

    provider: str
    model: str


@operation("tool.ids")
async def ids(ctx: Ctx) -> object:
    """List the tools of all available agents."""
    return tool_names(agent.spec.name for agent in await ctx.services.agents.available())


@operation("tool.list")
async def list_tools(ctx: Ctx, query: ToolQuery) -> object:
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
