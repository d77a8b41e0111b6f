"""Notes everything that an agent's start depends on beside its options, to tell whether a later start would be the same."""

from __future__ import annotations

import asyncio
import hashlib
import json
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shim.agents.directory import Agent, AgentDirectory
from shim.agents.keys import is_logged_in
from shim.host.files.roots import folders_down_to, repository_above
from shim.host.git.git_command import git
from shim.host.trust.trust_store import ProjectTrust
from shim.lib import disk
from shim.processes.locate import stamp_of
from universal.lib.jsonvalue import obj
from universal.lib.paths import expand

# --- files read at a start --------------------------------------------------------------------------------------

FILES_LIMIT = 600
"""Maximum files and folders that one digest stamps."""
DEPTH_LIMIT = 5
"""Levels that a scan descends below a folder."""
VALUES_LIMIT_BYTES = 8 * 2**20
"""Maximum size of a file of which a few values count."""
VALUES_DEPTH = 6
LEFT_OUT = frozenset({"node_modules", "package.json", "package-lock.json", "bun.lock", ".gitignore", "worktrees"})
"""Names in folders of settings that agents write themselves when they start."""


class _TooMany(Exception):
    """There is more to look at than the limits allow."""


def digest(
    folders: Iterable[str], names: Sequence[str], agent_files: Iterable[Path], values: Mapping[Path, Sequence[str]]
) -> str | None:
    """Hash the stamps of `names` in each of the folders, of `agent_files`, and the named `values`. Blocking.

    None if that is more than the limits allow, or if a file cannot be read.
    """
    stamps: dict[str, object] = {}
    try:
        for path in [*(Path(folder, name) for folder in folders for name in names), *agent_files]:
            _stamp(path, stamps, DEPTH_LIMIT)
        for path, keys in values.items():
            stamps[f"{path} values"] = _values(path, frozenset(keys))
    except (_TooMany, OSError, ValueError, RecursionError):
        return None
    return hashlib.blake2b(json.dumps(stamps, sort_keys=True).encode(), digest_size=16).hexdigest()


def _stamp(path: Path, stamps: dict[str, object], depth: int) -> None:
    """Add the stamps of a file, or of a folder with all in it. Links are followed, since agents follow them."""
    try:
        state = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    if len(stamps) >= FILES_LIMIT or depth == 0:
        raise _TooMany
    if not stat.S_ISDIR(state.st_mode):
        stamps[str(path)] = state.st_mtime_ns, state.st_size, state.st_ino
        return
    stamps[str(path)] = "folder"  # what agents write beside the settings changes its times
    for inner in sorted(path.iterdir()):
        if inner.name not in LEFT_OUT:
            _stamp(inner, stamps, depth - 1)


def _values(path: Path, keys: frozenset[str]) -> object:
    """The values of these keys of a JSON file, wherever they stand in it. None without a file. Raises OSError, ValueError."""
    try:
        return list(_pick(json.loads(disk.read_small(path, VALUES_LIMIT_BYTES)), keys, VALUES_DEPTH))
    except FileNotFoundError:
        return None


def _pick(value: Any, keys: frozenset[str], depth: int) -> Iterable[tuple[str, object]]:
    for key, inner in obj(value).items():
        if key in keys:
            yield key, inner
        elif depth:
            yield from ((f"{key}/{name}", inner_value) for name, inner_value in _pick(inner, keys, depth - 1))


# --- the state of a start ---------------------------------------------------------------------------------------

GIT_LOOK_S = 1.0
"""Seconds for `git status`. An agent that notes it gets no spare in a repository where it takes longer."""


@dataclass(frozen=True, slots=True)
class StartState:
    """What an agent's start depends on. Two equal states mean that nothing has changed.

    `program`: stamp of the program's file; `keys`: API keys from clients; `project`: the trusted settings of the project;
    `files`: see `SpareUse`; `branch`: stamps of the repository's HEAD.
    """

    program: str
    keys: Mapping[str, str]
    project: str
    files: str
    branch: str


async def start_state(
    agents: AgentDirectory, agent: Agent, directory: str, trust: ProjectTrust | None, *, has_answered: bool
) -> StartState | None:
    """Return the present state. None if the agent is not logged in, the project not trusted, or the state cannot be told.

    In: `has_answered`, whether the agent has answered a prompt, so that it has a login even if no sign of one can be seen.
    """
    try:
        return await asyncio.to_thread(_look, agents, agent, directory, trust, has_answered)
    except OSError:
        return None


def has_login_sign(agents: AgentDirectory, agent: Agent) -> bool:
    """Whether a sign of the agent's login can be seen. Blocking."""
    environ = {**agents.environment(), **agents.keys.environment(agent.spec)}
    return is_logged_in(agent.spec, environ, tells=agent.usable and not agent.trouble)


def _look(
    agents: AgentDirectory, agent: Agent, directory: str, trust: ProjectTrust | None, has_answered: bool
) -> StartState | None:
    spec, use, environ = agent.spec, agent.spec.program.spare, agents.environment()
    keys = agents.keys.environment(spec)
    is_out = agent.logged_out or agent.catalogue.logged_in is False
    if use is None or is_out or not (has_answered or has_login_sign(agents, agent)):
        return None
    program = stamp_of(agent.located.path) if agent.located.path else None
    if program is None:
        return None
    project = ""
    if trust is not None:
        verdict = trust.look(directory, spec.rules.project_settings.reads)
        if verdict.decision != "trusted":
            return None
        project = verdict.settings.digest
    agent_files = [path for name in use.own_files if (path := expand(name, environ)) is not None]
    values = {path: keys for name, keys in use.values.items() if (path := expand(name, environ)) is not None}
    files = digest(folders_down_to(directory), use.files, agent_files, values)
    branch = digest([], (), _head(directory), {}) if use.takes_git else ""
    return None if files is None or branch is None else StartState(program, keys, project, files, branch)


def _head(directory: str) -> list[Path]:
    """The files that change with the branch and with each commit of a directory's repository."""
    folder = Path(repository_above(directory), ".git")
    if folder.is_file():  # another working tree of the repository, or a submodule
        folder = folder.parent / folder.read_text("utf-8", "replace").removeprefix("gitdir:").strip()
    return [folder / "HEAD", folder / "logs" / "HEAD"]


async def working_tree(directory: str) -> str | None:
    """Return a hash of what `git status` says; "" outside of git, None if git takes longer than GIT_LOOK_S."""
    if not await asyncio.to_thread((Path(repository_above(directory), ".git")).exists):
        return ""
    status = await git(directory, "status", "--porcelain", timeout_s=GIT_LOOK_S)
    return hashlib.blake2b(status.stdout, digest_size=16).hexdigest() if status.ok and not status.truncated else None
