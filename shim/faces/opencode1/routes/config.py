"""The person's OpenCode configuration, as it is in their files (`shim.host.opencode_config`). Source: recording `misc`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from shim.errors import InvalidRequest
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.generations import generation_of
from shim.faces.opencode1.keybinds import KEYBINDS
from shim.host.changes import EVERYWHERE, DirectoryDisposed, EverythingDisposed, TuiCommand
from shim.host.config_schema import Config, wire
from shim.host.jsonc import JsoncError
from shim.host.opencode_config import OpenCodeConfig, describe
from shim.http.operation import Ctx

log = structlog.get_logger(__name__)


@operation("config.get")
async def get(ctx: Ctx) -> object:
    """What holds in the directory. Faults in files are logged, and shown in an attached TUI; the rest of them holds."""
    config = await ctx.services.config.fresh(ctx.directory)
    _tell(ctx, config)
    generation = generation_of(ctx.request.query, ctx.request.headers)
    if generation != "v1.18":  # not in the document of 1.18, whose clients have their keys elsewhere
        return {**config.values, "keybinds": KEYBINDS}
    return config.values


@operation("config.update")
async def update(ctx: Ctx, body: Config) -> object:
    """Change the directory's file, then clients read everything again. The answer is what was sent, as native's."""
    changes = wire(body)
    await _write(lambda given: ctx.services.config.update(ctx.directory, given), changes)
    # Native ends running turns here; nothing of ours depends on the old configuration, so they go on.
    ctx.services.host.publish(DirectoryDisposed(ctx.directory), ctx.directory)
    return _without_nulls(changes)


@operation("global.config.get")
async def get_global(ctx: Ctx) -> object:
    """The person's own file."""
    config = await asyncio.to_thread(ctx.services.config.load_global)
    return config.values


@operation("global.config.update")
async def update_global(ctx: Ctx, body: Config) -> object:
    """Change the person's own file. The answer is all of it."""
    await _write(ctx.services.config.update_global, wire(body))
    ctx.services.host.publish(EverythingDisposed(), EVERYWHERE)
    return (await asyncio.to_thread(ctx.services.config.load_global)).values


async def _write(write: Callable[[Mapping[str, Any]], Path], changes: Mapping[str, Any]) -> None:
    try:
        await asyncio.to_thread(write, changes)
    except JsoncError as error:
        raise InvalidRequest(f"The configuration file is faulty and was left as it is: {error}") from error
    except OSError as error:
        raise InvalidRequest(f"The configuration cannot be written: {error}") from error


def _tell(ctx: Ctx, config: OpenCodeConfig) -> None:
    if not config.problems:
        return
    lines = list(describe(config.problems))
    log.warning("config.faulty", directory=ctx.directory, problems=lines)
    toast = {"title": "OpenCode configuration", "message": "\n".join(lines), "variant": "warning"}
    ctx.services.host.publish(TuiCommand("tui.toast.show", toast), ctx.directory)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}  # pyright: ignore[reportUnknownVariableType] - JSON
    return value
