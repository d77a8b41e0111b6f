"""The payload of a prompt for its agent, stored in the prompt's item, so that a prompt that waits outlives the server. Pure.

`accepted_prompt` makes a pending prompt of it when a prompt is accepted, `pending_prompt_of` the same one of a journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from shim.sessions.permissions.unattended_policy import Caps, caps_of
from shim.sessions.prompts.pending_prompt import PendingPrompt
from universal.codec import COMPACT, Attachment, Prompt
from universal.items import ContentPart, Item, ItemKind, ItemRole
from universal.lib.jsonvalue import JsonObject, arr, obj, text
from universal.session.user_prompt import PromptItem, UserPrompt, prompt_of
from universal.session.values import File, Part, Text
from universal.unattended_policy import UnattendedPolicy, parse

SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class PromptPayload:
    """`metadata.prompt` of a user message's item: what the agent gets. Texts and bytes that a part holds are not kept twice.

    agent       who is to answer
    model       as the agent gets it; None: the agent's own choice
    text        pieces of the prompt's text: the index of a part, or what stands in no part
    files       attachments {mime, path?, filename?, text?, base64?}; `text` and `base64` are indices, or as in `text`
    is_compact  not a prompt, but the wish to compact
    refused     why no agent can be sent it as it was chosen (an unknown model, agent)
    unattended  what happens to asks that nobody answers, if the prompt says it
    caps        its caps, if it has any
    mode        the agent's mode, if the message names an agent of the configuration instead
    """

    agent: str
    model: str | None = None
    text: tuple[int | str, ...] = ()
    files: tuple[JsonObject, ...] = ()
    is_compact: bool = False
    refused: str = ""
    unattended: UnattendedPolicy | None = None
    caps: Caps | None = None
    mode: str = ""

    def to_json(self) -> JsonObject:
        """The payload as the item keeps it."""
        fields: JsonObject = {"agent": self.agent} if self.model is None else {"agent": self.agent, "model": self.model}
        fields |= {"compact": True} if self.is_compact else {"text": list(self.text)}
        fields |= {"files": list(self.files)} if self.files else {}
        fields |= {"refused": self.refused} if self.refused else {}
        fields |= {"mode": self.mode} if self.mode else {}
        fields |= {"caps": self.caps.to_json()} if self.caps is not None else {}
        return fields if self.unattended is None else {**fields, "unattended": str(self.unattended)}

    @classmethod
    def of(cls, item: Item) -> PromptPayload | None:
        """The payload that an item keeps; None if it keeps none."""
        fields = obj(obj(item.metadata).get("prompt"))
        if not fields:
            return None
        unattended = text(fields.get("unattended"))
        return cls(
            agent=text(fields.get("agent")),
            model=text(fields.get("model")) or None,
            text=tuple(piece for piece in arr(fields.get("text")) if isinstance(piece, int | str)),
            files=tuple(map(obj, arr(fields.get("files")))),
            is_compact=fields.get("compact") is True,
            refused=text(fields.get("refused")),
            unattended=parse(unattended) if unattended else None,
            caps=caps_of(obj(fields.get("caps"))),
            mode=text(fields.get("mode")),
        )


def attachment(file: Attachment, text_at: int | None, bytes_at: int | None) -> JsonObject:
    """An attachment as JSON. In: indices of the parts that have its text and its bytes, if there are such."""
    row: JsonObject = {"mime": file.mime, "path": file.path, "filename": file.filename}
    row["text"] = file.text if file.text is None or text_at is None else text_at
    row["base64"] = file.base64 if file.base64 is None or bytes_at is None else bytes_at
    return {key: value for key, value in row.items() if value is not None}


def pending_prompt_of(item: Item) -> PendingPrompt | None:
    """The pending prompt stored in this item, or None if it was display-only, or is from an older journal."""
    payload = PromptPayload.of(item)
    if item.kind is not ItemKind.MESSAGE or item.role is not ItemRole.USER or payload is None:
        return None
    return _pending_prompt(item, prompt_of(item), payload)


def accepted_prompt(
    item_id: str, prompt: UserPrompt, payload: PromptPayload, content: tuple[ContentPart, ...] = ()
) -> PendingPrompt:
    """The pending prompt of a new item."""
    return _pending_prompt(PromptItem.of(item_id, prompt, content, {"prompt": payload.to_json()}), prompt, payload)


def _pending_prompt(item: Item, user_prompt: UserPrompt, payload: PromptPayload) -> PendingPrompt:
    parts = user_prompt.parts
    pieces = map(partial(_text, parts), payload.text)
    prompt = Prompt(
        key=item.item_id,
        text=COMPACT if payload.is_compact else SEPARATOR.join(filter(None, pieces)),
        attachments=tuple(map(partial(_attachment, parts), payload.files)),
        model=payload.model,
        variant=(user_prompt.model.variant if user_prompt.model is not None else None) or None,
        mode=payload.mode or user_prompt.mode or None,
        system=user_prompt.system or None,
        compact=payload.is_compact,
        schema=user_prompt.format.get("schema") if user_prompt.format is not None else None,
    )
    pending = PendingPrompt(item, user_prompt, prompt, payload.agent, refused=payload.refused)
    return replace(pending, unattended_policy=payload.unattended, caps=payload.caps)


def _text(parts: Sequence[Part], piece: Any) -> str | None:
    if isinstance(piece, int):
        part = parts[piece] if piece < len(parts) else None
        return part.text if isinstance(part, Text) else None
    return piece if isinstance(piece, str) else None


def _attachment(parts: Sequence[Part], payload: JsonObject) -> Attachment:
    from shim.host.files.prompt_files import base64_of  # late: a start reads no attachments

    content = payload.get("base64")
    if isinstance(content, int):
        part = parts[content] if content < len(parts) else None
        content = base64_of(part.url) if isinstance(part, File) else None
    return Attachment(
        mime=text(payload.get("mime")),
        path=text(payload.get("path")) or None,
        filename=text(payload.get("filename")) or None,
        base64=content if isinstance(content, str) else None,
        text=_text(parts, payload.get("text")),
    )


class PendingPrompts:
    """The prompts of one session that its journal says no agent got: a fold over its items.

    In: `message_of`, item id -> message id. Out: `prompts`, message id -> prompt, oldest first.
    """

    def __init__(self, message_of: Callable[[str], str]) -> None:
        self._message_of = message_of
        self.prompts: dict[str, PendingPrompt] = {}
        self.ends: set[str] = set()
        """Messages of prompts that an abort has cancelled, or that have their error."""

    def without_answer(self) -> list[PendingPrompt]:
        """The prompts whose clients still wait for an answer: those that know no inbox, where what waits is seen."""
        waiting = self.prompts.items()
        return [one for id_, one in waiting if id_ not in self.ends and one.expects_answer]

    def accept(self, prompt: PendingPrompt) -> None:
        """Take in a prompt with the id of its message, whose item was completed just now."""
        self.prompts[prompt.message_id] = prompt

    def add(self, item: Item) -> None:
        """Take in the next completed item that is no status."""
        if item.role is ItemRole.USER and (accepted := pending_prompt_of(item)) is not None:
            message_id = self._message_of(item.item_id)
            self.prompts[message_id] = replace(accepted, message_id=message_id)

    def note(self, label: str, meta: JsonObject) -> None:
        if label != "prompt":
            return
        message_id, state = self._message_of(text(meta.get("item_id"))), meta.get("state")
        accepted = self.prompts.get(message_id)
        if state == "handed":
            for id_ in (message_id, *map(text, arr(meta.get("carried")))):
                self.prompts.pop(id_, None)
        elif accepted is None:
            return
        elif state == "delivery":
            self.prompts[message_id] = accepted.with_delivery("queue" if meta.get("delivery") == "queue" else "steer")
        elif state == "withdrawn" or (state == "cancelled" and accepted.prompt.compact):
            del self.prompts[message_id]
        elif state in ("cancelled", "lost"):
            self.ends.add(message_id)
