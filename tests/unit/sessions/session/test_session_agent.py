"""Pieces of text that an agent writes together are recorded like those that come alone, and published together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shim.faces.opencode1.events import render
from shim.faces.opencode2 import events as opencode2
from shim.sessions.feed import SessionChanges
from tests.support.scripted_model import ScriptedAgent, World, ask, world
from universal.codec import Fact, Output
from universal.events import EventType, ItemDeltaData
from universal.session.changes import TextGrew


def pieces_of(item: str, *texts: str, child: str | None = None) -> list[Fact]:
    pieces = [ItemDeltaData(item_id=item, delta=text, part_index=1) for text in texts]
    return [Fact(EventType.ITEM_DELTA, piece, {"text": piece.delta}, child=child) for piece in pieces]


def make_cluster(w: World) -> World:
    """Let the sessions believe that other servers can take them."""
    vars(w.store.ownership)["sessions_move"] = True
    return w


class Turn:
    """A turn with texts, a thought, an invented piece and a subagent's, of which its agent speaks by `say`.

    older  of each piece of text, what clients of OpenCode 1 get: the piece, and for those of 1.1 the whole part
    newer  what clients of OpenCode 2 get, and the ids of that
    """

    def __init__(self, w: World) -> None:
        self._world = w
        self.older: list[tuple[str, str]] = []
        self.newer: list[tuple[str, str]] = []
        self.ids: list[str] = []
        w.hub.changes.observe(self._show)

    def _show(self, published: SessionChanges) -> None:
        for event in render(published.changes, published.session, published.at_ms):
            if event.type == "message.part.delta" and event.legacy is not None and (older := event.legacy()) is not None:
                self.older.append((event.properties["delta"], older.properties["part"]["text"]))
        for newer in opencode2.render(published.changes, published.session, published.at_ms, lambda: "evt_none"):
            if newer.type.endswith(".delta"):
                self.newer.append((newer.type, newer.data["delta"]))
                self.ids.append(newer.id)

    async def run(self, say: Callable[[ScriptedAgent, list[Output]], None]) -> list[Any]:
        """What the journal has of each event."""
        w = self._world
        await w.store.open()
        session = w.session()
        await ask(w, session)
        w.agent.child("call")
        childs, item = w.agent.begin(child="call"), w.agent.begin()
        thoughts = [
            Fact(EventType.ITEM_DELTA, ItemDeltaData(item_id=item, delta=text, part_type="reasoning")) for text in ("h", "m", "m")
        ]
        unknown = Fact(EventType.ITEM_DELTA, ItemDeltaData(item_id="itm_unknown", delta="?"))
        texts = [pieces_of(item, *"ab"), pieces_of(childs, "c", child="call"), pieces_of(item, *"de")]
        invented = pieces_of(item, "f")[0]._replace(synthetic=True)
        say(w.agent, [*thoughts, *texts[0], unknown, *texts[1], *texts[2], invented, *pieces_of(item, *"ghi")])
        w.agent.complete(item, "abdefghi")
        w.agent.end_turn()
        journal: list[Any] = []
        for event in await w.store.events(session):
            data = (event.data.delta, event.data.part_type) if isinstance(event.data, ItemDeltaData) else ()
            journal.append((event.sequence, event.type, event.source, data, event.raw))
        return journal


ALONE = ["h", "hm", "hmm", "a", "ab", "c", "abd", "abde", "abdef", "abdefg", "abdefgh", "abdefghi"]
TOGETHER = ["h", "hmm", "a", "ab", "c", "abde", "abdef", "abdefghi"]
"""A text as it grows. The first piece begins its part, and is an event of its own."""


@pytest.mark.parametrize(("is_cluster", "parts"), [(False, TOGETHER), (True, ALONE)])
async def test_pieces_that_come_together_are_recorded_like_those_that_come_alone(is_cluster: bool, parts: list[str]) -> None:
    """In order with all else, whatever is read of an agent at once. Clients get the same text."""

    def one_by_one(agent: ScriptedAgent, outputs: list[Output]) -> None:
        for output in outputs:
            agent.says(output)

    alone, together = Turn(world()), Turn(make_cluster(world()) if is_cluster else world())
    journal = await alone.run(one_by_one)
    assert await together.run(lambda agent, outputs: agent.says(*outputs)) == journal
    assert [part for _, part in alone.older] == ALONE
    assert [part for _, part in together.older] == parts
    for turn in (alone, together):
        assert "".join(delta for delta, _ in turn.older) == "hmmabcdefghi"
        assert len(set(turn.ids)) == len(turn.ids) == len(turn.older)
        assert [delta for _, delta in turn.newer] == [delta for delta, _ in turn.older]


@pytest.mark.parametrize(("is_cluster", "deltas"), [(False, ["h", "ello"]), (True, [*"hello"])])
async def test_pieces_that_come_together_are_published_together(is_cluster: bool, deltas: list[str]) -> None:
    """In a cluster each alone: a client that goes on elsewhere needs its place."""
    w, found = make_cluster(world()) if is_cluster else world(), list[SessionChanges]()
    await w.store.open()
    session = w.session()
    await ask(w, session)
    item = w.agent.begin()
    w.hub.changes.observe(found.append)
    w.agent.says(*pieces_of(item, *"hello"))
    assert [change.delta for published in found for change in published.changes if isinstance(change, TextGrew)] == deltas
    assert found[-1].sequence == (await w.manager.state(session)).sequence
