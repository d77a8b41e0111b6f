"""The inspector in Chromium: all that the mock can show, and a turn of the real Claude and Codex. With E2E_PICTURES the pictures
of docs/pictures/inspector are made anew.

At each stop: no error in the console, no request refused, nothing for axe to find.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .support.bench import CLAUDE, MOCK, Bench, bench, nightly
from .support.browser import Browser
from .support.children import wait_for
from .support.places import REPO, tool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.server(MOCK, config={}, SHIM_MOCK_DELAY_FACTOR="0.1")]
PICTURES = REPO / "docs" / "pictures" / "inspector"
TURN_S = 40
MANY = 20_000
OPEN_S = 2.0
"""Until the newest events of a long session are seen, and any other can be scrolled to."""
ALL_S = 30.0
"""Until all of it has come, on a machine with other work."""
CPU_S = 1.2
"""Processor time of the server for all of that: reading, replaying and sending. About half of it on two idle processors."""
HEAP_MIB = 150
ELEMENTS = 2_500
SESSIONS = 130
"""More than two pages of the list."""
STREAM = "**/trace/sse*"
EVENT = ".event:not(.heads)"
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 780}
HOSTILE = (
    'echo <img src=x onerror="document.title=1"><script>document.title=2</script> '
    "[link](javascript:document.title=3) ![p](https://example.com/x.png) **bold**"
)


class Inspector:
    """The page, and what a person does in it."""

    def __init__(self, server: Bench, browser: Browser) -> None:
        self.server, self.browser = server, browser

    def open(self, session: str, tab: str = "chat") -> None:
        self.browser.goto(f"{self.server.url}/inspector/#/session/{session}/{tab}")

    def say(self, text: str) -> None:
        self.browser.do("fill", selector=".composer textarea", text=text)
        self.browser.press("Enter")

    def count(self, selector: str) -> int:
        return self.browser.do("count", selector=selector)

    def idle(self) -> None:
        self.browser.wait(".badge.idle", timeout_s=TURN_S)

    def turn(self, text: str, want: str) -> None:
        """Says it, waits for an element, and for the end of the turn."""
        self.say(text)
        self.browser.wait(want, timeout_s=TURN_S)
        self.idle()

    def end(self) -> None:
        """Ends the session for good, by the menu."""
        self.browser.click(".menu summary")
        self.browser.click(".menu button:text('End')")

    def tab(self, name: str) -> None:
        self.browser.click(f".tabs a[href$='/{name}']")

    def kinds(self) -> list[str]:
        """The kinds of events that the session has, as the filter shows them."""
        return [text.split()[0] for text in self.browser.do("texts", selector=".kind")]

    def good(self, picture: str = "") -> None:
        """Nothing is wrong with the page as it is; a picture of it, where one is wanted."""
        self.browser.do("rest")
        assert self.browser.do("axe") == []
        assert self.browser.notes() == []
        if picture and os.environ.get("E2E_PICTURES"):
            self.browser.screenshot(PICTURES / f"{picture}.png")


@pytest.fixture
def page(server: Bench, browser: Browser) -> Inspector:
    browser.do("look", **DESKTOP, scheme="light")
    browser.notes()
    return Inspector(server, browser)


def make(page: Inspector, name: str, agent: str = "mock") -> str:
    body = {"agent": agent, "title": f"A talk with {agent}", "directory": str(page.server.place.project)}
    page.server.api.call("POST", f"/v1/sessions/{name}", body)
    return name


def test_a_session_is_made_and_everything_of_the_mock_is_seen(page: Inspector) -> None:
    page.browser.goto(f"{page.server.url}/inspector")
    page.browser.click("aside a:has-text('New')")
    page.browser.do("fill", selector="input[name=title]", text="Everything")
    page.good()
    page.browser.click("button:has-text('Start session')")
    page.turn("markdown", "article table td:text('1,000')")
    assert page.count("article .text strong:text('bold')") == 1
    page.turn("think", "article .reasoning")
    page.turn("image", "article img[src^='data:image/png']")
    page.turn("todo", "article .todos")
    page.turn("edit notes.txt", "article .diff .add")
    page.turn("tool", "article .tool:has-text('bash')")
    page.good("chat-light")
    page.say("error")
    page.browser.wait("article .notice.error, .chat > .notice.error", timeout_s=TURN_S)
    page.browser.wait(".badge.failed", timeout_s=TURN_S)  # idle is seen only until the list is read again
    page.turn("unparsed", "article.user >> nth=7")
    page.tab("events")
    page.browser.wait(EVENT)
    assert {"message", "delta", "tool", "turn", "status", "session", "error", "unparsed"} <= set(page.kinds())
    page.browser.click(f"{EVENT} .bare >> nth=6")
    page.browser.wait(".event.open .block")
    page.good()
    page.browser.do("look", scheme="dark")
    page.good("events-dark")


def test_a_permission_a_question_an_abort_and_the_end(page: Inspector) -> None:
    page.open(make(page, "asks"))
    page.browser.do("look", scheme="dark")
    page.say("permission")
    page.browser.wait(".ask:has-text('git push')", timeout_s=TURN_S)
    page.browser.wait(".badge.waiting")
    page.good("permission-dark")
    page.browser.click(".ask button:has-text('Allow once')")
    page.browser.wait("article .tool.completed")
    page.idle()
    page.say("question")
    page.browser.wait(".ask fieldset", timeout_s=TURN_S)
    page.browser.do("look", **PHONE, scheme="light")
    page.browser.click(".ask label:has-text('Green')")
    page.good("question-phone-light")
    page.browser.click(".ask label:has-text('Tests')")
    page.browser.click(".ask label:has-text('Logs')")
    page.browser.click(".ask button:text('Answer')")
    page.idle()
    page.browser.wait("article:last-of-type .text:has-text('Tests, Logs')")
    assert "Green" in page.browser.text("article:last-of-type .text")
    page.say("hang")
    page.browser.wait(".composer button:has-text('Abort')")
    page.browser.click(".composer button:has-text('Abort')")
    page.idle()
    page.browser.do("accept")
    page.end()
    page.browser.wait(".badge.ended")
    page.browser.wait(".notice.ended:has-text('was terminated')")
    assert page.count(".composer") == 0
    page.tab("events")
    page.browser.wait(EVENT)
    assert {"ask", "session"} <= set(page.kinds())
    assert all(page.count(f".strip .piece.{state}") for state in ("queued", "running", "waiting", "idle"))
    page.good("ended-phone-light")


def test_a_session_that_waits_is_first_and_keys_work(page: Inspector) -> None:
    make(page, "waits")
    page.server.api.call("POST", "/v1/sessions/waits/messages", {"message": "permission"})
    for number in range(SESSIONS):
        make(page, f"filler-{number}")
    page.browser.goto(f"{page.server.url}/inspector/#/")
    page.browser.wait(".sessions .waits:has-text('Waiting for you: 1')", timeout_s=TURN_S)
    page.browser.wait(".sessions li:first-child .state.waiting")
    assert page.browser.do("eval", script="document.title").startswith("(1) ")
    assert page.count(".sessions li") < SESSIONS / 2
    assert page.count(".sessions a[tabindex='0']") == 1
    page.good("list-light")

    def is_at_the_end() -> bool:
        page.browser.do("eval", script="void document.querySelector('.sessions .window').scrollTo({ top: 1e6 })")
        return page.count(f".sessions li[aria-posinset='{SESSIONS + 1}'] a") > 0

    wait_for(is_at_the_end, TURN_S, "the last session is not seen")  # the list is read each two seconds, and grows
    page.browser.press("/")
    page.browser.do("fill", selector=".sessions input", text="FILLER-77")
    page.browser.wait(".sessions ul[style*='height: 54px'] a[href*='filler-77']")
    page.browser.do("fill", selector=".sessions input", text="nothing like it")
    page.browser.click(".sessions button:has-text('Show all')")
    page.browser.wait(".sessions li:first-child .state.waiting")
    page.browser.do("eval", script="document.activeElement.blur()")
    page.browser.press("j")
    page.browser.wait(".sessions a[data-position='1']:focus")
    page.browser.press("k")
    page.browser.wait(".sessions a[data-position='0']:focus")
    page.browser.press("Enter")
    page.browser.wait(".ask:has-text('git push')")

    def is_allowed() -> bool:
        page.browser.press("a")
        return page.count(".ask") == 0

    wait_for(is_allowed, TURN_S, "the key does not reply")
    page.browser.wait("article .tool.completed")
    page.idle()


def test_one_column_on_a_phone_and_a_crash_takes_prompts(page: Inspector) -> None:
    page.browser.do("look", **PHONE, scheme="dark")
    page.open(make(page, "crashes"))
    page.say("crash")
    page.browser.wait(".badge.failed", timeout_s=TURN_S)
    page.turn("echo it goes on", "article:not(.user) .text:has-text('it goes on')")
    assert page.count("aside:visible") == 0
    page.browser.do("eval", script="document.activeElement.blur()")
    page.browser.press("Tab")
    page.good()
    page.browser.click(".head .back")
    page.browser.wait(".sessions a[href*='crashes']")
    assert page.count("main .blank:visible") == 0


def test_a_part_links_to_its_events_and_back(page: Inspector) -> None:
    page.open(make(page, "jump"))
    page.turn("tool", "article .tool.completed")
    page.browser.click("article .p-tool .jump")
    page.browser.wait(".event.mark.open")
    rows = page.browser.do("texts", selector=f"{EVENT}:not(.open) .opencode")
    assert rows
    assert all("message.part" in row for row in rows)
    assert "callID" in page.browser.text(".event.mark .opencode")
    assert "tool" in page.browser.text(".event.mark .native").lower()
    page.browser.click(".event.mark button:has-text('In chat')")
    page.browser.wait("article .part.mark .tool")
    page.tab("events")
    page.browser.click("[aria-label='Show all events']")
    page.browser.click(".kind:has-text('tool')")
    page.browser.do("fill", selector="[aria-label='Find text in events']", text="tool_result")
    page.browser.wait(".filters .dim:has-text(' of ')")
    kinds = set(page.browser.do("texts", selector=f"{EVENT} .universal"))
    assert all("item." in kind or "tool" in kind for kind in kinds)
    page.good()


def test_text_of_agents_is_shown_as_text(page: Inspector) -> None:
    page.open(make(page, "hostile"))
    page.turn(HOSTILE, "article:not(.user) .text strong")
    said = page.browser.text("article:not(.user) .text")
    assert '<img src=x onerror="document.title=1">' in said
    assert page.count("article img, article script, article a[href^='javascript']") == 0
    page.tab("events")
    page.browser.wait(EVENT)
    assert page.count(".list img, .list script") == 0
    assert "Inspector" in page.browser.do("eval", script="document.title")
    page.good()


def test_the_page_of_a_shared_session_shows_markdown_as_the_chat_does(page: Inspector) -> None:
    name = make(page, "shared")
    page.open(name)
    page.turn("markdown", "article table td:text('1,000')")
    page.turn(HOSTILE, "article:last-of-type .text strong")
    [info] = [one for one in page.server.api.get("/v1/sessions")["sessions"] if one["sessionId"] == name]
    _, shared = page.server.api.call("POST", f"/session/{info['openCodeSessionId']}/share")
    page.browser.goto(shared["share"]["url"])
    page.browser.wait(".drawn table td:text('1,000')")
    assert page.count(".drawn strong:text('bold')") >= 1
    assert page.count("main img, main script, main a[href^='javascript']") == 0
    assert "<script>document.title=2</script>" in page.browser.text("main")
    assert page.browser.do("eval", script="document.title") == "A talk with mock"
    page.good("share-light")
    page.browser.do("look", **PHONE, scheme="dark")
    page.good()


def test_agents_counters_and_the_export(page: Inspector) -> None:
    session = make(page, "exported")
    page.browser.goto(f"{page.server.url}/inspector/#/agents")
    page.browser.do("reload")
    page.browser.wait(".card:has-text('Claude Code')")
    page.browser.click(".card:has-text('built in') button:has-text('Models')")
    page.browser.wait(".card .chip:has-text('plan')")
    page.browser.click(".card:has-text('built in') summary:has-text('Permission rules')")
    page.browser.wait(".card dd:has-text('its questions')")
    page.good()
    page.browser.goto(f"{page.server.url}/inspector/#/counters")
    page.browser.wait(".tile:has-text('Memory')")
    page.browser.do("look", scheme="dark")
    page.good("counters-dark")
    page.browser.do("look", **PHONE)
    page.good()
    page.browser.goto(f"{page.server.url}/inspector/#/")
    page.browser.wait(".sessions li")
    page.good("sessions-phone-dark")
    page.open(session)
    page.browser.wait("a[download]", state="attached")
    size = "fetch(document.querySelector('a[download]').href).then((a) => a.arrayBuffer()).then((b) => b.byteLength)"
    assert page.browser.do("eval", script=size) > 300


def cpu_s(pid: int) -> float:
    """Processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.nightly
def test_a_long_session_opens_at_once_and_scrolls(page: Inspector, record_property: Callable[[str, object], None]) -> None:
    name = make(page, "long")
    page.server.api.call("POST", f"/v1/sessions/{name}/messages", {"message": f"burst {MANY}"})

    def over() -> bool:
        [info] = [one for one in page.server.api.get("/v1/sessions")["sessions"] if one["sessionId"] == name]
        return info["eventCount"] > MANY and info["status"] == "idle"

    wait_for(over, TURN_S, "the long turn does not end")
    page.browser.goto("about:blank")
    server = page.server.shim.child.pid
    began, spent = time.monotonic(), cpu_s(server)
    page.browser.do("hold", url=STREAM)
    page.open(name, "events")
    page.browser.wait(f"{EVENT}:last-child .universal:has-text('turn.ended')")
    opened = time.monotonic() - began
    assert page.browser.text(f"{EVENT}:last-child .opencode") == "…"
    page.browser.do("eval", script="void (document.querySelector('.list').scrollTop = 0)")
    page.browser.wait(f"{EVENT}:first-child .universal:has-text('session.started')")
    page.browser.do("release", url=STREAM)
    released = time.monotonic()
    page.browser.wait(".tabs .link:has-text('live')", timeout_s=ALL_S)
    whole, spent = time.monotonic() - released, cpu_s(server) - spent
    scrolled = page.browser.do("eval", script=SCROLL)
    figures = {"opened_s": round(opened, 2), "whole_s": round(whole, 2), "server_cpu_s": round(spent, 2), **scrolled}
    record_property("figures", json.dumps(figures))
    assert opened < OPEN_S, figures
    assert spent < CPU_S, figures
    assert page.browser.do("eval", script="Number(document.querySelector('.list').ariaRowCount)") > MANY, figures
    assert scrolled["elements"] < ELEMENTS, figures
    assert scrolled["heap_mib"] < HEAP_MIB, figures
    assert scrolled["empty"] == 0, figures
    page.good()


SCROLL = """(async () => {
  const list = document.querySelector(".list"), frame = () => new Promise(requestAnimationFrame)
  document.querySelector(".follow[aria-pressed=true]")?.click()
  list.scrollTop = 0
  await frame(); await frame()
  const times = []
  let empty = 0, last = performance.now()
  for (let step = 0; step < 100; step++) {
    list.scrollTop += 500
    await frame(); await frame()
    const now = performance.now()
    times.push((now - last) / 2)
    last = now
    const middle = list.getBoundingClientRect()
    const there = document.elementFromPoint(middle.left + 400, middle.top + middle.height / 2)
    if (!there?.closest(".event")) empty += 1
  }
  list.scrollTop = list.scrollHeight
  await frame(); await frame()
  times.sort((a, b) => a - b)
  return { frame_ms: Math.round(times[50]), frame_p95_ms: Math.round(times[95]), empty,
    elements: document.querySelectorAll("*").length, heap_mib: Math.round(performance.memory.usedJSHeapSize / 2 ** 20) }
})()"""


@pytest.mark.parametrize("agent", nightly(CLAUDE, "codex"))
def test_a_real_agent(agent: str) -> None:
    with bench(agent, config={}) as real:
        browser = Browser(real.place, "inspector")
        real.later(browser.close)
        page = Inspector(real, browser)
        name = real.shim.provider
        browser.do("look", **DESKTOP, scheme="light")
        page.open(make(page, "real", name))
        page.turn("[scene:text] hello", "article:not(.user) .text")
        page.say("[scene:ask_bash:touch made.txt] do it")
        browser.wait(".ask:has-text('touch made.txt')", timeout_s=TURN_S)
        page.good(f"permission-{name}")
        browser.click(".ask button:has-text('Allow once')")
        browser.wait("article .tool.completed")
        page.idle()
        assert (real.place.project / "made.txt").exists()
        page.say("[scene:read_edit] change it")
        browser.wait(".ask .diff .add", timeout_s=TURN_S)
        assert str(real.place.project) not in browser.text(".ask")  # the files are named as the project has them
        assert page.count("article:last-of-type .tool .code") == 0  # and the change stands once, not as JSON too
        page.good(f"edit-{name}")
        browser.click(".ask button:has-text('Reject')")
        page.idle()
        page.say("[scene:question] ask me")
        browser.wait(".ask fieldset:has-text('Which colour?')", timeout_s=TURN_S)
        page.good(f"question-{name}")
        browser.click(".ask label:has-text('Red')")
        browser.click(".ask button:text('Answer')")
        page.idle()
        page.tab("events")
        browser.wait(EVENT)
        assert {"message", "delta", "tool", "ask", "turn", "session"} <= set(page.kinds())
        assert "unparsed" not in page.kinds()
        page.good(f"events-{name}")
        browser.click(".menu summary")
        browser.wait(f".menu code:has-text('{agent} {'resume' if agent == 'codex' else '--resume'} ')")
        page.good()
        browser.click(".menu summary")
        page.say("[scene:error:400] fail")
        browser.wait(".kind.k-error", timeout_s=TURN_S)
        page.idle()
        browser.do("accept")
        page.end()
        browser.wait(".badge.ended")
        page.tab("chat")
        browser.wait("article .notice.error")
        browser.wait(".notice.ended:has-text('was terminated')")
        page.good(f"ended-{name}")


def test_the_inspectors_modules_pass_their_own_tests() -> None:
    tests = Path(__file__).parent / "inspector" / "modules.test.mjs"
    ran = subprocess.run([tool("node"), "--test", str(tests)], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
