"""Renders the files of a service: systemd's units and launchd's property list. Pure.

Agents must work as in a terminal: they use sudo, Docker, their own sandboxes (namespaces, seccomp), JIT compilers, /tmp and
the whole home. `--harden` forbids sudo. No option that would break the others is ever set.
"""

from __future__ import annotations

import plistlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NAME = "opencode-shim"
LABEL = "opencode-shim.server"
"""Name of the service for launchd."""
STOP_S = 20
"""Seconds for the server (5 s) and its agents to end before the manager kills the rest."""
RESTART_S = 2
"""Seconds between a failure and the next start."""
BURST, BURST_S = 10, 300
"""The manager gives up after so many starts within so many seconds."""
OPEN_FILES = 65_536

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
    log: Path = Path("/dev/null")
    """File to which launchd writes the output. systemd uses its journal."""

    @property
    def command(self) -> tuple[str, ...]:
        """Return the whole command line."""
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
# The server gets the signal and ends its agents itself; what is left after the time is killed.
KillMode=mixed
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
