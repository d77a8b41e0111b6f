"""Events of the host (terminals, worktrees, files, the TUI's remote control) on the second wire. Pure.

They are published once, as OpenCode 1's; `ROWS` says what OpenCode 2 has for each. Types without a row are those of sessions,
which have a projection of their own, and what 2.x has not.
Source: opencode-v2-events.json; the payloads of terminals and of the TUI are the same on both wires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from shim.faces.opencode2.events import Wire

Told: TypeAlias = tuple[str, Wire]
"""Type and data."""


def _same(type_: str) -> Callable[[Wire], Told]:
    return lambda properties: (type_, properties)


def _project(row: Wire) -> Told:
    made = {key: row[key] for key in ("id", "vcs", "name", "icon", "commands") if row.get(key) is not None}
    time = {key: row["time"][key] for key in ("created", "updated")}
    made |= {"canonical": row["worktree"], "time": {**time, "active": time["updated"]}, "sandboxes": row.get("sandboxes", [])}
    return "project.updated", made


def _file(properties: Wire) -> Told:
    return "filesystem.changed", {"file": properties["file"], "event": properties["event"]}


ROWS: Mapping[str, Callable[[Wire], Told]] = {
    **{
        name: _same(name)
        for name in (
            *("pty.created", "pty.updated", "pty.exited", "pty.deleted", "vcs.branch.updated"),
            *("tui.prompt.append", "tui.command.execute", "tui.toast.show", "tui.session.select"),
            *("installation.updated", "installation.update-available"),
        )
    },
    "project.updated": _project,
    "project.directories.updated": lambda properties: ("worktree.updated", {"projectID": properties["projectID"]}),
    "file.watcher.updated": _file,
    "server.instance.disposed": lambda _: ("location.shutdown", {}),
}
