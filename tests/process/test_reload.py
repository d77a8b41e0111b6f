"""A running server takes over changed settings, says which need a restart, and survives what cannot be used."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
from pathlib import Path

import pytest

from tests.process.test_serve import RUN, SLACK_S, START_S, STOP_S, environment, rest, run_server
from tests.process.test_wheel import get, post

CONFIG = ".config/opencode-shim/config.toml"


def until_logged(home: Path, word: str, count: int = 1) -> str:
    """The log, once it has this word so often."""

    async def look() -> str:
        async with asyncio.timeout(START_S):
            while (text := (home / "stderr").read_text()).count(word) < count:
                await asyncio.sleep(0.05)
        return text

    return asyncio.run(look())


def write(home: Path, text: str) -> None:
    (home / CONFIG).parent.mkdir(parents=True, exist_ok=True)
    (home / CONFIG).write_text(text)


def test_a_changed_file_is_taken_over_and_the_rest_named(tmp_path: Path) -> None:
    write(tmp_path, 'max_sessions = 1\nlog_format = "json"\n')
    with run_server(tmp_path) as (process, url):
        rest(process)
        post(f"{url}/session", {})
        with pytest.raises(urllib.error.HTTPError):
            post(f"{url}/session", {})
        write(tmp_path, 'max_sessions = 2\nlog_format = "json"\ntrust_proxy = true\n')
        text = until_logged(tmp_path, "settings.restart_needed")
        lines = [json.loads(line) for line in text.splitlines() if '"settings.' in line]
        assert [line.get("live") or line.get("names") for line in lines] == [["max_sessions"], ["trust_proxy"]]
        post(f"{url}/session", {})


def test_sighup_reloads_and_what_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, "max_sessions = 1\n")
    with run_server(tmp_path) as (process, url):
        rest(process)
        process.send_signal(signal.SIGHUP)
        until_logged(tmp_path, "settings.reloaded")
        for number, wrong in enumerate(('default_agent = "nobody"\nmax_sessions = 2\n', "max_sessions = 0\n", "=\n"), 1):
            write(tmp_path, wrong)
            process.send_signal(signal.SIGHUP)
            until_logged(tmp_path, "settings.not_reloaded", number)
        post(f"{url}/session", {})
        with pytest.raises(urllib.error.HTTPError):
            post(f"{url}/session", {})
        assert json.loads(get(f"{url}/global/health"))["healthy"] is True
        process.terminate()
        assert process.wait(STOP_S + SLACK_S) == 0


def test_a_server_stops_when_its_terminal_is_lost(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    argv = [sys.executable, "-c", f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{RUN}", "serve", "--port", "0"]
    with (tmp_path / "stderr").open("w") as err:
        process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=err, env=environment(tmp_path), cwd=tmp_path, start_new_session=True
        )
    os.close(slave)
    try:
        with open(master, "rb", buffering=0, closefd=False) as out:
            said = b""
            while b"data " not in said:
                said += out.read(1000)
        process.send_signal(signal.SIGHUP)  # the terminal is there: it is a wish to reload
        until_logged(tmp_path, "settings.reloaded")
        os.close(master)
        assert process.wait(STOP_S + SLACK_S) == 0
    finally:
        process.kill()
        process.wait()


def certificate(folder: Path, name: str) -> bytes:
    """A new self-signed certificate in `cert.pem` and `key.pem`; as DER."""
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    argv += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(argv, check=True, capture_output=True, timeout=START_S)
    return ssl.PEM_cert_to_DER_cert((folder / "cert.pem").read_text())


def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    first = certificate(tmp_path, "first")
    argv = [sys.executable, "-c", RUN, "serve", "--port", "0", "--tls-cert", str(tmp_path / "cert.pem")]
    argv += ["--tls-key", str(tmp_path / "key.pem")]
    with (tmp_path / "stderr").open("w") as err:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=err, env=environment(tmp_path), cwd=tmp_path, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        rest(process)

        def peer_certificate() -> bytes:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with socket.create_connection(("127.0.0.1", port), START_S) as raw, context.wrap_socket(raw) as sock:
                return sock.getpeercert(binary_form=True) or b""

        assert peer_certificate() == first
        second = certificate(tmp_path, "second")
        process.send_signal(signal.SIGHUP)
        until_logged(tmp_path, "settings.reloaded")
        assert peer_certificate() == second
    finally:
        process.kill()
        process.communicate()
