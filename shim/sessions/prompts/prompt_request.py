"""A prompt body of a client -> what is stored, shown and handed to the agent.

Everything that can be wrong with a prompt is found here, before anything is stored: a bad or used id, an unknown
agent or model. Files are read through `shim.host.prompt_files`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shim.agents.directory import Agent, AgentDirectory
from shim.errors import InvalidRequest, MessageExists
from shim.host.prompt_files import read_part
from shim.ids import ID_FORM, ID_LIMIT, Ids, is_id
from shim.sessions.prompts.pending_prompt import PendingPrompt
from shim.sessions.prompts.prompt_payload import attachment, pending_prompt_of
from universal.codec import Attachment, Model, modes_of
from universal.items import ContentPart, FileRefPart, ImagePart, Item, ItemKind, ItemRole, ItemStatus, TextPart
from universal.jsonvalue import JsonObject, obj, text
from universal.session.model import ModelRef, Session, StepInfo
from universal.unattended_policy import UnattendedPolicy

AGENT_HINT = " Use the above message and context to generate a prompt and call the task tool with subagent: "
"""What native adds for `@agent`, to the letter."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The agent, model, variant and mode that answer a prompt.

    `wire`: as in a user message's `model`; `refused`: as of `PendingPrompt`.
    """

    agent: Agent
    model: str | None
    variant: str | None
    mode: str
    wire: JsonObject
    refused: str = ""


class UnknownChoice(InvalidRequest):
    """There is no such provider, model or agent. The message says which there are."""


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """The fields of a prompt request that matter here, already of the right types."""

    parts: Sequence[JsonObject]
    message_id: str | None = None
    model: JsonObject | None = None
    mode: str | None = None
    variant: str | None = None
    system: str | None = None
    tools: dict[str, bool] | None = None
    format: JsonObject | None = None
    unattended: UnattendedPolicy | None = None


INSTEAD = "Choose another one, then send the next prompt: this one goes along with it."
"""What a person can do about a prompt whose agent or model does not exist."""
OWN_CHOICE = "default"
"""Model id of prompts that came before the agent had told its models, and of the rest of such a session: what it is set to."""
CAREFUL = frozenset({"plan", "read-only"})
"""Modes in which nothing is changed: a prompt in one of them never runs in another instead."""


async def choose(agents: AgentDirectory, session: Session, body: PromptRequest) -> Choice:
    """Resolve agent, model and mode: what the prompt says, else what the session used last, else the defaults.

    Raises UnknownChoice.
    """
    last = session.record.model or ModelRef("", "")
    if agents.get(last.provider_id) is None and _is_imported(session, last):
        last = ModelRef("", "")  # it was another server's
    provider = text(obj(body.model).get("providerID")) or last.provider_id
    model_id = text(obj(body.model).get("modelID")) or last.model_id
    found = await agents.available(only=provider or agents.default().spec.name)
    if not provider:
        default = agents.default()
        provider, model_id = default.spec.name, ""
    agent = next((a for a in found if a.spec.name == provider), None)
    if agent is None:
        names = ", ".join(a.spec.name for a in found)
        missing = agents.get(provider)
        why = f" {missing.located.why}" if missing is not None and missing.located.why else ""
        raise UnknownChoice(f'Provider not found: "{provider}".{why} Available: {names}.')
    catalogue = agent.catalogue
    model_id = model_id or catalogue.default_model or (catalogue.models[0].id if catalogue.models else OWN_CHOICE)
    model = _model(agent, model_id)
    if model is None:
        raise UnknownChoice(f'Model not found: "{provider}/{model_id}". Available: {", ".join(m.id for m in catalogue.models)}.')
    mode = body.mode or session.record.mode or "build"
    modes = {m.id for a in found for m in modes_of(a.spec, a.catalogue)}
    if mode not in modes:
        raise UnknownChoice(f'Agent not found: "{mode}". Available agents: {", ".join(sorted(modes))}.')
    own = [m.id for m in modes_of(agent.spec, agent.catalogue)]
    if mode not in own:
        if mode in CAREFUL:
            raise UnknownChoice(f'{agent.spec.title} has no mode "{mode}", so nothing was sent. It has: {", ".join(own)}.')
        mode = "build"
    same_model = not body.model or last.model_id == model_id
    variant = body.variant or (last.variant if same_model else None)
    if variant in ("default", "") or variant not in model.variants:
        variant = None
    wire: JsonObject = {"providerID": provider, "modelID": model_id, **({"variant": variant} if variant else {})}
    named = model_id != OWN_CHOICE or model in catalogue.models
    return Choice(agent, model_id if named else None, variant, mode, wire)


def refusal(agents: AgentDirectory, session: Session, body: PromptRequest, why: UnknownChoice) -> Choice:
    """What a prompt is accepted with that OpenCode 2 accepts, and that fails when its turn comes."""
    model = session.record.model or ModelRef("", "")
    wire = obj(body.model) or {"providerID": model.provider_id, "modelID": model.model_id}
    mode = body.mode or session.record.mode or "build"
    return Choice(agents.default(), None, None, mode, wire, f"{why} {INSTEAD}")


def _is_imported(session: Session, model: ModelRef) -> bool:
    """Whether this model has answered here: none of ours can have."""
    infos = (message.info for message in session.messages.values())
    return any(isinstance(info, StepInfo) and info.model.provider_id == model.provider_id for info in infos)


def _model(agent: Agent, id_: str) -> Model | None:
    """The model of this id; None if there is none. Before an agent has told its models, it is the judge of their ids."""
    models = agent.catalogue.models
    found = next((m for m in models if m.id == id_), None)
    untold = not models or agent.catalogue is agent.spec.default_catalogue
    return found or (Model(id_, id_) if untold or id_ == OWN_CHOICE else None)


def check_ids(session: Session, body: PromptRequest) -> None:
    """Client-made ids: right prefix, never used before. Raises InvalidRequest, MessageExists."""
    if body.message_id is not None:
        if not body.message_id.startswith("msg"):
            raise InvalidRequest(f'Expected a string starting with "msg", got "{body.message_id}"', path=("messageID",))
        if not is_id(body.message_id, "msg"):
            raise InvalidRequest(f'Expected {ID_FORM}, got "{body.message_id[:ID_LIMIT]}"', path=("messageID",))
        if body.message_id in session.messages:
            raise MessageExists(body.message_id)
    for index, part in enumerate(body.parts):
        id_ = part.get("id")
        if id_ is not None and not str(id_).startswith("prt"):
            raise InvalidRequest(f'Expected a string starting with "prt", got "{id_}"', path=("parts", index, "id"))
        if id_ is not None and not is_id(id_, "prt"):
            raise InvalidRequest(f'Expected {ID_FORM}, got "{str(id_)[:ID_LIMIT]}"', path=("parts", index, "id"))


async def accept(body: PromptRequest, choice: Choice, ids: Ids, roots: Sequence[str] = ()) -> tuple[PendingPrompt, list[str]]:
    """Read files, make the user message. Returns the prompt, and errors about files to be told (the turn goes on)."""
    parts: list[JsonObject] = []
    texts: list[int | str] = []
    files: list[JsonObject] = []
    content: list[ContentPart] = []
    errors: list[str] = []
    for part in body.parts:
        kind = part.get("type")
        if kind == "text":
            if not part.get("ignored"):
                texts.append(len(parts))
                content.append(TextPart(text=text(part.get("text"))))
            parts.append({k: part.get(k) for k in ("id", "type", "text", "synthetic", "ignored", "metadata", "time")})
        elif kind == "file":
            file = await read_part(text(part.get("url")), text(part.get("mime"), "text/plain"), part.get("filename"), roots)
            parts += [{"type": "text", "text": t, "synthetic": True} for t in file.texts]
            told = len(parts) - 1 if file.texts else None
            if file.keep:
                parts.append({**{k: part.get(k) for k in ("id", "type", "mime", "filename", "url", "source")}, **file.extra})
            if file.error:
                errors.append(file.error)
            if file.attachment is not None:
                files.append(attachment(file.attachment, told, len(parts) - 1 if file.keep else None))
                content.append(_content(file.attachment, text(part.get("url"))))
        elif kind == "agent":
            parts.append({k: part.get(k) for k in ("id", "type", "name", "source")})
            texts.append(len(parts))
            parts.append({"type": "text", "text": f"{AGENT_HINT}{part.get('name')}", "synthetic": True})
        elif kind == "subtask":
            subtask = {k: part.get(k) for k in ("id", "type", "prompt", "description", "agent", "model", "command")}
            parts.append({**subtask, "model": part.get("model") or {k: choice.wire[k] for k in ("providerID", "modelID")}})
            texts.append(f"Use a subagent ({part.get('agent')}) for this task: {part.get('prompt')}")
    given: dict[str, Any] = {
        "message_id": body.message_id,
        "parts": [{k: v for k, v in p.items() if v is not None} for p in parts],
        "agent": choice.mode,
        "model": choice.wire,
        "system": body.system,
        "tools": body.tools,
        "format": body.format,
    }
    prompt = {"agent": choice.agent.spec.name, "model": choice.model, "text": texts, "files": files or None}
    prompt["refused"] = choice.refused or None
    prompt["unattended"] = str(body.unattended) if body.unattended is not None else None
    item = Item(
        item_id=ids.new("item"),
        kind=ItemKind.MESSAGE,
        role=ItemRole.USER,
        status=ItemStatus.COMPLETED,
        content=tuple(content),
        metadata={"opencode": _present(given), "prompt": _present(prompt)},
    )
    accepted = pending_prompt_of(item)
    assert accepted is not None
    return accepted, errors


def _present(given: JsonObject) -> JsonObject:
    return {key: value for key, value in given.items() if value is not None}


def _content(attachment: Attachment, url: str) -> ContentPart:
    if attachment.mime.startswith("image/"):
        path = f"data:{attachment.mime};base64,{attachment.base64}" if attachment.base64 else attachment.path or url
        return ImagePart(path=path, mime=attachment.mime)
    return FileRefPart(path=attachment.path or attachment.filename or url[:200], action="read")
