"""Checks a prompt that a face has decoded, chooses its agent, model and mode, and makes what is stored, shown and sent.

Everything that can be wrong with a prompt is found here, before anything is stored: a bad or used id, an unknown
agent or model. Files are read through `shim.host.files.prompt_files`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shim.agents.directory import Agent, AgentDirectory
from shim.host.config.opencode_config import UNREAD, OpenCodeConfig
from shim.host.files.prompt_files import read_part
from shim.lib.errors import InvalidRequest, MessageExists
from shim.lib.ids import ID_FORM, ID_LIMIT, Ids, is_id
from shim.sessions.permissions.unattended_policy import Caps
from shim.sessions.prompts.pending_prompt import PendingPrompt
from shim.sessions.prompts.prompt_payload import PromptPayload, accepted_prompt, attachment
from shim.sessions.session.dependencies import SessionDeps
from universal.agent_spec import modes_of
from universal.codec import Attachment, Model
from universal.items import ContentPart, FileRefPart, ImagePart, TextPart
from universal.lib.jsonvalue import JsonObject, text
from universal.permissions import BUILD
from universal.session.model import Session
from universal.session.user_prompt import NO_DETAILS, PromptDetails, UserPrompt, model_json
from universal.session.values import AgentMention, File, ModelRef, OtherPart, Part, StepInfo, Text
from universal.setup import ConfigAgent
from universal.unattended_policy import UnattendedPolicy

AGENT_HINT = " Use the above message and context to generate a prompt and call the task tool with subagent: "
"""What native adds for `@agent`, to the letter."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The agent, model, variant and mode that answer a prompt.

    `model`: as the agent gets it; `model_ref`: as the user's message names it; `refused`: as of `PendingPrompt`.
    `base`: the mode of the coding agent, if `mode` is an agent of the configuration.
    """

    agent: Agent
    model: str | None
    variant: str | None
    mode: str
    model_ref: ModelRef
    refused: str = ""
    base: str = ""


class UnknownChoice(InvalidRequest):
    """There is no such provider, model or agent. The message says which there are."""


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """What a face makes of a request with a prompt. Parts without an id get one when they are shown."""

    parts: Sequence[Part]
    message_id: str | None = None
    model: ModelRef | None = None
    mode: str | None = None
    variant: str | None = None
    system: str | None = None
    tools: dict[str, bool] | None = None
    format: JsonObject | None = None
    unattended: UnattendedPolicy | None = None
    caps: Caps | None = None
    details: PromptDetails = NO_DETAILS


SUBTASK = "subtask"
"""Type of the part that asks for a subagent: {prompt, description, agent, model?, command?}."""
INSTEAD = "Choose another one, then send the next prompt: this one goes along with it."
"""What a person can do about a prompt whose agent or model does not exist."""
OWN_CHOICE = "default"
"""Model id of prompts that came before the agent had told its models, and of the rest of such a session: what it is set to."""
CAREFUL = frozenset({"plan", "read-only"})
"""Modes in which nothing is changed: a prompt in one of them never runs in another instead."""


async def choose(deps: SessionDeps, session: Session, body: PromptRequest) -> Choice:
    """Resolve agent, model and mode: what the prompt says, else what the session used last, else what the configuration says.

    Raises UnknownChoice.
    """
    agents, config = deps.agents, deps.config_now(session.record.directory) or UNREAD
    last = session.record.model or ModelRef("", "")
    if agents.get(last.provider_id) is None and _is_imported(session, last):
        last = ModelRef("", "")  # it was another server's
    named = body.mode or session.record.mode or text(config.personal_values.get("default_agent")) or BUILD
    own = config.agents.get(named)
    own_model = await _model_of_own(agents, config, own) if own is not None and body.model is None else None
    wish = body.model or own_model or ModelRef("", "")
    provider = wish.provider_id or last.provider_id
    model_id = wish.model_id or last.model_id
    if not provider:
        provider, model_id = await _default_model(deps, session.record.directory, config)
    agent = await agents.offer(provider) if config.offers(provider) else None
    if agent is None:
        names = ", ".join(a.spec.name for a in agents.usable() if config.offers(a.spec.name)) or "none"
        missing = agents.get(provider)
        why = f" {missing.located.why}" if missing is not None and missing.located.why else ""
        why = why if config.offers(provider) else ' "disabled_providers" of opencode.json has it.'
        raise UnknownChoice(f'Provider not found: "{provider}".{why} Available: {names}.')
    if agent.spec.abilities.setup.reads_own:
        agent = await _agent_there(deps, agent, session.record.directory, model_id, body.mode or session.record.mode)
    catalogue = agent.catalogue
    model_id = model_id or catalogue.default_model or (catalogue.models[0].id if catalogue.models else OWN_CHOICE)
    model = _model(agent, model_id)
    if model is None:
        raise UnknownChoice(f'Model not found: "{provider}/{model_id}". Available: {", ".join(m.id for m in catalogue.models)}.')
    agent_modes = [m.id for m in modes_of(agent.spec, agent.catalogue) if m.id not in config.disabled_agents]
    mode = body.mode or session.record.mode or _default_mode(config, [*agent_modes, *config.primary_agents])
    base = ""
    if mode in config.primary_agents and mode not in agent_modes:
        if agent.spec.abilities.setup.reads_own:  # it would run without the agent's rules, which it reads itself
            raise UnknownChoice(f'{agent.spec.title} does not have the agent "{mode}" here. Trust the project if it is its own.')
        base = BUILD
    elif mode not in agent_modes:
        modes = {m.id for a in agents.usable() for m in modes_of(a.spec, a.catalogue)} - config.disabled_agents
        modes |= config.primary_agents.keys()
        if mode not in modes:
            raise UnknownChoice(f'Agent not found: "{mode}". Available agents: {", ".join(sorted(modes))}.')
        if mode in CAREFUL:
            modes_text = ", ".join(agent_modes)
            raise UnknownChoice(f'{agent.spec.title} has no mode "{mode}", so nothing was sent. It has: {modes_text}.')
        mode = "build"
    same_model = body.model is None or last.model_id == model_id
    variant = body.variant or (own_model.variant if own_model is not None else last.variant if same_model else None)
    if variant in ("default", "") or variant not in model.variants:
        variant = None
    is_chosen = model_id != OWN_CHOICE or model in catalogue.models
    return Choice(agent, model_id if is_chosen else None, variant, mode, ModelRef(provider, model_id, variant), base=base)


async def _model_of_own(agents: AgentDirectory, config: OpenCodeConfig, own: ConfigAgent) -> ModelRef | None:
    """The model of an agent of the configuration, with its variant; None if it names none that an agent here has."""
    provider, _, model_id = own.model.partition("/")
    agent = await agents.offer(provider) if model_id and config.offers(provider) else None
    is_here = agent is not None and _model(agent, model_id) is not None
    return ModelRef(provider, model_id, own.variant or None) if is_here else None


async def _agent_there(deps: SessionDeps, agent: Agent, directory: str, model_id: str, mode: str | None) -> Agent:
    """An agent that reads OpenCode's configuration, as it is in this directory. It is asked for what it is not known to have."""
    known = deps.local_offers.at(agent, directory)
    has_mode = mode is None or any(mode == other.id for other in modes_of(known.spec, known.catalogue))
    if has_mode and (not model_id or _model(known, model_id) is not None):
        return known
    return await deps.local_offers.ask(agent, directory)


async def _default_model(deps: SessionDeps, directory: str, config: OpenCodeConfig) -> tuple[str, str]:
    """The agent and the model of prompts that name none. A configured model that no agent here has does not count."""
    agents = deps.agents
    provider, _, model_id = (config.model or "").partition("/")
    agent = await agents.offer(provider) if model_id and config.offers(provider) else None
    if agent is not None and agent.spec.abilities.setup.reads_own:
        agent = await _agent_there(deps, agent, directory, model_id, None)
    if agent is not None and _model(agent, model_id) is not None:
        return provider, model_id
    default = agents.default().spec.name
    others = (agent.spec.name for agent in agents.usable() if config.offers(agent.spec.name))
    return default if config.offers(default) else next(others, default), ""


def _default_mode(config: OpenCodeConfig, modes: Sequence[str]) -> str:
    """The mode of prompts that name none. A project may only choose a careful one, since strangers may have written its files."""
    project, personal = (values.get("default_agent") for values in (config.project_values, config.personal_values))
    wish = project if project in CAREFUL else personal
    return wish if isinstance(wish, str) and (wish in modes or wish in CAREFUL) else "build"


def refusal(agents: AgentDirectory, session: Session, body: PromptRequest, why: UnknownChoice) -> Choice:
    """What a prompt is accepted with that OpenCode 2 accepts, and that fails when its turn comes."""
    model = session.record.model or ModelRef("", "")
    mode = body.mode or session.record.mode or "build"
    return Choice(agents.default(), None, None, mode, body.model or replace(model, variant=None), f"{why} {INSTEAD}")


def _is_imported(session: Session, model: ModelRef) -> bool:
    """Whether this model has answered here: none of ours can have."""
    infos = (message.info for message in session.messages.values())
    return any(isinstance(info, StepInfo) and info.model.provider_id == model.provider_id for info in infos)


def _model(agent: Agent, id_: str) -> Model | None:
    """The model of this id; None if there is none. Before an agent has told its models, it is the judge of their ids."""
    models = agent.catalogue.models
    for model in models:
        if model.id == id_:
            return model
    untold = not models or agent.catalogue is agent.spec.abilities.catalogue
    return Model(id_, id_) if untold or id_ == OWN_CHOICE else None


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
        if part.id and not part.id.startswith("prt"):
            raise InvalidRequest(f'Expected a string starting with "prt", got "{part.id}"', path=("parts", index, "id"))
        if part.id and not is_id(part.id, "prt"):
            raise InvalidRequest(f'Expected {ID_FORM}, got "{part.id[:ID_LIMIT]}"', path=("parts", index, "id"))


async def accept(body: PromptRequest, choice: Choice, ids: Ids, roots: Sequence[str] = ()) -> tuple[PendingPrompt, list[str]]:
    """Read files, make the user message. Returns the prompt, and errors about files to be told (the turn goes on)."""
    parts: list[Part] = []
    texts: list[int | str] = []
    files: list[JsonObject] = []
    content: list[ContentPart] = []
    errors: list[str] = []
    for part in body.parts:
        match part:
            case Text():
                if not part.ignored:
                    texts.append(len(parts))
                    content.append(TextPart(text=part.text))
                parts.append(part)
            case File():
                file = await read_part(part.url, part.mime, part.filename, roots)
                parts += [Text("", words, synthetic=True) for words in file.texts]
                text_at = len(parts) - 1 if file.texts else None
                if file.keep:
                    is_media = file.attachment is not None and file.attachment.base64 is not None
                    mime = file.attachment.mime if file.attachment is not None and is_media else part.mime
                    parts.append(replace(part, url=file.url or part.url, mime=mime))
                if file.error:
                    errors.append(file.error)
                if file.attachment is not None:
                    files.append(attachment(file.attachment, text_at, len(parts) - 1 if file.keep else None))
                    content.append(_content(file.attachment, part.url))
            case AgentMention():
                texts.append(len(parts) + 1)
                parts += [part, Text("", f"{AGENT_HINT}{part.name}", synthetic=True)]
            case OtherPart(type="subtask"):
                model = part.fields.get("model") or model_json(replace(choice.model_ref, variant=None))
                parts.append(replace(part, fields={**part.fields, "model": model}))
                texts.append(f"Use a subagent ({part.fields.get('agent')}) for this task: {part.fields.get('prompt')}")
            case _:
                raise InvalidRequest(f"A prompt has no part of type {type(part).__name__}.")
    prompt = UserPrompt(
        message_id=body.message_id or "",
        parts=tuple(parts),
        mode=choice.mode,
        model=choice.model_ref,
        system=body.system,
        tools=body.tools,
        format=body.format,
        details=body.details,
    )
    payload = PromptPayload(
        choice.agent.spec.name,
        choice.model,
        tuple(texts),
        tuple(files),
        refused=choice.refused,
        unattended=body.unattended,
        caps=body.caps,
        mode=choice.base,
    )
    return accepted_prompt(ids.new("item"), prompt, payload, tuple(content)), errors


def _content(attachment: Attachment, url: str) -> ContentPart:
    if attachment.mime.startswith("image/"):
        path = f"data:{attachment.mime};base64,{attachment.base64}" if attachment.base64 else attachment.path or url
        return ImagePart(path=path, mime=attachment.mime)
    return FileRefPart(path=attachment.path or attachment.filename or url[:200], action="read")
