"""Compactions and a person's shell commands in a session's timeline. Pure.

Their messages are the agent's, but no steps of its model.

A compaction's entry has the id of the prompt that asked for it, if there is one.
"""

from __future__ import annotations

from dataclasses import replace

from universal.lib.jsonvalue import obj, text
from universal.session.entries import CompactionEntry, ShellEntry
from universal.session.log import CompactionBegan, CompactionEnded, CompactionFailed, ShellBegan, ShellEnded
from universal.session.messages import Message
from universal.session.model import Session
from universal.session.timeline.log_writer import LogWriter
from universal.session.values import Part, StepInfo, Text, ToolCall


class AsidesWriter:
    """Writes compactions and shell commands of one session."""

    def __init__(self, session: Session, log: LogWriter) -> None:
        self._session = session
        self._timeline = session.timeline
        self._log = log

    def has(self, message_id: str) -> bool:
        """Whether this message is a compaction or a shell command."""
        return message_id in self._timeline.shells or self._compaction(message_id) is not None

    # --- compactions ---------------------------------------------------------------------------------------

    def _compaction(self, message_id: str) -> CompactionEntry | None:
        entry = self._timeline.entry_of(message_id)
        return entry if isinstance(entry, CompactionEntry) and entry.message_id == message_id else None

    def begin_compaction(self, info: StepInfo, *, is_auto: bool) -> None:
        """Begin a compaction. `info` is of the message that will have the summary."""
        timeline = self._timeline
        prompt_id = info.parent_id if info.parent_id in timeline.wishes else None
        id_ = prompt_id or self._log.next_message_id()
        entry = CompactionEntry(id_, info.id, self._log.at, is_auto, prompt_id)
        self._log.write(CompactionBegan(entry))
        timeline.ids[info.id] = id_
        if is_auto:
            timeline.ids[info.parent_id] = id_
        timeline.entries.pop(id_, None)
        timeline.entries[id_] = entry

    def end_compaction(self, info: StepInfo, message: Message | None) -> bool:
        """End a compaction with its summary or its failure. Returns False if none was running."""
        entry = self._compaction(info.id)
        if entry is None or entry.status != "running":
            return False
        if info.error is not None:
            entry = replace(entry, status="failed", failure=info.error)
            self._log.write(CompactionFailed(entry))
        else:
            entry = replace(entry, status="completed")
            self._log.write(CompactionEnded(entry, summary_of(message)))
        self._timeline.entries[entry.id] = entry
        return True

    # --- shell commands ------------------------------------------------------------------------------------

    def expect_shell(self, info: StepInfo) -> None:
        """Note that this message will have a person's command."""
        self._timeline.shells[info.id] = ""

    def part(self, info: StepInfo, part: Part) -> None:
        """Take a new or changed part: a shell command's tool call begins or ends its entry."""
        if not isinstance(part, ToolCall) or info.id not in self._timeline.shells:
            return
        if not self._timeline.shells[info.id] and part.status != "pending":
            self._begin_shell(info, part)
        entry = self._timeline.entries.get(self._timeline.shells[info.id])
        if isinstance(entry, ShellEntry) and entry.status == "running" and part.status in ("completed", "error"):
            self._end_shell(entry, part)

    def _begin_shell(self, info: StepInfo, call: ToolCall) -> None:
        timeline, id_ = self._timeline, self._log.next_message_id()
        directory, command = self._session.record.directory, text(call.input.get("command"))
        entry = ShellEntry(id_, info.id, call.call_id, self._log.at, command, directory)
        self._log.write(ShellBegan(entry))
        timeline.shells[info.id] = timeline.ids[info.id] = timeline.ids[info.parent_id] = id_
        timeline.entries[id_] = entry

    def _end_shell(self, entry: ShellEntry, call: ToolCall) -> None:
        exit_ = obj(call.metadata).get("exit")
        code = exit_ if isinstance(exit_, int) else None
        is_killed = code is None or code < 0
        entry = replace(entry, status="killed" if is_killed else "exited", exit=code, completed_ms=self._log.at)
        self._log.write(ShellEnded(entry, call))
        self._timeline.entries[entry.id] = entry


def summary_of(message: Message | None) -> str:
    """The summary that a compaction has made of the conversation."""
    parts = message.all_parts() if message is not None else ()
    return "\n".join(part.text for part in parts if isinstance(part, Text))
