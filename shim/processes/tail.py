"""Keeps the beginning and the end of an agent's stderr in bounded memory."""

from __future__ import annotations

import re

from universal.events import StderrOutput

HEAD_BYTES = 16 * 1024
"""Bytes kept from the beginning. The first words often state the error, and a long stack trace may follow."""
TAIL_BYTES = 64 * 1024
HEAD_LINES = 20
TAIL_LINES = 50


class Tail:
    """Collects output with `add`. `text` has at most `HEAD_LINES` + `TAIL_LINES` lines and a note on the omitted ones."""

    __slots__ = ("_head", "_seen_bytes", "_seen_lines", "_tail")

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._seen_bytes = 0
        self._seen_lines = 0

    def add(self, data: bytes) -> None:
        self._seen_bytes += len(data)
        self._seen_lines += data.count(b"\n")
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:][-TAIL_BYTES:]
        del self._tail[:-TAIL_BYTES]

    def text(self) -> str:
        """Return the kept output. Bytes that are not UTF-8 are replaced. Lines end only at a newline."""
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
    """Split a result of `Tail.text` into head and tail. Returns None for an empty text."""
    if not text:
        return None
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if match := _LEFT_OUT.match(line):
            head, tail = lines[:index], lines[index + 1 :]
            total = len(head) + int(match[1]) + len(tail)
            return StderrOutput(head="\n".join(head), tail="\n".join(tail), truncated=True, total_lines=total)
    return StderrOutput(head=text, truncated=False, total_lines=len(lines))


def _lines(data: bytes | bytearray) -> list[str]:
    return bytes(data).decode("utf-8", "replace").rstrip("\n").split("\n") if data else []
