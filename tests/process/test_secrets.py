"""Secrets are planted wherever a server can come by them; then everything that it says or writes is searched for them."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.process.test_serve import RUN, START_S, environment, rest, run_server

PASSWORD = "correct horse battery"
PLANTED = {
    "of the server": PASSWORD,
    "of the server, encoded": base64.b64encode(f"opencode:{PASSWORD}".encode()).decode(),
    "by its looks, in the environment": "sk-ant-api03-Planted0123456789",
    "by its name, in the environment": "an ordinary looking value",
    "in a setting": "another ordinary value",
    "wrong, in a header": "Wr0ngInHeader01",
    "wrong, in a query": base64.b64encode(b"opencode:Wr0ngInQuery02").decode(),
    "bearer": "Wr0ngBearer03xyz",
}
BABBLER = Path(__file__).resolve().parent.parent / "fakes" / "babbler.py"
TURN_S = 30


class Client:
    """Keeps every byte that it is answered."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.said: list[bytes] = []

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=START_S) as answer:
                status, text, told = answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                status, text, told = error.code, error.read(), error.headers
        self.said.append(text + str(told).encode())
        return status, text

    def ask_with_password(self, method: str, path: str, body: Any = None) -> Any:
        status, text = self.ask(method, path, body, Authorization=f"Bearer {PASSWORD}")
        assert status < 300, (method, path, status, text)
        return json.loads(text) if text else None

    def events(self) -> Iterator[dict[str, Any]]:
        token = PLANTED["of the server, encoded"]
        with urllib.request.urlopen(f"{self.url}/event?auth_token={token}", timeout=TURN_S) as stream:
            for line in stream:
                self.said.append(line)
                if line.startswith(b"data:"):
                    yield json.loads(line.removeprefix(b"data:"))


def until_idle(client: Client, session: str, text: str) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    for event in client.events():
        seen.append(event)
        if event["type"] == "server.connected":
            prompt = {"parts": [{"type": "text", "text": text}], "model": {"providerID": "babbler", "modelID": "default"}}
            client.ask("POST", f"/session/{session}/prompt_async", prompt, Authorization=f"Bearer {PASSWORD}")
        if event["type"] in ("session.idle", "session.error"):
            return seen
    raise AssertionError(f"the stream ended: {seen}")


@pytest.fixture
def agents() -> str:
    command = [sys.executable, str(BABBLER)]
    return json.dumps({"babbler": {"command": command, "env": {"BABBLER_KEY": PLANTED["in a setting"]}}})


def test_no_planted_secret_is_ever_sent_or_written(tmp_path: Path, agents: str) -> None:
    planted = {
        "OPENCODE_SERVER_PASSWORD": PASSWORD,
        "ANTHROPIC_API_KEY": PLANTED["by its looks, in the environment"],
        "MY_SERVICE_TOKEN": PLANTED["by its name, in the environment"],
        "SHIM_AGENTS": agents,
        "SHIM_LOG_LEVEL": "debug",
        "SHIM_LOG_FORMAT": "json",
    }
    data = tmp_path / "data"
    with run_server(tmp_path, "--data-dir", str(data), **planted) as (process, url):
        printed = rest(process)
        client = Client(url)
        given = Path(f"/proc/{process.pid}/environ")  # what every program of the person's can read of another one
        if given.exists():
            seen = given.read_bytes()
            assert b"MY_SERVICE_TOKEN=" in seen
            assert PASSWORD.encode() not in seen
        wrong = base64.b64encode(f"opencode:{PLANTED['wrong, in a header']}".encode()).decode()
        assert client.ask("GET", "/path", Authorization=f"Basic {wrong}")[0] == 401
        assert client.ask("GET", f"/path?auth_token={PLANTED['wrong, in a query']}")[0] == 401
        assert client.ask("GET", "/path", Authorization=f"Bearer {PLANTED['bearer']}")[0] == 401
        assert client.ask("POST", f"/session?auth_token={PLANTED['of the server, encoded']}", {"title": 5})[0] == 400
        for path in ("/config", "/provider", "/agent", "/path", "/doc", "/session", "/config/providers", "/nosuch"):
            client.ask("GET", path, Authorization=f"Bearer {PASSWORD}")
        session = client.ask_with_password("POST", "/session", {})["id"]
        events = until_idle(client, session, "hello")
        # It did tell what it knows, so that something was there to be taken out.
        assert any("fatal: cannot log in with <redacted>" in json.dumps(event) for event in events), json.dumps(events)[-3000:]
        client.ask_with_password("GET", f"/session/{session}/message")
        shown = client.ask_with_password("POST", f"/session/{session}/shell", {"command": "env", "agent": "build"})
        assert "MY_SERVICE_TOKEN" in json.dumps(shown)
        settings = [sys.executable, "-c", RUN, "config"]
        for more in ([], ["--json"]):
            done = subprocess.run([*settings, *more], env=environment(tmp_path, **planted), capture_output=True, check=True)
            client.said += [done.stdout, done.stderr]
        process.terminate()
        assert process.wait(START_S) == 0
    log = (tmp_path / "stderr").read_bytes()
    assert b'"request.done"' in log and b'"login.failed"' in log
    everything = {"stdout": "\n".join(printed).encode(), "log": log, "answers": b"\n".join(client.said)}
    everything |= {path.name: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert any(name.endswith(".db") for name in everything)
    # The person's own command prints the person's environment, less what is the server's; that is theirs to see.
    own = {PLANTED["by its looks, in the environment"], PLANTED["by its name, in the environment"]}
    for what, secret in PLANTED.items():
        for where, text in everything.items():
            if secret in own and where in ("answers", *(path.name for path in data.iterdir())):
                continue
            assert secret.encode() not in text, f"the secret {what} is in {where}"


def test_data_is_for_its_owner_alone(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    before = os.umask(0)
    try:
        (tmp_path / "work").mkdir()
        with run_server(tmp_path, "--data-dir", str(data), SHIM_RECORD_DIR=str(tmp_path / "records")) as (process, url):
            rest(process)
            client = Client(url)
            session = json.loads(client.ask("POST", f"/session?directory={tmp_path / 'work'}", {})[1])["id"]
            prompt = {"parts": [{"type": "text", "text": "hello"}], "model": {"providerID": "mock", "modelID": "mock"}}
            assert client.ask("POST", f"/session/{session}/message", prompt)[0] == 200
            assert client.ask("POST", "/api/shell", {"command": "true"})[0] == 200
            assert {"snapshots", "shell"} <= {path.name for path in data.iterdir()}
            for path in (data, *data.iterdir(), *(data / "snapshots").iterdir(), *(data / "shell").iterdir()):
                mode = stat.S_IMODE(path.stat().st_mode)
                assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))
    finally:
        os.umask(before)
    with closing(sqlite3.connect(f"file:{data / 'opencode-shim.db'}?mode=ro", uri=True)) as database:
        assert database.execute("SELECT count(*) FROM session").fetchone() == (1,)
