"""Reads files of a project directory for the file trees and viewers of UIs. It never reads outside of the directory.

A path is relative to the directory or absolute below it; `..` and links that lead out are refused (400). Text is trimmed at
both ends, as in native OpenCode. Other content is returned as base64 with its media type. Devices and pipes are not opened.
Source: recordings `endpoints`; a live OpenCode 1.18.33.
"""

from __future__ import annotations

import asyncio
import base64
import mimetypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shim.host.git import vcs
from shim.lib import disk
from shim.lib.disk import printable
from shim.lib.errors import InvalidRequest

FILE_LIMIT_BYTES = 16 * 2**20
"""Maximum size of one file to show. Larger files are refused, because UIs would freeze."""
MOST_NOISE = 0.01
"""Share of control characters, or of invalid UTF-16, in a text. Compressed and random bytes have ten and three times as many."""
CONTROLS = bytes({*range(32)} - set(b"\t\n\v\f\r\b\x1b"))
"""Control characters that texts do not have: all but white space, and what terminals print."""
LIST_LIMIT = 10_000
"""Maximum entries of one folder."""
IMAGES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".ico", ".avif", ".heic", ".tiff"})
"""Extensions that are always binary, even if the file is too short to tell."""
MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
"""First bytes of a file -> its media type."""
TEXT, BYTES = "text/plain", "application/octet-stream"
BOMS: tuple[tuple[bytes, str], ...] = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a folder. `path` is relative to the directory, with a `/` at the end of folders."""

    name: str
    path: str
    absolute: str
    type: Literal["file", "directory"]
    ignored: bool


@dataclass(frozen=True, slots=True)
class Content:
    """A file's text, or its bytes as base64 with the media type."""

    type: Literal["text", "binary"]
    content: str
    encoding: Literal["base64"] | None = None
    mimeType: str | None = None


def confine(directory: str, path: str) -> Path:
    """Resolve a path and its links. Raises InvalidRequest if the result is not below the directory."""
    if "\0" in path:
        raise InvalidRequest("A path may not contain NUL", "Query", ("path",))
    base = Path(os.path.realpath(directory))
    place = Path(os.path.realpath(Path(directory, path)))
    if place != base and base not in place.parents:
        raise InvalidRequest(f"Path is outside of the project directory {directory}: {path}", "Query", ("path",))
    return place


async def list_folder(directory: str, path: str) -> list[Entry]:
    """List a folder: folders first, then files, each by name. Entries that git ignores are marked. Raises InvalidRequest."""
    entries = await asyncio.to_thread(_entries, directory, path)
    ignored = await _ignored_paths(directory, [entry.path for entry in entries])
    return [Entry(e.name, e.path, e.absolute, e.type, e.path in ignored) for e in entries]


async def content(directory: str, path: str) -> Content:
    """Read a file for a viewer. Raises InvalidRequest.

    A missing file reads as an empty text, as in native OpenCode: a viewer may show a file that was just deleted.
    """
    return await asyncio.to_thread(_read, directory, path)


def _entries(directory: str, path: str) -> list[Entry]:
    folder = confine(directory, path)
    relative = os.path.normpath(os.path.relpath(Path(directory, path), directory))
    try:
        with os.scandir(folder) as scan:
            names = [(entry.name, entry.is_dir()) for _, entry in zip(range(LIST_LIMIT), scan, strict=False)]
    except OSError as error:
        raise InvalidRequest(f"Cannot list {path}: {error.strerror}", "Query", ("path",)) from error
    names.sort(key=lambda name: (not name[1], name[0].casefold()))
    entries: list[Entry] = []
    for raw, is_folder in names:
        name = printable(raw)
        place = name if relative == "." else f"{printable(relative)}/{name}"
        kind: Literal["file", "directory"] = "directory" if is_folder else "file"
        entries.append(Entry(name, f"{place}/" if is_folder else place, str(Path(directory, place)), kind, ignored=False))
    return entries


async def _ignored_paths(directory: str, paths: list[str]) -> frozenset[str]:
    """The paths among these that git ignores; empty outside of a repository."""
    # `./` keeps git from reading a name that begins with `:` as pathspec magic.
    ignored = await vcs.ignored_paths(directory, [f"./{path}" for path in paths if path.rstrip("/") != ".git"])
    return frozenset(printable(name).removeprefix("./") for name in ignored)


def _read(directory: str, path: str) -> Content:
    if not path:
        raise InvalidRequest('Expected a path of a file, got ""', "Query", ("path",))
    place = confine(directory, path)
    try:
        with disk.open_confined(place, [os.path.realpath(directory)]) as (file, state):
            if not disk.is_regular(state):
                raise InvalidRequest(f"Not a file: {path}", "Query", ("path",))
            if state.st_size > FILE_LIMIT_BYTES:
                limit = f"{FILE_LIMIT_BYTES // 2**20} MiB"
                raise InvalidRequest(
                    f"{path} has {state.st_size} bytes, more than the {limit} that are shown", "Query", ("path",)
                )
            data = file.read(FILE_LIMIT_BYTES)
    except FileNotFoundError:
        return Content("text", "")
    except IsADirectoryError:
        raise InvalidRequest(f"Not a file: {path}", "Query", ("path",)) from None
    except OSError as error:
        raise InvalidRequest(f"Cannot read {path}: {error.strerror}", "Query", ("path",)) from error
    text = None if place.suffix.lower() in IMAGES else decode(data)
    if text is None:
        kind = mimetypes.guess_type(place.name)[0] or "application/octet-stream"
        return Content("binary", base64.b64encode(data).decode(), "base64", kind)
    return Content("text", text.strip())


def decode(data: bytes) -> str | None:
    """Decode text by its byte order mark, else as UTF-8 with invalid bytes replaced; None for binary data.

    All of it is looked at: what begins as text may be an archive. Text in another encoding (Latin-1, cp1251) is text.
    """
    encoding = next((encoding for mark, encoding in BOMS if data.startswith(mark)), None)
    if encoding == "utf-16":
        text = data.decode(encoding, "replace")
        return text if text.count("\ufffd") + text.count("\0") <= len(text) * MOST_NOISE else None
    if b"\0" in data or len(data) - len(data.translate(None, CONTROLS)) > len(data) * MOST_NOISE:
        return None
    return data.decode(encoding or "utf-8", "replace")


def sniff_type(content: bytes, name: str) -> str:
    """The media type of a file: image or PDF by its bytes, text if it is text, else by its name."""
    media_type = next((mime for begin, mime in MAGIC if content.startswith(begin)), None)
    if media_type is None and content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        media_type = "image/webp"
    if media_type is not None:
        return media_type
    guessed = mimetypes.guess_type(name)[0] or ""
    if decode(content) is None:
        return guessed if guessed and not guessed.startswith("text/") else BYTES
    return guessed if guessed.startswith("text/") else TEXT
