"""A prompt as its sender wrote it, and its JSON in the item of its user message. Pure.

The item keeps it in `metadata.opencode`; journals of all ages have that form. An item that was made of a prompt carries the
prompt too (`PromptItem`), so that it is decoded from journals alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Literal, TypeAlias

from pydantic import PrivateAttr

from universal.items import ContentPart, Item, ItemKind, ItemRole, ItemStatus, Json
from universal.lib.jsonvalue import arr, obj, text
from universal.session import importer
from universal.session.values import NO_FIELDS, AgentMention, CompactionMark, Fields, File, ModelRef, OtherPart, Part, Text

Delivery: TypeAlias = Literal["steer", "queue"]
"""When an agent is sent it: before those that queue, or after all that waits. Both after the answer that the agent gives now."""
PromptKind: TypeAlias = Literal["user", "synthetic", "skill"]


@dataclass(frozen=True, slots=True)
class SkillText:
    """A skill that a client puts into the conversation."""

    id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class PromptDetails:
    """The details of a prompt that an inbox shows beside its parts. They are sent to no agent.

    delivery  "queue": after all prompts that wait; None where the client knows no inbox
    kind      None is a person's prompt
    skill     of a prompt of kind "skill"
    files, agents, skills  what the text mentions, in the form in which the inbox shows it
    """

    delivery: Delivery | None = None
    kind: PromptKind | None = None
    skill: SkillText | None = None
    description: str = ""
    metadata: Fields | None = None
    files: tuple[Fields, ...] = ()
    agents: tuple[Fields, ...] = ()
    skills: tuple[Fields, ...] = ()


NO_DETAILS = PromptDetails()


@dataclass(frozen=True, slots=True)
class UserPrompt:
    """A prompt with its parts, mode and model. Its ids are those that its client chose (empty: none)."""

    message_id: str = ""
    parts: tuple[Part, ...] = ()
    mode: str = ""
    model: ModelRef | None = None
    system: str | None = None
    tools: Fields | None = None
    format: Fields | None = None
    details: PromptDetails = NO_DETAILS

    def with_delivery(self, delivery: Delivery) -> UserPrompt:
        """The same prompt with another place in the inbox."""
        return replace(self, details=replace(self.details, delivery=delivery))

    def without_ids(self) -> UserPrompt:
        """The same prompt without the ids that its client chose."""
        return replace(self, message_id="", parts=tuple(replace(part, id="") for part in self.parts))


NO_PROMPT = UserPrompt()


class PromptItem(Item):
    """The item of a user message that was made of a prompt here. Its JSON is that of any item."""

    _prompt: UserPrompt = PrivateAttr(default=NO_PROMPT)
    _stored: Json = PrivateAttr(default=None)

    @property
    def prompt(self) -> UserPrompt | None:
        """The prompt of which the item was made; None if this copy of the item has got another one."""
        return self._prompt if self.metadata is not None and self.metadata.get("opencode") is self._stored else None

    @classmethod
    def of(
        cls, item_id: str, prompt: UserPrompt, content: tuple[ContentPart, ...] = (), metadata: Mapping[str, Json] = NO_FIELDS
    ) -> PromptItem:
        """An item with this prompt and these metadata besides."""
        stored = prompt_json(prompt)
        item = cls(
            item_id=item_id,
            kind=ItemKind.MESSAGE,
            role=ItemRole.USER,
            status=ItemStatus.COMPLETED,
            content=content,
            metadata={**metadata, "opencode": stored},
        )
        item._prompt, item._stored = prompt, stored
        return item


def with_prompt(item: Item, prompt: UserPrompt) -> Item:
    """The item with another prompt in it."""
    return PromptItem.of(item.item_id, prompt, item.content, obj(item.metadata))


def prompt_of(item: Item) -> UserPrompt:
    """The prompt in the item of a user message; an empty prompt if the item has none."""
    if isinstance(item, PromptItem) and (prompt := item.prompt) is not None:
        return prompt
    fields = obj(obj(item.metadata).get("opencode"))
    parts = ({key: value for key, value in obj(row).items() if value is not None} for row in arr(fields.get("parts")))
    return UserPrompt(
        message_id=text(fields.get("message_id")),
        parts=tuple(importer.part(wire) for wire in parts),
        mode=text(fields.get("agent")),
        model=importer.message_model(fields.get("model")),
        system=fields.get("system"),
        tools=fields.get("tools"),
        format=fields.get("format"),
        details=_details_of(fields),
    )


def _details_of(fields: Fields) -> PromptDetails:
    delivery, kind, skill = fields.get("delivery"), fields.get("kind"), obj(fields.get("skill"))
    return PromptDetails(
        delivery=delivery if delivery in ("steer", "queue") else None,
        kind=kind if kind in ("user", "synthetic", "skill") else None,
        skill=SkillText(text(skill.get("id")), text(skill.get("name")), text(skill.get("text"))) if skill else None,
        description=text(fields.get("description")),
        metadata=obj(fields.get("metadata")) or None,
        files=tuple(map(obj, arr(fields.get("files")))),
        agents=tuple(map(obj, arr(fields.get("agents")))),
        skills=tuple(map(obj, arr(fields.get("skills")))),
    )


def prompt_json(prompt: UserPrompt) -> dict[str, Any]:
    """The prompt as an item keeps it."""
    stored: dict[str, Any] = {"message_id": prompt.message_id} if prompt.message_id else {}
    stored["parts"] = list(map(part_json, prompt.parts))
    stored |= _without_empty(agent=prompt.mode, model=None if prompt.model is None else model_json(prompt.model))
    stored |= _present(system=prompt.system, tools=prompt.tools, format=prompt.format)
    return stored if prompt.details is NO_DETAILS else stored | _details_json(prompt.details)


def model_json(model: ModelRef) -> dict[str, Any]:
    """A model as the user message's item names it."""
    wire = {"providerID": model.provider_id, "modelID": model.model_id}
    return {**wire, "variant": model.variant} if model.variant else wire


def part_json(part: Part) -> dict[str, Any]:
    """A part of a prompt. Raises TypeError for a part that no prompt has."""
    match part:
        case Text():
            fields = {"text": part.text} | _present(synthetic=part.synthetic, ignored=part.ignored, metadata=part.metadata)
            if part.start_ms is not None or part.end_ms is not None:
                fields["time"] = _present(start=part.start_ms, end=part.end_ms)
            return _part_json(part.id, "text", fields | dict(part.extra))
        case File():
            name = _present(filename=part.filename)
            fields = {"mime": part.mime} | name | {"url": part.url} | _present(source=part.source) | dict(part.extra)
            return _part_json(part.id, "file", fields)
        case AgentMention():
            return _part_json(part.id, "agent", {"name": part.name} | _present(source=part.source) | dict(part.extra))
        case CompactionMark():
            return _part_json(part.id, "compaction", {"auto": part.auto, **part.extra})
        case OtherPart():
            return _part_json(part.id, part.type, part.fields)
        case _:
            raise TypeError(f"A prompt has no part of type {type(part).__name__}.")


def _part_json(part_id: str, type_: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": part_id, "type": type_, **fields} if part_id else {"type": type_, **fields}


def _details_json(details: PromptDetails) -> dict[str, Any]:
    skill = details.skill
    return _without_empty(
        files=list(details.files),
        agents=list(details.agents),
        skills=list(details.skills),
        description=details.description,
        metadata=details.metadata,
        delivery=details.delivery,
        kind=details.kind,
        skill=None if skill is None else {"id": skill.id, "name": skill.name, "text": skill.text},
    )


def _present(**fields: Any) -> dict[str, Any]:
    present: dict[str, Any] = {}
    for key, value in fields.items():
        if value is not None:
            present[key] = value
    return present


def _without_empty(**fields: Any) -> dict[str, Any]:
    return dict(filter(itemgetter(1), fields.items()))
