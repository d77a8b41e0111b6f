"""What a service manager hands over, and what it is told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from shim.cli.serve_command import Notifier, inherited_socket

CHILD_S = 30
CHILD = """
import os, sys
os.dup2(int(sys.argv[2]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
from shim.cli.serve_command import inherited_socket
try:
    sock = inherited_socket(os.environ, protected=sys.argv[1] == "protected")
    print(sock.getsockname()[1], [name for name in os.environ if name.startswith("LISTEN")], os.get_inheritable(3))
except Exception as error:
    print(error)
"""


def child(sock: socket.socket, fds: str = "1", *, protected: bool = False) -> str:
    """What a process says that was started with `sock` as its descriptor 3, as systemd starts one."""
    argv = [sys.executable, "-c", CHILD, "protected" if protected else "open", str(sock.fileno())]
    environment = {**os.environ, "LISTEN_FDS": fds, "LISTEN_FDNAMES": "x"}
    done = subprocess.run(argv, env=environment, pass_fds=(sock.fileno(),), capture_output=True, text=True, timeout=CHILD_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_socket_is_taken_over_and_agents_do_not_see_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        assert child(sock) == f"{sock.getsockname()[1]} [] False"


def test_a_socket_that_others_reach_needs_a_password() -> None:
    with socket.create_server(("0.0.0.0", 0)) as sock:
        assert child(sock).startswith("Refused to listen on 0.0.0.0 without a password")
        assert child(sock, protected=True) == f"{sock.getsockname()[1]} [] False"


def test_only_a_single_tcp_socket_is_taken_over(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
        assert "no TCP socket" in child(sock)
        assert "has opened 2 sockets" in child(sock, "2")


@pytest.mark.parametrize(
    "environ", [{}, {"LISTEN_FDS": "1", "LISTEN_PID": "1"}, {"LISTEN_FDS": "0", "LISTEN_PID": str(os.getpid())}]
)
def test_a_socket_of_another_process_is_not_ours(environ: dict[str, str]) -> None:
    assert inherited_socket(environ, protected=False) is None
    assert environ == {}


@pytest.mark.parametrize("abstract", [False, True])
def test_the_manager_is_notified_and_agents_do_not_see_it(tmp_path: Path, abstract: bool) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = f"@shim-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
        manager.bind(address.replace("@", "\0"))
        manager.settimeout(CHILD_S)
        environ = {"NOTIFY_SOCKET": address}
        notifier = Notifier.take(environ)
        assert environ == {}
        notifier.ready("listening")
        assert manager.recv(1000) == b"READY=1\nSTATUS=listening"
        notifier.notify_reloading()
        assert manager.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        notifier.notify_stopping()
        assert manager.recv(1000).startswith(b"STOPPING=1")


def test_without_a_manager_nothing_happens(tmp_path: Path) -> None:
    Notifier().ready("x")
    Notifier(str(tmp_path / "gone")).ready("x")


def test_the_manager_waits_longer_for_a_server_that_drains(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(CHILD_S)
        notifier = Notifier(str(tmp_path / "notify"))
        notifier.notify_stopping(12.5)
        assert manager.recv(1000).decode().splitlines() == ["STOPPING=1", "STATUS=stopping", "EXTEND_TIMEOUT_USEC=12500000"]
        notifier.notify_stopping()
        assert manager.recv(1000).decode().splitlines() == ["STOPPING=1", "STATUS=stopping"]
