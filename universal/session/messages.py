"""The messages of a session by id, in order, and which agents know them. Pure.

Old messages are packed (`universal.session.pages`). Who knows a message is kept beside the packed bytes: it changes often, and is
asked of all messages when an agent is given a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from typing import ClassVar

from universal.session.pages import KnownBy, Page, PagedDict, share
from universal.session.values import Part, Reasoning, StepInfo, Text, UserInfo


@dataclass(slots=True)
class Message:
    """One message: its `info`, its parts by id in order, and the reducer's notes.

    known_by    agents that have this message in their own conversation
    streaming   pieces so far of parts that still grow
    text_parts  index of a part of the agent's item -> id of the part
    open_calls  calls without a result
    is_said     the model's output is complete; only results of its calls are missing
    is_over     nothing more comes
    """

    info: UserInfo | StepInfo
    parts: dict[str, Part] = field(default_factory=dict[str, Part])
    known_by: set[str] = field(default_factory=set[str])
    streaming: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    text_parts: dict[int, str] = field(default_factory=dict[int, str])
    open_calls: set[str] = field(default_factory=set[str])
    had_calls: bool = False
    is_said: bool = False
    is_over: bool = False
    finish: str | None = None

    @property
    def is_user(self) -> bool:
        return isinstance(self.info, UserInfo)

    def part(self, part_id: str, count: int | None = None) -> Part:
        """A part as it is now, with the text that has streamed, or with its first `count` pieces. Raises KeyError."""
        part, pieces = self.parts[part_id], self.streaming.get(part_id)
        if pieces is None:
            return part
        words = "".join(pieces[:count])
        if isinstance(part, Text):
            return Text(part.id, words, part.start_ms, part.end_ms, part.synthetic, part.ignored, part.metadata, part.extra)
        if isinstance(part, Reasoning):
            return Reasoning(part.id, words, part.start_ms, part.end_ms, part.metadata, part.extra)
        return part

    def all_parts(self) -> Iterable[Part]:
        """All parts as they are now, in order."""
        return map(self.part, self.parts) if self.streaming else self.parts.values()

    def copy(self) -> Message:
        """A copy of the message as it is now, for a later reader."""
        streaming = {part_id: list(pieces) for part_id, pieces in self.streaming.items()}
        return replace(self, parts=dict(self.parts), streaming=streaming)

    def text(self) -> str:
        """The text of the message, without thinking, tools and synthetic texts."""
        return "\n".join(part.text for part in self.all_parts() if isinstance(part, Text) and not part.synthetic)


class Messages(PagedDict[Message]):
    """A dict of messages. A message that `[]` or `get` gives may be changed; one of `peek`, `values` or `items` may not."""

    __slots__ = ()

    LOOSE: ClassVar[int] = 128
    PAGE_SIZE: ClassVar[int] = 64
    IS_FROZEN: ClassVar[bool] = False

    @classmethod
    def of(cls, messages: Iterable[Message], pages: Iterable[Page[Message]] = ()) -> Messages:
        """These messages, those of pages before the others."""
        return cls(((message.info.id, message) for message in messages), pages)

    def _time_of(self, value: Message) -> int:
        return value.info.created_ms

    def _known_by(self, value: Message) -> KnownBy:
        return frozenset(value.known_by)

    def _complete(self, page: Page[Message], values: dict[str, Message]) -> dict[str, Message]:
        for message, agents in zip(values.values(), page.known, strict=True):
            message.known_by = set(agents)
        return values

    def _copy_loose(self) -> dict[str, Message]:
        return {id_: message if message.is_over else message.copy() for id_, message in self.loose.items()}

    def _place(self, id_: str) -> Page[Message] | None:
        return None if id_ in self.loose else self._page_of(id_)

    # --- times ---------------------------------------------------------------------------------------------

    def created_ms(self, id_: str) -> int:
        """The creation time of a message (epoch ms). Raises KeyError."""
        page = self._place(id_)
        if page is None:
            return self.loose[id_].info.created_ms
        return page.values[id_].info.created_ms if page.values is not None else page.times[page.ids.index(id_)]

    def times(self) -> Iterator[tuple[str, int]]:
        """Ids and times of all messages, in order."""
        for page in self._pages:
            yield from self._times_of(page)
        yield from ((id_, message.info.created_ms) for id_, message in self.loose.items())

    def _times_of(self, page: Page[Message]) -> Iterable[tuple[str, int]]:
        if page.values is not None:
            return ((id_, message.info.created_ms) for id_, message in page.values.items())
        return zip(page.ids, page.times, strict=True)

    # --- who knows what ------------------------------------------------------------------------------------

    def known_by(self, id_: str) -> Set[str]:
        """The agents that have this message in their own conversation. Raises KeyError."""
        page = self._place(id_)
        if page is None:
            return self.loose[id_].known_by
        return page.values[id_].known_by if page.values is not None else page.known[page.ids.index(id_)]

    def unknown_to(self, agent: str) -> list[str]:
        """Ids of the messages that an agent does not know. Pages that it knows are not looked at."""
        ids: list[str] = []
        for page in self._pages:
            if page.values is not None:
                ids += (id_ for id_, message in page.values.items() if agent not in message.known_by)
            elif not all(agent in agents for agents in page.known):
                ids += (id_ for id_, agents in zip(page.ids, page.known, strict=True) if agent not in agents)
        for id_, message in self.loose.items():
            if agent not in message.known_by:
                ids.append(id_)
        return ids

    def learn(self, id_: str, agent: str) -> None:
        """Note that an agent has this message now. Does nothing if there is no such message."""
        if id_ in self.loose:
            self.loose[id_].known_by = {*self.loose[id_].known_by, agent}
        elif id_ in self and agent not in self.known_by(id_):
            self._set_known({id_}, self._place(id_), lambda agents: agents | {agent})

    def forget(self, agent: str, since_ms: int | None = None) -> None:
        """Note that an agent has lost all messages, or those made since a given time."""

        def without(agents: KnownBy) -> KnownBy:
            return agents - {agent}

        for page in list(self._pages):
            if page.values is not None or any(agent in agents for agents in page.known):
                _, _, low_ms, high_ms = page.limits
                if since_ms is None or low_ms >= since_ms:
                    self._set_known(None, page, without)
                elif page.values is not None or high_ms >= since_ms:
                    self._set_known({id_ for id_, at_ms in self._times_of(page) if at_ms >= since_ms}, page, without)
        loose = {id_ for id_, message in self.loose.items() if since_ms is None or message.info.created_ms >= since_ms}
        self._set_known(loose, None, without)

    def _set_known(self, ids: set[str] | None, page: Page[Message] | None, change: Callable[[KnownBy], KnownBy]) -> None:
        """Change `known_by` of messages of a page, or of those in no page. `ids` None: all of them."""
        if page is None or page.values is not None:
            messages = self.loose if page is None else page.values
            assert messages is not None
            for id_ in messages if ids is None else ids:
                messages[id_].known_by = set(change(frozenset(messages[id_].known_by)))
            return
        agent_sets = [
            share(change(agents)) if ids is None or page.ids[at] in ids else agents for at, agents in enumerate(page.known)
        ]
        changed = page.with_known(agent_sets)
        self._pages[self._pages.index(page)] = changed
        if (messages := self._unpacked.pop(page, None)) is not None:
            self.keep(changed, messages)
