"""Clients of OpenCode 2 and of OpenCode 1 on the same sessions at the same moment, each on its own wire.

The 2.x client is a stand-in that does what the TUI of July 2026 was seen to do (`support.july`); the others are the real
TUI and web UI of 1.18.33.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .support import webui
from .support.bench import CLAUDE, MOCK, Bench, nightly
from .support.browser import Browser
from .support.july import July
from .support.scenes import wait_for_turns
from .support.tmux import Terminal
from .support.tui import new_session, tui
from .support.wire import texts, tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.server(*nightly(MOCK), CLAUDE, SHIM_WEB_UI="true")]


@pytest.fixture(scope="module")
def july(server: Bench) -> Iterator[July]:
    made = July(server.api)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def fresh(server: Bench) -> None:
    server.place.reset()


def test_the_july_tui_finds_all_that_it_asks_at_its_start(server: Bench, july: July) -> None:
    assert july.health["healthy"] is True
    assert july.location["directory"] == str(server.place.project)
    assert july.at_start["model"], "without a model it wants a provider connected"
    assert any(agent["mode"] == "primary" and not agent["hidden"] for agent in july.at_start["agent"])


def test_a_turn_with_an_edit(server: Bench, july: July) -> None:
    session = july.begin(server.say("[scene:read_edit] edit", "edit README.md"))
    story = july.idle(session)
    assert story.ends == ["succeeded"]
    assert [tool["status"] for tool in story.tools()] == ["completed"] * len(story.tools())
    edit = next(tool for tool in story.tools() if tool["name"] == "edit")
    assert [one["status"] for one in edit["structured"]["files"]] == ["modified"]
    assert len((server.place.project / "README.md").read_text().splitlines()) == 2
    assert texts(server.api.messages(session)) == [text for text in story.assistant_texts() if text]


@pytest.mark.parametrize(("reply", "status"), [("once", "completed"), ("reject", "error")])
def test_a_permission_is_answered(server: Bench, july: July, reply: str, status: str) -> None:
    session = july.begin(server.say("[scene:bash:touch made.txt] make it", "permission"))
    story = july.wait(session, lambda one: one.permissions, "a permission")
    [request] = story.permissions
    assert july.api.ask("GET", f"/api/session/{session}/permission")["data"] == list(story.permissions.values())
    july.api.ask("POST", f"/api/session/{session}/permission/{request}/reply", {"reply": reply}, status=204)
    story = july.idle(session)
    assert story.permissions == {}
    assert [tool["status"] for tool in story.tools()] == [status]


def test_a_form_is_answered(server: Bench, july: July) -> None:
    session = july.begin(server.say("[scene:question] ask", "question"))
    story = july.wait(session, lambda one: one.forms, "a form")
    [form] = story.forms.values()
    chosen = {one["key"]: one["options"][0]["value"] for one in form["fields"]}
    chosen = {one["key"]: [chosen[one["key"]]] if one["type"] == "multiselect" else chosen[one["key"]] for one in form["fields"]}
    july.api.ask("POST", f"/api/session/{session}/form/{form['id']}/reply", {"answer": chosen}, status=204)
    story = july.idle(session)
    assert (story.forms, story.ends) == ({}, ["succeeded"])


def test_an_interrupt_ends_it_once(server: Bench, july: July) -> None:
    session = july.begin(server.say("[scene:hang] think", "hang"))
    july.wait(session, lambda one: any(one.assistant_texts()), "a word")
    july.api.ask("POST", f"/api/session/{session}/interrupt", status=204)
    assert july.idle(session).ends == ["interrupted by user"]
    july.say(session, server.say("[scene:text] again", "echo You said: again"))
    story = july.idle(session, 2)
    assert story.assistant_texts()[-1] == "You said: again"


def test_three_turns_in_one_session(server: Bench, july: July) -> None:
    session = july.begin(server.say("[scene:text] one", "echo You said: one"))
    july.idle(session)
    for number, word in ((2, "two"), (3, "three")):
        july.say(session, server.say(f"[scene:text] {word}", f"echo You said: {word}"))
        july.idle(session, number)
    assert july.story(session).assistant_texts() == ["You said: one", "You said: two", "You said: three"]
    assert [one["text"] for one in july.story(session).messages.values() if one["type"] == "user"][-1].endswith("three")


# --- beside clients of OpenCode 1 ------------------------------------------------------------------------------


def test_the_tui_of_1_shows_what_a_client_of_2_does(server: Bench, july: July) -> None:
    session = july.begin(server.say("[scene:text] for both", "echo You said: for both"))
    july.idle(session)
    terminal = tui(server.place, server.url, session=session)
    try:
        terminal.wait("You said: for both", 40)
        july.say(session, server.say("[scene:drip:40] talk", "slow 4"))
        early, late = server.say("word3", "tick 1"), server.say("word39", "tick 4")
        assert late not in terminal.wait(rf"{early}\b", 40), "the text must be seen to grow"
        terminal.wait(late, 20)
        july.idle(session, 2)
        wait_for_turns(terminal)
    finally:
        terminal.close()


def test_a_client_of_2_shows_what_the_tui_of_1_does(server: Bench, july: July, terminal: Terminal) -> None:
    new_session(terminal)
    at = july.stream.mark()
    terminal.submit(server.say("[scene:bash:touch made.txt] make it", "permission"))
    created = july.stream.wait(lambda event: event["type"] == "session.created", since=at)
    session = created["data"]["sessionID"]
    story = july.wait(session, lambda one: one.permissions, "a permission")
    [request] = story.permissions
    terminal.wait("Permission required", 40)
    july.api.ask("POST", f"/api/session/{session}/permission/{request}/reply", {"reply": "once"}, status=204)
    terminal.wait("Permission required", 20, gone=True)
    story = july.idle(session)
    wait_for_turns(terminal)
    assert [tool["status"] for tool in story.tools()] == ["completed"]
    assert [tool["state"]["status"] for tool in tools(server.api.messages(session))] == ["completed"]


def test_the_web_ui_of_1_shows_what_a_client_of_2_does_and_the_other_way_round(server: Bench, july: July) -> None:
    browser = Browser(server.place, "together")
    try:
        webui.know_project(browser, server.place)
        webui.new_session(browser, server.place, server.url)
        webui.submit(browser, server.say("[scene:text] from the page", "echo You said: from the page"))
        browser.wait_text("You said: from the page", 40)
        webui.wait_idle(browser)
        session = webui.session_id(browser)
        assert july.idle(session).assistant_texts() == ["You said: from the page"]
        assert [one["type"] for one in july.open(session)["message"]].count("user") == 1
        july.say(session, server.say("[scene:drip:40] talk", "slow 4"))
        browser.wait_text(server.say("word3", "tick 1"), 40)
        browser.wait(webui.STOP)
        july.idle(session, 2)
        webui.wait_idle(browser)
        browser.wait_text(server.say("word39", "tick 4"))
    finally:
        browser.close()


def test_remote_control_reaches_clients_of_both(server: Bench, july: July, terminal: Terminal) -> None:
    new_session(terminal)
    at = july.stream.mark()
    server.api.post("/tui/append-prompt", {"text": "written from afar"})
    terminal.wait("written from afar", 20)
    told = july.stream.wait(lambda event: event["type"] == "tui.prompt.append", since=at)
    assert told["data"] == {"text": "written from afar"}
    server.api.post("/tui/show-toast", {"message": "a note", "variant": "info"})
    told = july.stream.wait(lambda event: event["type"] == "tui.toast.show", since=at)
    assert told["data"] == {"message": "a note", "variant": "info"}
