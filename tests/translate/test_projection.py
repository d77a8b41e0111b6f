"""Every recording of Claude Code, all the way: native lines -> universal events -> what OpenCode clients see.

For each: every OpenCode event is what OpenCode's document allows; a client that folds the stream has what HTTP
answers; a projection rebuilt from the journal is the same; one idle per turn, nothing of a turn after it.
"""

from __future__ import annotations

import pytest

from shim.ids import Ids
from shim.sessions.journal_loader import load_journal
from shim.sessions.session_state import SessionState
from tests.support.both import check_second
from tests.support.claude_seen import Seen, seen
from tests.support.oracle import check_event, check_response
from tests.support.recordings import load_all
from tests.support.scripted import Recorder
from tests.support.views import view
from universal.turn import Ended, Started

RECORDINGS = load_all("claude")
DIRECTORY = "/home/user/project"


@pytest.mark.parametrize("name", [(r.version, r.scene) for r in RECORDINGS], ids="/".join)
async def test_a_recording_as_opencode_clients_see_it(name: tuple[str, str]) -> None:
    replay = await seen(*name)
    for number, event in enumerate(replay.hub.events):
        check_event({"id": f"evt_{number:026d}", "type": event.type, "properties": event.properties})
    for key, state in replay.states.items():
        fold = replay.hub.folds[state.id]
        fold.check()
        live = view(state.session)
        http = [m.wire() for m in live.messages.values()]
        check_response("session.messages", 200, http)
        check_response("session.get", 200, live.info)
        assert fold.wire() == http
        assert (fold.info, fold.todos, fold.diffs, fold.status) == (live.info, live.todos, live.diffs, live.status)
        ended = [e for k, e in replay.effects if k == key and isinstance(e, Ended)]
        started = [e for k, e in replay.effects if k == key and isinstance(e, Started)]
        assert fold.idles == len(ended) == len(started)
        rebuilt = SessionState(
            state.id,
            "claude",
            store=replay.store,
            changes=Recorder().changes,
            clock=replay.clock,
            ids=Ids(replay.clock),
            on_change=lambda _: None,
        )
        await load_journal(rebuilt, replay.store)
        assert [m.wire() for m in view(rebuilt.session).messages.values()] == http
        assert (view(rebuilt.session).info, view(rebuilt.session).todos) == (live.info, live.todos)
        check_second(await replay.store.events(state.id), "claude", live)


def _cards(replay: Seen, key: str | None = None) -> list[tuple[str, str]]:
    parts = [p for m in view(replay.states[key].session).messages.values() for p in m.wire()["parts"]]
    return [(p["tool"], p["state"]["status"]) for p in parts if p["type"] == "tool"]


@pytest.mark.parametrize(
    ("scene", "cards"),
    [
        ("read_edit", [("read", "completed"), ("edit", "completed")]),
        ("bash", [("bash", "completed")]),
        ("parallel", [("read", "completed"), ("read", "completed")]),
        ("question", [("question", "completed")]),
        ("todo_write", [("todowrite", "completed")]),
        ("fail_tool", [("read", "error")]),
        ("task", [("task", "completed")]),
        ("interrupt_ask", [("bash", "error")]),
    ],
)
async def test_cards(scene: str, cards: list[tuple[str, str]]) -> None:
    assert _cards(await seen("2.1.330", scene)) == cards


async def test_an_error_is_told_once() -> None:
    replay = await seen("2.1.330", "error")
    fold = replay.hub.folds[replay.states[None].id]
    assert [e["name"] for e in fold.errors] == ["APIError"]
    texts = [p["text"] for m in fold.wire() if m["info"]["role"] == "assistant" for p in m["parts"] if p["type"] == "text"]
    assert texts == []


async def test_a_refused_login_tells_what_to_do() -> None:
    replay = await seen("2.1.330", "bad_start.no_auth")
    [error] = replay.hub.folds[replay.states[None].id].errors
    assert error["name"] == "ProviderAuthError"
    assert "/login" in error["data"]["message"]


async def test_a_subagent_has_a_session_with_its_own_tools() -> None:
    replay = await seen("2.1.330", "task_edit")
    [child] = [k for k in replay.states if k is not None]
    assert [tool for tool, _ in _cards(replay, child)] == ["read", "edit"]


async def test_the_diff_of_an_edit_is_in_the_session() -> None:
    replay = await seen("2.1.330", "read_edit")
    conversation = view(replay.states[None].session)
    [entry] = conversation.diffs
    # the scripted model wrote a backslash and an n: one line for one line
    assert (entry["file"], entry["additions"], entry["deletions"]) == ("README.md", 1, 1)
    assert conversation.info["summary"] == {"additions": 1, "deletions": 1, "files": 1}
