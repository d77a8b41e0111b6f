"""Conversations that were begun in an agent's own program, opened and continued here, and the other way round."""

from __future__ import annotations

import json
import subprocess

import pytest

from .support.agents import AGENTS
from .support.bench import CLAUDE, Bench, Watch
from .support.places import REPO, program
from .support.wire import Json, Stream, texts, tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def run_claude(server: Bench, *words: str) -> str:
    """What `claude -p` prints, in the project."""
    env = server.place.env(**AGENTS[CLAUDE].prepare(server.place, server.model.url), IS_SANDBOX="1")
    argv = [program(CLAUDE), "-p", *words, "--dangerously-skip-permissions"]
    done = subprocess.run(argv, env=env, cwd=server.place.project, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def list_conversations(server: Bench) -> list[Json]:
    return server.api.get("/v1/agents/claude/x-sessions")["sessions"]


@pytest.mark.parametrize("server", [CLAUDE], indirect=True)
def test_a_conversation_of_the_terminal_opens_with_its_history_and_goes_on(server: Bench, stream: Stream) -> None:
    assert list_conversations(server) == []
    run_claude(server, "[scene:read_edit] please")
    (row,) = list_conversations(server)
    assert (row["title"], row["command"]) == ("[scene:read_edit] please", f"claude --resume {row['id']}")
    argv = [str(REPO / ".venv/bin/opencode-shim"), "sessions", "claude", row["id"], "--url", server.url]
    argv += ["--directory", str(server.place.project)]
    said = subprocess.run(argv, env=server.place.env(), capture_output=True, text=True, timeout=60, check=True).stdout
    session = said.split()[2].rstrip(":")
    listed = {info["id"]: info for info in server.api.get("/session")}[session]
    assert listed["title"] == "[scene:read_edit] please (Claude Code)"
    history = server.api.messages(session)
    assert texts(history) == ["I'll read the file first.", "Now I'll add a line.", "Done!"]
    assert [(tool["tool"], tool["state"]["status"]) for tool in tools(history)] == [("read", "completed"), ("edit", "completed")]
    watch = Watch(server.api, stream, session)
    at = watch.prompt("[scene:see:read_edit] and now")
    stream.idle(session, since=at)
    assert "the word read_edit" in texts(server.api.messages(session))[-1], "the model has the conversation"
    assert list_conversations(server)[0]["sessionId"] == session
    assert server.api.post(f"/v1/agents/claude/x-sessions/{row['id']}")["sessionId"] == session, "it is opened once"


@pytest.mark.parametrize("server", [CLAUDE], indirect=True)
def test_a_conversation_begun_here_goes_on_in_the_terminal(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    watch.wait_for_end(watch.prompt("[scene:text] remember magenta"))
    (row,) = [row for row in list_conversations(server) if row.get("sessionId") == watch.session]
    assert "the word magenta" in run_claude(server, "[scene:see:magenta] what?", "--resume", row["id"]), json.dumps(row)
