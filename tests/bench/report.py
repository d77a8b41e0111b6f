"""The figures as a page and a plot. Pure but for the machine's description."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Figures = Mapping[str, float]
Found = Mapping[str, Mapping[str, Figures]]
"""row -> contender -> figure -> median of the rounds."""

NAMES = {"shim": "opencode-shim", "native": "OpenCode 1.18.33", "peer": "sandbox-agent 0.4.2", "floor": "bare aiohttp"}
MIB, KIB = 2**20, 2**10


@dataclass(frozen=True)
class Line:
    """One line of the table: which figure, how it is shown, and what it is to reach against native and the floor.

    better   "more" or "less": what the ratio is to be above or below of
    """

    what: str
    row: str
    key: str
    show: Callable[[float], str]
    better: str
    native: float | None = None
    floor: float | None = None
    why: str = ""
    """Where the time goes, for a target that is missed; docs/adr/0021 has the figures."""


@dataclass(frozen=True)
class ShimFigure:
    """One line of ours alone. `most`: what it is to stay under."""

    what: str
    row: str
    key: str
    show: Callable[[float], str]
    most: float | None = None


START = "The interpreter, aiohttp and pydantic are loaded before a line of ours runs."
SETTINGS = "Half of what is above the floor is pydantic with the model of the settings."
CREATES = "An answer waits until its session is on disk: two changes of thread and a commit, beside the request itself."
PIECES = "Each piece is parsed, translated, stamped, written down and projected once, however many read it; the floor writes it."


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"


def mib(value: float) -> str:
    return f"{value / MIB:.0f} MiB"


def kib(value: float) -> str:
    return f"{value / KIB:.1f} KiB"


def rate(value: float) -> str:
    return f"{value:,.0f}/s"


LINES = (
    Line("cold start to healthy, wall", "cold", "s", seconds, "less", floor=2, why=START),
    Line("cold start to healthy, CPU", "cold", "cpu", seconds, "less", floor=2, why=START),
    Line("the first request after it", "cold", "first_s", seconds, "less"),
    Line("memory at rest", "cold", "rss", mib, "less", 1 / 5, 1.6, SETTINGS),
    Line("sessions made one by one", "creates", "per_s", rate, "more", 12, 0.5, CREATES),
    Line("CPU of one of them", "creates", "cpu", seconds, "less"),
    Line("2,000 pieces to 1 reader, from the prompt on", "answers", "delivered_per_s_1", rate, "more", 8, 0.45, PIECES),
    Line("2,000 pieces to 20 readers, delivered", "answers", "delivered_per_s_20", rate, "more", 8, 0.6, PIECES),
    Line("2,000 pieces to 200 readers, delivered", "answers", "delivered_per_s_200", rate, "more", 2.5, 0.8, PIECES),
    Line("the same from the first piece on, 1 reader", "answers", "streaming_per_s_1", rate, "more"),
    Line("the same from the first piece on, 20 readers", "answers", "streaming_per_s_20", rate, "more"),
    Line("the same from the first piece on, 200 readers", "answers", "streaming_per_s_200", rate, "more"),
    Line("pieces lost at 200 readers", "answers", "lost_200", lambda value: f"{value:.0f}", "less"),
    Line("CPU of 2,000 pieces to 1 reader", "answers", "cpu_1", seconds, "less", 1 / 11, why=PIECES),
    Line("CPU of 2,000 pieces to 20 readers", "answers", "cpu_20", seconds, "less"),
    Line("CPU of 2,000 pieces to 200 readers", "answers", "cpu_200", seconds, "less"),
    Line("prompt to the first piece at a reader", "answers", "first_s_1", seconds, "less"),
    Line("bytes to a reader for 2,000 pieces", "answers", "bytes_1", kib, "less", 1),
    Line("`GET message` of such an answer", "answers", "message_s", seconds, "less", 1 / 5),
    Line("memory at the end of these", "answers", "rss", mib, "less", 1 / 10),
    Line("memory of a session at rest", "creates", "rss_each", kib, "less"),
    Line("memory of a waiting reader", "subscribers", "rss_each", kib, "less"),
    Line("agent's write to reader's read, p50", "latencies", "p50", seconds, "less"),
    Line("agent's write to reader's read, p99", "latencies", "p99", seconds, "less"),
)

OWN = (
    ShimFigure("memory of a session at rest", "creates", "rss_each", kib, 20 * KIB),
    ShimFigure("memory of a waiting reader", "subscribers", "rss_each", kib, 100 * KIB),
    ShimFigure("agent's write to reader's read, more than over the floor, p50", "latencies", "added_p50", seconds, 0.001),
    ShimFigure("the same, p99", "latencies", "added_p99", seconds, 0.005),
    ShimFigure("the same to an editor by `/acp`, p50", "latencies", "added_acp_p50", seconds),
    ShimFigure("the same, p99", "latencies", "added_acp_p99", seconds, 0.005),
    ShimFigure("a tool call's way through Claude's hook, agent to agent, p50", "hooks", "p50", seconds, 0.003),
    ShimFigure("the same, p99", "hooks", "p99", seconds),
    ShimFigure("CPU of the server for it", "hooks", "cpu", seconds),
    ShimFigure("prompt to the read of an agent that runs, project of 50 files", "prompts", "write_50", seconds),
    ShimFigure("the same, project of 5,000 files", "prompts", "write_5000", seconds),
    ShimFigure("prompt to its acknowledgement", "prompts", "ack_50", seconds),
    ShimFigure(
        "`start_session` to the answer of `wait` by `/mcp`, with the start of a scripted agent", "delegations", "new", seconds
    ),
    ShimFigure("`prompt` to the answer of `wait` by `/mcp`, the agent runs", "delegations", "again", seconds),
    ShimFigure("bytes of 2,000 pieces, plain", "compressed", "plain", kib),
    ShimFigure("the same with gzip", "compressed", "gzip", kib),
    ShimFigure("100 sessions at 100 pieces/s each: agent to reader, p50", "streams", "p50", seconds),
    ShimFigure("the same, p99", "streams", "p99", seconds, 0.05),
    ShimFigure("the same, pieces lost", "streams", "lost", lambda value: f"{value:.0f}", 0),
    ShimFigure("start on an empty journal", "journal", "empty_s", seconds),
    ShimFigure("start on a journal of 100,000 events", "journal", "s", seconds),
    ShimFigure("first `GET message` of its session, whose handlers are loaded", "journal", "first_message_s", seconds, 0.2),
    ShimFigure("bytes of the journal for each event", "journal", "bytes_per_event", lambda value: f"{value:.0f}"),
    ShimFigure("`GET /session` of 10,000 sessions", "lists", "s", seconds),
    ShimFigure("`GET message` of 500 parts", "parts", "s_500", seconds),
    ShimFigure("`GET message` of 1,000 parts", "parts", "s_1000", seconds),
    ShimFigure("`GET message` of 2,000 parts", "parts", "s_2000", seconds),
)

LONG = (
    ("start of a server to its answer with the last 100 messages", "cold_s", seconds),
    ("the same of an empty server that lists its sessions", "bare_s", seconds),
    ("the first of these, CPU", "cold_cpu_s", seconds),
    ("the second of these, CPU", "bare_cpu_s", seconds),
    ("the last 100 messages, of a server that runs", "open_s", seconds),
    ("the same, CPU", "open_cpu_s", seconds),
    ("the 100 messages before those, and so on", "older_s", seconds),
    ("first event of a client that attaches meanwhile", "first_event_s", seconds),
    ("memory beside that of an empty server", "more_rss", mib),
    ("made from its journal, without a checkpoint", "rebuild_s", seconds),
    ("events of its journal", "events", lambda value: f"{value:,.0f}"),
)
"""What is shown of long sessions: its name, the figure, how it is shown."""

CURVES = (
    ("pieces of an answer", "deltas"),
    ("readers (per piece and reader)", "readers"),
    ("sessions that exist", "sessions"),
)


HEAD = """Written by `make bench`: the same work on each server in turn, so that what the machine does meanwhile falls on all.
Medians of {rounds} on {machine}. CPU is that of the serving process alone. OpenCode answers from a scripted
model on loopback at no delay; we have a program that speaks Claude Code's protocol at no delay (tests/bench/agent.py), so that
agents and models are not what is measured. Rates are counted from the prompt to the last reader's end of the turn; native holds
the first pieces back and writes them in one go, so a rate from its first piece on says little of what a person waits for. The
floor is a bare aiohttp server that writes the same bytes and neither translates nor stores (tests/bench/floor.py). Absolute
figures hold for this machine only; ratios travel."""


FIRST_WORDS = """Real agents and a scripted model without delay; medians of 10 sessions. "Alone" is the agent's program,
driven over its own protocol with no server in between; its first prompt starts it."""
SETUP = """Claude Code and a scripted model without delay, three local MCP servers: behind this server of `mcp` in
`opencode.json`, alone of Claude's own settings. All their tools were in each request to the model; medians of 12 sessions in
turn, those with a spare agent of 10."""
SETUP_TARGET = 1.05
"""Not later than the agent alone, as far as this can be told: ten sessions differ by some percent from the next ten."""
WORDS = ("first prompt, spare", "first prompt, none", "second prompt", "alone, first", "alone, second", "memory of a spare")


def page(found: Found, rounds: int, troubles: Sequence[str] = ()) -> str:
    """The whole page. `troubles`: what could not be measured, one sentence each."""
    found = _with_added(found)
    out = [
        "# Benchmarks",
        "",
        HEAD.format(rounds=f"{rounds} round{'s' if rounds > 1 else ''}", machine=machine()),
        "",
        "| | " + " | ".join(NAMES.values()) + " | to native | to the floor |",
        "|---|" + "---|" * (len(NAMES) + 2),
    ]
    out += [_line(line, found.get(line.row, {})) for line in LINES if line.row in found]
    out += ["", "A ratio with ✗ misses its target, which stands beside it.", *_missed_targets(found)]
    out += ["", "## Ours alone", "", "| | |", "|---|---|"]
    measured = [figure for figure in OWN if figure.key in found.get(figure.row, {}).get("shim", {})]
    out += [_shim_figure_row(figure, found[figure.row]["shim"][figure.key]) for figure in measured]
    out += first_words(found)
    out += setup_words(found)
    out += long_sessions(found)
    if found.get("growth", {}).get("shim"):
        out += ["", "## As it grows", "", "CPU of one piece, in microseconds; flat is right.", ""]
        for title, prefix in CURVES:
            points = curve(found["growth"]["shim"], prefix)
            out += [f"| {title} | " + " | ".join(f"{at:,}" for at, _ in points) + " |", "|---|" + "---|" * len(points)]
            out += ["| µs | " + " | ".join(f"{value:.1f}" for _, value in points) + " |", ""]
        out += ["![CPU of one piece as work grows](pictures/bench.svg)", ""]
    if troubles:
        out += ["", "## What could not be measured", "", *(f"- {' '.join(one.split())}" for one in dict.fromkeys(troubles))]
    return "\n".join(out).rstrip() + "\n"


def first_words(found: Found) -> list[str]:
    """The table of first words; nothing if they were not measured."""
    by = found.get("first_word", {})
    agents = list(dict.fromkeys(who.rpartition(" ")[0] for who in by if who != "native"))
    if not agents:
        return []
    out = ["", "## Enter to the first word", "", FIRST_WORDS, ""]
    out += [f"| agent | {' | '.join(WORDS)} | first to second |", "|---|" + "---|" * (len(WORDS) + 1)]
    for name in agents:
        spare, cold, alone = (by.get(f"{name} {way}", {}) for way in ("spare", "cold", "alone"))
        cells = [spare.get("first_s"), cold.get("first_s"), spare.get("second_s"), alone.get("first_s"), alone.get("second_s")]
        shown = ["" if value is None else seconds(value) for value in cells]
        shown.append(mib(spare["spare_bytes"]) if "spare_bytes" in spare else "")
        ratio = _ratio(spare.get("first_s"), spare.get("second_s"), "less", 1.5)
        out.append(f"| {name} | {' | '.join(shown)} | {ratio} |")
    if native := by.get("native"):
        out.append(f"| OpenCode 1.18.33 itself | | {seconds(native['first_s'])} | {seconds(native['second_s'])} | | | | |")
    return out


def setup_words(found: Found) -> list[str]:
    """The table of first words with MCP servers; nothing if they were not measured."""
    by = found.get("setup", {})
    cold, alone, spare = (by.get(name, {}).get("first_s") for name in ("cold", "alone", "spare"))
    if cold is None or alone is None:
        return []
    out = ["", "## First prompt with MCP servers of the set-up", "", SETUP, ""]
    out += ["| | behind this server | alone | ratio |", "|---|---|---|---|"]
    ratio = _ratio(cold, alone, "less", SETUP_TARGET)
    out += [f"| Enter to the first word, no spare agent | {seconds(cold)} | {seconds(alone)} | {ratio} |"]
    return out + ([f"| the same with a spare agent | {seconds(spare)} | | |"] if spare is not None else [])


def long_sessions(found: Found) -> list[str]:
    """The table of long sessions; nothing if they were not measured."""
    figures = found.get("long_sessions", {}).get("shim", {})
    sizes = [size for size, _ in curve(figures, "cold_s")]
    if not sizes:
        return []
    out = ["", "## Long sessions", "", "Opened from a checkpoint (docs/adr/0029) by a server that has just started.", ""]
    out += ["| messages | " + " | ".join(f"{size:,}" for size in sizes) + " |", "|---|" + "---|" * len(sizes)]
    rows = ((what, [show(figures[f"{key}_{size}"]) for size in sizes]) for what, key, show in LONG)
    return out + [f"| {what} | " + " | ".join(cells) + " |" for what, cells in rows]


def _with_added(found: Found) -> Found:
    """With what we add to the latencies of the floor."""
    ours, floor = (found.get("latencies", {}).get(who, {}) for who in ("shim", "floor"))
    keys = ("p50", "p99", "acp_p50", "acp_p99")
    added = {f"added_{key}": ours[key] - floor[end] for key in keys if key in ours and (end := key[-3:]) in floor}
    return {**found, "latencies": {**found["latencies"], "shim": {**ours, **added}}} if added else found


def _missed_targets(found: Found) -> list[str]:
    """Why each target that is missed is missed, and how far the floor itself is from native there."""
    out: list[str] = []
    for line in LINES:
        by = found.get(line.row, {})
        if "✗" in _line(line, by):
            floor, native = (by.get(who, {}).get(line.key) for who in ("floor", "native"))
            itself = f" The floor itself is at {_ratio(floor, native, line.better, None)} of native." if floor and native else ""
            out.append(f"- {line.what}: {line.why}{itself}")
    return ["", "## What is missed", "", *out] if out else []


def _shim_figure_row(own: ShimFigure, value: float) -> str:
    target = "" if own.most is None else f" (≤ {own.show(own.most)}){'' if value <= own.most else ' ✗'}"
    return f"| {own.what} | {own.show(value)}{target} |"


def _line(line: Line, by: Mapping[str, Figures]) -> str:
    cells = [line.show(by[who][line.key]) if line.key in by.get(who, {}) else "" for who in NAMES]
    ours = by.get("shim", {}).get(line.key)
    ratios = [_ratio(ours, by.get(who, {}).get(line.key), line.better, target) for who, target in
              (("native", line.native), ("floor", line.floor))]  # fmt: skip
    return f"| {line.what} | " + " | ".join([*cells, *ratios]) + " |"


def _ratio(ours: float | None, theirs: float | None, better: str, target: float | None) -> str:
    if ours is None or not theirs:
        return ""
    ratio = ours / theirs
    shown = f"{ratio:.2f}" if ratio >= 0.1 else f"1/{1 / ratio:.0f}" if ratio > 0 else "0"
    if target is None:
        return shown
    met = ratio >= target if better == "more" else ratio <= target
    wanted = f"{target:g}" if target >= 0.1 and target not in (1 / 5, 1 / 7, 1 / 9) else f"1/{1 / target:.0f}"
    return f"{shown} (≥ {wanted}){'' if met else ' ✗'}" if better == "more" else f"{shown} (≤ {wanted}){'' if met else ' ✗'}"


def curve(figures: Figures, prefix: str) -> list[tuple[int, float]]:
    """The points of `prefix_N` figures, by N."""
    points = [(int(key.rpartition("_")[2]), value) for key, value in figures.items() if key.rpartition("_")[0] == prefix]
    return sorted(points)


def machine() -> str:
    """The processor, its cores and Python."""
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


WIDTH, HEIGHT, LEFT, TOP = 260, 160, 46, 28


def plot(found: Found) -> str:
    """The curves side by side, as SVG."""
    figures = found["growth"]["shim"]
    charts = [_chart(at, title, curve(figures, prefix)) for at, (title, prefix) in enumerate(CURVES)]
    width = (WIDTH + LEFT + 14) * len(charts)
    style = "text{font:11px sans-serif;fill:#777}.a{stroke:#999;fill:none}.l{stroke:#2a7;stroke-width:2;fill:none}.d{fill:#2a7}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + TOP + 30}"><style>{style}</style>'
    return head + "".join(charts) + "</svg>\n"


def _chart(index: int, title: str, points: list[tuple[int, float]]) -> str:
    """One curve; the steps of the horizontal axis are the sizes that were measured, the vertical one begins at 0."""
    left, top = index * (WIDTH + LEFT + 14) + LEFT, TOP
    highest = max(value for _, value in points) * 1.2
    step = WIDTH / max(len(points) - 1, 1)
    places = [(left + at * step, top + HEIGHT * (1 - value / highest)) for at, (_, value) in enumerate(points)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    out = [f'<text x="{left}" y="{top - 12}">µs of CPU by {title}</text>',
           f'<path class="a" d="M{left},{top}V{top + HEIGHT}H{left + WIDTH}"/><polyline class="l" points="{line}"/>',
           f'<text x="{left - 6}" y="{top + 10}" text-anchor="end">{highest:.0f}</text>',
           f'<text x="{left - 6}" y="{top + HEIGHT}" text-anchor="end">0</text>']  # fmt: skip
    for (size, _), (x, y) in zip(points, places, strict=True):
        out.append(f'<circle class="d" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        out.append(f'<text x="{x:.1f}" y="{top + HEIGHT + 16}" text-anchor="middle">{size:,}</text>')
    return "".join(out)
