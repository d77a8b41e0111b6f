"""What can be set, and where each value came from.

    flag  >  environment SHIM_*  >  ./shim.toml  >  $XDG_CONFIG_HOME/opencode-shim/config.toml  >  default

`Settings(...)` itself reads nothing but its arguments, so tests and embedders are not touched by the machine they
run on; `Settings.load()` is the one place that reads the environment and the files. Names in the files are the field names.
User and password may also be given as OPENCODE_SERVER_USERNAME and OPENCODE_SERVER_PASSWORD, as to OpenCode. Binaries of
agents are not settings: `SHIM_CLAUDE_BIN` and the like are read where agents are located.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)

from shim.errors import ShimError
from universal.unattended import parse as parse_unattended

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - only with a password (`shim.cli.server.listen`)
ENV_PREFIX = "SHIM_"
PROJECT_FILE = "shim.toml"
FILE_LIMIT_BYTES = 2**20
"""Of a file of settings."""
ALIASES = {
    "username": ("OPENCODE_SERVER_USERNAME",),
    "password": ("OPENCODE_SERVER_PASSWORD", "OPENCODE_PASSWORD"),
}
"""OpenCode's own variables, weaker than ours; of two, the last one counts: 2.x reads `OPENCODE_PASSWORD` first."""
OF_A_PROJECT = frozenset(
    {
        "port",
        "base_path",
        "directory",
        "default_agent",
        "log_level",
        "log_format",
        "otel",
        "idle_reap_s",
        "abort_timeout_s",
        "max_sessions",
        "max_streams",
        "max_queued_prompts",
        "compress_streams",
        "mock_delay_factor",
    }
)
"""Settings that ./shim.toml may have: a repository may bring that file, so it decides neither what is trusted or allowed, nor who
comes in, nor which programs and pages run, nor where data lies. A new setting is the person's until it is named here."""
LIVE = frozenset(
    {
        "abort_timeout_s",
        "compress_streams",
        "default_agent",
        "fs_anywhere",
        "hooks",
        "idle_reap_s",
        "log_format",
        "log_level",
        "max_queued_prompts",
        "max_sessions",
        "max_streams",
        "tls_cert",
        "tls_key",
        "trust_question_s",
        "unattended",
    }
)
"""Settings that a running server takes over at a reload (SIGHUP, or a changed file). All others need a restart."""
SECRET_FIELDS = frozenset({"password", "agents", "hooks"})
"""Never shown, not even when they are wrong."""
JSON_FIELDS = frozenset({"agents", "hooks"})
"""Tables; in the environment they are JSON."""
TRUE_WORDS = frozenset({"true", "1", "on", "yes"})
FALSE_WORDS = frozenset({"false", "0", "off", "no"})

LogLevel: TypeAlias = Literal["debug", "info", "warn", "error"]
LogFormat: TypeAlias = Literal["console", "json"]


class SettingsError(ShimError):
    """A setting cannot be used; the text names it, its value and where it came from."""


def _xdg(variable: str, fallback: str) -> Path:
    """A base directory of the XDG specification: relative values are ignored, as it demands."""
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path(fallback).expanduser()


def _default_data_dir() -> Path:
    return _xdg("XDG_DATA_HOME", "~/.local/share") / "opencode-shim"


def _existing_directory(path: Path) -> Path:
    # Resolved, since clients send the resolved form and compare strings.
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
    found = path.expanduser().resolve()
    if not found.is_file():
        raise ValueError(f"there is no file {found}")
    return found


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


def _web_address(value: SecretStr) -> SecretStr:
    if not re.match(r"https?://[^/]", value.get_secret_value()):
        raise ValueError("it has to begin with http:// or https:// and a host")
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


class OwnAgent(BaseModel):
    """An agent of the person's own, as `[agents.NAME]` in a file: a program that speaks the Agent Client Protocol on its stdio.

    `env` may hold keys, so it is never shown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    title: str | None = None
    env: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])


class Hook(BaseModel):
    """What is done when a session becomes idle, asks or fails, as `[[hooks]]` in a file: a command, or a POST to a URL.

    URLs of webhooks hold keys (in the path, the query, before the host), so `url` is never shown; nor are `headers`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: Annotated[tuple[Literal["idle", "permission", "question", "error"], ...], Field(min_length=1)]
    command: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    url: Annotated[SecretStr, AfterValidator(_web_address)] | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    timeout_s: Annotated[float, Field(gt=0, le=300)] = 10.0

    @model_validator(mode="after")
    def _need_one_source(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("a hook has either a command or a url")
        return self

    @property
    def name(self) -> str:
        """For logs: the program, or the host."""
        return self.command[0] if self.url is None else self.url.get_secret_value().split("/")[2].rpartition("@")[2]

    def __str__(self) -> str:
        """For people: nothing in it is secret."""
        return f"{'/'.join(self.on)}: {self.name}"


AgentName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]


class Settings(BaseModel):
    """The settings of one server; frozen. Source: `Settings.load()`, or arguments alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hostname: str = Field(default="127.0.0.1", description="Address to listen on. Others than loopback need a password.")

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
        description="More names that clients may call this server by (its Host header), beside loopback ones, IP addresses and "
        "this machine's name; `*` for any. Comma-separated in the environment.",
    )

    base_path: Annotated[str, AfterValidator(_base_path)] = Field(
        default="", description="Path below which everything is served too, for a proxy that does not strip it: `/opencode`."
    )

    trust_proxy: bool = Field(
        default=False, description="Believe `X-Forwarded-Host` and `X-Forwarded-For`. Only behind a proxy that sets both itself."
    )

    public_url: Annotated[str, AfterValidator(_public_url)] | None = Field(
        default=None,
        description="Address by which other devices reach this server, behind a proxy or tunnel: `https://shim.example`. `pair` "
        "makes its links with it.",
    )

    mdns: bool = Field(
        default=False,
        description="Announce the server on the local network (mDNS) as `opencode-PORT`; `hostname` is then 0.0.0.0 unless it is "
        "set, and a password is needed. Wants the extra `mdns`.",
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
        description="Directory of clients that name none; one server serves any number of directories.",
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
        description="Seconds for an answer whether a project is trusted; then the turn goes on without its settings.",
    )

    unattended: Annotated[str, AfterValidator(_parse_unattended)] = Field(
        default="wait",
        description="What happens to permission requests and questions that nobody answers: `wait`; `reject:SECONDS`, rejected "
        "that long after they were asked; `rules`, nobody is asked and what no rule allows is rejected at once. A session and a "
        "prompt may say otherwise (docs/permissions.md).",
    )

    data_dir: Annotated[Path, AfterValidator(_absolute)] = Field(
        default_factory=_default_data_dir,
        validate_default=True,
        description="Where sessions are kept (SQLite), and the log of `tui`. Servers may share it: each session belongs to one.",
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
        default="info", description="Least level that is logged: debug, info, warn, error."
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
        description="Seconds without a turn after which an agent's process is ended; the next prompt resumes it.",
    )

    abort_timeout_s: float = Field(
        default=5.0, gt=0, description="Seconds that an agent gets to stop after an abort, before its process is killed."
    )

    max_sessions: int = Field(
        default=100_000, ge=1, description="Sessions that are kept, subagents' included; creating more is refused."
    )

    max_streams: int = Field(default=4_000, ge=1, description="Event streams that are open at once; more are refused.")

    compress_streams: Annotated[Literal["auto", "always", "never"], BeforeValidator(_lower)] = Field(
        default="auto",
        description="Whether event streams are compressed for clients that take gzip: auto does it for those on other machines.",
    )

    max_queued_prompts: int = Field(
        default=100, ge=1, description="Prompts that may wait in one session for their turn; more are refused."
    )

    mock_delay_factor: float = Field(
        default=1.0, ge=0, description="Factor on all waits of the mock agent; 0 makes it answer at once."
    )

    record_dir: Annotated[Path, AfterValidator(_absolute)] | None = Field(
        default=None,
        description="Folder for the raw traffic with agents, prompts included, for bug reports; unset: nothing is recorded.",
    )

    agents: dict[AgentName, OwnAgent] = Field(
        default_factory=dict[str, OwnAgent],
        description="More agents, each a program that speaks the Agent Client Protocol: `[agents.NAME]` with `command = "
        '["PROGRAM", "ARGUMENT"]` and optionally `title` and `env`. A known name (`gemini`) gets another command. '
        "In the environment: JSON.",
    )

    otel: bool = Field(
        default=False,
        description="Traces of requests, turns and tool calls with OpenTelemetry (the extra `otel`); where to: its own OTEL_* "
        "variables.",
    )

    hooks: tuple[Hook, ...] = Field(
        default=(),
        description='`[[hooks]]`: `on = ["idle", "permission", "question", "error"]` with `command = [...]` or `url`, `headers`, '
        "`timeout_s` (10). Told as JSON, on the command's stdin or as POST. In the environment: JSON.",
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict[str, str])

    @classmethod
    def load(cls, flags: Mapping[str, Any] | None = None) -> Settings:
        """The settings in force. In: flags by field name; None and empty lists mean that the flag was not given.

        Raises: SettingsError for a file that is no TOML, an unknown name in it, or a value that does not fit.
        """
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for path in config_files():
            found = _read(path)
            if path.name == PROJECT_FILE:
                _check_project_file(path, found)
            for name, value in found.items():
                values[name], origins[name] = value, f"file {path}"
        for name, variable in ((name, variable) for name, several in ALIASES.items() for variable in several):
            if os.environ.get(variable):
                values[name], origins[name] = os.environ[variable], f"environment {variable}"
        for name, value in _environment(os.environ, cls.model_fields).items():
            values[name], origins[name] = value, f"environment {env_name(name)}"
        for name, value in (flags or {}).items():
            if value is not None and value != []:
                values[name], origins[name] = value, f"flag --{name.replace('_', '-')}"
        try:
            settings = cls(**values)
        except ValidationError as error:
            raise SettingsError(sentences(error, values, origins)) from error
        if settings.mdns and "hostname" not in values:
            settings, origins["hostname"] = settings.model_copy(update={"hostname": EVERY_ADDRESS}), "setting mdns"
        settings._origins.update(origins)
        return settings

    def sources(self) -> dict[str, str]:
        """Where each value came from: `flag --port`, `environment SHIM_PORT`, `file PATH`, `argument` or `default`."""
        unknown = {name: "argument" if name in self.model_fields_set else "default" for name in type(self).model_fields}
        return unknown | self._origins


def env_name(field: str) -> str:
    """The environment variable of a field: `port` -> `SHIM_PORT`."""
    return ENV_PREFIX + field.upper()


def _environment(environ: Mapping[str, str], fields: Iterable[str]) -> dict[str, Any]:
    """What `SHIM_*` variables say, as text; the fields' own validators read it. Empty ones are as if they were not there.

    Raises: SettingsError for a table (`JSON_FIELDS`) that is no JSON.
    """
    found: dict[str, Any] = {name: value for name in fields if (value := environ.get(env_name(name)))}
    for name in JSON_FIELDS & found.keys():
        try:
            found[name] = json.loads(found[name])
        except ValueError as error:
            raise SettingsError(f"Setting {name} (environment {env_name(name)}) cannot be used: no JSON, {error}.") from None
    return found


def config_files() -> list[Path]:
    """The files that are read if they are there, the stronger one last."""
    return [_xdg("XDG_CONFIG_HOME", "~/.config") / "opencode-shim" / "config.toml", Path.cwd() / PROJECT_FILE]


def _read(path: Path) -> dict[str, Any]:
    """The values of one TOML file; {} if there is none."""
    try:
        return tomllib.loads(_text(path))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"Cannot read the settings of {path}: {error}") from error


def _text(path: Path) -> str:
    """The text of a file. A repository may have put a pipe or a device there, which would hold the start for ever.

    Raises OSError, UnicodeDecodeError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        data = file.read(FILE_LIMIT_BYTES + 1)
    if len(data) > FILE_LIMIT_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {FILE_LIMIT_BYTES} bytes")
    return data.decode("utf-8")


def _check_project_file(path: Path, names: Iterable[str]) -> None:
    """Raises SettingsError if the file of a project has settings that only a person may have."""
    refused = [name for name in names if name in Settings.model_fields and name not in OF_A_PROJECT]
    if refused:
        variables = ", ".join(env_name(name) for name in refused)
        raise SettingsError(
            f"{path} sets {', '.join(refused)}, which a project may not decide: the file may have come with a repository. "
            f"Move it to {config_files()[0]}, or set {variables}."
        )


def sentences(error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """One sentence per wrong setting. Values are shown as given, but for those of `SECRET_FIELDS`."""
    lines: list[str] = []
    for problem in error.errors(include_url=False):
        name = str(problem["loc"][0]) if problem["loc"] else "?"
        where = origins.get(name, "default")
        if problem["type"] == "extra_forbidden":
            known = ", ".join(sorted(cast("dict[str, Any]", Settings.model_fields)))
            lines.append(f"Unknown setting {name} ({where}). Known: {known}.")
        else:
            what = problem["msg"].removeprefix("Value error, ")
            place = ".".join(str(step) for step in problem["loc"])
            shown = place if name in SECRET_FIELDS else f"{name} = {values.get(name)!s}"
            lines.append(f"Setting {shown} ({where}) cannot be used: {what[:1].lower()}{what[1:]}.")
    return "\n".join(dict.fromkeys(lines))
