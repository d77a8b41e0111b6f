"""A prompt as it is handed to its agent: with what its agent has missed, what was undone, and the instructions. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from shim.sessions.prompts import context
from shim.sessions.prompts.pending_prompt import PendingPrompt
from shim.sessions.session_state import SessionState
from shim.sessions.undo.undo_notes import UndoNotes
from universal.codec import Prompt
from universal.jsonvalue import JsonObject


@dataclass(frozen=True, slots=True)
class PromptDispatch:
    """`carried`: messages that go along; `journal_entry`: what the journal keeps of it."""

    prompt: Prompt
    carried: tuple[str, ...]
    journal_entry: JsonObject


def prepare(state: SessionState, accepted: PendingPrompt, waiting: Iterable[PendingPrompt], undone: UndoNotes) -> PromptDispatch:
    """In: `waiting`, those that will be handed later. The note of what was undone is taken: it is journal_entry once."""
    if accepted.prompt.compact:  # it compacts what it knows; the rest goes along with the next prompt
        return PromptDispatch(accepted.prompt, (), accepted.journal_entry() | context.NOTHING.journal_entry())
    missed = context.missed_context(state.session, accepted.agent, {accepted.message_id, *(one.message_id for one in waiting)})
    due = state.instructions.due()
    words = undone.note(accepted.agent) + missed.text + accepted.prompt.text
    prompt = replace(accepted.prompt, text=words, system=due.with_system(accepted.prompt.system))
    return PromptDispatch(prompt, missed.message_ids, accepted.journal_entry() | missed.journal_entry() | due.journal_entry)
