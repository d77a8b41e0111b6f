"""The web UI's files on our origin: which paths are its own, and the hidden `opencode serve` they come from."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from shim.lib.errors import AgentNotFound, AgentStartFailed
from shim.routes.web_ui import WebUI, is_document, is_file

FAKE = """#!{python}
# Plays `opencode serve`: the page for what it does not know, 401 without the password, its pid in its home's file "pid".
import base64, http.server, os, pathlib, sys
want = "Basic " + base64.b64encode(("opencode:" + os.environ["OPENCODE_SERVER_PASSWORD"]).encode()).decode()
FILES = {{"/assets/a-1.js": ("text/javascript", b"1"), "/favicon-v3.ico": ("image/png", b"icon")}}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open({log!r}, "a") as out:
            print(self.path, os.environ["HOME"], file=out)
        ok = self.headers.get("Authorization") == want
        kind, body = FILES.get(self.path, ("text/html", b"<div id=root></div>"))
        self.send_response({status} if ok else 401)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", "default-src 'self'")
        self.send_header("X-Secret", "no")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
pathlib.Path({pid!r}).write_text(f"{{os.getpid()}} {{os.environ['HOME']}}")
if {silent}:
    sys.exit("no such flag")
port = int(sys.argv[sys.argv.index("--port") + 1])
assert port not in (0, 4096)
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
print(f"Warning: unsecured\\nopencode server listening on http://127.0.0.1:{{server.server_port}}", flush=True)
server.serve_forever()
"""


class Fake:
    """A program that plays `opencode`, and what it has seen."""

    def __init__(self, folder: Path, *, status: int = 200, silent: bool = False) -> None:
        self.log, self.pid_file, self.binary = folder / "log", folder / "pid", folder / "opencode"
        text = FAKE.format(python=sys.executable, status=status, log=str(self.log), pid=str(self.pid_file), silent=silent)
        self.binary.write_text(text)
        self.binary.chmod(self.binary.stat().st_mode | stat.S_IXUSR)

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": f"{self.binary.parent}:{os.environ['PATH']}", "HOME": "/the/person", "XDG_DATA_HOME": "/the/person/data"}

    def pid(self) -> int:
        return int(self.pid_file.read_text().split()[0])

    def home(self) -> Path:
        return Path(self.pid_file.read_text().split()[1])

    def log_lines(self) -> list[str]:
        return [line.split()[0] for line in self.log.read_text().splitlines()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until_gone(pid: int, home: Path) -> None:
    async with asyncio.timeout(10):
        while alive(pid) or home.exists():
            await asyncio.sleep(0.02)


@pytest.fixture
async def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


@pytest.fixture
async def client(fake: Fake) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    """An app that asks the UI for whatever it does not know, as ours does."""
    ui = WebUI(environ=fake.environ)
    await ui.start()

    async def unknown(request: web.Request) -> web.StreamResponse:
        return await ui.handle(request) or web.json_response({"name": "NotFoundError"}, status=404)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", unknown)
    async with TestClient(TestServer(app)) as made:
        yield made
    await ui.close()
    await ui.close()


DIRECTORY = "/L2hvbWUvdXNlci9wcm9qZWN0"
SERVER = "/server/aHR0cDovLzEyNy4wLjAuMTo0MDk2"
DOCUMENTS = ["/", "/index.html", "/new-session", "/QzpcVXNlcnM/session", SERVER, f"{SERVER}/session/ses_a"]
DOCUMENTS += [DIRECTORY, f"{DIRECTORY}/session", f"{DIRECTORY}/session/ses_abc"]
FILES = ["/assets/index-jmcwmLQ6.js", "/favicon-v3.ico", "/site.webmanifest", "/oc-theme-preload.js", "/manifest-192x192.png"]
NEITHER = ["/api/nonsense", "/session", "/session/x", "/nonsense", "/global/nonsense", "/config/x", "/project", "/assets/a/b"]
NEITHER += ["/assets", "/doc", "/v1/agents", "/server", "/aGVsbG8/session", "/L2hvbWU/other", "/L2hvbWU/session/a/b"]


@pytest.mark.parametrize("path", DOCUMENTS)
def test_documents(path: str) -> None:
    assert is_document(path)
    assert not is_file(path) or path == "/index.html"


@pytest.mark.parametrize("path", FILES)
def test_files(path: str) -> None:
    assert is_file(path)
    assert not is_document(path)


@pytest.mark.parametrize("path", NEITHER)
def test_api_paths_are_neither(path: str) -> None:
    assert not is_document(path)
    assert not is_file(path)


async def test_the_page_and_its_files_are_passed_through(client: TestClient[web.Request, web.Application], fake: Fake) -> None:
    for path in ("/", "/L2hvbWU/session/ses_a"):
        page = await client.get(path)
        assert (page.status, page.headers["Content-Type"]) == (200, "text/html")
        assert page.headers["Content-Security-Policy"] == "default-src 'self'"
        assert not {"X-Secret", "Cache-Control"} & page.headers.keys()
        assert await page.text() == "<div id=root></div>"
    for _ in range(2):
        script = await client.get("/assets/a-1.js")
        assert (script.status, script.headers["Content-Type"], await script.read()) == (200, "text/javascript", b"1")
        assert script.headers["Cache-Control"] == "max-age=31536000, immutable", "its name has a hash of its content"
    assert fake.log_lines() == ["/", "/assets/a-1.js"], "each is fetched once"
    assert "Cache-Control" not in (await client.get("/favicon-v3.ico")).headers


async def test_other_paths_fall_through_the_web_ui(client: TestClient[web.Request, web.Application]) -> None:
    for method, path in (("GET", "/api/nonsense"), ("POST", "/"), ("GET", "/assets/none.js"), ("GET", "/robots.txt")):
        answer = await client.request(method, path)
        assert (answer.status, await answer.json()) == (404, {"name": "NotFoundError"}), path


async def test_the_web_ui_has_a_home_that_is_removed_with_it(fake: Fake) -> None:
    ui = WebUI(environ=fake.environ)
    await ui.start()
    pid, home = fake.pid(), fake.home()
    assert alive(pid)
    assert home.is_dir()
    assert "person" not in str(home)
    await ui.close()
    assert not alive(pid)
    assert not home.exists()


async def test_the_hidden_server_does_not_outlive_a_killed_server(fake: Fake) -> None:
    script = "import asyncio, sys; from shim.processes import hidden_opencode as h\n" \
             f"async def main():\n    await h.start({fake.environ}); print('up', flush=True); await asyncio.Event().wait()\n" \
             "asyncio.run(main())"  # fmt: skip
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    assert await asyncio.wait_for(owner.stdout.readline(), 20) == b"up\n"
    pid, home = fake.pid(), fake.home()
    assert alive(pid)
    owner.send_signal(signal.SIGKILL)
    await asyncio.wait_for(owner.communicate(), 10)
    await until_gone(pid, home)


async def test_a_missing_opencode_is_reported_plainly(tmp_path: Path) -> None:
    with pytest.raises(AgentNotFound, match=r"not on PATH\. Install it"):
        await WebUI(environ={"PATH": str(tmp_path)}).start()
    with pytest.raises(AgentNotFound, match="SHIM_OPENCODE_BIN is /nowhere/opencode"):
        await WebUI(environ={"PATH": str(tmp_path), "SHIM_OPENCODE_BIN": "/nowhere/opencode"}).start()


async def test_a_web_ui_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    fake = Fake(tmp_path, silent=True)
    with pytest.raises(AgentStartFailed, match="ended before it listened: no such flag"):
        await WebUI(environ=fake.environ).start()
    assert not fake.home().exists()


async def test_an_opencode_without_a_ui_is_an_error_and_ended(tmp_path: Path) -> None:
    fake = Fake(tmp_path, status=500)
    with pytest.raises(
        AgentStartFailed, match="could not be loaded from the installed `opencode`: its page was answered with 500"
    ):
        await WebUI(environ=fake.environ).start()
    assert not alive(fake.pid())
    assert not fake.home().exists()


async def test_a_source_of_ones_own(tmp_path: Path) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<p>mine</p>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        ui = WebUI(url)
        await ui.start()
        await ui.close()
    with pytest.raises(AgentStartFailed, match="could not be loaded from http"):
        await WebUI(url).start()
