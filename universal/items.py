"""Items and their content parts: what a session is made of.

Shapes follow the universal session transcript schema; `metadata` is our documented extension point
(keys listed at `Item`). All values are frozen. Unknown *input* never reaches these models: codecs
translate what they know and report the rest as `agent.unparsed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Json: TypeAlias = Any
"""A JSON value as `orjson.loads` gives it."""


class Frozen(BaseModel):
    """Base of all universal values: immutable, exact."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants", defer_build=True)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """Create a value from all its fields, in their order, without validation. Use it for values that come in thousands.

        It takes a fifth of the time of `model_construct`, which looks for aliases and defaults one by one.
        """
        value, put = cls.__new__(cls), object.__setattr__
        put(value, "__dict__", fields)
        put(value, "__pydantic_fields_set__", _all_of(cls))
        put(value, "__pydantic_extra__", None)
        put(value, "__pydantic_private__", None)
        return value

    @classmethod
    def all_from_fields(cls, all_fields: Iterable[dict[str, Any]]) -> list[Self]:
        """Create several values as `from_fields` does, with one call for all."""
        values: list[Self] = []
        names, put = _all_of(cls), object.__setattr__
        for fields in all_fields:
            value = cls.__new__(cls)
            put(value, "__dict__", fields)
            put(value, "__pydantic_fields_set__", names)
            put(value, "__pydantic_extra__", None)
            put(value, "__pydantic_private__", None)
            values.append(value)
        return values


@lru_cache(maxsize=64)
def _all_of(cls: type[BaseModel]) -> set[str]:
    """Return the names of a model's fields. All values share the set, since pydantic copies it before it changes it."""
    return set(cls.model_fields)


class ItemKind(StrEnum):
    """The kind of an item."""

    MESSAGE = "message"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    SYSTEM = "system"
    STATUS = "status"
    UNKNOWN = "unknown"


class ItemRole(StrEnum):
    """The speaker of an item."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class ItemStatus(StrEnum):
    """The state of an item: in_progress -> (completed | failed)."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"


class TextPart(Frozen):
    """Plain text."""

    type: Literal["text"] = "text"
    text: str


class JsonPart(Frozen):
    """Structured JSON content."""

    type: Literal["json"] = "json"
    json_: Json = Field(alias="json")

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class ToolCallPart(Frozen):
    """A tool invocation; `arguments` is JSON text, possibly still incomplete while in progress."""

    type: Literal["tool_call"] = "tool_call"
    name: str
    arguments: str
    call_id: str


class ToolResultPart(Frozen):
    """The result of the tool call `call_id`, as text."""

    type: Literal["tool_result"] = "tool_result"
    call_id: str
    output: str


class FileRefPart(Frozen):
    """A file that was read, written or patched; `diff` is a unified diff (`---`/`+++`/`@@`)."""

    type: Literal["file_ref"] = "file_ref"
    path: str
    action: Literal["read", "write", "patch"]
    diff: str | None = None


class ImagePart(Frozen):
    """An image: `path` is a file path, or a data URL when the agent sent the bytes."""

    type: Literal["image"] = "image"
    path: str
    mime: str | None = None


class ReasoningPart(Frozen):
    """The model's reasoning."""

    type: Literal["reasoning"] = "reasoning"
    text: str
    visibility: Literal["public", "private"] = "public"


class StatusPart(Frozen):
    """A status line: `label` from the closed list at `Item`, `detail` for people."""

    type: Literal["status"] = "status"
    label: str
    detail: str | None = None


ContentPart = Annotated[
    TextPart | JsonPart | ToolCallPart | ToolResultPart | FileRefPart | ImagePart | ReasoningPart | StatusPart,
    Field(discriminator="type"),
]


class Item(Frozen):
    """One unit of content: a message, a tool call, its result, or a status.

    `metadata` keys (all optional, nothing of the base schema is renamed):

    assistant message   usage {input, output, reasoning, cache_read, cache_write} tokens of this step;
                        cost (USD, this step); model {provider_id, model_id, variant};
                        finish ("stop" | "tool-calls" | "length" | ...); synthetic_text (bool)
    user message        opencode {...}: what the OpenCode face must give back (its ids, agent, model);
                        prompt {...}: what its agent is given of it (shim.sessions.prompts.prompt_payload)
    tool_call           title (str), input (parsed arguments, if they are JSON)
    tool_result         exit_code, stdout, stderr, duration_ms, interrupted (bool), answers (str[][]),
                        todos, background (bool), structured (the agent's own structured result),
                        refusals (str[]: what a sandbox has refused the call),
                        title (str: the agent's, for a tool whose card has none of its own)
    status "retry"      attempt, message, delay_ms
    status "todo"       todos [{content, status, priority}]
    status "compaction" phase ("started" | "completed" | "failed"), auto (bool),
                        summary (str: what the agent keeps of the conversation, where it tells)
    status "title"      title
    status "model"      model_id, variant
    status "mode"       mode (one of the codec's modes)
    status "mcp"        servers {name: {status ("connected" | "disabled" | "failed" | "needs_auth"), error?}}: the agent's, all
    status "limits"     windows {name: {used (0 to 1), resets_at (s since 1970, 0: not told)}}: of the person's plan
    status "retracted"  item_ids (str[]): messages that the agent takes back, because another model answers instead
    status "commands"   nothing but the label's detail; informational
    """

    item_id: str
    native_item_id: str | None = None
    parent_id: str | None = None
    kind: ItemKind
    role: ItemRole | None = None
    status: ItemStatus
    content: tuple[ContentPart, ...] = ()
    metadata: dict[str, Json] | None = None

    @property
    def status_part(self) -> StatusPart | None:
        """The line of a status item; None of all others."""
        for part in self.content if self.kind is ItemKind.STATUS else ():
            if isinstance(part, StatusPart):
                return part
        return None
