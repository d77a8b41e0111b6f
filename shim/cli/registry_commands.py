"""Declares `agents`, and what ends or renews the server: `stop`, `restart`, `service`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shim.cli import screen
from shim.cli.flags import Flags, with_flags
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
    here = {row.name for row in rows if not row.absent}
    others = ", ".join(name for name in names(registry) if name not in here)
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
    path = config_file.add_agent(entry.name, command, entry.title, entry.env)
    typer.echo(f"Wrote agents.{entry.name} into {path}. A running server needs a restart for it.")


# --- the server --------------------------------------------------------------------------------------------


@with_flags("data_dir")
def stop(*, flags: Flags) -> None:
    """End the servers of the data directory and their agents. Says what runs."""
    from shim.cli import control as job

    raise typer.Exit(job.stop(Settings.load(flags), screen.console(sys.stdout)))


@with_flags("data_dir")
def restart(*, flags: Flags) -> None:
    """Let the servers begin again, as installed now. With `outlive` turns go on."""
    from shim.cli import control as job

    raise typer.Exit(job.restart(Settings.load(flags), screen.console(sys.stdout)))


service = typer.Typer(no_args_is_help=True, help="Run this server as a service of this user. It needs systemd or launchd.")


@service.command(name="install")
def service_install(
    *,
    on_demand: Annotated[bool, typer.Option("--on-demand", help="Start the server with its first client, not at login.")] = False,
    harden: Annotated[bool, typer.Option("--harden", help="Forbid agents sudo and the like (docs/install.md).")] = False,
    linger: Annotated[bool, typer.Option(help="Start the server with the machine, before you log in.")] = True,
) -> None:
    """Write the service and start it. It has the current PATH and settings. Keys are not copied. You may repeat it."""
    from shim.cli import service as job

    out = screen.console(sys.stdout)
    raise typer.Exit(job.install(Settings.load(), out, on_demand=on_demand, harden=harden, linger=linger))


@service.command(name="uninstall")
def service_uninstall() -> None:
    """Stop and remove the service. Settings, keys and sessions stay."""
    from shim.cli import service as job

    raise typer.Exit(job.uninstall(Settings.load(), screen.console(sys.stdout)))


@service.command(name="start")
def service_start() -> None:
    """Start the service."""
    _act("start")


@service.command(name="stop")
def service_stop() -> None:
    """Stop the service. No client starts it again until `service start`."""
    _act("stop")


@service.command(name="restart")
def service_restart() -> None:
    """Stop the service and start it again."""
    _act("restart")


@service.command(name="upgrade")
def service_upgrade() -> None:
    """Install the newest version, and restart the service. With `outlive` turns go on."""
    from shim.cli import service as job

    raise typer.Exit(job.upgrade(Settings.load()))


@service.command(name="status")
def service_status() -> None:
    """Show the service manager's status of the service."""
    _act("status")


@service.command(name="logs")
def service_logs(
    *, follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False
) -> None:
    """Show the log of the service."""
    _act("logs", follow=follow)


def _act(action: Any, *, follow: bool = False) -> None:
    from shim.cli import service as job

    raise typer.Exit(job.act(Settings.load(), action, follow=follow))
