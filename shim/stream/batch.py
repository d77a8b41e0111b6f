"""Frames that go to a reader together: what one turn of work has published, in the form that the reader asked for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from shim.stream.frame import Frame

CHUNK_BYTES = 256 * 1024
"""About how much is handed out at once; each chunk has its own time limit when it is sent."""


class Batch(NamedTuple):
    """`data` is what is written for these frames; the same bytes for all readers of one form."""

    frames: Sequence[Frame]
    data: bytes
    urgent: bool


def batches(frames: Iterable[Frame], form: Callable[[Frame], bytes]) -> list[Batch]:
    """All frames, in order, in batches that end with the frame that reaches CHUNK_BYTES."""
    found: list[Batch] = []
    some: list[Frame] = []
    texts: list[bytes] = []
    size, urgent = 0, False
    for frame in frames:
        text = form(frame)
        some.append(frame)
        texts.append(text)
        size += len(text)
        urgent = urgent or frame.urgent
        if size >= CHUNK_BYTES:
            found.append(Batch(some, b"".join(texts), urgent))
            some, texts, size, urgent = [], [], 0, False
    if some:
        found.append(Batch(some, b"".join(texts), urgent))
    return found
