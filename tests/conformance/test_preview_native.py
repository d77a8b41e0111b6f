"""What we tell on the wire of 1.18's preview, beside what that preview itself has told of the same scenes (lildax 1.18.18).

In order: the types of a turn's events, scene by scene. In shape: which fields each type of event and message has. Each of ours is
also as OpenCode's document of 1.18.33 says. Differences are rows of `compat_fixtures/opencode2/differences_preview.toml`, each
with its reason; a row that is not needed fails.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pytest

from shim.faces.opencode2.dialects import PREVIEW
from tests.conformance.test_opencode2_native import Shapes, differences
from tests.support.opencode2_replay import SECOND, Native, journals, of_agents
from tests.support.opencode2_story import synthetic_stories
from tests.support.opencode2_views import OpenCode2View
from tests.support.oracle import check_preview_event, check_response
from tests.support.two_faces import second_of

Wire = dict[str, Any]
NATIVE = SECOND / "lildax-1.18.18"
BEGINS = "session.next.prompt.admitted"
OURS = ("session.", "permission.v2.", "question.v2.")

SCENES: dict[tuple[str, int], tuple[str, ...]] = {
    ("text", 0): ("mock/echo", "claude/2.1.329/text"),
    ("reason", 0): ("mock/think", "claude/2.1.329/reason"),
    ("slow_bash", 0): ("mock/tool", "claude/2.1.329/slow_bash"),
    ("permission_once", 0): ("mock/permission", "claude/2.1.329/bash_once"),
    ("permission_reject", 0): ("mock/permission_reject", "claude/2.1.329/bash_reject"),
    ("permission_edit", 0): ("claude/2.1.329/read_edit",),
    ("parallel", 0): ("mock/parallel", "claude/2.1.329/parallel"),
    ("question", 0): ("mock/question_one", "claude/2.1.329/question"),
    ("question_cancel", 0): ("mock/question_reject", "claude/2.1.329/question_reject"),
    ("fail_tool", 0): ("mock/failtool", "claude/2.1.329/fail_tool"),
    ("error", 0): ("mock/error", "claude/2.1.329/error"),
    ("hang_interrupt", 0): ("mock/hang", "claude/2.1.329/abort_text"),
    ("interrupt_tool", 0): ("mock/tool_interrupted", "claude/2.1.329/abort_tool", "claude/2.1.330/interrupt_tool"),
    ("three_turns", 2): ("mock/remember", "claude/2.1.329/three_turns"),
    ("bash", 0): ("mock/tool", "claude/2.1.330/bash"),
    ("wait", 0): ("mock/tool", "claude/2.1.330/bash"),
    ("read_edit", 0): ("mock/edit_existing", "claude/2.1.330/read_edit_bypass"),
    ("permission_always", 0): ("mock/permission_always", "claude/2.1.329/bash_always"),
    ("permission_reject_message", 0): ("mock/permission_feedback", "claude/2.1.330/bash_ask_deny"),
    ("interrupt_permission", 0): ("mock/permission_interrupted", "claude/2.1.330/interrupt_ask"),
    ("bad_tool", 0): ("mock/failtool",),
    ("error_401", 0): ("mock/error", "claude/2.1.330/error_401"),
    ("overload", 0): ("mock/retry", "claude/2.1.330/overload"),
    ("busy_default", 0): ("claude/2.1.330/queue_tool",),
    ("busy_steer", 0): ("claude/2.1.330/queue_tool",),
    ("busy_queue", 0): ("claude/2.1.329/queue",),
    ("todo", 0): ("claude/2.1.330/todo_write",),
}
"""(scene of the preview, which of its turns) -> recordings of agents in which the same happens, in their turn of that number, or
the last one that they have."""


@cache
def rows(table: str) -> tuple[Wire, ...]:
    """Differences on purpose."""
    return tuple(tomllib.loads((SECOND / "differences_preview.toml").read_text("utf-8")).get(table, ()))


def native_scenes() -> list[str]:
    """All that were kept."""
    return [path.stem for path in sorted(NATIVE.glob("*.jsonl"))]


@cache
def native(scene: str) -> Native:
    """One scene."""
    return Native(tuple(json.loads(line) for line in (NATIVE / f"{scene}.jsonl").read_text("utf-8").split("\n") if line))


def turns(events: Iterable[Wire]) -> list[list[str]]:
    """The types of the first session's events, from each prompt to the next; any number of pieces of one text are one."""
    found: list[list[str]] = []
    main: str | None = None
    for event in events:
        kind, session = event["type"], event["data"].get("sessionID")
        if not kind.startswith(OURS) or kind == "session.created":
            continue
        main = main or session
        if session != main:
            continue
        if kind == BEGINS:
            found.append([])
        kind = f"{kind}*" if kind.endswith(".delta") else kind
        if found and not (kind.endswith("*") and found[-1] and found[-1][-1] == kind):
            found[-1].append(kind)
    return found


async def order(scene: str, number: int, name: str) -> list[tuple[str, str]]:
    """How an agent's recording differs from a scene."""
    journal = (await journals(name))[0]
    our_wire = [event.wire() for event in map(PREVIEW.event, second_of(journal, name.split("/")[0])[1]) if event is not None]
    ours = turns(our_wire)
    return list(differences(turns(native(scene).events())[number], ours[min(number, len(ours) - 1)]))


def is_excused(row: Wire, scene: str, agent: str, how: str, kind: str) -> bool:
    """Whether a row of the table says so."""
    return scene in row["scenes"] and agent in row["agents"] and kind in row.get(how, ())


@pytest.mark.parametrize(("scene", "number"), SCENES)
async def test_the_order_is_that_of_the_preview(scene: str, number: int) -> None:
    for name in SCENES[(scene, number)]:
        found = await order(scene, number, name)
        agent = name.split("/")[0]
        left = [(how, kind) for how, kind in found if not any(is_excused(r, scene, agent, how, kind) for r in rows("order"))]
        assert left == [], name


async def test_each_difference_in_order_is_needed() -> None:
    needed: set[tuple[int, str, str]] = set()
    for (scene, number), names in SCENES.items():
        for name in names:
            agent = name.split("/")[0]
            for how, kind in await order(scene, number, name):
                for place in (at for at, row in enumerate(rows("order")) if is_excused(row, scene, agent, how, kind)):
                    needed |= {(place, "scenes", scene), (place, "agents", agent), (place, how, kind)}
    said = {(at, key, one) for at, row in enumerate(rows("order")) for key in row if key != "why" for one in row[key]}
    assert said - needed == set()


# --- shapes ---------------------------------------------------------------------------------------------------


@cache
def preview_shapes() -> Shapes:
    """The preview's."""
    shapes = Shapes()
    for scene in native_scenes():
        for event in native(scene).events():
            if event["type"].startswith(OURS):
                shapes.see(event["type"], event)
        for message in native(scene).messages():
            shapes.see(f"message {message['type']}", message)
    return shapes


async def our_wire() -> Iterator[tuple[list[Wire], list[Wire]]]:
    """Events and messages of all recordings of all agents, and of what no recording has."""
    stories = [second_of(journal, name.split("/")[0]) for name in of_agents() for journal in await journals(name)]
    pairs = [(events, OpenCode2View(session)) for session, events in stories]
    pairs += [(story.told, story.now) for story in synthetic_stories()]
    return iter(
        (
            [event.wire() for event in map(PREVIEW.event, events) if event is not None],
            [one for one in map(PREVIEW.message, now.messages.values()) if one is not None],
        )
        for events, now in pairs
    )


async def test_each_event_and_message_is_as_the_document_says() -> None:
    seen: set[str] = set()
    for events, messages in await our_wire():
        for event in events:
            check_preview_event(event)
            seen.add(event["type"])
        check_response("v2.session.messages", 200, {"data": messages, "cursor": {}})
    assert seen >= {kind for kind in preview_shapes().some if not kind.startswith("message ")} - UNTOLD


UNTOLD = {"session.next.context.updated"}
"""What the preview tells of its own instructions, of which no agent speaks."""


async def test_the_shapes_are_those_of_the_preview() -> None:
    """A field that the preview always tells is told; one that it never tells is not; both but for the rows."""
    mine, native_ones = Shapes(), preview_shapes()
    for events, messages in await our_wire():
        for event in events:
            if event["type"].startswith(OURS):
                mine.see(event["type"], event)
        for message in messages:
            mine.see(f"message {message['type']}", message)
    found: set[tuple[str, str, str]] = set()
    for kind in mine.some:
        if kind not in native_ones.some:
            found.add((kind, "unseen", ""))
            continue
        found |= {(kind, "lacks", path) for path in native_ones.all[kind] - mine.all[kind]}
        found |= {(kind, "more", path) for path in mine.some[kind] - native_ones.some[kind]}
    found |= {(kind, "untold", "") for kind in native_ones.some if kind not in mine.some}
    said = {(kind, row["how"], path) for row in rows("shape") for kind in row["kinds"] for path in row.get("fields", [""])}
    assert found - said == set()
    assert said - found == set(), "rows that are not needed"


def test_each_row_says_why() -> None:
    assert all(row["why"].endswith(".") for table in ("order", "shape") for row in rows(table))
