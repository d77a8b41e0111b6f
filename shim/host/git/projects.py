"""OpenCode's projects: a directory belongs to its repository, and the first commit identifies a repository.

    in a repository with commits   id = the root commit of HEAD (the least, if there are several), worktree = its top
    without commits yet            id = "global", worktree = its top, vcs git
    anywhere else                  id = "global", worktree = "/"

Clones and worktrees of one repository form one project: the first one seen is its `worktree`, the others its `sandboxes`.
The store keeps the rows (namespace `project`) and the ids of worktrees (`project_id`), because walking the history of a large
repository takes seconds. Unlike native OpenCode, this writes nothing into the repository's `.git`.
Source: a live OpenCode 1.18.33, recordings `endpoints`, `directories`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from shim.host.git import vcs
from shim.host.git.git_command import git, message_of
from shim.host.values import Project, ProjectIcon
from shim.lib.clock import Clock
from shim.lib.disk import is_file, is_folder
from shim.lib.errors import GitInitFailed, ProjectNotFound
from shim.store.base import Store
from universal.lib.jsonvalue import arr, obj, text, whole
from universal.lib.paths import is_in, relative

LOOK_AGAIN_S = 0.25
"""Seconds for which a directory's identity is cached. Nearly every request asks for it, and each check needs a thread."""
RECENT_LIMIT = 1000
"""Maximum directories in that cache."""
GLOBAL = "global"
ROWS = "project"
IDS = "project_id"


@dataclass(frozen=True, slots=True)
class Identity:
    """The project of a directory. `worktree` is the top of the directory's own working tree, `/` outside of git."""

    id: str
    worktree: str
    vcs: Literal["git"] | None = None

    def path_of(self, directory: str) -> str:
        """A directory relative to the working tree, "" for its top. Outside of git it is relative to `/`, as in OpenCode."""
        path = relative(directory, self.worktree) if self.worktree != "/" else directory.lstrip("/")
        return "" if path in (".", directory) else path


def belongs(project: Identity | Project, project_id: str, directory: str) -> bool:
    """Whether a session, made in this project and directory, is one of `project`: also one from before its first commit."""
    if project_id == project.id:
        return True
    return project_id == GLOBAL and project.worktree != "/" and is_in(directory, (project.worktree,))


@dataclass(frozen=True, slots=True)
class WorkingCopy:
    """A working tree that exists. `is_linked`: `git worktree add` created it."""

    directory: str
    is_linked: bool


class Projects:
    """All projects that were ever opened on this server. State: projects by id, and a cache of identities by directory."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._loading = asyncio.Lock()
        self._projects: dict[str, Project] | None = None
        self._ids: dict[str, str] = {}
        self._identities: dict[str, Identity] = {}
        self._recent: dict[str, tuple[float, Identity]] = {}

    async def identity(self, directory: str) -> Identity:
        """Return the project of a directory, which need not exist. The result is cached for LOOK_AGAIN_S."""
        now = asyncio.get_running_loop().time()
        until, identity = self._recent.get(directory, (0.0, None))
        if identity is None or now >= until:
            identity = await self._look_up(directory)
            if len(self._recent) > RECENT_LIMIT:
                self._recent.clear()
            self._recent[directory] = (now + LOOK_AGAIN_S, identity)
        return identity

    async def _look_up(self, directory: str) -> Identity:
        top = await asyncio.to_thread(_top, directory)
        cached = self._identities.get(directory)
        if cached is not None and cached.worktree == top:
            return cached
        projects = await self._load()
        identity = await self._identify(top)
        if identity.id != GLOBAL:  # a global one may get a commit at any time, and clients can name any number of directories
            self._identities[directory] = identity
        await self._open(projects, identity)
        return identity

    async def current(self, directory: str) -> Project:
        identity = await self.identity(directory)
        project = (await self._load())[identity.id]
        # All directories without a commit share one project, but the answer is about this directory.
        return replace(project, worktree=identity.worktree, vcs=identity.vcs) if identity.id == GLOBAL else project

    async def get(self, project_id: str) -> Project | None:
        """Return a project, or None for an unknown id."""
        return (await self._load()).get(project_id)

    async def list_all(self) -> list[Project]:
        """List all projects in the order of their first use."""
        return sorted((await self._load()).values(), key=lambda project: project.created_ms)

    async def directories(self, project_id: str) -> list[WorkingCopy]:
        """List the existing worktree and sandboxes of a project; [] for an unknown one, as in native OpenCode."""
        project = await self.get(project_id)
        return [] if project is None else await asyncio.to_thread(_places, [project.worktree, *project.sandboxes])

    async def update(self, project_id: str, change: Callable[[Project], Project]) -> Project:
        """Change a project by `change`. Raises ProjectNotFound."""
        projects = await self._load()
        project = projects.get(project_id)
        if project is None:
            raise ProjectNotFound(project_id)
        return self._save(projects, replace(change(project), updated_ms=self._clock.now_ms()))

    async def init_git(self, directory: str) -> Project:
        """Create a repository in a directory outside of git; return its project. Raises GitInitFailed with git's message."""
        if (await self.identity(directory)).vcs is None:
            result = await git(directory, "init", "--quiet")
            if not result.ok:
                raise GitInitFailed(directory, message_of(result))
            self.forget(directory)
        return await self.current(directory)

    def forget(self, directory: str) -> None:
        """Drop the cached identity of a directory, because its instance was disposed."""
        self._identities.pop(directory, None)
        self._recent.pop(directory, None)

    def note_row(self, project_id: str, row: Any) -> None:
        """Note a project that another server of the cluster has stored."""
        project = _from_row(row)
        if self._projects is not None and project.worktree:
            self._projects[project_id] = project

    def note_id(self, top: str, id_: Any) -> None:
        """Note the id of a repository that another server of the cluster has stored."""
        if self._projects is not None:
            self._ids[top] = text(id_)

    # --- inside

    async def _load(self) -> dict[str, Project]:
        async with self._loading:
            if self._projects is None:
                self._ids = {top: text(id_) for top, id_ in (await self._store.values(IDS)).items()}
                stored = map(_from_row, (await self._store.values(ROWS)).values())
                self._projects = {project.id: project for project in stored if project.worktree}
        return self._projects

    async def _identify(self, top: str | None) -> Identity:
        if top is None or await vcs.root(top) is None:
            return Identity(GLOBAL, "/")
        stored = self._ids.get(top)
        # The folder may hold another repository now.
        if stored and (await git(top, "cat-file", "-e", f"{stored}^{{commit}}")).ok:
            return Identity(stored, top, "git")
        roots = await git(top, "rev-list", "--max-parents=0", "HEAD")
        first = min(roots.text.split(), default="") if roots.ok else ""
        if not first:
            return Identity(GLOBAL, top, "git")
        self._ids[top] = first
        self._store.set_value(IDS, top, first)
        return Identity(first, top, "git")

    async def _open(self, projects: dict[str, Project], identity: Identity) -> None:
        """Create a project, or add this working tree to it."""
        project = projects.get(identity.id)
        places = [project.worktree, *project.sandboxes] if project is not None else []
        missing = await asyncio.to_thread(missing_folders, places)
        now = self._clock.now_ms()
        project = projects.get(identity.id)  # others may have changed it meanwhile
        worktree = "/" if identity.id == GLOBAL else identity.worktree
        if project is None:
            self._save(projects, Project(identity.id, worktree, now, now, None if identity.id == GLOBAL else "git"))
            return
        sandboxes = [place for place in project.sandboxes if place != worktree and place not in missing]
        if project.worktree != worktree and project.worktree not in missing:
            sandboxes.append(worktree)
            worktree = project.worktree
        changed = replace(project, worktree=worktree, sandboxes=tuple(sandboxes))
        if changed != project:
            self._save(projects, replace(changed, updated_ms=now))

    def _save(self, projects: dict[str, Project], project: Project) -> Project:
        projects[project.id] = project
        self._store.set_value(ROWS, project.id, _to_row(project))
        return project


def _from_row(row: Any) -> Project:
    """Read a stored project. It has no worktree if the row is damaged."""
    fields, time, icon = obj(row), obj(obj(row).get("time")), obj(obj(row).get("icon"))
    return Project(
        text(fields.get("id")),
        text(fields.get("worktree")),
        whole(time.get("created")),
        whole(time.get("updated")),
        "git" if fields.get("vcs") else None,
        tuple(map(text, arr(fields.get("sandboxes")))),
        fields.get("name"),
        ProjectIcon(icon.get("url"), icon.get("override"), icon.get("color")),
        obj(fields.get("commands")).get("start"),
    )


def _to_row(project: Project) -> dict[str, object]:
    """Write a project as it is stored: in OpenCode's form, as earlier versions of this server read it."""
    icon = {key: value for key, value in asdict(project.icon).items() if value is not None}
    row = {
        "id": project.id,
        "worktree": project.worktree,
        "vcs": project.vcs,
        "name": project.name,
        "icon": icon or None,
        "commands": None if project.start_command is None else {"start": project.start_command},
        "time": {"created": project.created_ms, "updated": project.updated_ms},
        "sandboxes": list(project.sandboxes),
    }
    return {key: value for key, value in row.items() if value is not None}


def missing_folders(directories: list[str]) -> set[str]:
    """The directories that do not exist. Blocking."""
    return {directory for directory in directories if not is_folder(directory)}


def _places(directories: list[str]) -> list[WorkingCopy]:
    """Describe the directories that exist. In a worktree from `git worktree add`, `.git` is a file."""
    return [WorkingCopy(directory, is_file(Path(directory, ".git"))) for directory in directories if is_folder(directory)]


def _top(directory: str) -> str | None:
    """Find the nearest folder upwards with a repository's `.git`, without resolving links in the client's path.

    An empty `.git` does not count, for git neither: Codex's sandbox creates one in its working directory while a command runs.
    """
    here = Path(directory)
    return next((str(folder) for folder in (here, *here.parents) if _is_repository(folder / ".git")), None)


def _is_repository(place: Path) -> bool:
    """Whether this is a repository's `.git` folder, or the `.git` file of a worktree or submodule."""
    return is_file(place) or is_file(place / "HEAD")
