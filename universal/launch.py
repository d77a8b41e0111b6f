"""How an agent's process is started and how it ended: what the server tells the codec, and what the codec answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from universal.items import Json
from universal.lib.jsonvalue import JsonObject
from universal.permissions import Rule
from universal.sandbox import Bounds
from universal.setup import NO_SETUP, DirectorySetup


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The parameters of a launch. `native_session_id` with `resume` continues a conversation."""

    binary: str
    directory: str
    native_session_id: str | None = None
    resume: bool = False
    resume_at: str | None = None
    """The `anchor` of an answered prompt (`AgentAbilities.rewinds`), to continue after that answer in a new conversation."""
    model: str | None = None
    variant: str | None = None
    mode: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """The variables in `environment` that belong to the session."""
    is_root: bool = False
    rules: tuple[Rule, ...] = ()
    """The same rules as in `Prompt`."""
    project_settings: bool = True
    """False leaves out the project's settings that run programs or allow calls (see `ProjectSettingsUse`)."""
    version: str | None = None  # of the program, if it is known
    setup: DirectorySetup = NO_SETUP
    """The person's set-up; see `universal.setup`."""
    bounds: Bounds | None = None
    """What its sandbox holds, in which it reads files and runs commands itself and not by this server. None: it has none."""
    schema: JsonObject | None = None
    """The same as in `Prompt`."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """Settings for one process: a private file, derived from the person's own and removed when the process has ended.

    option   the argument before the file's path; both are appended to argv
    sources  absolute paths of the person's files; the first that exists is read (JSON with comments), none counts as empty
    change   a function from the person's settings to those of the process
    """

    option: str
    sources: tuple[str, ...]
    change: Callable[[Mapping[str, Json]], Mapping[str, Json]]


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """How to start the process: argv (absolute binary first), changes of the environment (None removes), cwd."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    settings: SettingsFile | None = None
    descriptors: tuple[int, ...] = ()
    """Open files that the process inherits."""
    events: str = "/event"
    """Path of the event stream, for an agent that is an HTTP server."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How the process ended: `code` or `signal` (number); `stderr` is the end of what it wrote there."""

    code: int | None
    signal: int | None = None
    stderr: str = ""
