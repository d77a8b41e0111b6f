"""`make soak MINUTES=5`: mixed work for minutes, and whether anything grows; written to docs/SOAK.md.

`python -m tests.bench.soak [--minutes N] [--out FILE]`. One server on SQLite. Workers make sessions, let the built-in agent and a
process of its own play turns, abort, let agents be killed, subscribe and leave (some without a goodbye), and delete the sessions
again. At rest, every few seconds, the server is looked at: memory, open files, threads, child processes from outside, and what
its `/metrics` say of tasks and of the blocks of memory that Python's values take; from its data directory, how large it is, and
how many holders of agents there are. The exit code is 1 when something grows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.bench.contenders import Contender
from tests.bench.machine import CLAUDE, MOCK, describe, load_of_machine, memory, server
from tests.bench.report import MIB
from tests.e2e.support.children import holders_in
from tests.e2e.support.places import REPO

WORKERS = 6
REST_S = 2.0
"""Before each look: nothing tells from outside that the server's last timers and closings are over."""
ROUND_S = 12.0
"""Work of so long, then a look at the server at rest."""
WARM_UP = 0.3
"""Of the looks are not counted: caches and pools fill at first."""
TURN_S = 60
TURNS: Sequence[tuple[str, dict[str, str], str]] = (
    ("echo hello", MOCK, "idle"),
    ("burst 300", MOCK, "idle"),
    ("tool", MOCK, "idle"),
    ("crash", MOCK, "idle"),
    ("error", MOCK, "idle"),
    ("hang", MOCK, "abort"),
    ("permission", MOCK, "abort"),
    ("[deltas:300]", CLAUDE, "idle"),
    ("[output:200000]", CLAUDE, "idle"),
    ("[line:3000000]", CLAUDE, "idle"),
    ("[die:1]", CLAUDE, "idle"),
    ("[hang:1]", CLAUDE, "abort"),
)
"""Prompt, agent, and how the turn ends."""


@dataclass(frozen=True, slots=True)
class Look:
    """The server at rest: seconds since the start, bytes, counts."""

    at_s: float
    rss: int
    files: int
    threads: int
    children: int
    tasks: int
    blocks: int
    holders: int
    disk: int
    turns: int


METRIC = re.compile(r'^opencode_shim_(tasks\{kind="(\w+)"\}|memory_blocks) (\S+)$', re.M)


def look(at: Contender, began: float, metrics: str, counts: Counter[str]) -> Look:
    """The server of now; `counts` gets how many tasks of each kind there are."""
    place = Path(f"/proc/{at.pid}")
    children = (place / "task" / str(at.pid) / "children").read_text().split()
    threads, files = len(os.listdir(place / "task")), len(os.listdir(place / "fd"))
    tasks = {kind: int(float(number)) for _, kind, number in METRIC.findall(metrics) if kind}
    (blocks,) = (int(float(number)) for name, _, number in METRIC.findall(metrics) if name == "memory_blocks")
    for kind in counts.keys() | tasks.keys():
        counts[kind] = tasks.get(kind, 0)
    at_s = time.monotonic() - began
    data = at.place.home / "data"
    holders, disk = len(holders_in(data)), size_of(data)
    return Look(at_s, memory(at.pid)[0], files, threads, len(children), sum(tasks.values()), blocks, holders, disk, 0)


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder. A file that goes away meanwhile counts as none."""
    size = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):
            size += file.stat().st_size if file.is_file() else 0
    return size


class Soak:
    """The workers and what they count."""

    def __init__(self, http: aiohttp.ClientSession, url: str, seed: int) -> None:
        self.http = http
        self.url = url
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.tasks: Counter[str] = Counter()
        """By kind, at the last look."""

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        async with self.http.request(method, self.url + path, json=body) as answer:
            text = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
            return json.loads(text) if text else None

    async def work(self, until: float) -> None:
        while time.monotonic() < until:
            session = (await self.ask("POST", "/session", {}))["id"]
            for _ in range(self.random.randint(1, 3)):
                await self.turn(session, *self.random.choice(TURNS))
            await self.ask("DELETE", f"/session/{session}")

    async def turn(self, session: str, text: str, model: dict[str, str], end: str) -> None:
        """One turn, read by a subscriber of its own until its idle. Raises RuntimeError that says what did not end."""
        try:
            async with asyncio.timeout(TURN_S):
                await self.watch_turn(session, text, model, end)
        except TimeoutError:
            status = await self.ask("GET", "/session/status")
            events = (await self.ask("GET", f"/v1/sessions/{session}/events?limit=10000"))["events"]
            told = [(event["type"], str(event["data"])[:200]) for event in events[-8:]]
            raise RuntimeError(f"{text!r} of {session} did not end: {status.get(session)}, last {told}") from None
        self.counts["turns"] += 1
        self.counts["aborted"] += end == "abort"
        if text == "[die:1]":
            self.counts["agents killed"] += 1

    async def watch_turn(self, session: str, text: str, model: dict[str, str], end: str) -> None:
        async with self.http.get(self.url + "/event") as events:
            await events.content.readline()
            body = {"parts": [{"type": "text", "text": text}], "model": model}
            await self.ask("POST", f"/session/{session}/prompt_async", body)
            if end == "abort":
                await self.ask("POST", f"/session/{session}/abort")
            idle = 0
            while not idle:
                line = await events.content.readuntil(b"\n")
                if not line:
                    raise RuntimeError("the stream has ended")
                idle += b'"session.idle"' in line and session.encode() in line
            if (await self.ask("GET", "/session/status")).get(session):
                self.counts["busy after idle"] += 1

    async def visit(self, until: float) -> None:
        """Subscribers that come and go; every second one breaks off."""
        while time.monotonic() < until:
            async with self.http.get(self.url + self.random.choice(("/event", "/global/event"))) as events:
                for _ in range(self.random.randint(1, 30)):
                    await events.content.readline()
                if self.random.random() < 0.5 and events.connection is not None and events.connection.transport is not None:
                    events.connection.transport.abort()
            self.counts["subscribers"] += 1
            await asyncio.sleep(self.random.random() * 0.2)


async def soak(at: Contender, minutes: float, seed: int) -> tuple[list[Look], Counter[str], Counter[str]]:
    began = time.monotonic()
    looks: list[Look] = []
    timeout = aiohttp.ClientTimeout(total=2 * TURN_S)
    async with aiohttp.ClientSession(timeout=timeout, read_bufsize=2**22) as http:
        one = Soak(http, f"http://127.0.0.1:{at.port}", seed)
        while time.monotonic() - began < minutes * 60:
            until = time.monotonic() + ROUND_S
            async with asyncio.TaskGroup() as group:
                for _ in range(WORKERS):
                    group.create_task(one.work(until))
                group.create_task(one.visit(until))
            # At rest: streams are closed, sessions deleted, agents ended.
            await asyncio.sleep(REST_S)
            if status := await one.ask("GET", "/session/status"):
                one.counts["busy at rest"] += len(status)
            metrics = await (await http.get(one.url + "/metrics")).text()
            looks.append(replace(look(at, began, metrics, one.tasks), turns=one.counts["turns"]))
            print(looks[-1], file=sys.stderr, flush=True)
        with contextlib.suppress(aiohttp.ClientError):
            metrics = await (await http.get(one.url + "/metrics")).text()
            one.counts["sessions left"] = len(await one.ask("GET", "/session"))
            one.counts["HTTP 500 answers"] = metrics.count('status="500"')
    return looks, one.counts, one.tasks


def slope(looks: Sequence[Look], of: str) -> float:
    """Of the line through the looks, a minute: least squares."""
    times = [one.at_s / 60 for one in looks]
    values = [float(getattr(one, of)) for one in looks]
    middle_t, middle_v = sum(times) / len(times), sum(values) / len(values)
    below = sum((t - middle_t) ** 2 for t in times)
    return sum((t - middle_t) * (v - middle_v) for t, v in zip(times, values, strict=True)) / below if below else 0.0


HEAD = """<!-- Written by tests/bench/soak.py (`make soak MINUTES=`); do not edit. -->
# Soak

{minutes:.1f} minutes of mixed work on one server with SQLite on disk: {counts}.

Turns of the built-in agent and of an agent that is a process: text, tools, a line of 3 MB, errors, crashes, `kill -9` of the
agent, hangs and permissions that are aborted. Each is watched by a subscriber of its own for its idle; others come and go, half
of them without a goodbye. Sessions are deleted at the end. After each {round:.0f} s the server is looked at, at rest.
Machine: {machine}; load average {load:.1f} at the end.

The slope is that of the line through the last {counted} of {looks} looks: the first ones fill caches. Python's values are counted
in blocks of its allocator: what is kept shows there, also where the C library keeps memory that is free.

| | first counted | last | least | most | slope a minute | allowed | |
|---|---|---|---|---|---|---|---|
"""


class FigureFormat(NamedTuple):
    """A figure: how it is shown, and how much it may grow in a minute without being called growth."""

    title: str
    unit: float
    suffix: str
    allowed: float


SHOWN = {
    "rss": FigureFormat("memory", MIB, " MiB", 0.5),
    "blocks": FigureFormat("blocks of Python's values", 1000, "k", 2.0),
    "files": FigureFormat("open files", 1, "", 0.5),
    "threads": FigureFormat("threads", 1, "", 0.5),
    "children": FigureFormat("child processes", 1, "", 0.1),
    "tasks": FigureFormat("tasks", 1, "", 0.5),
    "holders": FigureFormat("holders of agents", 1, "", 0.1),
    "disk": FigureFormat("data directory", MIB, " MiB", 0.5),
}
"""Connections that clients keep are files and tasks, and come and go."""
JUDGED_S = 150
"""Of counted looks, before growth is told from scatter."""


def excess_growth(looks: Sequence[Look]) -> dict[str, float]:
    """The slopes that are over what is allowed, a minute; none in a run that is too short to say."""
    if looks[-1].at_s - looks[0].at_s < JUDGED_S:
        return {}
    slopes = {name: slope(looks, name) / shown.unit for name, shown in SHOWN.items()}
    return {name: value for name, value in slopes.items() if value > SHOWN[name].allowed}


def page(looks: list[Look], counts: Counter[str], tasks: Counter[str]) -> str:
    """The whole page."""
    counted = looks[int(len(looks) * WARM_UP) :]
    said = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    out = HEAD.format(minutes=looks[-1].at_s / 60, counts=said, round=ROUND_S, machine=describe(), load=load_of_machine(),
                      counted=len(counted), looks=len(looks))  # fmt: skip
    grows, short = excess_growth(counted), counted[-1].at_s - counted[0].at_s < JUDGED_S
    for name, (title, unit, suffix, allowed) in SHOWN.items():
        values = [getattr(one, name) / unit for one in counted]
        cells = [f"{value:.1f}{suffix}" for value in (values[0], values[-1], min(values), max(values))]
        verdict = "too short to say" if short else "**grows**" if name in grows else "does not grow"
        out += f"| {title} | {' | '.join(cells)} | {slope(counted, name) / unit:+.2f}{suffix} | {allowed}{suffix} | {verdict} |\n"
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(tasks.items()) if number)
    out += f"\nTasks at the end, by the first word of their names: {kinds}.\n"
    out += "\n| minute | turns | memory | blocks | files | threads | children | tasks | holders | data directory |\n"
    out += "|---|---|---|---|---|---|---|---|---|---|\n"
    for one in looks:
        out += f"| {one.at_s / 60:.1f} | {one.turns} | {one.rss / MIB:.1f} MiB | {one.blocks / 1000:.1f}k | {one.files} "
        out += f"| {one.threads} | {one.children} | {one.tasks} | {one.holders} | {one.disk / MIB:.1f} MiB |\n"
    return out


def main() -> int:
    """The exit code: 1 if a session was busy at rest, or something grows."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=REPO / "docs" / "SOAK.md")
    wanted = parser.parse_args()
    with server() as at:
        looks, counts, tasks = asyncio.run(soak(at, wanted.minutes, wanted.seed))
    wanted.out.write_text(page(looks, counts, tasks))
    print(f"wrote {wanted.out}")
    return 1 if counts["busy at rest"] or counts["busy after idle"] or excess_growth(looks[int(len(looks) * WARM_UP) :]) else 0


if __name__ == "__main__":
    sys.exit(main())
