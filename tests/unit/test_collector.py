"""The collector of cycles rests while much is read, stays short, and finds what was set aside once it is given up."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from shim import collector as module
from shim.collector import UNFREEZE_EVENTS, Collector


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    callbacks = list(gc.callbacks)
    gc.enable()  # a replay of recordings in this process may have turned it off
    yield
    assert gc.callbacks == callbacks
    gc.enable()
    gc.unfreeze()


def drop(made: Node) -> weakref.ref[Node]:
    return weakref.ref(made)


def test_collection_is_off_until_the_last_reader_ends() -> None:
    collector = Collector()
    with pytest.raises(KeyError), collector.pause():
        with collector.pause():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_a_disabled_collector_stays_off() -> None:
    collector = Collector()
    gc.disable()
    before = gc.get_freeze_count()
    with collector.pause():
        pass
    assert not gc.isenabled() and gc.get_freeze_count() == before


def test_read_sessions_are_frozen_until_enough_is_released() -> None:
    collector = Collector()
    with collector.pause():
        gone = drop(Node())
    gc.collect()
    assert gone() is not None
    collector.note_released(UNFREEZE_EVENTS - 1)
    gc.collect()
    assert gone() is not None
    collector.note_released(1)
    gc.collect()
    assert gone() is None
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize(("long_s", "aside"), [(0.0, True), (60.0, False)])
def test_objects_that_survive_a_long_collection_are_frozen(
    monkeypatch: pytest.MonkeyPatch, long_s: float, *, aside: bool
) -> None:
    monkeypatch.setattr(module, "LONG_S", long_s)
    collector = Collector()
    kept = Node()
    with collector.freeze_after_collections():
        gc.collect(1)
        assert gc.get_freeze_count() == 0
        gc.collect()
        assert (gc.get_freeze_count() > 0) is aside
        gone = drop(kept)
        del kept
        gc.collect()
        assert (gone() is not None) is aside
        collector.note_released(UNFREEZE_EVENTS)
        gc.collect()
        assert gone() is None


def test_nothing_is_looked_through_if_nothing_was_set_aside() -> None:
    gc.freeze()  # as the server does when it starts
    Collector().note_released(UNFREEZE_EVENTS)
    assert gc.get_freeze_count() > 0
