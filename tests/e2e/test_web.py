"""OpenCode's own web UI in Chromium on our origin: what a person does with it, with the mock and with the real claude."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .support import webui
from .support.bench import CLAUDE, MOCK, Bench, nightly
from .support.browser import Browser
from .support.children import connections_to, wait_for
from .support.wire import texts

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.server(*nightly(MOCK), CLAUDE, command="web")]


@pytest.fixture(autouse=True)
def new_session(server: Bench, web_ui: Browser) -> Iterator[None]:
    """Each test has a session of its own, and must leave the page without an error of its scripts."""
    server.place.reset()
    webui.new_session(web_ui, server.place, server.url)
    web_ui.notes()
    yield
    assert [note for note in web_ui.notes() if note["kind"] == "pageerror"] == []


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


def test_an_edit_shows_its_diff(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:read_edit] edit", "edit README.md"))
    webui.wait_for_turn_end(browser)
    assert "Edit" in browser.text()
    assert len((server.place.project / "README.md").read_text().splitlines()) == 2
    browser.click('[data-slot="collapsible-trigger"]:has-text("Edit")')
    added = (server.place.project / "README.md").read_text().splitlines()[1]
    wait_for(lambda: added in webui.transcript(browser), 20, lambda: webui.transcript(browser))


@pytest.mark.nightly
def test_a_permission_is_answered(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:bash:touch made.txt] make it", "permission"))
    browser.wait_text("Allow once", 40)
    browser.click('button:text-is("Allow once")')
    webui.wait_for_turn_end(browser)
    if server.real:
        assert (server.place.project / "made.txt").exists()


def test_a_question_is_answered(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:question] ask", "question"))
    browser.wait(webui.DIALOG, timeout_s=40)
    session = webui.session_id(browser)
    api = server.api
    [question] = [q for q in api.get("/question") if q["sessionID"] == session]
    assert question["questions"][0]["question"] in browser.text(webui.DIALOG)
    for _ in question["questions"]:
        browser.click('[data-slot="question-option"]')
        for button in ("Submit", "Next"):
            if browser.do("count", selector=f'button:text-is("{button}")'):
                browser.click(f'button:text-is("{button}")')
                break
    webui.wait_for_turn_end(browser)
    assert [q for q in api.get("/question") if q["sessionID"] == session] == []


def test_stop(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:hang] think", "hang"))
    browser.wait(webui.STOP, timeout_s=40)
    wait_for(lambda: "hang" in browser.text() or "long time" in browser.text(), 40, lambda: browser.text())
    browser.click(webui.STOP)
    webui.wait_idle(browser)
    browser.wait_text("Interrupted", 20)


def test_a_reload_in_the_middle_of_a_turn_loses_nothing(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:drip:120] say much", "slow 12"))
    browser.wait_text(server.say("word9", "tick 1"), 40)
    session = webui.session_id(browser)
    browser.do("reload")
    browser.wait_text(server.say("word9", "tick 1"), 20)
    browser.wait(webui.STOP)
    assert session in server.api.status(), "the turn must still run"
    webui.wait_for_turn_end(browser)
    (said,) = texts(server.api.messages(session))
    assert " ".join(said.split()) in " ".join(browser.text().split())


def test_a_page_goes_on_with_the_next_server(server: Bench, browser: Browser) -> None:
    """Without a reload: a permission that is open, and a text that grows, over `kill -9` of the server."""
    if not server.real:
        pytest.skip("a turn of the mock ends with its server")
    webui.submit(browser, "[scene:bash:touch made.txt] make it")
    browser.wait_text("Allow once", 40)
    server.restart(kill=True)
    wait_for(lambda: connections_to(server.shim.port) > 0, 40, "the page does not come back")
    browser.click('button:text-is("Allow once")')
    webui.wait_for_turn_end(browser)
    assert (server.place.project / "made.txt").exists()
    webui.submit(browser, "[scene:drip:120] say much")
    browser.wait_text(r"word9\b", 40)
    server.restart(kill=True)
    browser.wait_text(r"word119\b", 60)
    webui.wait_idle(browser)
    said = texts(server.api.messages(webui.session_id(browser)))[-1]
    assert " ".join(said.split()) in " ".join(browser.text().split())
    assert {note["text"] for note in browser.notes() if note["kind"] == "pageerror"} <= {"TypeError: Failed to fetch"}


@pytest.mark.nightly
def test_the_home_page_lists_the_sessions(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:text] to be found again", "echo to be found again"))
    webui.wait_for_turn_end(browser)
    browser.goto(f"{server.url}/")
    browser.wait_text("Today", 20)
    browser.click('main :text("to be found again")')
    browser.wait_text(server.say("You said: to be found again", "to be found again"), 20)
    assert webui.session_id(browser) == server.api.get("/session?roots=true")[0]["id"]


@pytest.mark.nightly
def test_a_waiting_permission_survives_a_reload(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:bash:touch made.txt] make it", "permission"))
    browser.wait_text("Allow once", 40)
    browser.goto(browser.do("url"))
    browser.wait_text("Allow once", 40)
    assert not (server.place.project / "made.txt").exists()
    browser.click('button:text-is("Allow once")')
    webui.wait_for_turn_end(browser)
    if server.real:
        assert (server.place.project / "made.txt").exists()


@pytest.mark.nightly
def test_the_file_tree_and_a_file(server: Bench, browser: Browser) -> None:
    """Beside the conversation: the changed files as git says, all files with folders, and the text of one."""
    (server.place.project / "src").mkdir(exist_ok=True)
    (server.place.project / "src" / "main.py").write_text("def main():\n    return 'hello'\n")
    row = '[data-slot="file-tree-v2-row"]'
    webui.submit(browser, server.say("[scene:text] hello", "echo You said: hello"))
    webui.wait_for_turn_end(browser)
    browser.click('[aria-label="Toggle review"]')
    browser.wait(f'{row}:has-text("main.py")')
    assert not browser.do("count", selector=f'{row}:has-text("notes.txt")'), "it is as it was committed"
    browser.click('[aria-label="Open file"]')
    browser.wait(f'{row}:has-text("notes.txt")')
    browser.click(f'{row}:has-text("src")')
    browser.click(f'{row}:has-text("main.py")')
    browser.wait('[role="tab"]:has-text("main.py")')
    wait_for(lambda: "return 'hello'" in "".join(browser.do("turns", selector="main")), 20, "the file is not shown")
    assert [note for note in browser.notes() if note["kind"] == "http"] == []


@pytest.mark.nightly
def test_sessions_are_there_after_the_server_was_killed(server: Bench, browser: Browser) -> None:
    webui.submit(browser, server.say("[scene:text] before", "echo You said: before"))
    webui.wait_for_turn_end(browser)
    url = browser.do("url")
    server.restart(kill=True)
    browser.goto(url)
    browser.wait_text("You said: before", 60)
    webui.submit(browser, server.say("[scene:text] after", "echo You said: after"))
    browser.wait_text("You said: after", 60)
    webui.wait_for_turn_end(browser)


def test_a_login_of_the_agent_is_begun(server: Bench, browser: Browser) -> None:
    """Settings, Providers, "Show more providers", Claude Code: the dialog has the link of the agent's own login."""
    if not server.real:
        pytest.skip("the mock has no login")
    browser.press("Control+Comma")
    browser.click('[role="tab"]:has-text("Providers")')
    for choice in ("Show more providers", "Claude Code", "Log in with Claude Code"):
        browser.click(f'[role="dialog"] >> text="{choice}"')
    browser.wait_text("collect your authorization code", 40)
    browser.press("Escape")
