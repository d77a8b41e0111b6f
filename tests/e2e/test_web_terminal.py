"""The terminal tab of OpenCode's own web UI: a shell of this machine, typed into and seen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from .support import webui
from .support.bench import MOCK, Bench, bench, nightly
from .support.browser import Browser
from .support.children import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.server(MOCK, command="web")]

RUN_S = 15.0
"""For a typed line to have run."""
TERMINAL = '[data-component="terminal"]'
INK = f"""(() => {{
  const canvas = document.querySelector('{TERMINAL} canvas')
  if (!canvas) return -1
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d")
  copy.drawImage(canvas, 0, 0)
  const data = copy.getImageData(0, 0, canvas.width, canvas.height).data
  let count = 0
  for (let i = 0; i < data.length; i += 4) if (data[i] + data[i + 1] + data[i + 2] > 380) count++
  return count
}})()"""
"""The terminal is drawn on a canvas, so what is seen of it is counted: bright pixels, which are letters."""


def browsers(server: Bench) -> Iterator[Browser]:
    made = Browser(server.place, f"browser-{os.urandom(3).hex()}")
    webui.know_project(made, server.place)
    yield made
    made.close()


@pytest.fixture
def browser(server: Bench) -> Iterator[Browser]:
    yield from browsers(server)


def type_line(browser: Browser, line: str) -> None:
    for key in line:
        browser.press("Space" if key == " " else key)
    browser.press("Enter")


def type_until(browser: Browser, line: str, has_run: Callable[[], object]) -> None:
    """Type a line, again while it has not run: keys that come before the shell reads are lost, as on a busy machine."""
    for _ in range(3):
        type_line(browser, line)
        with suppress(AssertionError):
            wait_for(has_run, RUN_S, "the command did not run")
            return
    raise AssertionError(f"the command did not run: {line}")


def terminal_ids(server: Bench) -> set[str]:
    return {one["id"] for one in server.api.get("/pty")}


def ink(browser: Browser) -> int:
    return browser.do("eval", script=INK)


def new_session(server: Bench, browser: Browser) -> None:
    webui.new_session(browser, server.place, server.url)
    webui.submit(browser, server.say("[scene:text] hello", "hello"))
    webui.wait_idle(browser)


def open_terminal(browser: Browser) -> None:
    browser.press("Control+`")
    browser.wait(TERMINAL)
    wait_for(lambda: ink(browser) > 0, 20, "no prompt is drawn in the terminal")
    browser.click(TERMINAL)


@pytest.mark.nightly
def test_a_command_is_typed_and_its_output_seen(server: Bench, browser: Browser) -> None:
    new_session(server, browser)
    open_terminal(browser)
    made = server.place.project / "from-terminal.txt"
    type_until(browser, "tty > from-terminal.txt", lambda: made.exists() and made.read_text().startswith("/dev/"))
    browser.do("rest")
    before = ink(browser)
    type_line(browser, "printf '%0400d' 8")
    wait_for(lambda: ink(browser) > before + 400 * 10, 20, lambda: f"the output is not seen: {before} -> {ink(browser)} pixels")
    terminal = server.api.get("/pty")[0]
    assert (terminal["command"], terminal["cwd"], terminal["status"]) == ("/bin/bash", str(server.place.project), "running")
    before = ink(browser)
    browser.do("reload")
    browser.wait(TERMINAL)
    wait_for(lambda: ink(browser) > before // 2, 20, "after a reload the output is not there any more")
    assert [note for note in browser.notes() if note["kind"] in ("pageerror", "http")] == []


@pytest.mark.nightly
def test_exit_ends_it(server: Bench, browser: Browser) -> None:
    new_session(server, browser)
    open_terminal(browser)
    known = terminal_ids(server)
    assert known
    type_line(browser, "exit")
    wait_for(lambda: known - terminal_ids(server), 20, "the terminal is still listed")


@pytest.fixture
def browser_of_two(two_servers: Bench) -> Iterator[Browser]:
    yield from browsers(two_servers)


@pytest.fixture
def two_servers(web_files: str) -> Iterator[Bench]:
    """A server that another one follows."""
    with bench(MOCK, command="web", SHIM_OUTLIVE="true", SHIM_WEB_UI=web_files) as made:
        yield made


@pytest.mark.parametrize("kill", [True, *nightly(False)], ids=["killed", "stopped"])
def test_a_shell_goes_on_in_the_next_server(two_servers: Bench, browser_of_two: Browser, kill: bool) -> None:
    server, browser = two_servers, browser_of_two
    new_session(server, browser)
    open_terminal(browser)
    project = server.place.project
    type_until(browser, "word=kept; touch typed", (project / "typed").exists)
    browser.do("rest")
    [terminal], before = server.api.get("/pty"), ink(browser)
    if not kill:
        server.shim.child.send(15)
        assert server.shim.child.wait(10) == 0
    server.restart(kill=kill)
    assert server.api.get("/pty") == [terminal]
    browser.do("reload")
    browser.wait(TERMINAL)
    wait_for(lambda: ink(browser) > before // 2, 20, "what was on it is not there any more")
    browser.click(TERMINAL)
    type_until(
        browser, "echo $word > again", lambda: (project / "again").exists() and (project / "again").read_text() == "kept\n"
    )
    type_until(browser, "exit", lambda: terminal["id"] not in terminal_ids(server))  # the page may open another one at once
