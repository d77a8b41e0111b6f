"""Reads the files that a prompt names, once, when the prompt is accepted.

As in native OpenCode, a file part becomes two synthetic text parts (the read call and its output) and the file part itself. A
missing file becomes two texts that say so. Source: recordings `file_part`, `image_part` of 1.18.33.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, unquote_to_bytes, urlsplit

from shim.host.files.contents import TEXT, decode, sniff_type
from shim.host.files.roots import within
from shim.lib import disk
from shim.lib.disk import printable
from universal.codec import Attachment

TEXT_LIMIT_BYTES = 512 * 1024
"""Maximum text of one attached file in the conversation. A longer text is cut, and says so."""
BINARY_LIMIT_BYTES = 20 * 1024 * 1024
"""Maximum size of an attached image or document. A larger one is named, not sent."""
LISTING_LIMIT = 1_000
"""Maximum listed entries of an attached directory."""


@dataclass(frozen=True, slots=True)
class PromptFile:
    """The result of one file part.

    texts  synthetic texts before it
    keep   whether the part itself stays
    url    of the part that stays, if it is another one
    """

    texts: tuple[str, ...] = ()
    keep: bool = True
    attachment: Attachment | None = None
    error: str | None = None
    url: str = ""


def _call(path: str, **more: Any) -> str:
    arguments = json.dumps({"filePath": path, **more}, separators=(",", ":"), ensure_ascii=False)
    return f"Called the Read tool with the following input: {arguments}"


async def read_part(url: str, mime: str, filename: str | None, roots: Sequence[str] = ()) -> PromptFile:
    """Read the target of a file part: a `data:` or `file:` URL. Other URLs stay unread, and the agent gets their names.

    In: `roots`, the directories that must hold the files, with links resolved; if empty, files may lie anywhere.
    """
    if url.startswith("data:"):
        return _data_url(url, mime, filename)
    if url.startswith("file:"):
        return await asyncio.to_thread(_file_url, url, mime, filename, roots)
    return PromptFile(attachment=Attachment(mime=mime, filename=filename, text=f"(see {url})"))


def base64_of(url: str) -> str:
    """Return the content of a `data:` URL as base64. Raises ValueError for invalid base64."""
    return base64.b64encode(_content_of(url)).decode()


def _content_of(url: str) -> bytes:
    head, _, body = url.partition(",")
    return base64.b64decode(body, validate=False) if head.endswith(";base64") else unquote_to_bytes(body)


def _data_url(url: str, mime: str, filename: str | None) -> PromptFile:
    try:
        content = _content_of(url)
    except ValueError:  # binascii.Error is a ValueError
        return PromptFile(keep=False, error=f"The attachment {filename or ''} is not valid base64.")
    kind = sniff_type(content, filename or "") if mime.startswith("text/") else mime
    if mime.startswith("text/") and not _is_attached(kind):
        text = decode(content)
        if text is None:
            return _unreadable(filename or "attachment")
        return PromptFile((_call(filename or "attachment"), text), attachment=Attachment(mime=mime, filename=filename, text=text))
    encoded = base64.b64encode(content).decode()
    attachment = Attachment(mime=kind, filename=filename, base64=encoded)
    return PromptFile(attachment=attachment, url="" if kind == mime else f"data:{kind};base64,{encoded}")


def _file_url(url: str, mime: str, filename: str | None, roots: Sequence[str]) -> PromptFile:
    split = urlsplit(url)
    path = unquote(split.path)
    query = parse_qs(split.query)
    start, end = (int(v[0]) if (v := query.get(k)) and v[0].isdigit() else None for k in ("start", "end"))
    file = Path(path)
    outside = "\0" not in path and not within(path, roots)
    if "\0" in path or outside or not os.path.exists(path):  # noqa: PTH110 - pathlib raises for names that are too long
        error = f"File is outside of the directories that this server may use: {path}" if outside else f"File not found: {path}"
        text = f"Read tool failed to read {path} with the following error: {error}"
        return PromptFile(
            (_call(path), text), keep=False, error=error, attachment=Attachment(mime="text/plain", path=path, text=text)
        )
    try:
        if disk.is_folder(file):
            return _directory(file, path)
        if _is_attached(mime):
            return _binary(file, path, mime, filename, roots)
        content, _ = disk.head(file, TEXT_LIMIT_BYTES + 1, roots)
        kind = sniff_type(content, file.name)
        if _is_attached(kind):  # the TUI names every file that is mentioned text/plain
            return _binary(file, path, kind, filename, roots)
        return _text(content, path, mime, filename, start, end)
    except OSError as problem:
        error = f"{path} cannot be read: {problem.strerror or problem}"
        return PromptFile(
            (_call(path), error), keep=False, error=error, attachment=Attachment(mime="text/plain", path=path, text=error)
        )


def _is_attached(mime: str) -> bool:
    """Whether a model gets content of this type as it is."""
    return mime.startswith(("image/", "audio/", "video/")) or mime == "application/pdf"


def _unreadable(path: str) -> PromptFile:
    """A file that is neither text nor something that models see. The sentence is OpenCode's."""
    error = f"Cannot read binary file: {path}"
    text = f"Read tool failed to read {path} with the following error: {error}"
    return PromptFile((_call(path), text), keep=False, error=error, attachment=Attachment(mime=TEXT, path=path, text=text))


def _directory(file: Path, path: str) -> PromptFile:
    names = sorted((printable(f"{e.name}/" if e.is_dir() else e.name) for e in file.iterdir()), key=str.lower)
    page = names[:LISTING_LIMIT]
    listing = "\n".join(page)
    text = f"<path>{path}</path>\n<type>directory</type>\n<entries>\n{listing}\n\n({len(names)} entries)\n</entries>"
    return PromptFile((_call(path), text), attachment=Attachment(mime="application/x-directory", path=path, text=text))


def _binary(file: Path, path: str, mime: str, filename: str | None, roots: Sequence[str]) -> PromptFile:
    content, size = disk.head(file, BINARY_LIMIT_BYTES + 1, roots)
    if len(content) > BINARY_LIMIT_BYTES:
        error = f"{path} is too large to attach: {size} bytes, at most {BINARY_LIMIT_BYTES}."
        return PromptFile((_call(path), error), keep=False, error=error)
    encoded = base64.b64encode(content).decode()
    attachment = Attachment(mime=mime, path=path, filename=filename, base64=encoded)
    # Clients on other machines cannot open our paths, so the part carries the bytes, as in native OpenCode.
    return PromptFile(attachment=attachment, url=f"data:{mime};base64,{encoded}")


def _text(content: bytes, path: str, mime: str, filename: str | None, start: int | None, end: int | None) -> PromptFile:
    cut = len(content) > TEXT_LIMIT_BYTES
    decoded = decode(content[:TEXT_LIMIT_BYTES])
    if decoded is None:
        return _unreadable(path)
    lines = decoded.removesuffix("\n").split("\n")
    total = len(lines)
    first = max(start or 1, 1)
    last = min(end or total, total)
    numbered = "\n".join(f"{n}: {line}" for n, line in enumerate(lines[first - 1 : last], first))
    closing = f"(Output cut at {TEXT_LIMIT_BYTES} bytes)" if cut else f"(End of file - total {total} lines)"
    text = f"<path>{path}</path>\n<type>file</type>\n<content>\n{numbered}\n\n{closing}\n</content>"
    more = {} if start is None else {"offset": first, "limit": last - first + 1}
    return PromptFile((_call(path, **more), text), attachment=Attachment(mime=mime, path=path, filename=filename, text=text))
