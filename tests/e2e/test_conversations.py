"""Conversations that were begun in an agent's own program, opened and continued here, and the other way round."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from .support.agents import AGENTS
from .support.bench import CLAUDE, Bench, Watch, nightly, other_wires
from .support.children import wait_for
from .support.places import NODE, REPO, program
from .support.tui import leader, tui
from .support.wire import Json, Stream, texts, tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


LISTED_S = 30
"""Seconds for an agent's own list to follow what is done here."""
CODEX, PI, OPENCODE, CLAUDE_ACP = "codex", "pi", "opencode", "claude-agent-acp"
WORDS: dict[str, tuple[str, ...]] = {
    CLAUDE: ("--dangerously-skip-permissions", "-p"),
    CODEX: ("exec", "--dangerously-bypass-approvals-and-sandbox"),
    PI: ("-p",),
    OPENCODE: ("run",),
    CLAUDE_ACP: ("--dangerously-skip-permissions", "-p"),
}
COMMANDS = {
    CLAUDE: "claude --resume",
    CODEX: "codex resume",
    PI: "pi --session",
    OPENCODE: "opencode --session",
    CLAUDE_ACP: "claude --resume",
}
TITLES = {CLAUDE: "Claude Code", CODEX: "Codex", PI: "Pi", OPENCODE: "OpenCode", CLAUDE_ACP: "Claude Agent (ACP)"}
TOOLS = {CODEX: ["bash", "apply_patch"]}
NAMES = {OPENCODE: "A short title"}
"""What the conversation is called, where it is not its prompt."""


def run_agent(server: Bench, *words: str) -> str:
    """What the agent's own program prints, in the project."""
    name = server.agent
    env = server.place.env(**AGENTS[name].prepare(server.place, server.model.url), IS_SANDBOX="1")
    argv = [program("claude" if name == CLAUDE_ACP else name), *WORDS[name], *words]
    env["PATH"] = f"{NODE}:{env['PATH']}"
    place, nothing = server.place.project, subprocess.DEVNULL
    done = subprocess.run(argv, env=env, cwd=place, stdin=nothing, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def list_conversations(server: Bench) -> list[Json]:
    return server.api.get(f"/v1/agents/{server.agent}/x-sessions")["sessions"]


@pytest.mark.parametrize("server", [CLAUDE, CODEX, CLAUDE_ACP, *nightly(PI, OPENCODE)], indirect=True)
def test_a_conversation_of_the_terminal_opens_with_its_history_and_goes_on(server: Bench, stream: Stream) -> None:
    assert list_conversations(server) == []
    run_agent(server, "[scene:read_edit] please")
    (row,) = list_conversations(server)
    name = NAMES.get(server.agent, "[scene:read_edit] please")
    assert (row["title"], row["command"]) == (name, f"{COMMANDS[server.agent]} {row['id']}")
    argv = [str(REPO / ".venv/bin/opencode-shim"), "sessions", server.agent, row["id"], "--url", server.url]
    argv += ["--directory", str(server.place.project)]
    said = subprocess.run(argv, env=server.place.env(), capture_output=True, text=True, timeout=60, check=True).stdout
    session = said.split()[2].rstrip(":")
    listed = {info["id"]: info for info in server.api.get("/session")}[session]
    assert listed["title"] == f"{TITLES[server.agent]} · {name}"
    history = server.api.messages(session)
    assert texts(history) == ["I'll read the file first.", "Now I'll add a line.", "Done!"]
    assert [(tool["tool"], tool["state"]["status"]) for tool in tools(history)] == [
        (name, "completed") for name in TOOLS.get(server.agent, ["read", "edit"])
    ]
    watch = Watch(server.api, stream, session)
    at = watch.prompt("[scene:see:read_edit] and now")
    stream.idle(session, since=at)
    assert "the word read_edit" in texts(server.api.messages(session))[-1], "the model has the conversation"
    assert [row.get("sessionId") for row in list_conversations(server)] == [session]
    assert server.api.post(f"/v1/agents/{server.agent}/x-sessions/{row['id']}")["sessionId"] == session, "it is opened once"


@other_wires
@pytest.mark.parametrize("server", [CLAUDE], indirect=True)
def test_a_conversation_of_the_terminal_goes_on_by_the_other_wires(server: Bench, stream: Stream, wire: str) -> None:
    run_agent(server, f"[scene:text] remember magenta by {wire}")
    (row,) = [row for row in list_conversations(server) if row["title"].endswith(f"by {wire}")]
    session = server.api.post(f"/v1/agents/{CLAUDE}/x-sessions/{row['id']}")["sessionId"]
    watch = Watch(server.api, stream, session)
    stream.idle(session, since=watch.prompt_on(wire, "[scene:see:magenta] and now"))
    said = server.api.get(f"/api/session/{session}/message" if wire == "/api" else f"/v1/sessions/{session}/events")
    assert "You said: remember magenta" in json.dumps(said), "the history of the terminal"
    assert "the word magenta" in json.dumps(said), "the model has it"


@pytest.mark.parametrize("server", [CLAUDE], indirect=True)
def test_a_conversation_begun_here_goes_on_in_the_terminal(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    watch.wait_for_end(watch.prompt("[scene:text] remember magenta"))
    (row,) = [row for row in list_conversations(server) if row.get("sessionId") == watch.session]
    assert "the word magenta" in run_agent(server, "[scene:see:magenta] what?", "--resume", row["id"]), json.dumps(row)


def continue_in_terminal(server: Bench, id_: str, words: str) -> str:
    if server.agent == CODEX:
        return run_agent(server, "resume", id_, words)
    return run_agent(server, words, "--resume" if server.agent in (CLAUDE, CLAUDE_ACP) else "--session", id_)


@pytest.mark.parametrize("server", [CLAUDE, PI, *nightly(CLAUDE_ACP)], indirect=True)
def test_a_terminal_that_goes_on_meanwhile_is_shown_and_the_agent_gets_it(server: Bench, stream: Stream) -> None:
    """Two writers at once, between turns and in one: our turn is not disturbed, and neither loses what the other said."""
    watch = Watch.on(server.api, stream)
    watch.wait_for_end(watch.prompt("[scene:text] remember magenta"))
    (id_,) = [row["id"] for row in list_conversations(server) if row.get("sessionId") == watch.session]
    at = watch.prompt("[scene:slow_bash:6] one")
    watch.wait_tool("running", at)
    continue_in_terminal(server, id_, "[scene:text] indigo in the terminal")
    stream.idle(watch.session, since=at)
    watch.wait_text("You said: indigo in the terminal", at)
    messages = watch.wait_for_end(at, idles=2)
    assert texts(messages) == [
        "You said: remember magenta",
        "This takes a while.",
        "Done!",
        "You said: indigo in the terminal",
    ]
    words = f"Somebody goes on with this conversation in `{COMMANDS[server.agent].partition(' ')[0]}`"
    toasts = [event["properties"] for _, event in stream.events[watch.start :] if event["type"] == "tui.toast.show"]
    assert any(toast["message"].startswith(words) and toast["title"] for toast in toasts)
    journal = json.dumps(server.api.get(f"/v1/sessions/{watch.session}/events"))
    assert journal.count(words) == 1, "a toast of the conversation of another test may come late"
    at = watch.prompt("[scene:see:indigo] and now")
    assert "the word indigo" in texts(watch.wait_for_end(at))[-1]


@pytest.mark.parametrize("server", [CLAUDE, *nightly(CLAUDE_ACP)], indirect=True)
def test_a_turn_of_a_terminal_while_no_agent_runs_is_shown_and_known_to_the_agent(server: Bench) -> None:
    session = server.api.session()

    def ask(words: str, answers: int) -> list[str]:
        server.api.prompt(session, words)
        return wait_for(
            lambda: session not in server.api.status() and len(said := texts(server.api.messages(session))) == answers and said,
            LISTED_S,
            lambda: str(server.api.messages(session)),
        )

    ask("[scene:text] remember magenta", 1)
    (id_,) = [row["id"] for row in list_conversations(server) if row.get("sessionId") == session]
    server.restart()
    continue_in_terminal(server, id_, "[scene:text] indigo in the terminal")
    said = ask("[scene:see:indigo] and now", 3)
    assert said[:2] == ["You said: remember magenta", "You said: indigo in the terminal"]
    assert "the word indigo" in said[2], "the agent knows it"


@pytest.mark.parametrize("server", [CLAUDE, *nightly(PI)], indirect=True)
def test_the_next_process_goes_on_after_the_last_answer_here(server: Bench, stream: Stream) -> None:
    """The terminal writes last, so that the file's end is on its branch, where nothing is of what was said here meanwhile."""
    watch = Watch.on(server.api, stream)
    watch.wait_for_end(watch.prompt("[scene:slow_bash:4] long enough for the file to be looked at"))
    (id_,) = [row["id"] for row in list_conversations(server) if row.get("sessionId") == watch.session]
    start = watch.stream.mark()
    with ThreadPoolExecutor(1) as terminal:
        running = terminal.submit(continue_in_terminal, server, id_, "[scene:slow_bash:6] turquoise")
        wait_for(
            lambda: any("turquoise" in json.dumps(r["body"]) for r in server.model.requests()), LISTED_S, "it does not begin"
        )
        stream.idle(watch.session, since=watch.prompt("[scene:text] remember indigo"))
        assert "Done!" in running.result()
    wait_for(lambda: watch.kinds(start).count("session.idle") == 2, LISTED_S, "what the terminal said is not shown")

    def list_holders() -> list[Json]:
        return [row for row in server.api.get("/v1/x-holders")["holders"] if row.get("session") == watch.session]

    for pid in list_holders()[0]["pids"]:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not list_holders(), LISTED_S, "it does not end")
    assert "Done!" in texts(server.api.messages(watch.session))[-1]
    for word in ("indigo", "turquoise"):
        stream.idle(watch.session, since=watch.prompt(f"[scene:see:{word}] and now"))
        assert f"the word {word}" in texts(server.api.messages(watch.session))[-1]


@pytest.mark.parametrize("server", nightly(OPENCODE), indirect=True)
def test_a_notice_tells_that_the_terminal_prompted_an_agent_with_a_database(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    watch.wait_for_end(watch.prompt("[scene:text] remember magenta"))
    (id_,) = [row["id"] for row in list_conversations(server) if row.get("sessionId") == watch.session]
    continue_in_terminal(server, id_, "[scene:text] indigo in the terminal")
    asked = len(server.model.requests())
    messages = watch.wait_for_end(at := watch.prompt("[scene:see:indigo] and now"))
    assert texts(messages)[1:] == ["I see 0 image(s), and the word indigo."]
    assert len(server.model.requests()) == asked + 1, "nothing is answered twice"
    assert (
        "in another program. OpenCode knows what was said there"
        in watch.stream.wait(lambda event: event["type"] == "tui.toast.show", since=at, timeout_s=LISTED_S)["properties"][
            "message"
        ]
    )
    watch.wait_for_end(at := watch.prompt("[scene:text] once more"))
    assert [event for _, event in stream.events[at:] if event["type"] == "tui.toast.show"] == []


@pytest.mark.parametrize("server", [CODEX], indirect=True)
def test_a_conversation_that_a_terminal_has_open_is_left_to_it(server: Bench, stream: Stream) -> None:
    """Codex lets one process write to a thread: the person is told, nothing is begun anew, and the next prompt has all."""
    run_agent(server, "[scene:text] remember magenta")
    (row,) = [row for row in list_conversations(server) if not row.get("sessionId")]
    session = server.api.post(f"/v1/agents/{CODEX}/x-sessions/{row['id']}")["sessionId"]
    watch = Watch(server.api, stream, session)
    with ThreadPoolExecutor(1) as terminal:
        running = terminal.submit(run_agent, server, "resume", row["id"], "[scene:slow_bash:12] indigo")
        wait_for(lambda: any("indigo" in json.dumps(r["body"]) for r in server.model.requests()), LISTED_S, "it does not begin")
        at = watch.prompt("[scene:text] from here")
        failure = watch.wait("session.error", at)["error"]["data"]["message"]
        assert failure.startswith("Codex has this conversation open in another program")
        stream.idle(session, since=at)
        assert "Done!" in running.result()
    stream.idle(session, since=watch.prompt("[scene:see:indigo] and now"))
    assert "the word indigo" in texts(server.api.messages(session))[-1]
    assert [row for row in list_conversations(server) if not row.get("sessionId")] == [], "no second one was begun"


@pytest.mark.parametrize("server", [CODEX, CLAUDE, *nightly(OPENCODE, PI)], indirect=True)
def test_a_title_that_a_person_gives_follows(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    watch.wait_for_end(watch.prompt("[scene:text] remember magenta"))
    server.api.call("PATCH", f"/session/{watch.session}", {"title": "The colour"})
    wait_for(lambda: "The colour" in [row["title"] for row in list_conversations(server)], LISTED_S, "the title is not told")


@pytest.mark.parametrize("server", [CODEX, *nightly(CLAUDE_ACP, OPENCODE)], indirect=True)
def test_a_session_that_is_deleted_leaves_the_agents_own_list(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    watch.wait_for_end(watch.prompt("[scene:text] remember magenta"))
    listed = [row.get("sessionId") for row in list_conversations(server)]
    assert watch.session in listed
    assert None not in listed, "a discovery leaves none"
    server.api.call("DELETE", f"/session/{watch.session}")
    wait_for(lambda: len(list_conversations(server)) < len(listed), LISTED_S, "it is listed")


@pytest.mark.parametrize("server", [CLAUDE, *nightly(CODEX)], indirect=True)
def test_a_search_in_the_tui_finds_opens_and_continues_one(server: Bench, stream: Stream) -> None:
    run_agent(server, "[scene:text] remember crimson")
    terminal = tui(server.place, server.url)
    server.later(terminal.close)
    leader(terminal, "l", "Sessions")
    assert "crimson" not in terminal.screen(), "never unasked"
    terminal.type("crimson")
    terminal.wait(f"{TITLES[server.agent]} · .* remember crimson", 20)
    terminal.key("Enter")
    terminal.wait("remember crimson", 20)
    terminal.submit("[scene:see:crimson] and now")
    terminal.wait("the word crimson", 60)
