"""The requests that prepare a session of OpenCode 2 for a prompt, one after the other, before the prompt is sent."""

from __future__ import annotations

from dataclasses import dataclass

from universal.agents.opencode2.wire import SYSTEM_ENTRY
from universal.items import Json

UNDO = frozenset({"history", "stage", "commit"})
"""Purposes of the requests that cut a conversation."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a prompt. `path` is below the session. If not `is_needed`, the prompt continues after a refusal."""

    purpose: str
    method: str
    path: str
    body: Json
    is_needed: bool = True


def system_step(system: str) -> Step:
    """Return the request that gives a session its system text, or takes it back."""
    path = f"/instructions/entries/{SYSTEM_ENTRY}"
    if not system:
        return Step("system", "DELETE", path, None, is_needed=False)
    return Step("system", "PUT", path, {"value": system}, is_needed=False)
