"""The handlers of OpenCode 2 (`/api`): one module for each subject. Only modules in `MODULES` are served."""

from __future__ import annotations

from types import ModuleType

from shim.faces.opencode2.routes import (
    agent,
    config,
    form,
    fs,
    log,
    mcp,
    message,
    permission,
    project,
    prompt,
    pty,
    server,
    session,
    work,
)

MODULES: tuple[ModuleType, ...] = (
    server,
    project,
    agent,
    mcp,
    config,
    fs,
    pty,
    session,
    log,
    message,
    prompt,
    work,
    permission,
    form,
)
"""All modules. Their routes do not overlap."""
