"""The web UI inside OpenCode 1.18.33 in its second protocol, which it turns to where `/global/health` does not answer and
`/api/health` has a process id: with the mock and with the real claude. Native 1.18.33 itself cannot serve it so."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .support import webui
from .support.bench import CLAUDE, MOCK, Bench, bench, nightly
from .support.browser import Browser
from .support.children import wait_for
from .support.places import program
from .support.wire import texts, tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
FIRST_WIRE = r"/(session|event|global/event|message|permission|question)(/|\?|$)"
"""What it would ask if it spoke its first protocol."""


@pytest.fixture(scope="module", params=[*nightly(MOCK), CLAUDE])
def served(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with bench(request.param, command="web", SHIM_OPENCODE_BIN=program("opencode")) as made:
        yield made


@pytest.fixture(scope="module")
def browser(served: Bench) -> Iterator[Browser]:
    made = Browser(served.place)
    made.do("refuse", glob="**/global/health")
    webui.know_project(made, served.place)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def new_session(served: Bench, browser: Browser) -> Iterator[None]:
    """Each test has a session of its own, speaks the second protocol alone, and leaves the page without an error."""
    served.place.reset()
    webui.new_session(browser, served.place, served.url)
    browser.notes()
    yield
    assert [note for note in browser.notes() if note["kind"] == "pageerror"] == []
    asked = browser.do("eval", script="performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)")
    assert [path for path in asked if re.match(FIRST_WIRE, path)] == []
    assert "/api/event" in asked or "/api/model" in asked, asked


def finished(browser: Browser) -> None:
    """The turn has its foot line, and nothing is busy."""
    browser.wait_text(r"·\s+\d+(\.\d+)?m?s", 60)
    webui.wait_idle(browser)


def test_a_prompt_is_answered_in_a_stream_and_a_second_one_too(served: Bench, browser: Browser) -> None:
    early, late = served.say("word3", "tick 1"), served.say("word59", "tick 5")
    webui.submit(browser, served.say("[scene:drip:60] say much", "slow 5"))
    browser.wait_text(rf"{early}\b", 40)
    assert late not in browser.text(), "the text must be seen to grow"
    finished(browser)
    assert late in browser.text()
    webui.submit(browser, served.say("[scene:text] again", "echo You said: again"))
    browser.wait_text("You said: again", 40)
    finished(browser)


@pytest.mark.nightly
def test_an_edit_changes_the_file_and_is_shown(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:read_edit] edit", "edit README.md"))
    finished(browser)
    assert "Edit" in browser.text()
    added = (served.place.project / "README.md").read_text().splitlines()[1]
    browser.click('[data-slot="collapsible-trigger"]:has-text("Edit")')
    wait_for(lambda: added in webui.transcript(browser), 20, lambda: webui.transcript(browser))


def test_a_permission_is_answered(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:bash:touch made.txt] make it", "permission"))
    browser.wait_text("Allow once", 40)
    browser.click('button:text-is("Allow once")')
    finished(browser)
    found = tools(served.api.messages(webui.session_id(browser)))
    assert [tool["state"]["status"] for tool in found] == ["completed"]


def test_a_question_is_answered(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:question] ask", "question"))
    browser.wait(webui.DIALOG, timeout_s=40)
    session = webui.session_id(browser)
    [question] = [q for q in served.api.get("/question") if q["sessionID"] == session]
    assert question["questions"][0]["question"] in browser.text(webui.DIALOG)
    for _ in question["questions"]:
        browser.click('[data-slot="question-option"]')
        for button in ("Submit", "Next"):
            if browser.do("count", selector=f'button:text-is("{button}")'):
                browser.click(f'button:text-is("{button}")')
                break
    finished(browser)
    assert [q for q in served.api.get("/question") if q["sessionID"] == session] == []


@pytest.mark.nightly
def test_stop(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:hang] think", "hang"))
    browser.wait(webui.STOP, timeout_s=40)
    wait_for(lambda: "hang" in browser.text() or "long time" in browser.text(), 40, lambda: browser.text())
    browser.click(webui.STOP)
    webui.wait_idle(browser)
    assert webui.session_id(browser) not in served.api.status()


@pytest.mark.nightly
def test_a_reload_in_the_middle_of_a_turn_loses_nothing(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:drip:120] say much", "slow 12"))
    browser.wait_text(served.say("word9", "tick 1"), 40)
    session = webui.session_id(browser)
    browser.do("reload")
    browser.wait(webui.STOP)
    assert session in served.api.status(), "the turn must still run"
    finished(browser)
    (said,) = texts(served.api.messages(session))
    assert " ".join(said.split()) in " ".join(browser.text().split())


def test_an_opencode1_clients_turn_is_seen_at_once(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:text] first", "echo You said: first"))
    browser.wait_text("You said: first", 40)
    finished(browser)
    served.api.prompt(webui.session_id(browser), served.say("[scene:text] from elsewhere", "echo You said: from elsewhere"))
    browser.wait_text("You said: from elsewhere", 40)
    webui.wait_idle(browser)
