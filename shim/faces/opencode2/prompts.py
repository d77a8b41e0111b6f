"""Converts prompts to items of OpenCode 2's inbox. Pure.

In: the core's prompt and the parts of its message. Files and agents come from the prompt's details, or else from these parts.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from shim.faces.opencode2.events import Wire
from universal.jsonvalue import obj, text
from universal.session.entries import PendingPrompt
from universal.session.values import AgentMention, File, OtherPart, Part, Text

_DATA_URL = re.compile(r"data:([^,]*+),(.*)", re.DOTALL)


def item(prompt: PendingPrompt, parts: Sequence[Part]) -> Wire:
    """The `InboxItem` `{type, payload, delivery}` of a prompt and the parts of its message."""
    details, delivery = prompt.details, prompt.delivery
    if prompt.kind == "compaction":
        return {"type": "compaction", "payload": {}, "delivery": delivery}
    said = [part.text for part in parts if isinstance(part, Text) and not part.synthetic]
    tasks = [text(part.fields.get("prompt")) for part in parts if isinstance(part, OtherPart) and part.type == "subtask"]
    payload: Wire = {"text": "\n\n".join(said or tasks)}
    if prompt.kind == "synthetic":
        optional = {"description": details.description, "metadata": details.metadata}
        payload |= {key: value for key, value in optional.items() if value}
        return {"type": prompt.kind, "payload": payload, "delivery": delivery}
    files = list(details.files) or [_file(part) for part in parts if isinstance(part, File)]
    agents = list(details.agents) or [_agent(part) for part in parts if isinstance(part, AgentMention)]
    optional = {"files": files, "agents": agents, "skills": list(details.skills), "metadata": details.metadata}
    payload |= {key: value for key, value in optional.items() if value}
    return {"type": prompt.kind, "payload": payload, "delivery": delivery}


def _agent(part: AgentMention) -> Wire:
    source = obj(part.source)
    mention = {"start": source.get("start"), "end": source.get("end"), "text": source.get("value")} if source else {}
    return {"name": part.name, **({"mention": mention} if mention else {})}


def _file(part: File) -> Wire:
    """A file part. If the file was only named, its bytes are left out."""
    name = {"name": part.filename} if part.filename else {}
    found = _DATA_URL.match(part.url)
    if found is None:
        return {"data": "", "mime": part.mime, "source": {"type": "uri", "uri": part.url}, **name}
    body = _base64(found[2], is_base64=found[1].endswith(";base64"))
    return {"data": body, "mime": part.mime, "source": {"type": "inline"}, **name}


def _base64(body: str, *, is_base64: bool) -> str:
    raw = unquote_to_bytes(body)
    if is_base64:
        try:
            base64.b64decode(raw, validate=True)
        except binascii.Error:
            return base64.b64encode(raw).decode()
        return raw.decode()
    return base64.b64encode(raw).decode()
