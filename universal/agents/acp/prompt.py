"""Converts a prompt to content blocks of the Agent Client Protocol. Pure."""

from __future__ import annotations

from universal.agents.acp.context import Msg
from universal.codec import Attachment, Prompt


def prompt_content(prompt: Prompt, *, images: bool, embedded: bool) -> list[Msg]:
    """Return the content blocks of a prompt, its text last.

    An attachment that the agent cannot take is written into the text, linked, or only named.
    """
    blocks = [_attachment_block(item, images=images, embedded=embedded) for item in prompt.attachments]
    if prompt.system:
        blocks.insert(0, _text(f"<system-reminder>\n{prompt.system}\n</system-reminder>"))
    if prompt.text or not blocks:
        blocks.append(_text(prompt.text))
    return blocks


def _text(text: str) -> Msg:
    return {"type": "text", "text": text}


def _attachment_block(item: Attachment, *, images: bool, embedded: bool) -> Msg:
    name = item.path or item.filename or "attachment"
    if item.base64 and item.mime.startswith("image/") and images:
        return {"type": "image", "mimeType": item.mime, "data": item.base64}
    uri = f"file://{item.path}" if item.path else f"attachment:///{item.filename or 'attachment'}"
    if item.text is not None and embedded:
        return {"type": "resource", "resource": {"uri": uri, "mimeType": item.mime, "text": item.text}}
    if item.text is not None:
        return _text(f'<file path="{name}">\n{item.text}\n</file>')
    if item.path:
        return {"type": "resource_link", "uri": uri, "name": item.filename or item.path, "mimeType": item.mime}
    return _text(f"The user attached {name} ({item.mime}), a kind of file that cannot be shown here.")
