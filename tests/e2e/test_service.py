"""The service with a real `systemd --user`: installed, started by a client, reloaded, killed, read, removed."""

from __future__ import annotations

import json
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support.agents import agents_environment
from tests.e2e.support.children import wait_for
from tests.e2e.support.places import Place
from tests.e2e.support.servers import Model
from tests.e2e.support.user_systemd import UserSystemd, skip_reason, user_systemd
from tests.e2e.support.wire import Api

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("systemd"),
    pytest.mark.skipif(bool(skip_reason()), reason=skip_reason()),
]
PROGRAM = str(Path(sys.executable).parent / "opencode-shim")
WAIT_S = 30.0
KEY = "sk-ant-0123456789abcdef"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[UserSystemd]:
    with user_systemd(tmp_path, PATH="/usr/bin:/bin:/opt/of-the-person", ANTHROPIC_API_KEY=KEY) as manager:
        yield manager


@pytest.fixture
def url(systemd: UserSystemd) -> str:
    """Where the service is to listen: a port that is free, in the person's settings."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    systemd.run(PROGRAM, "config", "set", "port", str(port))
    return f"http://127.0.0.1:{port}"


def show(systemd: UserSystemd, name: str, unit: str = "opencode-shim.service") -> str:
    return systemd.run("systemctl", "--user", "show", "--value", "-p", name, unit).stdout.strip()


def until(systemd: UserSystemd, name: str, value: str) -> None:
    def status() -> str:
        return systemd.run("systemctl", "--user", "status", "opencode-shim", check=False).stdout

    wait_for(lambda: show(systemd, name) == value, WAIT_S, status)


def until_logged(systemd: UserSystemd, word: str) -> None:
    def logs() -> str:
        return systemd.run(PROGRAM, "service", "logs").stdout

    wait_for(lambda: word in logs(), WAIT_S, logs)


def ask(url: str, path: str, body: Any = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return json.loads(answer.read())


def test_a_service_is_installed_reloaded_restarted_and_removed(systemd: UserSystemd, url: str, tmp_path: Path) -> None:
    said = systemd.run(PROGRAM, "service", "install", "--no-linger").stdout
    assert f"runs, at {url}" in said
    assert "not copied: ANTHROPIC_API_KEY" in said
    assert ask(url, "/global/health")["healthy"] is True
    assert show(systemd, "StatusText") == f"listening on {url}"
    assert KEY not in "".join(path.read_text() for path in (tmp_path / ".config").rglob("*.*") if path.is_file())
    assert "active (running)" in systemd.run(PROGRAM, "service", "status").stdout
    assert systemd.run(PROGRAM, "health").stdout.strip() == url
    checks = {row["name"]: row for row in json.loads(systemd.run(PROGRAM, "doctor", "--no-agents", "--json").stdout)}
    assert checks["service"]["text"] == "active"
    assert checks["port"]["text"].endswith("is this server's")

    systemd.run(PROGRAM, "config", "set", "log_level", "debug")
    systemd.run("systemctl", "--user", "reload", "opencode-shim")
    until_logged(systemd, "settings.reloaded")

    killed = show(systemd, "MainPID")
    systemd.run("kill", f"-{signal.SIGKILL.value}", killed)
    until(systemd, "NRestarts", "1")
    until(systemd, "ActiveState", "active")
    assert ask(url, "/global/health")["healthy"] is True

    systemd.run(PROGRAM, "service", "restart")
    systemd.run(PROGRAM, "service", "stop")
    with pytest.raises(OSError):
        ask(url, "/global/health")
    systemd.run(PROGRAM, "service", "start")
    assert ask(url, "/global/health")["healthy"] is True
    systemd.run(PROGRAM, "service", "uninstall")
    assert not list((tmp_path / ".config" / "systemd").rglob("opencode-shim*"))
    with pytest.raises(OSError):
        ask(url, "/global/health")


def test_a_turn_outlives_restarts_of_the_service_and_ends_with_its_stop(systemd: UserSystemd, url: str, tmp_path: Path) -> None:
    place = Place.make()
    with closing(Model(place)) as model:
        systemd.run(PROGRAM, "config", "set", "outlive", "true")
        systemd.run(PROGRAM, "config", "set", "data_dir", str(place.home / "data"))  # a socket's path is short
        systemd.run(PROGRAM, "service", "install", "--no-linger")
        keys = {**agents_environment(place, model.url, ["claude"]), "IS_SANDBOX": "1"}
        lines = (f"{name}={value}\n" for name, value in keys.items())
        (tmp_path / ".config" / "opencode-shim" / "keys.env").write_text("".join(lines))
        systemd.run(PROGRAM, "service", "restart")
        api = Api(url, place.project)
        session = api.session()
        api.prompt(session, "[scene:ask_bash] make")

        def open_requests() -> list[str]:
            return [request["id"] for request in api.get("/permission")]

        requests = wait_for(open_requests, WAIT_S, "no permission is asked")
        systemd.run(PROGRAM, "service", "restart")
        assert wait_for(open_requests, WAIT_S, lambda: systemd.run(PROGRAM, "service", "logs").stdout) == requests
        systemd.run("kill", "-9", show(systemd, "MainPID"))
        until(systemd, "NRestarts", "1")
        until(systemd, "ActiveState", "active")
        assert wait_for(open_requests, WAIT_S, lambda: systemd.run(PROGRAM, "service", "logs").stdout) == requests
        held = list((place.home / "data" / "held").iterdir())
        assert len(held) == 1
        systemd.run(PROGRAM, "service", "stop")
        wait_for(lambda: not held[0].exists(), WAIT_S, "the holder is left")
        until_logged(systemd, "turns.ended")
    place.remove()


@pytest.mark.parametrize("harden", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_the_first_client_starts_it_and_agents_get_the_environment(
    systemd: UserSystemd, url: str, tmp_path: Path, harden: bool
) -> None:
    said = systemd.run(PROGRAM, "service", "install", "--no-linger", "--on-demand", *(["--harden"] if harden else [])).stdout
    assert "starts with its first client" in said
    assert show(systemd, "ActiveState") == "inactive"
    keys = tmp_path / ".config" / "opencode-shim" / "keys.env"
    keys.write_text(f"ANTHROPIC_API_KEY={KEY}\n")
    assert keys.stat().st_mode & 0o777 == 0o600

    assert ask(url, "/global/health")["healthy"] is True
    until(systemd, "ActiveState", "active")  # the server says so when it has found the agents
    assert show(systemd, "NoNewPrivileges") == ("yes" if harden else "no")
    session = ask(url, "/session", {})["id"]
    told = ask(url, f"/session/{session}/shell", {"command": "env; unshare --user true && echo has namespaces", "agent": "build"})
    output = next(part["state"]["output"] for part in told["parts"] if part["type"] == "tool")
    lines = output.splitlines()
    assert f"ANTHROPIC_API_KEY={KEY}" in lines
    assert "PATH=/usr/bin:/bin:/opt/of-the-person" in lines
    assert "has namespaces" in lines
    assert not [line for line in lines if line.startswith(("LISTEN_", "NOTIFY_SOCKET"))]
