"""A prompt as it is handed to its agent: with what its agent has missed, what was undone, and the instructions. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from shim.sessions import context
from shim.sessions.accepted import Accepted
from shim.sessions.branch import Branch
from shim.sessions.rewind import UndoneNotes
from universal.codec import Prompt
from universal.jsonvalue import JsonObject


@dataclass(frozen=True, slots=True)
class Handed:
    """`carried`: messages that go along; `told`: what the journal keeps of it."""

    prompt: Prompt
    carried: tuple[str, ...]
    told: JsonObject


def handed(branch: Branch, accepted: Accepted, waiting: Iterable[Accepted], undone: UndoneNotes) -> Handed:
    """In: `waiting`, those that will be handed later. The note of what was undone is taken: it is told once."""
    if accepted.prompt.compact:  # it compacts what it knows; the rest goes along with the next prompt
        return Handed(accepted.prompt, (), accepted.told() | context.NOTHING.told())
    missed = context.missed(branch.session, accepted.agent, {accepted.message_id, *(one.message_id for one in waiting)})
    due = branch.instructions.due()
    words = undone.note(accepted.agent) + missed.text + accepted.prompt.text
    prompt = replace(accepted.prompt, text=words, system=due.joined(accepted.prompt.system))
    return Handed(prompt, missed.message_ids, accepted.told() | missed.told() | due.told)
