"""Starts OpenCode's own clients: the TUI in this terminal, the web UI in the browser."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout

from shim.cli.local_server import authorization
from shim.lib.errors import AgentNotFound, ShimError
from shim.lib.settings import Settings
from shim.processes import child_process
from shim.processes.child_environment import child_environment
from shim.processes.hidden_opencode import INSTALL_HINT, find_binary
from universal.lib.jsonvalue import arr, obj, text

TERMINATE_S = 2.0
"""Seconds that the TUI gets to restore the terminal before it is killed."""
LOOK_S = 5.0
"""Timeout in seconds of the request that checks a server named by the person."""
OPEN_S = 10.0
"""Timeout in seconds of the program that opens a page. Python itself waits 5 s for a browser to fail."""
BROWSE = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"
UNAUTHORIZED = 401
NO_ENTRY = "The server at {url} needs a password, or a different one. Set it in OPENCODE_SERVER_PASSWORD."
VERSION_S = 20.0
"""Timeout in seconds of `opencode --version`. A first start on a busy machine took 9 s."""
GENERATION = re.compile(r"^v?(\d+)\.", re.MULTILINE)
SECOND = 2
"""Major version of the OpenCode that speaks only `/api/*` and whose TUI takes a server by `--server`."""


def generation(binary: str) -> int:
    """Return OpenCode's major version, 1 or 2, of a program. It is 1 if the program fails or prints no version."""
    answer = child_process.ask([binary, "--version"], environment=child_environment(os.environ, {}), timeout_s=VERSION_S)
    if answer is None:
        return 1  # the start of the TUI then fails too, and tells the person why
    match = GENERATION.search(answer.stdout.strip())
    return SECOND if match is not None and int(match[1]) >= SECOND else 1


def attach_argv(
    url: str, directory: Path, binary: str = "opencode", more: Sequence[str] = (), *, second: bool = False
) -> list[str]:
    """Return the command that opens the TUI on a server.

    `more` are further options of the TUI. `second` means OpenCode 2.x: it has no option for the directory and works in the one
    that it is started in.
    """
    if second:
        return [binary, "--server", url, *more]
    return [binary, "attach", url, "--dir", str(directory), *more]


def attach_line(url: str, directory: Path) -> str:
    """Return the command of `attach_argv` as one line for a shell."""
    return shlex.join(attach_argv(url, directory))


def find_opencode() -> str:
    """Return the path of the `opencode` program. Raises AgentNotFound, which says how to install it."""
    try:
        return find_binary(os.environ)
    except AgentNotFound as error:
        if "SHIM_OPENCODE_BIN is" in str(error):
            raise
        raise AgentNotFound(f"The TUI is the program `opencode`, which is not on PATH. {INSTALL_HINT}") from error


def credentials(settings: Settings) -> dict[str, str]:
    """Return the variables from which OpenCode's clients take user and password, or {} without a password.

    They are not passed as flags, since other users can read command lines.
    """
    if settings.password is None:
        return {}
    password = settings.password.get_secret_value()
    opencode1 = {"OPENCODE_SERVER_USERNAME": settings.username, "OPENCODE_SERVER_PASSWORD": password}
    return {**opencode1, "OPENCODE_PASSWORD": password}


async def run_tui(argv: list[str], more_environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> int:
    """Run the TUI in our terminal and return its exit code. A cancellation ends the TUI first. Raises ShimError."""
    try:
        process = child_process.foreground(argv, environment=child_environment(os.environ, more_environment or {}), cwd=cwd)
    except OSError as error:
        raise ShimError(f"Cannot start {argv[0]}: {error.strerror}.") from error
    try:
        return await asyncio.to_thread(process.wait)
    finally:
        if process.poll() is None:
            process.terminate()
            await asyncio.to_thread(child_process.reap, process, TERMINATE_S)


def page_url(url: str, directory: Path) -> str:
    """Return the web UI's page that begins a session in a directory. Source: the router of the UI 1.18.33."""
    name = base64.urlsafe_b64encode(str(directory).encode()).decode().rstrip("=")
    return f"{url.rstrip('/')}/{name}/session"


def open_browser(page: str) -> bool:
    """Open the page in a browser and return whether that worked. On Linux this needs a display."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    # In a process of its own: the module `webbrowser` passes its whole environment to the browser, including the password.
    answer = child_process.ask(
        [sys.executable, "-I", "-c", BROWSE, page], environment=child_environment(os.environ, {}), timeout_s=OPEN_S
    )
    return answer is not None and answer.returncode == 0


async def require_web_ui(url: str, settings: Settings) -> None:
    """Raise ShimError unless a server with a web UI answers at `url` and accepts our password."""
    timeout = ClientTimeout(total=LOOK_S)
    try:
        async with ClientSession(timeout=timeout, headers=authorization(settings)) as session, session.get(url) as answer:
            kind, status = answer.content_type, answer.status
    except (ClientError, TimeoutError, ValueError) as error:
        raise ShimError(
            f"No server answers at {url}: {error or 'no answer in time'}. Check the address, or leave it out to start a server."
        ) from error
    if status == UNAUTHORIZED:
        raise ShimError(NO_ENTRY.format(url=url))
    if kind != "text/html":
        raise ShimError(f"The server at {url} does not serve the web UI. Start it with `opencode-shim web` or SHIM_WEB_UI=true.")


# --- what clients have asked in vain -----------------------------------------------------------------------------

UNSERVED = ("/v1/x-unserved", "/global/health", "/api/info")
"""What clients asked in vain, and the versions of OpenCode's two wires."""


async def report_unserved(url: str, settings: Settings) -> list[str]:
    """Return the lines of a report: what the clients of the server at `url` asked that it does not have. Raises ShimError."""
    answers: list[dict[str, Any]] = []
    try:
        async with ClientSession(timeout=ClientTimeout(total=LOOK_S), headers=authorization(settings)) as session:
            for path in UNSERVED:
                async with session.get(f"{url.rstrip('/')}{path}") as answer:
                    if answer.status == UNAUTHORIZED:
                        raise ShimError(NO_ENTRY.format(url=url))
                    answer.raise_for_status()
                    answers.append(obj(await answer.json()))
    except (ClientError, TimeoutError, ValueError) as error:
        raise ShimError(f"No opencode-shim answers at {url}: {error or 'no answer in time'}. Check the address.") from error
    unserved, *wires = answers
    spoken = " and ".join(text(wire.get("version")) for wire in wires)
    lines = [f"opencode-shim {text(unserved.get('version'))}, which speaks OpenCode {spoken}"]
    client = ""
    for row in map(obj, arr(unserved.get("asked"))):
        if row.get("client") != client:
            client = text(row.get("client"))
            lines.append(f"client {client}")
        lines.append(f"{row.get('count'):>6}  {row.get('method')} {row.get('path')}  {row.get('status')}")
    return lines if client else [*lines, "No client has asked for anything that this server does not have."]
