"""Words and URLs for what goes with a prompt, in agents that take less than the server is given; and titles and times of stored
conversations."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from universal.codec import Attachment


def reminder(words: str) -> str:
    """The system text of one prompt, for agents that have no channel for it."""
    return f"<system-reminder>\n{words}\n</system-reminder>"


def first_line(words: str) -> str:
    """The first line of a prompt, as a title: at most 80 characters."""
    return words.strip().partition("\n")[0][:80]


def time_text(ms: float) -> str:
    """A time in epoch milliseconds as RFC 3339 in UTC, as a conversation's events have it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def attachment_text(item: Attachment) -> str:
    """An attachment in words: the content of a text, else its name."""
    name = item.path or item.filename or "attachment"
    if item.text is not None:
        return f'<file path="{name}">\n{item.text}\n</file>'
    if item.path:
        return f"The user attached the file {item.path} ({item.mime}). Read it if it matters."
    return f"The user attached {name} ({item.mime}), a kind of file that cannot be shown here."


def attachment_url(attachment: Attachment) -> str:
    """Return bytes and texts as a data URL, a path as a file URL; empty if there is nothing."""
    if attachment.base64:
        return f"data:{attachment.mime};base64,{attachment.base64}"
    if attachment.path:
        return f"file://{quote(attachment.path)}"
    return f"data:{attachment.mime},{quote(attachment.text)}" if attachment.text is not None else ""
