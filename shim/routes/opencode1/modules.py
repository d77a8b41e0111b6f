"""The modules whose handlers make the OpenCode 1.x face; one for each tag of its document, more where a tag has several jobs."""

from __future__ import annotations

from types import ModuleType

from shim.routes.opencode1 import (
    agent,
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


def modules() -> tuple[ModuleType, ...]:
    """For `shim.http.application`; a module that is not here is not served."""
    return (
        session,
        prompt,
        message,
        permission,
        question,
        event,
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
