"""Defines how an agent's own files of conversations are read, so that one begun in its own program goes on here. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from universal.lib.jsonvalue import JsonObject

if TYPE_CHECKING:
    from universal.codec import Fact, IdFactory


class Conversation(NamedTuple):
    """A conversation that an agent has stored. `created`: RFC3339; `title`: its name, or the beginning of its first prompt."""

    id: str
    directory: str
    title: str
    created: str


class ConversationPrompt(NamedTuple):
    """A prompt of such a conversation."""

    text: str


ConversationEvent: TypeAlias = "tuple[str, ConversationPrompt | Fact]"
"""(time as RFC3339, what was said)."""


@dataclass(frozen=True, slots=True)
class ConversationFiles:
    """Where and how.

    files    glob below the agent's own folder (`AgentSpec.own_folder`); each is a file of JSON lines whose name is the id
    read     from lines of the beginning and of the end of a file: the conversation, or None
    events   from all lines: what was said, in order
    command  what continues it in the agent's own program, with {id}
    """

    files: str
    read: Callable[[Sequence[JsonObject]], Conversation | None]
    events: Callable[[Sequence[JsonObject], IdFactory], Iterator[ConversationEvent]]
    command: str
