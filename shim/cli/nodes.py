"""`opencode-shim cluster nodes`, `cordon`, `uncordon` and `drain`: the servers of a cluster, asked of one of them over HTTP."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any
from urllib.parse import quote

from shim.cli import screen
from shim.cli.transfer import request
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from universal.lib.jsonvalue import arr, obj, text

POLL_S = 0.5
"""Seconds between two looks at a server that gives its sessions up."""
WORDS = {
    "cordoned": "{node} takes no more sessions, until `opencode-shim cluster uncordon` or its next start.",
    "open": "{node} takes sessions again.",
}


async def show(settings: Settings, url: str, out: screen.Console) -> int:
    """Print a line for each server that lives. Raises ShimError for a server without a cluster."""
    answer = obj(await request(settings, "GET", f"{url}/v1/x-nodes"))
    if answer.get("cluster") is None:
        raise ShimError(f"The server at {url} is in no cluster (docs/cluster.md).")
    for node in map(obj, arr(answer.get("nodes"))):
        name, sessions = text(node.get("name")), node.get("sessions")
        agents = f"room for {node.get('room')}" if node.get("agents") else "runs no agents"
        screen.line(out, f"{text(node.get('id'))}  {name}  {_state(node)}  {sessions} sessions, {agents}")
    return 0


def _state(node: dict[str, Any]) -> str:
    if node.get("cordoned"):
        return "drained" if node.get("draining") else "cordoned"
    return "stopping" if node.get("draining") else "open"


async def set_duty(settings: Settings, url: str, node: str, duty: str, out: screen.Console) -> int:
    """Let a server take sessions, or none. Raises ShimError if there is no such server."""
    await _change(settings, url, node, duty)
    screen.line(out, WORDS[duty].format(node=node))
    return 0


async def drain(settings: Settings, url: str, node: str, wait_s: float, out: screen.Console) -> int:
    """Let a server give its sessions up, and wait until it has none. Returns 1 if some have a turn after `wait_s`."""
    end = monotonic() + wait_s
    left = await _change(settings, url, node, "drained")
    screen.line(out, f"{node} gives up its sessions ({left}), those with a turn at its end.")
    while left and monotonic() < end:
        await asyncio.sleep(POLL_S)
        left = await _sessions_of(settings, url, node)
    if left:
        screen.line(out, f"{left} sessions have a turn, and move at its end; `cluster uncordon {node}` takes it back.")
        return 1
    screen.line(out, f"{node} has no sessions. It can be stopped (SIGTERM); `cluster uncordon {node}` lets it take some again.")
    return 0


async def _change(settings: Settings, url: str, node: str, duty: str) -> int:
    """Set what a server is to take. Returns the number of its sessions."""
    await request(settings, "PATCH", f"{url}/v1/x-nodes/{quote(node, safe='')}", {"duty": duty})
    return await _sessions_of(settings, url, node)


async def _sessions_of(settings: Settings, url: str, node: str) -> int:
    rows = map(obj, arr(obj(await request(settings, "GET", f"{url}/v1/x-nodes")).get("nodes")))
    return next((int(row["sessions"]) for row in rows if node in (row.get("id"), row.get("name"))), 0)
