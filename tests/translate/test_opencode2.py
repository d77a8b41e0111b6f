"""OpenCode 2 as an agent, by recordings of its own server: two builds, and one of them by the names of the published contract.

Nothing is unparsed, turns are balanced, clients see valid events, and the agent said what the native server says it said.
"""

from __future__ import annotations

from typing import Any

import pytest

from shim.dev.record.packs import read_rows, recordings_in
from tests.support import replay as engine
from tests.support.opencode2_oracle import check_event
from tests.support.recordings import ROOT, read
from tests.support.replay import Replay
from tests.support.replay_checks import check_replay
from universal.events import EventType
from universal.items import ItemKind, ItemRole, ItemStatus

RECORDINGS = ROOT.parent / "opencode2"
JULY, PREVIEW = "v2-20260717", "lildax-1.18.18"
PUBLISHED = "published"
"""July's recordings by the names of the published contract, which is newer than every build that could be recorded."""
BUILDS = (PUBLISHED, JULY, PREVIEW)


def scenes(build: str) -> list[str]:
    return [path.stem for path in recordings_in(RECORDINGS / "agent" / build)]


def play(build: str, scene: str) -> Replay:
    return engine.play(f"opencode2/{build}/{scene}")


ALL = [(build, scene) for build in BUILDS for scene in scenes(build)]
Wire = dict[str, Any]


@pytest.mark.parametrize(("build", "scene"), ALL)
async def test_a_recording_is_understood_and_keeps_the_laws(build: str, scene: str) -> None:
    await check_replay(play(build, scene))


@pytest.mark.parametrize("scene", scenes(PUBLISHED))
def test_the_events_of_the_release_are_those_of_the_contract(scene: str) -> None:
    for row in read(f"opencode2/{PUBLISHED}/{scene}").rows:
        if row.direction == "out" and "event" in row.msg:
            check_event(row.msg["event"])


@pytest.mark.parametrize("scene", scenes(PUBLISHED))
def test_the_release_and_july_say_the_same(scene: str) -> None:
    release, july = play(PUBLISHED, scene), play(JULY, scene)
    assert release.turns() == july.turns()
    assert release.texts() == july.texts()
    assert [release.cards(key) for key in release.states] == [july.cards(key) for key in july.states]


# --- faithfulness ----------------------------------------------------------------------------------------------


def native_answers(build: str, scene: str) -> list[list[tuple[str, str]]]:
    """What the native server answered last of the first session's messages: texts, and tools with their status."""
    rows = [row for row in read_rows(RECORDINGS / build / f"{scene}.jsonl") if row["dir"] == "http"]
    paths = {row["n"]: row["path"].split("?")[0] for row in rows if row["phase"] == "request"}
    prompted = next((path for path in paths.values() if path.endswith("/prompt")), "/")
    wanted = prompted.removesuffix("prompt") + "message"
    bodies = [row["body"] for row in rows if row["phase"] == "response" and paths[row["n"]] == wanted and row["status"] == 200]
    messages: list[Wire] = bodies[-1].get("data", []) if bodies else []
    return [_native_parts(message) for message in reversed(messages) if message["type"] == "assistant"]


def _native_parts(message: Wire) -> list[tuple[str, str]]:
    parts = message["content"]
    said = [(part["type"], part["text"]) for part in parts if part["type"] != "tool" and part["text"]]
    return said + [(part["name"], part["state"]["status"]) for part in parts if part["type"] == "tool"]


def our_answers(played: Replay) -> list[list[tuple[str, str]]]:
    """The same of the codec's items."""
    answers: dict[str, list[tuple[str, str]]] = {}
    calls: dict[str, tuple[str, str]] = {}
    for fact in played.facts(EventType.ITEM_STARTED, None):
        if fact.data.item.kind is ItemKind.MESSAGE and fact.data.item.role is ItemRole.ASSISTANT:
            answers[fact.data.item.item_id] = []
    for fact in played.facts(EventType.ITEM_COMPLETED, None):
        item = fact.data.item
        if item.kind is ItemKind.MESSAGE and item.item_id in answers:
            answers[item.item_id] = [(part.type, part.text) for part in item.content] + answers[item.item_id]
        elif item.kind is ItemKind.TOOL_CALL:
            calls[item.content[0].call_id] = (item.parent_id or "", item.content[0].name)
        elif item.kind is ItemKind.TOOL_RESULT:
            message, name = calls[item.content[0].call_id]
            answers[message].append((name, "completed" if item.status is ItemStatus.COMPLETED else "error"))
    return list(answers.values())


NOT_COMPARED = {
    "compact": "the messages before the compaction are not answered any more",
    "extras": "a skill, a command and hidden inputs of others are messages there",
    "revert": "messages were taken back",
    "endpoints": "it reads a page of the messages",
    "three_turns": "it reads a page of the messages",
    "fork": "the last messages that were read are those of the copy",
    "parallel": "the results came in another order than the calls, in which the native server lists them",
}
"""Scenes whose messages are not compared -> why."""


@pytest.mark.parametrize(
    ("build", "scene"), [(build, scene) for build, scene in ALL if build != PUBLISHED and scene not in NOT_COMPARED]
)
def test_the_agents_text_is_that_of_the_native_server(build: str, scene: str) -> None:
    if native := native_answers(build, scene):
        assert our_answers(play(build, scene)) == native


# --- turns -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "scene", "turns"),
    [
        (JULY, "text", [("user", "completed")]),
        (JULY, "error", [("user", "error")]),
        (JULY, "error_401", [("user", "error")]),
        (JULY, "hang_interrupt", [("user", "aborted"), ("user", "completed")]),
        (JULY, "interrupt_tool", [("user", "aborted")]),
        (JULY, "permission_reject", [("user", "completed")]),
        (JULY, "question_cancel", [("user", "completed")]),
        (JULY, "compact", [("user", "completed")] * 3),
        (JULY, "switch", [("user", "completed"), ("user", "error")]),
        (PREVIEW, "text", [("user", "completed")]),
        (PREVIEW, "error", [("user", "error")]),
        (PREVIEW, "interrupt_permission", [("user", "aborted")]),
        (PREVIEW, "permission_reject", [("user", "completed")]),
        (PREVIEW, "three_turns", [("user", "completed")] * 3),
    ],
)
def test_turns(build: str, scene: str, turns: list[tuple[str, str]]) -> None:
    assert play(build, scene).turns() == turns


def test_a_prompt_of_another_client_is_shown_in_the_running_turn() -> None:
    played = play(JULY, "busy_default")
    assert played.turns() == [("user", "completed")]
    assert "[scene:text] second" in played.texts(ItemRole.USER)


def test_a_subagent_has_a_session_of_its_own() -> None:
    played = play(JULY, "task_permission")
    [child] = played.children
    assert played.turns(child) == [("agent", "completed")]
    assert played.texts(ItemRole.USER, child) == ["[scene:bash] say what you see"]
    assert played.cards() == [("task", "completed")]
    assert played.cards(child) == [("bash", "completed")]
    [permission] = played.facts(EventType.PERMISSION_REQUESTED)
    assert permission.child == child


def test_tools_have_the_names_and_results_of_open_code_1() -> None:
    played = play(PUBLISHED, "read_edit")
    read_, edit = played.tool_parts()
    assert (read_["tool"], read_["state"]["input"]) == ("read", {"filePath": "/home/user/project/README.md"})
    assert "Hello" in read_["state"]["output"]
    assert edit["state"]["metadata"]["filediff"]["additions"] == 1
    [shell] = play(PUBLISHED, "bash").tool_parts()
    assert (shell["tool"], shell["state"]["metadata"]["exit"]) == ("bash", 0)
    assert "Command exited" not in shell["state"]["output"]


def test_output_grows_while_a_command_runs() -> None:
    pieces = [f.data.delta for f in play(JULY, "slow_bash").facts(EventType.ITEM_DELTA) if f.data.part_type == "tool_output"]
    assert "".join(pieces) == "tick 1\ntick 2\ntick 3"


def test_the_title_is_the_agents() -> None:
    [title] = play(JULY, "text").statuses("title")
    assert title.metadata == {"title": "A short title"}


def test_todos_of_the_preview_are_sent() -> None:
    [todo] = play(PREVIEW, "todo").statuses("todo")
    assert [row["content"] for row in todo.metadata["todos"]] == ["first", "second"]
