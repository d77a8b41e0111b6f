"""Clients of OpenCode 2 and of OpenCode 1 on the same sessions at the same moment, each on its own wire.

The 2.x client is a stand-in that does what a TUI of 2.x was seen to do (`support.client2`); the others are the real
TUI and web UI of 1.18.33.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .support import webui
from .support.bench import CLAUDE, MOCK, Bench, nightly
from .support.browser import Browser
from .support.client2 import Client2
from .support.scenes import wait_for_turns
from .support.tmux import Terminal
from .support.tui import new_session, tui
from .support.wire import texts, tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.server(*nightly(MOCK), CLAUDE, SHIM_WEB_UI="true")]


@pytest.fixture(scope="module")
def client2(server: Bench) -> Iterator[Client2]:
    made = Client2(server.api)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def fresh(server: Bench) -> None:
    server.place.reset()


def test_a_client_of_2_finds_all_that_it_asks_at_its_start(server: Bench, client2: Client2) -> None:
    assert client2.info["version"]
    assert client2.location["directory"] == str(server.place.project)
    assert client2.at_start["model"], "without a model it wants a provider connected"
    assert any(agent["mode"] == "primary" and not agent["hidden"] for agent in client2.at_start["agent"])


def test_a_turn_with_an_edit(server: Bench, client2: Client2) -> None:
    session = client2.begin(server.say("[scene:read_edit] edit", "edit README.md"))
    story = client2.idle(session)
    assert story.ends == ["succeeded"]
    assert [tool["status"] for tool in story.tools()] == ["completed"] * len(story.tools())
    edit = next(tool for tool in story.tools() if tool["name"] == "edit")
    assert [one["status"] for one in edit["metadata"]["files"]] == ["modified"]
    assert len((server.place.project / "README.md").read_text().splitlines()) == 2
    assert texts(server.api.messages(session)) == [text for text in story.assistant_texts() if text]


@pytest.mark.parametrize(("reply", "status"), [("once", "completed"), ("reject", "error")])
def test_a_permission_is_answered(server: Bench, client2: Client2, reply: str, status: str) -> None:
    session = client2.begin(server.say("[scene:bash:touch made.txt] make it", "permission"))
    story = client2.wait(session, lambda one: one.permissions, "a permission")
    [request] = story.permissions
    assert client2.api.ask("GET", f"/api/session/{session}/permission")["data"] == list(story.permissions.values())
    client2.api.ask("POST", f"/api/session/{session}/permission/{request}/reply", {"decision": reply}, status=204)
    story = client2.idle(session)
    assert story.permissions == {}
    assert [tool["status"] for tool in story.tools()] == [status]


def test_a_form_is_answered(server: Bench, client2: Client2) -> None:
    session = client2.begin(server.say("[scene:question] ask", "question"))
    story = client2.wait(session, lambda one: one.forms, "a form")
    [form] = story.forms.values()
    chosen = {one["key"]: one["options"][0]["value"] for one in form["fields"]}
    chosen = {one["key"]: [chosen[one["key"]]] if one["type"] == "multiselect" else chosen[one["key"]] for one in form["fields"]}
    client2.api.ask("POST", f"/api/session/{session}/form/{form['id']}/reply", {"answer": chosen}, status=204)
    story = client2.idle(session)
    assert (story.forms, story.ends) == ({}, ["succeeded"])


def test_an_interrupt_ends_it_once(server: Bench, client2: Client2) -> None:
    session = client2.begin(server.say("[scene:hang] think", "hang"))
    client2.wait(session, lambda one: any(one.assistant_texts()), "a word")
    client2.api.ask("POST", f"/api/session/{session}/interrupt")
    assert client2.idle(session).ends == ["interrupted by user"]
    client2.say(session, server.say("[scene:text] again", "echo You said: again"))
    story = client2.idle(session, 2)
    assert story.assistant_texts()[-1] == "You said: again"


def test_three_turns_in_one_session(server: Bench, client2: Client2) -> None:
    session = client2.begin(server.say("[scene:text] one", "echo You said: one"))
    client2.idle(session)
    for number, word in ((2, "two"), (3, "three")):
        client2.say(session, server.say(f"[scene:text] {word}", f"echo You said: {word}"))
        client2.idle(session, number)
    assert client2.story(session).assistant_texts() == ["You said: one", "You said: two", "You said: three"]
    assert [one["text"] for one in client2.story(session).messages.values() if one["type"] == "user"][-1].endswith("three")


# --- beside clients of OpenCode 1 ------------------------------------------------------------------------------


def test_the_tui_of_1_shows_what_a_client_of_2_does(server: Bench, client2: Client2) -> None:
    session = client2.begin(server.say("[scene:text] for both", "echo You said: for both"))
    client2.idle(session)
    terminal = tui(server.place, server.url, session=session)
    try:
        terminal.wait("You said: for both", 40)
        client2.say(session, server.say("[scene:drip:40] talk", "slow 4"))
        early, late = server.say("word3", "tick 1"), server.say("word39", "tick 4")
        assert late not in terminal.wait(rf"{early}\b", 40), "the text must be seen to grow"
        terminal.wait(late, 20)
        client2.idle(session, 2)
        wait_for_turns(terminal)
    finally:
        terminal.close()


def test_a_client_of_2_shows_what_the_tui_of_1_does(server: Bench, client2: Client2, terminal: Terminal) -> None:
    new_session(terminal)
    at = client2.stream.mark()
    terminal.submit(server.say("[scene:bash:touch made.txt] make it", "permission"))
    created = client2.stream.wait(lambda event: event["type"] == "session.created", since=at)
    session = created["data"]["sessionID"]
    story = client2.wait(session, lambda one: one.permissions, "a permission")
    [request] = story.permissions
    terminal.wait("Permission required", 40)
    client2.api.ask("POST", f"/api/session/{session}/permission/{request}/reply", {"decision": "once"}, status=204)
    terminal.wait("Permission required", 20, gone=True)
    story = client2.idle(session)
    wait_for_turns(terminal)
    assert [tool["status"] for tool in story.tools()] == ["completed"]
    assert [tool["state"]["status"] for tool in tools(server.api.messages(session))] == ["completed"]


@pytest.mark.nightly
def test_the_web_ui_of_1_shows_what_a_client_of_2_does_and_the_other_way_round(server: Bench, client2: Client2) -> None:
    browser = Browser(server.place, "together")
    try:
        webui.know_project(browser, server.place)
        webui.new_session(browser, server.place, server.url)
        webui.submit(browser, server.say("[scene:text] from the page", "echo You said: from the page"))
        browser.wait_text("You said: from the page", 40)
        webui.wait_idle(browser)
        session = webui.session_id(browser)
        assert client2.idle(session).assistant_texts() == ["You said: from the page"]
        assert [one["type"] for one in client2.open(session)["message"]].count("user") == 1
        client2.say(session, server.say("[scene:drip:40] talk", "slow 4"))
        browser.wait_text(server.say("word3", "tick 1"), 40)
        browser.wait(webui.STOP)
        client2.idle(session, 2)
        webui.wait_idle(browser)
        browser.wait_text(server.say("word39", "tick 4"))
    finally:
        browser.close()


def test_remote_control_reaches_clients_of_both(server: Bench, client2: Client2, terminal: Terminal) -> None:
    new_session(terminal)
    at = client2.stream.mark()
    server.api.post("/tui/append-prompt", {"text": "written from afar"})
    terminal.wait("written from afar", 20)
    told = client2.stream.wait(lambda event: event["type"] == "tui.prompt.append", since=at)
    assert told["data"] == {"text": "written from afar"}
    server.api.post("/tui/show-toast", {"message": "a note", "variant": "info"})
    told = client2.stream.wait(lambda event: event["type"] == "tui.toast.show", since=at)
    assert told["data"] == {"message": "a note", "variant": "info"}
