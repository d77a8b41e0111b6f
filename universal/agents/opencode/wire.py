"""Requests to OpenCode's server, and its answers and events, as lines.

    we write   {"id", "method", "path", "body"?}       an HTTP request
    we read    {"id", "status", "body"}                its answer; status 0: there was none, body {"message"}
               {"event": {"id"?, "type", "properties"}} a frame of `GET /event`

Source: docs/wire.md; recordings of OpenCode 1.18.33.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from universal.agents import kit
from universal.codec import Catalogue, Model, Prompt
from universal.items import Json
from universal.lib.jsonvalue import arr, obj, text
from universal.opencode import DEFAULT_MODEL, limit_of, modes_of
from universal.opencode_metadata import error_details
from universal.slash_commands import SlashCommand

NAME = "opencode"

Msg: TypeAlias = dict[str, Any]

ENDS: Mapping[str, kit.Sign] = {
    "session.status": kit.Sign("`idle` after `busy`, at once if all messages are complete", kit.END_S),
    "session.idle": kit.Sign("repeats `session.status`", kit.END_S),
    "session.error": kit.Sign("an error; `Agent not found` ends the turn at once, because nothing follows", kit.END_S),
    "message.updated": kit.Sign("an answer that is complete and calls no tools", kit.END_S),
    "POST /session/ID/command": kit.Sign("its answer, and that of `summarize`", kit.END_S),
    "GET /session/status": kit.Sign("lists only sessions that work; asked after a sign and each POLL_S", kit.END_S),
    "eof": kit.Sign("the process has ended"),
}
"""Sign of a turn's end -> what it shows, and how long the others are waited for before OpenCode is asked."""

IGNORED: Mapping[str, str] = {
    "server.connected": "the stream is open: the runtime waits for it",
    "server.heartbeat": "no content",
    "server.instance.disposed": "the stream ends with it, and so does the process",
    "session.diff": "always empty in 1.18; our diffs come from the tools' results",
    "session.deleted": "ours are never deleted there",
    "file.edited": "the tool's result tells the same, with the diff",
    "file.watcher.updated": "the server watches by itself",
    "command.executed": "told by the server, which knows the command",
    "message.removed": "only after a revert, which the server does itself",
    "message.part.removed": "the same",
    "sync": "Kilo tells each event once more in another form",
}
"""Types of events that are known and not used -> why."""

IGNORED_FAMILIES = kit.by_reason(
    {
        "its catalogue is asked for": "plugin. catalog. models-dev.",
        "state of its own": "reference. integration.",
        "the server has its own projects": "project. workspace. worktree.",
        "the server looks by itself": "vcs.",
        "diagnostics are in the tools' results": "lsp.",
        "its tools are called by their names": "mcp.",
        "an update of it is not ours to offer": "installation.",
        "an editor of its own user interface": "ide.",
        "its own user interface": "tui.",
        "terminals are the server's": "pty.",
        "another API of the same server": "session.next.",
        "of the whole server, not of a session": "global.",
        "of Kilo's own sandbox": "sandbox.",
        "Kilo's own queue: it gets one prompt at a time": "session.queue.",
        "Kilo's words for busy and idle, which it tells too": "session.turn. session.drain.",
    }
)
"""Prefixes of types of events that are known and not used -> why."""

IGNORED_PARTS: Mapping[str, str] = {
    "step-start": "a message is a step",
    "step-finish": "message.updated tells the same tokens and reason",
    "snapshot": "its own undo",
    "patch": "its own undo",
    "retry": "session.status tells it",
    "agent": "of a prompt",
    "file": "of a prompt",
    "subtask": "of a prompt",
}
"""Types of message parts that are known and not used -> why."""


def time_of(event_id: str) -> int | None:
    """The time of an event from its id, in milliseconds modulo 2^36."""
    try:
        return int(event_id.partition("_")[2][:12], 16) >> 12
    except ValueError:
        return None


def delay_ms(next_ms: int, event_id: str, attempt: int) -> int:
    """Milliseconds until a retry: from its event to `next`, or the observed 2 s, 4 s, 8 s ... if that is not valid."""
    time_ms = time_of(event_id)
    if time_ms is not None and 0 <= (wait := (next_ms - time_ms) % 2**36) <= 3_600_000:
        return wait
    return 1000 * 2 ** min(max(attempt, 1), 5)


def model_ref(model: str | None) -> Msg | None:
    """`provider/model` as OpenCode's model reference: the provider's id has no slash, the model's may."""
    provider, _, id_ = (model or "").partition("/")
    return {"providerID": provider, "modelID": id_} if id_ else None


def prompt_body(prompt: Prompt, message: str) -> Msg:
    """The body of `prompt_async`."""
    parts: list[Msg] = [{"type": "text", "text": prompt.text}] if prompt.text or not prompt.attachments else []
    body: Msg = {"parts": [*parts, *file_parts(prompt)]}
    fields = {
        "messageID": message,
        "model": model_ref(prompt.model),
        "variant": prompt.variant,
        "agent": prompt.mode,
        "system": prompt.system,
    }
    return body | {key: value for key, value in fields.items() if value}


def command_body(prompt: Prompt, message: str, name: str, arguments: str) -> Msg:
    """The body of `command`, for a prompt that begins with a command of OpenCode."""
    body: Msg = {"command": name, "arguments": arguments}
    fields = {
        "messageID": message,
        "model": prompt.model if model_ref(prompt.model) else None,
        "variant": prompt.variant,
        "agent": prompt.mode,
        "parts": file_parts(prompt),
    }
    return body | {key: value for key, value in fields.items() if value}


def file_parts(prompt: Prompt) -> list[Msg]:
    """Attachments as file parts: bytes as data URLs, else a URL of the file."""
    rows: list[Msg] = []
    for attachment in prompt.attachments:
        url = kit.attachment_url(attachment)
        if url:
            name = {"filename": attachment.filename} if attachment.filename else {}
            rows.append({"type": "file", "mime": attachment.mime, "url": url, **name})
    return rows


def read_catalogue(providers: Json, config: Json, commands: Json, agents: Json) -> Catalogue:
    """Read answers of `/config/providers`, `/config`, `/command` and `/agent`. An error is left out."""
    models = [
        _model(obj(provider), obj(model))
        for provider in arr(obj(providers).get("providers"))
        for model in obj(obj(provider).get("models")).values()
    ]
    ids = {model.id for model in models}
    model_ids = [text(obj(config).get("model"))]
    model_ids += [f"{provider}/{model}" for provider, model in obj(obj(providers).get("default")).items()]
    default = next((id_ for id_ in model_ids if id_ in ids), DEFAULT_MODEL.id)
    rows = [obj(command) for command in arr(commands)]
    return Catalogue(
        models=(*models, DEFAULT_MODEL),
        commands=tuple(
            SlashCommand(text(row.get("name")), text(row.get("description")), " ".join(map(str, arr(row.get("hints")))))
            for row in rows
            if text(row.get("name"))
        ),
        default_model=default,
        modes=modes_of(agents, "name"),
    )


def _model(provider: Msg, model: Msg) -> Model:
    can, limit = obj(model.get("capabilities")), obj(model.get("limit"))
    return Model(
        id=f"{text(provider.get('id'))}/{text(model.get('id'))}",
        name=f"{text(model.get('name')) or text(model.get('id'))} ({text(provider.get('name')) or text(provider.get('id'))})",
        variants=tuple(obj(model.get("variants"))),
        reasoning=can.get("reasoning") is True,
        images=obj(can.get("input")).get("image") is True,
        context=limit_of(limit.get("context")),
        output=limit_of(limit.get("output")),
        price=_price(model.get("cost")),
    )


def _price(value: Json) -> tuple[float, float, float, float] | None:
    """What OpenCode says that a model costs; None if it says nothing. Clients call a model without a price free."""
    cost = obj(value)
    cache = obj(cost.get("cache"))
    if not cost:
        return None
    return _dollars(cost.get("input")), _dollars(cost.get("output")), _dollars(cache.get("read")), _dollars(cache.get("write"))


def _dollars(value: Json) -> float:
    return value if isinstance(value, (int, float)) else 0


def error_of(native: Json) -> dict[str, Json]:
    """Convert an error `{name, data}` (or `{_tag, message}`) to a universal one. `details.opencode` is the original."""
    fields, data = obj(native), obj(obj(native).get("data"))
    name = text(fields.get("name")) or text(fields.get("_tag")) or "UnknownError"
    message = text(data.get("message")) or text(fields.get("message")) or name
    details = error_details(fields) if fields.get("name") and "data" in fields else {}
    if isinstance(data.get("statusCode"), int):
        details["status_code"] = data["statusCode"]
    if isinstance(data.get("isRetryable"), bool):
        details["is_retryable"] = data["isRetryable"]
    return {"message": message, "code": name, **({"details": details} if details else {})}
