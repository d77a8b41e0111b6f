"""OpenCode's TUI, 1.18.33 and 1.1.53, on our server, with the mock and with the real claude."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .support.bench import CLAUDE, MOCK, Bench, bench, nightly
from .support.children import connections_to, wait_for
from .support.places import CURRENT
from .support.scenes import finished
from .support.tmux import Terminal
from .support.tui import abort, tui
from .support.wire import tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]
NEW, OLD = CURRENT, "1.1.53"
versions = pytest.mark.parametrize("version", [NEW, *nightly(OLD)], scope="module")
both = pytest.mark.parametrize("served", [*nightly(MOCK), CLAUDE], indirect=True, scope="module")
ADDED_SIGN = "38;2;184;219;135"
"""The green of a `+` in OpenCode's default theme, as native showed it for its own edit (1.18.33 and 1.1.53)."""
ADDED_LINE = "48;2;32;48;59"
"""The background of an added line, likewise."""


@pytest.fixture(scope="module")
def terminal(served: Bench, version: str) -> Iterator[Terminal]:
    made = tui(served.place, served.url, version=version)
    yield made
    made.close()


@versions
@both
def test_the_answer_grows(served: Bench, fresh: Terminal) -> None:
    """Eight seconds: the older TUI needs three to draw the first word of a session, on native too."""
    fresh.submit(served.say("[scene:drip:80] talk", "slow 8"))
    early, late = served.say("word4", "tick 1"), served.say("word79", "tick 8")
    screen = fresh.wait(rf"{early}\b", 40)
    assert late not in screen, "the text must be seen to grow"
    assert late in fresh.wait(late, 20)
    finished(fresh)


@versions
@both
def test_an_edit_is_a_coloured_diff_of_a_real_file(served: Bench, fresh: Terminal) -> None:
    fresh.submit(served.say("[scene:read_edit] edit", "edit README.md"))
    finished(fresh)
    added = (served.place.project / "README.md").read_text().splitlines()[1]
    fresh.settle()
    assert "← Edit README.md" in fresh.screen()
    (line,) = [line for line in fresh.screen(colours=True).splitlines() if re.search(rf"\+.*{re.escape(added)}", line)]
    assert ADDED_SIGN in line, line
    assert ADDED_LINE in line, line


@pytest.mark.parametrize("version", [NEW, OLD], scope="module")
@both
def test_a_permission_is_asked_and_given(served: Bench, fresh: Terminal) -> None:
    fresh.submit(served.say("[scene:bash:touch made.txt] make", "permission"))
    screen = fresh.wait("Permission required", 40)
    assert "Allow once" in screen
    fresh.key("Enter", pause_s=0.5)
    finished(fresh)
    if served.real:
        assert (served.place.project / "made.txt").exists()


@versions
@both
def test_a_question_is_asked_and_answered(served: Bench, fresh: Terminal) -> None:
    fresh.submit(served.say("[scene:question] ask", "question 1"))
    fresh.wait(r"(?s)1\. Red.*2\. ", 40)
    fresh.key("Enter", pause_s=0.5)
    finished(fresh)
    call = tools(served.api.messages(_last_session(served)))[-1]
    assert call["state"]["metadata"]["answers"] == [["Red"]]


def _last_session(served: Bench) -> str:
    return served.api.get("/session?roots=true")[0]["id"]


@versions
@both
def test_esc_esc_aborts(served: Bench, fresh: Terminal) -> None:
    fresh.submit(served.say("[scene:hang] think", "hang"))
    fresh.wait(served.say("for a long time", "until you stop me"), 40)
    abort(fresh)
    fresh.submit(served.say("[scene:text] and on", "echo You said: and on"))
    fresh.wait("You said: and on", 40)


@versions
@both
def test_a_second_turn_and_the_list_of_sessions(served: Bench, fresh: Terminal) -> None:
    fresh.submit(served.say("[scene:text] first words", "echo You said: first words"))
    finished(fresh, 1)
    fresh.submit(served.say("[scene:text] second words", "remember"))
    finished(fresh, 2)
    screen = fresh.wait(served.say("You said: second words", "I remember 1 prompt before this one."), 10)
    assert "You said: first words" in screen
    fresh.key("C-x", "l", pause_s=0.3)
    listed = fresh.wait(r"(?s)Sessions.*first words", 15)
    assert "Today" in listed
    fresh.key("Escape")


@versions
@pytest.mark.parametrize("agent", [*nightly(MOCK), CLAUDE])
def test_the_tui_is_started_again_in_the_middle_of_a_turn(agent: str, version: str) -> None:
    with bench(agent) as served:
        first = tui(served.place, served.url, version=version)
        served.later(first.close)
        first.submit(served.say("[scene:drip:120] talk", "slow 14"))
        first.wait(served.say("word4", "tick 1"), 40)
        first.close()
        second = tui(served.place, served.url, version=version, session=_last_session(served))
        served.later(second.close)
        second.wait(served.say("word9", "tick 2"), 20)
        second.wait(r"esc\s+interrupt", 10)
        second.wait(served.say("word119", "tick 14"), 40)
        finished(second)
        assert re.sub(r"\s+", " ", second.screen()).count(served.say("word118", "tick 13")) == 1, "nothing is shown twice"


@pytest.mark.parametrize("agent", [*nightly(MOCK), CLAUDE])
def test_a_tui_that_attaches_late_sees_the_permission(agent: str) -> None:
    """Native OpenCode does not tell it; then the person sees a session that is busy for ever."""
    with bench(agent) as served:
        session = served.api.session()
        served.api.prompt(session, served.say("[scene:bash:touch made.txt] make", "permission"))
        terminal = tui(served.place, served.url, session=session)
        served.later(terminal.close)
        terminal.wait("Permission required", 40)
        terminal.key("Enter", pause_s=0.5)
        finished(terminal)


@versions
@pytest.mark.parametrize("agent", [*nightly(MOCK), CLAUDE])
def test_the_server_is_started_again(agent: str, version: str) -> None:
    with bench(agent) as served:
        terminal = tui(served.place, served.url, version=version)
        served.later(terminal.close)
        terminal.submit(served.say("[scene:text] before", "echo You said: before"))
        finished(terminal, 1)
        served.restart()
        # The TUI connects anew by itself, 1.1.53 after three seconds; what happens before that, it does not see.
        wait_for(lambda: connections_to(served.shim.port) > 0, 30, "the TUI does not come back")
        terminal.submit(served.say("[scene:text] after", "echo You said: after"))
        terminal.wait("You said: after", 40)
        said = str(served.api.messages(_last_session(served)))
        assert "You said: before" in said
        assert "You said: after" in said
