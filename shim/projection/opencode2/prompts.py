"""Prompts as OpenCode 2's inbox has them: accepted, then delivered as messages. Pure.

In: the user message of 1.x, and `metadata.opencode` of its item. Keys of that which are this face's:

    delivery     "steer" (default) | "queue"
    kind         "user" (default) | "synthetic" | "skill" (with `skill`: id, name, text; it never waits in the inbox)
    description  of a synthetic one
    metadata     the client's own
    files, agents, skills   in R's stored form; without them, files and agents are made of the message's parts
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from shim.opencode2.events import Wire
from universal.jsonvalue import arr, obj, text

_DATA_URL = re.compile(r"data:([^,]*+),(.*)", re.DOTALL)


def item(parts: list[Wire], given: Wire) -> Wire:
    """`InboxItem`: `{type, payload, delivery}`."""
    delivery = "queue" if given.get("delivery") == "queue" else "steer"
    if any(part["type"] == "compaction" for part in parts):
        return {"type": "compaction", "payload": {}, "delivery": delivery}
    kind = "synthetic" if given.get("kind") == "synthetic" else "user"
    said = [text(p.get("text")) for p in parts if p["type"] == "text" and not p.get("synthetic")]
    tasks = [text(p.get("prompt")) for p in parts if p["type"] == "subtask"]
    payload: Wire = {"text": "\n\n".join(said or tasks)}
    if kind == "synthetic":
        payload |= {key: given[key] for key in ("description", "metadata") if given.get(key)}
        return {"type": kind, "payload": payload, "delivery": delivery}
    files = [obj(f) for f in arr(given.get("files"))] or [_file(p) for p in parts if p["type"] == "file"]
    agents = [obj(a) for a in arr(given.get("agents"))] or [_agent(p) for p in parts if p["type"] == "agent"]
    told = {"files": files, "agents": agents, "skills": given.get("skills"), "metadata": given.get("metadata")}
    return {"type": kind, "payload": payload | {key: value for key, value in told.items() if value}, "delivery": delivery}


def entry(inbox_id: str, session_id: str, enqueued: Wire, at_ms: int) -> Wire:
    """`SessionInboxInfo` of an item."""
    return {"id": inbox_id, "sessionID": session_id, "time": {"created": at_ms}, **enqueued}


def message(inbox_id: str, enqueued: Wire, at_ms: int) -> Wire:
    """The message that an item of type user or synthetic becomes when it is delivered."""
    return {"id": inbox_id, "time": {"created": at_ms}, "type": enqueued["type"], **enqueued["payload"]}


def _agent(part: Wire) -> Wire:
    source = obj(part.get("source"))
    mention = {"start": source.get("start"), "end": source.get("end"), "text": source.get("value")} if source else {}
    return {"name": text(part.get("name")), **({"mention": mention} if mention else {})}


def _file(part: Wire) -> Wire:
    """A file part; of a file that was only named, the bytes are not told."""
    url, mime = text(part.get("url")), text(part.get("mime"), "text/plain")
    name = {"name": part["filename"]} if part.get("filename") else {}
    found = _DATA_URL.match(url)
    if found is None:
        return {"data": "", "mime": mime, "source": {"type": "uri", "uri": url}, **name}
    return {"data": _base64(found[2], is_base64=found[1].endswith(";base64")), "mime": mime, "source": {"type": "inline"}, **name}


def _base64(body: str, *, is_base64: bool) -> str:
    raw = unquote_to_bytes(body)
    if is_base64:
        try:
            base64.b64decode(raw, validate=True)
        except binascii.Error:
            return base64.b64encode(raw).decode()
        return raw.decode()
    return base64.b64encode(raw).decode()
