"""What we tell on OpenCode 2's wire, beside what OpenCode 2 itself has told of the same scenes (build V2_JULY of July 2026).

In order: scene by scene, the types of events of an execution. In shape (`test_opencode2_shapes`): for each
type of event and message, which fields it has.
All differences are rows of `compat_fixtures/opencode2/differences.toml`, each with its reason; a row that is not needed fails.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.http.opencode2.client import tui
from tests.support.live import live
from tests.support.opencode2_oracle import check_event
from tests.support.opencode2_replay import NATIVE, OURS, Comparison, all_scenes, journals, kinds, wire_events
from tests.support.two_faces import second_of

pytestmark = pytest.mark.usefixtures("july")
Wire = dict[str, Any]

SCENES = {
    **all_scenes(
        task=("mock/subagent", "claude/2.1.332/task"),
        task_permission=("mock/subagent", "claude/2.1.330/task_edit"),
        busy_default=("live/steer", "claude/2.1.330/queue_tool"),
        busy_queue=("live/queue", "claude/2.1.332/queue"),
    ),
    ("hang_interrupt", 1): ("claude/2.1.330/hang_interrupt",),
    ("compact", 2): ("mock/compact",),
}
BESIDE = frozenset({"session.usage.updated", "session.instructions.updated", "session.renamed"})
"""Told when a model has counted or thought of a title: their place says nothing."""
LIVE = "live"
"""The mock behind the whole server, for what no recording of it has: `live/steer`, a prompt while it works."""


async def busy(delivery: str) -> list[Wire]:
    """A turn of the mock that waits for a permission until a second prompt is there."""
    with TemporaryDirectory() as folder:
        async with live(Path(folder)) as server, tui(server, "v2_july") as client:
            await client.new()
            await client.prompt("permission")
            wire_events: list[Wire] = []
            while not client.ends:
                wire_events.append(await client.take_next())
                if wire_events[-1]["type"] == "permission.v2.asked":
                    await client.prompt("echo second", delivery=delivery)
                    await client.reply(wire_events[-1]["data"], "once")
            return wire_events


async def our_events(name: str) -> list[Wire]:
    """A recording of an agent, or `busy`, as July's build would tell it."""
    agent, _, rest = name.partition("/")
    return await busy(rest) if agent == LIVE else wire_events((await journals(name))[0], agent)


JULY = Comparison(NATIVE, "differences.toml", SCENES, OURS, lambda events: kinds(events, BESIDE), our_events)


@pytest.mark.parametrize(("scene", "number"), SCENES)
async def test_the_order_is_that_of_opencode(scene: str, number: int) -> None:
    await JULY.check_order(scene, number)


async def test_each_difference_in_order_is_needed() -> None:
    await JULY.check_order_rows()


# --- what no recording has ------------------------------------------------------------------------------------

RETRIED = [
    *("session.created", "session.input.admitted", "session.execution.started", "session.input.promoted"),
    *("session.step.started", "session.retry.scheduled") * 2,
    *("session.step.started", "session.text.started", "session.text.delta*", "session.text.ended", "session.step.ended"),
    "session.execution.succeeded",
]
"""Events of July's build after its model's API had answered 503 twice: one step, started three times, in one execution. The
recording was not kept; the preview's has no event of it (`preview/overload` in `test_opencode2_played`)."""


@pytest.mark.parametrize("name", ["mock/retry", "claude/2.1.332/overload", "claude/2.1.330/overload", "claude/2.1.197/overload"])
async def test_a_retry_is_published_as_it_was_seen(name: str) -> None:
    journal = (await journals(name))[0]
    assert kinds(wire_events(journal, name.split("/")[0]), BESIDE) == [RETRIED]
    events = second_of(journal, name.split("/")[0])[1]
    for event in events:
        check_event(event.wire())
    retries = [event for event in events if event.type == "session.retry.scheduled"]
    assert [event.data["attempt"] for event in retries] == [2, 3]
    assert all(event.data["at"] >= event.created for event in retries)
    assert {event.data["error"]["type"] for event in retries} == {"provider.internal"}
    assert len({event.data["assistantMessageID"] for event in events if event.type.startswith("session.step.")}) == 1


def test_each_row_says_why() -> None:
    JULY.check_reasons()
