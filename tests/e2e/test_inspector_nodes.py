"""The inspector's page of a cluster in Chromium: three servers, a lost one, and no link without a cluster. With E2E_PICTURES its
pictures of docs/pictures/inspector are made anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.process.test_two_servers import Server, server
from tests.support.nats_server import NatsServer

from .support.browser import Browser
from .support.places import Place
from .test_inspector import DESKTOP, PHONE, PICTURES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
SEEN_S = 40
"""For the page to show what has happened: a lease lasts 9 s, and the page asks every two."""
HERE = ".card:has-text('this server')"


@pytest.fixture
def page(place: Place) -> Iterator[Browser]:
    browser = Browser(place, "nodes")
    browser.do("look", **DESKTOP, scheme="light")
    yield browser
    browser.close()


@pytest.fixture
def nats(place: Place) -> Iterator[NatsServer]:
    nats = NatsServer(place.root / "nats")
    nats.start()
    yield nats
    nats.stop()


def check(page: Browser, picture: str = "") -> None:
    """Nothing is wrong with the page as it is; a picture of it, where one is wanted."""
    page.do("rest")
    assert page.do("axe") == []
    assert page.notes() == []
    if picture and os.environ.get("E2E_PICTURES"):
        page.screenshot(PICTURES / f"{picture}.png")


def session(node: Server, title: str, prompt: str) -> None:
    session_id = str(node.ask("POST", "/session", {"title": title})[1]["id"])
    node.begin(session_id, prompt)


def test_the_page_shows_each_server_with_its_sessions_until_it_is_lost(place: Place, nats: NatsServer, page: Browser) -> None:
    def settings(name: str, **more: str) -> dict[str, str]:
        return {"SHIM_CLUSTER": nats.url, "SHIM_DATA_DIR": str(place.root / name), "SHIM_CLUSTER_NAME": name, **more}

    claude = place.root / "claude"
    claude.write_text("#!/bin/sh\necho '2.1.330 (Claude Code)'\n")
    claude.chmod(0o755)
    agents = json.dumps({"reviewer": {"command": ["/bin/cat"]}})
    with (
        server(place.project, **settings("node-1", SHIM_ROOTS=str(place.home), SHIM_CLAUDE_BIN=str(claude))) as one,
        server(place.project, **settings("node-2", SHIM_MAX_AGENTS="4", SHIM_AGENTS=agents)) as two,
        server(place.project, **settings("front", SHIM_NO_AGENTS="true")) as front,
    ):
        session(one, "Fix the parser", "echo done")
        session(one, "Long work", "hang")
        session(two, "Write the tests", "echo done")
        page.goto(f"{front.url}/inspector/")
        page.click("nav a:has-text('Nodes')")
        page.wait(".card:has-text('node-1') li:has-text('Long work'):has-text('running')", timeout_s=SEEN_S)
        page.wait(".card:has-text('node-2') .chip:has-text('reviewer')", timeout_s=SEEN_S)
        page.wait(".card:has-text('node-2'):has-text('1 session')", timeout_s=SEEN_S)
        page.wait(".card:has-text('node-1'):has-text('2 sessions')", timeout_s=SEEN_S)
        page.wait(".card:has-text('node-1') .chip:has-text('claude 2.1.330')", timeout_s=SEEN_S)
        assert "front" in page.text(HERE)
        assert "runs no agents" in page.text(HERE)
        assert f"3 servers on NATS at {nats.url.removeprefix('nats://')}" in page.text("#main").replace("\n", " ")
        check(page, "nodes-light")
        page.do("look", **PHONE, scheme="dark")
        check(page, "nodes-phone-dark")
        two.kill()
        page.wait(".card:has-text('node-2')", state="detached", timeout_s=SEEN_S)
        check(page)
        page.click(".card a:has-text('Long work')")
        page.wait("h2:has-text('Long work')")


def test_a_server_without_a_cluster_has_no_page_of_nodes(place: Place, page: Browser) -> None:
    with server(place.project) as alone:
        page.goto(f"{alone.url}/inspector/#/nodes")
        page.wait(".blank:has-text('This server is in no cluster.')")
        assert "Nodes" not in page.text("nav")
        check(page)
