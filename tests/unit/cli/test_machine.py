"""What `doctor` says about the machine."""

from __future__ import annotations

import socket
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from shim.cli import machine
from shim.cli.machine import Check
from shim.host.config.opencode_config import ConfigFiles, OpenCodeConfig, Problem
from shim.lib.settings import Settings
from shim.lib.version import Build, Release
from shim.processes.sandbox import Tool

BUILD = Build("1.2.0", "0" * 40, False, (Release("1.2.0", date(2026, 6, 1)),))


FAULT = Problem("/p/opencode.json", "is no JSON")


def status(check: Check) -> str:
    return check.status


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (machine.check_server(None, "", BUILD), "ok"),
        (machine.check_server("http://127.0.0.1:1", "1.2.0", BUILD), "ok"),
        (machine.check_server("http://127.0.0.1:1", "1.1.0", BUILD), "warning"),
        (machine.check_service("", None), "ok"),
        (machine.check_service("on demand", None), "ok"),
        (machine.check_service("failed", "http://127.0.0.1:1"), "wrong"),
        (machine.check_service("inactive", "http://127.0.0.1:1"), "warning"),
        (machine.check_holders({Path("/held/a"): (True, [7])}, None)[0], "ok"),
        (machine.check_holders({Path("/held/a"): (True, []), Path("/held/b"): (False, [])}, None)[0], "warning"),
        (machine.check_disk(Path("/data"), 50 * 2**20), "wrong"),
        (machine.check_disk(Path("/data"), 500 * 2**20), "warning"),
        (machine.check_disk(Path("/data"), 5 * 2**30), "ok"),
        (machine.check_clock(date(2026, 5, 31), BUILD), "wrong"),
        (machine.check_clock(date(2026, 6, 1), BUILD), "ok"),
        (machine.check_clock(date(1999, 1, 1), Build("1.2.0")), "ok"),
        (machine.check_release(date(2026, 6, 11), BUILD), "ok"),
        (machine.check_release(date(2027, 6, 1), BUILD), "warning"),
        (machine.check_release(date(2026, 6, 1), Build("1.2.0", "0" * 40)), "ok"),
        (machine.check_rules(OpenCodeConfig({}), Path("/p")), "ok"),
        (machine.check_rules(OpenCodeConfig({}, (FAULT,), (), True), Path("/p")), "wrong"),
        (machine.check_container(Path("/data"), {}, 1000, inside=False), "ok"),
        (machine.check_container(Path("/data"), {}, 1000, inside=True), "wrong"),
        (machine.check_container(Path("/nowhere/data"), {"HOME": "/tmp"}, 1000, inside=True), "warning"),
        (machine.check_container(Path("/proc/data"), {"HOME": "/tmp"}, 0, inside=True), "warning"),
        (machine.check_container(Path("/proc/data"), {"HOME": "/tmp"}, 1000, inside=True), "ok"),
        (machine.check_sandbox(Tool("/usr/bin/bwrap")), "ok"),
        (machine.check_sandbox(Tool(kind="Landlock", better="There is no program bwrap.")), "warning"),
        (machine.check_sandbox(Tool(why="There is no program bwrap.")), "warning"),
    ],
)
def test_each_finding_has_its_status_and_a_remedy_unless_it_is_ok(check: Check, expected: str) -> None:
    assert check.status == expected
    assert bool(check.remedy) == (expected != "ok")


def test_a_faulty_rule_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "opencode.json").write_text('{"permission": {"bash": "denied"}}')
    check = machine.check_rules(ConfigFiles(tmp_path / "home", {}).load(str(tmp_path)), tmp_path)
    assert str(tmp_path / "opencode.json") in check.text
    assert "deny" in check.text, "what to write"


def test_a_port_that_another_program_has_is_wrong(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = Settings(port=other.getsockname()[1], data_dir=tmp_path)
        now = datetime(2026, 6, 2, tzinfo=UTC)

        def port(server: str | None) -> Check:
            found = machine.examine(settings, BUILD, server=server, server_version="", service="", now=now)
            return next(check for check in found if check.name == "port")

        assert port(None).status == "wrong"
        assert port("http://127.0.0.1:1").status == "warning"
        assert port(f"http://127.0.0.1:{settings.port}").status == "ok"
    assert port(None).status == "ok"
