"""The OpenCode 2 face (`/api`): one module of handlers for each subject of its table of operations.

A module that is not in `MODULES` is not served.
"""

from __future__ import annotations

from types import ModuleType

from shim.routes.opencode2 import (
    agent,
    config,
    fs,
    integration,
    location,
    mcp,
    model,
    project,
    pty,
    server,
    vcs,
    websearch,
)

MODULES: tuple[ModuleType, ...] = (
    server,
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
    websearch,
)
"""In the order of their routes, which do not overlap."""
