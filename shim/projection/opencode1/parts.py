"""Parts of messages that no OpenCode client has sent, and what statuses become. Pure."""

from __future__ import annotations

from shim.opencode import build
from shim.opencode.build import Wire
from shim.opencode.events import OpenCodeEvent
from shim.projection.opencode1.state import ToolState
from universal.items import FileRefPart, ImagePart, Item, ItemKind, ItemRole, ItemStatus, TextPart
from universal.jsonvalue import obj, text, whole


def nothing() -> OpenCodeEvent | None:
    """For clients of 1.1: no event at all."""
    return None


def url_of(image: ImagePart) -> str:
    """An image as a URL."""
    return image.path if image.path.startswith(("data:", "http:", "https:", "file:")) else f"file://{image.path}"


def parts_of(item: Item) -> list[Wire]:
    """Parts of a user message that no OpenCode client sent (a subagent's prompt, another face)."""
    parts: list[Wire] = []
    for part in item.content:
        if isinstance(part, TextPart):
            parts.append({"type": "text", "text": part.text})
        elif isinstance(part, ImagePart):
            parts.append({"type": "file", "mime": part.mime or "image/png", "url": url_of(part)})
        elif isinstance(part, FileRefPart):
            parts.append(
                {"type": "file", "mime": "text/plain", "filename": part.path.rsplit("/", 1)[-1], "url": f"file://{part.path}"}
            )
    return parts


def retry_status(item: Item, at_ms: int) -> Wire:
    """Session status of a `retry` item."""
    meta = obj(item.metadata)
    return build.status_retry(
        whole(meta.get("attempt"), 1), text(meta.get("message"), "The model did not answer"), at_ms + whole(meta.get("delay_ms"))
    )


def compaction_item(session_id: str, number: int, part: Wire) -> Item:
    """The user message of a compaction that nobody asked for. Its id depends on the journal alone."""
    return Item(
        item_id=f"{session_id}:compaction:{number}",
        kind=ItemKind.MESSAGE,
        role=ItemRole.USER,
        status=ItemStatus.COMPLETED,
        metadata={"opencode": {"parts": [part]}},
    )


def model_of(session: Wire, agent: str) -> Wire:
    """The model that a session used last, as messages name it."""
    model = obj(session.get("model"))
    wire = {"providerID": model.get("providerID", agent), "modelID": model.get("id", "default")}
    if model.get("variant") and model["variant"] != "default":
        wire["variant"] = model["variant"]
    return wire


def assistant_info(session: Wire, message_id: str, parent_id: str, model: Wire, mode: str, at_ms: int, **extra: object) -> Wire:
    """`info` of an assistant message that begins. `mode` is OpenCode's agent; `extra` are further fields."""
    info: Wire = {
        "id": message_id,
        "sessionID": session["id"],
        "role": "assistant",
        **extra,
        "parentID": parent_id,
        "mode": mode,
        "agent": mode,
        "path": {"cwd": session["directory"], "root": session["directory"]},
        "cost": 0,
        "tokens": build.tokens(None),
        "modelID": model["modelID"],
        "providerID": model["providerID"],
        "time": {"created": at_ms},
    }
    if model.get("variant"):
        info["variant"] = model["variant"]
    return info


def failed_state(state: ToolState, error: str, at_ms: int, *, interrupted: bool) -> Wire:
    """`state` of a tool part whose call has failed."""
    wire: Wire = {
        "status": "error",
        "input": state.view.input,
        "error": error,
        "time": {"start": state.started_ms or at_ms, "end": at_ms},
    }
    metadata: Wire = {"output": state.output} if state.output else {}
    if interrupted:
        metadata["interrupted"] = True
    if metadata:
        wire["metadata"] = metadata
    return wire
