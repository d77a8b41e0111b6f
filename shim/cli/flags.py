"""The flags of `opencode-shim` that more than one command has. Their help is the description of the setting."""

from __future__ import annotations

from collections.abc import Callable
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


Hostname: TypeAlias = Annotated[str | None, flag("hostname", "ADDRESS")]
Port: TypeAlias = Annotated[Any, flag("port", "N", number)]
Directory: TypeAlias = Annotated[str | None, flag("directory", "DIR")]
DataDir: TypeAlias = Annotated[str | None, flag("data_dir", "DIR")]
DefaultAgent: TypeAlias = Annotated[str | None, flag("default_agent", "NAME")]
Sandbox: TypeAlias = Annotated[str | None, flag("sandbox", "LEVEL")]
Cors: TypeAlias = Annotated[list[str] | None, flag("cors", "ORIGIN")]
LogLevel: TypeAlias = Annotated[str | None, flag("log_level", "LEVEL")]
LogFormat: TypeAlias = Annotated[str | None, flag("log_format", "FORMAT")]
AllowedHosts: TypeAlias = Annotated[list[str] | None, flag("allowed_hosts", "NAME")]
BasePath: TypeAlias = Annotated[str | None, flag("base_path", "PATH")]
Mdns: TypeAlias = Annotated[bool | None, flag("mdns", "")]
MdnsDomain: TypeAlias = Annotated[str | None, flag("mdns_domain", "NAME")]
TrustProxy: TypeAlias = Annotated[bool | None, flag("trust_proxy", "")]
TlsCert: TypeAlias = Annotated[str | None, flag("tls_cert", "FILE")]
TlsKey: TypeAlias = Annotated[str | None, flag("tls_key", "FILE")]
Roots: TypeAlias = Annotated[list[str] | None, flag("roots", "DIR")]
TrustAll: TypeAlias = Annotated[bool | None, flag("trust_all", "")]
Unattended: TypeAlias = Annotated[str | None, flag("unattended", "WHAT")]
MoveAside: TypeAlias = Annotated[bool | None, flag("move_aside_damaged", "")]
Cluster: TypeAlias = Annotated[str | None, flag("cluster", "URLS")]
ClusterPrefix: TypeAlias = Annotated[str | None, flag("cluster_prefix", "NAME")]
ClusterName: TypeAlias = Annotated[str | None, flag("cluster_name", "NAME")]
DrainSeconds: TypeAlias = Annotated[Any, flag("drain_seconds", "SECONDS", number)]
Labels: TypeAlias = Annotated[list[str] | None, flag("labels", "KEY=VALUE")]
Mcp: TypeAlias = Annotated[bool | None, flag("mcp", "")]
NoAgents: TypeAlias = Annotated[bool | None, flag("no_agents", "")]
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
