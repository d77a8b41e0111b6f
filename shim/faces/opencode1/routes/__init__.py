"""The handlers of OpenCode 1.x: one module for each tag of its API document, more for tags with several subjects.

A module that is not in `MODULES` is not served.
"""

from __future__ import annotations

from types import ModuleType

from shim.faces.opencode1 import health
from shim.faces.opencode1.routes import (
    agent,
    all_sessions,
    auth,
    command,
    config,
    doc,
    event,
    experimental,
    file,
    find,
    global_,
    instance,
    log,
    mcp,
    message,
    move,
    path,
    permission,
    project,
    prompt,
    provider,
    pty,
    question,
    revert,
    session,
    share,
    sync,
    tool,
    transfer,
    tui,
    vcs,
    workspace,
    worktree,
)

MODULES: tuple[ModuleType, ...] = (
    session,
    auth,
    sync,
    share,
    transfer,
    prompt,
    revert,
    message,
    move,
    permission,
    question,
    event,
    all_sessions,
    config,
    provider,
    agent,
    command,
    path,
    project,
    vcs,
    file,
    find,
    health,
    global_,
    instance,
    log,
    doc,
    mcp,
    experimental,
    tui,
    pty,
    worktree,
    workspace,
    tool,
)
"""All modules of handlers. Their order does not matter, as no routes overlap."""
