"""`/undo` and `/redo` in OpenCode's TUI 1.18.33 with Claude behind us: the screen, the files, the agent's memory.

The stops and the words on the screen are those of the same commands on native 1.18.33 (docs/undo.md has where its files differ).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .support.bench import CLAUDE, bench, nightly
from .support.children import wait_for
from .support.places import FILES, Place, tool
from .support.scenes import wait_for_turns
from .support.tmux import Terminal
from .support.tui import command, tui

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]
ANSWER_S = 90
"""For an answer of an agent that has to be started for it: OpenCode's own server takes a while on a busy machine."""
FIRST = "[scene:bash:echo new > made.txt; rm notes.txt; chmod +x README.md; echo line >> README.md] change"
SECOND = "[scene:bash:mkdir -p d/e; mv made.txt d/e/moved.txt] move"
CHANGED = {"README.md": "Hello\nline\n", "made.txt": "new\n"}
MOVED = {"README.md": "Hello\nline\n", "d/e/moved.txt": "new\n"}


def files(place: Place) -> dict[str, str]:
    paths = [p for p in place.project.rglob("*") if p.is_file() and ".git" not in p.parts]
    return {str(p.relative_to(place.project)): p.read_text() for p in sorted(paths)}


def undone(terminal: Terminal, messages: int) -> str:
    screen = terminal.wait(f"{messages} message(s)? reverted", 20)
    terminal.key("C-u", pause_s=0.2)  # the prompt comes back into the input
    return screen


def test_undo_and_redo_with_claude() -> None:
    """Two turns, undone one by one and redone; the files at each stop."""
    with bench(CLAUDE) as server:
        place, terminal = server.place, tui(server.place, server.url)
        server.later(terminal.close)
        terminal.submit(FIRST)
        wait_for_turns(terminal)
        assert files(place) == CHANGED
        terminal.submit(SECOND)
        wait_for_turns(terminal, 2)
        assert files(place) == MOVED
        command(terminal, "undo")
        assert "d/e/moved.txt -1" in undone(terminal, 1)
        assert files(place) == CHANGED
        command(terminal, "undo")
        undone(terminal, 2)
        assert files(place) == FILES
        assert not (place.project / "README.md").stat().st_mode & 0o100
        command(terminal, "redo")
        terminal.wait("1 message reverted", 20)
        assert files(place) == CHANGED
        command(terminal, "redo")
        terminal.wait("reverted", 20, gone=True)
        assert files(place) == MOVED
        assert (place.project / "README.md").stat().st_mode & 0o100
        command(terminal, "undo")
        undone(terminal, 1)
        terminal.submit("[scene:text] what now")
        wait_for_turns(terminal, 2)
        assert files(place) == CHANGED
        asked = [str(r) for r in server.model.requests() if "what now" in str(r)][-1]
        assert "made.txt; rm notes.txt" in asked, "Claude knows the first prompt"
        assert "mkdir -p d/e" not in asked, "and has forgotten the second"


SLOW_GIT = """#!/bin/sh
case " $* " in *" ls-files -z -t "*) [ -e {slow} ] && sleep 0.4;; esac
exec {git} "$@"
"""
"""`git` whose snapshots take 0.4 s once `slow` is there: longer than Claude Code takes to its call."""


def test_a_call_of_claude_waits_for_the_snapshot_beside_its_prompt(tmp_path: Path) -> None:
    """What its call changes is not in the snapshot, which takes longer than the model."""
    slow, git = tmp_path / "slow", tmp_path / "git"
    git.write_text(SLOW_GIT.format(slow=slow, git=tool("git")))
    git.chmod(0o755)
    with bench(CLAUDE, PATH=f"{tmp_path}:{os.environ['PATH']}") as server:
        session = server.api.post("/session", {})["id"]

        def idle() -> bool:
            return session not in server.api.status()

        server.api.prompt(session, "[scene:bash:echo first > made.txt] first")
        wait_for(lambda: idle() and (server.place.project / "made.txt").exists(), ANSWER_S, "no first turn")
        slow.touch()
        server.api.prompt(session, "[scene:bash:echo second > made.txt; rm notes.txt] second")
        wait_for(lambda: idle() and not (server.place.project / "notes.txt").exists(), ANSWER_S, "no second change")
        second = [m["info"]["id"] for m in server.api.messages(session) if m["info"]["role"] == "user"][-1]
        server.api.post(f"/session/{session}/revert", {"messageID": second})
        assert files(server.place) == FILES | {"made.txt": "first\n"}


def test_the_persons_repository_is_as_it_was() -> None:
    """Not a byte of `.git` changes in a turn and its undo, with the real agent."""
    with bench("mock") as server:
        git = server.place.project / ".git"

        def bytes_of(folder: Path) -> dict[str, bytes]:
            return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

        before = bytes_of(git)
        session = server.api.post("/session", {})["id"]
        server.api.post(f"/session/{session}/message", {"parts": [{"type": "text", "text": "edit"}]})
        first = server.api.get(f"/session/{session}/message")[0]["info"]["id"]
        assert (server.place.project / "mock.txt").exists()
        server.api.post(f"/session/{session}/revert", {"messageID": first})
        assert not (server.place.project / "mock.txt").exists()
        assert bytes_of(git) == before


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex", "pi")])  # OpenCode starts too slowly; its codec has tests
def test_undo_removes_turns_from_the_agents_memory(agent: str) -> None:
    """Twice, since the second undo goes back to before what the first has made of the agent's conversation."""
    with bench(agent) as server:
        session = server.api.post("/session", {})["id"]

        def say(word: str) -> str:
            body = {"parts": [{"type": "text", "text": f"[scene:text] {word}"}]}
            status, answer = server.api.call("POST", f"/session/{session}/message", body, timeout_s=ANSWER_S)
            assert status == 200, answer
            return next(text for r in reversed(server.model.requests()) if word in (text := str(r)))

        def undo_last() -> None:
            last = [m["info"]["id"] for m in server.api.messages(session) if m["info"]["role"] == "user"][-1]
            server.api.post(f"/session/{session}/revert", {"messageID": last})

        say("alpha")
        assert "alpha" in say("bravo")
        undo_last()
        asked = say("charlie")
        assert "alpha" in asked
        assert "bravo" not in asked
        undo_last()
        asked = say("delta")
        assert "alpha" in asked
        assert "bravo" not in asked
        assert "charlie" not in asked
        assert not server.unparsed_messages()
