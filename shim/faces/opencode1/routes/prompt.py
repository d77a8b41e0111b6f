"""Decodes the bodies of prompts, slash commands and shell commands, and submits them.

Source: `docs/wire.md` section 7; recordings `body_fields`, `command`, `shell`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shim.faces.opencode1 import read
from shim.faces.opencode1._generated import requests
from shim.faces.opencode1.endpoint import operation
from shim.faces.opencode1.routes.session import SessionPath, need_idle
from shim.faces.opencode1.wire_event import FACE
from shim.http.operation import Ctx
from shim.lib.errors import AnswerNotFound, InvalidRequest
from shim.sessions.permissions.unattended_policy import terms_of_headers
from shim.sessions.prompts.command import command as run_command
from shim.sessions.prompts.command import init as run_init
from shim.sessions.prompts.compact import compact as run_compact
from shim.sessions.prompts.prompt_request import SUBTASK, PromptRequest
from shim.sessions.prompts.server_commands import templates
from shim.sessions.prompts.shell_turn import shell as run_shell
from shim.sessions.prompts.structured_answers import check_format
from shim.sessions.prompts.submit import submit
from universal.lib.jsonvalue import JsonObject, obj
from universal.session.values import AgentMention, File, ModelRef, OtherPart, Part, Text

if TYPE_CHECKING:
    from shim.faces.opencode1._generated.types import MessageWithParts


class PromptModel(BaseModel):
    """`model` of a prompt."""

    providerID: str
    modelID: str
    variant: str | None = None


class PromptPart(BaseModel):
    """A part of a prompt. Only the required keys of its type are checked."""

    model_config = ConfigDict(extra="allow")

    type: str

    @model_validator(mode="after")
    def _complete(self) -> PromptPart:
        needed = {"text": ("text",), "file": ("mime", "url"), "agent": ("name",), "subtask": ("prompt", "description", "agent")}
        if self.type not in needed:
            raise ValueError(f'Expected "text" | "file" | "agent" | "subtask", got "{self.type}"')
        extra = self.model_extra or {}
        for key in needed[self.type]:
            if not isinstance(extra.get(key), str):
                raise ValueError(f'a {self.type} part needs "{key}"')  # noqa: TRY004 - pydantic reports ValueError
        return self

    def value(self, index: int) -> Part:
        """The part as the core has it; what has no place in it is left out. Raises InvalidRequest for an id of no part."""
        fields = self.model_extra or {}
        id_ = fields.get("id")
        if id_ is not None and not str(id_).startswith("prt"):
            raise InvalidRequest(f'Expected a string starting with "prt", got "{id_}"', path=("parts", index, "id"))
        return _VALUES[self.type](id_ or "", fields)


def _text(part_id: str, fields: JsonObject) -> Text:
    time = obj(fields["time"]) if "time" in fields else {}
    optional = fields.get("synthetic"), fields.get("ignored"), fields.get("metadata")
    return Text(part_id, fields["text"], time.get("start"), time.get("end"), *optional)


def _file(part_id: str, fields: JsonObject) -> File:
    return File(part_id, fields["mime"], fields["url"], fields.get("filename"), fields.get("source"))


def _agent(part_id: str, fields: JsonObject) -> AgentMention:
    return AgentMention(part_id, fields["name"], fields.get("source"))


def _subtask(part_id: str, fields: JsonObject) -> OtherPart:
    keys = ("prompt", "description", "agent", "model", "command")
    return OtherPart(part_id, SUBTASK, {key: fields[key] for key in keys if fields.get(key) is not None})


_VALUES: Mapping[str, Callable[[str, JsonObject], Part]] = {"text": _text, "file": _file, "agent": _agent, SUBTASK: _subtask}


def _values(parts: Sequence[PromptPart]) -> tuple[Part, ...]:
    return tuple(map(PromptPart.value, parts, range(len(parts))))


class PromptBody(BaseModel):
    """`POST /session/{id}/message` and `/prompt_async`. The Python SDK sends providerID and modelID at the top level."""

    parts: list[PromptPart]
    messageID: str | None = None
    model: PromptModel | None = None
    providerID: str | None = None
    modelID: str | None = None
    agent: str | None = None
    mode: str | None = None
    noReply: bool = False
    system: str | None = None
    tools: dict[str, bool] | None = None
    variant: str | None = None
    format: dict[str, Any] | None = None

    def body(self) -> PromptRequest:
        model: ModelRef | None = None
        if self.model is not None:
            model = ModelRef(self.model.providerID, self.model.modelID, self.model.variant)
        elif self.providerID is not None and self.modelID is not None:
            model = ModelRef(self.providerID, self.modelID)
        return PromptRequest(
            parts=_values(self.parts),
            message_id=self.messageID,
            model=model,
            mode=self.agent or self.mode,
            variant=self.variant or (self.model.variant if self.model is not None else None),
            system=self.system,
            tools=self.tools,
            format=self.format,
        )


@operation("session.prompt_async")
async def prompt_async(ctx: Ctx, path: SessionPath, body: PromptBody) -> None:
    """Submit a prompt. 204 once the prompt is stored and the session shows as busy."""
    await _submit(ctx, path.sessionID, body)


@operation("session.prompt")
async def prompt(ctx: Ctx, path: SessionPath, body: PromptBody) -> object:
    """Submit a prompt, and return the turn's last assistant message at its end; with `noReply`, the user's message at once."""
    message_id = await _submit(ctx, path.sessionID, body)
    if body.noReply:
        session = await ctx.services.sessions.session(path.sessionID)
        return read.message(session.messages[message_id], session.id)
    return await _answer(ctx, path.sessionID, message_id)


async def _submit(ctx: Ctx, session_id: str, body: PromptBody) -> str:
    if body.format is not None:  # here the way of a prompt is counted in calls
        check_format(body.format)
    prompt_request = replace(body.body(), **terms_of_headers(ctx.request.headers))
    message_id = await submit(ctx.services.sessions, session_id, prompt_request, reply=not body.noReply)
    await ctx.services.store.flush(session_id)
    return message_id


async def _answer(ctx: Ctx, session_id: str, message_id: str) -> MessageWithParts:
    state = await ctx.services.sessions.state(session_id)
    await state.idle()
    # `opencode run` exits at this answer and prints only the events that it read before, so streams go first.
    await ctx.services.hub.settle(state.session.record.directory, face=FACE)
    last = next((message for message in state.session.newest_first() if not message.is_user), None)
    if last is None:
        raise AnswerNotFound(message_id)
    return read.message(last, session_id)


class CommandBody(BaseModel):
    """`POST /session/{id}/command`. `model` is "provider/model"."""

    command: str
    arguments: str
    messageID: str | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    parts: list[PromptPart] = Field(default_factory=list[PromptPart])


@operation("session.command")
async def command(ctx: Ctx, path: SessionPath, body: CommandBody) -> object:
    """Run a template (the server's or the config's) or a command of the agent. It answers like a prompt."""
    model: ModelRef | None = None
    if body.model:
        provider, _, model_id = body.model.partition("/")
        model = ModelRef(provider, model_id)
    directory = ctx.services.sessions.index.record(path.sessionID).directory
    config = await ctx.services.config.fresh(directory)
    message_id = await run_command(
        ctx.services.sessions,
        templates(directory, config.commands),
        path.sessionID,
        body.command,
        body.arguments,
        PromptRequest(
            parts=_values(body.parts),
            message_id=body.messageID,
            model=model,
            mode=body.agent,
            variant=body.variant,
            **terms_of_headers(ctx.request.headers),
        ),
    )
    await ctx.services.store.flush(path.sessionID)
    return await _answer(ctx, path.sessionID, message_id)


@operation("session.init")
async def init(ctx: Ctx, path: SessionPath, body: requests.InitBody) -> object:
    """Let the agent write AGENTS.md. It answers at the end of the turn."""
    model = ModelRef(body.providerID, body.modelID)
    prompt_request = PromptRequest((), body.messageID, model, **terms_of_headers(ctx.request.headers))
    message_id = await run_init(ctx.services.sessions, path.sessionID, prompt_request)
    await ctx.services.store.flush(path.sessionID)
    await _answer(ctx, path.sessionID, message_id)
    return True


@operation("session.summarize")
async def summarize(ctx: Ctx, path: SessionPath, body: requests.SummarizeBody) -> object:
    """Let the agent compact its conversation. It answers at the end: false on failure (the session has the reason)."""
    model = ModelRef(body.providerID, body.modelID)
    compacted = await run_compact(ctx.services.sessions, path.sessionID, model, auto=body.auto is True)
    await ctx.services.hub.settle(ctx.services.sessions.index.record(path.sessionID).directory, face=FACE)
    return compacted


class ShellBody(BaseModel):
    """`POST /session/{id}/shell`."""

    command: str
    agent: str
    messageID: str | None = None
    model: PromptModel | None = None


@operation("session.shell")
async def shell(ctx: Ctx, path: SessionPath, body: ShellBody) -> object:
    """Run a user's command in the session's directory, shown as a turn. The agent gets it with the next prompt."""
    await need_idle(ctx, path.sessionID)
    await run_shell(ctx.services.sessions, path.sessionID, body.command, body.agent, body.messageID)
    return await _answer(ctx, path.sessionID, body.command)
