"""`--mdns`: the server is announced as OpenCode announces itself, and says goodbye."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from zeroconf import IPVersion, ServiceBrowser, ServiceInfo, Zeroconf

from shim.cli.mdns import addresses
from tests.process.test_serve import RUN, SLACK_S, START_S, STOP_S, environment

TYPE = "_http._tcp.local."
FOUND_S = 20.0
NATIVE = {"server": "opencode.local.", "properties": {b"path": b"/"}, "host_ttl": 120, "other_ttl": 4500}
"""What a browser saw of `opencode serve --mdns --port 4955` 1.18.33, whose name was `opencode-4955._http._tcp.local.`."""

pytestmark = pytest.mark.skipif(not addresses("0.0.0.0"), reason="this machine has no network to announce on")


class Listener:
    """What a browser of services is told."""

    def __init__(self) -> None:
        self.found: dict[str, ServiceInfo | None] = {}
        self.added, self.removed = threading.Event(), threading.Event()
        self.name = ""

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        if name == self.name:
            self.found[name] = zc.get_service_info(type_, name, 3000)
            self.added.set()

    def update_service(self, zc: Zeroconf, type_: str, name: str) -> None: ...

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        if name == self.name:
            self.removed.set()


@pytest.fixture
def listener() -> Iterator[Listener]:
    zeroconf = Zeroconf(ip_version=IPVersion.V4Only)
    listener = Listener()
    listener.browse = lambda: ServiceBrowser(zeroconf, TYPE, listener)  # type: ignore[attr-defined]
    yield listener
    zeroconf.close()


def serve(home: Path, *more: str, **variables: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", RUN, "serve", "--port", "0", "--mdns", *more]
    with (home / "stderr").open("w") as err:
        return subprocess.Popen(argv, env=environment(home, **variables), cwd=home, stdout=subprocess.PIPE, stderr=err, text=True)


def test_mdns_announces_the_server_as_opencode_does_and_says_goodbye(tmp_path: Path, listener: Any) -> None:
    process = serve(tmp_path, OPENCODE_SERVER_PASSWORD="correct-horse")
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        assert url.startswith("http://0.0.0.0:")
        port = int(url.rpartition(":")[2])
        listener.name = f"opencode-{port}.{TYPE}"
        listener.browse()
        assert listener.added.wait(FOUND_S)
        info = listener.found[listener.name]
        assert {name: getattr(info, name) for name in NATIVE} == NATIVE
        assert info.port == port
        assert set(info.parsed_addresses()) == set(addresses("0.0.0.0"))
        process.terminate()
        assert process.wait(STOP_S + SLACK_S) == 0
        assert listener.removed.wait(FOUND_S)
    finally:
        process.kill()
        process.communicate()


def test_without_a_password_it_is_not_announced_and_does_not_start(tmp_path: Path) -> None:
    process = serve(tmp_path)
    process.communicate(timeout=START_S)
    assert process.returncode == 1
    assert "Refused to listen on 0.0.0.0 without a password" in (tmp_path / "stderr").read_text()


def test_a_server_for_this_machine_alone_is_not_announced(tmp_path: Path) -> None:
    process = serve(tmp_path, "--hostname", "127.0.0.1")
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        while not lines[-1].startswith("data "):
            lines.append(process.stdout.readline())
        process.terminate()
        assert process.wait(STOP_S + SLACK_S) == 0
        log = (tmp_path / "stderr").read_text()
        assert "mdns.announced" not in log
    finally:
        process.kill()
        process.communicate()
