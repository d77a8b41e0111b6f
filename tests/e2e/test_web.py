"""OpenCode's own web UI in Chromium on our origin: what a person does with it, with the mock and with the real claude."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .support import webui
from .support.bench import CLAUDE, MOCK, Bench, bench
from .support.browser import Browser
from .support.children import wait_for
from .support.places import program

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", params=[MOCK, CLAUDE])
def served(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with bench(request.param, SHIM_WEB_UI="true", SHIM_OPENCODE_BIN=program("opencode-1.18.33")) as made:
        yield made


@pytest.fixture(scope="module")
def browser(served: Bench) -> Iterator[Browser]:
    made = Browser(served.place)
    webui.know_project(made, served.place)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def new_session(served: Bench, browser: Browser) -> None:
    served.place.reset()
    webui.new_session(browser, served.place, served.url)
    browser.notes()


def finished(browser: Browser) -> None:
    """The turn has its foot line, and nothing is busy."""
    browser.wait_text(r"·\s+\d+(\.\d+)?m?s", 60)
    webui.wait_idle(browser)


def faults(browser: Browser) -> list[dict[str, str]]:
    return [note for note in browser.notes() if note.get("kind") == "pageerror"]


def test_a_prompt_is_answered_in_a_stream_and_a_second_one_too(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:long:60] say much", "echo " + " ".join(f"word{n}" for n in range(60))))
    browser.wait_text("word3", 40)
    finished(browser)
    assert "word59" in browser.text()
    webui.submit(browser, served.say("[scene:text] again", "echo You said: again"))
    browser.wait_text("You said: again", 40)
    finished(browser)
    assert faults(browser) == []


def test_an_edit_shows_its_diff(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:read_edit] edit", "edit README.md"))
    finished(browser)
    assert "Edit" in browser.text()
    assert len((served.place.project / "README.md").read_text().splitlines()) == 2
    browser.click('[data-slot="collapsible-trigger"]:has-text("Edit")')
    added = (served.place.project / "README.md").read_text().splitlines()[1]
    wait_for(lambda: added in webui.transcript(browser), 20, lambda: webui.transcript(browser))


def test_a_permission_is_answered(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:bash:touch made.txt] make it", "permission"))
    browser.wait_text("Allow once", 40)
    browser.click('button:text-is("Allow once")')
    finished(browser)
    if served.claude:
        assert (served.place.project / "made.txt").exists()


def test_a_question_is_answered(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:question] ask", "question"))
    browser.wait(webui.DIALOG, timeout_s=40)
    session = webui.session_id(browser)
    api = served.api
    [question] = [q for q in api.get("/question") if q["sessionID"] == session]
    assert question["questions"][0]["question"] in browser.text(webui.DIALOG)
    for _ in question["questions"]:
        browser.click('[data-slot="question-option"]')
        for button in ("Submit", "Next"):
            if browser.do("count", selector=f'button:text-is("{button}")'):
                browser.click(f'button:text-is("{button}")')
                break
    finished(browser)
    assert [q for q in api.get("/question") if q["sessionID"] == session] == []


def test_stop(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:hang] think", "hang"))
    browser.wait(webui.STOP, timeout_s=40)
    wait_for(lambda: "hang" in browser.text() or "long time" in browser.text(), 40, lambda: browser.text())
    browser.click(webui.STOP)
    webui.wait_idle(browser)
    browser.wait_text("Interrupted", 20)


def test_a_reload_in_the_middle_of_a_turn_loses_nothing(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:long:300] say much", "slow 8"))
    browser.wait(webui.STOP, timeout_s=40)
    session = webui.session_id(browser)
    browser.goto(browser.do("url"))
    finished(browser)
    said = [p["text"] for m in served.api.get(f"/session/{session}/message") for p in m["parts"] if p["type"] == "text"]
    wait_for(lambda: said[-1].split()[-1] in browser.text(), 20, lambda: browser.text())


def test_a_waiting_permission_survives_a_reload(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:bash:touch made.txt] make it", "permission"))
    browser.wait_text("Allow once", 40)
    browser.goto(browser.do("url"))
    browser.wait_text("Allow once", 40)
    browser.click('button:text-is("Allow once")')
    finished(browser)


def test_sessions_are_there_after_the_server_was_killed(served: Bench, browser: Browser) -> None:
    webui.submit(browser, served.say("[scene:text] before", "echo You said: before"))
    finished(browser)
    url = browser.do("url")
    served.restart(kill=True)
    browser.goto(url)
    browser.wait_text("You said: before", 60)
    webui.submit(browser, served.say("[scene:text] after", "echo You said: after"))
    browser.wait_text("You said: after", 60)
    finished(browser)
