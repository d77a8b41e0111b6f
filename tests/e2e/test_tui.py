"""OpenCode's TUI, 1.18.33 and 1.1.53, on our server, with the mock and with the real claude."""

from __future__ import annotations

import re

import pytest

from .support.bench import CLAUDE, MOCK, Bench, bench, nightly
from .support.children import connections_to, wait_for
from .support.places import CURRENT
from .support.scenes import wait_for_turns
from .support.servers import Shim
from .support.tmux import Terminal
from .support.tui import abort, leader, tui
from .support.wire import Api, tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]
NEW, OLD = CURRENT, "1.1.53"
versions = pytest.mark.parametrize("version", [NEW, *nightly(OLD)], scope="module")
both = pytest.mark.parametrize("server", [*nightly(MOCK), CLAUDE], indirect=True, scope="module")
ADDED_SIGN = "38;2;184;219;135"
"""The green of a `+` in OpenCode's default theme, as native showed it for its own edit (1.18.33 and 1.1.53)."""
ADDED_LINE = "48;2;32;48;59"
"""The background of an added line, likewise."""


@versions
@both
def test_the_answer_grows(server: Bench, fresh: Terminal) -> None:
    """Eight seconds: the older TUI needs three to draw the first word of a session, on native too."""
    fresh.submit(server.say("[scene:drip:80] talk", "slow 8"))
    early, late = server.say("word4", "tick 1"), server.say("word79", "tick 8")
    screen = fresh.wait(rf"{early}\b", 40)
    assert late not in screen, "the text must be seen to grow"
    assert late in fresh.wait(late, 20)
    wait_for_turns(fresh)


@versions
@both
def test_an_edit_is_a_coloured_diff_of_a_real_file(server: Bench, fresh: Terminal) -> None:
    fresh.submit(server.say("[scene:read_edit] edit", "edit README.md"))
    wait_for_turns(fresh)
    added = (server.place.project / "README.md").read_text().splitlines()[1]
    fresh.wait(r"← Edit README\.md")
    fresh.settle()
    (line,) = [line for line in fresh.screen(colours=True).splitlines() if re.search(rf"\+.*{re.escape(added)}", line)]
    assert ADDED_SIGN in line, line
    assert ADDED_LINE in line, line


@versions
@both
def test_a_permission_is_asked_and_granted(server: Bench, fresh: Terminal) -> None:
    fresh.submit(server.say("[scene:bash:touch made.txt] make", "permission"))
    fresh.wait("(?s)Permission required.*Allow once", 40)
    fresh.key("Enter", pause_s=0.5)
    wait_for_turns(fresh)
    if server.real:
        assert (server.place.project / "made.txt").exists()


@versions
@both
def test_a_question_is_asked_and_answered(server: Bench, fresh: Terminal) -> None:
    fresh.submit(server.say("[scene:question] ask", "question 1"))
    fresh.wait(r"(?s)1\. Red.*2\. ", 40)
    fresh.key("Enter", pause_s=0.5)
    wait_for_turns(fresh)
    call = tools(server.api.messages(_last_session(server)))[-1]
    assert call["state"]["metadata"]["answers"] == [["Red"]]


def _last_session(server: Bench) -> str:
    return server.api.get("/session?roots=true")[0]["id"]


@versions
@both
def test_esc_esc_aborts(server: Bench, fresh: Terminal) -> None:
    fresh.submit(server.say("[scene:hang] think", "hang"))
    fresh.wait(server.say("for a long time", "until you stop me"), 40)
    abort(fresh)
    fresh.submit(server.say("[scene:text] and on", "echo You said: and on"))
    fresh.wait("You said: and on", 40)


@versions
@both
def test_a_second_turn_and_the_list_of_sessions(server: Bench, fresh: Terminal) -> None:
    fresh.submit(server.say("[scene:text] first words", "echo You said: first words"))
    wait_for_turns(fresh, 1)
    fresh.submit(server.say("[scene:text] second words", "remember"))
    wait_for_turns(fresh, 2)
    fresh.wait((server.say("You said: second words", r"I remember 1 prompt before this one\."), "You said: first words"), 10)
    title = server.say("A short title", "first words")  # Claude makes one
    leader(fresh, "l", (rf"(?s)Sessions.*{title}", "Today"))
    fresh.key("Escape")


@versions
@both
def test_the_tui_is_started_again_in_the_middle_of_a_turn(server: Bench, version: str) -> None:
    first = tui(server.place, server.url, version=version)
    server.later(first.close)
    first.submit(server.say("[scene:drip:200] talk", "slow 14"))
    first.wait(server.say("word4", "tick 1"), 40)
    first.close()
    second = tui(server.place, server.url, version=version, session=_last_session(server))
    server.later(second.close)
    second.wait(server.say("word9", "tick 2"), 20)
    second.wait(r"esc\s+interrupt", 10)
    second.wait(server.say("word199", "tick 14"), 60)
    wait_for_turns(second)
    assert re.sub(r"\s+", " ", second.screen()).count(server.say("word198", "tick 13")) == 1, "nothing is shown twice"
    second.close()


@pytest.mark.parametrize("version", [NEW], scope="module")
@both
def test_a_tui_that_attaches_late_sees_the_permission(server: Bench, version: str) -> None:
    """Native OpenCode does not tell it; then the person sees a session that is busy for ever."""
    session = server.api.session()
    server.api.prompt(session, server.say("[scene:bash:touch made.txt] make", "permission"))
    terminal = tui(server.place, server.url, version=version, session=session)
    server.later(terminal.close)
    terminal.wait("Permission required", 40)
    terminal.key("Enter", pause_s=0.5)
    wait_for_turns(terminal)
    terminal.close()


@versions
@both
def test_the_server_is_started_again(server: Bench, fresh: Terminal) -> None:
    fresh.submit(server.say("[scene:text] before", "echo You said: before"))
    wait_for_turns(fresh, 1)
    server.restart()
    # The TUI connects anew by itself, 1.1.53 after three seconds; what happens before that, it does not see.
    wait_for(lambda: connections_to(server.shim.port) > 0, 30, "the TUI does not come back")
    fresh.submit(server.say("[scene:text] after", "echo You said: after"))
    fresh.wait("You said: after", 40)
    said = str(server.api.messages(_last_session(server)))
    assert "You said: before" in said
    assert "You said: after" in said


@pytest.mark.nightly
def test_an_answer_at_another_server_says_which_one_has_the_session() -> None:
    """The second server of a data directory shows the dialog, which the TUI alone would leave without a word."""
    with bench(MOCK) as first:
        second = Shim(first.place, name="second")
        first.later(second.close)
        session = first.api.session()
        first.api.prompt(session, "permission")
        [request] = wait_for(lambda: first.api.get("/permission"), 20, "no permission is asked")
        wait_for(lambda: Api(second.url, first.place.project).get("/permission"), 20, "the second server does not list it")
        terminal = tui(first.place, second.url, session=session)
        first.later(terminal.close)
        terminal.wait("(?s)Permission required.*Allow once", 40)
        terminal.key("Enter", pause_s=0.5)
        terminal.wait("(?s)at work in.*another", 20)
        assert [row["id"] for row in first.api.get("/permission")] == [request["id"]]
        first.api.post(f"/permission/{request['id']}/reply", {"reply": "once"})
        wait_for(lambda: session not in first.api.status(), 20, "the turn does not end")
