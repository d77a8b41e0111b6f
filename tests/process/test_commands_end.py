"""Each command of `opencode-shim` ends within its bound and leaves no process, though the agents on PATH never answer."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from shim.cli.commands import cli
from tests.process.support import is_live, pids
from tests.process.test_serve import environment

RUN = "import sys; from shim.cli import main; sys.exit(main())"
DEAF = """#!/bin/sh
trap '' TERM INT HUP
sleep 600 &
while :; do sleep 600; done
"""
"""An agent that answers nothing, obeys no signal but SIGKILL, and has a child that holds its pipes."""
NOWHERE = "http://127.0.0.1:9"
ENDLESS = {"serve": ("--port", "0"), "web": ("--port", "0", "--no-open"), "tui": ()}
"""Commands that run until a signal ends them, with their arguments."""
START_S, STOP_S = 20, 15
BOUNDED: dict[str, tuple[str, float]] = {
    "agents": ("", 50),
    "agents add": ("nosuch", 20),
    "doctor": ("", 150),
    "completion": ("bash", 10),
    "health": ("", 10),
    "trust": ("--list", 10),
    "record": ("claude --out made --scene text", 90),
    "export": ("", 20),
    "sessions": ("mock", 20),
    "mcp": (f"--url {NOWHERE}", 20),
    "acp": (NOWHERE, 20),
    "import": ("nosuch.json", 10),
    "backup": ("made.tar.gz", 10),
    "restore": ("nosuch.tar.gz", 10),
    "config": ("", 10),
    "config set": ("port 4097", 10),
    "config unset": ("port", 10),
    "service install": ("", 20),
    "service uninstall": ("", 20),
    "service start": ("", 20),
    "service stop": ("", 20),
    "service restart": ("", 20),
    "service upgrade": ("", 20),
    "stop": ("", 20),
    "restart": ("", 20),
    "service status": ("", 20),
    "service logs": ("", 20),
    "cluster import": ("--cluster nats://127.0.0.1:9", 30),
    "cluster export": ("--cluster nats://127.0.0.1:9", 30),
    "prune": (f"--older-than 30 --dry-run --url {NOWHERE}", 20),
    "cluster prune": ("--cluster nats://127.0.0.1:9 --older-than 30", 30),
    "cluster nodes": (f"--url {NOWHERE}", 20),
    "cluster cordon": (f"one --url {NOWHERE}", 20),
    "cluster uncordon": (f"one --url {NOWHERE}", 20),
    "cluster drain": (f"one --url {NOWHERE}", 20),
    "pair": (f"--url {NOWHERE}", 20),
    "pair list": (f"--url {NOWHERE}", 20),
    "pair revoke": (f"nosuch --url {NOWHERE}", 20),
    "people add": (f"vera --url {NOWHERE}", 20),
    "people change": (f"vera --url {NOWHERE}", 20),
    "people list": (f"--url {NOWHERE}", 20),
    "people remove": (f"vera --url {NOWHERE}", 20),
    "alias install": ("made", 10),
    "alias remove": ("made", 10),
}
"""Every other command: arguments, and the seconds that it may take."""


def commands(group: Any, path: str = "") -> Iterator[str]:
    """The names of all commands; of groups too that do something without a command."""
    for name, command in group.commands.items():
        whole = f"{path} {name}".strip()
        if hasattr(command, "commands"):
            yield from commands(command, whole)
        if not hasattr(command, "commands") or command.invoke_without_command:
            yield whole


class Run:
    """One command in a home of its own, whose PATH has agents that never answer."""

    def __init__(self, home: Path, command: str, arguments: str) -> None:
        self.token = secrets.token_hex(8)
        for name in ("claude", "opencode"):
            (home / "bin").mkdir(exist_ok=True)
            (home / "bin" / name).write_text(DEAF)
            (home / "bin" / name).chmod(0o755)
        env = environment(home, FAKE_TOKEN=self.token, PATH=f"{home / 'bin'}:/usr/bin:/bin")
        env.pop("SHIM_CLAUDE_BIN")
        self.log = (home / "log").open("w+")
        argv = [sys.executable, "-c", RUN, *command.split(), *arguments.split()]
        self.process = subprocess.Popen(
            argv, cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True
        )

    def left(self) -> list[int]:
        """The processes that it has started and that live, itself too."""
        found: list[int] = []
        for pid in pids():
            try:
                if self.token.encode() in Path(f"/proc/{pid}/environ").read_bytes() and is_live(pid):
                    found.append(pid)
            except OSError:
                continue
        return found

    def text(self) -> str:
        self.log.flush()
        return Path(self.log.name).read_text()

    def close(self) -> None:
        """Kill what is left, and fail if anything was."""
        end = time.monotonic() + 3
        while (left := self.left()) and time.monotonic() < end:
            os.sched_yield()
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[:200] for pid in left if is_live(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()
        assert not lines


def test_the_tables_have_every_command() -> None:
    assert set(commands(get_command(cli))) == {*ENDLESS, *BOUNDED}


@pytest.mark.slow
@pytest.mark.parametrize("command", BOUNDED)
def test_a_command_ends_within_its_bound_and_leaves_nothing(tmp_path: Path, command: str) -> None:
    arguments, bound_s = BOUNDED[command]
    run = Run(tmp_path, command, arguments)
    try:
        code = run.process.wait(bound_s)
        assert code in (0, 1), run.text()
        assert "Traceback" not in run.text(), run.text()
    finally:
        run.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", [*ENDLESS, "agents", "doctor", "record"])
def test_a_command_ends_on_a_signal_and_leaves_nothing(tmp_path: Path, command: str, number: signal.Signals) -> None:
    """In the first seconds too, while it asks the agents."""
    run = Run(tmp_path, command, " ".join(ENDLESS[command]) if command in ENDLESS else BOUNDED[command][0])
    try:
        end = time.monotonic() + START_S
        while len(run.left()) < 3 and run.process.poll() is None and time.monotonic() < end:
            os.sched_yield()
        run.process.send_signal(number)
        run.process.wait(STOP_S)
        assert "Traceback" not in run.text(), run.text()
    finally:
        run.close()
