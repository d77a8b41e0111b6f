"""The beginning and the end of what an agent writes to stderr, in bounded memory."""

from __future__ import annotations

import re

from universal.events import StderrOutput

HEAD_BYTES = 16 * 1024
"""The first words often say what is wrong; what follows may be a thousand lines of stack."""
TAIL_BYTES = 64 * 1024
HEAD_LINES = 20
TAIL_LINES = 50


class Tail:
    """Feed `add`; `text` is at most `HEAD_LINES` + `TAIL_LINES` lines, with a note of what was left out between them."""

    __slots__ = ("_head", "_seen_bytes", "_seen_lines", "_tail")

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._seen_bytes = 0
        self._seen_lines = 0

    def add(self, data: bytes) -> None:
        """More of it."""
        self._seen_bytes += len(data)
        self._seen_lines += data.count(b"\n")
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:][-TAIL_BYTES:]
        del self._tail[:-TAIL_BYTES]

    def text(self) -> str:
        """What is known, as text; what is not UTF-8 is replaced. Lines are cut at a newline only."""
        lost_bytes = self._seen_bytes - len(self._head) - len(self._tail)
        if lost_bytes == 0:
            lines = _lines(self._head + self._tail)
            lost_lines = len(lines) - HEAD_LINES - TAIL_LINES
            if lost_lines <= 0:
                return "\n".join(lines)
            return "\n".join([*lines[:HEAD_LINES], f"... ({lost_lines} lines left out) ...", *lines[-TAIL_LINES:]])
        head, tail = _lines(self._head)[:HEAD_LINES], _lines(self._tail)[-TAIL_LINES:]
        # The last line may lack its newline.
        lines = max(0, self._seen_lines + (not self._tail.endswith(b"\n")) - len(head) - len(tail))
        return "\n".join([*head, f"... ({lines} lines, more than {lost_bytes} bytes left out) ...", *tail])


_LEFT_OUT = re.compile(r"^\.\.\. \((\d+) lines(?:, more than \d+ bytes)? left out\) \.\.\.$")


def parse_tail(text: str) -> StderrOutput | None:
    """What `Tail.text` gave, in parts; None if nothing was written."""
    if not text:
        return None
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if found := _LEFT_OUT.match(line):
            head, tail = lines[:index], lines[index + 1 :]
            total = len(head) + int(found[1]) + len(tail)
            return StderrOutput(head="\n".join(head), tail="\n".join(tail), truncated=True, total_lines=total)
    return StderrOutput(head=text, truncated=False, total_lines=len(lines))


def _lines(data: bytes | bytearray) -> list[str]:
    return bytes(data).decode("utf-8", "replace").rstrip("\n").split("\n") if data else []
