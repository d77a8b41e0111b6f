"""The program `opencode`, implemented by this server: its commands and options.

An alias (`shim.cli.alias`) calls it as `python -m shim.cli.opencode NAME ARGUMENTS...`, where NAME is `opencode` or `opencode2`.
A command that is not in `COMMANDS` goes to a real program of that name, or fails with one sentence. Options that this server
does not use are accepted, and stderr says that they are ignored: a client that sends a new option must still start.

Exit codes: those of `opencode-shim`; 1 for a command that neither this server nor a real program can run.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shim.cli.imports import quick_imports
from shim.lib.errors import ShimError
from shim.processes.aliases import NAMES, find_program

IGNORED_OPTIONS: Mapping[str, str] = {
    "pure": "this server loads no plugins of OpenCode",
}
"""OpenCode option -> why this server ignores it."""

VARIABLE_NOTES: Mapping[str, str] = {
    "OPENCODE_DISABLE_CLAUDE_CODE": "reaches the agent OpenCode only: Claude Code reads its own instructions all the same",
    "OPENCODE_CONFIG_PROJECT_DISABLE": "holds for OpenCode's configuration only: other agents read their files of the project",
}
"""Variable that clients set -> its effect here, if that is less than in OpenCode."""

Options = argparse.Namespace


@dataclass(frozen=True, slots=True)
class Command:
    """A command that this server implements. `add` declares its options; `run` executes it and returns the exit code."""

    words: tuple[str, ...]
    add: Callable[[argparse.ArgumentParser], object]
    run: Callable[[Options], int]


def main(argv: Sequence[str] | None = None) -> None:
    """Run an alias with `NAME ARGUMENTS...`, and exit with its code."""
    name, *arguments = sys.argv[1:] if argv is None else argv
    try:
        code = call(name, arguments)
    except ShimError as error:
        sys.stderr.write(f"{name} (opencode-shim): {error}\n")
        code = 1
    except BrokenPipeError:
        code = 1
    sys.exit(code)


def call(name: str, arguments: Sequence[str]) -> int:
    """Run `opencode ARGUMENTS` and return its exit code. Raises ShimError with a sentence for the person."""
    if name not in NAMES:
        raise ShimError(f"An alias is called {' or '.join(NAMES)}, not {name}.")
    if arguments and arguments[0] in ("--version", "-v"):
        sys.stdout.write(f"{version(name)}\n")
        return 0
    if arguments and arguments[0] in ("--help", "-h"):
        sys.stdout.write(help_text(name))
        return 0
    command = next((entry for entry in COMMANDS if tuple(arguments[: len(entry.words)]) == entry.words), None)
    if command is None and (not arguments or arguments[0].startswith("-") or Path(arguments[0]).is_dir()):
        command = TUI
    if command is None:
        return hand_over(name, arguments)
    parser = argparse.ArgumentParser(prog=f"{name} {' '.join(command.words)}", allow_abbrev=False)
    _add_common(parser)
    command.add(parser)
    options, unknown = parser.parse_known_intermixed_args(arguments[len(command.words) :])
    _say_what_is_ignored(name, options, [entry for entry in unknown if entry.startswith("-")])
    return command.run(options)


def version(name: str) -> str:
    """Return the version of OpenCode whose wire the server speaks. Clients compare it with their own."""
    if name == "opencode2":
        from shim.faces.opencode2._generated.operations import OPENCODE2_VERSION

        return OPENCODE2_VERSION
    from shim.faces.opencode1._generated.operations import OPENCODE_VERSION

    return OPENCODE_VERSION


PACKAGES = {"opencode": "opencode-ai", "opencode2": "@opencode/cli"}
"""Name of a program of OpenCode -> the npm package that has it."""


def help_text(name: str) -> str:
    """Return the text of `--help`: the commands that this server implements."""
    lines = "\n".join(f"  {name} {' '.join(command.words)}" for command in COMMANDS)
    return (
        f"opencode-shim under the name {name}: OpenCode's server with other agents behind it.\n\n{lines}\n"
        f"\nA real {name} on PATH runs the other commands. `opencode-shim --help` shows this server's own.\n"
    )


def hand_over(name: str, arguments: Sequence[str]) -> int:
    """Replace this process with the real program of this name. Raises ShimError if there is none."""
    from shim.processes import child_process
    from shim.processes.child_environment import OWN_PASSWORDS, child_environment

    real = find_program(name, os.environ.get("PATH", os.defpath))
    if real is None:
        package = PACKAGES.get(name, PACKAGES["opencode"])
        raise ShimError(
            f"Only OpenCode itself has the command `{' '.join(arguments)}`, and there is no real {name} on PATH."
            f" Install OpenCode (npm install -g {package}), or use a command of this server: {name} --help."
        )
    credentials = {key: os.environ[key] for key in (*OWN_PASSWORDS, "OPENCODE_SERVER_USERNAME") if key in os.environ}
    try:
        child_process.replace([real, *arguments], environment=child_environment(os.environ, credentials))
    except OSError as error:
        raise ShimError(f"Cannot start {real}: {error.strerror}.") from error


def _say_what_is_ignored(name: str, options: Options, unknown: Sequence[str]) -> None:
    reasons = {f"--{key.replace('_', '-')}": why for key, why in IGNORED_OPTIONS.items() if getattr(options, key, None)}
    reasons |= {option.partition("=")[0]: f"this server does not know it (it is OpenCode {version(name)})" for option in unknown}
    for option, why in reasons.items():
        sys.stderr.write(f"{name} (opencode-shim): {option} is ignored: {why}.\n")
    for variable, effect in VARIABLE_NOTES.items():
        if os.environ.get(variable):
            sys.stderr.write(f"{name} (opencode-shim): {variable} {effect}.\n")


# --- options ---------------------------------------------------------------------------------------------


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--print-logs", action="store_true", help="write the log to stderr, not to the file")
    parser.add_argument("--log-level", metavar="LEVEL", help="DEBUG, INFO, WARN or ERROR")
    parser.add_argument("--pure", action="store_true", help=argparse.SUPPRESS)


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, help="port to listen on; without it 4096, or a free one if that is taken")
    parser.add_argument("--hostname", help="address to listen on")
    parser.add_argument("--mdns", action="store_const", const=True, help="announce the server on the local network")
    parser.add_argument("--mdns-domain", help="host name to announce")
    parser.add_argument("--cors", nargs="*", action="extend", default=[], help="origins that browsers may call from")
    parser.add_argument("--stdio", action="store_true", help='print {"url": ...} as the first line; stop at the end of stdin')


def _add_server(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that need a server: a running one, or one that starts for the command."""
    parser.add_argument("--attach", "--server", metavar="URL", help="a server that runs already")
    parser.add_argument("-u", "--username", help="user of that server")
    parser.add_argument("-p", "--password", help="password of that server")
    parser.add_argument("--dir", help="directory to work in")


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_server(parser)
    parser.add_argument("message", nargs="*")
    parser.add_argument("--command", help="command to run; the message is its arguments")
    parser.add_argument("-c", "--continue", dest="last", action="store_true", help="continue the last session")
    parser.add_argument("-s", "--session", help="session to continue")
    parser.add_argument("--fork", action="store_true", help="fork the session before")
    parser.add_argument("--share", action="store_true", help="share the session")
    parser.add_argument("-m", "--model", help="PROVIDER/MODEL")
    parser.add_argument("--agent")
    parser.add_argument("--variant")
    parser.add_argument("--format", choices=("default", "json"), default="default")
    parser.add_argument("-f", "--file", nargs="*", action="extend", default=[], help="files to attach")
    parser.add_argument("--title")
    parser.add_argument("--port", type=int, help="ignored where a server runs")
    parser.add_argument("--thinking", action="store_true", help="show reasoning too")
    parser.add_argument("-i", "--interactive", action="store_true")
    parser.add_argument("--auto", action="store_true", help="allow what is asked for")


def _add_api(parser: argparse.ArgumentParser) -> None:
    _add_server(parser)
    parser.add_argument("method")
    parser.add_argument("path")
    parser.add_argument("--data", help="body, as JSON")
    parser.add_argument("--param", action="append", default=[], metavar="KEY=VALUE", help="part of the query")


def _add_session_list(parser: argparse.ArgumentParser) -> None:
    _add_server(parser)
    parser.add_argument("-n", "--max-count", type=int)
    parser.add_argument("--format", choices=("table", "json"), default="table")


def _add_export(parser: argparse.ArgumentParser) -> None:
    _add_server(parser)
    parser.add_argument("session", nargs="?")
    parser.add_argument("--sanitize", action="store_true")


def _add_import(parser: argparse.ArgumentParser) -> None:
    _add_server(parser)
    parser.add_argument("file")


def _add_models(parser: argparse.ArgumentParser) -> None:
    _add_server(parser)
    parser.add_argument("provider", nargs="?")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--refresh", action="store_true", help=argparse.SUPPRESS)


# --- commands --------------------------------------------------------------------------------------------


def _add_tui(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", nargs="?", help="directory to work in")
    parser.add_argument("-c", "--continue", dest="last", action="store_true", help="continue the last session")
    parser.add_argument("-s", "--session", help="session to continue")


def _late(module: str, work: str, **more: Any) -> Callable[[Options], int]:
    """Return a function of a module of `shim.cli`, which is imported late: most calls need little of it."""

    def run(options: Options) -> int:
        with quick_imports():
            job = importlib.import_module(f"shim.cli.{module}")
        return getattr(job, work)(options, **more)

    return run


COMMANDS: tuple[Command, ...] = (
    Command(("serve",), _add_serve, _late("serve_command", "serve_as_opencode")),
    Command(("web",), _add_serve, _late("serve_command", "serve_as_opencode", page=True)),
    Command(("run",), _add_run, _late("opencode_run", "run")),
    Command(("api",), _add_api, _late("opencode_client", "api")),
    Command(("session", "list"), _add_session_list, _late("opencode_client", "session_list")),
    Command(("export",), _add_export, _late("opencode_client", "export")),
    Command(("import",), _add_import, _late("opencode_client", "import_")),
    Command(("models",), _add_models, _late("opencode_client", "models")),
    Command(("agent", "list"), _add_server, _late("opencode_client", "agent_list")),
)
"""The commands of this server, in the order of the help. `attach` is missing: it opens the TUI of the real program."""

TUI = Command((), _add_tui, _late("serve_command", "tui_as_opencode"))
"""`opencode [PROJECT]`: opens the real program's TUI on this server."""

if __name__ == "__main__":
    main()
