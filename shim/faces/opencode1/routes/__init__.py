"""The handlers of OpenCode 1.x: one module for each tag of its API document, or for tags of one subject.

A module that is not in `MODULES` is not served.
"""

from __future__ import annotations

from types import ModuleType

from shim.faces.opencode1 import health
from shim.faces.opencode1.routes import (
    agent,
    config,
    event,
    file,
    global_,
    mcp,
    message,
    permission,
    project,
    prompt,
    pty,
    session,
    share,
    tui,
    workspace,
)

MODULES: tuple[ModuleType, ...] = (
    session,
    agent,
    share,
    prompt,
    message,
    workspace,
    permission,
    event,
    config,
    project,
    file,
    health,
    global_,
    mcp,
    tui,
    pty,
)
"""All modules of handlers. Their order does not matter, as no routes overlap."""
