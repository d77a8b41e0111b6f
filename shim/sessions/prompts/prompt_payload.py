"""What an agent is given of a prompt, kept in its item, so that a prompt that waits outlives the server. Pure.

`metadata.prompt` of a user message's item, from its acceptance on; texts and bytes are not kept twice:

    agent    who is to answer
    model    as it is handed; absent: the agent's own choice
    text     pieces of the prompt's text: an index into `metadata.opencode.parts`, or what stands in no part
    files    attachments {mime, path?, filename?, text?, base64?}; `text` and `base64` are indices, or as in `text`
    compact  not a prompt, but the wish to compact
    refused  why nobody can be given it as it was chosen (an unknown model, agent)
    unattended  what happens to asks that nobody answers (`universal.unattended`), if the prompt says it

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


def attachment(given: Attachment, text_at: int | None, bytes_at: int | None) -> JsonObject:
    """How an attachment is kept. In: the parts that have its text and its bytes, if there are such."""
    told: JsonObject = {"mime": given.mime, "path": given.path, "filename": given.filename}
    told["text"] = given.text if given.text is None or text_at is None else text_at
    told["base64"] = given.base64 if given.base64 is None or bytes_at is None else bytes_at
    return {key: value for key, value in told.items() if value is not None}


def pending_prompt_of(item: Item) -> PendingPrompt | None:
    """The prompt that this item is; None for one that nobody was to be given, or whose journal is older than this."""
    meta = obj(item.metadata)
    given, told = obj(meta.get("opencode")), obj(meta.get("prompt"))
    if item.kind is not ItemKind.MESSAGE or item.role is not ItemRole.USER or not told:
        return None
    parts = [obj(part) for part in arr(given.get("parts"))]
    compact = told.get("compact") is True
    prompt = Prompt(
        key=item.item_id,
        text=COMPACT if compact else SEPARATOR.join(t for t in (_text(one, parts) or "" for one in arr(told.get("text"))) if t),
        attachments=tuple(_attachment(obj(one), parts) for one in arr(told.get("files"))),
        model=text(told.get("model")) or None,
        variant=text(obj(given.get("model")).get("variant")) or None,
        mode=text(given.get("agent")) or None,
        system=text(given.get("system")) or None,
        compact=compact,
    )
    return PendingPrompt(item, prompt, text(told.get("agent")), refused=text(told.get("refused")))


def _text(piece: Any, parts: Sequence[JsonObject]) -> str | None:
    if isinstance(piece, int):
        return text(parts[piece].get("text")) if piece < len(parts) else None
    return piece if isinstance(piece, str) else None


def _attachment(told: JsonObject, parts: Sequence[JsonObject]) -> Attachment:
    from shim.host.prompt_files import base64_of  # late: a start reads no attachments

    kept = told.get("base64")
    content = base64_of(text(parts[kept].get("url"))) if isinstance(kept, int) and kept < len(parts) else kept
    return Attachment(
        mime=text(told.get("mime")),
        path=text(told.get("path")) or None,
        filename=text(told.get("filename")) or None,
        base64=content if isinstance(content, str) else None,
        text=_text(told.get("text"), parts),
    )


class PendingPrompts:
    """Prompts of one session that no agent has been given, as its journal tells; a fold over its items.

    In: `message_of`, item id -> message id. Out: `prompts`, message id -> prompt, oldest first.
    """

    def __init__(self, message_of: Callable[[str], str]) -> None:
        self._message_of = message_of
        self.prompts: dict[str, PendingPrompt] = {}

    def add(self, item: Item) -> None:
        """The next item that was completed."""
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
