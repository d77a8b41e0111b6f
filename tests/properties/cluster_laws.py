"""The laws of a cluster, as a person sees them who has the journal in NATS, what clients saw, and what agents got.

`check(world)` raises `LawBroken` with the law's name. It is called when all faults are over and everything is at rest.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shim.cluster.nats.batches import Reader, envelope_of
from shim.faces.opencode1 import read as opencode1
from shim.faces.opencode2 import read as opencode2
from shim.lib.clock import ManualClock
from shim.sessions.session.session_state import SessionState
from shim.store.memory import MemoryStore
from shim.store.rows import event_of
from tests.properties.cluster_world import ANEW, EXTRA, SESSIONS, ClusterNode, ClusterWorld, Viewer
from tests.properties.laws import law
from tests.support.cluster.simulated_nats import StoredMessage
from tests.support.cluster.virtual_time import BEGIN_S
from tests.support.session_states import state_deps
from tools.chaos.screens import content_of
from universal.events import EventType, ItemData, TurnData, UniversalEvent
from universal.items import ItemRole, TextPart

JOURNAL = "shim_journal"
READ_S = 30.0
"""Seconds for a server to show a session when everything is at rest."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What clients can read of a session, and what its writer needs to go on."""

    sequence: int
    opencode1: Any
    opencode2: Any
    pending: list[str]
    is_busy: bool


def picture(state: SessionState) -> Picture:
    """What a state shows."""
    session = state.session
    shown = [opencode2.info(session), *opencode2.messages(session)]
    return Picture(state.sequence, opencode1.export(session), shown, list(state.pending_prompts.prompts), state.machine.busy)


def journal_of(world: ClusterWorld, session_id: str) -> list[UniversalEvent]:
    """The events of a session as NATS has them."""
    reader, events = Reader(session_id, with_raw=True), list[UniversalEvent]()
    for message in messages_of(world, session_id):
        events += map(event_of, reader.rows(message.data, 0))
    return events


def messages_of(world: ClusterWorld, session_id: str) -> list[StoredMessage]:
    """The messages of a session's journal as NATS has them."""
    subject = f"shim.journal.{session_id}"
    return [message for message in world.nats.stream(JOURNAL).messages.values() if message.subject == subject]


def rebuild(session_id: str, events: list[UniversalEvent]) -> SessionState:
    """The state that the whole journal makes."""
    clock = ManualClock(0, 0)
    state = SessionState(session_id, "one", state_deps(MemoryStore(), clock))
    state.load(events)
    return state


def check_read(world: ClusterWorld, server: str, state: SessionState, text: str = "") -> None:
    """A reader sees what the journal says, up to some event, and what it was told is accepted."""
    events = journal_of(world, state.id)
    law(f"{server} shows no event of {state.id} that is not stored", state.sequence <= len(events))
    law(f"{server} shows the prompt {text!r} that it has acknowledged", not text or text in _texts(events[: state.sequence]))
    expected = picture(rebuild(state.id, events[: state.sequence]))
    law(f"what {server} shows of {state.id} is what its journal says", picture(state) == expected)


def describe(world: ClusterWorld) -> str:
    """What has happened, for a person who looks for the reason."""
    lines: list[str] = []
    for session_id in world.seen.sessions:
        for message in world.seen.stored[JOURNAL]:
            if message.subject.endswith(f".{session_id}"):
                envelope = envelope_of(message.data)
                events = [event_of(row) for row in Reader(session_id, with_raw=False).rows(message.data, 0)]
                names = " ".join(_name(event) for event in events) or "claim"
                lines.append(
                    f"{session_id} {message.at - BEGIN_S:7.3f} s  {envelope.by} epoch {envelope.epoch}: {envelope.first} {names}"
                )
    lines += [f"accepted {one.text!r} at {one.server}" for one in world.seen.acked]
    lines += [f"not accepted {text!r}" for text in world.seen.refused]
    lines += [f"{text!r} was given to agents of {servers}" for text, servers in world.seen.dispatches.items()]
    lines += [f"{server} {session_id}: {words}" for (server, session_id), words in world.seen.views.items()]
    return "\n".join(lines)


def _name(event: UniversalEvent) -> str:
    if event.type is EventType.TURN_ENDED and isinstance(event.data, TurnData):
        return f"turn.ended:{dict(event.data.metadata or {}).get('reason')}"
    return f"{event.type.value}:{text}" if (text := next(_texts([event]), "")) else event.type.value


def check_views(world: ClusterWorld) -> None:
    """What clients saw that listened all the time. Called before anybody reads, which would show them what they have missed."""
    entries = world.entries()
    for session_id in world.seen.sessions:
        events = journal_of(world, session_id)
        for node in world.nodes:
            if not node.is_quiet and session_id in entries:  # else it was deleted, perhaps behind a refusal
                _check_view(world, node, session_id, events)
    for viewer in world.viewers:
        _check_viewer(world, viewer)


async def check(world: ClusterWorld) -> None:
    """Check all laws of a cluster at rest. A new server reads what the others do, from checkpoints."""
    await world.add_node()
    entries = world.entries()
    _check_deletions(world, set(entries))
    for session_id in entries:
        events = journal_of(world, session_id)
        _check_journal(world, session_id, events)
        _check_turns(session_id, events)
        if not is_child(world, session_id):
            _check_prompts(world, session_id, events)
        _check_owners(world, session_id)
        for node in world.nodes:
            await _check_state(world, node, session_id, events)


def is_child(world: ClusterWorld, session_id: str) -> bool:
    """Whether a session is that of a subagent: its id was not chosen by a client."""
    return session_id not in SESSIONS and not session_id.startswith(EXTRA)


def _check_deletions(world: ClusterWorld, stored: set[str]) -> None:
    """What a client was told is deleted is nowhere, and what it was told is created is there."""
    for session_id in world.seen.sessions:
        is_deleted = session_id in world.seen.deleted
        if is_deleted:
            law(f"the deleted session {session_id} is not stored", session_id not in stored)
            law(f"nothing of the deleted session {session_id} is left", not messages_of(world, session_id))
            for node in world.nodes:
                law(f"{node.server} does not list the deleted session {session_id}", session_id not in node.manager.index)
        elif not session_id.startswith(EXTRA):
            law(f"the session {session_id} is stored", session_id in stored)


def _check_viewer(world: ClusterWorld, viewer: Viewer) -> None:
    """What a client shows that hops: each event once, and nothing that is void."""
    who = f"the client at {world.nodes[viewer.number].server}"
    law(f"{who} gets each event once: {viewer.doubles}", not viewer.doubles)
    for session_id, screen in viewer.screen.sessions.items():
        if session_id not in world.entries():
            continue  # deleted: a client that hops may not hear of it
        events = journal_of(world, session_id)
        session = rebuild(session_id, events).session
        messages = opencode1.export(session)["messages"]
        ids = {message["info"]["id"] for message in messages}
        law(f"{who} shows no message of {session_id} that is void: {screen.messages - ids}", screen.messages <= ids)
        contents = {part["id"]: content_of(part) for message in messages for part in message["parts"]}
        shown = {part_id: content for part_id, (_, content) in screen.parts.items()}
        wrong = {
            part_id: (content, contents.get(part_id)) for part_id, content in shown.items() if contents.get(part_id) != content
        }
        law(f"{who} shows each part of {session_id} as it is: {wrong}", not wrong)
        is_open = screen.dialogs <= {*session.permissions, *session.questions}
        law(f"{who} shows no dialog of {session_id} that is over: {screen.dialogs}", is_open)
        law(f"{who} shows {session_id} as idle", session.permissions or viewer.statuses.get(session_id, "idle") == "idle")
        turns = sum(event.type is EventType.TURN_ENDED for event in events)
        law(f"{who} gets at most one idle for each turn of {session_id}", viewer.idles[session_id] <= turns)


def _check_journal(world: ClusterWorld, session_id: str, events: list[UniversalEvent]) -> None:
    law("a journal has no gap and no fork", [event.sequence for event in events] == list(range(1, len(events) + 1)))
    law("no event is stored twice", len({event.event_id for event in events}) == len(events))
    envelopes = [envelope_of(message.data) for message in messages_of(world, session_id)]
    epochs = [envelope.epoch for envelope in envelopes]
    law("nothing of an owner before is stored after a claim", epochs == sorted(epochs))
    law("an epoch has one writer", all(len({one.by for one in envelopes if one.epoch == epoch}) == 1 for epoch in epochs))


def _check_turns(session_id: str, events: list[UniversalEvent]) -> None:
    turns = [event.type for event in events if event.type in (EventType.TURN_STARTED, EventType.TURN_ENDED)]
    expected = [EventType.TURN_STARTED, EventType.TURN_ENDED] * (len(turns) // 2)
    law(f"each turn of {session_id} has exactly one end", turns == expected)


def _texts(events: list[UniversalEvent]) -> Iterator[str]:
    """The texts of the prompts in a journal."""
    for event in events:
        if event.type is EventType.ITEM_COMPLETED and isinstance(event.data, ItemData) and event.data.item.role is ItemRole.USER:
            yield from (part.text for part in event.data.item.content if isinstance(part, TextPart))


def _check_prompts(world: ClusterWorld, session_id: str, events: list[UniversalEvent]) -> None:
    texts = list(_texts(events))
    for prompt in world.seen.acked:
        if prompt.session_id == session_id:
            at_once = any(f'"{prompt.text}"' in message for message in prompt.stored_texts)
            law(f"the prompt {prompt.text!r} is stored when {prompt.server} acknowledges it", at_once)
            law(f"the accepted prompt {prompt.text!r} is not lost", prompt.text in texts)
    for text in world.seen.not_done:
        law(f"the refused prompt {text!r} is never done", text not in texts and not world.seen.dispatches[text])
    law(f"a prompt is done once: {texts}", len(set(texts)) == len(texts))
    for text in texts:
        law(f"an agent gets the prompt {text!r} once", len(world.seen.dispatches[text]) <= 1)
    pending_prompts = rebuild(session_id, events).pending_prompts
    waiting = [str(pending.prompt.text) for pending in pending_prompts.prompts.values()]
    silent = [str(pending.prompt.text) for pending in pending_prompts.without_answer()]
    law(f"each accepted prompt ends, with an answer or an error: {silent}", not silent)
    for text in texts:
        is_with_agent = bool(world.seen.dispatches[text]) or text in world.seen.carried
        law(f"an agent has got the prompt {text!r}, or it waits", is_with_agent or text in waiting)


def _check_owners(world: ClusterWorld, session_id: str) -> None:
    loaded = [
        node for node in world.nodes if (entry := node.manager.index.find(session_id)) is not None and entry.state is not None
    ]
    law(f"at most one server works on {session_id}", len(loaded) <= 1)
    at_work = {
        node.server
        for node in world.nodes
        if (entry := node.manager.index.find(session_id)) is not None and entry.actor is not None and entry.actor.process.is_alive
    }
    law("no agent runs without the session's owner", at_work <= {node.server for node in loaded})


def _check_view(world: ClusterWorld, node: ClusterNode, session_id: str, events: list[UniversalEvent]) -> None:
    """What a client saw that listened all the time."""
    view = world.seen.views[node.server, session_id]
    while ANEW in view:
        _check_streak(node, view[: view.index(ANEW)])
        view = view[view.index(ANEW) + 1 :]
    _check_streak(node, view)
    statuses = [word for word in view if not word.startswith("ended")]
    law(f"{node.server} shows idle at last: {view}", statuses[-1:] in ([], ["idle"]))


def _check_streak(node: ClusterNode, view: list[str]) -> None:
    """What a client saw between two times at which it read everything."""
    statuses = [word for word in view if not word.startswith("ended")]
    law(f"{node.server} shows busy and idle in turn: {view}", all(a != b for a, b in itertools.pairwise(statuses)))
    turns = view[view.index("busy") :] if "busy" in view else []  # a row said busy when it started: that turn ended before
    ends = [word for word in turns if word.startswith("ended")]
    law(f"{node.server} shows one end for each idle: {view}", len(ends) == turns.count("idle"))


async def _check_state(world: ClusterWorld, node: ClusterNode, session_id: str, events: list[UniversalEvent]) -> None:
    async def read() -> SessionState:
        return await node.manager.readable_state(session_id)

    task = world.loop.spawn(node.machine, read())
    await asyncio.wait({task}, timeout=READ_S)
    law(f"{node.server} shows {session_id} soon", task.done())
    state: SessionState = task.result()
    law(f"{node.server} shows all of {session_id}: {state.sequence} of {len(events)}", state.sequence == len(events))
    law(f"{node.server} shows {session_id} as its journal says", picture(state) == picture(rebuild(session_id, events)))
