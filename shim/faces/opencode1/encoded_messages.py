"""The JSON of messages, kept for clients that read a session again: after each turn, in each tab, when a person comes back to it.

An entry depends on immutable values alone, and counts only while a message has these very values. So it is never out of date.
"""

from __future__ import annotations

from collections import OrderedDict
from operator import is_
from typing import NamedTuple

from shim.faces.opencode1 import read
from shim.http import wire_json
from universal.session.model import Message, Part, StepInfo, UserInfo

CACHE_BYTES = 4 * 2**20
"""Maximum bytes of all entries."""


class _Entry(NamedTuple):
    info: UserInfo | StepInfo
    parts: tuple[Part, ...]
    text: bytes

    def is_of(self, message: Message) -> bool:
        """Whether the message has the values of this entry."""
        parts = message.parts
        return self.info is message.info and len(self.parts) == len(parts) and all(map(is_, self.parts, parts.values()))


class EncodedMessages:
    """Encodes messages of all sessions. The least recently used entries are removed."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit = limit_bytes
        self._size = 0
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()

    def encode(self, message: Message, session_id: str) -> bytes:
        """`{info, parts}` as JSON."""
        if message.streaming:  # its texts are not in its parts yet
            return wire_json.dumps(read.message(message, session_id))
        key = (session_id, message.info.id)
        entry = self._entries.get(key)
        if entry is not None and entry.is_of(message):
            self._entries.move_to_end(key)
            return entry.text
        text = wire_json.dumps(read.message(message, session_id))
        self._keep(key, _Entry(message.info, tuple(message.parts.values()), text))
        return text

    def _keep(self, key: tuple[str, str], entry: _Entry) -> None:
        replaced = self._entries.pop(key, None)
        self._size += len(entry.text) - (0 if replaced is None else len(replaced.text))
        self._entries[key] = entry
        while self._size > self._limit:
            _, oldest = self._entries.popitem(last=False)
            self._size -= len(oldest.text)
