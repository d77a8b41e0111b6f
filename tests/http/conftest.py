"""Fixtures: OpenCode 1's routes over a repository, a home, and fakes of the services behind them."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

import pytest

from shim.agents.directory_offers import DirectoryOffers
from shim.faces.opencode1 import routes as opencode1
from shim.faces.opencode1.routes.event import OPENCODE1
from shim.faces.opencode2 import routes as opencode2
from shim.faces.opencode2.services import FaceServices
from shim.host.changes import HostFeed
from shim.host.config.opencode_config import ConfigFiles
from shim.host.config.setups import Setups
from shim.host.files.watcher import Watchers
from shim.host.git.project_copies import ProjectCopies
from shim.host.git.projects import Projects
from shim.host.git.worktrees import Worktrees
from shim.host.terminals.shells import Shells
from shim.host.terminals.terminal_manager import Terminals
from shim.host.tui_control import TuiControl
from shim.http.services import Services
from shim.lib.clock import ManualClock
from shim.lib.errors import SessionNotFound
from shim.lib.ids import Ids
from shim.lib.settings import Settings
from shim.routes import application
from shim.sessions.session.actor import SessionActor
from shim.store.memory import MemoryStore
from shim.stream.hub import Hub
from shim.stream.streams import Streams
from tests.fakes.agents_directory import FakeAgents, claude
from tests.http.doors import client_with_password, start
from tests.support.api import ApiClient, api
from tests.support.live import Live, live
from tests.support.universal import Face, face
from universal.session import importer
from universal.session.model import Session
from universal.session.values import SessionRecord

__all__ = ["api", "client_with_password", "start"]

GIT_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_TEMPLATE_DIR": "",
}


def git(folder: Path, *arguments: str) -> str:
    """Run git there, apart from the settings of whoever runs the tests."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=os.environ | GIT_ENVIRONMENT, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def repository(folder: Path, files: dict[str, str]) -> Path:
    """A repository with one commit on `main`. Git makes it once, since many tests want the same one."""
    shutil.copytree(_first(tuple(sorted(files.items()))), folder, dirs_exist_ok=True)
    return folder


@lru_cache(maxsize=16)
def _first(files: tuple[tuple[str, str], ...]) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="shim-repository-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    git(folder, "init", "-q", "-b", "main")
    for name, text in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    return folder


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Live]:
    """The whole server with the mock."""
    async with live(tmp_path) as running:
        yield running


@pytest.fixture
async def v1(tmp_path: Path) -> AsyncIterator[Face]:
    """The whole server with the mock, by `/v1`."""
    async with face(tmp_path) as running:
        yield running


@dataclass
class FakeSessions:
    """What the routes here ask of sessions: that some exist, and that what runs is ended."""

    known: list[dict[str, Any]] = field(default_factory=list)
    disposed: list[str | None] = field(default_factory=list)

    @property
    def index(self) -> FakeSessions:
        return self

    @property
    def requests(self) -> FakeSessions:
        return self

    command_files: None = None
    trust: None = None
    setups: Setups = field(default_factory=Setups)

    @cached_property
    def deps(self) -> FakeSessions:
        return self

    def actors(self) -> Sequence[SessionActor]:
        """No agent runs."""
        return ()

    def __post_init__(self) -> None:
        self.others = self.open_signs = self
        self.local_offers = DirectoryOffers()

    async def read_requests(self) -> None:
        """No other server has a session."""

    async def need_ours(self, session_id: str) -> None:
        """No other server has a session."""

    async def dispose(self, directory: str | None) -> None:
        self.disposed.append(directory)

    def note_visit(self, directory: str) -> None:
        """No agent is started ahead."""

    def note_read(self, session_id: str, read: str, client: str, *, is_page: bool = False) -> None:
        """No agent is started ahead."""

    def closed_since(self, ms: int) -> Sequence[Any]:
        """No request was closed."""
        return ()

    def lost_since(self, ms: int) -> Sequence[Session]:
        """No turn was lost."""
        return ()

    def records(self) -> Sequence[SessionRecord]:
        return list(map(importer.session, self.known))

    def newest_first(self, words: str = "") -> Sequence[SessionRecord]:
        return sorted(self.records(), key=lambda record: record.updated_ms, reverse=True)

    def record(self, session_id: str) -> SessionRecord:
        for record in self.records():
            if record.id == session_id:
                return record
        raise SessionNotFound(session_id)

    async def session(self, session_id: str) -> Session:
        raise SessionNotFound(session_id)

    def unloaded_state(self, session_id: str) -> None:
        """No session has a journal."""

    def loaded_session(self, session_id: str) -> Session | None:
        return None

    def busy(self) -> list[Any]:
        return []

    def permissions(self) -> list[dict[str, Any]]:
        return []

    def questions(self, directory: str | None = None) -> list[dict[str, Any]]:
        return []


@dataclass
class Place:
    """A running server with its surroundings. `api` checks every answer."""

    api: ApiClient
    services: Services
    sessions: FakeSessions
    project: Path
    home: Path

    @property
    def directory(self) -> str:
        """The server's own directory, as clients see it."""
        return str(self.project)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The repository that the recordings were made in."""
    return repository(tmp_path / "project", {"README.md": "Hello\n", "notes.txt": "notes\n"})


@pytest.fixture
def agents() -> FakeAgents:
    """The installed agents; a test module may have its own."""
    return FakeAgents(claude())


@pytest.fixture
async def place(tmp_path: Path, project: Path, agents: FakeAgents, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    """The server over `project`, with an empty home."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    home = tmp_path / "home"
    home.mkdir()
    services, sessions = services_for(project, home, agents, tmp_path / "data")
    await services.store.open()
    async with ApiClient(application(services, (*opencode1.MODULES, *opencode2.MODULES), body_limit_bytes=100_000)) as client:
        yield Place(client, services, sessions, project, home)
        services.hub.close()
        services.tui_control.close()
        await services.terminals.close()
        await services.shells.close()
        await services.worktrees.close()
        await services.watchers.close()
    await services.store.close()


class NoAgentsSessions:
    """As `NativeSessions`, where agents' own programs have none."""

    async def records(self, directory: str, search: str | None) -> Sequence[SessionRecord]:
        return ()

    async def open_listed(self, session_id: str) -> bool:
        return False


def services_for(directory: Path, home: Path, agents: FakeAgents, data: Path) -> tuple[Services, FakeSessions]:
    """Services with fakes for agents and sessions."""
    clock = ManualClock()
    ids = Ids(clock)
    store = MemoryStore()
    hub = Hub(clock, ids, faces=(OPENCODE1,))
    host = HostFeed()
    host.observe(hub.emit)
    projects = Projects(store, clock)
    sessions = FakeSessions()
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(home), "SHELL": "/bin/bash", "PS1": "$ "}
    worktrees = Worktrees(data, projects, host)
    settings = Settings(directory=directory, data_dir=data, cors=("https://ide.example",))
    services = Services(settings, clock, ids, store)
    services.agents = cast("Any", agents)
    services.hub, services.host, services.sessions = hub, host, cast("Any", sessions)
    services.native_sessions = cast("Any", NoAgentsSessions())
    services.streams = Streams()
    services.projects, services.worktrees = projects, worktrees
    services.config = ConfigFiles(home, {"USER": "someone", "HOME": str(home)})
    sessions.setups = Setups(services.config.current)
    services.terminals = Terminals(clock=clock, ids=ids, environ=environ, owner="", changes=host)
    services.shells = Shells(data / "shell", clock=clock, ids=ids, environ=environ, owner="", changes=host)
    services.copies = ProjectCopies(store, projects, host)
    services.tui_control = TuiControl()
    services.watchers = Watchers(host, hub.has_reader, home)
    services.opencode2 = FaceServices(cast("Any", sessions), store, hub, clock=clock, ids=ids)
    return services, sessions
