"""A face is its folder and its line of wiring: with both deleted, a server has no such door, and runs turns at the others."""

from __future__ import annotations

import json
import shutil
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.process.test_serve import RUN, START_S, rest, run_server
from tests.process.test_without_cluster import ROOT, call

WIRING = {
    "acp": ("shim/routes/__init__.py", "    from shim.faces.acp.routes import MODULES as ACP\n", "*ACP, "),
    "mcp": ("shim/routes/table.py", "from shim.faces.mcp import protocol as mcp\n", "    mcp.register(app)\n"),
}
"""Face -> the module that wires it, its import there, and its use."""
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x" * 22 + "=="}
PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
ASKS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "acp": ("GET", "/acp", "", UPGRADE),
    "mcp": ("POST", "/mcp", PING, ACCEPT),
}
"""Face -> a request that it alone answers."""

pytestmark = pytest.mark.timeout(120)


def tree_without(face: str, place: Path) -> Path:
    """This repository's code without a face, and without its wiring, which stands in one module."""
    for folder in ("shim", "universal"):
        shutil.copytree(ROOT / folder, place / folder)
    shutil.rmtree(place / "shim" / "faces" / face)
    module, *lines = WIRING[face]
    text = (place / module).read_text()
    for line in lines:
        assert text.count(line) == 1, line
        text = text.replace(line, "")
    (place / module).write_text(text)
    name = f"shim.faces.{face}"
    left = [path for path in place.rglob("*.py") if name in path.read_text() or f"shim.faces import {face}" in path.read_text()]
    assert left == []
    return place


@pytest.mark.parametrize("face", sorted(WIRING))
def test_a_server_runs_turns_without_a_face(face: str, tmp_path: Path) -> None:
    tree = tree_without(face, tmp_path / "tree")
    command = (sys.executable, "-P", "-c", f"import shim; assert shim.__path__ == [{str(tree / 'shim')!r}], shim.__path__; {RUN}")
    flags = ("--mcp",) if face != "mcp" else ()
    with run_server(tmp_path, *flags, command=command, PYTHONPATH=str(tree), SHIM_MOCK_DELAY_FACTOR="0") as (process, url):
        rest(process)
        session = call(f"{url}/session", {})["id"]
        answer = call(f"{url}/session/{session}/message", {"parts": [{"type": "text", "text": "echo Hello"}]})
        assert [part["text"] for part in answer["parts"] if part["type"] == "text"] == ["Hello"]
        assert [row["sessionId"] for row in call(f"{url}/v1/sessions")["sessions"]] == [session]
        for other, request in ASKS.items():
            if other == face:
                assert status_of(url, request) in (400, 404), other
            else:
                assert status_of(url, request) in (101, 200), other
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def status_of(url: str, request: tuple[str, str, str, dict[str, str]]) -> int:
    """The status of an answer."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=START_S)
    try:
        connection.request(*request)
        return connection.getresponse().status
    finally:
        connection.close()
