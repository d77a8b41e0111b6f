"""The web UI inside OpenCode 1.18.33 in OpenCode 2, which it turns to where `/global/health` does not answer and
`/api/health` has a process id: with the mock and with the real claude. Native 1.18.33 itself cannot serve it so."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .support import webui
from .support.bench import CLAUDE, MOCK, Bench, nightly
from .support.browser import Browser
from .support.children import wait_for
from .support.wire import texts, tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.server(*nightly(MOCK), CLAUDE, command="web")]
OPENCODE1_PATHS = r"/(session|event|global/event|message|permission|question)(/|\?|$)"
"""What the page asks for when it speaks OpenCode 1."""


@pytest.fixture(scope="module")
def browser(browser: Browser) -> Browser:
    """A browser in which OpenCode 1's health check fails, so that the web UI speaks OpenCode 2."""
    browser.do("refuse", glob="**/global/health")
    return browser


@pytest.fixture(autouse=True)
def new_session(server: Bench, web_ui: Browser) -> Iterator[None]:
    """Each test has a session of its own, speaks OpenCode 2 alone, and leaves the page without an error."""
    server.place.reset()
    webui.new_session(web_ui, server.place, server.url)
    web_ui.notes()
    yield
    assert [note for note in web_ui.notes() if note["kind"] == "pageerror"] == []
    asked = web_ui.do("eval", script="performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)")
    assert [path for path in asked if re.match(OPENCODE1_PATHS, path)] == []
    assert "/api/event" in asked or "/api/model" in asked, asked


def test_a_prompt_is_answered_in_a_stream_and_a_second_one_too(server: Bench, browser: Browser) -> None:
    early, late = server.say("word3", "tick 1"), server.say("word59", "tick 5")
    webui.submit(browser, server.say("[scene:drip:60] say much", "slow 5"))
    browser.wait_text(rf"{early}\b", 40)
    assert late not in browser.text(), "the text must be seen to grow"
    webui.wait_for_turn_end(browser)
    assert late in browser.text()
    webui.submit(browser, server.say("[scene:text] again", "echo You said: again"))
    browser.wait_text("You said: again", 40)
    webui.wait_for_turn_end(browser)


@pytest.mark.nightly
def test_an_edit_changes_the_file_and_is_shown(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:read_edit] edit", "edit README.md"))
    webui.wait_for_turn_end(browser)
    assert "Edit" in browser.text()
    added = (server.place.project / "README.md").read_text().splitlines()[1]
    browser.click('[data-slot="collapsible-trigger"]:has-text("Edit")')
    wait_for(lambda: added in webui.transcript(browser), 20, lambda: webui.transcript(browser))


def test_a_permission_is_answered(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:bash:touch made.txt] make it", "permission"))
    browser.wait_text("Allow once", 40)
    browser.click('button:text-is("Allow once")')
    webui.wait_for_turn_end(browser)
    found = tools(server.api.messages(webui.session_id(browser)))
    assert [tool["state"]["status"] for tool in found] == ["completed"]


@pytest.mark.nightly
def test_a_question_is_answered(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:question] ask", "question"))
    browser.wait(webui.DIALOG, timeout_s=40)
    session = webui.session_id(browser)
    [question] = [q for q in server.api.get("/question") if q["sessionID"] == session]
    assert question["questions"][0]["question"] in browser.text(webui.DIALOG)
    for _ in question["questions"]:
        browser.click('[data-slot="question-option"]')
        for button in ("Submit", "Next"):
            if browser.do("count", selector=f'button:text-is("{button}")'):
                browser.click(f'button:text-is("{button}")')
                break
    webui.wait_for_turn_end(browser)
    assert [q for q in server.api.get("/question") if q["sessionID"] == session] == []


@pytest.mark.nightly
def test_stop(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:hang] think", "hang"))
    browser.wait(webui.STOP, timeout_s=40)
    wait_for(lambda: "hang" in browser.text() or "long time" in browser.text(), 40, lambda: browser.text())
    browser.click(webui.STOP)
    webui.wait_idle(browser)
    assert webui.session_id(browser) not in server.api.status()


@pytest.mark.nightly
def test_a_reload_in_the_middle_of_a_turn_loses_nothing(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:drip:120] say much", "slow 12"))
    browser.wait_text(server.say("word9", "tick 1"), 40)
    session = webui.session_id(browser)
    browser.do("reload")
    browser.wait(webui.STOP)
    assert session in server.api.status(), "the turn must still run"
    webui.wait_for_turn_end(browser)
    (said,) = texts(server.api.messages(session))
    assert " ".join(said.split()) in " ".join(browser.text().split())


def test_an_opencode1_clients_turn_is_seen_at_once(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:text] first", "echo You said: first"))
    browser.wait_text("You said: first", 40)
    webui.wait_for_turn_end(browser)
    server.api.prompt(webui.session_id(browser), server.say("[scene:text] from elsewhere", "echo You said: from elsewhere"))
    browser.wait_text("You said: from elsewhere", 40)
    webui.wait_idle(browser)
