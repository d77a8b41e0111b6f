"""Steps of the model in a session's timeline. Pure.

Native OpenCode ends a thought when the model goes on with something else, and a text when its tools begin to work. Here both
grow until their message is complete. So `settle` ends open texts before an event that shows that the model has gone on.
If more of a text comes after all, its whole text is written once more, in the end.

Owner of: a step's beginning before what belongs to it; text began, deltas, ended, always; calls: began, input, ran, progress,
success or failure; ordinals, which count for each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from universal.lib.jsonvalue import obj, text
from universal.session import log, values
from universal.session.entries import CallPiece, Piece, Retry, StepEntry, TextPiece
from universal.session.messages import Message
from universal.session.model import Session
from universal.session.timeline.log_writer import LogWriter

NO_MODEL = values.ModelRef("", "")


class StepsWriter:
    """Writes the steps of one session."""

    def __init__(self, session: Session, log_writer: LogWriter) -> None:
        self._session = session
        self._timeline = session.timeline
        self._log = log_writer

    def entry(self, message_id: str) -> StepEntry | None:
        """The step that shows a message; None if there is none."""
        entry = self._timeline.entry_of(message_id)
        return entry if isinstance(entry, StepEntry) and entry.message_id == message_id else None

    def open_steps(self) -> list[tuple[str, StepEntry]]:
        """The steps that have not ended, with the ids of their messages."""
        return [(id_, entry) for id_ in self._timeline.open if (entry := self.entry(id_)) is not None]

    def _put(self, entry: StepEntry) -> StepEntry:
        self._timeline.entries[entry.id] = entry
        return entry

    # --- the step ------------------------------------------------------------------------------------------

    def begin(self, info: values.StepInfo, snapshot: str | None, *, since_ms: int | None = None) -> None:
        """Begin the step of a message. One that a retry has promised keeps the promised id.

        `since_ms`: when the model was asked, for a message that exists only to carry an error. Without it such a step would
        last 0 ms, and clients would show no duration for the turn.
        """
        self.release()
        timeline = self._timeline
        promised = timeline.entries.get(timeline.promised)
        timeline.promised = ""
        at = self._log.at
        if isinstance(promised, StepEntry):
            entry = replace(promised, message_id=info.id)
            timeline.ids[info.id] = entry.id
        else:
            at = at if since_ms is None else since_ms
            mode = text(info.extra.get("agent")) or info.mode or "build"
            entry = StepEntry(info.id, info.id, at, mode, info.model, self._session.record.directory)
        timeline.open.append(info.id)
        self._start(replace(entry, snapshot=snapshot) if snapshot else entry, at)

    def _start(self, entry: StepEntry, at_ms: int) -> None:
        """Begin the step, or go on with it after a retry; `at_ms` is when the model was asked."""
        entry = self._put(replace(entry, retry=None))
        self._log.write(log.StepBegan(entry, at_ms), created_ms=at_ms)
        self._adopt(entry)

    def _adopt(self, entry: StepEntry) -> None:
        """Take mode and model of a session from its first step, if nobody has chosen them."""
        timeline = self._timeline
        timeline.mode = entry.mode if timeline.mode is None else timeline.mode
        timeline.model = entry.model if timeline.model is None else timeline.model

    def end_stream(self, message_id: str) -> None:
        """Note that the model's output of this step is complete; its tools may still run."""
        entry = self.entry(message_id) if message_id in self._timeline.open else None
        if entry is not None and entry.streamed_ms is None:
            self._log.write(log.StepStreamed(entry.id))
            self._put(replace(entry, streamed_ms=self._log.at))

    def finish(self, info: values.StepInfo, message: Message | None) -> None:
        """End the step of a message. `message` has its snapshot and what was changed.

        Agents may close a message before they say that it has failed or was interrupted; native has only the failure. So the end
        of one that was broken off is written with what comes next (`release`).
        """
        timeline = self._timeline
        if info.id not in timeline.open:
            self._fail_late(self.entry(info.id), info)
        elif info.error is not None or not _is_broken_off(info, message):
            self._finish(info, message)
        elif info.id not in timeline.held:
            timeline.held.append(info.id)

    def release(self) -> None:
        """End the steps that were broken off, because the turn goes on or ends without their failure."""
        message_ids, self._timeline.held = self._timeline.held, []
        for message_id in message_ids:
            message = self._session.messages.get(message_id)
            if message is not None and isinstance(message.info, values.StepInfo):
                self._finish(message.info, message)
            elif message_id in self._timeline.open:
                self._timeline.open.remove(message_id)

    def _finish(self, info: values.StepInfo, message: Message | None) -> None:
        timeline = self._timeline
        if info.id in timeline.held:
            timeline.held.remove(info.id)
        if info.id not in timeline.open:
            return
        timeline.open.remove(info.id)
        entry = self.entry(info.id)
        if entry is None:
            return
        usage, cost = info.usage, info.cost or 0
        if info.error is not None:
            is_paid = any((cost, usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_write))
            self._fail(replace(entry, cost=cost, usage=usage) if is_paid else entry, info.error, is_paid=is_paid)
            if is_paid:
                self.spend(usage, cost)
            return
        if entry.streamed_ms is None:
            self._log.write(log.StepStreamed(entry.id))
            entry = replace(entry, streamed_ms=self._log.at)
        finish = "stop" if info.finish is None else info.finish
        entry = replace(entry, finish=finish, cost=cost, usage=usage, completed_ms=self._log.at, retry=None)
        parts = list(message.parts.values()) if message is not None else []
        tree = next((part.snapshot for part in parts if isinstance(part, values.StepFinish) and part.snapshot), None)
        if tree is not None:
            files = (name for part in parts if isinstance(part, values.Patch) for name in part.files)
            entry = replace(entry, end_snapshot=tree, files=tuple(dict.fromkeys(files)))
        self._log.write(log.StepEnded(self._put(entry)))
        self.spend(usage, cost)

    def _fail(self, entry: StepEntry, failure: values.Failure, *, is_paid: bool = False) -> None:
        entry = replace(entry, failure=failure, completed_ms=self._log.at, retry=None)
        self._log.write(log.StepFailed(self._put(entry), is_paid))

    def _fail_late(self, entry: StepEntry | None, info: values.StepInfo) -> None:
        """Fail a step that has ended already: agents may close a message before they report its failure."""
        if entry is not None and info.error is not None and entry.failure is None:
            self._fail(entry, info.error)

    def spend(self, usage: values.Usage, cost: float) -> None:
        """Add to the session's totals (tokens, USD) and write them to the log."""
        self.total(self._timeline.usage + usage, self._timeline.cost + cost)

    def total(self, usage: values.Usage, cost: float) -> None:
        """Set the session's totals (tokens, USD) and write them to the log."""
        self._timeline.usage, self._timeline.cost = usage, cost
        self._log.write(log.UsageChanged(usage, cost))

    # --- retries -------------------------------------------------------------------------------------------

    def retry(self, open_id: str | None, status: values.Status, prompt: Callable[[], tuple[str, values.ModelRef | None]]) -> None:
        """Schedule a retry of the model. Without an open step, one is begun for the next message.

        All attempts count here; `status` counts those after the first one.
        """
        self.release()
        timeline = self._timeline
        entry = self.entry(open_id) if open_id is not None and open_id in timeline.open else None
        entry = entry or self._promised_step() or self._promise(*prompt())
        retry = Retry(status.attempt + 1, status.next_ms, status.message)
        if entry.retry is not None and entry.retry.attempt < retry.attempt:
            self._start(entry, self._log.at)
        self._log.write(log.RetryScheduled(self._put(replace(entry, retry=retry))))

    def _promised_step(self) -> StepEntry | None:
        entry = self._timeline.entries.get(self._timeline.promised)
        return entry if isinstance(entry, StepEntry) else None

    def _promise(self, mode: str, model: values.ModelRef | None) -> StepEntry:
        id_ = self._log.next_message_id()
        entry = StepEntry(id_, "", self._log.at, mode, model or NO_MODEL, self._session.record.directory)
        self._log.write(log.StepBegan(entry, self._log.at))
        self._adopt(entry)
        self._timeline.promised = id_
        return self._put(entry)

    def again(self) -> None:
        """Continue the open step after a retry's wait."""
        for _, entry in self.open_steps():
            if entry.retry is not None:
                self._start(entry, self._log.at)

    def give_up(self, *, is_interrupted: bool) -> None:
        """Fail the promised step that never came, at the end of the turn."""
        entry = self._promised_step()
        self._timeline.promised = ""
        if entry is not None:
            words = entry.retry.message if entry.retry is not None else ""
            self._fail(entry, values.ABORTED if is_interrupted else values.Failure(words, values.RETRY_FAILED))

    # --- texts ---------------------------------------------------------------------------------------------

    def settle(self, message_id: str, *, only_thoughts: bool = False) -> None:
        """End the growing texts of a message as they are now, because the model has gone on."""
        entry, message = self.entry(message_id), self._session.messages.get(message_id)
        if entry is None or message is None:
            return
        for index, piece in enumerate(entry.content):
            if isinstance(piece, TextPiece) and not piece.is_ended and (piece.is_thought or not only_thoughts):
                part = message.part(piece.part_id)
                assert isinstance(part, (values.Text, values.Reasoning))
                entry = self._end(entry, index, piece, part.text, is_early=True)

    def part(self, message_id: str, part: values.Part) -> None:
        """Take a new or changed part of a step's message."""
        if self.entry(message_id) is None:
            return
        if isinstance(part, (values.Text, values.Reasoning)):
            self._text(message_id, part)
        elif isinstance(part, values.ToolCall):
            self._call(message_id, part)

    def _text(self, message_id: str, part: values.Text | values.Reasoning) -> None:
        index = self._index(message_id, lambda piece: isinstance(piece, TextPiece) and piece.part_id == part.id)
        if index is None:
            self.settle(message_id, only_thoughts=True)
            index = self._add_text(message_id, part)
        entry, piece = self._at(message_id, index)
        assert isinstance(piece, TextPiece)
        if part.start_ms is not None and part.end_ms is None:
            return  # it still grows
        if not piece.is_ended or (piece.text is not None and piece.text != part.text):
            self._end(entry, index, piece, part.text)
        elif piece.text is not None:
            self._replace(entry, index, replace(piece, text=None))

    def _add_text(self, message_id: str, part: values.Text | values.Reasoning) -> int:
        entry = self.entry(message_id)
        assert entry is not None
        is_thought = isinstance(part, values.Reasoning)
        ordinal = sum(isinstance(piece, TextPiece) and piece.is_thought == is_thought for piece in entry.content)
        piece = TextPiece(part.id, is_thought, ordinal, self._log.at)
        self._log.write(log.TextBegan(entry.id, piece))
        self._put(replace(entry, content=(*entry.content, piece)))
        return len(entry.content)

    def _end(self, entry: StepEntry, index: int, piece: TextPiece, words: str, *, is_early: bool = False) -> StepEntry:
        piece = replace(piece, is_ended=True, ended_ms=self._log.at, text=words if is_early else None)
        self._log.write(log.TextEnded(entry.id, piece, words))
        return self._replace(entry, index, piece)

    # --- pieces --------------------------------------------------------------------------------------------

    def _index(self, message_id: str, is_match: Callable[[Piece], bool]) -> int | None:
        """The place of a piece in its step; the newest ones are looked at first."""
        entry = self.entry(message_id)
        content = entry.content if entry is not None else ()
        return next((index for index in range(len(content) - 1, -1, -1) if is_match(content[index])), None)

    def _at(self, message_id: str, index: int) -> tuple[StepEntry, Piece]:
        entry = self.entry(message_id)
        assert entry is not None
        return entry, entry.content[index]

    def _replace(self, entry: StepEntry, index: int, piece: Piece) -> StepEntry:
        content = (*entry.content[:index], piece, *entry.content[index + 1 :])
        return self._put(replace(entry, content=content))

    # --- tools ---------------------------------------------------------------------------------------------

    def _call_index(self, message_id: str, call_id: str) -> int | None:
        return self._index(message_id, lambda piece: isinstance(piece, CallPiece) and piece.call_id == call_id)

    def input_delta(self, call_id: str, delta: str) -> None:
        """Write a piece of a call's arguments, in the agent's own words."""
        message_id, _ = self._session.calls.get(call_id, ("", ""))
        index = self._call_index(message_id, call_id)
        if index is not None:
            entry, piece = self._at(message_id, index)
            if isinstance(piece, CallPiece) and piece.ran_ms is None:
                self._log.write(log.CallInputGrew(entry.id, call_id, delta))

    def _call(self, message_id: str, call: values.ToolCall) -> None:
        index = self._call_index(message_id, call.call_id)
        if index is None:
            self.settle(message_id, only_thoughts=True)
            entry = self.entry(message_id)
            assert entry is not None
            index = len(entry.content)
            piece = CallPiece(call.call_id, call.id, call.tool, self._log.at)
            self._log.write(log.CallBegan(entry.id, piece))
            self._put(replace(entry, content=(*entry.content, piece)))
        entry, piece = self._at(message_id, index)
        assert isinstance(piece, CallPiece)
        if call.status != "pending" and piece.ran_ms is None:
            piece = replace(piece, ran_ms=self._log.at, input=call.input)
            self._log.write(log.CallInputEnded(entry.id, piece, call))
            self._log.write(log.CallRan(entry.id, piece, call))
            self._replace(entry, index, piece)
        if call.status in ("completed", "error") or (call.status == "running" and call.metadata):
            self.settle(message_id)
            self._emit_call(message_id, index, call)

    def _emit_call(self, message_id: str, index: int, call: values.ToolCall) -> None:
        entry, piece = self._at(message_id, index)
        assert isinstance(piece, CallPiece)
        if call.status == "running":
            progress = _progress(piece.tool, call.metadata or {})
            if progress != piece.progress and piece.completed_ms is None:
                piece = replace(piece, progress=progress)
                self._log.write(log.CallProgressed(entry.id, piece, call))
                self._replace(entry, index, piece)
            return
        refused = call.refused if call.status == "error" else None
        piece = replace(piece, progress=None, completed_ms=self._log.at, refused=refused)
        change = log.CallSucceeded(entry, piece, call) if call.status == "completed" else log.CallFailed(entry.id, piece, call)
        self._log.write(change)
        self._replace(entry, index, replace(piece, input=None) if piece.input == call.input else piece)

    # --- rewritten by a person -----------------------------------------------------------------------------

    def rewrite(self, message_id: str, message: Message) -> None:
        """Rebuild the content of a step after parts of its message were changed or removed."""
        entry = self.entry(message_id)
        if entry is None:
            return
        calls = {piece.call_id: piece for piece in entry.content if isinstance(piece, CallPiece)}
        content: list[Piece] = []
        counts = {True: 0, False: 0}
        for part in message.all_parts():
            if isinstance(part, values.ToolCall) and part.call_id in calls:
                content.append(calls[part.call_id])
            elif isinstance(part, (values.Text, values.Reasoning)):
                is_thought = isinstance(part, values.Reasoning)
                content.append(TextPiece(part.id, is_thought, counts[is_thought], None, is_ended=True))
                counts[is_thought] += 1
        self._log.write(log.ContentChanged(self._put(replace(entry, content=tuple(content)))))


def _progress(tool: str, metadata: values.Fields) -> values.Fields:
    """The progress that a running call reports."""
    keys = {"task": ("sessionId",), "bash": ("output",)}.get(tool)
    return metadata if keys is None else {key: metadata[key] for key in keys if key in metadata}


def _is_broken_off(info: values.StepInfo, message: Message | None) -> bool:
    """Whether a message is over without an end of its own, or a call of it was interrupted."""
    if info.finish is None:
        return True
    calls = [part for part in (message.parts.values() if message is not None else ()) if isinstance(part, values.ToolCall)]
    return any(obj(call.metadata).get("interrupted") is True for call in calls)
