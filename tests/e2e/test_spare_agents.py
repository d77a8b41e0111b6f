"""Real agents wait for a session: the next one's first prompt goes to a process that waits, and its turn is as any other."""

from __future__ import annotations

import urllib.request

import pytest

from .support.bench import CLAUDE, Bench, Watch, bench, nightly
from .support.children import wait_for
from .support.wire import Stream, texts

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
AGENTS = [CLAUDE, *nightly("codex", "pi", "opencode", "claude-agent-acp")]
START_S = 90
"""For a spare. It waits 2 s, is started at the next look (5 s), and OpenCode takes long to listen."""


def spares(server: Bench) -> int:
    """How many agents wait."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
        rows = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    return int(float(rows['opencode_shim_agents{state="spare"}']))


@pytest.mark.parametrize("agent", AGENTS)
def test_the_next_session_gets_the_process_that_waits(agent: str) -> None:
    with bench(agent, SHIM_SPARE_AGENTS="2") as server:
        server.models()
        stream = Stream(server.api)
        server.later(stream.close)
        first = Watch.on(server.api, stream)
        assert texts(first.wait_for_end(first.prompt("[scene:text] one"))) == ["You said: one"]
        wait_for(lambda: spares(server) == 1, START_S, lambda: f"no spare: {server.shim.child.log()[-2000:]}")
        assert len(server.model.requests()) > 0
        asked = len(server.model.requests())
        files = {path.name for path in server.place.project.iterdir()}
        second = Watch.on(server.api, stream)
        assert asked == len(server.model.requests()), "a spare asks its model nothing"
        assert texts(second.wait_for_end(second.prompt("[scene:text] two"))) == ["You said: two"]
        assert "spare=True" in server.shim.child.log()
        assert {path.name for path in server.place.project.iterdir()} == files, "it leaves nothing in the project"
        assert texts(second.wait_for_end(second.prompt("[scene:text] three"))) == ["You said: two", "You said: three"]
        assert server.unparsed_messages() == []
