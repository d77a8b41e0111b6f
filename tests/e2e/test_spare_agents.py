"""Real agents wait for a session: the next one's first prompt goes to a process that waits, and its turn is as any other."""

from __future__ import annotations

import sqlite3
import urllib.request
from contextlib import closing

import pytest

from tests.bench.first_word import is_at_rest, pids

from .support import webui
from .support.bench import CLAUDE, Bench, Watch, bench, nightly
from .support.browser import Browser, url64
from .support.children import wait_for
from .support.places import Place, program
from .support.tui import tui
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


def conversations(place: Place) -> set[str]:
    """What the agents have kept of conversations: files of lines, and OpenCode's rows."""
    names = {str(path) for path in place.home.rglob("*.jsonl")}
    for path in (place.home / ".local" / "share" / "opencode").glob("*.db"):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as base:
            names |= {id_ for (id_,) in base.execute("SELECT id FROM session")}
    return names


@pytest.mark.parametrize("agent", AGENTS)
def test_the_next_session_gets_the_process_that_waits(agent: str) -> None:
    with bench(agent, SHIM_SPARE_AGENTS="2") as server:
        server.models()
        stream = Stream(server.api)
        server.later(stream.close)
        first = Watch.on(server.api, stream)
        assert texts(first.wait_for_end(first.prompt("[scene:text] one"))) == ["You said: one"]
        kept = conversations(server.place)
        wait_for(lambda: spares(server) == 1, START_S, lambda: f"no spare: {server.shim.child.log()[-2000:]}")
        assert len(server.model.requests()) > 0
        asked = len(server.model.requests())
        files = {path.name for path in server.place.project.iterdir()}
        wait_for(lambda: "agent.spare_prepared" in server.shim.child.log(), START_S, "the spare is not prepared")
        wait_for(lambda: is_at_rest(*pids(server.shim)), START_S, "the spare does not come to rest")
        assert conversations(server.place) == kept, "it begins no conversation that a person would find"
        second = Watch.on(server.api, stream)
        assert asked == len(server.model.requests()), "a spare asks its model nothing"
        assert texts(second.wait_for_end(second.prompt("[scene:text] two"))) == ["You said: two"]
        assert "spare=True" in server.shim.child.log()
        assert {path.name for path in server.place.project.iterdir()} == files, "it leaves nothing in the project"
        assert texts(second.wait_for_end(second.prompt("[scene:text] three"))) == ["You said: two", "You said: three"]
        assert server.unparsed_messages() == []


@pytest.mark.parametrize("client", nightly("tui", "web"))
def test_a_session_that_is_opened_in_a_client_gets_its_agent_ahead(client: str) -> None:
    web = {"SHIM_WEB_UI": "true", "SHIM_OPENCODE_BIN": program("opencode")} if client == "web" else {}
    with bench(CLAUDE, SHIM_SPARE_AGENTS="2", **web) as server:
        server.models()
        stream = Stream(server.api)
        first = Watch.on(server.api, stream)
        first.wait_for_end(first.prompt("[scene:text] one"))
        stream.close()
        server.restart()
        if client == "tui":
            server.later(tui(server.place, server.url, session=first.session).close)
        else:
            browser = Browser(server.place)
            server.later(browser.close)
            webui.know_project(browser, server.place)
            browser.goto(f"{server.url}/server/{url64(server.url)}/session/{first.session}")
        wait_for(lambda: spares(server) == 2, START_S, "one spare for a new session, one that continues the opened session")
        wait_for(lambda: is_at_rest(*pids(server.shim)), START_S, "the spares do not come to rest")
        stream = Stream(server.api)
        server.later(stream.close)
        again = Watch(server.api, stream, first.session, stream.mark())
        at = again.prompt("[scene:text] two")
        stream.idle(first.session, since=at)
        assert texts(server.api.messages(first.session)) == ["You said: one", "You said: two"]
        [spawned] = [line for line in server.shim.child.log().splitlines() if "agent.spawned" in line and "resume=True" in line]
        assert "spare=True" in spawned
