"""The command lines with which a service is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from shim.cli.service import SERVICE, SOCKET, USER, Manager


@pytest.mark.parametrize("on_demand", [False, True])
def test_an_installation_stops_socket_and_service_before_it_starts_them(on_demand: bool, tmp_path: Path) -> None:
    commands = Manager("systemd", tmp_path, tmp_path / "log").after_install(on_demand=on_demand)
    stop, start = commands[-2:]
    assert stop == (*USER, "stop", SOCKET, SERVICE), "a socket does not move to another address while its service runs"
    assert start == (*USER, "start", *((SOCKET,) if on_demand else (SOCKET, SERVICE)))
