"""The texts of a service: systemd's units and launchd's property list. Pure.

Chosen so that agents work as in a terminal: they use sudo, Docker, their own sandboxes (namespaces, seccomp), JIT compilers,
/tmp and all of the home. `--harden` adds what forbids the first of these; what would break the others is never set.
"""

from __future__ import annotations

import plistlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NAME = "opencode-shim"
LABEL = "opencode-shim.server"
"""launchd's name for it."""
STOP_S = 20
"""For the server (5 s) and its agents to end, before the manager kills what is left."""
RESTART_S = 2
BURST, BURST_S = 10, 300
"""After so many starts in so many seconds it is given up."""
OPEN_FILES = 65_536

HARDENING = (
    ("NoNewPrivileges=yes", "no sudo, no other setuid program"),
    ("RestrictSUIDSGID=yes", "no new setuid files"),
    ("LockPersonality=yes", "no old ABIs"),
    ("RestrictRealtime=yes", "no realtime scheduling"),
    ("SystemCallArchitectures=native", "no 32-bit system calls"),
)
"""Option -> what an agent can then no longer do. Not here, since they break agents: MemoryDenyWriteExecute (Node compiles at run
time), RestrictNamespaces and SystemCallFilter (sandboxes of Claude Code and Codex), ProtectHome, PrivateTmp, ProtectSystem."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the service runs. `host` and `port`: of the socket; `files`: environment files, which need not be there."""

    argv: tuple[str, ...]
    files: tuple[Path, ...]
    home: Path
    host: str = "127.0.0.1"
    port: int = 4096
    harden: bool = False
    log: Path = Path("/dev/null")
    """Where launchd sends output; systemd has the journal."""

    @property
    def command(self) -> tuple[str, ...]:
        """The whole command line."""
        return (*self.argv, "serve", *(word for file in self.files for word in ("--env-file", str(file))))


def service_unit(plan: Plan) -> str:
    """`opencode-shim.service` for a user's systemd."""
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
    """`opencode-shim.socket`: the first client starts the service."""
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
    """`opencode-shim.server.plist` for launchd."""
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
    """`%` and `$` mean something to systemd."""
    return text.replace("%", "%%").replace("$", "$$")


def _quote(argv: Sequence[str]) -> str:
    """A command line as systemd reads it."""
    return " ".join(f'"{_escape(word).replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"' for word in argv)
