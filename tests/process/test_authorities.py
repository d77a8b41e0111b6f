"""HTTPS of a server that was started without the system's certificate authorities: it asks whom they know, nobody else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUN_S = 30

ASK = """
import asyncio, json, os, ssl, sys
from shim.authorities import authorities, import_aiohttp_without

before = dict(os.environ)
import_aiohttp_without()
assert dict(os.environ) == before
import aiohttp
from aiohttp import web

async def status(url, **more):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(**more)) as session:
        try:
            async with session.get(url) as answer:
                return answer.status
        except aiohttp.ClientError as error:
            return type(error).__name__

async def main():
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(sys.argv[1], sys.argv[2])
    runner = web.AppRunner(web.Application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=served)
    await site.start()
    url = f"https://localhost:{runner.addresses[0][1]}/"
    print(json.dumps([await status(url, ssl=authorities()), await status(url)]))
    await runner.cleanup()

asyncio.run(main())
"""


@pytest.mark.parametrize("known", [True, False])
def test_who_is_trusted(tmp_path: Path, *, known: bool) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine to make a certificate with")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    command = ["openssl", "req", "-x509", *kind, *subject, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=RUN_S)
    env = {**os.environ, **({"SSL_CERT_FILE": str(cert)} if known else {})}
    argv = [sys.executable, "-c", ASK, str(cert), str(key)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_S, env=env)
    assert done.returncode == 0, done.stderr
    refused = "ClientConnectorCertificateError"
    assert json.loads(done.stdout) == [404 if known else refused, refused]
