"""Converts OpenCode 1's agents, commands, models and providers to OpenCode 2's form. Pure.

Prices, release dates and other values that an agent does not tell are left out where the contract allows it, and are 0 elsewhere,
as in OpenCode itself for unknown models. Source: recording `endpoints` of `compat_fixtures/opencode2/v2-20260717`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from shim.faces.opencode2.events import Wire

if TYPE_CHECKING:
    from shim.faces.opencode2 import host_types, types

INPUTS = ("text", "image", "pdf", "audio", "video")
PACKAGE = "opencode-shim"
"""Beginning of a provider's `package`. An agent talks to the models, and no package of the AI SDK."""


def agents(modes: Iterable[Wire], permissions: list[types.PermissionRule]) -> list[host_types.AgentInfo]:
    """The `AgentInfo` objects. In: OpenCode 1's `Agent` objects, and the config's permission rules for every agent."""
    return [_agent(mode, permissions) for mode in modes]


def _agent(mode: Wire, permissions: list[types.PermissionRule]) -> host_types.AgentInfo:
    agent: host_types.AgentInfo = {
        "id": mode["name"],
        "name": mode["name"].capitalize(),
        "mode": mode["mode"],
        "hidden": False,
        "permissions": permissions,
        "request": {"settings": {}, "headers": {}, "body": {}},
    }
    if mode.get("description"):
        agent["description"] = mode["description"]
    return agent


def commands(rows: Iterable[Wire]) -> list[host_types.CommandInfo]:
    """The `CommandInfo` objects. Templates are left out."""
    return [_command(row) for row in rows]


def _command(row: Wire) -> host_types.CommandInfo:
    command: host_types.CommandInfo = {"name": row["name"]}
    if "description" in row:
        command["description"] = row["description"]
    return command


def provider(row: Wire, *, keyed: bool) -> host_types.ProviderInfo:
    """The `ProviderInfo` of an agent. In: `keyed`, whether it takes a key, for which an integration of its name exists."""
    info: host_types.ProviderInfo = {
        "id": row["id"],
        "name": row["name"],
        "activation": "enabled",
        "package": f"{PACKAGE}:{row['id']}",
    }
    if keyed:
        info["integrationID"] = row["id"]
    return info


def models(providers: Iterable[Wire]) -> list[host_types.ModelInfo]:
    """The `ModelInfo` objects of all providers."""
    return [model(row, one) for row in providers for one in row["models"].values()]


def model(row: Wire, one: Wire) -> host_types.ModelInfo:
    """The `ModelInfo` of a model. In: its provider and the model, as in OpenCode 1."""
    can, limit = one["capabilities"], one["limit"]
    return {
        "id": one["id"],
        "modelID": one["id"],
        "providerID": row["id"],
        "name": one["name"],
        "package": f"{PACKAGE}:{row['id']}",
        "capabilities": {"tools": can["toolcall"], "input": [kind for kind in INPUTS if can["input"][kind]], "output": ["text"]},
        "variants": [{"id": name, "settings": dict(settings)} for name, settings in one["variants"].items()],
        "time": {"released": 0},
        "cost": [],
        "status": one["status"],
        "enabled": True,
        "limit": {"context": limit["context"], "output": limit["output"]},
    }


def default(providers: list[Wire], defaults: Mapping[str, str], wanted: str | None) -> host_types.ModelInfo | None:
    """The `ModelInfo` for sessions without a choice. In: `wanted`, the config's `provider/model`; it may not exist."""
    known = {row["id"]: row for row in providers}
    name, _, chosen = (wanted or "").partition("/")
    if name in known and chosen in known[name]["models"]:
        return model(known[name], known[name]["models"][chosen])
    first = next((row for row in providers if defaults.get(row["id"]) in row["models"]), None)
    return None if first is None else model(first, first["models"][defaults[first["id"]]])
