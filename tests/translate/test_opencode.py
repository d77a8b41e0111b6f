"""Every recording of native OpenCode as an agent: nothing unparsed, turns balanced, and what clients of ours see is what
the native server says itself, up to what is listed here with the reason."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from tests.support import recordings
from tests.support import replay as engine
from tests.support.opencode1_views import view
from tests.support.replay import Replay
from tests.support.replay_checks import check_clients
from universal.events import EventType
from universal.items import ItemKind

NAMES = [name.removeprefix("opencode/") for name in recordings.names("opencode") if not recordings.is_ours(name)]
Wire = dict[str, Any]


def play(name: str) -> Replay:
    return engine.play(f"opencode/{name}")


def final_messages(name: str) -> list[Wire]:
    """What the native server answered in the end: `GET /session/{id}/message`."""
    rows = recordings.read(f"opencode/{name}").rows
    return next((row.msg for row in rows if row.direction == "native"), [])


def _parts(item: Any) -> list[tuple[str, str]]:
    return [(part.type, part.text) for part in item.content]


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_understood(name: str) -> None:
    played = play(name)
    assert played.unparsed_lines() == []
    started: Counter[str] = Counter()
    completed: Counter[str] = Counter()
    deltas: dict[tuple[str, int], str] = {}
    results: Counter[str] = Counter()
    for fact in played.facts():
        if fact.type is EventType.ITEM_STARTED:
            started[fact.data.item.item_id] += 1
        elif fact.type is EventType.ITEM_DELTA and fact.data.part_type in ("text", "reasoning"):
            key = (fact.data.item_id, fact.data.part_index)
            deltas[key] = deltas.get(key, "") + fact.data.delta
        elif fact.type is EventType.ITEM_COMPLETED and fact.data.item.kind is not ItemKind.STATUS:
            item = fact.data.item
            if item.role != "user":
                completed[item.item_id] += 1
            if item.kind is ItemKind.TOOL_RESULT:
                results[item.content[0].call_id] += 1
            if item.kind is ItemKind.MESSAGE and item.role == "assistant":
                for index, (_, text) in enumerate(_parts(item)):
                    # the native server cuts white space off the end of a finished text
                    assert deltas.get((item.item_id, index), "").rstrip() == text.rstrip()
    assert started == completed
    assert set(started.values()) <= {1}
    assert set(results.values()) <= {1}


@pytest.mark.parametrize("name", NAMES)
async def test_clients_see_valid_events_that_survive_a_restart(name: str) -> None:
    played = play(name)
    await check_clients(played)
    for key in played.states:
        assert len(played.turns(key)) == played.hub.folds[played.states[key].id].idles


# --- faithfulness ----------------------------------------------------------------------------------------

LEFT_OUT = {
    "id": "ours",
    "sessionID": "ours",
    "messageID": "ours",
    "parentID": "ours",
    "time": "ours",
    "snapshot": "the agent's own undo; ours is git's",
    "sessionId": "a subagent's session is one of ours",
    "parentSessionId": "the same",
    "summary": "native leaves it empty in 1.18 (docs/wire.md, trap 7); ours is the real diff",
    "path": "the directory of the session, on both sides",
}
"""Keys that differ by nature -> why."""

NOT_FAITHFUL = {
    "command": "its prompts are the native command's own; ours are sent by /command with our message",
    "summarize": "compaction is not asked for by us; what the agent does itself is a turn of its own",
    "format_json": "structured output is not asked for",
    "perm_two": "the recording did not ask for the messages in the end",
}
"""Scenes that are not compared -> why."""


NATIVE_PARTS = {"patch": "the agent's own undo: a snapshot's hash"}
"""Types of parts that only native has -> why."""


def normal(value: Any) -> Any:
    """Without what differs by nature."""
    if isinstance(value, str):
        return re.sub(r"ses_\w{26}", "ses", value)
    if isinstance(value, dict):
        if value.keys() == {"modelID", "providerID"} and value["providerID"] != "opencode":  # of a subagent
            value = {"modelID": f"{value['providerID']}/{value['modelID']}", "providerID": "opencode"}
        return {k: normal(v) for k, v in value.items() if k not in LEFT_OUT}
    return [normal(v) for v in value] if isinstance(value, list) else value


def native_message(message: Wire) -> Wire:
    info, parts = dict(message["info"]), message["parts"]
    info["modelID"] = f"{info.pop('providerID')}/{info['modelID']}"  # the agent is the provider
    kept = [p for p in parts if p["type"] not in NATIVE_PARTS]
    kept = [p for p in kept if p["type"] != "step-start" or "error" not in info]
    return {"info": normal(info), "parts": [normal(p) for p in kept]}


def our_message(message: Wire) -> Wire:
    info = dict(message["info"])
    assert info.pop("providerID") == "opencode"
    # a step that failed before the model spoke has no step-start in native
    kept = [p for p in message["parts"] if p["type"] != "step-start" or "error" not in info]
    return {"info": normal(info), "parts": [normal(p) for p in kept]}


@pytest.mark.parametrize("name", [name for name in NAMES if name.split("/")[1] not in NOT_FAITHFUL])
def test_clients_see_the_events_of_the_native_server(name: str) -> None:
    played = play(name)
    native = [native_message(m) for m in final_messages(name) if m["info"]["role"] == "assistant"]
    fold = played.hub.folds[played.states[None].id]
    ours = [our_message(m) for m in fold.wire() if m["info"]["role"] == "assistant"]
    assert native, "the recording tells no final state"
    assert json.dumps(ours, indent=1, sort_keys=True).split("\n") == json.dumps(native, indent=1, sort_keys=True).split("\n")


@pytest.mark.parametrize(
    ("scene", "turns"),
    [
        ("text", [("user", "completed")]),
        ("error", [("user", "error")]),
        ("hang_abort", [("user", "aborted")]),
        ("abort_early", [("user", "aborted")]),
        ("perm_abort", [("user", "aborted")]),
        ("perm_reject", [("user", "completed")]),
        ("overload", [("user", "completed")]),
        ("summarize", [("user", "completed"), ("user", "completed"), ("agent", "completed"), ("user", "completed")]),
    ],
)
def test_turns(scene: str, turns: list[tuple[str, str]]) -> None:
    assert play(f"1.18.33/{scene}").turns() == turns


def test_a_subagent_has_a_session_of_its_own() -> None:
    played = play("1.18.33/task")
    [child] = [key for key in played.states if key is not None]
    fold = played.hub.folds[played.states[child].id]
    assert played.turns(child) == [("agent", "completed")]
    assert [m["info"]["role"] for m in fold.wire()] == ["user", "assistant"]
    assert fold.wire()[1]["parts"][1]["text"] == "You said: say what you see"


def test_a_changed_file_is_in_the_session_diff() -> None:
    played = play("1.18.33/read_edit")
    [entry] = view(played.states[None].session).diffs
    assert (entry["file"], entry["additions"], entry["deletions"]) == ("README.md", 1, 0)


def test_an_early_abort_is_sent_when_the_prompt_has_begun() -> None:
    played = play("1.18.33/abort_early")
    assert [r["path"].rsplit("/", 1)[1] for r in played.written_lines() if r["method"] == "POST"] == [
        "session",
        "prompt_async",
        "abort",
    ]


def test_a_retry_says_how_long_it_waits() -> None:
    played = play("1.18.33/overload")
    retries = [e.properties["status"] for e in played.hub.events if e.type == "session.status"]
    waits = [
        f.data.item.metadata["delay_ms"]
        for f in played.facts(EventType.ITEM_COMPLETED)
        if "delay_ms" in (f.data.item.metadata or {})
    ]
    assert [s["type"] for s in retries].count("retry") == 2
    assert [int(ms // 2000) for ms in waits] == [1, 2]
