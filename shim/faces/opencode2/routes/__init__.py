"""The OpenCode 2 face (`/api`): one module of handlers for each subject of its table of operations.

A module that is not in `MODULES` is not served.
"""

from __future__ import annotations

from types import ModuleType

from shim.faces.opencode2.routes import (
    agent,
    config,
    event,
    form,
    fs,
    generate,
    instructions,
    integration,
    location,
    log,
    mcp,
    message,
    model,
    pairing,
    permission,
    preview,
    preview_log,
    project,
    prompt,
    pty,
    revert,
    rpc,
    server,
    session,
    shell,
    stats,
    transfer,
    vcs,
    websearch,
    work,
)

MODULES: tuple[ModuleType, ...] = (
    server,
    pairing,
    location,
    agent,
    model,
    integration,
    mcp,
    config,
    fs,
    vcs,
    project,
    pty,
    shell,
    websearch,
    rpc,
    stats,
    transfer,
    event,
    session,
    message,
    prompt,
    instructions,
    generate,
    work,
    permission,
    form,
    revert,
    log,
    preview,
    preview_log,
)
"""In the order of their routes, which do not overlap."""
