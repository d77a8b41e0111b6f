"""The logins of real programs, begun by a client. Claude's page is on another machine; Codex gets one of ours, and logs in."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from .support.bench import CLAUDE, Bench, bench, nightly
from .support.places import NODE, program

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.mark.parametrize("server", [CLAUDE, *nightly("claude-agent-acp")], indirect=True)
def test_a_login_shows_its_link_until_it_is_cancelled(server: Bench) -> None:
    name = server.shim.provider
    assert server.api.get("/provider/auth")[name][0]["type"] == "oauth"
    told = server.api.post(f"/provider/{name}/oauth/authorize", {"method": 0})
    assert told["url"].startswith("https://claude.")
    assert told["method"] == "code"
    connect = f"/api/integration/{name}/connect/oauth"
    attempt = server.api.post(connect, {"methodID": "login"})["data"]
    path = f"{connect}/{attempt['attemptID']}"
    assert (attempt["url"] != told["url"], server.api.get(path)["data"]["status"]) == (True, "pending")
    server.api.call("DELETE", path)


CODEX = "codex"
SECRET = "a-token-that-nobody-else-keeps"


class Issuer(BaseHTTPRequestHandler):
    """What Codex 0.171 asks of `auth.openai.com` for a login by a device code. The second look at the code finds it entered."""

    looks = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, answer = 200, dict[str, str]()
        if self.path.endswith("/usercode"):
            answer = {"device_auth_id": "one", "user_code": "ABCD-12345", "interval": "1"}
        elif self.path.endswith("/deviceauth/token"):
            Issuer.looks += 1
            status = 403 if Issuer.looks < 2 else 200
            answer = {"authorization_code": "code", "code_challenge": "c", "code_verifier": "v"}
        elif self.path.endswith("/oauth/token"):
            plan = {"chatgpt_account_id": "a", "chatgpt_plan_type": "plus"}
            parts = ({}, {"email": "a@example.com", "https://api.openai.com/auth": plan}, {})
            token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
            answer = {"id_token": token, "access_token": token, "refresh_token": SECRET}
        else:
            status = 404
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def issuer() -> Iterator[str]:
    """Its address, which is no link to this machine in the eyes of the server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://0.0.0.0:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("agent", [CODEX])
def test_a_login_by_a_device_code_is_completed_and_its_token_is_the_agents(agent: str) -> None:
    with issuer() as url, bench(agent) as server:
        place = server.place
        script = place.home / "codex-of-ours"
        ours = f'export NO_PROXY=0.0.0.0 no_proxy=0.0.0.0; set -- "$@" --experimental_issuer {url}'
        script.write_text(f'#!/bin/sh\nif [ "$1" = login ]; then {ours}; fi\nexec {program(CODEX)} "$@"\n')
        script.chmod(0o755)
        server.settings = {"SHIM_CODEX_BIN": str(script), "PATH": f"{NODE}:{place.env()['PATH']}"}
        server.restart()
        told = server.api.post(f"/provider/{CODEX}/oauth/authorize", {"method": 0})
        assert (told["url"], told["method"]) == (f"{url}/codex/device", "auto")
        assert "ABCD-12345" in told["instructions"]
        assert server.api.post(f"/provider/{CODEX}/oauth/callback", {"method": 0}) is True
        assert SECRET in (place.home / ".codex" / "auth.json").read_text()
        kept = [path for path in (place.home / "data").rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
        assert kept == []
