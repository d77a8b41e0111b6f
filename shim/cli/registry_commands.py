"""`opencode-shim agents` and `agents add`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from shim.cli import screen
from shim.cli.imports import quick_imports
from shim.lib.settings import Settings

agents = typer.Typer(invoke_without_command=True, help="List the agents and what each can do, or add one.")


def say_that_agents_are_asked() -> None:
    """Tell a person at a terminal why the command takes long."""
    if sys.stderr.isatty():
        screen.line(screen.console(sys.stderr), "Asking the agents. One that does not answer takes a minute.", "dim")


def log_errors(settings: Settings | None = None) -> None:
    """Log only errors, without the settings' secrets: stdout and stderr belong to the command."""
    with quick_imports():
        from shim.cli.serve_command import secrets
        from shim.lib.logging import configure

    configure("error", "console", sys.stderr, secrets(settings) if settings else ())


@agents.callback()
def list_agents(
    context: typer.Context,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    data_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Data directory.")] = None,
) -> None:
    """List the agents with version, path, models and capabilities."""
    if context.invoked_subcommand is not None:
        return
    settings = Settings.load({"data_dir": data_dir})
    import asyncio

    from shim.agents.acp_registry import names, read_registry
    from shim.cli.agents import look

    log_errors()
    say_that_agents_are_asked()
    rows = asyncio.run(look(settings))
    if json:
        typer.echo(screen.agents_json(rows))
        return
    out = screen.console(sys.stdout)
    screen.agent_details(out, rows)
    registry = read_registry()
    known = {row.name for row in rows}
    others = ", ".join(name for name in names(registry) if name not in known)
    screen.line(out, "")
    screen.line(out, f"opencode-shim agents add NAME adds, by the registry of {registry['date']}: {others}")


@agents.command(name="add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name in the registry.")],
    *,
    source: Annotated[
        str, typer.Option("--from", metavar="URL|PATH", help="Registry file. Default: the copy in this package.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Add an agent that speaks ACP: download its pinned version, and write its command into the settings."""
    from shim.agents import acp_registry
    from shim.cli import config_file

    entry = acp_registry.find_entry(acp_registry.read_registry(source), name)
    what = f"{entry.archive} (sha256 {entry.sha256})" if entry.archive else " ".join(entry.command)
    variables = "".join(f"\n  {key}={value}" for key, value in entry.env.items())
    typer.echo(f"{entry.title} {entry.version}: {what}{variables}")
    if not yes and not typer.confirm("It runs as you, with your files and keys. Download it and add it?", default=False):
        raise typer.Exit(1)
    command = acp_registry.make_ready(entry, Settings.load().data_dir, typer.echo)
    path = config_file.add_agent(name, command, entry.title, entry.env)
    typer.echo(f"Wrote agents.{name} into {path}. A running server needs a restart for it.")
