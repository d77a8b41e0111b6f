"""What can be set, and where each value came from.

    flag  >  environment SHIM_*  >  ./shim.toml  >  $XDG_CONFIG_HOME/opencode-shim/config.toml  >  default

`Settings(...)` itself reads nothing but its arguments, so tests and embedders are not touched by the machine they
run on; `Settings.load()` is the one place that reads the environment and the files. Names in the files are the field names.
Binaries of agents are not settings: `SHIM_CLAUDE_BIN` and the like are read where agents are located.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from shim.errors import ShimError

ENV_PREFIX = "SHIM_"
PROJECT_FILE = "shim.toml"
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


class OwnAgent(BaseModel):
    """An agent of the person's own, as `[agents.NAME]` in a file: a program that speaks the Agent Client Protocol on its stdio.

    `env` may hold keys, so it is never shown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    title: str | None = None
    env: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])


AgentName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]


class Settings(BaseSettings):
    """The settings of one server; frozen. Source: `Settings.load()`, or arguments alone."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    hostname: str = "127.0.0.1"
    """Address to listen on. Only loopback addresses are accepted, since there are no passwords yet."""

    port: int = Field(default=4096, ge=0, le=65535)
    """TCP port to listen on; 0 picks a free one."""

    directory: Annotated[Path, AfterValidator(_existing_directory)] = Field(default_factory=Path.cwd, validate_default=True)
    """Directory of clients that name none; one server serves any number of directories."""

    data_dir: Annotated[Path, AfterValidator(_absolute)] = Field(default_factory=_default_data_dir, validate_default=True)
    """Where sessions are kept (SQLite), and the log of `tui`. One server at a time may use it."""

    default_agent: str | None = None
    """Agent for prompts that name no model: claude, mock, ...; unset: the first real agent that is found."""

    cors: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_separated)] = ()
    """More origins that browsers may call from, beside loopback ones; comma-separated in the environment."""

    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = "info"
    """Least level that is logged: debug, info, warn, error."""

    log_format: Annotated[LogFormat, BeforeValidator(_lower)] = "console"
    """console for people, json for machines (one object per line); both go to stderr."""

    web_ui: Annotated[bool | str, BeforeValidator(_switch_or_url)] = False
    """OpenCode's own web UI at `/`: true takes its files from the installed `opencode`, a URL from the OpenCode server there."""

    idle_reap_s: float = Field(default=900.0, gt=0)
    """Seconds without a turn after which an agent's process is ended; the next prompt resumes it."""

    abort_timeout_s: float = Field(default=5.0, gt=0)
    """Seconds that an agent gets to stop after an abort, before its process is killed."""

    mock_delay_factor: float = Field(default=1.0, ge=0)
    """Factor on all waits of the mock agent; 0 makes it answer at once."""

    record_dir: Annotated[Path, AfterValidator(_absolute)] | None = None
    """Folder for the raw traffic with agents, prompts included, for bug reports; unset: nothing is recorded."""

    agents: dict[AgentName, OwnAgent] = Field(default_factory=dict[str, OwnAgent])
    """More agents, each a program that speaks the Agent Client Protocol: `[agents.NAME]` with `command = ["PROGRAM", "ARGUMENT"]`
    and optionally `title` and `env`. A known name (`gemini`) gets another command. In the environment: JSON."""

    _origins: dict[str, str] = PrivateAttr(default_factory=dict[str, str])

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only: `load` reads the rest, and knows then where each value came from."""
        return (init_settings,)

    @classmethod
    def load(cls, flags: Mapping[str, Any] | None = None) -> Settings:
        """The settings in force. In: flags by field name; None and empty lists mean that the flag was not given.

        Raises: SettingsError for a file that is no TOML, an unknown name in it, or a value that does not fit.
        """
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for path in config_files():
            for name, value in _read(path).items():
                values[name], origins[name] = value, f"file {path}"
        for name, value in EnvSettingsSource(cls)().items():
            values[name], origins[name] = value, f"environment {env_name(name)}"
        for name, value in (flags or {}).items():
            if value is not None and value != []:
                values[name], origins[name] = value, f"flag --{name.replace('_', '-')}"
        try:
            settings = cls(**values)
        except ValidationError as error:
            raise SettingsError(_sentences(error, values, origins)) from error
        settings._origins.update(origins)
        return settings

    def sources(self) -> dict[str, str]:
        """Where each value came from: `flag --port`, `environment SHIM_PORT`, `file PATH`, `argument` or `default`."""
        unknown = {name: "argument" if name in self.model_fields_set else "default" for name in type(self).model_fields}
        return unknown | self._origins


def env_name(field: str) -> str:
    """The environment variable of a field: `port` -> `SHIM_PORT`."""
    return ENV_PREFIX + field.upper()


def config_files() -> list[Path]:
    """The files that are read if they are there, the stronger one last."""
    return [_xdg("XDG_CONFIG_HOME", "~/.config") / "opencode-shim" / "config.toml", Path.cwd() / PROJECT_FILE]


def _read(path: Path) -> dict[str, Any]:
    """The values of one TOML file; {} if there is none."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"Cannot read the settings of {path}: {error}") from error


def _sentences(error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """One sentence per wrong setting. Values are shown as given; only `agents` may hold secrets."""
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
            shown = place if name == "agents" else f"{name} = {values.get(name)!s}"
            lines.append(f"Setting {shown} ({where}) cannot be used: {what[:1].lower()}{what[1:]}.")
    return "\n".join(dict.fromkeys(lines))
