"""The work, one function a row: contender (or place) in, figures out. Times in seconds, sizes in bytes, `cpu` of the server."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from aiohttp import ClientSession

from shim.main.app import DATABASE
from tests.bench.contenders import HERE, Contender
from tests.bench.reader import STAMP

Figures = dict[str, float]

DELTAS = 2_000
ANSWER_S = 300
"""For the end of an answer."""
BENCH_ANSWER_S = 90
"""The same where one contender may not hold up the others."""
SLACK_S = 60
"""Readers give up by themselves, and say what has not come; for them to connect and to say it."""
TAKES = 3
"""So often an answer is given to the same number of readers; the median counts."""
SETTLE_S = 1.0
"""For a server to come to rest before its memory is read."""


@dataclass
class Readers:
    """A process of readers that is connected."""

    process: subprocess.Popen[bytes]
    answer_s: float

    def results(self) -> dict[str, Any]:
        """Waits until they have read the end. Raises RuntimeError that says what has not come."""
        try:
            out, _ = self.process.communicate(timeout=self.answer_s + SLACK_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"the readers have not said what they read within {self.answer_s + SLACK_S} s") from None
        return _reader_figures(out.decode())


def _reader_figures(out: str) -> dict[str, Any]:
    found = json.loads(out.splitlines()[-1]) if out.strip() else {"error": "they ended without a word"}
    if "error" in found:
        raise RuntimeError(f"the readers: {found['error']}")
    return found


@contextmanager
def readers(
    at: Contender, count: int, *, turns: int = 1, kind: str = "count", encoding: str = "", answer_s: float = ANSWER_S
) -> Iterator[Readers]:
    where = ["127.0.0.1", str(at.port), str(count), at.stream, at.mark, at.end, str(turns), kind, str(answer_s)]
    argv = [sys.executable, str(HERE / "reader.py"), *where, *([encoding] if encoding else [])]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, bufsize=0)  # nothing is read beyond its first line
    try:
        assert process.stdout is not None
        first = process.stdout.readline().decode()  # bounded by the reader itself
        if first.strip() != "ready":
            _reader_figures(first)
        yield Readers(process, answer_s)
    finally:
        process.kill()
        process.wait()


def answer(at: Contender, count: int, deltas: int = DELTAS, encoding: str = "") -> Figures:
    """One answer of so many pieces to so many readers, on a new session that has had its first, short turn."""
    session = start_session(at)
    return one_answer(at, session, count, deltas, encoding)


def start_session(at: Contender) -> str:
    """A session whose agent runs."""
    session = at.create()
    at.prompt(session, deltas=1)
    time.sleep(SETTLE_S)
    return session


def one_answer(at: Contender, session: str, count: int, deltas: int = DELTAS, encoding: str = "") -> Figures:
    """Pieces delivered a second, CPU, bytes a reader, pieces lost.

    The time is that from the prompt to the last reader's end of the turn, for everybody: native holds the first pieces of an
    answer back and then writes them in one go, so that from its first piece on it looks several times as fast as it is.
    `streaming_per_s` is from the first piece on.
    """
    with readers(at, count, encoding=encoding, answer_s=BENCH_ANSWER_S) as all_:
        before, began = at.usage().cpu_s, time.monotonic_ns()
        at.prompt(session, deltas=deltas)
        got = all_.results()
        cpu = at.usage().cpu_s - before
    if max(got["counts"]) < deltas * 0.9:
        raise RuntimeError(
            f"{at.name}: only {max(got['counts'])} pieces of {deltas} came; its log ends: {at.child.log()[-1000:]}"
        )
    whole = (got["end_ns"] - began) / 1e9
    delivered = sum(got["counts"])
    # A native model's own first pieces may be joined by its HTTP client: what is lost is counted against the most that came.
    return {
        "delivered_per_s": delivered / whole,
        "streaming_per_s": delivered / max(got["end_ns"] - got["first_ns"], 1) * 1e9,
        "whole_s": whole,
        "first_s": (got["first_ns"] - began) / 1e9,
        "cpu": cpu,
        "bytes": max(got["bytes"]),
        "lost": sum(max(got["counts"]) - count for count in got["counts"]),
        "pieces": max(got["counts"]),
    }


def answers(at: Contender, counts: Sequence[int]) -> Figures:
    """`TAKES` answers to each number of readers, each figure's median as `NAME_COUNT`.

    One answer before does not count: a server that is used is warm, and V8 compiles what it runs often.
    """
    session = start_session(at)
    one_answer(at, session, 1)
    figures: Figures = {}
    for count in counts:
        takes = [one_answer(at, session, count) for _ in range(TAKES)]
        figures |= {f"{key}_{count}": median(take[key] for take in takes) for key in takes[0]}
        figures[f"lost_{count}"] = max(take["lost"] for take in takes)
    return figures


def reading(at: Contender, session: str) -> Figures:
    """`GET message` of a session: median of nine, and its size."""
    times: list[float] = []
    size = 0
    for _ in range(9):
        began = time.monotonic()
        size = len(at.request("GET", f"/session/{session}/message"))
        times.append(time.monotonic() - began)
    return {"s": median(times), "bytes": size}


def measure_creation(at: Contender, count: int) -> Figures:
    """Sessions made one by one on one connection, after the first, which has the server load what it needs for that."""
    at.create()
    time.sleep(SETTLE_S)
    before, began = at.usage(), time.monotonic()
    for _ in range(count):
        at.create()
    took = time.monotonic() - began
    time.sleep(SETTLE_S)
    after = at.usage()
    return {"per_s": count / took, "cpu": (after.cpu_s - before.cpu_s) / count, "rss_each": (after.rss - before.rss) / count}


def measure_delegations(at: Contender, count: int) -> Figures:
    """Sessions of a client of MCP, one after the other: seconds to the answer of `wait`. Medians."""
    connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=BENCH_ANSWER_S)
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

    def use(tool: str, **arguments: str) -> dict[str, Any]:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        connection.request("POST", "/mcp", json.dumps(call), headers)
        text = connection.getresponse().read().removeprefix(b"event: message\ndata: ")
        return dict(json.loads(text)["result"]["structuredContent"])

    new, again = list[float](), list[float]()
    for _ in range(count):
        began = time.monotonic()
        session = use("start_session", agent="claude", prompt="[deltas:1]")["session"]
        use("wait", session=session)
        ended = time.monotonic()
        use("prompt", session=session, prompt="[deltas:1]")
        if use("wait", session=session)["state"] != "idle":
            raise RuntimeError("the session does not end its turn")
        new.append(ended - began)
        again.append(time.monotonic() - ended)
    connection.close()
    return {"new": median(new), "again": median(again)}


def measure_prompts(at: Contender, count: int) -> Figures:
    """Prompts to an agent that runs: from the request to the agent's read of it, and to the acknowledgement. Medians."""
    session = start_session(at)
    arrivals: list[float] = []
    acknowledged: list[float] = []
    for _ in range(count):
        began = time.monotonic_ns()
        at.request("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": "[arrival:1]"}], **at.model})
        acknowledged.append((time.monotonic_ns() - began) / 1e9)
        wait_idle(at, session)
        found = re.findall(rb"arrived=(\d+);", at.request("GET", f"/session/{session}/message?limit=2"))
        arrivals.append((int(found[-1]) - began) / 1e9)
    return {"write": median(arrivals), "ack": median(acknowledged)}


def measure_subscription(at: Contender, count: int = 200) -> Figures:
    """Memory of a reader that waits, after one that has left, for which the server loaded what it needs."""
    with readers(at, 1):
        pass
    time.sleep(SETTLE_S)
    before = at.usage().rss
    with readers(at, count):
        time.sleep(SETTLE_S)
        return {"rss_each": (at.usage().rss - before) / count}


def listing(at: Contender, count: int) -> Figures:
    """`GET /session` once so many sessions exist, with the limit that asks for all."""
    times: list[float] = []
    size = 0
    for _ in range(5):
        began = time.monotonic()
        size = len(at.request("GET", f"/session?limit={count}"))
        times.append(time.monotonic() - began)
    return {"s": median(times), "bytes": size}


def percentiles(ns: list[int]) -> Figures:
    if len(ns) < 100:
        raise RuntimeError(f"only {len(ns)} pieces carried their time")
    cut = quantiles(ns, n=100)
    return {"p50": cut[49] / 1e9, "p99": cut[98] / 1e9}


def latency(at: Contender, ask: Callable[[], None], *, pieces: int, sessions: int = 1) -> Figures:
    """From an agent's write of a piece to a reader's read of it, and how many pieces of so many did not come."""
    with readers(at, 1, turns=sessions, kind="stamps", answer_s=BENCH_ANSWER_S) as one:
        before = at.usage().cpu_s
        ask()
        got = one.results()
        cpu = at.usage().cpu_s - before
    found = got["latencies_ns"]
    return {**percentiles(found), "lost": pieces - len(found), "cpu": cpu}


async def editor_latency(at: Contender, session: str, ask: Callable[[], None], *, pieces: int) -> Figures:
    """From an agent's write of a piece to its read by an editor, over `/acp`."""
    found: list[int] = []
    async with ClientSession() as client, client.ws_connect(f"http://127.0.0.1:{at.port}/acp") as socket:

        async def call(method: str, **params: Any) -> None:
            await socket.send_json({"jsonrpc": "2.0", "id": method, "method": method, "params": params})
            while json.loads(await socket.receive_str(timeout=BENCH_ANSWER_S)).get("id") != method:
                pass

        await call("initialize", protocolVersion=1)
        await call("session/resume", sessionId=session, cwd="/")
        await asyncio.to_thread(ask)
        while len(found) < pieces:
            line, now = await socket.receive_str(timeout=BENCH_ANSWER_S), time.monotonic_ns()
            found += [now - int(stamp) for stamp in STAMP.findall(line.encode())]
    return {f"acp_{key}": value for key, value in percentiles(found).items()}


def message_cursor(message_id: str, created_ms: int) -> str:
    """What asks for the messages before this one, as OpenCode 1 writes it."""
    return base64.urlsafe_b64encode(json.dumps({"id": message_id, "time": created_ms}).encode()).decode().rstrip("=")


def wait_idle(at: Contender, session: str) -> None:
    """Until its turn is over, by asking."""
    end = time.monotonic() + ANSWER_S
    while time.monotonic() < end:
        if json.loads(at.request("GET", "/session/status")).get(session, {"type": "idle"})["type"] == "idle":
            return
        time.sleep(0.02)
    raise RuntimeError(f"{session} is not idle after {ANSWER_S} s")


def journal_size(data: Path) -> tuple[int, int]:
    """(events, bytes of the file) of a stopped server's journal."""
    path = data / DATABASE
    with sqlite3.connect(path) as db:
        return db.execute("SELECT sum(sequence - coalesce(first, sequence) + 1) FROM event").fetchone()[0], path.stat().st_size
