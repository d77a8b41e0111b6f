"""Long sessions, opened by a server that has just started: the last page, an older one, the first event, and memory.

`python -m tests.bench --only long_sessions`. A real turn of the agent is repeated in the journal. A first server makes the
session from its journal and writes a checkpoint; the servers that are measured open it from that.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from statistics import median

from shim.sessions.history.checkpoints import EVERY
from tests.bench import work
from tests.bench.contenders import Contender, shim
from tests.bench.long_journal import repeat_last_turn
from tests.bench.machine import load_of_machine
from tests.e2e.support.places import Place

SIZES = (100, 1_000, 10_000, 100_000)
"""Messages of a session."""
TURN_MESSAGES = 10
"""A prompt and the agent's answers: nine texts."""
STARTS = 3
LIMIT = 100
"""Messages of a page, as clients of OpenCode 1 ask for them."""
REBUILD_S = 600
"""For a session of 100,000 messages that is made from its journal, and its checkpoint, on a busy machine."""
FRAME_S = 30
POLL_S = 0.1
HAS_CHECKPOINT = "SELECT count(*) FROM checkpoint WHERE session_id = ?"
MODEL = {"providerID": "claude", "modelID": "default"}


def figures_of(messages: int) -> work.Figures:
    """All figures of a session of so many messages, with `_N` behind their names: medians of STARTS."""
    place = Place.make()
    try:
        session, events, rebuild_s = build(place, messages)
        found = [measure(place, session) for _ in range(STARTS)]
        middle = {key: median(one[key] for one in found) for key in found[0]}
        figures = {**middle, "events": events, "rebuild_s": rebuild_s, "load": load_of_machine()}
        return {f"{key}_{messages}": value for key, value in figures.items()}
    finally:
        place.remove()


def build(place: Place, messages: int) -> tuple[str, int, float]:
    """A session with a checkpoint: its id, how many events it has, and seconds that it took to make it from its journal."""
    at = shim(place)
    try:
        session = at.create()
        at.request("POST", f"/session/{session}/prompt_async", _prompt(f"[messages:{TURN_MESSAGES - 2}]"))
        work.wait_idle(at, session)
    finally:
        at.close()
    path = next((place.home / "data").glob("*.db"))
    events = repeat_last_turn(path, session, messages // TURN_MESSAGES - 1)
    at = shim(place)
    try:
        at.request("GET", "/path")
        began = time.monotonic()
        while time.monotonic() - began < REBUILD_S:
            try:
                at.request("GET", f"/session/{session}/message?limit={LIMIT}")
                break
            except RuntimeError:  # one request is not waited for so long
                at.reconnect()
        took = time.monotonic() - began
        while events >= EVERY and not _has_checkpoint(path, session):
            if time.monotonic() - began > REBUILD_S:
                raise RuntimeError(f"{session} got no checkpoint within {REBUILD_S} s")
            time.sleep(POLL_S)
    finally:
        at.close()
    return session, events, took


def measure(place: Place, session: str) -> work.Figures:
    """One empty server beside one that opens the session, and one that opens it when it has answered something else."""
    began = time.monotonic()
    at = shim(place, place.root / "empty")
    try:
        at.request("GET", "/session?limit=1")
        bare_s, bare_cpu_s = time.monotonic() - began, at.usage().cpu_s
        time.sleep(work.SETTLE_S)
        empty = at.usage().rss
    finally:
        at.close()
    began = time.monotonic()
    at = shim(place)
    try:
        at.request("GET", f"/session/{session}/message?limit={LIMIT}")
        cold_s, cold_cpu_s = time.monotonic() - began, at.usage().cpu_s
    finally:
        at.close()
    at = shim(place)
    try:
        at.request("GET", "/session?limit=1")
        began, cpu_s = time.monotonic(), at.usage().cpu_s
        first_event_s = _attach(at, session)
        at.request("GET", f"/session/{session}/message?limit={LIMIT}")
        opened_s, opened_cpu_s = time.monotonic() - began, at.usage().cpu_s - cpu_s
        time.sleep(work.SETTLE_S)
        more = at.usage().rss - empty
        older_s = _older(at, session)
        return {"cold_s": cold_s, "cold_cpu_s": cold_cpu_s, "bare_s": bare_s, "bare_cpu_s": bare_cpu_s, "open_s": opened_s,
                "open_cpu_s": opened_cpu_s, "first_event_s": first_event_s, "older_s": older_s, "more_rss": more}  # fmt: skip
    finally:
        at.close()


def _attach(at: Contender, session: str) -> float:
    """Seconds to the first event of a client that reads the stream while the session is opened for it."""
    began = time.monotonic()
    with (
        socket.create_connection(("127.0.0.1", at.port), FRAME_S) as page,
        socket.create_connection(("127.0.0.1", at.port), FRAME_S) as stream,
    ):
        page.sendall(f"GET /session/{session}/message?limit={LIMIT} HTTP/1.0\r\n\r\n".encode())
        stream.sendall(b"GET /event HTTP/1.0\r\nUser-Agent: opencode/1.18.33\r\n\r\n")
        got = b""
        while b"server.connected" not in got:
            more = stream.recv(2**16)
            if not more:
                raise RuntimeError("the server has closed the stream")
            got += more
    return time.monotonic() - began


def _older(at: Contender, session: str) -> float:
    """Seconds for one of the pages before the last, the median of five."""
    page = json.loads(at.request("GET", f"/session/{session}/message?limit={LIMIT}"))
    taken: list[float] = []
    for _ in range(5):
        first = page[0]["info"]
        cursor = work.message_cursor(first["id"], first["time"]["created"])
        began = time.monotonic()
        page = json.loads(at.request("GET", f"/session/{session}/message?limit={LIMIT}&before={cursor}")) or page
        taken.append(time.monotonic() - began)
    return median(taken)


def _prompt(text: str) -> dict[str, object]:
    return {"parts": [{"type": "text", "text": text}], "model": MODEL}


def _has_checkpoint(path: Path, session: str) -> bool:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(HAS_CHECKPOINT, (session,)).fetchone()[0] > 0
