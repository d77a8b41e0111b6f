"""Decides which servers of a cluster may answer a request that concerns a directory, not a session.

    a front                    a server that has the directory; all ask the same one as long as it lives
    a server without it        the same
    a server that has it       itself; for terminals and shell commands, which live in one server, the same as all others

A server is asked with `NEEDED`: it refuses if it has no such directory, and the next one is asked. If all refuse, the first one
answers as a server does for a directory that does not exist. A worktree is reset and removed where the worktree is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

from aiohttp import web

from shim.cluster.placement import ClusterPlacement
from shim.host.files.roots import within
from shim.http.access import READING, access_of
from shim.http.directory import resolve
from shim.http.operation import SERVICES
from shim.http.services import Services
from shim.lib.disk import is_folder
from shim.lib.errors import DirectoryElsewhere, NoServer, SessionNotFound, WorkspaceNotFound
from shim.store.servers import ServerRef
from universal.lib.jsonvalue import obj, text

NEEDED = "X-Shim-Directory-Needed"
"""Header of a request that only a server with this directory may answer."""
OF_A_DIRECTORY = frozenset(
    {
        "agent",
        "agents",
        "command",
        "config",
        "file",
        "find",
        "formatter",
        "fs",
        "instance",
        "location",
        "lsp",
        "mcp",
        "model",
        "path",
        "project",
        "provider",
        "pty",
        "reference",
        "shell",
        "skill",
        "tool",
        "vcs",
        "workspace",
        "worktree",
    }
)
"""What concerns a directory: the first name of a path, behind `/api`, `/experimental` and `/v1`."""
IN_ONE_SERVER = frozenset({"pty", "shell"})
"""Those of which the state is in the memory of one server."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The servers to ask for a directory, in this order.

    is_here        this server answers if they refuse
    has_directory  this server has the directory
    """

    directory: str
    servers: tuple[ServerRef, ...]
    is_here: bool
    has_directory: bool


def _name(request: web.Request) -> str:
    path = access_of(request).path(request)
    for prefix in ("/api", "/experimental", "/v1"):
        path = path.removeprefix(prefix) if path.startswith(f"{prefix}/") else path
    return path.split("/")[1]


async def hosts_of(request: web.Request, placement: ClusterPlacement) -> Hosts | None:
    """The servers that a request should go to; None for this one. Raises NoServer for changes at a front that is alone."""
    services, name = request.app[SERVICES], _name(request)
    if name not in OF_A_DIRECTORY:
        return None
    directory = await _place_of_work(request, services, name)
    if not placement.runs_agents:
        servers = placement.hosts(directory)
        if not servers and (request.method not in READING or name in IN_ONE_SERVER):
            raise NoServer(directory, None, "This server runs no agents (--no-agents)")
        return Hosts(directory, tuple(servers), is_here=False, has_directory=False) if servers else None
    has_directory = await _has(services, directory)
    if not has_directory:
        servers = placement.hosts(directory)
    else:
        servers = placement.hosts_before_this(directory) if name in IN_ONE_SERVER else []
    return Hosts(directory, tuple(servers), is_here=True, has_directory=has_directory) if servers else None


async def need_directory(request: web.Request) -> None:
    """Raise DirectoryElsewhere if a request needs a directory that this server does not have."""
    directory = unquote(request.headers.get(NEEDED, ""))
    if directory and not await _has(request.app[SERVICES], directory):
        raise DirectoryElsewhere(directory)


async def _place_of_work(request: web.Request, services: Services, name: str) -> str:
    """The directory that a request concerns: that of the worktree, the project or the session in it, or the one that it names."""
    directory = resolve(request.query, request.headers, str(services.settings.directory))
    path = access_of(request).path(request)
    if name == "workspace" and request.method == "DELETE":
        with suppress(WorkspaceNotFound):
            return (await services.workspaces.get(path.rpartition("/")[2])).directory
    if name == "fs" and (session := request.query.get("session_id")) and services.universal is not None:
        with suppress(SessionNotFound):
            return services.sessions.index.record(await services.universal.sessions.id_of(session)).directory
    if name == "worktree":
        body: dict[str, object] = {}
        with suppress(ValueError):
            body = {} if request.method in READING else obj(await request.json())
        target = text(body.get("directory"))
        if target and (request.method == "DELETE" or path.endswith("/reset")):
            return resolve({"directory": target}, {}, directory)
        if (project_id := request.query.get("projectID") or text(body.get("projectID"))) and (
            project := await services.projects.get(project_id)
        ):
            return project.worktree
    return directory


async def _has(services: Services, directory: str) -> bool:
    roots = services.settings.roots
    return await asyncio.to_thread(lambda: is_folder(directory) and within(directory, roots))
