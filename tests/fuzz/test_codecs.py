"""Each codec hears recordings in which lines were spoiled, left out or doubled: it never raises, and each fact can be stored.

A failure prints (agent, seed): put it into `SEEDS` with what was wrong. `make fuzz` tries many more.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.dev.record.packs import read_rows, recordings_below
from shim.lib.clock import ManualClock
from shim.lib.ids import Ids
from shim.store.rows import row_of
from tests.fuzz import mutate
from universal.codec import Codec, Fact, Interrupt, Output, PermissionReply, Prompt, QuestionReply, SetTimer, Signal
from universal.events import EventType, Source, UniversalEvent
from universal.launch import Exit, LaunchOptions
from universal.lib.framing import LineFramer
from universal.registry import agents

ROOT = Path(__file__).parents[2] / "compat_fixtures" / "agents"
LINES = 120
"""Of a recording, at most: the interesting ones come early."""
SPOILED = 0.15

AGENTS = ("claude", "codex", "pi", "amp", "opencode", "mock", "claude-agent-acp", "codex-acp", "pi-acp", "opencode-acp")
"""One for each codec, and for each profile of ACP that was recorded."""

SEEDS: tuple[tuple[str, int], ...] = ()
"""Found and mended: (agent, seed), each with a word on what was wrong."""


@cache
def corpus(agent: str) -> list[list[bytes]]:
    """What the agent said in each recording, as lines. Agents behind ACP share theirs; unknown ones get them all."""
    own = ROOT / agent if (ROOT / agent).is_dir() else ROOT / "acp"
    found: list[list[bytes]] = []
    for path in recordings_below(own):
        said = [row["msg"] for row in read_rows(path) if row.get("dir") == "out" and "msg" in row]
        if said:
            found.append([msg.encode() if isinstance(msg, str) else json.dumps(msg).encode() for msg in said[:LINES]])
    return found


def check(outputs: list[Output], number: int) -> None:
    """Facts can be written to the journal and are JSON."""
    for out in outputs:
        if isinstance(out, Fact):
            event = UniversalEvent(
                event_id=f"evt_{number}",
                sequence=number + 1,
                time="2026-11-21T20:43:04.083Z",
                session_id="ses_1",
                source=Source.DAEMON if out.synthetic else Source.AGENT,
                synthetic=out.synthetic,
                type=out.type,
                data=out.data,
                raw=out.raw,
            )
            row_of(event)


def answers(random: Random, outputs: list[Output]) -> list[PermissionReply | QuestionReply]:
    """What a person would answer to what was asked."""
    found: list[PermissionReply | QuestionReply] = []
    for out in outputs:
        if isinstance(out, Fact) and out.type is EventType.PERMISSION_REQUESTED:
            decision = random.choice(("accept", "accept_for_session", "reject"))
            found.append(PermissionReply(out.data.permission_id, decision, random.choice((None, "no"))))
        elif isinstance(out, Fact) and out.type is EventType.QUESTION_REQUESTED:
            found.append(QuestionReply(out.data.question_id, random.choice((None, [["yes"]], [], [[]]))))
    return found


def play(agent: str, seed: int) -> Codec:
    """One life of a codec."""
    random = Random(seed)
    codec = agents()[agent].make(Ids(ManualClock()).new)
    resume = random.random() < 0.3
    codec.launch(LaunchOptions("/bin/agent", "/project", native_session_id="s" if resume else None, resume=resume))
    check(codec.start(), 0)
    lines = list(random.choice(corpus(agent)))
    prompt = random.randint(0, min(8, len(lines)))
    for number, line in enumerate(lines):
        if number == prompt:
            check(codec.send(Prompt("key", "hello", mode=random.choice((None, "build", "plan")))), number)
        if random.random() < 0.02:
            check(codec.send(random.choice((Interrupt(), Prompt(f"k{number}", "more")))), number)
        chance = random.random()
        spoiled = (
            [mutate.line(random, line)]
            if chance < SPOILED
            else [line, line]
            if chance < 0.18
            else []
            if chance < 0.21
            else [line]
        )
        for one in spoiled:
            outputs = codec.receive(one)
            check(outputs, number)
            for reply in answers(random, outputs):
                if random.random() < 0.8:
                    check(codec.send(reply), number)
            timers = [out.key for out in outputs if isinstance(out, SetTimer) and out.after_s is not None]
            for key in timers if random.random() < 0.5 else ():
                check(codec.on_timer(key), number)
    check(codec.eof(random.choice((Exit(code=0), Exit(code=1, stderr="\udce9 boom"), Exit(code=None, signal=9)))), len(lines))
    assert all(isinstance(count, int) for count in codec.counters().values())
    return codec


@pytest.mark.parametrize("agent", AGENTS)
def test_each_agent_has_recordings_to_spoil(agent: str) -> None:
    """And unspoiled it is understood, at least by the agent that it is of."""
    assert len(corpus(agent)) >= 3
    codec = agents()[agent].make(Ids(ManualClock()).new)
    codec.launch(LaunchOptions("/bin/agent", "/project"))
    outputs = [*codec.start(), *codec.send(Prompt("key", "hello"))]
    for line in (line for lines in corpus(agent) for line in lines):
        outputs += codec.receive(line)
    assert any(isinstance(out, Fact | Signal) for out in outputs)


@pytest.mark.parametrize("agent", AGENTS)
@given(seed=st.integers(0, 2**40))
def test_spoiled_recordings(agent: str, seed: int) -> None:
    play(agent, seed)


@pytest.mark.parametrize(("agent", "seed"), SEEDS)
def test_earlier_findings_stay_fixed(agent: str, seed: int) -> None:
    play(agent, seed)


@given(seed=st.integers(0, 2**40), limit=st.integers(1, 4000))
def test_framer(seed: int, limit: int) -> None:
    """Recordings of all agents as one stream, cut and spoiled: bounded memory, and the same lines as in one piece."""
    random = Random(seed)
    lines = [mutate.line(random, line) for line in random.choice(corpus(random.choice(("claude", "codex", "pi"))))[:20]]
    stream = random.choice((b"\n", b"\r\n", b"\n\n")).join(lines)
    whole = LineFramer(limit_bytes=limit)
    wanted = [*whole.push(stream), *whole.close()]
    cut = LineFramer(limit_bytes=limit)
    found = []
    while stream:
        size = random.choice((1, 7, 100, 65536))
        found += cut.push(stream[:size])
        stream = stream[size:]
    assert [*found, *cut.close()] == wanted
    assert all(len(line) <= limit for line in wanted if isinstance(line, bytes))
