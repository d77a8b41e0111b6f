"""What an OpenCode has said itself of a request, a result or an error, as events hold it in their `opencode` field. Pure.

    permission   metadata.opencode   {permission, patterns, always, metadata}: the access is known, and not found by the call
    tool result  metadata.opencode   {title, metadata}: the card of the result is known
    error        details.opencode    {name, data}: the error object

Codecs of agents that are an OpenCode write it, and sessions that split a call into several requests. It is written and read here
alone. The prompt in the item of a user message (`universal.session.user_prompt`) has the same key and another form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from universal.items import Json
from universal.lib.jsonvalue import JsonObject, arr, obj, text
from universal.permissions import Access

KEY = "opencode"


@dataclass(frozen=True, slots=True)
class NativeResult:
    """The title and the metadata of a result's card."""

    title: str
    metadata: JsonObject


@dataclass(frozen=True, slots=True)
class NativeError:
    """An error object. `json` is the whole of it."""

    name: str
    message: str
    status: int | None
    json: JsonObject


def access_metadata(access: Access) -> dict[str, Json]:
    """The metadata of a request for this access."""
    patterns, always = list(access.patterns), list(access.always)
    agent = {"agent": access.agent} if access.agent else {}
    request = {"permission": access.permission, "patterns": patterns, "always": always, "metadata": dict(access.metadata)}
    return {KEY: {**request, **agent}}


def access_of(metadata: Mapping[str, Json], action: str) -> Access | None:
    """The access that a request's metadata names. In: `action`, the permission if it names none."""
    request = obj(metadata.get(KEY))
    if not request:
        return None
    patterns, always = strings(request.get("patterns")), strings(request.get("always"))
    details, agent = obj(request.get("metadata")), text(request.get("agent"))
    tool = tool_of({"tool": action, **metadata}) if agent else ""
    return Access(text(request.get("permission"), action), patterns, always, details, agent=agent, tool=tool)


def tool_of(metadata: Mapping[str, Json]) -> str:
    """The agent's own name of an MCP server's tool, or of what reads the resources of one; else ""."""
    name, server = text(metadata.get("tool")), text(obj(metadata.get("input")).get("server"))
    return name if name.startswith("mcp__") else f"{name} {server}" if "Mcp" in name and server else ""


def strings(value: Json) -> tuple[str, ...]:
    """The members of a list as strings."""
    return tuple(map(str, arr(value)))


def result_metadata(result: NativeResult) -> dict[str, Json]:
    """The metadata of a tool's result."""
    return {KEY: {"title": result.title, "metadata": result.metadata}}


def result_of(metadata: Mapping[str, Json]) -> NativeResult | None:
    """The card that a result's metadata has."""
    result = obj(metadata.get(KEY))
    return NativeResult(str(result.get("title", "")), obj(result.get("metadata"))) if result else None


def error_details(error: JsonObject) -> dict[str, Json]:
    """The details of an error with this error object, `{name, data}`."""
    return {KEY: error}


def error_of(details: Mapping[str, Json] | None) -> NativeError | None:
    """The error object that an error's details have."""
    if not isinstance((details or {}).get(KEY), dict):
        return None
    error = obj((details or {}).get(KEY))
    data = obj(error.get("data"))
    status = data.get("statusCode")
    return NativeError(text(error.get("name")), text(data.get("message")), status if isinstance(status, int) else None, error)
