"""The payload of a prompt for its agent, stored in the prompt's item, so that a prompt that waits outlives the server. Pure.

`metadata.prompt` of a user message's item, from its acceptance on; texts and bytes are not kept twice:

    agent    who is to answer
    model    as the agent gets it; absent: the agent's own choice
    text     pieces of the prompt's text: an index into `metadata.opencode.parts`, or what stands in no part
    files    attachments {mime, path?, filename?, text?, base64?}; `text` and `base64` are indices, or as in `text`
    compact  not a prompt, but the wish to compact
    refused  why nobody can be shown it as it was chosen (an unknown model, agent)
    unattended  what happens to asks that nobody answers (`universal.unattended_policy`), if the prompt says it

`pending_prompt_of` reads it, both when a prompt is accepted and when the journal is read again, so that it is the same prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shim.sessions.prompts.pending_prompt import PendingPrompt
from universal.codec import COMPACT, Attachment, Prompt
from universal.items import Item, ItemKind, ItemRole, StatusPart
from universal.jsonvalue import JsonObject, arr, obj, text

SEPARATOR = "\n\n"


def attachment(file: Attachment, text_at: int | None, bytes_at: int | None) -> JsonObject:
    """An attachment as JSON. In: indices of the parts that have its text and its bytes, if there are such."""
    row: JsonObject = {"mime": file.mime, "path": file.path, "filename": file.filename}
    row["text"] = file.text if file.text is None or text_at is None else text_at
    row["base64"] = file.base64 if file.base64 is None or bytes_at is None else bytes_at
    return {key: value for key, value in row.items() if value is not None}


def pending_prompt_of(item: Item) -> PendingPrompt | None:
    """The pending prompt stored in this item, or None if it was display-only, or is from an older journal."""
    meta = obj(item.metadata)
    shown, payload = obj(meta.get("opencode")), obj(meta.get("prompt"))
    if item.kind is not ItemKind.MESSAGE or item.role is not ItemRole.USER or not payload:
        return None
    parts = [obj(part) for part in arr(shown.get("parts"))]
    compact = payload.get("compact") is True
    pieces = (_text(piece, parts) for piece in arr(payload.get("text")))
    prompt = Prompt(
        key=item.item_id,
        text=COMPACT if compact else SEPARATOR.join(piece for piece in pieces if piece),
        attachments=tuple(_attachment(obj(file), parts) for file in arr(payload.get("files"))),
        model=text(payload.get("model")) or None,
        variant=text(obj(shown.get("model")).get("variant")) or None,
        mode=text(shown.get("agent")) or None,
        system=text(shown.get("system")) or None,
        compact=compact,
    )
    return PendingPrompt(item, prompt, text(payload.get("agent")), refused=text(payload.get("refused")))


def _text(piece: Any, parts: Sequence[JsonObject]) -> str | None:
    if isinstance(piece, int):
        return text(parts[piece].get("text")) if piece < len(parts) else None
    return piece if isinstance(piece, str) else None


def _attachment(payload: JsonObject, parts: Sequence[JsonObject]) -> Attachment:
    from shim.host.prompt_files import base64_of  # late: a start reads no attachments

    kept = payload.get("base64")
    content = base64_of(text(parts[kept].get("url"))) if isinstance(kept, int) and kept < len(parts) else kept
    return Attachment(
        mime=text(payload.get("mime")),
        path=text(payload.get("path")) or None,
        filename=text(payload.get("filename")) or None,
        base64=content if isinstance(content, str) else None,
        text=_text(payload.get("text"), parts),
    )


class PendingPrompts:
    """The prompts of one session that its journal says no agent got: a fold over its items.

    In: `message_of`, item id -> message id. Out: `prompts`, message id -> prompt, oldest first.
    """

    def __init__(self, message_of: Callable[[str], str]) -> None:
        self._message_of = message_of
        self.prompts: dict[str, PendingPrompt] = {}

    def add(self, item: Item) -> None:
        """Take in the next completed item."""
        if item.kind is ItemKind.STATUS:
            if any(isinstance(part, StatusPart) and part.label == "prompt" for part in item.content):
                self._apply_status(obj(item.metadata))
        elif item.role is ItemRole.USER and (accepted := pending_prompt_of(item)) is not None:
            message_id = self._message_of(item.item_id)
            self.prompts[message_id] = accepted.with_message_id(message_id)

    def _apply_status(self, meta: JsonObject) -> None:
        message_id, state = self._message_of(text(meta.get("item_id"))), meta.get("state")
        accepted = self.prompts.get(message_id)
        if state == "handed":
            for id_ in (message_id, *map(text, arr(meta.get("carried")))):
                self.prompts.pop(id_, None)
        elif accepted is None:
            return
        elif state == "delivery":
            self.prompts[message_id] = accepted.with_metadata({"delivery": meta.get("delivery")})
        elif state == "withdrawn" or (state == "cancelled" and accepted.prompt.compact):
            del self.prompts[message_id]
