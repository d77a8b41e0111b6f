"""The commands about who else works with a server: the servers of a cluster, paired devices, other people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shim.cli import screen
from shim.cli.flags import Flags, Server, with_flags
from shim.cli.imports import quick_imports
from shim.cli.registry_commands import log_errors
from shim.lib.errors import ShimError
from shim.lib.settings import Settings

if TYPE_CHECKING:
    from shim.cli.transfer import Job


def with_server(settings: Settings, url: str | None, job: Job) -> None:
    """Do a job with the server at `url`, or with the one that runs here."""
    with quick_imports():
        from shim.cli import serve_command

    raise typer.Exit(serve_command.with_server(settings, url, job))


cluster = typer.Typer(no_args_is_help=True, help="Servers of a cluster (NATS), and copies of its sessions.")


@cluster.command(name="import")
@with_flags("cluster", "cluster_prefix", "data_dir")
def cluster_import(*, flags: Flags) -> None:
    """Copy the sessions of the data directory into the cluster. Nothing is deleted; it may be repeated."""
    settings = Settings.load(flags)
    log_errors(settings)
    import asyncio

    from shim.main.choose_store import copy_sessions

    raise typer.Exit(asyncio.run(copy_sessions(settings, screen.console(sys.stdout).line, into_cluster=True)))


@cluster.command(name="export")
@with_flags("cluster", "cluster_prefix", "data_dir")
def cluster_export(*, flags: Flags) -> None:
    """Copy the sessions of a cluster into the data directory. It may be working. Nothing is deleted; it may be repeated."""
    settings = Settings.load(flags)
    log_errors(settings)
    import asyncio

    from shim.main.choose_store import copy_sessions

    raise typer.Exit(asyncio.run(copy_sessions(settings, screen.console(sys.stdout).line, into_cluster=False)))


@cluster.command(name="prune")
@with_flags("cluster", "cluster_prefix", "data_dir")
def cluster_prune(
    *,
    older_than: Annotated[float, typer.Option(metavar="DAYS", min=0, help="Remove what has not changed for so many days.")],
    archive: Annotated[Path | None, typer.Option(metavar="DIR", help="Copy it into this data directory before.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be removed.")] = False,
    flags: Flags,
) -> None:
    """Remove sessions that were idle for long, with all below them. The servers may be working."""
    settings = Settings.load(flags)
    log_errors(settings)
    import asyncio

    from shim.main.choose_store import prune_sessions

    say = screen.console(sys.stdout).line
    raise typer.Exit(asyncio.run(prune_sessions(settings, archive, say, days=older_than, is_rehearsal=dry_run)))


NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name or id of a server, as `cluster nodes` shows them.")]


@cluster.command(name="nodes")
@with_flags("data_dir")
def cluster_nodes(*, url: Server = None, flags: Flags) -> None:
    """List the servers of the cluster that a running server is in."""
    settings = Settings.load(flags)
    from shim.cli import nodes as job

    with_server(settings, url, lambda server_url: job.show(settings, server_url, screen.console(sys.stdout)))


@cluster.command(name="cordon")
@with_flags("data_dir")
def cluster_cordon(node: NodeName, *, url: Server = None, flags: Flags) -> None:
    """Let a server take no more sessions. It keeps those that it has."""
    settings = Settings.load(flags)
    from shim.cli import nodes as job

    with_server(settings, url, lambda found: job.set_duty(settings, found, node, "cordoned", screen.console(sys.stdout)))


@cluster.command(name="uncordon")
@with_flags("data_dir")
def cluster_uncordon(node: NodeName, *, url: Server = None, flags: Flags) -> None:
    """Let a server take sessions again."""
    settings = Settings.load(flags)
    from shim.cli import nodes as job

    with_server(settings, url, lambda found: job.set_duty(settings, found, node, "open", screen.console(sys.stdout)))


@cluster.command(name="drain")
@with_flags("data_dir")
def cluster_drain(
    node: NodeName,
    *,
    wait: Annotated[float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for its turns.")] = 300,
    url: Server = None,
    flags: Flags,
) -> None:
    """Let a server give up its sessions, each at the end of its turn. It serves its clients meanwhile."""
    settings = Settings.load(flags)
    from shim.cli import nodes as job

    with_server(settings, url, lambda found: job.drain(settings, found, node, wait, screen.console(sys.stdout)))


pair = typer.Typer(invoke_without_command=True, help="Let another device in by a QR code, or revoke its access.")


@pair.callback()
@with_flags("data_dir")
def pair_invite(
    context: typer.Context,
    *,
    at: Annotated[str | None, typer.Option("--at", metavar="URL", help="Address at which the device reaches the server.")] = None,
    url: Server = None,
    flags: Flags,
) -> None:
    """Show a one-time link and its QR code. Open it on another device to use the server without the password."""
    if context.invoked_subcommand is not None:
        return
    settings = Settings.load({**flags, "public_url": at})
    import asyncio

    from shim.cli import pair as job
    from shim.cli.local_server import running_server_url

    server_url = url or running_server_url(settings)
    if server_url is None:
        raise ShimError(
            "No server runs on this data directory, and only a running server can make a link. Start one: opencode-shim serve"
        )
    raise typer.Exit(asyncio.run(job.invite(settings, server_url.rstrip("/"), screen.console(sys.stdout), settings.public_url)))


@pair.command(name="list")
@with_flags("data_dir")
def pair_list(*, url: Server = None, flags: Flags) -> None:
    """List the valid pairing tokens. A line has id, creation and expiry dates, and name of the device."""
    settings = Settings.load(flags)
    from shim.cli import pair as job

    with_server(settings, url, lambda server_url: job.show(settings, server_url, screen.console(sys.stdout)))


@pair.command(name="revoke")
@with_flags("data_dir")
def pair_revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the token, as `pair list` shows it.")],
    *,
    url: Server = None,
    flags: Flags,
) -> None:
    """Revoke a pairing token. The server then refuses its device and closes the device's streams and terminals."""
    settings = Settings.load(flags)
    from shim.cli import pair as job

    with_server(settings, url, lambda server_url: job.revoke(settings, server_url, token_id, screen.console(sys.stdout)))


Role = Annotated[str | None, typer.Option("--role", metavar="ROLE", help="view, work or admin.")]
Roots = Annotated[list[Path] | None, typer.Option("--roots", metavar="DIR", help="Only in DIR; may be repeated.")]
Own = Annotated[bool | None, typer.Option("--own-sessions/--all-sessions", help="Whether they see only sessions of their own.")]
Running = Annotated[int | None, typer.Option("--max-running", metavar="N", min=0, help="Agents at work at once; 0: any.")]
Queued = Annotated[int | None, typer.Option("--max-queued", metavar="N", min=0, help="Prompts that wait; 0: any.")]
Cost = Annotated[float | None, typer.Option("--max-cost-day", metavar="USD", min=0, help="USD a day (UTC); 0: any.")]


def _terms(role: str | None, roots: list[Path] | None, own: bool | None, **limits: float | None) -> dict[str, object]:
    """What a person may do, as a request has it, without what is not said."""
    places = None if roots is None else [str(root.absolute()) for root in roots]
    terms = {"role": role, "roots": places or None, "ownSessions": own}
    named = {key: value for key, value in limits.items() if value is not None}
    return {key: value for key, value in (*terms.items(), ("limits", named or None)) if value is not None}


people = typer.Typer(no_args_is_help=True, help="Let other people in, each with a role and a token of their own.")


@people.command(name="add")
@with_flags("data_dir")
def people_add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Their user name. An earlier token of this name ends.")],
    *,
    role: Role = "view",
    roots: Roots = None,
    own: Own = None,
    max_running: Running = None,
    max_queued: Queued = None,
    max_cost_day: Cost = None,
    url: Server = None,
    flags: Flags,
) -> None:
    """Let a person in, and show their token once. They use it as the password, with any user name."""
    settings = Settings.load(flags)
    from shim.cli import pair as job

    terms = _terms(role, roots, own, max_running=max_running, max_queued=max_queued, max_cost_day=max_cost_day)
    with_server(settings, url, lambda found: job.add_person(settings, found, name, terms, screen.console(sys.stdout)))


@people.command(name="change")
@with_flags("data_dir")
def people_change(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user name, as `people list` shows it.")],
    *,
    role: Role = None,
    roots: Roots = None,
    own: Own = None,
    max_running: Running = None,
    max_queued: Queued = None,
    max_cost_day: Cost = None,
    url: Server = None,
    flags: Flags,
) -> None:
    """Change what a person may do. Their token stays."""
    settings = Settings.load(flags)
    from shim.cli import pair as job

    terms = _terms(role, roots, own, max_running=max_running, max_queued=max_queued, max_cost_day=max_cost_day)
    with_server(settings, url, lambda found: job.change_person(settings, found, name, terms, screen.console(sys.stdout)))


@people.command(name="list")
@with_flags("data_dir")
def people_list(*, url: Server = None, flags: Flags) -> None:
    """List the people with their roles, the newest first."""
    settings = Settings.load(flags)
    from shim.cli import pair as job

    with_server(settings, url, lambda found: job.show_people(settings, found, screen.console(sys.stdout)))


@people.command(name="remove")
@with_flags("data_dir")
def people_remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user name, as `people list` shows it.")],
    *,
    url: Server = None,
    flags: Flags,
) -> None:
    """Refuse a person from now on, with their devices, and close their streams."""
    settings = Settings.load(flags)
    from shim.cli import pair as job

    with_server(settings, url, lambda found: job.remove_person(settings, found, name, screen.console(sys.stdout)))


TEAM = {"cluster": cluster, "pair": pair, "people": people}
"""Name -> group of commands, in the order of the help."""
