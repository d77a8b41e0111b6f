"""The messages of a session by id, in order: the newest as objects, older ones packed in pages. Pure.

    pages (packed, a few KB for many messages each)  ...  page  |  held (objects)

To its users it is a dict. What it costs differs: a look at ids, times or `known_by` unpacks nothing; `values`, `items` and
`peek` unpack the pages they pass, to be read only; `[]` and `get` open the page for good, since the caller may change what
it gets. `pack` closes pages that were opened and packs what became old. Whether a message is packed changes no answer.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, MutableMapping, Sequence, Set, ValuesView
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from universal.session.model import Message

T = TypeVar("T")

HELD = 128
"""Newest messages that are never packed: what most clients ask for (100), and some more."""
PAGE_MESSAGES = 64
"""Most messages of a page."""
PAGE_CHARS = 2**18
"""A page with more JSON text than this takes no further message."""
UNPACKED = 4
"""Pages that are kept unpacked for readers that go through messages one by one."""

KnownBy = frozenset[str]


class Packer(Protocol):
    """Turns messages into bytes and back. `known_by` is not part of the bytes: the page has it."""

    def encode(self, message: Message) -> str:
        """One message as text. Raises ValueError for a value that it cannot write."""
        ...

    def pack(self, texts: Sequence[str]) -> bytes:
        """Encoded messages as one body."""
        ...

    def unpack(self, body: bytes) -> list[Message]:
        """The messages of a body."""
        ...


class Page:
    """A run of messages. Packed: `body`, with ids, times and `known_by` beside it. Open: `messages`.

    number      names the page in a checkpoint; 0 for one that was never stored
    is_changed  it is not as it was stored
    """

    __slots__ = ("_created", "_ids", "_known", "_packer", "body", "is_changed", "messages", "number")

    def __init__(
        self, packer: Packer, ids: Sequence[str], created: Sequence[int], known: Sequence[KnownBy], body: bytes, number: int = 0
    ) -> None:
        self.number = number
        self.is_changed = number == 0
        self.body: bytes | None = body
        self.messages: dict[str, Message] | None = None
        self._packer = packer
        self._ids = tuple(ids)
        self._created = array("q", created)
        self._known = list(known)

    @property
    def ids(self) -> Sequence[str]:
        """Ids of its messages, in order."""
        return self._ids if self.messages is None else tuple(self.messages)

    @property
    def created_times(self) -> Sequence[int]:
        """When each was made (epoch ms)."""
        return self._created if self.messages is None else [m.info.created_ms for m in self.messages.values()]

    @property
    def known_by(self) -> Sequence[Set[str]]:
        """Which agents know each."""
        return self._known if self.messages is None else [message.known_by for message in self.messages.values()]

    def unpack(self) -> dict[str, Message]:
        """Its messages, to be read only if it is packed."""
        if self.messages is not None:
            return self.messages
        assert self.body is not None
        messages = self._packer.unpack(self.body)
        for message, known in zip(messages, self._known, strict=True):
            message.known_by = set(known)
        return dict(zip(self._ids, messages, strict=True))

    def open(self, messages: dict[str, Message]) -> dict[str, Message]:
        """Keep its messages as objects from now on: they may be changed."""
        if self.messages is None:
            self.messages, self.body, self.is_changed = messages, None, True
        return self.messages

    def copy(self) -> Page:
        """It as it is now."""
        copied = Page(self._packer, self._ids, self._created, self._known, self.body or b"", self.number)
        if self.messages is not None:
            copied.body, copied.messages = None, dict(self.messages)
        return copied

    def set_known(self, id_: str, known: KnownBy) -> None:
        """Another set of agents knows a message of a packed page."""
        self._known[self._ids.index(id_)] = known
        self.is_changed = True


class Messages(MutableMapping[str, "Message"]):
    """A dict of messages; see above."""

    __slots__ = ("_held", "_page_of", "_pages", "_unpacked")

    def __init__(self, messages: Iterable[Message] = (), pages: Iterable[Page] = ()) -> None:
        self._pages = list(pages)
        self._page_of = {id_: page for page in self._pages for id_ in page.ids}
        self._held: dict[str, Message] = {message.info.id: message for message in messages}
        self._unpacked: OrderedDict[Page, dict[str, Message]] = OrderedDict()

    def __repr__(self) -> str:
        return f"Messages({len(self)} of which {len(self._page_of)} in {len(self._pages)} pages)"

    # --- as a dict -----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._page_of) + len(self._held)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._held or id_ in self._page_of

    def __iter__(self) -> Iterator[str]:
        return chain(chain.from_iterable(page.ids for page in self._pages), self._held)

    def __reversed__(self) -> Iterator[str]:
        return chain(reversed(self._held), chain.from_iterable(reversed(page.ids) for page in reversed(self._pages)))

    def __getitem__(self, id_: str) -> Message:
        page = self._page_of.get(id_)
        return self._held[id_] if page is None else self._open(page)[id_]

    def __setitem__(self, id_: str, message: Message) -> None:
        page = self._page_of.get(id_)
        (self._held if page is None else self._open(page))[id_] = message

    def __delitem__(self, id_: str) -> None:
        page = self._page_of.get(id_)
        if page is None:
            del self._held[id_]
        else:
            del self._open(page)[id_]
            del self._page_of[id_]

    @overload
    def get(self, key: str, default: None = None, /) -> Message | None: ...
    @overload
    def get(self, key: str, default: Message | T, /) -> Message | T: ...
    def get(self, key: str, default: object = None, /) -> object:
        """The message, which the caller may change."""
        if key not in self:
            return default
        return self[key]

    def values(self) -> MessageValues:
        """All messages, to be read only."""
        return MessageValues(self)

    def items(self) -> MessageItems:
        """All ids and messages, to be read only."""
        return MessageItems(self)

    # --- reading -------------------------------------------------------------------------------------------

    def peek(self, id_: str) -> Message | None:
        """A message to be read only, None if there is no such."""
        page = self._page_of.get(id_)
        return self._held.get(id_) if page is None else self._read(page)[id_]

    def unpacked_messages(self) -> Iterable[Message]:
        """The newest messages: those that are not in pages."""
        return self._held.values()

    def created_ms(self, id_: str) -> int:
        """When a message was made. Raises KeyError."""
        page = self._page_of.get(id_)
        return self._held[id_].info.created_ms if page is None else page.created_times[page.ids.index(id_)]

    def times(self) -> Iterator[tuple[str, int]]:
        """Ids and times of all messages, in order."""
        for page in self._pages:
            yield from zip(page.ids, page.created_times, strict=True)
        yield from ((id_, message.info.created_ms) for id_, message in self._held.items())

    def since(self, id_: str) -> Iterator[Message]:
        """From this message on; nothing if there is no such."""
        if id_ not in self:
            return
        page, is_found = self._page_of.get(id_), False
        begin = len(self._pages) if page is None else self._pages.index(page)
        for messages in chain(map(self._read, self._pages[begin:]), (self._held,)):
            for message in messages.values():
                is_found = is_found or message.info.id == id_
                if is_found:
                    yield message

    def until(self, id_: str) -> Iterator[Message]:
        """From this message back to the first, newest first; nothing if there is no such."""
        if id_ not in self:
            return
        page, is_found = self._page_of.get(id_), False
        end = len(self._pages) if page is None else self._pages.index(page) + 1
        held = (self._held,) if page is None else ()
        for messages in chain(held, map(self._read, reversed(self._pages[:end]))):
            for message in reversed(messages.values()):
                is_found = is_found or message.info.id == id_
                if is_found:
                    yield message

    def oldest_first(self) -> Iterator[Message]:
        """All messages, to be read only."""
        return chain(chain.from_iterable(self._read(page).values() for page in self._pages), self._held.values())

    def newest_first(self) -> Iterator[Message]:
        """The same from the other end."""
        pages = (reversed(self._read(page).values()) for page in reversed(self._pages))
        return chain(reversed(self._held.values()), chain.from_iterable(pages))

    def _read(self, page: Page) -> dict[str, Message]:
        if page.messages is not None:
            return page.messages
        messages = self._unpacked.get(page)
        if messages is None:
            messages = self._unpacked[page] = page.unpack()
            if len(self._unpacked) > UNPACKED:
                self._unpacked.popitem(last=False)
        else:
            self._unpacked.move_to_end(page)
        return messages

    def _open(self, page: Page) -> dict[str, Message]:
        if page.messages is not None:
            return page.messages
        messages = page.open(self._read(page))
        self._unpacked.pop(page, None)
        return messages

    def copy(self) -> Messages:
        """The same messages as they are now, for somebody who reads them later. Pages that are packed are shared."""
        copied = Messages()
        copied._pages = [page.copy() for page in self._pages]
        copied._page_of = {id_: page for page in copied._pages for id_ in page.ids}
        copied._held = {id_: message if message.is_over else message.copy() for id_, message in self._held.items()}
        return copied

    # --- who knows what ------------------------------------------------------------------------------------

    def known_by(self, id_: str) -> Set[str]:
        """Agents that have this message in their own conversation. Raises KeyError."""
        page = self._page_of.get(id_)
        return self._held[id_].known_by if page is None else page.known_by[page.ids.index(id_)]

    def unknown_to(self, agent: str) -> list[str]:
        """Ids of the messages that an agent does not know."""
        packed = (id_ for page in self._pages for id_, known in zip(page.ids, page.known_by, strict=True) if agent not in known)
        return [*packed, *(id_ for id_, message in self._held.items() if agent not in message.known_by)]

    def learn(self, id_: str, agent: str) -> None:
        """An agent has this message now; nothing if there is no such message."""
        if id_ in self and agent not in self.known_by(id_):
            self._set_known(id_, lambda known: known | {agent})

    def forget(self, agent: str, since_ms: int | None = None) -> None:
        """An agent has lost all messages, or those that were made since then."""
        for id_, created in list(self.times()):
            if (since_ms is None or created >= since_ms) and agent in self.known_by(id_):
                self._set_known(id_, lambda known: known - {agent})

    def _set_known(self, id_: str, change: Callable[[KnownBy], KnownBy]) -> None:
        page = self._page_of.get(id_)
        if page is not None and page.messages is None:
            known = change(frozenset(self.known_by(id_)))
            page.set_known(id_, known)
            if (messages := self._unpacked.get(page)) is not None:
                messages[id_].known_by = set(known)
        else:
            message = self[id_]
            message.known_by = set(change(frozenset(message.known_by)))

    # --- packing -------------------------------------------------------------------------------------------

    @property
    def pages(self) -> Sequence[Page]:
        """The pages, oldest first; some may be open."""
        return self._pages

    def pack(self, packer: Packer, held: int | None = None, page_messages: int | None = None) -> None:
        """Close open pages, and pack old messages once there is a page of them. For a session in which no turn runs.

        In: `held`, `page_messages`, the constants if None.

        Raises TypeError or ValueError if a message cannot be written; nothing has changed then.
        """
        held, page_messages = HELD if held is None else held, page_messages or PAGE_MESSAGES
        pages: list[Page] = []
        for page in self._pages:
            if page.messages is None:
                pages.append(page)
            elif page.messages:
                pages += _pack_pages(packer, list(page.messages.values()), page_messages, page.number)
        count = max(0, len(self._held) - held) // page_messages * page_messages
        pages += _pack_pages(packer, list(islice(self._held.values(), count)), page_messages)
        before, self._pages = set(self._pages), pages
        for page in pages:
            if page not in before:
                self._page_of |= dict.fromkeys(page.ids, page)
        for id_ in list(islice(self._held, count)):
            del self._held[id_]


def _pack_pages(packer: Packer, messages: Sequence[Message], page_messages: int, number: int = 0) -> list[Page]:
    """The pages of these messages; the first one has the number of the page that they were in."""
    pages: list[Page] = []
    texts: list[str] = []
    run: list[Message] = []
    size = 0

    def close() -> None:
        ids, created = [m.info.id for m in run], [m.info.created_ms for m in run]
        page = Page(packer, ids, created, [_intern(frozenset(m.known_by)) for m in run], packer.pack(texts))
        if not pages:
            page.number = number
        pages.append(page)

    for message in messages:
        texts.append(packer.encode(message))
        run.append(message)
        size += len(texts[-1])
        if len(run) >= page_messages or size >= PAGE_CHARS:
            close()
            texts, run, size = [], [], 0
    if run:
        close()
    return pages


_SHARED: dict[KnownBy, KnownBy] = {}
_SHARED_MOST = 256


def _intern(known: KnownBy) -> KnownBy:
    """One object for all equal sets: there are few, of many messages."""
    if len(_SHARED) >= _SHARED_MOST:
        _SHARED.clear()
    return _SHARED.setdefault(known, known)


class MessageValues(ValuesView["Message"]):
    """All messages, in both directions."""

    _mapping: Messages

    def __iter__(self) -> Iterator[Message]:
        return self._mapping.oldest_first()

    def __reversed__(self) -> Iterator[Message]:
        return self._mapping.newest_first()


class MessageItems(ItemsView[str, "Message"]):
    """All ids and messages, in both directions."""

    _mapping: Messages

    def __iter__(self) -> Iterator[tuple[str, Message]]:
        return ((message.info.id, message) for message in self._mapping.oldest_first())

    def __reversed__(self) -> Iterator[tuple[str, Message]]:
        return ((message.info.id, message) for message in self._mapping.newest_first())
