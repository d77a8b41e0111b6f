"""The file by which clients of OpenCode 2 find this server (`serve --register`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from shim.cli.registration import RegistrationError, registration, registration_file
from shim.faces.opencode2._generated.operations import OPENCODE2_VERSION
from shim.lib.settings import Settings

URL = "http://127.0.0.1:4096"


def test_file_has_what_a_client_needs_and_goes_with_the_server(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    path = registration_file(environ)
    assert path == tmp_path / "state" / "opencode" / "service.json"
    with registration(Settings(password=SecretStr("pw")), URL, environ):
        assert json.loads(path.read_text()) == {"version": OPENCODE2_VERSION, "url": URL, "pid": os.getpid(), "password": "pw"}
        assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == []


def test_server_that_runs_keeps_its_registration(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    path = registration_file(environ)
    path.parent.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        path.write_text(json.dumps({"pid": other.pid, "url": "http://other"}))
        with pytest.raises(RegistrationError, match=f"process {other.pid}"), registration(Settings(), URL, environ):
            pass
        assert json.loads(path.read_text())["url"] == "http://other"
        other.communicate(b"\n")
    with registration(Settings(), URL, environ):
        assert json.loads(path.read_text())["url"] == URL
        path.write_text('{"pid": 1}')  # another server took the place meanwhile
    assert path.read_text() == '{"pid": 1}'


@pytest.mark.parametrize("text", ["", "[]", '{"pid": "x"}', '{"pid": -4}', "{"])
def test_broken_file_is_replaced(tmp_path: Path, text: str) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    registration_file(environ).parent.mkdir()
    registration_file(environ).write_text(text)
    with registration(Settings(), URL, environ):
        assert json.loads(registration_file(environ).read_text())["url"] == URL


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "opencode").write_text("")
    with pytest.raises(RegistrationError, match="Cannot write"), registration(Settings(), URL, {"XDG_STATE_HOME": str(tmp_path)}):
        pass
