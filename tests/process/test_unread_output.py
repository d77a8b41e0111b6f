"""A server whose output is read by nobody goes on answering, and ends when it is told to."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.process.test_serve import RUN, SLACK_S, START_S, STOP_S, environment

pytestmark = pytest.mark.slow

REQUESTS = 20_000
LONG_PATH = "/nowhere/" + "x" * 3000
"""Makes long lines in the log, so that its queue is full soon."""
ANSWER_S = 10.0
"""For one answer on a busy machine; a server that hangs gives none at all."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def full_pipe() -> tuple[int, int]:
    """A pipe into which nothing fits any more."""
    inner, outer = os.pipe()
    os.set_blocking(outer, False)
    with suppress(BlockingIOError):
        while os.write(outer, b"x" * 4096):
            pass
    os.set_blocking(outer, True)
    return inner, outer


def connect(port: int, process: subprocess.Popen[bytes]) -> http.client.HTTPConnection:
    """When it listens, which its stdout cannot tell."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert process.poll() is None
        with suppress(ConnectionRefusedError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
            connection.connect()
            return connection
    raise AssertionError(f"it did not listen within {START_S} s")


def ask(connection: http.client.HTTPConnection, path: str, status: int = 200) -> bytes:
    connection.request("GET", path)
    with connection.getresponse() as answer:
        assert answer.status == status
        return answer.read()


def lines_dropped(connection: http.client.HTTPConnection, stream: str) -> float:
    metrics = ask(connection, "/metrics").decode()
    name = f'opencode_shim_output_lines_dropped_total{{stream="{stream}"}} '
    return float(metrics.split(name)[1].split("\n")[0])


@contextmanager
def run_server(home: Path, stdout: int, stderr: int) -> Iterator[tuple[subprocess.Popen[bytes], http.client.HTTPConnection]]:
    port = free_port()
    argv = [sys.executable, "-c", RUN, "serve", "--port", str(port), "--directory", str(home), "--log-level", "debug"]
    settings = {"SHIM_LOG_FORMAT": "json"}
    process = subprocess.Popen(argv, env=environment(home, **settings), stdout=stdout, stderr=stderr)
    try:
        connection = connect(port, process)
        try:
            yield process, connection
        finally:
            connection.close()
    finally:
        process.kill()
        process.wait(START_S)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.mark.timeout(300)
def test_twenty_thousand_requests_are_answered_when_both_pipes_are_full(tmp_path: Path) -> None:
    """As those that start the program do, which read no further than its first line; at level debug each request is a line."""
    pipes = [full_pipe(), full_pipe()]
    with run_server(tmp_path, pipes[0][1], pipes[1][1]) as (process, connection):
        for _ in range(REQUESTS):
            ask(connection, "/global/health")
        assert lines_dropped(connection, "stderr") > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S + SLACK_S) == 0
    for end in (end for pipe in pipes for end in pipe):
        os.close(end)


@pytest.mark.timeout(180)
def test_dropped_lines_are_reported_when_a_reader_returns(tmp_path: Path) -> None:
    with run_server(tmp_path, subprocess.DEVNULL, subprocess.PIPE) as (process, connection):
        missing = 0.0
        while not missing:
            for _ in range(100):
                ask(connection, LONG_PATH, 404)
            missing = lines_dropped(connection, "stderr")
        assert process.stderr is not None
        told = first_dropped_note(process.stderr)
        assert told["stream"] == "stderr"
        assert told["lines"] >= missing
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(STOP_S + SLACK_S) == 0
        for line in rest.splitlines():
            json.loads(line)


def first_dropped_note(stderr: BinaryIO) -> dict[str, object]:
    for line in stderr:
        entry = json.loads(line)  # no line is cut in two
        if entry["event"] == "output.dropped":
            return entry
    raise AssertionError("it was not told")
