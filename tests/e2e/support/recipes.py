"""Plays one way to reach the server from elsewhere, inside of a network namespace.

    python -m tests.e2e.support.recipes NAME FOLDER PROGRAM

The namespace has its own 127.0.0.1, so the ports are those of docs/install.md. The proxy's configuration and the commands are the
page's own text. A client then goes through it: password, event stream, terminal (WebSocket), pairing link.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.e2e.support.children import wait_for
from tests.support.install_doc import block

HOST, PASSWORD = "shim.example", "correct-horse-battery"
LOGIN = {"Authorization": f"Basic {base64.b64encode(f'opencode:{PASSWORD}'.encode()).decode()}"}
WAIT_S = 40.0
SOON_S = 15.0
FORWARDED = 4097
CADDY = "{\n admin off\n local_certs\n skip_install_trust\n}\n"
NGINX = """daemon off;
user root;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{}}
http {{
access_log off;
{text}
}}
"""


@contextmanager
def run_program(argv: list[str], port: int, folder: Path, ready: str = "", **more: str) -> Generator[None]:
    """A program that listens on a port and has written `ready`, until the end."""
    log_path = folder / f"{Path(argv[0]).name}.log"
    with log_path.open("w") as log:
        process = subprocess.Popen(argv, env=os.environ | more, stdout=log, stderr=log, cwd=folder)

    def listens() -> bool:
        assert process.poll() is None, log_path.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return ready in log_path.read_text()

    try:
        wait_for(listens, WAIT_S, log_path.read_text)
        yield
    finally:
        process.terminate()
        process.wait(WAIT_S)


class Here(AbstractResolver):
    """Every name is this machine."""

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None: ...


async def client(url: str, link: str) -> None:
    """What a person does from elsewhere."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(resolver=Here(), ssl=context)
    jar = aiohttp.CookieJar(unsafe=True)
    async with asyncio.timeout(WAIT_S), aiohttp.ClientSession(connector=connector, cookie_jar=jar) as http:
        async with http.get(f"{url}/session") as answer:
            assert answer.status == 401, answer.status
        async with http.get(f"{url}/event", headers=LOGIN) as stream:
            assert stream.status == 200

            async def until(word: bytes) -> None:
                async with asyncio.timeout(SOON_S):
                    while word not in await stream.content.readline():
                        pass

            await until(b"server.connected")
            async with http.post(f"{url}/session", json={}, headers=LOGIN) as answer:
                session = (await answer.json())["id"]
            model = {"providerID": "mock", "modelID": "mock"}
            prompt: dict[str, Any] = {
                "agent": "build",
                "model": model,
                "parts": [{"type": "text", "text": "echo through the proxy"}],
            }
            async with http.post(f"{url}/session/{session}/prompt_async", json=prompt, headers=LOGIN) as answer:
                assert answer.status < 300, await answer.text()
            await until(b"message.part")
            await until(b'"session.idle"')
        async with http.post(
            f"{url}/pty", json={"command": "/bin/sh", "args": ["-c", "read x; echo got $x; read y"]}, headers=LOGIN
        ) as answer:
            pty = (await answer.json())["id"]
        async with http.ws_connect(f"{url}/pty/{pty}/connect", headers=LOGIN) as terminal:
            await terminal.send_str("hello\n")
            said = ""
            async with asyncio.timeout(SOON_S):
                while "got hello" not in said:
                    message = await terminal.receive()
                    said += message.data if isinstance(message.data, str) else bytes(message.data or b"").decode(errors="replace")
        if link:
            assert link.startswith(f"{url}/auth/connect/"), link
            async with http.get(link, headers={"Accept": "text/html"}, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (303, "/inspector/")
                assert "Secure" in answer.headers["Set-Cookie"]
            async with http.get(f"{url}/session") as answer:
                assert answer.status == 200, "the cookie lets it in"


def shell(text: str, folder: Path) -> str:
    """The output of a block of the page."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True, timeout=WAIT_S, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def certificate(folder: Path) -> None:
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    subprocess.run([*argv, "-keyout", f"{folder}/{HOST}.key", "-out", f"{folder}/{HOST}.pem"], check=True, capture_output=True)


def sshd(folder: Path) -> list[str]:
    """The daemon, a key that it admits, and an `ssh` that knows both; the page's command then works as it is."""
    for name in ("host", "id"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    lines = ["Port 2222", "ListenAddress 127.0.0.1", f"HostKey {folder}/host", f"AuthorizedKeysFile {folder}/id.pub"]
    lines += ["StrictModes no", "PermitRootLogin yes", "UsePAM no", f"PidFile {folder}/sshd.pid"]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    lines = ["Host devbox", "HostName 127.0.0.1", "Port 2222", f"IdentityFile {folder}/id", "StrictHostKeyChecking no"]
    lines += [f"UserKnownHostsFile {folder}/known"]
    (folder / "ssh_config").write_text("\n".join(lines) + "\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/ssh_config "$@"\n')
    (folder / "bin" / "ssh").chmod(0o755)
    return ["/usr/sbin/sshd", "-D", "-e", "-f", f"{folder}/sshd_config"]


def main(name: str, folder: Path, program: str) -> None:
    """Play one recipe."""
    os.environ["PATH"] = f"{folder}/bin:{Path(program).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with ExitStack() as stack:
        shell(block("proxy-settings"), folder)
        # Its port is open before it has started, and only then `pair` finds it.
        settings = {"OPENCODE_SERVER_PASSWORD": PASSWORD, "SHIM_MOCK_DELAY_FACTOR": "0.1"}
        stack.enter_context(run_program([program, "serve"], 4096, folder, "listening on", **settings))
        os.environ["OPENCODE_SERVER_PASSWORD"] = PASSWORD
        url = f"https://{HOST}"
        if name == "caddy":
            (folder / "Caddyfile").write_text(CADDY + block("Caddyfile"))
            stack.enter_context(
                run_program(["caddy", "run", "--config", "Caddyfile"], 443, folder, XDG_DATA_HOME=f"{folder}/caddy")
            )
        elif name == "nginx":
            certificate(folder)
            text = block("nginx.conf").replace("/etc/ssl/", f"{folder}/")
            (folder / "nginx.conf").write_text(NGINX.format(folder=folder, text=text))
            stack.enter_context(run_program(["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")], 443, folder))
        else:
            stack.enter_context(run_program(sshd(folder), 2222, folder))
            stack.enter_context(run_program(["bash", "-c", f"exec {block('ssh').strip()}"], FORWARDED, folder))
            url = f"http://127.0.0.1:{FORWARDED}"
        link = ""
        if name != "ssh":
            said = shell(block("pair"), folder)
            link = next(line for line in said.splitlines() if line.startswith("https://"))
        asyncio.run(client(url, link))
        if link:
            assert "aiohttp" in shell("opencode-shim pair list", folder)
    sys.stdout.write(f"{name} works\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
