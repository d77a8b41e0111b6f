"""OpenCode's TUI and its JS SDK with the other real agents; several agents in one TUI, and one session that changes its agent."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.agents import AGENTS
from .support.bench import CLAUDE, Bench, Watch, bench, nightly
from .support.places import MODULES, tool
from .support.scenes import wait_for_turns
from .support.tmux import Terminal
from .support.tui import abort, leader, tui
from .support.wire import Json, Stream

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]
NAMES = ("codex", "opencode", "pi", "claude-agent-acp", "opencode-acp")
everyone = pytest.mark.parametrize("server", [NAMES[0], *nightly(*NAMES[1:])], indirect=True, scope="module")
"""`make e2e` shows one of them in the TUI; what each tells is in `test_agents.py`."""
ADDED_SIGN = "38;2;184;219;135"
"""The green of a `+` in OpenCode's default theme."""
SDK = Path(__file__).with_name("sdk_turn.mjs")


@pytest.fixture(scope="module")
def terminal(server: Bench) -> Iterator[Terminal]:
    """The agent has told its models before, so that the TUI chooses among them."""
    server.models()
    made = tui(server.place, server.url)
    yield made
    made.close()


@everyone
def test_a_turn_with_text_and_an_edit(server: Bench, fresh: Terminal) -> None:
    fresh.submit("[scene:read_edit] edit")
    wait_for_turns(fresh)
    fresh.settle()
    screen = fresh.screen()
    assert "I'll read the file first." in screen
    assert re.search(r"← (Edit|Patched) README\.md", screen), screen
    (line,) = [line for line in fresh.screen(colours=True).splitlines() if re.search(r"\+.*Added line", line)]
    assert ADDED_SIGN in line, line
    assert (server.place.project / "README.md").read_text() == "Hello\nAdded line\n"


@everyone
def test_a_permission_is_asked_and_granted(server: Bench, fresh: Terminal) -> None:
    fresh.submit("[scene:ask_bash:touch made.txt] make")
    fresh.wait(("Permission required", r"\$ touch made\.txt"), 40)
    assert not (server.place.project / "made.txt").exists()
    fresh.key("Enter", pause_s=0.5)
    wait_for_turns(fresh)
    assert (server.place.project / "made.txt").exists()


@pytest.mark.nightly
@everyone
def test_esc_esc_aborts(fresh: Terminal) -> None:
    fresh.submit("[scene:hang] think")
    fresh.wait("for a long time", 40)
    abort(fresh)
    fresh.submit("[scene:text] and on")
    fresh.wait("You said: and on", 40)


@pytest.mark.nightly
@everyone
def test_one_turn_of_the_js_sdk(server: Bench) -> None:
    """With the v2 client: a prompt that waits for its answer, an edit, the stream's deltas."""
    server.place.reset()
    model = {"providerID": AGENTS[server.agent].provider, "modelID": server.models()[0]}
    argv = [tool("node"), str(SDK), str(MODULES), server.url, str(server.place.project), json.dumps(model)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False, env=server.place.env())
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["tools"], seen["idles"], seen["last"]) == (["completed", "completed"], 1, "Done!")
    assert seen["deltas"].endswith("Done!")
    assert "+Added line" in seen["diff"]


def _root_sessions(server: Bench) -> list[Json]:
    return server.api.get("/session?roots=true")


@pytest.mark.nightly
def test_two_agents_at_the_same_time_in_one_tui() -> None:
    """One session streams with Claude while a turn of the other with Codex begins and ends; one TUI shows both."""
    with bench(CLAUDE, also=("codex",)) as server:
        server.models("codex")
        stream = Stream(server.api)
        server.later(stream.close)
        claude, codex = Watch.on(server.api, stream), Watch.on(server.api, stream)
        for watch, title in ((claude, "first-with-claude"), (codex, "then-with-codex")):
            server.api.call("PATCH", f"/session/{watch.session}", {"title": title})
        terminal = tui(server.place, server.url, session=claude.session)
        server.later(terminal.close)
        slow = claude.prompt("[scene:drip:600] talk")
        at = codex.prompt("[scene:text] meanwhile", model={"providerID": "codex", "modelID": server.models("codex")[0]})
        terminal.wait(r"word\d+", 40)
        stream.idle(codex.session, since=at)
        assert claude.session in server.api.status(), "both were at work at the same time"
        leader(terminal, "l", r"(?s)Sessions.*then-with-codex")
        terminal.type("then-with-codex")
        terminal.wait(lambda screen: "first-with-claude" not in screen.split("Sessions")[-1], 15)
        terminal.key("Enter")
        terminal.wait("You said: meanwhile", 15)
        terminal.wait(r"▣.*GPT", 15)
        assert server.api.post(f"/session/{claude.session}/abort") is True
        claude.wait_for_end(slow)
        codex.check(at)


def test_claude_codex_claude_in_one_session() -> None:
    """The second agent is told what was said before, the first what it has missed; the session states both, for the person."""
    with bench(CLAUDE, also=("codex",)) as server:
        gpt = {"providerID": "codex", "modelID": server.models("codex")[0]}
        stream = Stream(server.api)
        server.later(stream.close)
        watch = Watch.on(server.api, stream)
        terminal = tui(server.place, server.url, session=watch.session)
        server.later(terminal.close)
        one = {"providerID": "claude", "modelID": "default"}
        watch.wait_for_end(watch.prompt("[scene:text] the password is walnut", model=one))
        watch.wait_for_end(watch.prompt("[scene:text] the second is maple", model=gpt))
        terminal.wait("Codex takes over from Claude Code", 15)
        heard = json.dumps(_last_tool_request(server, "responses"))
        assert "the password is walnut" in heard, "Codex is told the prompt of before"
        assert "You said: the password is walnut" in heard, "and the answer to it"
        watch.wait_for_end(watch.prompt("[scene:text] and a third", model=one))
        heard = json.dumps(_last_tool_request(server, "anthropic"))
        assert "You said: the second is maple" in heard, "Claude is told what it has missed"
        assert heard.count("You said: the password is walnut") == 1, "and not what it said itself"
        answers = [m["info"] for m in server.api.messages(watch.session) if m["info"]["role"] == "assistant"]
        assert [info["providerID"] for info in answers] == ["claude", "codex", "claude"]
        terminal.wait(("You said: and a third", r"▣.*GPT"), 20)  # the TUI shows which model answered
        assert server.unparsed_messages() == []


def _last_tool_request(server: Bench, wire: str) -> Json:
    """The last request with tools on one of the model's wires."""
    bodies: list[Json] = [r["body"] for r in server.model.requests() if r["kind"] == wire]
    return [body for body in bodies if body.get("tools")][-1]
