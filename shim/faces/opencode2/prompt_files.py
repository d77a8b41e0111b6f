"""Converts the files and agents of a client's prompt to parts, and to the values that OpenCode 2 stores.

    {text, files: [{uri, name?, description?, mention?}], agents: [{name, mention?}]}  ->  parts, and details for the inbox

A file's type is found by its bytes, as in OpenCode. Text goes into the prompt; images and PDFs are attached.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from shim.host.files.contents import TEXT, sniff_type
from shim.host.files.prompt_files import BINARY_LIMIT_BYTES
from shim.host.files.roots import within
from shim.lib import disk
from shim.lib.errors import InvalidRequest
from universal.lib.jsonvalue import JsonObject
from universal.session.values import AgentMention, File

DIRECTORY = "application/x-directory"
SCHEMES = ("file", "data")


async def files(attachments: Sequence[JsonObject], roots: Sequence[str]) -> tuple[list[File], list[JsonObject]]:
    """(parts, stored): file parts, and the files as OpenCode 2 keeps them, `{data, mime, source, name?, ...}`.

    Raises InvalidRequest for a URI that is neither `file:` nor `data:`, and for a file that is missing, too large or outside of
    the roots.
    """
    parts: list[File] = []
    stored: list[JsonObject] = []
    for number, attachment in enumerate(attachments):
        uri = str(attachment["uri"])
        scheme = uri.partition(":")[0].lower()
        if scheme not in SCHEMES:
            raise _bad(number, f'only "file:" and "data:" URIs are read, not "{uri[:100]}"')
        mime, content, source = _inline(number, uri) if scheme == "data" else await asyncio.to_thread(_read, number, uri, roots)
        name = attachment.get("name") or (Path(unquote(urlsplit(uri).path)).name if scheme == "file" else None)
        labels = {key: attachment[key] for key in ("name", "description", "mention") if attachment.get(key) is not None}
        stored.append({"data": base64.b64encode(content).decode(), "mime": mime, "source": source, **labels})
        url = uri if scheme == "file" else f"data:{mime};base64,{base64.b64encode(content).decode()}"
        parts.append(File("", TEXT if mime.startswith("text/") else mime, url, name or None))
    return parts, stored


def _inline(number: int, uri: str) -> tuple[str, bytes, JsonObject]:
    head, comma, body = uri.partition(",")
    try:
        content = base64.b64decode(body, validate=True) if head.endswith(";base64") else unquote_to_bytes(body)
    except binascii.Error as error:
        raise _bad(number, "the data is not base64") from error
    if not comma:
        raise _bad(number, "a data: URI has a comma before its data")
    _need_size(number, len(content))
    declared = head.removeprefix("data:").partition(";")[0]
    sniffed = sniff_type(content, "")
    return (declared if sniffed == TEXT and declared.startswith("text/") else sniffed), content, {"type": "inline"}


def _read(number: int, uri: str, roots: Sequence[str]) -> tuple[str, bytes, JsonObject]:
    path = unquote(urlsplit(uri).path)
    source = {"type": "uri", "uri": uri}
    if "\0" in path or not path.startswith("/"):
        raise _bad(number, "a file: URI names an absolute path")
    if not within(path, roots):
        raise _bad(number, f"{path} is outside of the directories that this server may use")
    file = Path(path)
    try:
        if disk.is_folder(file):
            return DIRECTORY, b"", source
        content, size = disk.head(file, BINARY_LIMIT_BYTES + 1)
    except OSError as error:
        raise _bad(number, f"{path} cannot be read: {error.strerror or error}") from error
    _need_size(number, max(size, len(content)))
    return sniff_type(content, path), content, source


def _need_size(number: int, size: int) -> None:
    if size > BINARY_LIMIT_BYTES:
        raise _bad(number, f"{size} bytes, at most {BINARY_LIMIT_BYTES} are taken")


def _bad(number: int, why: str) -> InvalidRequest:
    return InvalidRequest(f"This file cannot be attached: {why}", path=("files", number, "uri"))


def agents(mentions: Sequence[JsonObject]) -> list[AgentMention]:
    """The agent parts for mentions of agents (`@agent`)."""
    parts: list[AgentMention] = []
    for row in mentions:
        mention: Any = row.get("mention")
        source = {"value": mention["text"], "start": mention["start"], "end": mention["end"]} if mention else None
        parts.append(AgentMention("", row["name"], source))
    return parts
