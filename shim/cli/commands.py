"""Declares the commands of `opencode-shim` and their flags.

An absent flag is None, so that `Settings` can tell where a value came from.

Each command imports its work in its own function, so that `--help`, `--version`, completion and `health` load neither the
server nor its libraries (`tests/unit/cli/test_commands.py` lists them).

Exit codes: 0 success, or stopped by Ctrl-C or SIGTERM; 1 failure (one sentence on stderr); 2 wrong usage; 130 a second
Ctrl-C ended the process at once. `tui` returns the exit code of the TUI.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from shim.cli import screen
from shim.cli.flags import SERVE, WEB, EnvFile, Flags, Json, Server, Url, with_flags
from shim.cli.imports import quick_imports
from shim.cli.registry_commands import agents, log_errors, restart, say_that_agents_are_asked, service, stop
from shim.cli.team_commands import TEAM, with_server
from shim.lib.errors import ShimError
from shim.lib.settings import Settings

PROGRAM = "opencode-shim"
COMPLETE_VARIABLE = "_OPENCODE_SHIM_COMPLETE"
"""Variable that tells typer that a shell asks for completions."""
NO_RECORDER = (
    "The recorder is not installed: it is an extra. Install it with `pip install 'opencode-shim[record]'` "
    "(`uv tool install 'opencode-shim[record]'`), and run this again."
)
Shell: TypeAlias = Literal["bash", "zsh", "fish"]

cli = typer.Typer(
    name="opencode-shim",
    help="OpenCode's server with other agents behind it: Claude Code and more in OpenCode's own TUI, web UI and SDKs.",
    no_args_is_help=True,
    add_completion=True,
    # rich costs more than the rest of `--help`, and takes [brackets] of our texts for its markup.
    rich_markup_mode=None,
    # Tracebacks of rich show local variables, which hold keys and prompts.
    pretty_exceptions_enable=False,
)


def _version(is_requested: bool) -> None:
    if is_requested:
        from shim.lib.version import build

        typer.echo(str(build()))
        raise typer.Exit


@cli.callback()
def root(
    *,
    _: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version and the commit it is built from."),
    ] = False,
) -> None:
    """Accept options before the command."""


@cli.command()
@with_flags(*SERVE)
def serve(
    *,
    flags: Flags,
    env_file: EnvFile = None,
    register: Annotated[
        bool, typer.Option("--register", help="Let clients of OpenCode 2 find the server in OpenCode's state folder.")
    ] = False,
) -> None:
    """Start the server; Ctrl-C stops it. Prints its URL, the agents found, and the line to attach with."""
    with quick_imports():
        from shim.cli import serve_command

    serve_command.add_environment(env_file or ())
    raise typer.Exit(serve_command.serve(flags, register=register))


@cli.command()
@with_flags(*WEB)
def web(
    url: Url = None,
    *,
    flags: Flags,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the page's address instead of opening a browser.")] = False,
) -> None:
    """Start the server and open OpenCode's web UI in the browser. The UI's files come from `opencode`."""
    with quick_imports():
        from shim.cli import serve_command

    if url is None:
        raise typer.Exit(serve_command.serve(flags, page=True, browser=not no_open))
    serve_command.show_page_of(url, Settings.load(flags), browser=not no_open)


@cli.command()
@with_flags("directory", "data_dir", "default_agent")
def tui(
    url: Url = None,
    *,
    flags: Flags,
    session: Annotated[str | None, typer.Option("--session", "-s", metavar="ID", help="Session to continue.")] = None,
    last: Annotated[bool, typer.Option("--continue", "-c", help="Continue the last session.")] = False,
) -> None:
    """Open OpenCode's TUI here. It works on the server at URL, or on a new one that ends with the TUI."""
    with quick_imports():
        from shim.cli import serve_command

    raise typer.Exit(serve_command.tui(flags, url, session=session, last=last))


@cli.command()
@with_flags("directory", "data_dir", "default_agent")
def acp(url: Url = None, *, flags: Flags) -> None:
    """Be an ACP agent for an editor (stdin and stdout). It works on the server at URL, the one that runs, or a new one."""
    with quick_imports():
        from shim.cli import acp as job

    raise typer.Exit(job.run(Settings.load(flags), url))


cli.add_typer(agents, name="agents")


@cli.command()
def doctor(
    agent: Annotated[
        list[str] | None, typer.Argument(metavar="[AGENT]...", help="Check only these agents. Default: all.")
    ] = None,
    *,
    json: Json = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Send each agent a short, real prompt and show how long it takes.")
    ] = False,
    no_agents: Annotated[
        bool, typer.Option("--no-agents", help="Check only the machine: server, port, service, disk, PATH ...")
    ] = False,
    client: Annotated[
        str | None,
        typer.Option("--client", metavar="URL", help="Only print what clients of the server at URL asked that it does not have."),
    ] = None,
) -> None:
    """Check the machine and the agents, and say what to do.

    It looks at each agent's version and login. Exit code 1 if anything is wrong.
    """
    settings = Settings.load()
    log_errors()
    import asyncio

    if client is not None:
        from shim.cli import clients

        typer.echo("\n".join(asyncio.run(clients.report_unserved(client, settings))))
        raise typer.Exit

    from shim.cli import diagnosis, machine

    checks = [] if agent else machine.examine_machine(settings)
    bad = any(check.status == "wrong" for check in checks)
    if no_agents and json:
        typer.echo(machine.as_json(checks))
        raise typer.Exit(1 if bad else 0)
    from shim.cli.doctor import as_json, examine, show

    if not no_agents:
        say_that_agents_are_asked()
    diagnoses = [] if no_agents else asyncio.run(examine(settings, agent or (), probing=probe))
    if json:
        typer.echo(as_json(diagnoses))
    else:
        out = screen.console(sys.stdout)
        show(out, diagnoses)
        machine.show(out, checks)
        from shim.cli import alias as aliases
        from shim.cli.trust import state

        screen.line(out, f"project: {state(settings, settings.directory)}")
        for line in aliases.on_path(os.environ.get("PATH", "")):
            screen.line(out, line)
    raise typer.Exit(1 if bad or (not no_agents and diagnosis.wrong(diagnoses, agent or ())) else 0)


config = typer.Typer(invoke_without_command=True, help="Show the settings and where each comes from, or change one.")
cli.add_typer(config, name="config")


@config.callback()
def config_show(
    context: typer.Context,
    *,
    json: Json = False,
    all_of_them: Annotated[bool, typer.Option("--all", help="Show the settings that have their defaults too.")] = False,
) -> None:
    """Show the settings in force and where each came from: flag, environment, file or default."""
    if context.invoked_subcommand is not None:
        return
    settings = Settings.load()
    if json:
        typer.echo(screen.settings_json(settings))
    else:
        screen.settings_table(screen.console(sys.stdout), settings, all_of_them=all_of_them)


@config.command(name="set")
def config_set(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Name of the setting, as `opencode-shim config` shows it.")],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="New value, as in its SHIM_* variable; - reads it from stdin (for passwords).")
    ],
) -> None:
    """Write a setting into the user's file. Says when it takes effect."""
    from shim.cli import config_file as job

    path = job.set_value(key, sys.stdin.readline().rstrip("\n") if value == "-" else value)
    typer.echo(f"Set {key} in {path}. {job.effect(key, path)}")


@config.command(name="unset")
def config_unset(key: Annotated[str, typer.Argument(metavar="KEY", help="Name of a setting in the file.")]) -> None:
    """Remove a setting from ~/.config/opencode-shim/config.toml."""
    from shim.cli import config_file as job

    path = job.unset(key)
    typer.echo(f"Removed {key} from {path}. {job.effect(key, path)}")


for command in (stop, restart):
    cli.command()(command)
cli.add_typer(service, name="service")


@cli.command()
def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Shell to print the script for.")]) -> None:
    """Print a script that completes commands and options. See docs/install.md."""
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell))


@cli.command()
@with_flags("data_dir")
def health(*, url: Server = None, flags: Flags) -> None:
    """Exit with 0 if the server answers. It is the one at URL, or on this data directory. For containers and monitors."""
    settings = Settings.load(flags)
    from shim.cli.local_server import running_server_url

    server_url = running_server_url(settings, url)
    typer.echo(server_url or "No server answers.")
    raise typer.Exit(0 if server_url else 1)


@cli.command()
@with_flags("data_dir")
def trust(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Project to trust. Default: the current directory.")
    ] = Path(),
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Show the decisions about all projects.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Forget the decision about DIR.")] = False,
    flags: Flags,
) -> None:
    """Trust a project: let its hooks and allow rules take effect. Its plugins and MCP servers too. Shows them and asks first."""
    settings = Settings.load(flags)
    log_errors()
    from shim.cli import trust as job

    out = screen.console(sys.stdout)
    if show:
        raise typer.Exit(job.show_all(settings, out))
    if remove:
        raise typer.Exit(job.remove(settings, directory, out))
    raise typer.Exit(job.trust(settings, directory, out, lambda question: yes or typer.confirm(question, default=False)))


for name, group in TEAM.items():
    cli.add_typer(group, name=name)


alias = typer.Typer(no_args_is_help=True, help="Give this server the name `opencode`. For programs that start OpenCode.")
cli.add_typer(alias, name="alias")


@alias.command(name="install")
def alias_install(
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="Folder to install into. Default: ~/.local/bin.")] = None,
    *,
    opencode2: Annotated[bool, typer.Option("--opencode2", help="Also install `opencode2`, the program of OpenCode 2.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace another program of that name; it is kept beside the alias.")
    ] = False,
) -> None:
    """Write a small program named `opencode` into DIR. Programs that start OpenCode then start this server."""
    from shim.cli import alias as job

    names = ("opencode", "opencode2") if opencode2 else ("opencode",)
    out = screen.console(sys.stdout)
    raise typer.Exit(job.install(folder or Path(job.DEFAULT_FOLDER), names, out, force=force))


@alias.command(name="remove")
def alias_remove(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Folder to remove it from. Default: ~/.local/bin.")
    ] = None,
) -> None:
    """Remove the alias from DIR. The program that `--force` kept comes back."""
    from shim.cli import alias as job

    raise typer.Exit(job.remove(folder or Path(job.DEFAULT_FOLDER), screen.console(sys.stdout)))


@cli.command()
def record(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Name of the agent, as `opencode-shim agents` shows it.")],
    *,
    scene: Annotated[
        list[str] | None, typer.Option("--scene", metavar="NAME", help="Record only this scene. May be repeated.")
    ] = None,
    binary: Annotated[
        str | None, typer.Option("--bin", metavar="FILE", help="Program of the agent. Default: the one on PATH.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for AGENT/VERSION/SCENE.jsonl.")] = Path("recordings"),
    agent_version: Annotated[
        str | None, typer.Option("--version", metavar="X.Y.Z", help="Version of an agent that does not report it.")
    ] = None,
    command: Annotated[str | None, typer.Option("--command", metavar="LINE", help="A program that speaks ACP.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", metavar="K=V", help="For the agent; {url} is the model's.")] = None,
    home: Annotated[Path | None, typer.Option("--home", metavar="DIR", help="Files for the agent's empty home.")] = None,
    one_file: Annotated[bool, typer.Option("--one-file", help="Pack the recordings into one file, to send it.")] = False,
) -> None:
    """Record a real agent's traffic, and report what is new or gone.

    It plays our scenes to the agent, against a scripted model. The agent gets an empty home and no network; paths and secrets
    are removed from the recordings. Give an agent of [agents.NAME] in the settings, or of --command, the address of the model:
    with --env, and with files in --home.
    """
    log_errors()
    try:
        from shim.cli import record as job
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("shim.dev"):
            raise
        raise ShimError(NO_RECORDER) from error
    wish = job.Wish(agent, out, tuple(scene or ()), binary, agent_version, command, tuple(env or ()), home)
    result = job.record(wish, Settings.load({}))
    typer.echo("\n".join(job.report_lines(result)))
    if one_file and (path := job.pack(result)) is not None:
        typer.echo(f"\nTo send: {path}")
    raise typer.Exit(1 if result.failed or result.unparsed else 0)


@cli.command()
@with_flags("directory", "data_dir")
def export(
    session: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", help="Id of the session. Default: the newest of the directory.")
    ] = None,
    *,
    url: Server = None,
    flags: Flags,
) -> None:
    """Write a session to stdout in the format of `opencode export`. `opencode import` reads it."""
    settings = Settings.load(flags)
    from shim.cli import transfer

    with_server(settings, url, lambda server_url: transfer.export(settings, server_url, session))


@cli.command()
@with_flags("directory", "data_dir")
def sessions(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Name of the agent, as `opencode-shim agents` shows it.")],
    id_: Annotated[str | None, typer.Argument(metavar="[ID]", help="The conversation to open here.")] = None,
    *,
    days: Annotated[int, typer.Option("--days", metavar="N", help="How far back the list goes.")] = 30,
    url: Server = None,
    flags: Flags,
) -> None:
    """List or open conversations of an agent's own program.

    Prompts go on in one that was opened here. The list is of this directory.
    """
    settings = Settings.load(flags)
    from shim.cli import transfer

    with_server(settings, url, lambda server_url: transfer.conversations(settings, server_url, agent, id_, days))


@cli.command(name="import")
@with_flags("directory", "data_dir")
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File that `opencode export` or `opencode-shim export` wrote; - for stdin.")
    ],
    *,
    url: Server = None,
    flags: Flags,
) -> None:
    """Add a session from a file to the current directory. --directory names another one. The session keeps its id."""
    settings = Settings.load(flags)
    from shim.cli import transfer

    document = transfer.read(file)
    with_server(settings, url, lambda server_url: transfer.import_(settings, server_url, document))


@cli.command()
@with_flags("data_dir")
def prune(
    *,
    older_than: Annotated[float, typer.Option(metavar="DAYS", min=0, help="Remove what has not changed for so many days.")],
    archive: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write each to a file there before; `import` reads it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Server = None,
    flags: Flags,
) -> None:
    """Remove sessions that were idle for long, with all below them. Shows them and asks first."""
    settings = Settings.load(flags)
    from shim.cli import transfer
    from shim.lib.clock import DAY_MS, SystemClock

    before_ms = SystemClock().now_ms() - round(older_than * DAY_MS)

    def may_remove(question: str) -> bool:
        return yes or typer.confirm(question, default=False)

    async def job(server_url: str) -> int:
        ask = None if dry_run else may_remove
        return await transfer.prune(settings, server_url, archive, ask, days=older_than, before_ms=before_ms)

    with_server(settings, url, job)


@cli.command()
@with_flags("directory", "data_dir")
def mcp(*, url: Server = None, flags: Flags) -> None:
    """Serve sessions as tools of MCP on stdin and stdout. For a program that starts its MCP servers itself."""
    settings = Settings.load({**flags, "mcp": True})
    from shim.cli import mcp as job

    with_server(settings, url, lambda server_url: job.serve(settings, server_url))


@cli.command()
@with_flags("data_dir")
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to create (.tar.gz).")],
    *,
    no_keys: Annotated[bool, typer.Option("--no-keys", help="Leave out the API keys.")] = False,
    flags: Flags,
) -> None:
    """Write sessions, trust decisions and API keys to a file. `/undo` snapshots too. Servers may run meanwhile."""
    from shim.cli import backup as job

    summary = job.backup(Settings.load(flags).data_dir, file.absolute(), keys=not no_keys)
    typer.echo(f"Wrote {summary.path}: {summary.files} files, {summary.size:,} bytes, schema {summary.schema}.")
    if not no_keys:
        typer.echo("The file holds your stored API keys, if there are any. Keep it secret, or use --no-keys to leave them out.")


@cli.command()
@with_flags("data_dir")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that `opencode-shim backup` wrote.")],
    *,
    replace: Annotated[bool, typer.Option("--replace", help="Move the existing data aside (into before-restore-N).")] = False,
    flags: Flags,
) -> None:
    """Restore a backup into the data directory. Stop all servers that use this data directory first."""
    from shim.cli import backup as job

    settings = Settings.load(flags)
    summary = job.restore(settings.data_dir, file.absolute(), replace=replace)
    typer.echo(f"Restored {summary.files} files into {settings.data_dir}.")
    if summary.aside is not None:
        typer.echo(f"The earlier data is in {summary.aside}.")
