"""The OpenCode 1.x face: one module of handlers for each tag of its document, more where a tag has several jobs.

A module that is not in `MODULES` is not served.
"""

from __future__ import annotations

from types import ModuleType

from shim.routes.opencode1 import (
    agent,
    all_sessions,
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
    path,
    permission,
    preview,
    project,
    prompt,
    provider,
    question,
    session,
    tui,
    vcs,
)

MODULES: tuple[ModuleType, ...] = (
    session,
    prompt,
    message,
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
    global_,
    instance,
    log,
    doc,
    mcp,
    experimental,
    tui,
    preview,
)
"""In the order of their routes, which do not overlap."""
