"""The settings of the server, and the source of each value.

    flag  >  environment SHIM_*  >  ./shim.toml  >  $XDG_CONFIG_HOME/opencode-shim/config.toml  >  default

`Settings(...)` reads only its arguments, so that tests and embedders do not depend on their machine. `Settings.load()` alone
reads the environment and the files. Names in the files are the field names. OPENCODE_SERVER_USERNAME and
OPENCODE_SERVER_PASSWORD also set user and password, as for OpenCode. Paths of agents' binaries (`SHIM_CLAUDE_BIN`) are not
settings; the code that locates agents reads them.
"""

from __future__ import annotations

import json
import os
import re
import socket
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError

from shim.lib import disk
from shim.lib.errors import ShimError
from shim.lib.settings_tables import CustomAgent, Hook
from universal.sandbox import LEVELS, Level
from universal.unattended_policy import parse as parse_unattended

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - only with a password (`shim.cli.server.listen`)
ENV_PREFIX = "SHIM_"
EMBEDDED = "embedded"
"""The value of `cluster` for a NATS server of our own."""
PROJECT_FILE = "shim.toml"
LABELS = 32
"""Maximum labels of a server or of a session."""
_LABEL = re.compile(r"[A-Za-z0-9._/-]{1,63}=[A-Za-z0-9._/-]{1,63}")
CLUSTER_DRAIN_S = 20.0
"""Seconds that running turns have after SIGTERM in a cluster. With the stop itself it is less than the 30 s of Kubernetes."""
DRAIN_LIMIT_S = 86_400.0
FILE_LIMIT_BYTES = 2**20
"""Maximum size of a settings file."""
ALIASES = {
    "username": ("OPENCODE_SERVER_USERNAME",),
    "password": ("OPENCODE_SERVER_PASSWORD", "OPENCODE_PASSWORD"),
}
"""OpenCode's own variables, weaker than ours. Of two, the last one wins, because 2.x reads `OPENCODE_PASSWORD` first."""
OF_A_PROJECT = frozenset(
    {
        "port",
        "base_path",
        "directory",
        "default_agent",
        "log_level",
        "log_format",
        "otel",
        "sandbox",
        "idle_reap_s",
        "abort_timeout_s",
        "max_sessions",
        "max_streams",
        "max_queued_prompts",
        "steer",
        "compress_streams",
        "mock_delay_factor",
    }
)
"""Settings that ./shim.toml may contain. A repository may bring that file, so it must not decide about trust, permissions,
access, programs, pages or the place of data. A new setting belongs to the user alone until it is listed here."""
LIVE = frozenset(
    {
        "abort_timeout_s",
        "all_commands",
        "compress_streams",
        "continue_at_reset",
        "default_agent",
        "fs_anywhere",
        "hooks",
        "idle_reap_s",
        "log_format",
        "log_level",
        "max_cost",
        "max_queued_prompts",
        "max_sessions",
        "max_streams",
        "max_turn_seconds",
        "native_sessions",
        "native_sessions_days",
        "spare_agents",
        "steer",
        "tls_cert",
        "tls_key",
        "trust_question_s",
        "unattended",
    }
)
"""Settings that a running server applies at a reload (SIGHUP, or a changed file). All others need a restart."""
SECRET_FIELDS = frozenset({"password", "agents", "hooks", "cluster_password"})
"""Settings whose values are never shown, not even in errors."""
JSON_FIELDS = frozenset({"agents", "hooks"})
"""Settings that are tables. In the environment they are JSON."""
WANTED = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "it needs a whole number"),
    **{"float_parsing": "it needs a number", "bool_parsing": "it needs true or false"},
}
"""What a setting needs, by pydantic's type of the error, in words of a person."""
TRUE_WORDS = frozenset({"true", "1", "on", "yes"})
FALSE_WORDS = frozenset({"false", "0", "off", "no"})

Amount: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
LogLevel: TypeAlias = Literal["debug", "info", "warn", "error"]
LogFormat: TypeAlias = Literal["console", "json"]


class SettingsError(ShimError):
    """A setting is invalid. The text names it, its value and its source."""


def _xdg(variable: str, fallback: str) -> Path:
    """Return an XDG base directory. Relative values are ignored, as the specification demands."""
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path(fallback).expanduser()


def _default_data_dir() -> Path:
    return _xdg("XDG_DATA_HOME", "~/.local/share") / "opencode-shim"


def _existing_directory(path: Path) -> Path:
    # Clients send the resolved form and compare strings.
    resolved = path.expanduser().resolve()
    if not resolved.is_dir():
        raise ValueError(f"there is no directory {resolved}")
    return resolved


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - Path.absolute() keeps `..`


def _lower(value: object) -> object:
    return {"warning": "warn"}.get(value.lower(), value.lower()) if isinstance(value, str) else value


def _comma_separated(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def parse_labels(value: object) -> tuple[str, ...]:
    """The labels in a text `KEY=VALUE[,KEY=VALUE...]`, in the order of their keys. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("use a string KEY=VALUE[,KEY=VALUE...]")  # noqa: TRY004 - of a client
    labels = sorted({part.strip() for part in value.split(",") if part.strip()})
    for label in labels:
        if _LABEL.fullmatch(label) is None:
            raise ValueError(f"{label[:100]!r} is no label: use KEY=VALUE, of letters, digits and . _ - /, at most 63 of each")
    if len(labels) > LABELS or len({label.partition("=")[0] for label in labels}) < len(labels):
        raise ValueError(f"each key may have one value, and there may be {LABELS} labels")
    return tuple(labels)


def _labels(value: object) -> object:
    return parse_labels(",".join(map(str, cast("Iterable[object]", value))) if isinstance(value, (list, tuple)) else value)


def _switch_or_url(value: object) -> object:
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    if word in TRUE_WORDS | FALSE_WORDS:
        return word in TRUE_WORDS
    if not word.startswith(("http://", "https://")):
        raise ValueError("use true, false or a URL")
    return value.strip().rstrip("/")


def _existing_file(path: Path) -> Path:
    resolved = path.expanduser().resolve()
    if not resolved.is_file():
        raise ValueError(f"there is no file {resolved}")
    return resolved


def _base_path(value: str) -> str:
    path = "/" + value.strip("/") if value.strip("/") else ""
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*", path) or "/../" in f"{path}/" or "/./" in f"{path}/":
        raise ValueError("use a path like /opencode")
    return path


def _username(value: str) -> str:
    if ":" in value or not value:
        raise ValueError("a user name may not be empty or hold a colon")
    return value


def _password(value: SecretStr) -> SecretStr:
    if not value.get_secret_value():
        raise ValueError("it is empty; leave it out for none")
    return value


def _public_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError("use https://HOST, with a path at most")
    return value.rstrip("/")


def _parse_unattended(value: str) -> str:
    return str(parse_unattended(value))


def _paths(value: object) -> object:
    return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value


def _nats_servers(value: object) -> object:
    """Return `embedded`, or the URLs of NATS servers joined by commas. A host without a scheme gets `nats://`."""
    if not isinstance(value, str) or value.strip() == EMBEDDED:
        return value.strip() if isinstance(value, str) else value
    urls = [part if "://" in part else f"nats://{part}" for part in (part.strip() for part in value.split(",")) if part]
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("nats", "tls", "ws", "wss") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError(f"use nats://HOST[,HOST...] or {EMBEDDED}")
        if parts.username or parts.password:
            raise ValueError("others could read a password here: set it in cluster_password")
    if not urls:
        raise ValueError(f"use nats://HOST[,HOST...] or {EMBEDDED}")
    return ",".join(urls)


AgentName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]


class Settings(BaseModel):
    """The settings of one server, frozen. `Settings.load()` or a caller's arguments create them."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    hostname: str = Field(default="127.0.0.1", description="Address to listen on. Any other than loopback needs a password.")

    port: int = Field(default=4096, ge=0, le=65535, description="TCP port to listen on; 0 picks a free one.")

    username: Annotated[str, AfterValidator(_username)] = Field(
        default="opencode", description="User that goes with the password; OPENCODE_SERVER_USERNAME does the same."
    )

    password: Annotated[SecretStr, AfterValidator(_password)] | None = Field(
        default=None,
        description="Password that every request must show (Basic, Bearer, `auth_token`); OPENCODE_SERVER_PASSWORD and "
        "OPENCODE_PASSWORD do the same. Has no flag, since others could read it in the list of processes.",
    )

    allowed_hosts: Annotated[tuple[str, ...], BeforeValidator(_comma_separated)] = Field(
        default=(),
        description="More host names by which clients may call this server (the Host header), beside loopback ones, IP addresses "
        "and, unless it listens on loopback alone, this machine's name; `*` for any. Comma-separated in the environment.",
    )

    base_path: Annotated[str, AfterValidator(_base_path)] = Field(
        default="", description="Path below which everything is served too, for a proxy that does not strip it: `/opencode`."
    )

    trust_proxy: bool = Field(
        default=False, description="Believe `X-Forwarded-Host` and `X-Forwarded-For`. Only behind a proxy that sets both itself."
    )

    trusted_user_header: str = Field(
        default="",
        description="Header in which a proxy that signs people in names them, such as `X-Forwarded-User`; the name is one of "
        "`opencode-shim people`. Counts only with `trust_proxy` (docs/people.md).",
    )

    public_url: Annotated[str, AfterValidator(_public_url)] | None = Field(
        default=None,
        description="Address by which other devices reach this server, behind a proxy or tunnel: `https://shim.example`. `pair` "
        "builds its links from it.",
    )

    mdns: bool = Field(
        default=False,
        description="Announce the server on the local network (mDNS) as `opencode-PORT`; `hostname` is then 0.0.0.0 unless it is "
        "set, and a password is needed. Needs the extra `mdns`.",
    )

    mdns_domain: str = Field(
        default="opencode.local", pattern=r"^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$", description="Host name that `mdns` announces."
    )

    tls_cert: Annotated[Path, AfterValidator(_existing_file)] | None = Field(
        default=None, description="Certificate chain (PEM) to serve HTTPS with; `tls_key` goes with it."
    )

    tls_key: Annotated[Path, AfterValidator(_existing_file)] | None = Field(
        default=None, description="Private key (PEM) of `tls_cert`; unset if that file holds it."
    )

    directory: Annotated[Path, AfterValidator(_existing_directory)] = Field(
        default_factory=Path.cwd,
        validate_default=True,
        description="Directory for clients that name none. One server serves any number of directories.",
    )

    roots: Annotated[tuple[Annotated[Path, AfterValidator(_existing_directory)], ...], BeforeValidator(_paths)] = Field(
        default=(),
        description="Directories in which all projects must lie; unset: anywhere. Joined by `:` in the environment. No sandbox: "
        "agents and commands may still read and write elsewhere.",
    )

    trusted_roots: Annotated[tuple[Annotated[Path, AfterValidator(_existing_directory)], ...], BeforeValidator(_paths)] = Field(
        default=(),
        description="Directories in which every project is trusted: its hooks, plugins, MCP servers and allowing rules count "
        "without a question. Joined by `:` in the environment.",
    )

    trust_all: bool = Field(
        default=False,
        description="Trust every project, also one that was just downloaded: whatever it brings runs.",
    )

    trust_question_s: float = Field(
        default=120.0,
        gt=0,
        description="Seconds to wait for an answer whether a project is trusted. Then the turn goes on without its settings.",
    )

    unattended: Annotated[str, AfterValidator(_parse_unattended)] = Field(
        default="wait",
        description="What happens to permission requests and questions that nobody answers: `wait`; `reject:SECONDS`, they are "
        "rejected after that time; `rules`, nobody is asked, and what no rule allows is rejected at once. A session and a prompt "
        "may have another value (docs/permissions.md).",
    )

    data_dir: Annotated[Path, AfterValidator(_absolute)] = Field(
        default_factory=_default_data_dir,
        validate_default=True,
        description="Folder of the sessions (SQLite) and of the log of `tui`. Servers may share it: each session belongs to one.",
    )

    cluster: Annotated[str, BeforeValidator(_nats_servers)] | None = Field(
        default=None,
        description="NATS servers (JetStream) that keep the sessions instead of SQLite, so that servers on several machines "
        "share them: `nats://HOST[,HOST...]`; `embedded` starts one for a trial (docs/cluster.md). Needs the extra `cluster`.",
    )

    cluster_prefix: str = Field(
        default="shim",
        pattern=r"^[A-Za-z0-9_-]{1,32}$",
        description="Begin of the names of all streams of the cluster, so that two clusters can share a NATS.",
    )

    cluster_name: str | None = Field(
        default=None, min_length=1, max_length=100, description="Name of this server for people; unset: the machine's name."
    )

    no_agents: bool = Field(default=False, description="Run no agents, as a front of a cluster: sessions go to other servers.")

    max_agents: int | None = Field(
        default=None,
        ge=1,
        description="Agents that this server runs at once; a turn beyond them waits for room, and its session's status says so. "
        "Unset: one for each 512 MiB of memory in a cluster, whose new sessions go to servers with room; else any number.",
    )

    labels: Annotated[tuple[str, ...], BeforeValidator(_labels)] = Field(
        default=(),
        description="Labels of this server, `KEY=VALUE`, comma-separated. A session with `serverLabels` in its metadata runs "
        "only on a server that has them (docs/cluster.md).",
    )

    drain_seconds: float | None = Field(
        default=None,
        ge=0,
        le=DRAIN_LIMIT_S,
        description="Seconds that running turns have to end after SIGTERM; then they fail. Meanwhile no others begin, and a "
        "second signal stops the server at once. Unset: 20 in a cluster, whose other servers go on with the sessions; else 0.",
    )

    cluster_replicas: int = Field(
        default=1, ge=1, le=5, description="Copies of each stream among the NATS servers, when it is created; 3 for a service."
    )

    cluster_max_bytes: int | None = Field(None, ge=1, description="Bytes on the disk of NATS beyond which no prompt is taken.")

    cluster_max_session_bytes: int | None = Field(None, ge=1, description="Bytes of a journal beyond which no prompt is taken.")

    cluster_credentials: Annotated[Path, AfterValidator(_existing_file)] | None = Field(
        default=None, description="File with the credentials of NATS (`.creds`)."
    )

    cluster_password: Annotated[SecretStr, AfterValidator(_password)] | None = Field(
        default=None,
        description="Password for NATS: a token, or USER:PASSWORD. Has no flag, since others could read it in the list of "
        "processes.",
    )

    cluster_tls_ca: Annotated[Path, AfterValidator(_existing_file)] | None = Field(
        default=None, description="Certificates (PEM) that may sign those of the NATS servers; unset: the system's."
    )

    cluster_tls_cert: Annotated[Path, AfterValidator(_existing_file)] | None = Field(
        default=None, description="Certificate (PEM) of this server for NATS; `cluster_tls_key` goes with it."
    )

    cluster_tls_key: Annotated[Path, AfterValidator(_existing_file)] | None = Field(
        default=None, description="Private key (PEM) of `cluster_tls_cert`."
    )

    move_aside_damaged: bool = Field(
        default=False,
        description="When the database of `data_dir` is damaged, move it aside (nothing is deleted) and start with an empty one. "
        "Unset: the server says what is wrong and does not start.",
    )

    default_agent: str | None = Field(
        default=None,
        description="Agent for prompts that name no model: claude, mock, ...; unset: the first real agent that is found.",
    )

    cors: Annotated[tuple[str, ...], BeforeValidator(_comma_separated)] = Field(
        default=(),
        description="More origins that browsers may call from, beside loopback ones; comma-separated in the environment.",
    )

    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = Field(
        default="info", description="Lowest level that is logged: debug, info, warn, error."
    )

    log_format: Annotated[LogFormat, BeforeValidator(_lower)] = Field(
        default="console", description="console for people, json for machines (one object per line); both go to stderr."
    )

    web_ui: Annotated[bool | str, BeforeValidator(_switch_or_url)] = Field(
        default=False,
        description="OpenCode's own web UI at `/`: true takes its files from the installed `opencode`, a URL from the OpenCode "
        "server there.",
    )

    fs_anywhere: bool = Field(
        default=False,
        description="Whether `/v1/fs` serves files outside of the session's directory too; agents can reach them either way.",
    )

    idle_reap_s: float = Field(
        default=900.0,
        gt=0,
        description="Seconds without a turn after which an agent's process is ended (6 hours if it works in the background); "
        "the next prompt resumes it.",
    )

    spare_agents: int = Field(
        default=2,
        ge=0,
        le=16,
        description="Agents that are started ahead and wait for a new session, so that its first answer comes as quickly as the "
        "second; at most one for an agent and a directory, none with `otel` or less than 1.5 GiB of free memory (docs/using.md). "
        "0: none.",
    )

    outlive: bool = Field(
        default=True,
        description="Whether turns and terminals go on when the server restarts or dies (docs/architecture.md). "
        "A service must be installed again after a change.",
    )

    abort_timeout_s: float = Field(
        default=5.0, gt=0, description="Seconds that an agent gets to stop after an abort, before its process is killed."
    )

    steer: bool = Field(
        default=True,
        description="Whether a prompt that comes during a turn reaches the working agent at its next step, where the agent can "
        "take it in, as in OpenCode. If not, it waits for the end of the answer. Clients of OpenCode 2 choose for each prompt.",
    )

    all_commands: bool = Field(
        default=False,
        description="Whether clients list all slash commands of the agents, also those about the agent's own program, of which "
        "Claude Code has 30. One that is not listed can be typed.",
    )

    native_sessions: Literal["off", "search", "list"] = Field(
        default="search",
        description="Which lists show agents' own sessions too: answers to a `search`, each `list`, or `off` (docs/using.md).",
    )

    native_sessions_days: int = Field(default=30, ge=1, le=10_000, description="Of how many days `native_sessions` shows them.")

    continue_at_reset: int = Field(default=0, ge=0, description="How often a turn goes on when a limit of your plan resets.")

    max_cost: Amount = Field(
        default=0.0,
        description="What a session may cost (USD) until a person is asked whether it goes on (docs/permissions.md); 0: no cap.",
    )

    max_turn_seconds: Amount = Field(
        default=0.0,
        description="Seconds that an agent may work in a turn until a person is asked whether it goes on; 0: no cap.",
    )

    max_sessions: int = Field(default=100_000, ge=1, description="Sessions that are kept, subagents' included; more are refused.")

    max_streams: int = Field(default=4_000, ge=1, description="Event streams that are open at once; more are refused.")

    compress_streams: Annotated[Literal["auto", "always", "never"], BeforeValidator(_lower)] = Field(
        default="auto",
        description="Whether event streams are compressed for clients that take gzip: auto does it for those on other machines.",
    )

    max_queued_prompts: int = Field(default=100, ge=1, description="Prompts that may wait in one session; more are refused.")

    mock_delay_factor: float = Field(default=1.0, ge=0, description="Factor on all waits of the mock agent; 0: it never waits.")

    record_dir: Annotated[Path, AfterValidator(_absolute)] | None = Field(
        default=None,
        description="Folder for the raw traffic with agents, prompts included, for bug reports; unset: nothing is recorded.",
    )

    agents: dict[AgentName, CustomAgent] = Field(
        default_factory=dict[str, CustomAgent],
        description="More agents, each a program that speaks the Agent Client Protocol: `[agents.NAME]` with `command = "
        '["PROGRAM", "ARGUMENT"]` and optionally `title` and `env`. A supported name (`gemini`, `opencode2`) gets the '
        "new command; `sandbox` and `sandbox_paths` go without one (docs/sandbox.md). In the environment: JSON.",
    )

    sandbox: Annotated[Level, BeforeValidator(_lower)] = Field(
        default="auto",
        description="What agents run in (docs/sandbox.md): `auto`, a sandbox where the agent's protocol cannot hold a rule, and "
        "in projects that nobody has trusted; `off`; `project`, they see the system, their state and the project, "
        "and the kernel holds what rules deny; `strict`, also no host but the model's, or no start. A project only tightens.",
    )

    mcp: bool = Field(
        default=False,
        description="Whether `/mcp` serves sessions as tools of the Model Context Protocol, to a person's own MCP clients and to "
        "agents that hand work to others (docs/delegation.md). No agents wait for sessions then.",
    )

    otel: bool = Field(
        default=False,
        description="Send traces of requests, turns and tool calls with OpenTelemetry (the extra `otel`), to the place that its "
        "OTEL_* variables name.",
    )

    hooks: tuple[Hook, ...] = Field(
        default=(),
        description='`[[hooks]]`: `on = ["idle", "permission", "question", "error"]` with `command = [...]` or `url`, `headers`, '
        "`timeout_s` (10), `reply`. The event goes as JSON to the command's stdin, or as POST; with `reply = true` it has links "
        "that answer (docs/observability.md). In the environment: JSON.",
    )

    @property
    def server_name(self) -> str:
        return self.cluster_name or socket.gethostname()

    @property
    def has_cluster(self) -> bool:
        return self.cluster is not None

    @property
    def drain_s(self) -> float:
        """Seconds that running turns have to end after SIGTERM; 0: none."""
        if self.drain_seconds is not None:
            return self.drain_seconds
        return CLUSTER_DRAIN_S if self.has_cluster else 0.0

    _origins: dict[str, str] = PrivateAttr(default_factory=dict[str, str])

    @classmethod
    def load(cls, flags: Mapping[str, Any] | None = None) -> Settings:
        """Load the settings from all sources. In: flags by field name; None and empty lists count as absent.

        Raises: SettingsError for a file that is not TOML, an unknown name in it, or an invalid value.
        """
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        of_project = "auto"
        for path in config_files():
            table = _read(path)
            if path.name == PROJECT_FILE:
                _check_project_file(path, table)
                of_project = table.pop("sandbox", "auto")
            for name, value in table.items():
                values[name], origins[name] = value, f"file {path}"
        for name, variable in ((name, variable) for name, several in ALIASES.items() for variable in several):
            if os.environ.get(variable):
                values[name], origins[name] = os.environ[variable], f"environment {variable}"
        for name, value in _environment(os.environ, cls.model_fields).items():
            values[name], origins[name] = value, f"environment {env_name(name)}"
        for name, value in (flags or {}).items():
            if value is not None and value != []:
                values[name], origins[name] = value, f"flag --{name.replace('_', '-')}"
        level = str(values.get("sandbox", "auto")).lower()
        milder = LEVELS[: 1 + LEVELS.index(level)] if level in LEVELS else LEVELS
        if of_project not in ("off", *milder):  # a project only tightens
            values["sandbox"], origins["sandbox"] = of_project, f"file {Path.cwd() / PROJECT_FILE}"
        try:
            settings = cls(**values)
        except ValidationError as error:
            raise SettingsError(sentences(error, values, origins)) from error
        if settings.mdns and "hostname" not in values:
            settings, origins["hostname"] = settings.model_copy(update={"hostname": EVERY_ADDRESS}), "setting mdns"
        settings._origins.update(origins)
        return settings

    def sources(self) -> dict[str, str]:
        """Return the source of each value: `flag --port`, `environment SHIM_PORT`, `file PATH`, `argument` or `default`."""
        direct = {name: "argument" if name in self.model_fields_set else "default" for name in type(self).model_fields}
        return direct | self._origins


def env_name(field: str) -> str:
    """Return the environment variable of a field: `port` -> `SHIM_PORT`."""
    return ENV_PREFIX + field.upper()


def _environment(environ: Mapping[str, str], fields: Iterable[str]) -> dict[str, Any]:
    """Return the texts of the `SHIM_*` variables, for the fields' validators. Empty variables count as unset.

    Raises: SettingsError for a table (`JSON_FIELDS`) that is not JSON.
    """
    values: dict[str, Any] = {name: value for name in fields if (value := environ.get(env_name(name)))}
    for name in JSON_FIELDS & values.keys():
        try:
            values[name] = json.loads(values[name])
        except ValueError as error:
            raise SettingsError(f"Setting {name} (environment {env_name(name)}) cannot be used: no JSON, {error}.") from None
    return values


def config_files() -> list[Path]:
    """List the files to read if they exist; the last one wins."""
    return [_xdg("XDG_CONFIG_HOME", "~/.config") / "opencode-shim" / "config.toml", Path.cwd() / PROJECT_FILE]


def _read(path: Path) -> dict[str, Any]:
    """Read the values of one TOML file; {} if it does not exist."""
    try:
        # Without blocking: a repository may bring a pipe or a device instead.
        return tomllib.loads(disk.read_small(path, FILE_LIMIT_BYTES).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"Cannot read the settings of {path}: {error}") from error


def _check_project_file(path: Path, names: Iterable[str]) -> None:
    """Raise SettingsError if a project's file has settings that only the user may have."""
    refused = [name for name in names if name in Settings.model_fields and name not in OF_A_PROJECT]
    if refused:
        variables = ", ".join(env_name(name) for name in refused)
        raise SettingsError(
            f"{path} sets {', '.join(refused)}, which a project may not decide: the file may have come with a repository. "
            f"Move it to {config_files()[0]}, or set {variables}."
        )


def like(name: str) -> str:
    """Return a sentence that helps a person who named a setting that does not exist."""
    from difflib import get_close_matches  # late: only this error needs it

    near = get_close_matches(name.lower().replace("-", "_"), cast("dict[str, Any]", Settings.model_fields), n=1)
    return f"Did you mean {near[0]}?" if near else "docs/settings.md has all of them; so has `opencode-shim config --all`."


def sentences(error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """Write one sentence per invalid setting, with its value unless it is in `SECRET_FIELDS`."""
    lines: list[str] = []
    for problem in error.errors(include_url=False):
        name = str(problem["loc"][0]) if problem["loc"] else "?"
        where = origins.get(name, "default")
        if problem["type"] == "extra_forbidden":
            lines.append(f"Unknown setting {name} ({where}). {like(name)}")
        else:
            reason = WANTED.get(problem["type"], problem["msg"].removeprefix("Value error, "))
            place = ".".join(str(step) for step in problem["loc"])
            is_secret = name in SECRET_FIELDS or (name == "cluster" and "@" in str(values.get(name)))
            assignment = place if is_secret else f"{name} = {values.get(name)!s}"
            lines.append(f"Setting {assignment} ({where}) cannot be used: {reason[:1].lower()}{reason[1:]}.")
    return "\n".join(dict.fromkeys(lines))
