"""Ordered values by id: the newest as objects, older ones packed in pages. Pure but for `ReadPage`.

Pages may lie in a store:

    page (in the store)  page (in memory)  ...  page  |  held (objects)

A `PagedDict` is a dict to its users; messages (`universal.session.messages`) and entries of the timeline
(`universal.session.entries`) are kept in one. Its costs differ from a dict's: `values`, `items` and `peek` unpack the
pages that they pass, for reading only. Where values can be changed, `[]` and `get` open the page, so that `pack` writes it
again. Whether a value is packed changes no answer.

A packed page is one run of bytes: the ids and times of its values, then the values. What is known of each page without these
bytes is small (`PageRef`): how many values it has, and between which ids and times they lie.
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, MutableMapping, Sequence, ValuesView
from dataclasses import KW_ONLY, dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeAlias, TypeVar

if TYPE_CHECKING:
    from universal.session.value_codec import ValuePacker

T = TypeVar("T")

PAGE_CHARS = 2**18
"""A page with this much JSON text, in characters, takes no further value."""
UNPACKED_LIMIT = 8
"""Maximum pages that stay unpacked for readers that go through values one by one."""
LENGTH = struct.Struct(">I")
"""The length of a page's index, which stands before it."""

KnownBy = frozenset[str]
ReadPage: TypeAlias = Callable[[int, int], bytes]
"""Number and checksum of a page in a store -> its bytes. It may block. It raises if there are no such bytes."""


@dataclass(frozen=True, slots=True)
class PageRef:
    """The entry for a page in a checkpoint's head.

    count          its values
    low, high      no id of it is less or greater
    low_ms ...     no time of it is less or greater
    known          runs of messages that the same agents know: their number, the agents
    """

    number: int
    checksum: int
    count: int
    low: str
    high: str
    low_ms: int
    high_ms: int
    known: tuple[tuple[int, tuple[str, ...]], ...] = ()


@dataclass(slots=True, eq=False)
class Page(Generic[T]):
    """A run of values. Packed: `stored` has its bytes, or `read` gets them. Open: `values`.

    A packed page is never changed: another takes its place. So copies of a `PagedDict` share it.

    number  names the page in a checkpoint; 0 as long as it was not stored as it is
    known   who knows each message; empty for other values
    """

    packer: ValuePacker[T]
    _: KW_ONLY
    size: int
    limits: tuple[str, str, int, int]
    known: Sequence[KnownBy] = ()
    number: int = 0
    checksum: int = 0
    stored: bytes | None = None
    values: dict[str, T] | None = None
    read: ReadPage | None = None
    _index: tuple[tuple[str, ...], Sequence[int]] | None = None

    def ref(self) -> PageRef:
        """The entry for this page in a checkpoint's head."""
        known = tuple((len(list(run)), tuple(sorted(agents))) for agents, run in groupby(self.known))
        return PageRef(self.number, self.checksum, self.size, *self.limits, known)

    def release(self, read: ReadPage) -> None:
        """Drop the page's bytes from memory, because a store has them."""
        if self.stored is not None:
            self.read, self.stored = read, None

    def bytes(self) -> bytes:
        """The page's bytes as stored. Blocks if they lie in a store; raises what the store raises."""
        if self.stored is not None:
            return self.stored
        assert self.read is not None
        return self.read(self.number, self.checksum)

    @property
    def ids(self) -> Sequence[str]:
        """Ids of its values, in order."""
        return self._read_index()[0] if self.values is None else tuple(self.values)

    @property
    def times(self) -> Sequence[int]:
        """The creation times of a packed page's values (epoch ms)."""
        return self._read_index()[1]

    def _read_index(self) -> tuple[tuple[str, ...], Sequence[int]]:
        if self._index is None:
            self._note_index(self.bytes())
        assert self._index is not None
        return self._index

    def _note_index(self, stored: bytes) -> int:
        """Keep the page's ids and times, which are small, and return where the values begin."""
        end = LENGTH.size + LENGTH.unpack_from(stored)[0]
        if self._index is None:
            ids, times = json.loads(stored[LENGTH.size : end])
            self._index = tuple(ids), array("q", times)
        return end

    def unpack(self) -> dict[str, T]:
        """The page's values. Those of a packed page must not be changed. Blocks if the page lies in a store."""
        if self.values is not None:
            return self.values
        stored = self.bytes()
        values = self.packer.unpack(stored[self._note_index(stored) :])
        return dict(zip(self.ids, values, strict=True))

    def open(self, values: dict[str, T]) -> Page[T]:
        """The same page with its values as objects, which may be changed."""
        return Page(self.packer, size=self.size, limits=self.limits, known=self.known, checksum=self.checksum, values=values)

    def with_known(self, known: Sequence[KnownBy]) -> Page[T]:
        """The same packed page with other `known`, which its bytes do not contain."""
        fields: dict[str, Any] = {"size": self.size, "limits": self.limits, "number": self.number, "checksum": self.checksum}
        page = Page(self.packer, known=known, stored=self.stored, read=self.read, **fields)
        page._index = self._index
        return page

    def has(self, id_: str) -> bool:
        """Whether the page has a value with this id."""
        if self.values is not None:
            return id_ in self.values
        low, high, _, _ = self.limits
        return low <= id_ <= high and id_ in self.ids


def stored_page(packer: ValuePacker[T], ref: PageRef, read: ReadPage) -> Page[T]:
    """A page that lies in a store."""
    known = tuple(chain.from_iterable([share(frozenset(agents))] * count for count, agents in ref.known))
    limits = (ref.low, ref.high, ref.low_ms, ref.high_ms)
    return Page(packer, size=ref.count, limits=limits, known=known, number=ref.number, checksum=ref.checksum, read=read)


def packed_page(
    packer: ValuePacker[T], texts: Sequence[str], ids: Sequence[str], times: Sequence[int], known: Sequence[KnownBy]
) -> Page[T]:
    """A page of values that were encoded."""
    index = json.dumps([ids, times], separators=(",", ":")).encode()
    stored = LENGTH.pack(len(index)) + index + packer.pack(texts)
    limits = (min(ids), max(ids), min(times), max(times))
    return Page(packer, size=len(ids), limits=limits, known=known, checksum=zlib.crc32(stored), stored=stored)


class PagedDict(MutableMapping[str, T]):
    """A dict of values by id, in order; see above. Subclasses say how many values are held, and how many a page has."""

    __slots__ = ("_highs", "_opened", "_paged", "_pages", "_unpacked", "loose")

    LOOSE: ClassVar[int]
    """Newest values that are never packed: what most clients ask for, and some more."""
    PAGE_SIZE: ClassVar[int]
    """Most values of a page."""
    IS_FROZEN: ClassVar[bool]
    """Whether no value can be changed: then `[]` and `get` open no page."""

    def __init__(self, loose: Mapping[str, T] | Iterable[tuple[str, T]] = (), pages: Iterable[Page[T]] = ()) -> None:
        self.loose: dict[str, T] = dict(loose)
        self._pages: list[Page[T]] = list(pages)
        self._opened: list[Page[T]] = []
        self._unpacked: OrderedDict[Page[T], dict[str, T]] = OrderedDict()
        self._paged = sum(page.size for page in self._pages)
        self._highs: list[str] | None = None
        self._note_order()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of which {self._paged} in {len(self._pages)} pages)"

    def _time_of(self, value: T) -> int:
        """The creation time of a value (epoch ms)."""
        raise NotImplementedError

    def _known_by(self, value: T) -> KnownBy | None:
        """The agents that know a value; None if that is not tracked."""
        return None

    def _complete(self, page: Page[T], values: dict[str, T]) -> dict[str, T]:
        """The unpacked values of a page, completed with what its bytes do not contain."""
        return values

    def _copy_loose(self) -> dict[str, T]:
        return dict(self.loose)

    # --- as a dict -----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._paged + len(self.loose)

    def __contains__(self, id_: object) -> bool:
        return id_ in self.loose or (isinstance(id_, str) and self._page_of(id_) is not None)

    def __iter__(self) -> Iterator[str]:
        return chain(chain.from_iterable(page.ids for page in self._pages), self.loose)

    def __reversed__(self) -> Iterator[str]:
        return chain(reversed(self.loose), chain.from_iterable(reversed(page.ids) for page in reversed(self._pages)))

    def __getitem__(self, id_: str) -> T:
        if id_ in self.loose:
            return self.loose[id_]
        page = self._page_of(id_) if self._pages else None
        if page is None:
            raise KeyError(id_)
        return (self._read(page) if self.IS_FROZEN else self._open(page))[id_]

    def __setitem__(self, id_: str, value: T) -> None:
        page = None if id_ in self.loose or not self._pages else self._page_of(id_)
        (self.loose if page is None else self._open(page))[id_] = value

    def __delitem__(self, id_: str) -> None:
        if id_ in self.loose:
            del self.loose[id_]
            return
        page = self._page_of(id_)
        if page is None:
            raise KeyError(id_)
        del self._open(page)[id_]
        self._paged -= 1

    def values(self) -> PagedValues[T]:
        """All values, to be read only."""
        return PagedValues(self)

    def items(self) -> PagedItems[T]:
        """All ids and values, to be read only."""
        return PagedItems(self)

    # --- reading -------------------------------------------------------------------------------------------

    def peek(self, id_: str) -> T | None:
        """The value with this id, for reading only; None if there is none."""
        if id_ in self.loose:
            return self.loose[id_]
        page = self._page_of(id_) if self._pages else None
        return None if page is None else self._read(page)[id_]

    @property
    def newest(self) -> T | None:
        """The newest value, to be read only; None if there is none."""
        if self.loose:
            return self.loose[next(reversed(self.loose))]
        return next((value for _, value in self.newest_first()), None)

    def loose_values(self) -> Iterable[T]:
        """The newest values: those that are not in pages."""
        return self.loose.values()

    def oldest_first(self) -> Iterator[tuple[str, T]]:
        """All values, to be read only."""
        return chain(chain.from_iterable(self._read(page).items() for page in self._pages), self.loose.items())

    def newest_first(self) -> Iterator[tuple[str, T]]:
        """All values newest first, to be read only."""
        pages = (reversed(self._read(page).items()) for page in reversed(self._pages))
        return chain(reversed(self.loose.items()), chain.from_iterable(pages))

    def since(self, id_: str) -> Iterator[T]:
        """The values from this one on; none if there is no such id."""
        return (value for _, value in _from(id_, self._runs_since(id_, self._items_of)))

    def until(self, id_: str) -> Iterator[T]:
        """The values from this one back to the first, newest first; none if there is no such id."""
        return (value for _, value in _from(id_, map(_reverse, self._runs_until(id_, self._items_of))))

    def ids_since(self, id_: str) -> Iterator[str]:
        """The ids from this one on; nothing if there is no such. No value is unpacked."""
        return (id_ for id_, _ in _from(id_, self._runs_since(id_, self._keys_of)))

    def ids_until(self, id_: str) -> Iterator[str]:
        """The ids from this one back to the first; nothing if there is no such. No value is unpacked."""
        return (id_ for id_, _ in _from(id_, map(_reverse, self._runs_until(id_, self._keys_of))))

    def first_of(self, ids: Iterable[str]) -> str | None:
        """Which of these ids comes first; None if there is none of them."""
        names = set(ids)
        paged = {page for id_ in names - self.loose.keys() if (page := self._page_of(id_)) is not None}
        runs: Iterable[Iterable[str]] = (page.ids for page in self._pages if page in paged) if paged else (self.loose,)
        return next((id_ for id_ in chain.from_iterable(runs) if id_ in names), None)

    def _items_of(self, page: Page[T] | None) -> Sequence[tuple[str, Any]]:
        return list((self.loose if page is None else self._read(page)).items())

    def _keys_of(self, page: Page[T] | None) -> Sequence[tuple[str, Any]]:
        return [(id_, None) for id_ in (self.loose if page is None else page.ids)]

    def _runs_since(self, id_: str, run_of: Callable[[Page[T] | None], Sequence[tuple[str, Any]]]) -> Iterator[Sequence[Any]]:
        """The runs from an id's page on, then that of the held values. Each is read lazily."""
        if id_ in self.loose:
            return map(run_of, (None,))
        page = self._page_of(id_)
        return map(run_of, () if page is None else (*self._pages[self._pages.index(page) :], None))

    def _runs_until(self, id_: str, run_of: Callable[[Page[T] | None], Sequence[tuple[str, Any]]]) -> Iterator[Sequence[Any]]:
        """The runs from an id's page back to the first page. Begins with the held values if the id is there."""
        if id_ in self.loose:
            return map(run_of, (None, *reversed(self._pages)))
        page = self._page_of(id_)
        return map(run_of, () if page is None else reversed(self._pages[: self._pages.index(page) + 1]))

    # --- pages ---------------------------------------------------------------------------------------------

    @property
    def pages(self) -> Sequence[Page[T]]:
        """The pages, oldest first; some may be open."""
        return self._pages

    def pages_near(self, id_: str | None, count: int, *, is_back: bool) -> list[Page[T]]:
        """The packed pages with `count` values from this one on, as far as their refs tell. `is_back`: back from it.

        In: `id_`, None for the first value, or with `is_back` for the last one.
        """
        if id_ is not None and id_ in self.loose:
            remaining, at = (count - len(self.loose), len(self._pages) - 1) if is_back else (0, 0)
        elif id_ is not None:
            page = self._page_of(id_)
            remaining, at = (0, 0) if page is None else (count + page.size, self._pages.index(page))
        else:
            remaining, at = (count - len(self.loose), len(self._pages) - 1) if is_back else (count, 0)
        pages: list[Page[T]] = []
        while remaining > 0 and 0 <= at < len(self._pages):
            pages.append(self._pages[at])
            remaining -= self._pages[at].size
            at += -1 if is_back else 1
        return [page for page in pages if page.values is None]

    def needs(self, page: Page[T]) -> bool:
        """Whether reading this page's values would unpack it."""
        return page.values is None and page not in self._unpacked

    def keep(self, page: Page[T], values: dict[str, T]) -> None:
        """Keep values that were unpacked elsewhere for the next readers."""
        self._unpacked[page] = self._complete(page, values)
        self._unpacked.move_to_end(page)
        if len(self._unpacked) > UNPACKED_LIMIT:
            self._unpacked.popitem(last=False)

    def _page_of(self, id_: str) -> Page[T] | None:
        if self._highs is None:
            return next((page for page in self._pages if page.has(id_)), None)
        at = bisect_left(self._highs, id_)
        return self._pages[at] if at < len(self._pages) and self._pages[at].has(id_) else None

    def _note_order(self) -> None:
        """Note whether ids ascend, as in most sessions: then a page is found by its limits."""
        highs = [page.limits[1] for page in self._pages]
        is_sorted = all(high < page.limits[0] for high, page in zip(highs, self._pages[1:], strict=False))
        self._highs = highs if is_sorted else None

    def _read(self, page: Page[T]) -> dict[str, T]:
        if page.values is not None:
            return page.values
        values = self._unpacked.get(page)
        if values is None:
            self.keep(page, page.unpack())
            return self._unpacked[page]
        self._unpacked.move_to_end(page)
        return values

    def _open(self, page: Page[T]) -> dict[str, T]:
        """The values of a page, which the caller may change."""
        if page.values is None:
            opened = page.open(self._read(page))
            self._unpacked.pop(page, None)
            self._pages[self._pages.index(page)] = opened
            self._opened.append(opened)
            page = opened
        assert page.values is not None
        return page.values

    def copy(self) -> Self:
        """A copy of the values as they are now, for later readers. Packed pages are shared."""
        copied = type(self)()
        copied._pages = [page if page.values is None else page.open(dict(page.values)) for page in self._pages]
        copied._opened = [page for page in copied._pages if page.values is not None] if self._opened else []
        copied.loose, copied._paged, copied._highs = self._copy_loose(), self._paged, self._highs
        return copied

    def pack(
        self, packer: ValuePacker[T], *, loose_count: int | None = None, page_size: int | None = None, most: int | None = None
    ) -> bool:
        """Pack open pages, and old values once they fill a page. Call it only while no turn runs.

        In: `held`, `page_size`, those of the class if None; `most`, so many pages are packed at once.
        Out: whether there is more to pack.
        Raises TypeError or ValueError if a value cannot be written; it and what comes after it stay as they are.
        """
        loose_count, page_size = self.LOOSE if loose_count is None else loose_count, page_size or self.PAGE_SIZE
        packed = 0
        while self._opened:
            if packed == most:
                return True
            packed += 1
            self._close(packer, self._opened[-1], page_size)
        while len(self.loose) - loose_count >= page_size:
            if packed == most:
                return True
            packed += 1
            run = dict(islice(self.loose.items(), page_size))
            pages = self._pack(packer, run, page_size)
            self._pages += pages
            self._paged += len(run)
            self._note_new(pages)
            for id_ in run:
                del self.loose[id_]
        return False

    def mend(self, whole: PagedDict[T], packer: ValuePacker[T]) -> None:
        """Remake the pages that lie in a store from a dict of the same values. Raises ValueError if their numbers differ."""
        if len(self) != len(whole):
            raise ValueError(f"{len(whole)} values are not the same as {len(self)}")
        values, pages = iter(whole.items()), list[Page[T]]()
        for page in self._pages:
            run = dict(islice(values, page.size if page.values is None else len(page.values)))
            pages += [page] if page.stored is not None or page.values is not None else self._pack(packer, run, len(run))
        self._pages = pages
        self._unpacked.clear()
        self._note_order()

    def _close(self, packer: ValuePacker[T], opened: Page[T], page_size: int) -> None:
        assert opened.values is not None
        pages = self._pack(packer, opened.values, page_size)
        at = self._pages.index(opened)
        self._pages[at : at + 1] = pages
        self._opened.remove(opened)
        self._note_order()

    def _note_new(self, pages: Sequence[Page[T]]) -> None:
        """Note pages that were added behind the others."""
        for page in pages:
            if self._highs is not None and self._highs and page.limits[0] <= self._highs[-1]:
                self._highs = None
            if self._highs is not None:
                self._highs.append(page.limits[1])

    def _pack(self, packer: ValuePacker[T], values: Mapping[str, T], page_size: int) -> list[Page[T]]:
        pages: list[Page[T]] = []
        texts: list[str] = []
        run: dict[str, T] = {}
        size = 0

        def close() -> None:
            known = tuple(share(one) for value in run.values() if (one := self._known_by(value)) is not None)
            pages.append(packed_page(packer, texts, list(run), [self._time_of(value) for value in run.values()], known))

        for id_, value in values.items():
            texts.append(packer.encode(value))
            run[id_] = value
            size += len(texts[-1])
            if len(run) >= page_size or size >= PAGE_CHARS:
                close()
                texts, run, size = [], {}, 0
        if run:
            close()
        return pages


def _from(id_: str, runs: Iterable[Iterable[tuple[str, Any]]]) -> Iterator[tuple[str, Any]]:
    """The pairs from the one with this id on."""
    is_found = False
    for key, value in chain.from_iterable(runs):
        is_found = is_found or key == id_
        if is_found:
            yield key, value


def _reverse(run: Sequence[Any]) -> Iterable[Any]:
    return reversed(run)


_SHARED: dict[KnownBy, KnownBy] = {}
_SHARED_MOST = 256


def share(known: KnownBy) -> KnownBy:
    """One shared object for all equal sets: many messages have few different ones."""
    if len(_SHARED) >= _SHARED_MOST:
        _SHARED.clear()
    return _SHARED.setdefault(known, known)


class PagedValues(ValuesView[T]):
    """All values, in both directions."""

    _mapping: PagedDict[T]

    def __iter__(self) -> Iterator[T]:
        return map(itemgetter(1), self._mapping.oldest_first())

    def __reversed__(self) -> Iterator[T]:
        return map(itemgetter(1), self._mapping.newest_first())


class PagedItems(ItemsView[str, T]):
    """All ids and values, in both directions."""

    _mapping: PagedDict[T]

    def __iter__(self) -> Iterator[tuple[str, T]]:
        return self._mapping.oldest_first()

    def __reversed__(self) -> Iterator[tuple[str, T]]:
        return self._mapping.newest_first()
