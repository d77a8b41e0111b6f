"""`make load`: what much work at once does to one server, written to docs/LOAD.md.

`python -m tests.bench.load [--rows ROW,...] [--out FILE]`. Each row starts a server of its own. While its work runs, another
process asks for `GET /session/status` every 20 ms; peak memory is the kernel's (VmHWM), of the server alone. A row that is not
over within its bound is given up and said so; all bounds together are less than eight minutes. Only all rows write the page.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from types import FrameType
from typing import Any, NamedTuple

from tests.bench import work
from tests.bench.contenders import HERE, Contender, shim
from tests.bench.long_journal import repeat_last_turn
from tests.bench.machine import CLAUDE, MOCK, describe, load_of_machine, memory, mib, server
from tests.bench.report import MIB, seconds
from tests.e2e.support.places import REPO

LIMIT_S = 0.050
"""What the 99th percentile of `GET /session/status` is to stay under."""
SESSIONS, RATE, PIECES = 200, 5, 100
SUBSCRIBERS, SUBSCRIBER_PIECES, SUBSCRIBER_RATE = 1_000, 200, 20
WRITTEN = 10_000
"""Messages that an agent says in one turn, as fast as it can."""
MESSAGES, TURN_MESSAGES = 100_000, 50
OUTPUTS, OUTPUT_BYTES = 4, 50 * 2**20
PERMISSIONS = 1_000
LINE_BYTES = 2**30
LINES = 1_000_000
UNREAD_PIECES = 20_000


class Late(Exception):
    """The bound of a row is over."""


@dataclass
class Result:
    """One row's figures: seconds that `GET /session/status` took, bytes before, at the peak and after, and what was seen."""

    what: str
    took: list[float] = field(default_factory=list[float])
    rest: int = 0
    peak: int = 0
    after: int = 0
    seen: str = ""
    load: float = 0.0

    @property
    def p99(self) -> float:
        return quantiles(self.took, n=100, method="inclusive")[98] if len(self.took) > 1 else 0.0


@contextmanager
def probe(at: Contender, result: Result) -> Iterator[None]:
    """Asks beside the work, and measures memory before, during and after it."""
    at.request("GET", "/session/status")  # the first request imports what answers it
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
        result.took += json.loads(out.splitlines()[-1])
    finally:
        process.kill()
        process.wait()
    result.peak = max(result.peak, memory(at.pid)[1])
    time.sleep(work.SETTLE_S)
    result.after = memory(at.pid)[0]


def ask(at: Contender, text: str, model: dict[str, str] | None = None) -> str:
    """A prompt in a new session; its id."""
    session = at.create()
    send(at, session, text, model)
    return session


def send(at: Contender, session: str, text: str, model: dict[str, str] | None = None) -> None:
    body = {"parts": [{"type": "text", "text": text}], "model": model or CLAUDE}
    at.request("POST", f"/session/{session}/prompt_async", body)


def load_streams(result: Result) -> None:
    with server() as at:
        sessions = [at.create() for _ in range(SESSIONS)]
        for session in sessions:  # so that all agents run
            send(at, session, "hello")
        for session in sessions:
            work.wait_idle(at, session)
        with probe(at, result), work.readers(at, 1, turns=SESSIONS, kind="stamps") as one:
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


def load_subscribers(result: Result) -> None:
    with server() as at:
        session = at.create()
        at.prompt(session, deltas=1)
        work.wait_idle(at, session)
        with probe(at, result), work.readers(at, SUBSCRIBERS) as readers:
            at.prompt(session, deltas=SUBSCRIBER_PIECES, rate=SUBSCRIBER_RATE)
            got = readers.results()
        lost = sum(max(got["counts"]) - count for count in got["counts"])
        result.seen = f"{sum(got['counts']):,} pieces delivered, {lost} lost"


def unread(result: Result) -> None:
    with server() as at:
        session = at.create()
        at.prompt(session, deltas=1)
        work.wait_idle(at, session)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", at.port))
            deaf.sendall(b"GET /event HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: opencode/1.18.33\r\n\r\n")
            with probe(at, result), work.readers(at, 1) as other:
                at.prompt(session, deltas=UNREAD_PIECES)
                got = other.results()
        result.seen = f"another reader got {got['counts'][0]:,} of {UNREAD_PIECES:,}; the deaf one was dropped"
        if "subscriber.dropped" not in at.child.log() and "subscriber.stalled" not in at.child.log():
            result.seen = result.seen.replace("was dropped", "was kept: what waits for it fits into its bounds")


def load_writes(result: Result) -> None:
    with server() as at:
        session = at.create()
        at.prompt(session, deltas=1)
        work.wait_idle(at, session)
        with probe(at, result):
            began = time.monotonic()
            send(at, session, f"[messages:{WRITTEN}]")
            work.wait_idle(at, session)
            took = time.monotonic() - began
        count = len(json.loads(at.request("GET", f"/session/{session}/message")))
        result.seen = f"turn over in {seconds(took)}, {count - 3:,} of {WRITTEN + 1:,} messages are there"


def long_session(result: Result) -> None:
    """A server that is started on it, and people who open it, read all of it and go on with it."""
    with server() as first:
        session = first.create()
        send(first, session, f"[messages:{TURN_MESSAGES - 2}]")
        work.wait_idle(first, session)
        first.close()
        data = first.place.home / "data"
        events = repeat_last_turn(next(data.glob("*.db")), session, MESSAGES // TURN_MESSAGES - 1)
        at = shim(first.place)
        try:
            steps: list[float] = []
            with probe(at, result):
                for limit in ("?limit=100", "", "?limit=100"):
                    began = time.monotonic()
                    found = at.request("GET", f"/session/{session}/message{limit}")
                    steps.append(time.monotonic() - began)
                    if not limit:
                        size, count = len(found), found.count(b'{"info":')
                began = time.monotonic()
                send(at, session, "hello")
                work.wait_idle(at, session)
                steps.append(time.monotonic() - began)
            result.seen = (
                f"{events:,} events; its last 100 messages are there after {seconds(steps[0])}, all {count:,} "
                f"({size / MIB:.0f} MiB) in {seconds(steps[1])}, the last 100 again in {seconds(steps[2])}; "
                f"a prompt in it is answered in {seconds(steps[3])}"
            )
        finally:
            at.close()


def output(result: Result) -> None:
    with server() as at:
        session = at.create()
        at.prompt(session, deltas=1)
        work.wait_idle(at, session)
        with probe(at, result), work.readers(at, 20, turns=OUTPUTS) as readers:
            began = time.monotonic()
            for _ in range(OUTPUTS):
                send(at, session, f"[output:{OUTPUT_BYTES}]")
                work.wait_idle(at, session)
            got = readers.results()
            took = (time.monotonic() - began) / OUTPUTS
        messages = json.loads(at.request("GET", f"/session/{session}/message"))
        states = [part["state"] for message in messages for part in message["parts"] if part["type"] == "tool"]
        kept = [len(state.get("output", "")) for state in states if state["status"] == "completed"]
        result.seen = (
            f"a turn is over in {seconds(took)}; {len(kept)} of {OUTPUTS} tools are completed, "
            f"{max(kept, default=0) / 2**10:.0f} KiB of each are shown; "
            f"{max(got['bytes']) / OUTPUTS / MIB:.1f} MiB a reader and output"
        )


def permissions(result: Result) -> None:
    with server() as at:
        with probe(at, result):
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


def flood(result: Result, text: str) -> None:
    with server() as at:
        session, other = at.create(), at.create()
        send(at, session, "hello")
        send(at, other, "hello")
        work.wait_idle(at, session)
        work.wait_idle(at, other)
        with probe(at, result):
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


class Row(NamedTuple):
    """What is done, the work, and seconds after which it is given up."""

    what: str
    work: Callable[[Result], None]
    bound_s: int


ROWS: dict[str, Row] = {
    "streaming": Row(f"{SESSIONS} sessions stream at once, {RATE} pieces a second each", load_streams, 60),
    "subscribing": Row(
        f"{SUBSCRIBERS:,} SSE subscribers, one session at {SUBSCRIBER_RATE} pieces a second", load_subscribers, 40
    ),
    "unread": Row(
        f"a subscriber that never reads, while {UNREAD_PIECES:,} pieces are written as fast as they can be", unread, 25
    ),
    "written": Row(f"an agent says {WRITTEN:,} messages in one turn, as fast as it can", load_writes, 30),
    "long": Row(f"a server is started on a session of {MESSAGES:,} messages, which is read and gone on with", long_session, 70),
    "output": Row(f"a tool output of {OUTPUT_BYTES // 2**20} MB, {OUTPUTS} times, with 20 readers", output, 30),
    "permissions": Row(f"{PERMISSIONS:,} sessions that wait for a permission", permissions, 50),
    "line": Row("an agent writes one line of 1 GiB", lambda result: flood(result, f"[line:{LINE_BYTES}]"), 25),
    "lines": Row(f"an agent writes {LINES:,} lines that are no messages", lambda result: flood(result, f"[lines:{LINES}]"), 145),
}


def run(row: Row) -> Result:
    """The row, however it ends: late, or with an error that is then what was seen."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise Late(f"NOT FINISHED within {row.bound_s} s")

    result = Result(row.what)
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(row.bound_s)
    try:
        row.work(result)
    except Late as error:
        result.seen = str(error)
    except Exception as error:
        result.seen = f"FAILED: {type(error).__name__}: {error}".replace("\n", " ").replace("|", "/")[:300]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return result


HEAD = """<!-- Written by tests/bench/load.py (`make load`); do not edit. -->
# Load

Each row is a fresh server with SQLite on disk, agents of its own as processes, and clients in other processes on the same
machine. Beside the work, `GET /session/status` is asked every 20 ms; it is to answer within {limit} ms at the 99th percentile.
Memory is the server's alone: at rest before the work, the kernel's peak while it ran, and one second after it.

Machine: {machine}.
The load average of the minute before each row is given: what the row before it did, and what else ran. Where it is far above the
number of processors, the times are not the server's alone, and rows may not be finished within their bounds.

| work | status p50 | p99 | most | asked | memory before | peak | after | load before | what was seen |
|---|---|---|---|---|---|---|---|---|---|
"""


def page(results: list[Result]) -> str:
    """The whole page: the rows, and what they come to."""
    head = HEAD.format(limit=round(LIMIT_S * 1000), machine=describe())
    return head + "".join(row(one) for one in results) + "\n" + "\n".join(conclusions(results)) + "\n"


def conclusions(results: list[Result]) -> list[str]:
    """What the figures say, counted from them."""
    whole = [one for one in results if one.took]
    missed = [one for one in whole if one.p99 > LIMIT_S]
    peak = max(whole, key=lambda one: one.peak, default=Result(""))
    out = [f"- {len(whole)} of {len(results)} rows were finished."]
    limit = round(LIMIT_S * 1000)
    out += [f"- The {limit} ms are missed by: {one.what} ({seconds(one.p99)})." for one in missed] or [
        f"- The {limit} ms are kept."
    ]
    out += [f"- Most memory: {mib(peak.peak)} ({peak.what}); of the other rows "
            f"{mib(max((one.peak for one in whole if one is not peak), default=0))}."]  # fmt: skip
    if any(len(one.took) < 100 for one in whole):
        out += ["- Where fewer than 100 answers came, the 99th percentile lies between the last two of them."]
    return out


def row(one: Result) -> str:
    """One line of the table."""
    if not one.took:
        return f"| {one.what} {'| ' * 7}| {one.load:.1f} | {one.seen} |\n"
    times = [seconds(value) for value in (median(one.took), one.p99, max(one.took))]
    if one.p99 > LIMIT_S:
        times[1] = f"**{times[1]}**"
    sizes = [mib(value) for value in (one.rest, one.peak, one.after)]
    return f"| {one.what} | {' | '.join(times)} | {len(one.took):,} | {' | '.join(sizes)} | {one.load:.1f} | {one.seen} |\n"


def main() -> int:
    """The exit code: 1 if a row was not finished."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load", description=__doc__)
    parser.add_argument("--rows", default="", help=f"separated by commas or spaces: {', '.join(ROWS)}")
    parser.add_argument("--out", type=Path, default=REPO / "docs" / "LOAD.md")
    wanted = parser.parse_args()
    names = wanted.rows.replace(",", " ").split()
    if unknown := set(names) - ROWS.keys():
        parser.error(f"there is no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    results: list[Result] = []
    for name in names or ROWS:
        results.append(run(ROWS[name]))
        print(row(results[-1]), end="", file=sys.stderr, flush=True)
    if not names:
        wanted.out.write_text(page(results))
        print(f"wrote {wanted.out}")
    return 0 if all(one.took for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
