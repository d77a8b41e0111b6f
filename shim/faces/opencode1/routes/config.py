"""Reads and writes the user's OpenCode configuration (`shim.host.config.opencode_config`). Source: recording `misc`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import structlog

from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.generations import generation_of
from shim.host.changes import EVERYWHERE, AllDisposed, DirectoryDisposed, TuiToast
from shim.host.config._generated.config_models import Config
from shim.host.config.config_schema import wire
from shim.host.config.jsonc import JsoncError
from shim.host.config.opencode_config import OpenCodeConfig, describe
from shim.host.plugins.plugin_hosts import find_files
from shim.http.operation import Ctx
from shim.lib.errors import InvalidRequest
from shim.sessions.mcp_servers import is_trusted
from universal.lib.jsonvalue import arr

log = structlog.get_logger(__name__)


@operation("config.get")
async def get(ctx: Ctx) -> object:
    """Return the directory's configuration. Faults in files are logged, and shown in an attached TUI.

    As with native, `plugin` names the files of plugins too: here those that run.
    """
    config = await ctx.services.config.fresh(ctx.directory)
    _report_problems(ctx, config)
    found = await asyncio.to_thread(find_files, ctx.directory, ctx.services.config.folder, config)
    files = found[await is_trusted(ctx.services.sessions, ctx.directory)]
    plugins = arr(config.values.get("plugin"))
    urls = [url for name, _ in files.plugins if name in files.found and (url := Path(name).as_uri()) not in plugins]
    if urls:
        config = replace(config, values={**config.values, "plugin": [*plugins, *urls]})
    generation = generation_of(ctx.request.query, ctx.request.headers)
    if generation != "v1.18":  # clients of 1.18 have their keys elsewhere, and its API document lacks them
        return {**ctx.visible_config(config.values), "keybinds": KEYBINDS}
    return ctx.visible_config(config.values)


@operation("config.update")
async def update(ctx: Ctx, body: Config) -> object:
    """Change the directory's file, and make clients read everything again. It echoes the body, as native OpenCode does."""
    changes = wire(body)
    await _write(lambda update: ctx.services.config.update(ctx.directory, update), changes)
    # Native OpenCode ends running turns here. Our turns do not depend on the old configuration, so they go on.
    ctx.services.host.publish(DirectoryDisposed(ctx.directory), ctx.directory)
    return _without_nulls(changes)


@operation("global.config.get")
async def get_global(ctx: Ctx) -> object:
    """Return the user's own configuration."""
    config = await asyncio.to_thread(ctx.services.config.load_global)
    return ctx.visible_config(config.values)


@operation("global.config.update")
async def update_global(ctx: Ctx, body: Config) -> object:
    """Change the user's own file, and return its whole configuration."""
    await _write(ctx.services.config.update_global, wire(body))
    ctx.services.host.publish(AllDisposed(), EVERYWHERE)
    return (await asyncio.to_thread(ctx.services.config.load_global)).values


async def _write(write: Callable[[Mapping[str, Any]], Path], changes: Mapping[str, Any]) -> None:
    try:
        await asyncio.to_thread(write, changes)
    except JsoncError as error:
        raise InvalidRequest(f"The configuration file is faulty and was left as it is: {error}") from error
    except OSError as error:
        raise InvalidRequest(f"The configuration cannot be written: {error}") from error


def _report_problems(ctx: Ctx, config: OpenCodeConfig) -> None:
    if not config.problems:
        return
    lines = list(describe(config.problems))
    log.warning("config.faulty", directory=ctx.directory, problems=lines)
    toast = TuiToast("\n".join(lines), "warning", title="OpenCode configuration")
    ctx.services.host.publish(toast, ctx.directory)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}  # pyright: ignore[reportUnknownVariableType] - JSON
    return value


# --- keybinds --------------------------------------------------------------------------------------------

# Key bindings of TUIs up to 1.1, which take all of them from `GET /config`.
#
# A missing key has no binding there: without `session_interrupt`, Esc does nothing. Later TUIs have them in a file of their own.
# Source: `GET /config` of OpenCode 1.1.53 without any configuration.

KEYBINDS: Mapping[str, str] = json.loads(resources.files("shim.faces.opencode1").joinpath("keybinds.json").read_bytes())
