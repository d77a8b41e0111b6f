"""How a service is installed and removed, with a `systemctl` of the test."""

from __future__ import annotations

import plistlib
from pathlib import Path
from typing import Literal

import pytest

from shim.cli import screen, service
from shim.cli.service import SERVICE, SOCKET, USER, Manager, Plan, ServiceError, property_list, service_unit
from shim.lib.settings import Settings

NO_BUS = "Failed to connect to bus: No medium found"


class Machine:
    """A home, a systemd that may have no bus, and what is printed."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.bus = True
        self.settings = Settings(data_dir=home / "data")
        self.lines: list[str] = []
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
        monkeypatch.setattr(service, "manager", lambda _: Manager("systemd", home / "units", home / "log"))
        monkeypatch.setattr(service, "program", lambda: "/usr/bin/opencode-shim")
        monkeypatch.setattr(service, "_ask", lambda _: (True, "") if self.bus else (False, f"{NO_BUS}\n"))

    def line(self, text: str, style: str | None) -> None:
        self.lines.append(text)

    def table(self, table: screen.Table) -> None:
        raise NotImplementedError

    def files(self) -> set[str]:
        return {str(path.relative_to(self.home)) for path in self.home.rglob("*") if path.is_file()}

    def install(self) -> None:
        assert service.install(self.settings, self, on_demand=False, harden=False, linger=False) == 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_without_a_session_of_systemd_nothing_is_written(machine: Machine) -> None:
    machine.bus = False
    with pytest.raises(ServiceError, match="opencode-shim serve") as refusal:
        machine.install()
    assert NO_BUS in str(refusal.value)
    assert machine.files() == set()


@pytest.mark.parametrize("bus", [True, False])
def test_a_removal_leaves_the_keys_alone(machine: Machine, bus: bool) -> None:
    machine.install()
    assert len(machine.files()) == 4
    machine.bus = bus
    assert service.uninstall(machine.settings, machine) == 0
    assert machine.files() == {".config/opencode-shim/keys.env"}
    assert any(NO_BUS in line for line in machine.lines) is not bus
    with pytest.raises(ServiceError, match="not installed"):
        service.uninstall(machine.settings, machine)


@pytest.mark.parametrize("on_demand", [False, True])
def test_an_installation_stops_socket_and_service_before_it_starts_them(on_demand: bool, tmp_path: Path) -> None:
    commands = Manager("systemd", tmp_path, tmp_path / "log").after_install(on_demand=on_demand)
    stop, start = commands[-2:]
    assert stop == (*USER, "stop", SOCKET, SERVICE), "a socket does not move to another address while its service runs"
    assert start == (*USER, "start", *((SOCKET,) if on_demand else (SOCKET, SERVICE)))


@pytest.mark.parametrize("outlive", [True, False])
def test_a_manager_leaves_holders_alone_and_a_stop_is_a_ctrl_c(outlive: bool, tmp_path: Path) -> None:
    """systemd.kill(5): `process` kills the main process only. launchd.plist(5): the group of a dead job is killed."""
    plan = Plan(("/bin/opencode-shim",), (), tmp_path, outlive=outlive)
    settings = [line for line in service_unit(plan).splitlines() if "Kill" in line and not line.startswith("#")]
    kept = ["KillMode=process", "KillSignal=SIGINT", "RestartKillSignal=SIGTERM"]
    assert settings == (kept if outlive else ["KillMode=mixed"])
    items = plistlib.loads(property_list(plan).encode())
    assert items["AbandonProcessGroup"] is outlive
    assert items["KeepAlive"] == {"SuccessfulExit": False}, "what a stop has ended stays so"
    launchd = Manager("launchd", tmp_path, tmp_path / "log")
    assert [argv[:3] for argv in launchd.commands("stop")] == [("launchctl", "kill", "SIGINT")]
    assert [argv[:3] for argv in launchd.commands("restart")] == [("launchctl", "kickstart", "-k")]


@pytest.mark.parametrize("kind", ["systemd", "launchd"])
def test_a_removal_stops_the_service_first_which_ends_agents(
    kind: Literal["systemd", "launchd"], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, manager = list[tuple[str, ...]](), Manager(kind, machine.home / "units", machine.home / "log")
    monkeypatch.setattr(service, "manager", lambda _: manager)
    monkeypatch.setattr(service, "_ask", lambda argv: (asked.append(argv), (True, ""))[1])
    machine.install()
    asked.clear()
    service.uninstall(machine.settings, machine)
    assert asked == [*manager.commands("stop"), *manager.before_removal(), *manager.after_removal()]


@pytest.mark.parametrize(("file", "command"), [("uv-receipt.toml", "uv"), ("pipx_metadata.json", "pipx"), ("", "python")])
def test_an_upgrade_is_done_by_what_has_installed_it(file: str, command: str, tmp_path: Path) -> None:
    if file:
        (tmp_path / file).touch()
    assert Path(service.upgrade_command(tmp_path)[0]).name == command


@pytest.mark.parametrize("code", [0, 3])
def test_an_upgrade_restarts_the_service_if_it_did_not_fail(
    code: int, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each program was called with stands in a file."""
    called = tmp_path / "called"
    programs = {"uv": code, "systemctl": 0}
    for name, ends_with in programs.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {called}\nexit {ends_with}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setattr(service, "upgrade_command", lambda _: ("uv", "tool", "upgrade", "opencode-shim"))
    with pytest.raises(ServiceError, match="not installed"):
        service.upgrade(machine.settings)
    machine.install()
    if code:
        with pytest.raises(ServiceError, match=r"failed with 3\. The service goes on"):
            service.upgrade(machine.settings)
    else:
        assert service.upgrade(machine.settings) == 0
    restart = ["systemctl --user restart opencode-shim.service"]
    assert called.read_text().splitlines() == ["uv tool upgrade opencode-shim", *([] if code else restart)]
