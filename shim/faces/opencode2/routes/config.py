"""The route of the user's OpenCode configuration (`shim.host.config.opencode_config`), in OpenCode 2's form."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from shim.faces.opencode2 import host
from shim.faces.opencode2.config import convert
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.routes.location_answer import place, publish_changes
from shim.host.changes import EVERYWHERE, AllDisposed
from shim.host.config.jsonc import JsoncError
from shim.host.config.opencode_config import GLOBAL_NAMES
from shim.http.operation import NO_CONTENT, Ctx
from shim.lib.errors import InvalidRequest

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import host_types


class Shell(BaseModel):
    """`null` removes the setting."""

    shell: str | None


@operation("config.get")
async def get(ctx: Ctx) -> object:
    """The person's file, then the merged configuration of the directory. The later one wins."""
    directory, config = await place(ctx), ctx.services.config
    global_config = await asyncio.to_thread(config.load_global)
    file = await asyncio.to_thread(_personal_file, config.folder)
    merged = await config.fresh(directory)
    personal: host_types.ConfigEntry = {"type": "document", "info": convert(global_config.values)}
    if file is not None:
        personal["path"] = str(file)
    entries: list[host_types.ConfigEntry] = [
        {"type": "directory", "path": str(config.folder)},
        personal,
        {"type": "document", "info": convert(merged.values)},
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
async def update(ctx: Ctx, body: Shell) -> object:
    """Write the shell into the person's file."""
    try:
        await asyncio.to_thread(ctx.services.config.update_global, {"shell": body.shell})
    except JsoncError as error:
        raise InvalidRequest(f"The configuration file is faulty and was left as it is: {error}") from error
    except OSError as error:
        raise InvalidRequest(f"The configuration cannot be written: {error}") from error
    ctx.services.host.publish(AllDisposed(), EVERYWHERE)
    publish_changes(ctx, "config.updated")
    return NO_CONTENT
