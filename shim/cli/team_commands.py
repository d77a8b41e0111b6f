"""The commands about who else works with a server: the servers of a cluster, paired devices, other people."""

from __future__ import annotations

import sys
from importlib import import_module
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


def ask_server(flags: Flags, url: str | None, module: str, work: str, *arguments: object) -> None:
    """Do a job with a server as `with_server`, in a module of `shim.cli` that is imported late, since it needs HTTP."""
    settings, job = Settings.load(flags), getattr(import_module(f"shim.cli.{module}"), work)
    with_server(settings, url, lambda found: job(settings, found, *arguments, screen.console(sys.stdout)))


def _copy_sessions(flags: Flags, *, into_cluster: bool) -> None:
    settings = Settings.load(flags)
    log_errors(settings)
    import asyncio

    from shim.main.choose_store import copy_sessions

    raise typer.Exit(asyncio.run(copy_sessions(settings, screen.console(sys.stdout).line, into_cluster=into_cluster)))


cluster = typer.Typer(no_args_is_help=True, help="Servers of a cluster (NATS), and copies of its sessions.")


@cluster.command(name="import")
@with_flags("cluster", "cluster_prefix", "data_dir")
def cluster_import(*, flags: Flags) -> None:
    """Copy the sessions of the data directory into the cluster. Nothing is deleted; it may be repeated."""
    _copy_sessions(flags, into_cluster=True)


@cluster.command(name="export")
@with_flags("cluster", "cluster_prefix", "data_dir")
def cluster_export(*, flags: Flags) -> None:
    """Copy the sessions of a cluster into the data directory. It may be working. Nothing is deleted; it may be repeated."""
    _copy_sessions(flags, into_cluster=False)


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
    ask_server(flags, url, "nodes", "show")


@cluster.command(name="cordon")
@with_flags("data_dir")
def cluster_cordon(node: NodeName, *, url: Server = None, flags: Flags) -> None:
    """Let a server take no more sessions. It keeps those that it has."""
    ask_server(flags, url, "nodes", "set_duty", node, "cordoned")


@cluster.command(name="uncordon")
@with_flags("data_dir")
def cluster_uncordon(node: NodeName, *, url: Server = None, flags: Flags) -> None:
    """Let a server take sessions again."""
    ask_server(flags, url, "nodes", "set_duty", node, "open")


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
    ask_server(flags, url, "nodes", "drain", node, wait)


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
    ask_server(flags, url, "pair", "show")


@pair.command(name="revoke")
@with_flags("data_dir")
def pair_revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the token, as `pair list` shows it.")],
    *,
    url: Server = None,
    flags: Flags,
) -> None:
    """Revoke a pairing token. The server then refuses its device and closes the device's streams and terminals."""
    ask_server(flags, url, "pair", "revoke", token_id)


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
    terms = _terms(role, roots, own, max_running=max_running, max_queued=max_queued, max_cost_day=max_cost_day)
    ask_server(flags, url, "pair", "add_person", name, terms)


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
    terms = _terms(role, roots, own, max_running=max_running, max_queued=max_queued, max_cost_day=max_cost_day)
    ask_server(flags, url, "pair", "change_person", name, terms)


@people.command(name="list")
@with_flags("data_dir")
def people_list(*, url: Server = None, flags: Flags) -> None:
    """List the people with their roles, the newest first."""
    ask_server(flags, url, "pair", "show_people")


@people.command(name="remove")
@with_flags("data_dir")
def people_remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user name, as `people list` shows it.")],
    *,
    url: Server = None,
    flags: Flags,
) -> None:
    """Refuse a person from now on, with their devices, and close their streams."""
    ask_server(flags, url, "pair", "remove_person", name)


TEAM = {"cluster": cluster, "pair": pair, "people": people}
"""Name -> group of commands, in the order of the help."""
