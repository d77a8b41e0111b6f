"""What happens in a simulated cluster: steps of clients, faults of servers, of the network and of NATS, as Hypothesis draws them.

A fault is one step that ends by itself, so that a plan without it is a plan too, and shrinking leaves what matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from shim.cluster.nats.leases import LEASE_S
from tests.properties.cluster_world import ASKS, EXTRA, SESSIONS, SUBAGENT, ClusterWorld
from tests.support.cluster.simulated_nats import ARRIVES, Direction, Fate, Packet
from tests.support.cluster.virtual_time import elapse

NODES = 3
PAUSES_S = (0.0, 0.001, 0.05, 1.0, 3.0, 8.0)
"""Seconds between two steps."""
FAULT_S = (1.0, 5.0, 12.0, 20.0)
"""Seconds that a fault lasts: shorter and longer than a lease."""
READ_S = 5.0
"""Seconds in which a session that is read can be taken over, if its server is gone."""
HEAL_S = 40.0
"""Seconds after the last fault, in which all turns end and all servers see all."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan: what happens, where, for how long, and the pause after it. Node NODES is the session's owner."""

    kind: str
    node: int = 0
    session: int = 0
    amount: int = 0
    pause_s: float = 0.0


async def play(world: ClusterWorld, steps: list[Step], at_rest: Callable[[], None]) -> None:
    """Carry out a plan, end all faults, and wait until everything is at rest. Then call a function, and read all sessions."""
    for number, session_id in enumerate(SESSIONS):
        await world.create(session_id, number)
    faults: set[asyncio.Task[Any]] = set()
    for drawn in steps:
        step = drawn if drawn.node < NODES else replace(drawn, node=world.owner(SESSIONS[drawn.session]))
        fault = KINDS[step.kind](world, step)
        if fault is not None:
            faults.add(world.loop.spawn(None, fault))
        await elapse(step.pause_s)
    if faults:
        await asyncio.gather(*faults)
    for session_id in SESSIONS:  # nobody is asked any more
        world.abort(world.owner(session_id), session_id)
    await elapse(HEAL_S)
    at_rest()
    for session_id in SESSIONS:
        for number in range(NODES):
            world.read(number, session_id)
    await elapse(READ_S)
    await world.settle()


# --- clients -------------------------------------------------------------------------------------------------------------


def _prompt(world: ClusterWorld, step: Step) -> None:
    world.prompt(step.node, SESSIONS[step.session], 1 + step.amount * 4)


def _insist(world: ClusterWorld, step: Step) -> None:
    """A client sends a prompt again, with the same id, until it is done. A 409 says that it is."""
    world.insist(step.node, SESSIONS[step.session], 1 + step.amount * 4)


def _ask(world: ClusterWorld, step: Step) -> None:
    """The agent asks for a permission. Somebody answers, or nobody does until all is over."""
    world.prompt(step.node, SESSIONS[step.session], 1 + step.amount, ASKS)


def _reply(world: ClusterWorld, step: Step) -> None:
    world.reply(step.node, SESSIONS[step.session])


def _employ(world: ClusterWorld, step: Step) -> None:
    """The agent has a subagent."""
    world.prompt(step.node, SESSIONS[step.session], 1 + step.amount * 2, SUBAGENT)


def _create(world: ClusterWorld, step: Step) -> None:
    world.create_more(step.node, 1 + step.amount * 4)


def _delete(world: ClusterWorld, step: Step) -> None:
    world.delete_more(step.node)


def _revive(world: ClusterWorld, step: Step) -> None:
    """A client prompts the newest of the sessions that are deleted, perhaps where nobody has heard of the deletion."""
    world.prompt(step.node, f"{EXTRA}{world.extra}", 1 + step.amount)


def _hop(world: ClusterWorld, step: Step) -> None:
    world.viewers[step.session % len(world.viewers)].hop(step.node)


def _abort(world: ClusterWorld, step: Step) -> None:
    world.abort(step.node, SESSIONS[step.session])


def _read(world: ClusterWorld, step: Step) -> None:
    world.read(step.node, SESSIONS[step.session])


# --- faults --------------------------------------------------------------------------------------------------------------


def _kill(world: ClusterWorld, step: Step) -> None:
    if world.nodes[step.node].is_ready:
        world.kill(step.node)


async def _pause(world: ClusterWorld, step: Step) -> None:
    machine = world.nodes[step.node].machine
    machine.pause()
    await elapse(FAULT_S[step.amount])
    machine.resume()


async def _usurp(world: ClusterWorld, step: Step) -> None:
    """A server is paused with a client's request, and another one takes its session."""
    owner = world.owner(SESSIONS[step.session])
    world.nodes[owner].machine.pause()
    _prompt(world, replace(step, node=owner))
    await elapse(LEASE_S + 1 + step.amount)
    _prompt(world, replace(step, node=(owner + 1) % NODES))
    await elapse(FAULT_S[step.amount])
    world.nodes[owner].machine.resume()


async def _cut(world: ClusterWorld, step: Step, *, is_silent: bool = False, ghost_s: float = 0.0) -> None:
    client = world.clients.get(world.nodes[step.node].server)
    if client is not None and client.link.is_up:
        client.link.cut(is_silent=is_silent, ghost_s=ghost_s)
        await elapse(0.1 if ghost_s else FAULT_S[step.amount])
        client.link.heal()


def _cut_silently(world: ClusterWorld, step: Step) -> Awaitable[None]:
    return _cut(world, step, is_silent=True)


def _cut_with_ghosts(world: ClusterWorld, step: Step) -> Awaitable[None]:
    """The connection is made anew at once. What was on its way to NATS arrives late."""
    return _cut(world, step, ghost_s=FAULT_S[step.amount])


async def _spoil(world: ClusterWorld, step: Step, fate: Fate) -> None:
    """The next messages of a server do not arrive as they should."""
    client = world.clients.get(world.nodes[step.node].server)
    if client is None:
        return
    left = 1 + step.amount * 5

    def decide(direction: Direction, packet: Packet) -> Fate:
        nonlocal left
        left -= 1
        return fate if left >= 0 else ARRIVES

    client.link.fate = decide
    await elapse(FAULT_S[0])
    client.link.fate = lambda direction, packet: ARRIVES


def _lose(world: ClusterWorld, step: Step) -> Awaitable[None]:
    return _spoil(world, step, Fate(copies=0))


def _double(world: ClusterWorld, step: Step) -> Awaitable[None]:
    return _spoil(world, step, Fate(copies=2))


def _delay(world: ClusterWorld, step: Step) -> Awaitable[None]:
    return _spoil(world, step, Fate(delay_s=1.5))


async def _elect(world: ClusterWorld, step: Step) -> None:
    """The servers of NATS choose a leader."""
    world.nats.has_leader = False
    await elapse(FAULT_S[step.amount])
    world.nats.has_leader = True


async def _fill(world: ClusterWorld, step: Step) -> None:
    """NATS has no room."""
    world.nats.is_full = True
    await elapse(FAULT_S[step.amount])
    world.nats.is_full = False


async def _lag(world: ClusterWorld, step: Step) -> None:
    """The replica that answers reads is behind."""
    world.nats.lag_s = (0.05, 0.3, 0.6, 0.9)[step.amount]
    await elapse(FAULT_S[step.amount])
    world.nats.lag_s = 0.0


async def _slow(world: ClusterWorld, step: Step) -> None:
    """Messages are stored some time after they were accepted."""
    world.nats.commit_s = (0.01, 0.1, 0.5, 2.0)[step.amount]
    await elapse(FAULT_S[step.amount])
    world.nats.commit_s = 0.0


KINDS: dict[str, Callable[[ClusterWorld, Step], Awaitable[None] | None]] = {
    "prompt": _prompt,
    "insist": _insist,
    "read": _read,
    "abort": _abort,
    "ask": _ask,
    "reply": _reply,
    "employ": _employ,
    "create": _create,
    "delete": _delete,
    "revive": _revive,
    "hop": _hop,
    "pause": _pause,
    "usurp": _usurp,
    "kill": _kill,
    "cut": _cut,
    "cut silently": _cut_silently,
    "cut with ghosts": _cut_with_ghosts,
    "lose": _lose,
    "double": _double,
    "delay": _delay,
    "elect": _elect,
    "fill": _fill,
    "lag": _lag,
    "slow": _slow,
}
WEIGHTS = {
    "prompt": 10,
    "insist": 0,  # in histories that are always tried
    "read": 2,
    "hop": 3,
    "create": 2,
    "delete": 2,
    "pause": 4,
    "kill": 2,
    "cut silently": 2,
    "lose": 2,
    "double": 2,
    "lag": 2,
}
"""How often each kind is drawn (1 if it is not here)."""

STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from([kind for kind in KINDS for _ in range(WEIGHTS.get(kind, 1))]),
        st.integers(0, NODES),
        st.integers(0, len(SESSIONS) - 1),
        st.integers(0, len(FAULT_S) - 1),
        st.sampled_from(PAUSES_S),
    ),
    min_size=8,
    max_size=20,
)
"""A plan."""
