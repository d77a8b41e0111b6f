"""The checks of `opencode-shim doctor` on the machine: server, port, service, holders, container, disk, clock and so on.

`examine` collects the facts. Each check is a pure function from its facts to a `Check`. None uses the internet.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

from shim.cli import screen, service
from shim.cli.local_server import running_server_url
from shim.cli.transfer import version_of
from shim.host.config.opencode_config import ConfigFiles, OpenCodeConfig, describe
from shim.lib.settings import Settings
from shim.lib.version import OLD_AFTER_DAYS, Build, build
from shim.processes.held_process import agents_of, holders
from shim.processes.sandbox import Tool, find_tool

Status = Literal["ok", "warning", "wrong"]

LOW_DISK_BYTES = 2**30
FULL_DISK_BYTES = 100 * 2**20
"""Free bytes below which SQLite may soon fail to write."""
CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
PORT_S = 1.0
"""Timeout in seconds of a connection to our own port."""
STYLES: Mapping[Status, str] = {"ok": "green", "warning": "yellow", "wrong": "bold red"}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `remedy` is one sentence, empty if there is nothing to do."""

    name: str
    status: Status
    text: str
    remedy: str = ""


def examine_machine(settings: Settings) -> list[Check]:
    """Return `doctor`'s checks of the machine and of the server on it."""
    url = running_server_url(settings)
    version = asyncio.run(version_of(settings, url)) if url else ""
    return examine(settings, build(), server=url, server_version=version, service=service.state(settings), now=now())


def examine(
    settings: Settings, build: Build, *, server: str | None, server_version: str, service: str, now: datetime
) -> list[Check]:
    """Run all checks. Blocks. `server` is the URL of the server on this data directory, `service` its state or ""."""
    config = ConfigFiles(Path.home(), os.environ, tuple(map(str, settings.roots)))
    held = holders(settings.data_dir / "held")
    return [
        check_server(server, server_version, build),
        check_port(settings, server, is_taken=_is_taken(settings.hostname, settings.port)),
        check_service(service, server),
        *check_holders({place: (is_live, agents_of(place)) for place, is_live in held.items()}, server),
        check_container(settings.data_dir, os.environ, os.geteuid(), inside=any(map(os.path.exists, CONTAINER_FILES))),
        check_disk(settings.data_dir, _free_bytes(settings.data_dir)),
        check_clock(now.date(), build),
        check_release(now.date(), build),
        check_rules(config.load(str(settings.directory)), settings.directory),
        check_sandbox(find_tool(os.environ.get("PATH", os.defpath))),
    ]


def check_sandbox(tool: Tool) -> Check:
    """Check what holds agents to rules that their protocol cannot hold (docs/sandbox.md)."""
    if tool.why:
        return Check("sandbox", "warning", "this machine can make none", tool.why)
    if tool.better:
        return Check("sandbox", "warning", f"{tool.kind} works. bubblewrap, which holds more, does not", tool.better)
    return Check("sandbox", "ok", f"{tool.kind} works ({tool.path})")


def check_rules(config: OpenCodeConfig, directory: Path) -> Check:
    """Check that all permission rules of the directory can be read."""
    if not config.has_unread_rules:
        return Check("rules", "ok", f"all permission rules of {directory} can be read")
    remedy = "Correct it. Until then everything that a permission rule could be about is asked there."
    return Check("rules", "wrong", "; ".join(describe(config.problems)), remedy)


def check_server(url: str | None, version: str, build: Build) -> Check:
    """Check whether a server runs and has this version."""
    if url is None:
        return Check("server", "ok", "none runs on this data directory")
    if version and version != build.version:
        remedy = "Restart it: opencode-shim service restart, or stop it and start it again."
        return Check("server", "warning", f"{url} runs {version}; installed is {build.version}", remedy)
    return Check("server", "ok", url)


def check_port(settings: Settings, server: str | None, *, is_taken: bool) -> Check:
    """Check that the configured port is free or belongs to our server."""
    place = f"{settings.hostname}:{settings.port}"
    if not is_taken or settings.port == 0:
        return Check("port", "ok", f"{place} is free")
    if server is not None and server.split("/")[2].endswith(f":{settings.port}"):
        return Check("port", "ok", f"{place} is this server's")
    remedy = "Stop what listens there, or choose another one: opencode-shim config set port 4097"
    return Check("port", "wrong" if server is None else "warning", f"{place} is taken by another program", remedy)


def check_service(state: str, server: str | None) -> Check:
    """Check that an installed service runs."""
    if not state:
        return Check("service", "ok", "not installed (`opencode-shim service install` installs it)")
    if state in ("active", "on demand"):
        return Check("service", "ok", state)
    remedy = "See why: opencode-shim service logs. Start it: opencode-shim service start"
    return Check("service", "wrong" if state == "failed" or server is None else "warning", state, remedy)


def check_holders(found: Mapping[Path, tuple[bool, Sequence[int]]], server: str | None) -> list[Check]:
    """Check that no holder of an agent was killed. Nothing without holders.

    In: folder -> whether its holder lives, and the agent's processes.
    """
    killed = [place.name for place, (is_live, _) in found.items() if not is_live]
    agents = [f"{place.name} (pid {pids[0] if pids else 'gone'})" for place, (is_live, pids) in found.items() if is_live]
    text = f"{len(agents)} agents outlive a server{': ' if agents else ''}{', '.join(agents)}"
    text += f"; without a holder: {', '.join(killed)}" if killed else ""
    remedy = "A restart of the server removes them." if server is not None else "The next start of the server removes them."
    return [Check("holders", "warning", text, remedy) if killed else Check("holders", "ok", text)] if found else []


def check_container(data_dir: Path, environ: Mapping[str, str], uid: int, *, inside: bool) -> Check:
    """Check, in a container, that HOME is writable, that the data outlives it, and that we are not root."""
    if not inside:
        return Check("container", "ok", "not in one")
    if not environ.get("HOME") or not os.access(environ["HOME"], os.W_OK):
        return Check("container", "wrong", "HOME is not writable, and agents keep their logins there", "Set HOME to a volume.")
    if not _is_mounted(data_dir):
        remedy = f"Mount a volume at {data_dir} or above it, else sessions end with the container."
        return Check("container", "warning", f"{data_dir} is on no volume", remedy)
    if uid == 0:
        return Check(
            "container", "warning", "the server runs as root", "Run it as another user: agents have all rights of that user."
        )
    return Check("container", "ok", f"user {uid}, data on a volume")


def check_disk(data_dir: Path, free: int) -> Check:
    """Check that there is space for journals. `free` is in bytes."""
    text = f"{free / 2**30:.1f} GiB free for {data_dir}"
    if free < FULL_DISK_BYTES:
        return Check("disk", "wrong", text, "Free some space: the server will soon fail to write sessions.")
    if free < LOW_DISK_BYTES:
        return Check("disk", "warning", text, "Free some space.")
    return Check("disk", "ok", text)


def check_clock(today: date, build: Build) -> Check:
    """Check that the clock is not before the day of our own release."""
    newest = max((release.day for release in build.releases), default=None)
    if newest is not None and today < newest:
        remedy = "Set the clock: pairing tokens, certificates and the agents' logins depend on it."
        return Check("clock", "wrong", f"it says {today}, but this version was released on {newest}", remedy)
    return Check("clock", "ok", str(today))


def check_release(today: date, build: Build) -> Check:
    """Check the age of this release. The package knows only the releases in its own changelog."""
    age = build.age_days(today)
    if age is None:
        return Check("release", "ok", f"{build}, not a release" if build.commit else str(build))
    newest = build.releases[0].version
    if age > OLD_AFTER_DAYS:
        return Check("release", "warning", f"{build} is {age} days old", "Look for a newer one: uv tool upgrade opencode-shim")
    return Check("release", "ok", f"{build}, released {age} days ago; the newest that it knows is {newest}")


def show(out: screen.Console, checks: Sequence[Check]) -> None:
    """Print a line for each check and its remedy below it."""
    for check in checks:
        mark = "" if check.status == "ok" else f"{'problem' if check.status == 'wrong' else 'warning'}: "
        screen.line(out, f"{check.name + ':':<10} {mark}{check.text}", None if check.status == "ok" else STYLES[check.status])
        if check.remedy:
            screen.line(out, f"{'':<10} {check.remedy}")


def as_json(checks: Sequence[Check]) -> str:
    """Return a JSON list of objects with the fields of `Check`."""
    return json.dumps([asdict(check) for check in checks], indent=2)


def now() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)  # noqa: TID251 - `check_clock` checks the machine's own clock


def _is_taken(hostname: str, port: int) -> bool:
    if port == 0:
        return False
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(hostname, hostname)  # noqa: S104 - asked, not listened on
    try:
        with socket.create_connection((host, port), timeout=PORT_S):
            return True
    except OSError:
        return False


def _free_bytes(data_dir: Path) -> int:
    """Return the free bytes of the file system that holds the directory, or will hold it."""
    place = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    return shutil.disk_usage(place).free


def _is_mounted(path: Path) -> bool:
    """Return True if the path lies on a mount other than the container's root."""
    return any(os.path.ismount(place) for place in (path, *path.parents) if place != Path("/"))
