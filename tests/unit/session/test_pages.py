"""A `PagedDict` answers as a dict does, however many of its values are packed, and wherever its pages lie."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal.session import pages
from universal.session.entries import Entries, Entry, NoteEntry
from universal.session.pages import stored_page
from universal.session.value_codec import ENTRIES


def id_of(number: int) -> str:
    return f"msg_{number:04}"


def note(number: int, text: str = "") -> NoteEntry:
    return NoteEntry(id_of(number), 1_000 + number, text or f"note {number}")


def entries_of(count: int, *, held: int = 2, page_size: int = 3) -> Entries:
    entries = Entries((id_of(number), note(number)) for number in range(count))
    assert not entries.pack(ENTRIES, loose_count=held, page_size=page_size)
    return entries


class Shelf:
    """A store of pages that counts how often one is read."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.reads: list[int] = []

    def read(self, number: int, checksum: int) -> bytes:
        self.reads.append(number)
        assert zlib.crc32(self.bodies[number]) == checksum
        return self.bodies[number]

    def take(self, entries: Entries) -> Entries:
        """The same entries with all pages on the shelf."""
        for number, page in enumerate(entries.pages, 1):
            page.number = number
            self.bodies[number] = page.bytes()
        held = ((entry.id, entry) for entry in entries.loose_values())
        return Entries(held, [stored_page(ENTRIES, page.ref(), self.read) for page in entries.pages])


ACTIONS: dict[str, Callable[[dict[str, Entry] | Entries, int], object]] = {
    "get": lambda values, number: values.get(id_of(number)),
    "has": lambda values, number: id_of(number) in values,
    "set": lambda values, number: values.__setitem__(id_of(number), note(number, "again")),
    "delete": lambda values, number: values.pop(id_of(number), None),
    "move to the end": lambda values, number: (values.pop(id_of(number), None), values.__setitem__(id_of(number), note(number))),
    "pack": lambda values, number: (
        values.pack(ENTRIES, loose_count=number % 4, page_size=1 + number % 3) if isinstance(values, Entries) else None
    ),
    "copy": lambda values, number: values.copy() == values,
    "length": lambda values, number: len(values),
    "newest": lambda values, number: list(islice(reversed(values), number)),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(ACTIONS)), st.integers(0, 14)), max_size=30))
def test_pages_answer_as_a_dict_does(actions: list[tuple[str, int]]) -> None:
    plain: dict[str, Entry] = {id_of(number): note(number) for number in range(10)}
    paged = Entries(plain)
    for name, number in actions:
        answers = [ACTIONS[name](values, number) for values in (plain, paged)]
        assert answers[0] == answers[1] or name == "pack"
        assert list(paged.items()) == list(plain.items())
        assert list(reversed(paged.values())) == list(reversed(plain.values()))
        assert (len(paged), list(paged)) == (len(plain), list(plain))


def test_a_copy_does_not_follow_the_original() -> None:
    entries = entries_of(10)
    entries[id_of(0)] = note(0, "open")
    copied = entries.copy()
    entries[id_of(1)] = note(1, "later")
    entries[id_of(4)] = note(4, "later")
    del entries[id_of(9)]
    assert copied.peek(id_of(1)) == note(1)
    assert copied.peek(id_of(4)) == note(4)
    assert id_of(9) in copied
    assert not copied.pack(ENTRIES, loose_count=2, page_size=3)
    assert copied.peek(id_of(0)) == note(0, "open")


def test_both_directions_from_an_id() -> None:
    entries = entries_of(10)
    for number in range(10):
        newer, older = [id_of(n) for n in range(number, 10)], [id_of(n) for n in range(number, -1, -1)]
        assert list(entries.ids_since(id_of(number))) == [entry.id for entry in entries.since(id_of(number))] == newer
        assert list(entries.ids_until(id_of(number))) == [entry.id for entry in entries.until(id_of(number))] == older
    assert not list(entries.ids_since("other")) and not list(entries.until("other"))


def test_first_of_is_the_oldest() -> None:
    entries = entries_of(10)
    assert entries.first_of([id_of(9), id_of(5), id_of(4), "other"]) == id_of(4)
    assert entries.first_of([id_of(9), id_of(8)]) == id_of(8)
    assert entries.first_of(["other"]) is None


def test_ids_that_do_not_ascend_are_found() -> None:
    numbers = [5, 1, 9, 3, 7, 0, 8, 2]
    entries = Entries((id_of(number), note(number)) for number in numbers)
    entries.pack(ENTRIES, loose_count=1, page_size=2)
    assert list(entries) == [id_of(number) for number in numbers]
    assert [entries.peek(id_of(number)) for number in range(10)] == [note(n) if n in numbers else None for n in range(10)]


def test_only_pages_that_are_asked_for_are_read() -> None:
    shelf = Shelf()
    entries = shelf.take(entries_of(30))
    assert len(entries) == 30
    assert [entry.id for entry in islice(reversed(entries.values()), 2)] == [id_of(29), id_of(28)]
    assert id_of(99) not in entries
    entries[id_of(30)] = note(30)
    assert shelf.reads == []
    assert entries.peek(id_of(4)) == note(4)
    assert set(shelf.reads) == {2}
    assert [page.number for page in entries.pages_near(id_of(4), 3, is_back=True)] == [2, 1]
    assert [page.number for page in entries.pages_near(None, 5, is_back=True)] == [9]


def test_a_page_is_packed_again_only_if_it_was_opened() -> None:
    entries = entries_of(10)
    for number, page in enumerate(entries.pages, 1):
        page.number = number
    entries.peek(id_of(0))
    assert entries.get(id_of(0)) == note(0)
    entries[id_of(4)] = note(4, "changed")
    entries.pack(ENTRIES)
    assert [page.number for page in entries.pages] == [1, 0]


def test_packing_goes_page_by_page() -> None:
    entries = Entries((id_of(number), note(number)) for number in range(8))
    assert entries.pack(ENTRIES, loose_count=2, page_size=3, most=1)
    assert [page.size for page in entries.pages] == [3]
    assert not entries.pack(ENTRIES, loose_count=2, page_size=3, most=1)
    assert [page.size for page in entries.pages] == [3, 3]


def test_large_values_make_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_CHARS", 100)
    entries = Entries((id_of(number), note(number, "x" * 60)) for number in range(6))
    entries.pack(ENTRIES, loose_count=0, page_size=6)
    assert [page.size for page in entries.pages] == [1] * 6


def test_an_unwritable_page_stays_as_it_was() -> None:
    entries = Entries((id_of(number), note(number)) for number in range(6))
    entries[id_of(4)] = replace(note(4), metadata={"no": object()})
    with pytest.raises(TypeError):
        entries.pack(ENTRIES, loose_count=0, page_size=3)
    assert list(entries) == [id_of(number) for number in range(6)]
    assert [page.size for page in entries.pages] == [3]


def test_pages_that_are_lost_are_mended_from_the_same_values() -> None:
    shelf = Shelf()
    entries = shelf.take(entries_of(12))
    entries[id_of(4)] = note(4, "open")
    del entries[id_of(3)]
    whole = entries_of(12, held=1, page_size=5)
    whole[id_of(4)] = note(4, "open")
    del whole[id_of(3)]
    shelf.bodies.clear()
    entries.mend(whole, ENTRIES)
    assert list(entries.items()) == list(whole.items())
    del whole[id_of(0)]
    with pytest.raises(ValueError, match="not the same"):
        entries.mend(whole, ENTRIES)


def test_a_page_lets_its_bytes_go_when_a_store_has_them() -> None:
    shelf = Shelf()
    entries = entries_of(10)
    shelf.take(entries)
    for page in entries.pages:
        page.release(shelf.read)
    assert [page.stored for page in entries.pages] == [None, None]
    assert [entry.id for entry in entries.values()] == [id_of(number) for number in range(10)]
    assert shelf.reads == [1, 2]
