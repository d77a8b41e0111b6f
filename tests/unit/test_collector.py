"""The collector of cycles rests while much is read, and finds what was set aside when it is let go."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from shim.collector import Collector


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = list(gc.callbacks)
    yield
    gc.callbacks[:] = before
    gc.enable()
    gc.unfreeze()


def test_it_rests_until_the_last_is_done_however_that_ends() -> None:
    collector = Collector()
    with pytest.raises(KeyError), collector.rests():
        with collector.rests():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_one_that_is_off_stays_off() -> None:
    collector = Collector()
    gc.disable()
    before = gc.get_freeze_count()
    with collector.rests():
        pass
    assert not gc.isenabled() and gc.get_freeze_count() == before


def test_what_was_read_is_set_aside_and_found_when_it_is_let_go() -> None:
    collector = Collector()
    with collector.rests():
        made = Node()
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is not None
    collector.let_go()
    gc.collect()
    assert gone() is None
    assert gc.get_freeze_count() > 0  # the rest is set aside again
    callbacks = list(gc.callbacks)
    gc.collect()
    assert gc.callbacks == callbacks


def test_nothing_is_to_be_let_go_if_nothing_was_set_aside() -> None:
    collector, before = Collector(), list(gc.callbacks)
    collector.let_go()
    assert gc.callbacks == before
