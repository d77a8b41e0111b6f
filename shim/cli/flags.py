"""The flags of `opencode-shim` that more than one command has. Flags of settings have the description of the setting as help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from shim.lib.settings import Settings


def number(text: str) -> float:
    """Parse a number. Raises BadParameter."""
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise typer.BadParameter(f"it needs a number, not {text}.") from None


def flag(name: str, metavar: str, parser: Callable[[str], Any] | None = None) -> Any:
    """Return an option whose help is the description of the setting `name`."""
    field = Settings.model_fields[name]
    default = {"directory": "the current one", "data_dir": "~/.local/share/opencode-shim"}.get(name, field.default)
    default_text = str(default) if default else False
    option = f"--{name.replace('_', '-')}"
    return typer.Option(option, metavar=metavar, help=field.description, show_default=default_text, parser=parser)


SWITCH, TEXT, TEXTS = bool | None, str | None, list[str] | None

FLAGS: Mapping[str, tuple[Any, str]] = {
    "hostname": (TEXT, "ADDRESS"),
    "port": (Any, "N"),
    "directory": (TEXT, "DIR"),
    "data_dir": (TEXT, "DIR"),
    "default_agent": (TEXT, "NAME"),
    "cors": (TEXTS, "ORIGIN"),
    "log_level": (TEXT, "LEVEL"),
    "log_format": (TEXT, "FORMAT"),
    "allowed_hosts": (TEXTS, "NAME"),
    "base_path": (TEXT, "PATH"),
    "trust_proxy": (SWITCH, ""),
    "tls_cert": (TEXT, "FILE"),
    "tls_key": (TEXT, "FILE"),
    "roots": (TEXTS, "DIR"),
    "trust_all": (SWITCH, ""),
    "sandbox": (TEXT, "LEVEL"),
    "unattended": (TEXT, "WHAT"),
    "move_aside_damaged": (SWITCH, ""),
    "mdns": (SWITCH, ""),
    "mdns_domain": (TEXT, "NAME"),
    "cluster": (TEXT, "URLS"),
    "cluster_prefix": (TEXT, "NAME"),
    "cluster_name": (TEXT, "NAME"),
    "no_agents": (SWITCH, ""),
    "mcp": (SWITCH, ""),
    "labels": (TEXTS, "KEY=VALUE"),
    "drain_seconds": (Any, "SECONDS"),
}
"""Setting -> the type of its flag, and what stands for its value in the help. Those of type `Any` are numbers."""
SERVE = tuple(FLAGS)
WEB = tuple(name for name in SERVE if name not in ("cluster_name", "no_agents", "mcp", "labels", "drain_seconds"))
"""The settings of `serve` and of `web`, in the order of their help."""

Flags: TypeAlias = dict[str, Any]
"""Name of a setting -> the value of its flag; None for a flag that is absent."""


def with_flags(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command flags for these settings, in the place of its parameter `flags`, which gets their values."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            command(flags={name: values.pop(name) for name in names}, **values)

        flags = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(name)) for name in names]
        parameters: list[Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            parameters += flags if parameter.name == "flags" else [parameter.replace(kind=Parameter.KEYWORD_ONLY)]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined] - typer reads it
        return run

    return add


def _annotation(name: str) -> Any:
    type_, metavar = FLAGS[name]
    return Annotated[type_, flag(name, metavar, number if type_ is Any else None)]


EnvFile: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--env-file", metavar="FILE", help="File of NAME=VALUE lines to add to the environment. May be repeated; may be absent."
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for programs.")]
Server: TypeAlias = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Server to use. Default: the one that runs on the data directory, or a new one."),
]
Url: TypeAlias = Annotated[str | None, typer.Argument(metavar="[URL]", help="Running server to use. Default: start one.")]
