"""The rows of the benchmark: what is measured on whom. A row is a function that starts its contenders itself."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import work
from tests.bench.contenders import STARTERS, Contender, shim
from tests.e2e.support.places import Place

Found = dict[str, work.Figures]
MANY_READERS = (1, 20, 200)
PARTS = (500, 1_000, 2_000)
SESSIONS = 1_000
LISTED = 10_000
STREAMS, RATE, STREAM_PIECES = 100, 100, 300
JOURNAL_EVENTS = 100_000


@dataclass(frozen=True)
class Row:
    """`every_round`: cheap enough, and noisy enough, to be measured in each round."""

    run: Callable[[], Found]
    every_round: bool = True


@contextmanager
def running(name: str, *more: Any, **settings: str) -> Iterator[Contender]:
    place = Place.make()
    contender = STARTERS[name](place, *more, **settings)
    try:
        yield contender
    finally:
        contender.close()
        place.remove()


def frames_of(deltas: int) -> Path:
    """One answer as our server writes it, for the floor to write again. In a file that the caller removes."""
    with running("shim") as at:
        import socket

        session = at.create()
        with socket.create_connection(("127.0.0.1", at.port)) as sock:
            sock.sendall(b"GET /event HTTP/1.0\r\nUser-Agent: opencode/1.18.33\r\n\r\n")
            at.prompt(session, deltas=deltas)
            got = b""
            while b'"session.idle"' not in got[-2000:]:
                got += sock.recv(2**16)
    body = got.partition(b"\r\n\r\n")[2]
    path = Path(tempfile.mkstemp(prefix="frames-")[1])
    frames = [frame for frame in body.split(b"\n\n") if b"data: " in frame]
    path.write_bytes(b"\n\n".join(frames))
    return path


def cold() -> Found:
    """Start to healthy, and memory at rest."""
    found: Found = {}
    for name in STARTERS:
        with running(name) as at:
            wall, cpu = at.cold_s, at.cold_cpu_s
            time.sleep(work.SETTLE_S)
            found[name] = {"s": wall, "cpu": cpu, "rss": at.usage().rss}
    return found


def creates() -> Found:
    """Sessions one by one; for us also what one keeps of memory. Native is asked for fewer, it takes long."""
    found: Found = {}
    for name, count in (("shim", SESSIONS), ("native", 100), ("floor", SESSIONS)):
        with running(name) as at:
            found[name] = work.creating(at, count)
    return found


def answers() -> Found:
    """2,000 pieces to 1, 20 and 200 readers, then `GET message` of them, and the memory at the end of it all."""
    frames = frames_of(work.DELTAS)
    found: Found = {}
    try:
        for name in ("shim", "native", "floor"):
            with running(name, *([frames] if name == "floor" else [])) as at:
                figures: work.Figures = {}
                for count in MANY_READERS:
                    got = work.answer(at, count)
                    figures |= {f"{key}_{count}": value for key, value in got.items()}
                if name != "floor":
                    session = at.create()
                    at.prompt(session, deltas=work.DELTAS)
                    time.sleep(work.SETTLE_S)
                    work.wait_idle(at, session)
                    figures["message_s"] = work.reading(at, session)["s"]
                figures["rss"] = at.usage().rss
                found[name] = figures
    finally:
        frames.unlink()
    return found


def subscribers() -> Found:
    """Memory per waiting reader."""
    found: Found = {}
    for name in ("shim", "native", "floor"):
        with running(name) as at:
            found[name] = work.subscribing(at)
    return found


def compressed() -> Found:
    """Bytes of the same answer when the reader takes gzip, which loopback ones get only when it is set so."""
    with running("shim", SHIM_COMPRESS_STREAMS="always") as at:
        plain, small = work.answer(at, 1), work.answer(at, 1, encoding="gzip")
        return {"shim": {"plain": plain["bytes"], "gzip": small["bytes"], "cpu_plain": plain["cpu"], "cpu_gzip": small["cpu"]}}


def latencies() -> Found:
    """One quiet session at 100 pieces a second: from the agent's write to the reader's read; and the same over the floor."""
    found: Found = {}
    pieces = 300
    with running("shim") as at:
        session = at.create()
        at.prompt(session, deltas=1)
        time.sleep(work.SETTLE_S)
        found["shim"] = work.latency(at, lambda: at.prompt(session, deltas=pieces, rate=RATE), pieces=pieces)
    with running("floor") as at:
        at.mark, at.end = "content_block_delta", '"type": "result"'
        text = f"[deltas:{pieces}] [rate:{RATE}]"
        line = {"type": "user", "message": {"role": "user", "content": text}}
        found["floor"] = work.latency(at, lambda: _void(at.request("POST", "/session/x/pipe", line)), pieces=pieces)
    return found


def streams() -> Found:
    """100 sessions at once, each at 100 pieces a second."""
    with running("shim") as at:
        sessions = [at.create() for _ in range(STREAMS)]
        for session in sessions:  # so that all agents run
            at.prompt(session, deltas=1)
        for session in sessions:
            work.wait_idle(at, session)

        def ask() -> None:
            for session in sessions:
                at.prompt(session, deltas=STREAM_PIECES, rate=RATE)

        return {"shim": work.latency(at, ask, pieces=STREAMS * STREAM_PIECES, sessions=STREAMS)}


def parts() -> Found:
    """`GET message` of sessions of 500, 1,000 and 2,000 parts; the first prompt of a session is one text part more."""
    figures: work.Figures = {}
    with running("shim") as at:
        for count in PARTS:
            session = at.create()
            at.prompt(session, parts=count)
            time.sleep(work.SETTLE_S)
            work.wait_idle(at, session)
            got = work.reading(at, session)
            figures |= {f"s_{count}": got["s"], f"bytes_{count}": got["bytes"]}
    return {"shim": figures}


def lists() -> Found:
    """The list of 10,000 sessions."""
    with running("shim") as at:
        for _ in range(LISTED):
            at.create()
        return {"shim": {**work.listing(at, LISTED), "rss": at.usage().rss}}


def journal() -> Found:
    """Start on a journal of 100,000 events beside an empty one, the first read of its big session, bytes per event."""
    place = Place.make()
    data = place.home / "data"
    try:
        at = shim(place, data)
        empty, empty_cpu = at.cold_s, at.cold_cpu_s
        session = at.create()
        for _ in range(JOURNAL_EVENTS // 10_000):
            at.prompt(session, deltas=10_000)
            time.sleep(work.SETTLE_S)
            work.wait_idle(at, session)
        at.close()
        events, size = work.journal_size(data)
        at = shim(place, data)
        began = time.monotonic()
        messages = json.loads(at.request("GET", f"/session/{session}/message"))
        first = time.monotonic() - began
        figures = {"empty_s": empty, "empty_cpu": empty_cpu, "s": at.cold_s, "cpu": at.cold_cpu_s, "first_message_s": first,
                   "events": events, "bytes_per_event": size / events, "messages": len(messages)}  # fmt: skip
        at.close()
        return {"shim": figures}
    finally:
        place.remove()


def growth() -> Found:
    """Cost of one piece as the answer, the readers and the sessions grow: CPU microseconds each."""
    figures: work.Figures = {}
    with running("shim") as at:
        for deltas in (500, 2_000, 8_000, 32_000):
            figures[f"deltas_{deltas}"] = work.answer(at, 1, deltas)["cpu"] / deltas * 1e6
        for count in (1, 10, 50, 200):
            figures[f"readers_{count}"] = work.answer(at, count)["cpu"] / work.DELTAS / count * 1e6
        made = 0
        for sessions in (100, 1_000, 5_000):
            while made < sessions:
                at.create()
                made += 1
            figures[f"sessions_{sessions}"] = work.answer(at, 1)["cpu"] / work.DELTAS * 1e6
    return {"shim": figures}


def _void(_value: object) -> None:
    return None


ROWS: dict[str, Row] = {
    "cold": Row(cold),
    "creates": Row(creates),
    "answers": Row(answers),
    "subscribers": Row(subscribers, every_round=False),
    "compressed": Row(compressed, every_round=False),
    "latencies": Row(latencies),
    "streams": Row(streams, every_round=False),
    "parts": Row(parts, every_round=False),
    "lists": Row(lists, every_round=False),
    "journal": Row(journal, every_round=False),
    "growth": Row(growth, every_round=False),
}
