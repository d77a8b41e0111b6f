"""The laws of a cluster hold whatever happens to its servers, to the network and to NATS."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import Phase, given, settings

from tests.conftest import LAW_EXAMPLES, ORDINARY_EXAMPLES
from tests.properties.cluster_laws import check, check_read, check_views, describe
from tests.properties.cluster_plan import NODES, STEPS, Step, play
from tests.properties.cluster_world import ClusterWorld, run

PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
"""All but explanations, which take as long as the rest."""


IS_ORDINARY = LAW_EXAMPLES <= ORDINARY_EXAMPLES
"""The ordinary run draws the same histories each time: a rare broken law stops `make laws`, and nobody else."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No log: faults are what is tested."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def hold(steps: list[Step]) -> None:
    """Raise unless all laws hold after a plan."""

    async def test(world: ClusterWorld) -> None:
        world.on_read = lambda server, state, text: check_read(world, server, state, text)  # type: ignore[method-assign]
        await world.start()
        try:
            await play(world, steps, lambda: check_views(world))
            await check(world)
        except Exception as error:
            error.add_note("\n".join((*map(str, steps), describe(world))))
            raise

    run(test, NODES)


@pytest.mark.slow
@pytest.mark.timeout(max(300, LAW_EXAMPLES))
@settings(max_examples=LAW_EXAMPLES // 8, deadline=None, phases=PHASES, derandomize=IS_ORDINARY)
@given(STEPS)
def test_laws_hold_in_any_history(steps: list[Step]) -> None:
    hold(steps)


# --- histories that are always tried --------------------------------------------------------------------------------

HISTORIES: dict[str, list[Step]] = {
    "a server that was paused with a request has lost its session": [
        Step("pause", 1, 0, 2, 8.0),
        Step("prompt", 0, 1, 0, 1.0),
        Step("prompt", 0, 1),
    ],
    "the begin of a turn was stored, and its row was not": [Step("prompt", pause_s=0.001), Step("kill")],
    "a server starts on a replica that is behind": [Step("kill"), Step("lag")],
    "a prompt was stored, and its row was refused": [Step("usurp"), Step("slow", amount=3), *[Step("prompt")] * 6],
    "all leases end while NATS is away": [*[Step("prompt")] * 8, Step("prompt", pause_s=3.0), Step("elect", amount=2)],
    "a word of an owner before comes when its session was given up": [
        *[Step("prompt")] * 5,
        Step("prompt", pause_s=0.05),
        Step("prompt"),
        Step("pause", amount=2),
    ],
    "a server shows more of a session of which it has heard what the next owner has stored": [
        *[Step("prompt")] * 4,
        Step("pause", 1, amount=1),
        Step("cut", amount=2),
        Step("prompt", 1, 1, 1, 0.001),
        Step("cut silently", 1, amount=1),
    ],
    "a row tells the end of a turn before the words of it": [
        Step("prompt", 2, 0, 1, 0.05),
        Step("kill", 1, 0, 0, 0.001),
        Step("abort", NODES, 0, 1, 0.001),
        Step("pause", 0, 1, 2, 8.0),
    ],
    "a word of the owner before comes while its session is loaded": [
        Step("prompt"),
        Step("usurp", pause_s=0.05),
        Step("slow", amount=2),
    ],
    "a claim fails because the owner before still writes": [
        Step("cut silently", NODES, 0, 1, 1.0),
        Step("prompt", 2, 0, 3, 0.001),
        Step("slow", amount=2),
    ],
    "a turn begins in the middle of a claim that fails": [Step("usurp", pause_s=0.001), Step("slow", 0, 0, 3, 3.0)],
    "the row of a dead server is stored after its lease ended": [
        Step("cut silently", 1, 0, 1, 8.0),
        Step("prompt", NODES, 1, 2, 0.001),
        Step("delay", NODES, 1, 3, 0.05),
        Step("kill", 1, 1, 2, 8.0),
    ],
    "a server hears a prompt when it goes on, and its client was refused": [
        Step("pause", 0, 0, 2, 0.05),
        Step("prompt", 1, 0),
    ],
    "a server dies with a prompt that clients have seen and NATS has not": [
        *[Step("prompt")] * 6,
        Step("prompt", 1, 1),
        Step("kill"),
        Step("elect"),
    ],
    "the events of a subagent come while its session is created": [Step("slow", 0, 0, 2), Step("create", 1, 0, 1)],
    "a session is deleted while its server dies": [
        Step("create", 0, 0, 2, 3.0),
        Step("kill", 0, 0, 0, 8.0),
        *[Step("delete", 1, 0, 0, 1.0), Step("revive", 2)] * 4,
    ],
    "a session that was deleted is prompted where that is not known": [
        Step("create", 0, 0, 0, 8.0),
        Step("kill", 0, 0, 0, 8.0),
        Step("read", pause_s=8.0),
        Step("delete", 1, 0, 0, 0.05),
        Step("revive", 2),
    ],
    "a deletion is stored when another server has had the session": [
        Step("create", 2, 0, 3, 1.0),
        Step("cut silently", 2, 1, 1, 1.0),
        Step("hop", 2, 1, 0, 1.0),
        Step("cut silently", 0, 1, 0, 0.05),
        Step("cut", 1, 0, 0, 3.0),
        Step("delete", 1, 1, 3, 0.05),
    ],
    "a client goes on at a server that started after what its server had not shown": [
        Step("create", NODES, 1, 2),
        Step("slow", 2, 1, 1, 3.0),
        Step("kill", NODES, 0, 3, 1.0),
        Step("lag", 1, 1, 1, 3.0),
        Step("create", 2, 1, 2, 1.0),
        Step("kill", 0, 1, 1, 0.05),
    ],
    "a permission is answered while no client listens": [
        Step("ask", 0, 0, 1, 3.0),
        Step("read", 2, 0, 0, 1.0),
        Step("abort", 0, 0, 0, 1.0),
        Step("hop", 2, 0, 0, 3.0),
    ],
    "a client hops while an owner is cut off with its turn": [
        Step("prompt", 0, 0, 3, 1.0),
        Step("cut silently", 0, 0, 3, 3.0),
        Step("hop", 1, 0, 0, 8.0),
        Step("hop", 2, 0, 0, 3.0),
    ],
    "a client sends its prompt again before that is stored": [Step("slow", 0, 0, 3, 0.05), Step("insist", NODES, 0, 1, 3.0)],
    "a client hops to a server that has heard of a new session and cannot read it": [
        Step("kill"),
        Step("pause", 2, 0, 1, 3.0),
        Step("create", 0, 0, 0, 1.0),
        Step("hop", 2),
        Step("elect", amount=2),
    ],
    "a client misses the end of a turn": [Step("prompt", 0, 0, 1, 1.0), Step("hop", 2, 0, 0, 8.0)],
    "the answer to an append is lost": [Step("prompt", 0, 0, 3, 1.0), Step("slow", 0, 0, 2, 1.0), Step("cut")],
}
"""What happened -> its plan. All but the last one have broken a law of the real cluster."""


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES.keys())
def test_laws_hold_when(history: list[Step]) -> None:
    hold(history)
