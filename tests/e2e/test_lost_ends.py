"""Real agents whose line that ends a turn is lost on the way to the server: the turn ends once all the same."""

from __future__ import annotations

import shlex
from contextlib import closing
from pathlib import Path

import pytest

from .support.agents import AGENTS
from .support.bench import Bench, Watch
from .support.places import program
from .support.wire import Stream, texts

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

LOST = [
    ("claude", '"type":"result"'),
    pytest.param("claude", '"state":"idle"', marks=pytest.mark.nightly),
    ("codex", '"turn/completed"'),
    pytest.param("pi", '"agent_settled"', marks=pytest.mark.nightly),
]
"""(agent, words of the line that never comes)."""
END_S = 60


@pytest.mark.parametrize(("agent", "words"), LOST)
def test_a_turn_ends_without_the_line_that_ends_it(agent: str, words: str, tmp_path: Path) -> None:
    script = tmp_path / "lossy"
    real = program(AGENTS[agent].program or "")
    script.write_text(f'#!/bin/sh\n{shlex.quote(str(real))} "$@" | grep --line-buffered -v -F {shlex.quote(words)}\n')
    script.chmod(0o755)
    with closing(Bench.open(agent, **{AGENTS[agent].variable: str(script)})) as server, closing(Stream(server.api)) as stream:
        watch = Watch.on(server.api, stream)
        for number in ("first", "second"):
            at = watch.prompt(f"[scene:text] {number}")
            said = texts(watch.wait_for_end(at, timeout_s=END_S))
            assert said[-1] == f"You said: {number}"
