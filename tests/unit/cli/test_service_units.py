"""The texts of services, read as their managers read them."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest

from shim.cli.service import HARDENING, Plan, property_list, service_unit, socket_unit

HOME = Path("/home/a b")
PLAN = Plan(("/opt/x y/opencode-shim",), (HOME / "service.env", HOME / "100%$.env"), HOME, "127.0.0.1", 4096, log=HOME / "log")


def options(unit: str) -> dict[str, str]:
    lines = (line.partition("=") for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    return {name: value for name, _, value in lines}


def test_a_command_line_is_quoted_for_systemd() -> None:
    assert options(service_unit(PLAN))["ExecStart"] == (
        '"/opt/x y/opencode-shim" "serve" "--env-file" "/home/a b/service.env" "--env-file" "/home/a b/100%%$$.env"'
    )


def test_a_restart_leaves_holders_alone_and_a_stop_ends_agents() -> None:
    unit = options(service_unit(Plan(PLAN.argv, (), HOME, outlive=True)))
    assert (unit["KillMode"], unit["KillSignal"], unit["RestartKillSignal"]) == ("process", "SIGINT", "SIGTERM")
    assert options(service_unit(PLAN))["KillMode"] == "mixed"


def test_nothing_that_breaks_agents_is_set() -> None:
    breaking = {"MemoryDenyWriteExecute", "RestrictNamespaces", "SystemCallFilter", "ProtectHome", "PrivateTmp", "ProtectSystem"}
    plain, hard = options(service_unit(PLAN)), options(service_unit(Plan(PLAN.argv, (), HOME, harden=True)))
    assert not breaking & {*plain, *hard}
    assert "NoNewPrivileges" not in plain
    assert {option.partition("=")[0] for option, _ in HARDENING} <= set(hard)


def test_the_socket_is_the_address_of_the_settings() -> None:
    assert options(socket_unit(PLAN))["ListenStream"] == "127.0.0.1:4096"
    assert options(socket_unit(Plan((), (), HOME, "::1", 5000)))["ListenStream"] == "[::1]:5000"
    assert options(socket_unit(Plan((), (), HOME, "localhost", 5000)))["ListenStream"] == "127.0.0.1:5000"


def test_launchd_gets_the_command_unquoted_and_restarts_what_fails() -> None:
    content = plistlib.loads(property_list(PLAN).encode())
    assert content["ProgramArguments"] == list(PLAN.command)
    assert content["KeepAlive"] == {"SuccessfulExit": False}
    assert content["StandardErrorPath"] == "/home/a b/log"


@pytest.mark.slow
@pytest.mark.parametrize("harden", [False, True])
def test_systemd_itself_finds_nothing_wrong(tmp_path: Path, harden: bool) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not on this machine")
    program = tmp_path / "with space" / "opencode-shim"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    plan = Plan((str(program),), (tmp_path / "service.env",), tmp_path, harden=harden)
    (tmp_path / "opencode-shim.service").write_text(service_unit(plan))
    (tmp_path / "opencode-shim.socket").write_text(socket_unit(plan))
    argv = [
        "systemd-analyze",
        "verify",
        "--user",
        str(tmp_path / "opencode-shim.service"),
        str(tmp_path / "opencode-shim.socket"),
    ]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, env={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    )
    ours = [line for line in done.stderr.splitlines() if "opencode-shim" in line or str(tmp_path) in line]
    assert ours == []
    assert done.returncode == 0, done.stderr
