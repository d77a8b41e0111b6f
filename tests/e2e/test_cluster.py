"""OpenCode's TUI and web UI on a front, and agents on other servers of the cluster: work, a terminal, the death of a server.

Each server has a data directory and a Claude of its own, so that the second one does not have the conversation of the first.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from aiohttp import ClientSession, WSMsgType

from tests.process.test_cluster_places import parent_of
from tests.support.nats_server import NatsServer

from .support import webui
from .support.bench import CLAUDE, MOCK
from .support.browser import Browser
from .support.children import wait_for
from .support.places import Place, program
from .support.scenes import CONFIG, wait_for_turns
from .support.servers import Model, Shim, configure
from .support.tui import READY, START_S, command, tui
from .support.wire import Api
from .test_password import PASSWORD, token_of
from .test_password import terminal as person_terminal
from .test_web_terminal import ink, open_terminal, type_line, type_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
SEEN_S = 40
LOST_S = 15
"""Seconds within which a client sees that a killed server's turn has ended."""
PICTURES = os.environ.get("E2E_PICTURES", "")
"""A folder for the screens of docs/cluster.md; empty: they are not written."""

StartServer = Callable[..., Shim]


def show(name: str, screen: str) -> None:
    if PICTURES:
        (Path(PICTURES) / f"{name}.txt").write_text("\n".join(line.rstrip() for line in screen.splitlines()).strip("\n") + "\n")


@pytest.fixture
def start(place: Place) -> Iterator[StartServer]:
    """Starts a server of the cluster: its name, the agent, the command, and more settings."""
    configure(place, {**CONFIG})
    with ExitStack() as ends:
        nats = NatsServer(place.root / "nats")
        nats.start()
        ends.callback(nats.stop)
        model = Model(place)
        ends.callback(model.close)

        def start_server(name: str, agent: str = CLAUDE, command: str = "serve", **settings: str) -> Shim:
            folder = place.root / name
            folder.mkdir()
            server = Shim(
                place,
                agent=agent,
                also=(),
                command=command,
                model=model,
                port=0,
                args=("--data-dir", str(folder / "data")),
                name=name,
                SHIM_CLUSTER=nats.url,
                SHIM_CLUSTER_NAME=name,
                CLAUDE_CONFIG_DIR=str(folder / "claude"),
                **settings,
            )
            ends.callback(server.close)
            return server

        yield start_server


async def type_into_terminal(api: Api, terminal: str, line: str, wanted: str) -> None:
    url = f"{api.url}/pty/{terminal}/connect?directory={api.directory}"
    output = ""
    async with ClientSession() as client, client.ws_connect(url) as socket, asyncio.timeout(SEEN_S):
        await socket.send_str(line)
        while wanted not in output:
            message = await socket.receive()
            assert message.type in (WSMsgType.TEXT, WSMsgType.BINARY), (message, output)
            output += message.data if message.type is WSMsgType.TEXT else ""


def test_the_tui_on_a_front_works_on_and_goes_on_when_a_server_is_killed(place: Place, start: StartServer) -> None:
    one = start("one")
    front = start("front", SHIM_NO_AGENTS="true")
    api = Api(front.url, place.project)
    wait_for(lambda: api.call("GET", "/provider")[1].get("connected"), SEEN_S, "the front shows no agent")
    terminal = tui(place, front.url, columns=100, rows=30)
    try:
        terminal.submit("[scene:ask_bash:touch made.txt] Make the file made.txt")
        terminal.wait(("Permission required", r"\$ touch made\.txt"), SEEN_S)
        show("1-permission", terminal.settle())
        assert not (place.project / "made.txt").exists()
        terminal.key("Enter", pause_s=0.5)
        wait_for_turns(terminal)
        assert (place.project / "made.txt").exists()
        show("2-answer", terminal.settle())

        shell = api.post("/pty", {"command": "/bin/sh"})
        asyncio.run(type_into_terminal(api, shell["id"], "cat made.txt && echo m''ade\n", "made"))
        assert Path(f"/proc/{shell['pid']}/cwd").resolve() == place.project
        assert Api(one.url, place.project).get("/pty") == api.get("/pty") == [shell]

        two = start("two")
        terminal.submit("[scene:hang] think")
        terminal.wait("for a long time", SEEN_S)
        one.child.send(9)
        terminal.wait("The server one was lost", LOST_S)
        show("3-lost", terminal.settle())
        wait_for(lambda: api.get("/pty") == [], SEEN_S, "the terminal of the killed server is still there")

        terminal.submit("[scene:text] go on there")
        terminal.wait("You said: go on there", SEEN_S)
        show("4-goes-on", terminal.settle())
        (session,) = api.get("/session")
        texts = [part["text"] for message in api.messages(session["id"]) for part in message["parts"] if part["type"] == "text"]
        assert texts == [
            part["text"]
            for message in Api(two.url, place.project).messages(session["id"])
            for part in message["parts"]
            if part["type"] == "text"
        ]
    finally:
        terminal.close()


def test_two_people_on_two_servers_and_one_may_only_look(place: Place, start: StartServer) -> None:
    """A turn of wim's at one server; vera sees it at the other, and answers and prompts in vain. Both know who did what."""
    one, two = (start(name, MOCK, OPENCODE_SERVER_PASSWORD=PASSWORD) for name in ("one", "two"))
    tokens = {"wim": token_of(one, "wim", "work"), "vera": token_of(one, "vera", "view")}
    known = partial(http, two, "/session", tokens["vera"])
    wait_for(lambda: known()[0] == 200, SEEN_S, "the second server does not know vera")
    worker = person_terminal(one, "wim", OPENCODE_SERVER_PASSWORD=tokens["wim"])
    viewer = person_terminal(two, "vera", OPENCODE_SERVER_PASSWORD=tokens["vera"])
    try:
        for window in (worker, viewer):
            window.wait(re.compile(READY, re.MULTILINE), START_S)
        worker.type("permission")
        worker.key("Enter")
        worker.wait("Permission required", SEEN_S)
        command(viewer, "sessions")
        viewer.wait("permission", SEEN_S)
        viewer.key("Enter")
        viewer.wait("Permission required", SEEN_S)
        viewer.key("Enter")  # "Allow once", which is refused
        viewer.wait("Permission required", SEEN_S)
        worker.key("Enter")
        worker.wait("Pushed.", SEEN_S)
        viewer.wait("Pushed.", SEEN_S)
        viewer.type("echo mine")
        viewer.key("Enter")
        viewer.wait("has the role view", SEEN_S)
        show("two-people-wim", worker.settle())
        show("two-people-vera", viewer.settle())
    finally:
        worker.close()
        viewer.close()
    [session] = json.loads(http(two, "/session", tokens["vera"])[1])
    assert session["metadata"] == {"owner": "wim"}
    path = f"/session/{session['id']}"
    assert http(two, path, tokens["vera"], "PATCH", {"title": "hers"})[0] == 403
    forged = {"X-Shim-Person": '{"name": "ada", "role": "admin"}'}
    assert http(two, path, tokens["wim"], "PATCH", {"title": "his"}, **forged)[0] == 200
    texts = [http(server, f"/v1{path.replace('session', 'sessions', 1)}/events?limit=5000", PASSWORD)[1] for server in (one, two)]
    for events in (json.loads(text)["events"] for text in texts):
        assert {event["by"] for event in events if "by" in event} == {"wim"}
        assert [event["by"] for event in events if event["type"] == "permission.resolved"] == ["wim"]
        assert events[-1]["by"] == "wim", "a request that the other server has carried out"


def http(server: Shim, path: str, secret: str, method: str = "GET", body: object = None, **headers: str) -> tuple[int, str]:
    """The status and the text of an answer to who has this password or token."""
    basic = base64.b64encode(f"opencode:{secret}".encode()).decode()
    query = "&" if "?" in path else "?"
    request = Request(
        f"{server.url}{path}{query}directory={server.place.project}",
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Basic {basic}", "Content-Type": "application/json", **headers},
        method=method,
    )
    try:
        with urlopen(request, timeout=SEEN_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.nightly
def test_a_terminal_of_the_web_ui_on_a_front_runs_on_the_other_server(place: Place, start: StartServer) -> None:
    one = start("one", MOCK)
    front = start("front", MOCK, "web", SHIM_NO_AGENTS="true", SHIM_OPENCODE_BIN=program("opencode"))
    api = Api(front.url, place.project)
    wait_for(lambda: "mock" in api.call("GET", "/provider")[1].get("connected", ()), SEEN_S, "the front shows no agent")
    browser = Browser(place)
    try:
        webui.know_project(browser, place)
        webui.new_session(browser, place, front.url)
        webui.submit(browser, "hello")
        webui.wait_idle(browser)
        open_terminal(browser)
        output = place.project / "from-terminal.txt"
        type_until(browser, "tty > from-terminal.txt", lambda: output.exists() and output.read_text().startswith("/dev/"))
        browser.do("rest")
        before = ink(browser)
        type_line(browser, "printf '%0400d' 8")
        wait_for(lambda: ink(browser) > before + 400 * 10, SEEN_S, "the output is not seen")
        (shell,) = Api(one.url, place.project).get("/pty")
        assert api.get("/pty") == [shell]
        assert parent_of(shell["pid"]) == one.child.pid
        assert [note for note in browser.notes() if note["kind"] in ("pageerror", "http")] == []
    finally:
        browser.close()
