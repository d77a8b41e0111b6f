"""The whole server on data that an earlier version wrote, and `backup` of a server that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.test_serve import RUN, START_S, environment, rest, run_server
from tests.process.test_wheel import get
from tests.support.old_data import NAMES, make_database, sessions

DATA = ".local/share/opencode-shim"


def fixture_form(message: dict[str, Any]) -> dict[str, Any]:
    """A message as the fixtures keep it."""
    parts: list[dict[str, Any]] = []
    for part in message["parts"]:
        kept: dict[str, Any] = {"type": part["type"]}
        if "text" in part:
            kept["text"] = part["text"]
        if part["type"] == "tool":
            kept |= {"tool": part["tool"], "status": part["state"]["status"]}
        parts.append(kept)
    return {"role": message["info"]["role"], "parts": parts}


def server_messages(url: str, home: Path, session_id: str) -> list[dict[str, Any]]:
    return [fixture_form(message) for message in json.loads(get(f"{url}/session/{session_id}/message?directory={home}/project"))]


@pytest.mark.parametrize("name", NAMES)
def test_sessions_of_an_earlier_version_are_answered_as_it_did(tmp_path: Path, name: str) -> None:
    (tmp_path / "project").mkdir()
    make_database(name, tmp_path / DATA / "opencode-shim.db", tmp_path)
    (tmp_path / DATA).chmod(0o700)
    with run_server(tmp_path, SHIM_MOCK_DELAY_FACTOR="0") as (process, url):
        rest(process)
        for session_id, expected in sessions(name).items():
            assert server_messages(url, tmp_path, session_id) == expected["messages"]
            assert json.loads(get(f"{url}/session/{session_id}"))["title"] == expected["title"]


def test_a_backup_of_a_running_server_is_served_elsewhere(tmp_path: Path) -> None:
    name = NAMES[-1]
    first, second = tmp_path / "first", tmp_path / "second"
    for home in (first, second):
        (home / "project").mkdir(parents=True)
    make_database(name, first / DATA / "opencode-shim.db", first)

    def command(home: Path, *words: str) -> str:
        argv = [sys.executable, "-c", RUN, *words]
        done = subprocess.run(argv, env=environment(home), cwd=home, capture_output=True, text=True, timeout=START_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    file = str(tmp_path / "sessions.tar.gz")
    with run_server(first) as (process, _):
        rest(process)
        assert "Keep it secret" in command(first, "backup", file)
    assert "Restored 1 files" in command(second, "restore", file)
    with run_server(second) as (process, url):
        rest(process)
        for session_id, expected in sessions(name).items():
            assert server_messages(url, first, session_id) == expected["messages"]
