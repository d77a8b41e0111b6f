"""Moves a session to another directory: its agent starts there, and gets the conversation as text.

An agent's conversation belongs to its first directory, so it is not resumed. Files are not moved. Earlier changes belong to the
old directory, so their undo restores no files.
"""

from __future__ import annotations

from shim.host.files.roots import require
from shim.host.git.projects import Identity
from shim.lib.errors import InvalidRequest
from shim.sessions.index.manager import SessionManager
from shim.sessions.undo.undo import settle
from universal.lib.paths import relative

LABEL = "moved"


async def move(manager: SessionManager, session_id: str, directory: str, project: Identity, path: str) -> None:
    """Move a session. Does nothing if it is there already. In: `path`, the directory's path in the project.

    Raises NotFound; InvalidRequest for a subagent's session and one that is at work; OutsideRoots for what is outside the roots.
    """
    await require(directory, manager.deps.roots)
    actor = await manager.actor(session_id)
    if actor.directory == directory:
        return
    _need_idle(actor.main.machine.busy)
    await settle(manager, actor)
    _need_idle(actor.main.machine.busy)
    actor.main.status(LABEL, directory=directory, project_id=project.id, path=path)
    actor.main.notify_changed()
    await manager.replace(session_id).close()


def subpath(directory: str, worktree: str) -> str:
    """The path of a directory in its project. "" for the top, and outside of a project."""
    inside = relative(directory, worktree) if worktree != "/" else ""
    return "" if inside in (".", directory) else inside


def _need_idle(busy: bool) -> None:
    if busy:
        raise InvalidRequest("This session is at work: interrupt it, or move it when its turn has ended.")
