"""`make load`: what much work at once does to one server, written to docs/LOAD.md.

`python -m tests.bench.load [--only ROW,...] [--out FILE]`. Each row starts a server of its own. While its work runs, another
process asks for `GET /session/status` every 20 ms; peak memory is the kernel's (VmHWM), of the server alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.bench import work
from tests.bench.contenders import HERE, Contender, shim
from tests.bench.report import MIB, seconds
from tests.e2e.support.places import REPO, Place

LIMIT_S = 0.050
"""What the 99th percentile of `GET /session/status` is to stay under."""
SESSIONS, RATE, PIECES = 200, 5, 100
SUBSCRIBERS, SUBSCRIBER_PIECES, SUBSCRIBER_RATE = 1_000, 200, 20
MESSAGES = 100_000
OUTPUT_BYTES = 50 * 2**20
PERMISSIONS = 1_000
LINE_BYTES = 2**30
LINES = 1_000_000
UNREAD_PIECES = 20_000
MOCK = {"providerID": "mock", "modelID": "mock"}


@dataclass
class Result:
    """One row's figures: seconds that `GET /session/status` took, bytes before, at the peak and after, and what was seen."""

    what: str
    took: list[float] = field(default_factory=list)
    rest: int = 0
    peak: int = 0
    after: int = 0
    seen: str = ""
    load: float = 0.0

    @property
    def p99(self) -> float:
        return quantiles(self.took, n=100, method="inclusive")[98] if len(self.took) > 1 else 0.0


def memory(pid: int) -> tuple[int, int]:
    """(resident, the most that it ever was) of a process, in bytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    now, most = (int(re.search(rf"^{name}:\s+(\d+) kB", text, re.M)[1]) * 1024 for name in ("VmRSS", "VmHWM"))
    return now, most


def load_of_machine() -> float:
    return os.getloadavg()[0]


@contextmanager
def probing(at: Contender, result: Result) -> Iterator[None]:
    """Asks beside the work, and measures memory before, during and after it."""
    time.sleep(work.SETTLE_S)
    Path(f"/proc/{at.pid}/clear_refs").write_text("5")  # the peak begins anew
    result.rest, result.load = memory(at.pid)[0], load_of_machine()
    process = subprocess.Popen(
        [sys.executable, str(HERE / "probe.py"), str(at.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        out, _ = process.communicate("\n", timeout=work.ANSWER_S)
        result.took = json.loads(out.splitlines()[-1])
    finally:
        process.kill()
        process.wait()
    result.peak = memory(at.pid)[1]
    time.sleep(work.SETTLE_S)
    result.after = memory(at.pid)[0]


@contextmanager
def server() -> Iterator[Contender]:
    place = Place.make()
    at = shim(place)
    try:
        yield at
    finally:
        at.close()
        place.remove()


def ask(at: Contender, text: str, model: dict[str, str] | None = None) -> str:
    """A prompt in a new session; its id."""
    session = at.create()
    send(at, session, text, model)
    return session


def send(at: Contender, session: str, text: str, model: dict[str, str] | None = None) -> None:
    body = {"parts": [{"type": "text", "text": text}], "model": model or {"providerID": "claude", "modelID": "default"}}
    at.request("POST", f"/session/{session}/prompt_async", body)


def streaming() -> Result:
    result = Result(f"{SESSIONS} sessions stream at once, {RATE} pieces a second each")
    with server() as at:
        sessions = [at.create() for _ in range(SESSIONS)]
        for session in sessions:  # so that all agents run
            send(at, session, "hello")
        for session in sessions:
            work.wait_idle(at, session)
        with probing(at, result), work.readers(at, 1, turns=SESSIONS, kind="stamps") as one:
            began = time.monotonic()
            for session in sessions:
                at.prompt(session, deltas=PIECES, rate=RATE)
            asked = time.monotonic() - began
            got = one.results()
        cut = work.percentiles(got["latencies_ns"])
        result.seen = (
            f"{len(got['latencies_ns']):,} of {SESSIONS * PIECES:,} pieces; from the agent's write to the reader's read p50 "
            f"{seconds(cut['p50'])}, p99 {seconds(cut['p99'])}; {SESSIONS} prompts taken in {seconds(asked)}"
        )
    return result


def subscribing() -> Result:
    result = Result(f"{SUBSCRIBERS:,} SSE subscribers, one session at {SUBSCRIBER_RATE} pieces a second")
    with server() as at:
        session = at.create()
        at.prompt(session, deltas=1)
        work.wait_idle(at, session)
        with probing(at, result), work.readers(at, SUBSCRIBERS) as readers:
            at.prompt(session, deltas=SUBSCRIBER_PIECES, rate=SUBSCRIBER_RATE)
            got = readers.results()
        lost = sum(max(got["counts"]) - count for count in got["counts"])
        result.seen = f"{sum(got['counts']):,} pieces delivered, {lost} lost"
    return result


def unread() -> Result:
    result = Result(f"a subscriber that never reads, while {UNREAD_PIECES:,} pieces are written as fast as they can be")
    with server() as at:
        session = at.create()
        at.prompt(session, deltas=1)
        work.wait_idle(at, session)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", at.port))
            deaf.sendall(b"GET /event HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: opencode/1.18.33\r\n\r\n")
            with probing(at, result), work.readers(at, 1) as other:
                at.prompt(session, deltas=UNREAD_PIECES)
                got = other.results()
        result.seen = f"another reader got {got['counts'][0]:,} of {UNREAD_PIECES:,}; the deaf one was dropped"
        if "subscriber.dropped" not in at.child.log() and "subscriber.stalled" not in at.child.log():
            result.seen = result.seen.replace("was dropped", "was kept: what waits for it fits into its bounds")
    return result


def long_session() -> Result:
    result = Result(f"a session of {MESSAGES:,} messages: written, read whole, read by the page")
    with server() as at:
        session = at.create()
        at.prompt(session, deltas=1)
        work.wait_idle(at, session)
        with probing(at, result):
            began = time.monotonic()
            send(at, session, f"[messages:{MESSAGES}]")
            work.wait_idle(at, session)
            wrote = time.monotonic() - began
            began = time.monotonic()
            whole = at.request("GET", f"/session/{session}/message")
            read = time.monotonic() - began
            times: list[float] = []
            for _ in range(9):
                began = time.monotonic()
                at.request("GET", f"/session/{session}/message?limit=100")
                times.append(time.monotonic() - began)
            count = len(json.loads(whole))
        result.seen = (
            f"written in {seconds(wrote)}; {count:,} messages ({len(whole) / MIB:.0f} MiB) read in {seconds(read)}, "
            f"the last 100 in {seconds(median(times))}"
        )
    return result


def output() -> Result:
    result = Result(f"a tool output of {OUTPUT_BYTES // 2**20} MB, with 20 readers")
    with server() as at:
        session = at.create()
        at.prompt(session, deltas=1)
        work.wait_idle(at, session)
        with probing(at, result), work.readers(at, 20) as readers:
            began = time.monotonic()
            send(at, session, f"[output:{OUTPUT_BYTES}]")
            got = readers.results()
            took = time.monotonic() - began
        messages = json.loads(at.request("GET", f"/session/{session}/message"))
        tools = [part for message in messages for part in message["parts"] if part["type"] == "tool"]
        kept = len(tools[-1]["state"].get("output", "")) if tools else 0
        result.seen = (
            f"turn over in {seconds(took)}; the tool is {tools[-1]['state']['status'] if tools else 'not shown'}, "
            f"{kept / MIB:.1f} MiB of it are shown; {max(got['bytes']) / MIB:.1f} MiB a reader"
        )
    return result


def permissions() -> Result:
    result = Result(f"{PERMISSIONS:,} sessions that wait for a permission")
    with server() as at:
        with probing(at, result):
            began = time.monotonic()
            sessions = [ask(at, "permission", MOCK) for _ in range(PERMISSIONS)]
            waiting: list[Any] = []
            while len(waiting) < PERMISSIONS and time.monotonic() - began < work.ANSWER_S:
                waiting = json.loads(at.request("GET", "/permission"))
            asked = time.monotonic() - began
            began = time.monotonic()
            for one in waiting:
                at.request("POST", f"/permission/{one['id']}/reply", {"reply": "once"})
            for session in sessions:
                work.wait_idle(at, session)
            answered = time.monotonic() - began
        result.seen = f"{len(waiting):,} asked in {seconds(asked)}, answered and idle in {seconds(answered)}"
    return result


def flood(what: str, text: str) -> Result:
    result = Result(what)
    with server() as at:
        session, other = at.create(), at.create()
        send(at, session, "hello")
        send(at, other, "hello")
        work.wait_idle(at, session)
        work.wait_idle(at, other)
        with probing(at, result):
            began = time.monotonic()
            send(at, session, text)
            send(at, other, "hello")
            work.wait_idle(at, other)
            meanwhile = time.monotonic() - began
            work.wait_idle(at, session)
            took = time.monotonic() - began
        said = at.request("GET", f"/session/{session}/message?limit=1")
        result.seen = (
            f"turn over in {seconds(took)}, {'with' if b'word00000' in said else 'WITHOUT'} its answer; "
            f"another session's turn meanwhile took {seconds(meanwhile)}"
        )
    return result


ROWS: dict[str, Callable[[], Result]] = {
    "streaming": streaming,
    "subscribing": subscribing,
    "unread": unread,
    "long": long_session,
    "output": output,
    "permissions": permissions,
    "line": lambda: flood("an agent writes one line of 1 GiB", f"[line:{LINE_BYTES}]"),
    "lines": lambda: flood("an agent writes 1,000,000 lines that are no messages", f"[lines:{LINES}]"),
}

HEAD = """<!-- Written by tests/bench/load.py (`make load`); do not edit. -->
# Load

Each row is a fresh server with SQLite on disk, agents of its own as processes, and clients in other processes on the same
machine. Beside the work, `GET /session/status` is asked every 20 ms; it is to answer within {limit} ms at the 99th percentile.
Memory is the server's alone: at rest before the work, the kernel's peak while it ran, and one second after it.

Machine: {cpus} processors ({model}), {memory} GiB, Linux {kernel}, Python {python}. It was shared: the load average of
the minute before each row is given. With {cpus} or more the processors were taken, and the times are not the server's alone.

| work | status p50 | p99 | most | asked | memory before | peak | after | load before | what was seen |
|---|---|---|---|---|---|---|---|---|---|
"""


def page(results: list[Result]) -> str:
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    head = HEAD.format(
        limit=round(LIMIT_S * 1000),
        cpus=os.cpu_count(),
        model=cpu[1] if cpu else "unknown",
        memory=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        kernel=os.uname().release,
        python=sys.version.split()[0],
    )
    return head + "".join(row(one) for one in results)


def row(one: Result) -> str:
    times = [seconds(value) for value in (median(one.took), one.p99, max(one.took))]
    if one.p99 > LIMIT_S:
        times[1] = f"**{times[1]}**"
    sizes = [f"{value / MIB:.0f} MiB" for value in (one.rest, one.peak, one.after)]
    return f"| {one.what} | {' | '.join(times)} | {len(one.took):,} | {' | '.join(sizes)} | {one.load:.1f} | {one.seen} |\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load", description=__doc__)
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(ROWS)}")
    parser.add_argument("--out", type=Path, default=REPO / "docs" / "LOAD.md")
    wanted = parser.parse_args()
    results: list[Result] = []
    for name in [name for name in wanted.only.split(",") if name] or list(ROWS):
        result = ROWS[name]()
        print(row(result), end="", file=sys.stderr, flush=True)
        results.append(result)
    if wanted.only:
        return 0
    wanted.out.write_text(page(results))
    print(f"wrote {wanted.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
