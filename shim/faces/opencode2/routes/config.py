"""The route of the user's OpenCode configuration (`shim.host.config.opencode_config`), in OpenCode 2's form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shim.faces.opencode2 import host
from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.names import rules
from shim.faces.opencode2.routes.location_answer import place, publish_changes
from shim.host.changes import EVERYWHERE, AllDisposed
from shim.host.config.jsonc import JsoncError
from shim.host.config.opencode_config import GLOBAL_NAMES
from shim.http.operation import Ctx
from shim.lib.errors import InvalidRequest
from universal.lib.jsonvalue import JsonObject, arr, obj, text

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import host_types, types
    from shim.faces.opencode2._generated.host_types import ConfigInfo


@operation("config.get")
async def get(ctx: Ctx) -> object:
    """The person's file, then the merged configuration of the directory. The later one wins."""
    directory, config = await place(ctx), ctx.services.config
    global_config = await asyncio.to_thread(config.load_global)
    file = await asyncio.to_thread(_personal_file, config.folder)
    merged = await config.fresh(directory)
    personal: host_types.ConfigEntry = {"type": "document", "info": convert(ctx.visible_config(global_config.values))}
    if file is not None:
        personal["path"] = str(file)
    entries: list[host_types.ConfigEntry] = [
        {"type": "directory", "path": str(config.folder)},
        personal,
        {"type": "document", "info": convert(ctx.visible_config(merged.values))},
    ]
    return entries


def _personal_file(folder: Path) -> Path | None:
    """The person's file that has the last word, or None."""
    return next((path for name in reversed(GLOBAL_NAMES) if (path := folder / name).is_file()), None)


@operation("config.shells")
async def shells(ctx: Ctx) -> object:
    """The shells of this machine."""
    return [host.shell(shell) for shell in await asyncio.to_thread(ctx.services.terminals.shells)]


@operation("experimental.config.update")
async def update(ctx: Ctx, body: requests.ConfigUpdateBody) -> None:
    """Write the shell into the person's file."""
    try:
        await asyncio.to_thread(ctx.services.config.update_global, {"shell": body.shell})
    except JsoncError as error:
        raise InvalidRequest(f"The configuration file is faulty and was left as it is: {error}") from error
    except OSError as error:
        raise InvalidRequest(f"The configuration cannot be written: {error}") from error
    ctx.services.host.publish(AllDisposed(), EVERYWHERE)
    publish_changes(ctx, "config.updated")


# --- the form of OpenCode 2 ------------------------------------------------------------------------------

# Converts the JSON of a configuration file, which has OpenCode 1's form, to OpenCode 2's form. Pure.
#
# Keys that OpenCode 2 does not have are left out.
# Source: `ConfigInfo` of compat_fixtures/opencode2; the documents of 2.0 on migration from 1.x.

UNCHANGED_KEYS = (
    "$schema",
    "shell",
    "model",
    "default_agent",
    "share",
    "username",
    "enterprise",
    "watcher",
    "formatter",
    "lsp",
    "tool_output",
)
UPDATE: Mapping[object, str] = {True: "auto", False: "disable", "notify": "notify"}


def convert(values: Mapping[str, Any]) -> ConfigInfo:
    """The `ConfigInfo` of values that satisfy OpenCode 1's schema, so that each field has the type that the table says."""
    info: JsonObject = {key: values[key] for key in UNCHANGED_KEYS if values.get(key) is not None}
    for name, (key, conversion) in CONVERSIONS.items():
        value = values.get(key)
        if value is not None and (converted := conversion(value)) not in (None, {}, []):
            info[name] = converted
    return cast("ConfigInfo", info)


def permissions(value: Any) -> list[types.PermissionRule]:
    """The ordered rules of a `permission` value."""
    rows = {"*": value} if isinstance(value, str) else obj(value)
    return rules(
        [
            {"permission": name, "pattern": pattern, "action": action}
            for name, row in rows.items()
            for pattern, action in ({"*": row} if isinstance(row, str) else obj(row)).items()
            if isinstance(action, str)
        ]
    )


def _agent(row: JsonObject) -> JsonObject:
    fields = {key: row[key] for key in ("description", "mode", "hidden", "color", "steps") if row.get(key) is not None}
    model = text(row.get("model"))
    variant = text(row.get("variant"))
    more = {
        "model": f"{model}#{variant}" if model and variant else model,
        "system": text(row.get("prompt")),
        "permissions": permissions(row.get("permission")) if row.get("permission") else [],
    }
    return fields | {key: value for key, value in more.items() if value} | ({"disabled": True} if row.get("disable") else {})


def _server(row: JsonObject) -> JsonObject:
    fields = {key: row[key] for key in ("type", "command", "url", "cwd", "environment", "headers") if row.get(key) is not None}
    return fields | ({"disabled": True} if row.get("enabled") is False else {})


def _convert_values(conversion: Callable[[JsonObject], JsonObject]) -> Callable[[Any], Any]:
    return lambda value: {name: conversion(obj(row)) for name, row in obj(value).items() if isinstance(row, dict)}


def _plugins(value: Any) -> Any:
    return [plugin if isinstance(plugin, str) else {"package": plugin[0], "options": plugin[1]} for plugin in arr(value)]


def _compaction(value: Any) -> Any:
    row = obj(value)
    compaction: JsonObject = {"auto": row["auto"]} if "auto" in row else {}
    if row.get("preserve_recent_tokens") is not None:
        compaction["keep"] = {"tokens": row["preserve_recent_tokens"]}
    return compaction | ({"buffer": row["reserved"]} if row.get("reserved") is not None else {})


def _as_it_is(value: Any) -> Any:
    return value


CONVERSIONS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "update": ("autoupdate", lambda value: UPDATE.get(value)),
    "permissions": ("permission", permissions),
    "agents": ("agent", _convert_values(_agent)),
    "snapshots": ("snapshot", _as_it_is),
    "media": ("attachment", _as_it_is),
    "mcp": ("mcp", lambda value: {"servers": servers} if (servers := _convert_values(_server)(value)) else {}),
    "compaction": ("compaction", _compaction),
    "skills": ("skills", lambda value: [*arr(obj(value).get("paths")), *arr(obj(value).get("urls"))]),
    "commands": ("command", _as_it_is),
    "instructions": ("instructions", _as_it_is),
    "references": ("references", _as_it_is),
    "plugins": ("plugin", _plugins),
    "providers": ("provider", _as_it_is),
}
"""Key in OpenCode 2 -> key in OpenCode 1, and the function that converts its value."""
