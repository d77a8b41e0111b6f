"""Reads a recording of OpenCode 2 as a script for a puppet agent: where answers end, and what they used.

Native's stream does not tell what agents tell; rows are numbered as in the recording. For `tests.support.opencode2_player`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from shim.faces.opencode2.names import ARGUMENTS, TOOLS

Wire = dict[str, Any]
STREAM = "/api/event"
AGENTS = ("session.step.", "session.text.", "session.reasoning.", "session.tool.")
"""How events begin that follow from what the agent says: they are waited for when something else happens."""
STATUS = {"provider.invalid-request": 400, "provider.auth": 401, "provider.internal": 503}
"""Type of an error -> the answer of the model's API that it was."""
BY_THE_WAY = (".delta", ".updated", ".renamed")
"""Events that nothing waits for: pieces of texts, and what native's model does beside the turn."""


def bodies(rows: Sequence[Wire]) -> dict[int, Wire]:
    """Where the model has said all of a step: row -> data of the step's end.

    That is the end of its last text, or its last call. A step that failed without a call was cut off.
    """
    over: dict[str, int] = {}
    calling: set[str] = set()
    found: dict[int, Wire] = {}
    for place, row in enumerate(rows):
        data = row.get("data") if row["dir"] == "sse" and row.get("stream") == STREAM else None
        if not isinstance(data, dict):
            continue
        kind, told = data["type"].replace("session.next.", "session."), data["data"]
        step = told.get("assistantMessageID")
        if kind in ("session.tool.called", "session.text.ended", "session.reasoning.ended"):
            over[step] = place
            calling |= {step} if kind == "session.tool.called" else set()
        elif step in over and (kind == "session.step.ended" or (kind == "session.step.failed" and step in calling)):
            found[over[step]] = told
    return found


def ends(rows: Sequence[Wire]) -> dict[int, tuple[str, bool]]:
    """Where the preview's agent has answered a prompt, which its stream does not say: row -> how, and whether nothing waits.

    That is the last thing that it does before it is handed the next one.
    """
    last: dict[str, tuple[int, tuple[str, bool]]] = {}
    found: dict[int, tuple[str, bool]] = {}
    waiting: Counter[str] = Counter()
    for place, row in enumerate(rows):
        data = row.get("data") if row["dir"] == "sse" and row.get("stream") == STREAM else None
        if not isinstance(data, dict) or not data["type"].startswith("session.next."):
            continue
        kind, session = data["type"].replace("session.next.", "session."), data["data"]["sessionID"]
        if kind == "session.prompted":
            waiting[session] -= 1
            found |= dict([last.pop(session)] if session in last else [])
        elif kind == "session.prompt.admitted":
            waiting[session] += 1
        elif kind.startswith(AGENTS):
            last[session] = (place, ("failed" if kind == "session.step.failed" else "completed", not waiting[session]))
    return {**found, **dict(last.values())}


def first_name(tool: str) -> str:
    """A tool of 2.x as 1.x calls it, whose names the mock's protocol has."""
    return next((first for first, second in TOOLS.items() if second == tool), tool)


def first_arguments(tool: str, given: Wire) -> Wire:
    """The same of its arguments."""
    names = {second: first for first, second in ARGUMENTS.get(tool, {}).items()}
    return {names.get(key, key): value for key, value in given.items()}


def strings(value: Any, change: Callable[[str], str]) -> Any:
    """A value with each of its strings changed."""
    if isinstance(value, dict):
        return {key: strings(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [strings(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def session_of(event: Wire) -> str | None:
    """The session of an event."""
    data = event["data"]
    return data.get("sessionID") or data.get("form", {}).get("sessionID")


def step_usage(data: Wire) -> Wire:
    """`usage` and `cost` of a step, as the mock's protocol has them."""
    tokens = data.get("tokens")
    if tokens is None:
        return {}
    cache = tokens["cache"]
    usage = {
        **{k: tokens[k] for k in ("input", "output", "reasoning")},
        "cache_read": cache["read"],
        "cache_write": cache["write"],
    }
    return {"usage": usage, "cost": data.get("cost")}
