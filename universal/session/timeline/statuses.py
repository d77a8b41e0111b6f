"""Status items in a session's timeline: the inbox, the session's properties, undo, skills. Pure.

`STATUSES` is the table: label -> what it does. Metadata of labels that no other module describes:

    prompt     state "delivery" with item_id, delivery; "withdrawn" with item_id: a person took it out of the inbox
    viewed     idle (ms): the end of a turn that a person has seen
    skill      id, name, text
    synthetic  text, description?, metadata?: a text in the conversation that no agent answers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from universal.lib.jsonvalue import arr, obj, text, whole
from universal.session import importer
from universal.session.entries import (
    EndEntry,
    InstructionsEntry,
    ModeEntry,
    ModelEntry,
    MovedEntry,
    NoteEntry,
    Place,
    PromptEntry,
    SkillEntry,
    StagedUndo,
    StepEntry,
)
from universal.session.log import (
    ContentChanged,
    DeliveryChanged,
    EntryAdded,
    InstructionsChanged,
    MetadataChanged,
    PromptAccepted,
    PromptDelivered,
    PromptWithdrawn,
    RulesChanged,
    SessionArchived,
    SessionUnarchived,
    SessionViewed,
    TitleChanged,
    UndoCleared,
    UndoCommitted,
    UndoStaged,
)
from universal.session.model import Session
from universal.session.timeline.log_writer import LogWriter
from universal.session.timeline.steps import StepsWriter
from universal.session.user_prompt import SkillText
from universal.session.values import ModelRef, SessionRecord

Metadata = Mapping[str, Any]


def plain(model: ModelRef | None) -> ModelRef | None:
    """The model, with None for the name of its default variant."""
    return replace(model, variant=None) if model is not None and model.variant in ("", "default") else model


class StatusesWriter:
    """Writes what the status items of one session change in its timeline.

    `prompt_of_item` gives the id of the prompt that an item became, `message_of_item` that of the answer that it is part of.
    """

    def __init__(
        self,
        session: Session,
        log: LogWriter,
        steps: StepsWriter,
        *,
        deliver: Callable[[list[str]], None],
        prompt_of_item: Callable[[str], str],
        message_of_item: Callable[[str], str],
    ) -> None:
        self._session = session
        self._timeline = session.timeline
        self._log = log
        self._steps = steps
        self._deliver = deliver
        self._prompt_of_item = prompt_of_item
        self._message_of_item = message_of_item

    # --- the session's properties --------------------------------------------------------------------------

    def record_changed(self, new: SessionRecord, *, choices: frozenset[str]) -> None:
        """Write what has changed in the record. `choices`: which of agent and model somebody selected.

        A session that has neither gets those of its first step; those of a later prompt are written if they differ.
        """
        timeline = self._timeline
        old = timeline.record or new
        timeline.record = replace(new, directory=old.directory, project_id=old.project_id, path=old.path)
        if (new.archived_ms is None) != (old.archived_ms is None):
            self._log.write(SessionUnarchived() if new.archived_ms is None else SessionArchived())
        if new.title != old.title:
            self._log.write(TitleChanged(new))
        if (new.metadata or {}) != (old.metadata or {}):
            self._log.write(MetadataChanged(new))
        if (new.permission or ()) != (old.permission or ()):
            self._log.write(RulesChanged(new))
        mode, model = timeline.mode, timeline.model
        if new.mode and new.mode != mode and (mode is not None or "agent" in choices):
            timeline.mode = new.mode
            self._add(ModeEntry(self._log.next_message_id(), self._log.at, new.mode, mode))
        new_model = plain(new.model)
        if new_model is not None and new_model != plain(model) and (model is not None or "model" in choices):
            timeline.model = new_model
            self._add(ModelEntry(self._log.next_message_id(), self._log.at, new_model, model))

    def _add(self, entry: ModeEntry | ModelEntry | MovedEntry | SkillEntry | NoteEntry) -> None:
        self._log.write(EntryAdded(entry))
        self._timeline.entries[entry.id] = entry

    def mark_viewed(self, meta: Metadata) -> None:
        """Note that a person has seen the end of a turn."""
        self._timeline.viewed_ms = whole(meta.get("idle"))
        self._log.write(SessionViewed(self._timeline.viewed_ms))

    # --- prompts -------------------------------------------------------------------------------------------

    def prompt(self, meta: Metadata) -> None:
        """Deliver, withdraw or cancel a prompt, or change its delivery, as its status says."""
        inbox, state = self._timeline.inbox, meta.get("state")
        id_ = self._prompt_of_item(text(meta.get("item_id")))
        waiting = inbox.get(id_)
        if state == "handed":
            carried = {text(prompt_id) for prompt_id in arr(meta.get("carried"))}
            self._instructions_changed(obj(meta.get("instructions")))
            self._deliver([prompt_id for prompt_id in inbox if prompt_id in carried and prompt_id != id_] + [id_])
        elif waiting is None:
            return
        elif state == "withdrawn" or (state == "cancelled" and waiting.kind == "compaction"):
            self.withdraw(id_)
        elif state == "cancelled":
            self._timeline.cancelled = id_
        elif state == "delivery":
            delivery = "queue" if meta.get("delivery") == "queue" else "steer"
            inbox[id_] = replace(waiting, delivery=delivery)
            self._log.write(DeliveryChanged(id_, delivery))

    def take_cancelled(self) -> list[str]:
        """Take the last cancelled prompt, which belongs to the error that follows it in the journal."""
        cancelled, self._timeline.cancelled = self._timeline.cancelled, ""
        return [cancelled] if cancelled else []

    def _instructions_changed(self, meta: Metadata) -> None:
        """Write the changed instructions that go along with a prompt. The session's first ones are no message."""
        if not meta:
            return
        entry = None
        if "text" in meta:
            entry = InstructionsEntry(self._log.next_message_id(), self._log.at, text(meta["text"]))
        self._log.write(InstructionsChanged(obj(meta["delta"]) if "delta" in meta else None, entry))
        if entry is not None:
            self._timeline.entries[entry.id] = entry

    def withdraw(self, id_: str) -> None:
        """Remove a waiting prompt, which will never be delivered."""
        if self._timeline.inbox.pop(id_, None) is not None:
            self._log.write(PromptWithdrawn(id_))

    # --- what is put in, taken out, rewritten --------------------------------------------------------------

    def move(self, meta: Metadata) -> None:
        """Add the entry of a move to another directory."""
        record, old = self._session.record, self._timeline.record or self._session.record
        self._timeline.record = record
        place = Place(text(meta.get("directory")), text(meta.get("project_id")), text(meta.get("path")) or None)
        previous = Place(old.directory, old.project_id, old.path or None)
        self._add(MovedEntry(self._log.next_message_id(), self._log.at, place, previous))

    def skill(self, meta: Metadata) -> None:
        """Add a skill that was put into the conversation."""
        self.add_skill(SkillText(text(meta.get("id")), text(meta.get("name")), text(meta.get("text"))))

    def add_skill(self, skill: SkillText) -> str:
        """Add the entry of a skill that was put into the conversation. Returns the entry's id."""
        id_ = self._log.next_message_id()
        self._add(SkillEntry(id_, self._log.at, skill.id, skill.name, skill.text))
        return id_

    def note(self, meta: Metadata) -> None:
        """Add a text that was put into the conversation."""
        id_, description = self._log.next_message_id(), text(meta.get("description")) or None
        self._add(NoteEntry(id_, self._log.at, text(meta.get("text")), description, obj(meta.get("metadata")) or None))

    def revert(self, meta: Metadata) -> None:
        """Stage an undo, take it back or make it final."""
        timeline, new = self._timeline, importer.revert(meta.get("revert"))
        if new is not None:
            timeline.staged = StagedUndo(new, importer.diffs(meta.get("diffs")))
            self._log.write(UndoStaged(timeline.staged))
            return
        staged, timeline.staged = timeline.staged, None
        for message_id in {text(message_id): None for message_id, _ in map(arr, arr(meta.get("parts")))}:
            self._rewrite(message_id)
        removed = [self._entry_id(text(message_id)) for message_id in arr(meta.get("messages"))]
        for id_ in removed:
            self.withdraw(id_)
        first = timeline.entries.first_of(removed)
        if first is not None:
            self._cut(first)
        elif staged is not None:
            self._log.write(UndoCleared())

    def _entry_id(self, message_id: str) -> str:
        return self._timeline.ids.get(message_id, message_id)

    def _cut(self, first: str) -> None:
        """Remove the entries from this one on. A prompt among them whose message remains is delivered again."""
        timeline, messages = self._timeline, self._session.messages
        cut = [timeline.entries.pop(id_) for id_ in list(timeline.entries.ids_since(first))]
        self._log.write(UndoCommitted(first))
        for entry in cut:
            if isinstance(entry, PromptEntry) and entry.id in messages:
                prompt = replace(entry.prompt, delivery="steer", number=timeline.number)
                self._log.write(PromptAccepted(prompt))
                self._log.write(PromptDelivered(prompt, is_again=True))
                timeline.entries[entry.id] = PromptEntry(entry.id, self._log.at, prompt)
            elif isinstance(entry, StepEntry) and entry.message_id in messages:
                timeline.hidden.add(entry.message_id)

    def message_removed(self, meta: Metadata) -> None:
        """Remove a message's entry for a client. The log can remove only the last ones, and empties other steps."""
        timeline, id_ = self._timeline, self._entry_id(text(meta.get("message_id")))
        self.withdraw(id_)
        entry = timeline.entries.get(id_)
        if entry is None:
            return
        if all(isinstance(later, EndEntry) for later in islice(timeline.entries.since(id_), 1, None)):
            self._cut(id_)
            if timeline.staged is not None:  # a commit ends what is staged, but this was none
                self._log.write(UndoStaged(timeline.staged))
            return
        if isinstance(entry, StepEntry):
            self._log.write(ContentChanged(replace(entry, content=())))
        del timeline.entries[id_]

    def retract(self, meta: Metadata) -> None:
        """Remove the answers that the agent has taken back."""
        for item_id in map(text, arr(meta.get("item_ids"))):
            self.message_removed({"message_id": self._message_of_item(item_id)})

    def part_changed(self, meta: Metadata) -> None:
        """Rewrite a step after a client changed or removed a part. For prompts there is no such event."""
        self._rewrite(text(meta.get("message_id")) or text(obj(meta.get("part")).get("messageID")))

    def _rewrite(self, message_id: str) -> None:
        message = self._session.messages.get(message_id)
        if message is not None:
            self._steps.rewrite(message_id, message)


STATUSES: dict[str, Callable[[StatusesWriter, Metadata], object]] = {
    "prompt": StatusesWriter.prompt,
    "viewed": StatusesWriter.mark_viewed,
    "moved": StatusesWriter.move,
    "skill": StatusesWriter.skill,
    "synthetic": StatusesWriter.note,
    "revert": StatusesWriter.revert,
    "message.removed": StatusesWriter.message_removed,
    "retracted": StatusesWriter.retract,
    "part.removed": StatusesWriter.part_changed,
    "part.updated": StatusesWriter.part_changed,
}
"""Other labels change no timeline, or do it by the reducer's changes (retry ...)."""
