"""Converts prompts to items of OpenCode 2's inbox. Pure.

In: the core's prompt and the parts of its message. Files and agents come from the prompt's details, or else from these parts.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote_to_bytes

from universal.lib.jsonvalue import obj, text
from universal.session.entries import PendingPrompt
from universal.session.values import AgentMention, File, OtherPart, Part, Text

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import types

_DATA_URL = re.compile(r"data:([^,]*+),(.*)", re.DOTALL)


def item(prompt: PendingPrompt, parts: Sequence[Part]) -> types.InboxItem:
    """The `InboxItem` `{type, payload, delivery}` of a prompt and the parts of its message."""
    details, delivery = prompt.details, prompt.delivery
    if prompt.kind == "compaction":
        return {"type": "compaction", "payload": {}, "delivery": delivery}
    texts = [part.text for part in parts if isinstance(part, Text) and not part.synthetic]
    tasks = [text(part.fields.get("prompt")) for part in parts if isinstance(part, OtherPart) and part.type == "subtask"]
    words = "\n\n".join(texts or tasks)
    if prompt.kind == "synthetic":
        note: types.SessionInboxSyntheticPayload = {"text": words}
        if details.description:
            note["description"] = details.description
        if details.metadata:
            note["metadata"] = details.metadata
        return {"type": "synthetic", "payload": note, "delivery": delivery}
    payload: types.SessionInboxUserPayload = {"text": words}
    files = cast("list[types.PromptFileAttachment]", list(details.files)) or [
        _file(part) for part in parts if isinstance(part, File)
    ]
    agents = cast("list[types.PromptAgentAttachment]", list(details.agents)) or [
        _agent(part) for part in parts if isinstance(part, AgentMention)
    ]
    if files:
        payload["files"] = files
    if agents:
        payload["agents"] = agents
    if details.skills:
        payload["skills"] = cast("list[types.PromptSkillAttachment]", list(details.skills))
    if details.metadata:
        payload["metadata"] = details.metadata
    return {"type": "user", "payload": payload, "delivery": delivery}


def _agent(part: AgentMention) -> types.PromptAgentAttachment:
    agent: types.PromptAgentAttachment = {"name": part.name}
    source = obj(part.source)
    if source:
        mention = {"start": source.get("start"), "end": source.get("end"), "text": source.get("value")}
        agent["mention"] = cast("types.PromptMention", mention)
    return agent


def _file(part: File) -> types.PromptFileAttachment:
    """A file part. If the file was only named, its bytes are left out."""
    file: types.PromptFileAttachment
    match = _DATA_URL.match(part.url)
    if match is None:
        file = {"data": "", "mime": part.mime, "source": {"type": "uri", "uri": part.url}}
    else:
        body = _base64(match[2], is_base64=match[1].endswith(";base64"))
        file = {"data": body, "mime": part.mime, "source": {"type": "inline"}}
    if part.filename:
        file["name"] = part.filename
    return file


def _base64(body: str, *, is_base64: bool) -> str:
    raw = unquote_to_bytes(body)
    if is_base64:
        try:
            base64.b64decode(raw, validate=True)
        except binascii.Error:
            return base64.b64encode(raw).decode()
        return raw.decode()
    return base64.b64encode(raw).decode()
