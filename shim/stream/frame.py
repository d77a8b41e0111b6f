"""Frames: events as bytes, the position that each names, and how frames are joined. Pure.

A position is a place in the stream, which a reader sends as `Last-Event-ID`. It is the id of an event. On the wire it has eight
characters, so that a piece of text with an `id:` line is no longer than OpenCode's, which has no such line.
Source: recordings of 1.18.33 and 1.1.53, `docs/wire.md`; docs/adr/0021-what-a-piece-of-text-may-cost.md.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

import orjson

from universal.lib.jsonvalue import JsonObject

ID_LENGTH, POSITION_LENGTH = 16, 8

_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class TextPiece(Protocol):
    """The text that a frame adds to a growing part. Pieces with the same `key` can be joined."""

    @property
    def key(self) -> tuple[str, ...]:
        """The part that grows."""
        ...

    @property
    def text(self) -> str:
        """The added text."""
        ...

    def frame(self, text: str) -> Frame:
        """The same frame with another text."""
        ...


class Frame(NamedTuple):
    """One encoded event. The encoder's `layout` makes of it the bytes that a reader gets.

    position  the position that its `id:` line names
    body      the JSON of the event; empty for a comment
    urgent    to be sent at once
    piece_of  reads the text that it adds to a part from its JSON; None: it adds none. Few frames are joined, so the text is not
              kept beside the bytes
    envelope  JSON members that are added to the body on a stream of all scopes
    """

    position: str
    body: bytes
    urgent: bool
    piece_of: Callable[[Frame, JsonObject], TextPiece] | None = None
    envelope: bytes = b""


def compact(frames: Iterable[Frame]) -> list[Frame]:
    """Join pieces of text of one part that come one after the other. A joined frame has the position of its last piece.

    Over a piece of another part none are joined: a client that is cut off there goes on after it, and would miss the first ones.
    """
    out: list[Frame] = []
    run: list[tuple[Frame, TextPiece]] = []
    for frame in frames:
        piece = None if frame.piece_of is None else frame.piece_of(frame, orjson.loads(frame.body))
        if run and (piece is None or piece.key != run[-1][1].key):
            out.append(_join(run))
            run = []
        if piece is None:
            out.append(frame)
        else:
            run.append((frame, piece))
    return [*out, _join(run)] if run else out


def _join(run: Sequence[tuple[Frame, TextPiece]]) -> Frame:
    """Join pieces of one part: the last frame, with the text of all."""
    last, piece = run[-1]
    return last if len(run) == 1 else piece.frame("".join([one.text for _, one in run]))


def encode_position(event_id: str) -> bytes:
    """Encode a position for an `id:` line: the six bytes of an event's id in URL-safe base 64. Other texts stay as they are."""
    try:
        if len(event_id) == ID_LENGTH:
            return b2a_base64(bytes.fromhex(event_id[4:]), newline=False).translate(_URL_SAFE)
    except ValueError:
        pass
    return event_id.encode()


def decode_position(text: str) -> str:
    """Decode a client's `Last-Event-ID`. An event's id is accepted too."""
    try:
        return "evt_" + b64decode(text, b"-_", validate=True).hex() if len(text) == POSITION_LENGTH else text
    except ValueError:
        return text


Scope: TypeAlias = str | tuple[str, ...] | None
"""What a reader gets: the events of one directory, those of all in some roots, or all (None)."""


@lru_cache(maxsize=1024)
def normal_scope(directory: str) -> str:
    """A directory without a slash at its end. Scopes of events and readers are compared in this form."""
    return directory.rstrip("/") or directory[:1]
