"""`opencode-shim service`: installs and controls the server as a service of this user, by systemd or launchd.

    <config>/opencode-shim/service.env   PATH and similar variables, written by `install`
    <config>/opencode-shim/keys.env      keys, written by the person; `install` creates it empty

The tables `SYSTEMD` and `LAUNCHD` hold the command lines of each action.
"""

from __future__ import annotations

import os
import plistlib
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shim.cli import env_file, screen
from shim.lib.errors import ShimError
from shim.lib.settings import Settings, config_files
from shim.processes import child_process
from shim.processes.child_environment import child_environment

# --- files of a service -----------------------------------------------------------------------------------------

NAME = "opencode-shim"
LABEL = "opencode-shim.server"
STOP_S = 20
"""Seconds for the server (5 s) and its agents to end before the manager kills the rest."""
RESTART_S = 2
"""Seconds between a failure and the next start."""
BURST, BURST_S = 10, 300
"""The manager gives up after so many starts within so many seconds."""
OPEN_FILES = 65_536

KILL = """# The server gets the signal and ends its agents itself; what is left after the time is killed.
KillMode=mixed"""
KILL_BUT_HOLDERS = """# Holders keep agents over a restart or a crash. A stop is a Ctrl-C for the server, which ends its agents.
KillMode=process
KillSignal=SIGINT
RestartKillSignal=SIGTERM"""
HARDENING = (
    ("NoNewPrivileges=yes", "no sudo, no other setuid program"),
    ("RestrictSUIDSGID=yes", "no new setuid files"),
    ("LockPersonality=yes", "no old ABIs"),
    ("RestrictRealtime=yes", "no realtime scheduling"),
    ("SystemCallArchitectures=native", "no 32-bit system calls"),
)
"""Option, and what it forbids to agents.

These options are missing, since they break agents: MemoryDenyWriteExecute (Node compiles at run time), RestrictNamespaces and
SystemCallFilter (sandboxes of Claude Code and Codex), ProtectHome, PrivateTmp, ProtectSystem.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The service to install. `host` and `port` are those of the socket; `files` are environment files that may be absent."""

    argv: tuple[str, ...]
    files: tuple[Path, ...]
    home: Path
    host: str = "127.0.0.1"
    port: int = 4096
    harden: bool = False
    outlive: bool = False
    """Whether turns go on when the server restarts."""
    log: Path = Path("/dev/null")
    """File to which launchd writes the output. systemd uses its journal."""

    @property
    def command(self) -> tuple[str, ...]:
        return (*self.argv, "serve", *(word for file in self.files for word in ("--env-file", str(file))))


def service_unit(plan: Plan) -> str:
    """Return the text of `opencode-shim.service` for a user's systemd."""
    hardening = "".join(f"# {why}\n{option}\n" for option, why in HARDENING) if plan.harden else ""
    return f"""# Written by `opencode-shim service install`, which overwrites it; `systemctl --user edit {NAME}` adds to it.
[Unit]
Description=opencode-shim: OpenCode's API in front of coding agents
StartLimitIntervalSec={BURST_S}
StartLimitBurst={BURST}

[Service]
Type=notify
NotifyAccess=main
ExecStart={_quote(plan.command)}
ExecReload=/bin/kill -HUP $MAINPID
WorkingDirectory={_escape(str(plan.home))}
Restart=on-failure
RestartSec={RESTART_S}
{KILL_BUT_HOLDERS if plan.outlive else KILL}
TimeoutStopSec={STOP_S}
LimitNOFILE={OPEN_FILES}
LimitCORE=0
# An agent that takes all memory ends, the server stays.
OOMPolicy=continue
{hardening}
[Install]
WantedBy=default.target
"""


def socket_unit(plan: Plan) -> str:
    """Return the text of `opencode-shim.socket`. With it the first client starts the service."""
    host = "127.0.0.1" if plan.host == "localhost" else f"[{plan.host}]" if ":" in plan.host else plan.host
    return f"""# Written by `opencode-shim service install`.
[Unit]
Description=opencode-shim: the address that clients connect to

[Socket]
ListenStream={host}:{plan.port}

[Install]
WantedBy=sockets.target
"""


def property_list(plan: Plan) -> str:
    """Return the text of `opencode-shim.server.plist` for launchd."""
    content = {
        "Label": LABEL,
        "ProgramArguments": list(plan.command),
        "WorkingDirectory": str(plan.home),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_S,
        "ExitTimeOut": STOP_S,
        "ProcessType": "Interactive",
        "AbandonProcessGroup": plan.outlive,  # else launchd kills the server's group when it has died
        "StandardOutPath": str(plan.log),
        "StandardErrorPath": str(plan.log),
        "SoftResourceLimits": {"NumberOfFiles": OPEN_FILES, "Core": 0},
    }
    return plistlib.dumps(content).decode()


def _escape(text: str) -> str:
    """Escape `%` and `$`, which systemd would expand."""
    return text.replace("%", "%%").replace("$", "$$")


def _quote(argv: Sequence[str]) -> str:
    """Return a command line in the syntax of systemd."""
    return " ".join(f'"{_escape(word).replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"' for word in argv)


# --- `opencode-shim service` ----------------------------------------------------------------------------------

Action = Literal["start", "stop", "restart", "status", "logs"]
ASK_S = 60.0
"""Timeout in seconds of one command of the service manager. A stop may take STOP_S."""
TEMPORARY = "/archive-v"
"""Part of the path of an installation by uvx, which is temporary."""
SERVICE, SOCKET = f"{NAME}.service", f"{NAME}.socket"
USER = ("systemctl", "--user")

NO_BUS = (
    "systemd has no session for this user here ({reason}), so it can run no service: in a container, after `su`, or without a"
    " login. Use `opencode-shim serve`, or log in as this user (`ssh`, `machinectl shell`) and try again."
)

SYSTEMD: Mapping[Action, tuple[tuple[str, ...], ...]] = {
    "start": ((*USER, "start", SOCKET, SERVICE),),
    "stop": ((*USER, "stop", SOCKET, SERVICE),),
    "restart": ((*USER, "restart", SERVICE),),
    "status": ((*USER, "status", "--no-pager", "--lines=5", SERVICE, SOCKET),),
    "logs": (("journalctl", "--user-unit", NAME, "--no-pager", "--lines=200"),),
}
LAUNCHD: Mapping[Action, tuple[tuple[str, ...], ...]] = {
    "start": (("launchctl", "kickstart", "{target}"),),
    "stop": (("launchctl", "kill", "SIGINT", "{target}"),),  # it exits with 0, so `KeepAlive` does not start it again
    "restart": (("launchctl", "kickstart", "-k", "{target}"),),
    "status": (("launchctl", "print", "{target}"),),
    "logs": (("tail", "-n", "200", "{log}"),),
}


class ServiceError(ShimError):
    """The service manager failed, or there is none. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Manager:
    """A service manager of this user: its kind, the folder of its unit files, and the server's log."""

    kind: Literal["systemd", "launchd"]
    folder: Path
    log: Path

    def files(self, plan: Plan) -> dict[Path, str]:
        """Return file -> text that `install` writes."""
        if self.kind == "launchd":
            return {self.folder / f"{LABEL}.plist": property_list(plan)}
        return {self.folder / SERVICE: service_unit(plan), self.folder / SOCKET: socket_unit(plan)}

    def require_session(self) -> None:
        """Raise ServiceError unless the manager works for this user. It is the first step, before any file is written."""
        if self.kind == "launchd":
            return
        ok, text = _ask((*USER, "show-environment"))
        if not ok:
            raise ServiceError(NO_BUS.format(reason=text.strip().partition("\n")[0] or "systemctl does not answer"))

    def commands(self, action: Action) -> list[tuple[str, ...]]:
        table = SYSTEMD if self.kind == "systemd" else LAUNCHD
        return [self._fill_names(argv) for argv in table[action]]

    def after_install(self, *, on_demand: bool) -> list[tuple[str, ...]]:
        """Return the command lines that start the written service."""
        if self.kind == "launchd":
            plist = str(self.folder / f"{LABEL}.plist")
            return [("launchctl", "bootstrap", f"gui/{os.getuid()}", plist)]
        enable = [(*USER, "enable", SOCKET)] if on_demand else [(*USER, "enable", SOCKET, SERVICE)]
        started = (SOCKET,) if on_demand else (SOCKET, SERVICE)
        # Both are stopped before either starts: a socket does not start at another address while the service runs.
        return [(*USER, "daemon-reload"), *enable, (*USER, "stop", SOCKET, SERVICE), (*USER, "start", *started)]

    def before_removal(self) -> list[tuple[str, ...]]:
        """Return the command lines that stop and unregister the service."""
        if self.kind == "launchd":
            return [self._fill_names(("launchctl", "bootout", "{target}"))]
        return [(*USER, "disable", "--now", SOCKET, SERVICE)]

    def after_removal(self) -> list[tuple[str, ...]]:
        """Return the command lines that make the manager read its folder again."""
        return [] if self.kind == "launchd" else [(*USER, "daemon-reload")]

    def _fill_names(self, argv: Sequence[str]) -> tuple[str, ...]:
        names = {"{target}": f"gui/{os.getuid()}/{LABEL}", "{log}": str(self.log)}
        return tuple(names.get(word, word) for word in argv)


def manager(settings: Settings, platform: str = sys.platform) -> Manager:
    """Return the service manager of this machine. Raises ServiceError if there is none (a container, Windows)."""
    log = settings.data_dir / "service.log"
    if platform == "darwin":
        return Manager("launchd", Path.home() / "Library" / "LaunchAgents", log)
    if shutil.which("systemctl") is None:
        raise ServiceError(
            "There is no systemd here, so there is no service to install. In a container, run `opencode-shim serve` as its"
            " command (docs/install.md); else start it from your own init system."
        )
    return Manager("systemd", _config_folder().parent / "systemd" / "user", log)


def install(settings: Settings, out: screen.Console, *, on_demand: bool, harden: bool, linger: bool) -> int:
    """Write the units and the environment, start the service, and return the exit code. Raises ServiceError."""
    service_manager = manager(settings)
    if on_demand and service_manager.kind == "launchd":
        raise ServiceError("--on-demand needs systemd's sockets. On macOS the service starts when you log in: leave it out.")
    if settings.port == 0:
        raise ServiceError("A service needs a port that clients know: opencode-shim config set port 4096")
    service_manager.require_session()
    environment, keys = _config_folder() / "service.env", _config_folder() / "keys.env"
    _write(
        environment,
        env_file.text_of(env_file.service_environment(os.environ), "Written by `opencode-shim service install`: run it again."),
    )
    if not keys.exists():
        _write(keys, "# NAME=VALUE lines for the service: API keys, OPENCODE_SERVER_PASSWORD. Only you can read this file.\n")
    plan = Plan(
        (program(),),
        (environment, keys),
        Path.home(),
        settings.hostname,
        settings.port,
        harden=harden,
        outlive=settings.outlive,
        log=service_manager.log,
    )
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, text in service_manager.files(plan).items():
        _write(path, text, 0o644)
        screen.line(out, f"wrote    {path}")
    screen.line(out, f"wrote    {environment}")
    missing = [name for name in env_file.keys(os.environ) if name not in env_file.read(keys)]
    if missing:
        screen.line(out, f"note     keys are not copied: {', '.join(missing)}. Write NAME=VALUE lines into {keys}", "yellow")
    for failure in _failures(service_manager.after_install(on_demand=on_demand)):
        raise ServiceError(failure)
    if linger and service_manager.kind == "systemd" and not _ask(("loginctl", "enable-linger"))[0]:
        note = "it starts when you log in. For a start with the machine: sudo loginctl enable-linger $USER"
        screen.line(out, f"note     {note}", "yellow")
    scheme = "http" if settings.tls_cert is None else "https"
    started = "starts with its first client" if on_demand else "runs"
    screen.line(out, f"service  {started}, at {scheme}://{settings.hostname}:{settings.port}", "bold")
    return 0


def uninstall(settings: Settings, out: screen.Console) -> int:
    """Stop the service, remove what `install` wrote, and return the exit code. Keys, settings and sessions stay.

    The files go also where the service manager does not answer. Raises ServiceError if there are none.
    """
    service_manager = manager(settings)
    environment = _config_folder() / "service.env"
    paths = [path for path in (*service_manager.files(Plan((), (), Path.home())), environment) if path.exists()]
    if not paths:
        raise ServiceError("The service is not installed.")
    for argv in service_manager.commands("stop"):  # which ends agents; `bootout` would be a SIGTERM. It need not run
        _ask(argv)
    failures = [*_failures(service_manager.before_removal())]
    for path in paths:
        path.unlink()
        screen.line(out, f"removed  {path}")
    failures += _failures(service_manager.after_removal())
    screen.line(out, f"kept     {_config_folder()} and {settings.data_dir}")
    for failure in failures:
        screen.line(out, f"note     {failure}", "yellow")
    return 0


def act(settings: Settings, action: Action, *, follow: bool = False) -> int:
    """Run an action of the service manager in this terminal, and return its exit code. Raises ServiceError."""
    service_manager = _manager_of_service(settings)
    code = 0
    for argv in service_manager.commands(action):
        words = (*argv, "-f") if follow else argv
        try:
            code = child_process.foreground(words, environment=child_environment(os.environ, {})).wait() or code
        except OSError as error:
            raise ServiceError(f"Cannot start {words[0]}: {error.strerror}.") from error
        except KeyboardInterrupt:  # how `logs -f` ends
            return 0
    return code


def _manager_of_service(settings: Settings) -> Manager:
    """The manager of the installed service. Raises ServiceError."""
    service_manager = manager(settings)
    if not any(path.exists() for path in service_manager.files(Plan((), (), Path.home()))):
        raise ServiceError("The service is not installed: opencode-shim service install")
    return service_manager


def upgrade(settings: Settings) -> int:
    """Install the newest version with the program that has installed this one, and restart the service. Raises ServiceError."""
    _manager_of_service(settings)
    argv = upgrade_command(Path(sys.prefix))
    try:
        code = child_process.foreground(argv, environment=child_environment(os.environ, {})).wait()
    except OSError as error:
        raise ServiceError(f"Cannot start {argv[0]}: {error.strerror}. The service goes on as it was.") from error
    if code:
        raise ServiceError(f"`{' '.join(argv)}` failed with {code}. The service goes on as it was.")
    return act(settings, "restart")


def upgrade_command(prefix: Path) -> tuple[str, ...]:
    """The command that upgrades the installation in a folder: by uv or pipx, which have made it, or by pip."""
    if (prefix / "uv-receipt.toml").exists():
        return ("uv", "tool", "upgrade", NAME)
    if (prefix / "pipx_metadata.json").exists():
        return ("pipx", "upgrade", NAME)
    return (str(prefix / "bin" / "python"), "-m", "pip", "install", "--upgrade", NAME)


def state(settings: Settings) -> str:
    """Return `active`, `on demand`, `failed` or `inactive`, or "" if there is no service or no service manager."""
    try:
        service_manager = manager(settings)
    except ServiceError:
        return ""
    if not any(path.exists() for path in service_manager.files(Plan((), (), Path.home()))):
        return ""
    if service_manager.kind == "launchd":
        loaded, text = _ask(service_manager.commands("status")[0])
        return "active" if loaded and "state = running" in text else "inactive"
    service = _ask((*USER, "is-active", SERVICE))[1].strip()
    waiting = _ask((*USER, "is-active", SOCKET))[1].strip() == "active"
    return "on demand" if service == "inactive" and waiting else service


def program() -> str:
    """Return the path of this `opencode-shim`. Raises ServiceError for a temporary installation."""
    place = Path(sysconfig.get_path("scripts")) / NAME
    if not place.exists():
        place = Path(shutil.which(NAME) or place)
    if not place.exists() or TEMPORARY in str(place):
        raise ServiceError(
            f"{place} is temporary, so a service could not start it later. Install it: uv tool install opencode-shim"
        )
    return str(place)


def _config_folder() -> Path:
    return config_files()[0].parent


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ServiceError(f"Cannot write {path}: {error.strerror}.") from error


def _failures(commands: Sequence[Sequence[str]]) -> Iterator[str]:
    """Run commands, and yield a sentence for each that fails."""
    for argv in commands:
        ok, text = _ask(argv)
        if not ok:
            yield f"`{' '.join(argv)}` failed: {text.strip() or 'it did not start or took too long'}"


def _ask(argv: Sequence[str]) -> tuple[bool, str]:
    """Run a command and return whether it succeeded, and its output."""
    result = child_process.ask(argv, environment=child_environment(os.environ, {}), timeout_s=ASK_S)
    return (False, "") if result is None else (result.returncode == 0, result.stdout + result.stderr)
