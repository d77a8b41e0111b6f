"""The real command with the real application, as a person and a service manager use it."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process.support import is_live

START_S = 40
STOP_S = 5.0
"""What the command promises; the test gives the machine a moment more."""
SLACK_S = 3.0
RUN = "import sys; from shim.cli import main; sys.exit(main())"


CLIENT = """#!{python}
import sys, urllib.request
print(sys.argv[1:], urllib.request.urlopen(sys.argv[2] + "/global/health").read())
sys.exit(7)
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    """A home of its own, and no agent on PATH."""
    ours = ("SHIM_", "OPENCODE", "XDG_", "PYTHONASYNCIO")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"HOME": str(home), "PATH": "/usr/bin:/bin", "SHIM_CLAUDE_BIN": str(home / "no-claude")} | more


@contextmanager
def run_server(
    home: Path, *arguments: str, command: tuple[str, ...] = (sys.executable, "-c", RUN), **more: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`opencode-shim serve --port 0 ...`: the process and its URL. Killed at the end if it still runs."""
    argv = [*command, "serve", "--port", "0", "--directory", str(home), *arguments]
    with (home / "stderr").open("w+") as err:
        process = subprocess.Popen(argv, env=environment(home, **more), stdout=subprocess.PIPE, stderr=err, text=True)
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first.startswith("opencode server listening on http://127.0.0.1:"), (home / "stderr").read_text()
            yield process, first.split()[-1]
        finally:
            process.kill()
            process.communicate()


def rest(process: subprocess.Popen[str]) -> list[str]:
    """What is printed until the line that says where the data is."""
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or not lines[-1].startswith("data "):
        lines.append(process.stdout.readline().rstrip("\n"))
        assert len(lines) < 50, lines
    return lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_tells_how_to_attach_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with run_server(tmp_path) as (process, url):
        lines = rest(process)
        assert f"attach   opencode attach {url} --dir {tmp_path.resolve()}" in lines
        assert f"data     {tmp_path}/.local/share/opencode-shim" in lines
        agents = {line.split()[0]: line for line in lines[2 : lines.index("", 2)]}
        assert "not usable" in agents["claude"]
        assert agents["mock"].endswith("built in")
        with urllib.request.urlopen(f"{url}/global/health", timeout=START_S) as answer:
            assert json.load(answer)["healthy"] is True
        with urllib.request.urlopen(f"{url}/event", timeout=START_S) as stream:
            assert stream.readline().startswith((b"id:", b"data:"))
            process.send_signal(number)
            assert process.wait(STOP_S + SLACK_S) == 0
        assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_background_children_of_a_command_end_with_the_server(tmp_path: Path) -> None:
    """Also in a session of its own, which no signal to the command's group reaches."""

    def post(path: str, body: object) -> dict[str, Any]:
        request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            return json.load(answer)

    with run_server(tmp_path) as (process, url):
        session = post("/session", {})["id"]
        command = "setsid sleep 300 >/dev/null 2>&1 & echo $!"
        told = post(f"/session/{session}/shell", {"command": command, "agent": "build"})
        pid = int(next(part["state"]["output"] for part in told["parts"] if part["type"] == "tool"))
        assert is_live(pid), "the test tests nothing if it is gone"
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S + SLACK_S) == 0
        assert not is_live(pid)


def test_the_data_directory_is_private(tmp_path: Path) -> None:
    with run_server(tmp_path, "--data-dir", str(tmp_path / "data")) as (process, _):
        rest(process)
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_agents_can_be_asked_while_a_server_runs(tmp_path: Path) -> None:
    with run_server(tmp_path):
        argv = [sys.executable, "-c", RUN, "agents", "--json"]
        done = subprocess.run(argv, env=environment(tmp_path), capture_output=True, text=True, timeout=START_S)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["mock"]["problem"] is None
    assert "mock" in rows["mock"]["models"]
    assert rows["mock"]["capabilities"]["deltas"] is True
    assert "no-claude" in rows["claude"]["problem"]


def test_tui_starts_a_server_for_the_client_and_ends_with_it(tmp_path: Path) -> None:
    """The stand-in for the TUI asks the server that it is given for its health, and ends with 7."""
    client = tmp_path / "opencode"
    client.write_text(CLIENT.format(python=sys.executable))
    client.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", RUN, "tui", "--directory", str(tmp_path)],
        env=environment(tmp_path, SHIM_OPENCODE_BIN=str(client)),
        capture_output=True,
        text=True,
        timeout=START_S,
    )
    assert done.returncode == 7, done.stderr
    assert f"'--dir', '{tmp_path.resolve()}'" in done.stdout
    assert '"healthy":true' in done.stdout
    assert done.stderr == ""
    assert (tmp_path / ".local/share/opencode-shim/opencode-shim.log").exists()


def test_clients_of_opencode2_find_a_registered_server(tmp_path: Path) -> None:
    file = tmp_path / ".local" / "state" / "opencode" / "service.json"
    with run_server(tmp_path, "--register", OPENCODE_SERVER_PASSWORD="pw") as (process, url):
        rest(process)
        found = json.loads(file.read_text())
        assert (found["url"], found["pid"]) == (url, process.pid)
        request = urllib.request.Request(f"{found['url']}/api/info")
        request.add_header("Authorization", "Basic " + base64.b64encode(f"opencode:{found['password']}".encode()).decode())
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            told = json.loads(answer.read())
        assert (told["version"], told["pid"]) == (found["version"], found["pid"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S + SLACK_S) == 0
    assert not file.exists()
