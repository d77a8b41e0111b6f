"""The rows of the benchmark: what is measured on whom. A row is a function that starts its contenders itself."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench import first_word, long_sessions, work
from tests.bench.contenders import STARTERS, Contender, Floor, Native, Shim, shim
from tests.e2e.support.places import Place

Found = dict[str, work.Figures]
Note = Callable[[str], None]
"""Told what went wrong; the rest is measured all the same."""
MANY_READERS = (1, 20, 200)
PARTS = (500, 1_000, 2_000)
STARTS = 3
"""Of each contender in a round: of ours, every other took 0.5 s of processor time instead of 0.37 (15 starts)."""
SESSIONS = 1_000
LISTED = 10_000
STREAMS, RATE, STREAM_PIECES = 100, 100, 300
HOOKS = 500
DELEGATIONS = 30
PROMPTS, PROJECT_FILES = 60, (50, 5_000)
JOURNAL_EVENTS = 100_000
FRAMES_S = 30
"""For the next bytes of the answer that the floor is to write."""
ROW_S = 240
"""For one row of all its contenders."""
CONTENDER_S = 120
"""For one contender in one row: its start, its work, its end."""


@dataclass(frozen=True)
class Row:
    """`every_round`: cheap enough, and noisy enough, to be measured in each round. `most_s`: it may take so long."""

    run: Callable[[Note], Found]
    every_round: bool = True
    most_s: float = ROW_S


class TooLong(Exception):
    """A contender was not done in time."""


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """The block, but no longer: whatever it waits for then is broken off. Raises TooLong."""

    def over(_number: int, _frame: object) -> None:
        raise TooLong(f"{what} was not done within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def measure_each(note: Note, names: Iterable[str], measure: Callable[[Contender], work.Figures], *more: Any) -> Found:
    """The figures of each contender; one that cannot is noted and has none. `more` is for the start of the floor."""
    found: Found = {}
    for name in names:
        try:
            with within(CONTENDER_S, name), run_contender(name, *(more if name == "floor" else ())) as at:
                found[name] = measure(at)
        except Exception as error:  # whatever it does, the others are measured
            note(f"{name}: {error or type(error).__name__}")
    return found


def middle(times: list[Found]) -> Found:
    """The median of each figure of each contender over the times that it was measured."""
    names = {who: set(figures) for found in times for who, figures in found.items()}
    return {
        who: {key: median(found[who][key] for found in times if key in found.get(who, {})) for key in keys}
        for who, keys in names.items()
    }


@contextmanager
def run_contender(name: str, *more: Any, **settings: str) -> Iterator[Contender]:
    place = Place.make()
    contender = STARTERS[name](place, *more, **settings)
    try:
        yield contender
    finally:
        contender.close()
        place.remove()


def frames_of(deltas: int) -> Path:
    """One answer as our server writes it, with an event for each piece. For the floor, in a file that the caller removes."""
    with run_contender("shim") as at:
        session = at.create()
        with socket.create_connection(("127.0.0.1", at.port), FRAMES_S) as sock:
            sock.sendall(b"GET /event HTTP/1.0\r\nUser-Agent: opencode/1.18.33\r\n\r\n")
            at.prompt(session, deltas=deltas)
            got = b""
            while b'"session.idle"' not in got[-2000:]:
                more = sock.recv(2**16)
                if not more:
                    raise RuntimeError("our server has closed the stream whose frames the floor is to write")
                got += more
    body = got.partition(b"\r\n\r\n")[2]
    path = Path(tempfile.mkstemp(prefix="frames-")[1])
    frames = [frame for frame in body.split(b"\n\n") if b"data: " in frame]
    path.write_bytes(b"\n\n".join(alone for frame in frames for alone in apart(frame)))
    return path


def apart(frame: bytes) -> list[bytes]:
    """An event of text as one for each of its pieces, which are words; another one as it is."""
    found = re.fullmatch(rb'(.*"message\.part\.delta".*"delta":")((?:word\d+ )+)(".*)', frame, re.DOTALL)
    return [frame] if found is None else [found[1] + word + b" " + found[3] for word in found[2].split()]


def cold(note: Note) -> Found:
    """Start to healthy, memory at rest, and the first request, which loads what a start did not; the medians of STARTS.

    A start before, that does not count, has the interpreter compile what is new.
    """

    def measure(at: Contender) -> work.Figures:
        time.sleep(work.SETTLE_S)
        figures = {"s": at.cold_s, "cpu": at.cold_cpu_s, "rss": at.usage().rss}
        if isinstance(at, Shim | Native):
            began = time.monotonic()
            at.request("GET", "/path")
            figures["first_s"] = time.monotonic() - began
        return figures

    measure_each(note, ("shim",), lambda at: {})
    return middle([measure_each(note, STARTERS, measure) for _ in range(STARTS)])


def creates(note: Note) -> Found:
    """Sessions one by one; for us also what one keeps of memory. Native is asked for fewer, it takes long."""
    return measure_each(
        note, ("shim", "native", "floor"), lambda at: work.measure_creation(at, 100 if isinstance(at, Native) else SESSIONS)
    )


def answers(note: Note) -> Found:
    """2,000 pieces to 1, 20 and 200 readers, then `GET message` of them, and the memory at the end of it all."""

    def measure(at: Contender) -> work.Figures:
        figures = work.answers(at, MANY_READERS)
        if not isinstance(at, Floor):
            session = at.create()
            at.prompt(session, deltas=work.DELTAS)
            time.sleep(work.SETTLE_S)
            work.wait_idle(at, session)
            figures["message_s"] = work.reading(at, session)["s"]
        return {**figures, "rss": at.usage().rss}

    frames = frames_of(work.DELTAS)
    try:
        return measure_each(note, ("shim", "native", "floor"), measure, frames)
    finally:
        frames.unlink()


def subscribers(note: Note) -> Found:
    """Memory per waiting reader."""
    return measure_each(note, ("shim", "native", "floor"), work.measure_subscription)


def compression(note: Note) -> Found:
    """Bytes of the same answer when the reader takes gzip, which loopback ones get only when it is set so."""
    with run_contender("shim", SHIM_COMPRESS_STREAMS="always") as at:
        plain, small = work.answer(at, 1), work.answer(at, 1, encoding="gzip")
        return {"shim": {"plain": plain["bytes"], "gzip": small["bytes"], "cpu_plain": plain["cpu"], "cpu_gzip": small["cpu"]}}


def latencies(note: Note) -> Found:
    """One quiet session at 100 pieces a second: from the agent's write to the read; by `/acp`; over the floor."""
    pieces = 300

    def measure_latency(at: Contender) -> work.Figures:
        session = work.start_session(at)
        with work.readers(at, 1):  # for whom the server loads what it needs
            time.sleep(work.SETTLE_S)
        ask = partial(at.prompt, session, deltas=pieces, rate=RATE)
        return {**work.latency(at, ask, pieces=pieces), **asyncio.run(work.editor_latency(at, session, ask, pieces=pieces))}

    def pipe(at: Contender) -> work.Figures:
        at.mark, at.end = "content_block_delta", '"type": "result"'
        text = f"[deltas:{pieces}] [rate:{RATE}]"
        line = {"type": "user", "message": {"role": "user", "content": text}}
        return work.latency(at, lambda: _void(at.request("POST", "/session/x/pipe", line)), pieces=pieces)

    return measure_each(note, ("shim", "floor"), lambda at: pipe(at) if isinstance(at, Floor) else measure_latency(at))


def hooks(note: Note) -> Found:
    """A tool call's way through Claude's PreToolUse hook: from the agent's question to the server's answer, read by the agent."""
    with run_contender("shim") as at:
        session = work.start_session(at)
        text, before = f"[hooks:{HOOKS}]", at.usage().cpu_s
        at.request("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}], **at.model})
        time.sleep(work.SETTLE_S)
        work.wait_idle(at, session)
        cpu = at.usage().cpu_s - before
        messages = at.request("GET", f"/session/{session}/message").decode()
    times = [int(ns) for ns in re.findall(r"hook=(\d+);", messages)]
    if len(times) != HOOKS:
        raise RuntimeError(f"{len(times)} of {HOOKS} hooks were answered")
    return {"shim": {**work.percentiles(times), "cpu": cpu / HOOKS}}


def delegations(note: Note) -> Found:
    """By `/mcp`: from `start_session` to the answer of `wait`, with the start of its agent; the same of a second prompt."""
    with run_contender("shim", SHIM_MCP="true") as at:
        return {"shim": work.measure_delegations(at, DELEGATIONS)}


def prompts(note: Note) -> Found:
    """From a prompt's request to the agent's read of it, in projects of 50 and of 5,000 files."""
    figures: work.Figures = {}
    for files in PROJECT_FILES:
        with run_contender("shim") as at:
            for number in range(files):
                folder = at.place.project / f"folder{number // 50}"
                folder.mkdir(exist_ok=True)
                (folder / f"file{number}.txt").write_text(f"This is file {number}.\n")
            figures |= {f"{key}_{files}": value for key, value in work.measure_prompts(at, PROMPTS).items()}
    return {"shim": figures}


def streams(note: Note) -> Found:
    """100 sessions at once, each at 100 pieces a second; medians of STARTS servers, since one alone may meet a busy moment of the
    machine. What one has lost is lost."""

    def once() -> Found:
        with run_contender("shim") as at:
            sessions = [at.create() for _ in range(STREAMS)]
            for session in sessions:  # so that all agents run
                at.prompt(session, deltas=1)
            for session in sessions:
                work.wait_idle(at, session)

            def ask() -> None:
                for session in sessions:
                    at.prompt(session, deltas=STREAM_PIECES, rate=RATE)

            return {"shim": work.latency(at, ask, pieces=STREAMS * STREAM_PIECES, sessions=STREAMS)}

    times = [once() for _ in range(STARTS)]
    found = middle(times)
    found["shim"]["lost"] = max(one["shim"]["lost"] for one in times)
    return found


def parts(note: Note) -> Found:
    """`GET message` of sessions of 500, 1,000 and 2,000 parts; the first prompt of a session is one text part more."""
    figures: work.Figures = {}
    with run_contender("shim") as at:
        for count in PARTS:
            session = at.create()
            at.prompt(session, parts=count)
            time.sleep(work.SETTLE_S)
            work.wait_idle(at, session)
            got = work.reading(at, session)
            figures |= {f"s_{count}": got["s"], f"bytes_{count}": got["bytes"]}
    return {"shim": figures}


def lists(note: Note) -> Found:
    """The list of 10,000 sessions."""
    with run_contender("shim") as at:
        for _ in range(LISTED):
            at.create()
        return {"shim": {**work.listing(at, LISTED), "rss": at.usage().rss}}


def journal(note: Note) -> Found:
    """Start on a journal of 100,000 events beside an empty one (medians of STARTS), the first read of its big session, bytes per
    event.

    A small request comes before it: what the first one of all costs is measured by `cold`.
    """
    place = Place.make()
    data = place.home / "data"
    try:
        empty, empty_cpu = _starts(place, data)
        at = shim(place, data)
        session = at.create()
        for _ in range(JOURNAL_EVENTS // 10_000):
            at.prompt(session, deltas=10_000)
            time.sleep(work.SETTLE_S)
            work.wait_idle(at, session)
        at.close()
        events, size = work.journal_size(data)
        cold, cold_cpu = _starts(place, data)
        at = shim(place, data)
        at.request("GET", "/path")
        began = time.monotonic()
        messages = json.loads(at.request("GET", f"/session/{session}/message"))
        first = time.monotonic() - began
        figures = {"empty_s": empty, "empty_cpu": empty_cpu, "s": cold, "cpu": cold_cpu, "first_message_s": first,
                   "events": events, "bytes_per_event": size / events, "messages": len(messages)}  # fmt: skip
        at.close()
        return {"shim": figures}
    finally:
        place.remove()


def _starts(place: Place, data: Path) -> tuple[float, float]:
    """Seconds to healthy, and of CPU: medians of STARTS."""
    taken: list[tuple[float, float]] = []
    for _ in range(STARTS):
        at = shim(place, data)
        taken.append((at.cold_s, at.cold_cpu_s))
        at.close()
    return median(cold for cold, _ in taken), median(cpu for _, cpu in taken)


def long(note: Note) -> Found:
    """Sessions of 100 to 100,000 messages, opened from their checkpoints."""
    figures: work.Figures = {}
    for messages in long_sessions.SIZES:
        figures |= long_sessions.figures_of(messages)
    return {"shim": figures}


def first_words(note: Note) -> Found:
    """Enter to the first word with real agents, each behind our server with and without a spare one, and alone."""
    found: Found = {}
    for name in first_word.MEASURED:
        _add(found, note, f"{name} spare", partial(first_word.behind_shim, name, has_spare=True))
        _add(found, note, f"{name} cold", partial(first_word.behind_shim, name, has_spare=False))
        _add(found, note, f"{name} alone", partial(first_word.alone, name))
    _add(found, note, "native", first_word.behind_native)
    return found


def setups(note: Note) -> Found:
    """Enter to the first word of Claude Code with three MCP servers: behind our server, of `mcp`, and alone, of its own."""
    found: Found = {}
    try:
        found["cold"], found["alone"] = first_word.beside_alone(first_word.SERVERS)
    except Exception as error:  # as in `_add`
        note(f"setup: {error or type(error).__name__}")
    _add(found, note, "spare", partial(first_word.behind_shim, "claude", has_spare=True, servers=first_word.SERVERS))
    return found


def _add(found: Found, note: Note, name: str, measure: Callable[[], work.Figures]) -> None:
    """Measure one contender; one that cannot is noted."""
    try:
        with within(CONTENDER_S * 2, name):
            found[name] = measure()
    except Exception as error:  # whatever it does, the others are measured
        note(f"{name}: {error or type(error).__name__}")


def growth(note: Note) -> Found:
    """Cost of one piece as the answer, the readers and the sessions grow: CPU microseconds each."""
    figures: work.Figures = {}
    with run_contender("shim") as at:
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
    "compressed": Row(compression, every_round=False),
    "latencies": Row(latencies),
    "hooks": Row(hooks),
    "prompts": Row(prompts),
    "delegations": Row(delegations),
    "streams": Row(streams),
    "parts": Row(parts, every_round=False),
    "lists": Row(lists, every_round=False),
    "journal": Row(journal, every_round=False),
    "long_sessions": Row(long, every_round=False, most_s=1_200),
    "first_word": Row(first_words, every_round=False, most_s=3_600),
    "setup": Row(setups, every_round=False, most_s=600),
    "growth": Row(growth, every_round=False),
}
