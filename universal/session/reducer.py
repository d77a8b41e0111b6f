"""Folds the universal events of one session into its state. Pure: the same journal gives the same session and changes.

In: `apply(event, at_ms)`, events in order of sequence. Out: the changes, in order.
Invariants owned here: busy at the turn's start; at its end, in this order, open tools and texts are closed, messages are
finished, the failure if it failed or was aborted, the record and the diffs, then idle, the end of the turn, and after that
nothing of the turn. Items that come while no turn runs are bookkeeping of an ended one: they stay in the journal and change
nothing here (`late` counts them).
Source: docs/contract.md, rules of the turn; recordings of OpenCode 1.18.33.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from universal.events import (
    ErrorData,
    EventType,
    ItemData,
    ItemDeltaData,
    PermissionData,
    Question,
    QuestionData,
    QuestionOption,
    SessionStartedData,
    TurnData,
    UniversalEvent,
)
from universal.items import Item, ItemKind, ItemRole, TextPart
from universal.lib.diffs import turn_diff
from universal.lib.jsonvalue import arr, obj, text, whole
from universal.limits import windows_of
from universal.session import importer, values
from universal.session.changes import (
    Change,
    CommandExecuted,
    DiffsChanged,
    LimitsReported,
    MessageChanged,
    MessageRemoved,
    Notice,
    PartChanged,
    PartRemoved,
    PromptFailed,
    RequestClosed,
    RequestOpened,
    ServersReported,
    SessionChanged,
    SessionCompacted,
    SessionCreated,
    StatusChanged,
    TextGrew,
    TodosChanged,
    TurnEnded,
)
from universal.session.model import Session, Snapshots
from universal.session.record_json import stored_record
from universal.session.timeline.writer import TimelineWriter
from universal.session.transcript import INTERRUPTED, Transcript, TranscriptState
from universal.session.values import BUSY, IDLE, NOT_STRUCTURED, is_default_title
from universal.tools.accesses import primary_access

SEQUENCE_OF = attrgetter("sequence")
TITLE_CHARS = 100
"""Maximum characters of a title that an agent gives. Native OpenCode has the same bound."""
DISMISSED = "The user dismissed this question"
"""Native's words for a call whose question a person refused. The TUI draws its error as refused, not as failed."""
QUIET_STATUSES: Mapping[str, str] = {
    "commands": "the number of commands; clients ask for the list",
}
"""Label of a status item whose words no client of OpenCode shows -> why. The journal and `/v1` have them."""
CALL_ERRORS = {
    "aborted": INTERRUPTED,
    "agent_exited": "The agent exited while this tool was running",
    "error": "The turn failed while this tool was running",
}
"""Why a turn ended early -> the error of its open calls."""


def rejection(message: str) -> str:
    """Native OpenCode's error of a call that a person rejected, with the person's words, if any."""
    words = "The user rejected permission to use this specific tool call"
    return f"{words} with the following feedback: {message}" if message else f"{words}."


def reducer_of(first: UniversalEvent) -> Reducer:
    """A reducer for the session that this event begins."""
    metadata = obj(first.data.metadata) if isinstance(first.data, SessionStartedData) else {}
    return Reducer(first.session_id, text(metadata.get("agent"), "mock"))


class GrowingText(NamedTuple):
    """A part whose text grows, and its pieces so far."""

    message_id: str
    part_id: str
    pieces: list[str]


class Reducer:
    """One session's state, and the only writer of it. `agent` is the agent that it begins with.

    late     items that came while no turn ran
    command  name and arguments of the slash command that began the running turn
    """

    def __init__(self, session_id: str, agent: str) -> None:
        self.session = Session(values.SessionRecord(session_id), agent)
        self._changes: list[Change] = []
        self._emit = self._changes.append
        self.transcript = Transcript(self.session, self._emit)
        self.late = 0
        self._timeline = TimelineWriter(self.session, self.transcript)
        self.command: tuple[str, str] | None = None

    def restore(self, session: Session, transcript: TranscriptState, late: int, command: tuple[str, str] | None) -> None:
        """Continue with a session from a checkpoint (`universal.session.checkpoint`)."""
        self.session, self.late, self.command = session, late, command
        self.transcript = Transcript(session, self._emit)
        self.transcript.restore(transcript)
        self._timeline = TimelineWriter(session, self.transcript)

    def growing_text(self, piece: ItemDeltaData) -> GrowingText | None:
        """The text that a piece lengthens, or None: the first piece begins its text, and may end the wait of a retry."""
        message = self.session.messages.loose.get(self.transcript.message_of_item.get(piece.item_id, ""))
        is_text = message is not None and not message.is_said and piece.part_type in ("text", "reasoning")
        if message is None or not is_text or self.session.status.type != BUSY.type:
            return None
        part_id = message.text_parts.get(piece.part_index, "")
        pieces = message.streaming.get(part_id)
        return None if pieces is None else GrowingText(message.info.id, part_id, pieces)

    def grow(self, text: GrowingText, events: Sequence[UniversalEvent], at_ms: int) -> TextGrew:
        """Lengthen a text by pieces that came together, all made at `at_ms`. Out: one change, at the place of the last piece."""
        deltas = [event.data.delta for event in events if isinstance(event.data, ItemDeltaData)]
        text.pieces.extend(deltas)
        place = self._timeline.pass_over(map(SEQUENCE_OF, events), at_ms)
        return TextGrew(text.message_id, text.part_id, "".join(deltas), len(text.pieces), place)

    def load(self, event: UniversalEvent, at_ms: int) -> None:
        """Fold one event of a journal into the session when nobody needs its changes."""
        self.apply(event, at_ms, is_live=False)

    def apply(self, event: UniversalEvent, at_ms: int, *, is_live: bool = True) -> list[Change]:
        """Fold one event, made at `at_ms` (epoch ms), into the session and return the changes. `is_live`: they are shown."""
        self._changes.clear()
        handler = self._HANDLERS.get(event.type)
        if handler is not None:
            handler(self, event.data, at_ms)
        changes = self._changes[:]
        self._changes.clear()  # a session at rest need not hold its last changes
        if len(changes) == 1 and type(growth := changes[0]) is TextGrew:  # as for nearly all events
            return [growth._replace(place=self._timeline.pass_over((event.sequence,), at_ms))]
        changes += self._timeline.write(event, changes, at_ms, is_live=is_live)
        if event.type is EventType.ITEM_DELTA:
            timeline = self.session.timeline
            place = (timeline.last_id, timeline.last_tail)
            return [change._replace(place=place) if isinstance(change, TextGrew) else change for change in changes]
        return changes

    def current(self, subjects: Iterable[tuple[str, str]], at_ms: int) -> list[Change]:
        """The current values of all growing texts and of these messages and parts. Changes nothing.

        In: `subjects`, pairs of a message's id and that of a part, or "" for the message itself.
        """
        messages = self.session.messages
        growing = (messages[id_] for id_ in self.transcript.turn_messages if id_ in messages)
        growing_parts = {message.info.id: set(message.streaming) for message in growing if message.streaming}
        for message_id, part_id in subjects:
            growing_parts.setdefault(message_id, set()).add(part_id)
        changes: list[Change] = []
        for message, ids in ((messages[id_], growing_parts[id_]) for id_ in sorted(growing_parts) if id_ in messages):
            if "" in ids:
                changes.append(MessageChanged(message.info))
            changes += [PartChanged(message.info.id, message.part(id_), at_ms) for id_ in message.parts if id_ in ids]
        return changes

    # --- the record ----------------------------------------------------------------------------------------

    def _set_record(self, at_ms: int, **changes: Any) -> None:
        record = self.session.record
        self.session.record = replace(record, updated_ms=max(at_ms, record.updated_ms), **changes)
        self._emit(SessionChanged(self.session.record))

    def _set_status(self, status: values.Status) -> None:
        self.session.status = status
        self._emit(StatusChanged(status))

    def _session_started(self, data: SessionStartedData, at_ms: int) -> None:
        """`metadata` holds the session's record; see `universal.session.record_json`."""
        if self.session.is_begun:
            return
        self.session.is_begun = True
        self.session.record = stored_record(obj(data.metadata))
        self._emit(SessionCreated(self.session.record))

    # --- turns ---------------------------------------------------------------------------------------------

    def _turn_started(self, data: TurnData, at_ms: int) -> None:
        self._set_status(BUSY)

    def _turn_ended(self, data: TurnData, at_ms: int) -> None:
        session = self.session
        if not session.is_busy:
            return
        meta = obj(data.metadata)
        reason = text(meta.get("reason"), "completed")
        if reason == "aborted":
            self.transcript.fail(values.ABORTED, at_ms, call_error=CALL_ERRORS["aborted"])
            self._emit(PromptFailed(values.ABORTED))
        cost = meta.get("cost")
        self.transcript.end_turn(float(cost) if isinstance(cost, (int, float)) else 0.0, at_ms)
        snapshots = session.snapshots
        if not snapshots.is_on:
            session.diffs = turn_diff(session.changes, session.record.directory)
        snapshots.is_on = snapshots.is_due = False
        self._set_record(at_ms, summary=values.DiffTotals.of(session.diffs))
        self._emit(DiffsChanged(session.diffs))
        self._command_executed()
        self._set_status(IDLE)
        self._emit(TurnEnded(reason))

    def _error(self, data: ErrorData, at_ms: int) -> None:
        if not self.session.is_busy:
            self.late += 1
            return
        failure = values.Failure(data.message, data.code, data.details, self.session.agent)
        reason = "agent_exited" if data.code == "agent_exited" else "error"
        if data.code != values.NOT_BEGUN:
            self.transcript.fail(failure, at_ms, call_error=CALL_ERRORS[reason])
        self._emit(PromptFailed(failure))

    # --- items ---------------------------------------------------------------------------------------------

    def _item_started(self, data: ItemData, at_ms: int) -> None:
        item = data.item
        if item.kind is ItemKind.STATUS:
            self._status_item(item, at_ms, only="compaction")
        elif item.role is ItemRole.USER or not self._is_at_work():
            return
        elif item.kind is ItemKind.MESSAGE:
            self.transcript.assistant(item, at_ms)
        elif item.kind is ItemKind.TOOL_CALL:
            self.transcript.tool_call(item, at_ms, complete=False)
        elif item.kind is ItemKind.TOOL_RESULT:
            self.transcript.result_started(item)

    def _item_delta(self, data: ItemDeltaData, at_ms: int) -> None:
        if self._is_at_work():
            self.transcript.delta(data, at_ms)

    def _item_completed(self, data: ItemData, at_ms: int) -> None:
        item = data.item
        if item.metadata is not None and "imported" in item.metadata and (imported := obj(item.metadata["imported"])):
            self._import_message(imported)
        elif item.kind is ItemKind.STATUS:
            self._status_item(item, at_ms)
        elif item.kind is ItemKind.SYSTEM:
            self._notice({}, "\n".join(part.text for part in item.content if isinstance(part, TextPart)), at_ms)
        elif item.kind is ItemKind.MESSAGE and item.role is ItemRole.USER:
            self._prompt(item, at_ms)
        elif not self._is_at_work():
            return
        elif item.kind is ItemKind.MESSAGE:
            self.transcript.complete(item, at_ms)
        elif item.kind is ItemKind.TOOL_CALL:
            self.transcript.tool_call(item, at_ms, complete=True)
        elif item.kind is ItemKind.TOOL_RESULT:
            self.transcript.result(item, at_ms)

    def _is_at_work(self) -> bool:
        """Return whether a turn runs, and count what comes when none does. Ends a retry's wait, since something came."""
        if self.session.status.type == "retry":
            self._set_status(BUSY)
        is_busy = self.session.is_busy
        if not is_busy:
            self.late += 1
        return is_busy

    def _prompt(self, item: Item, at_ms: int) -> None:
        info = self.transcript.user(item, at_ms)
        model = replace(info.model, variant=info.model.variant or "default")
        self._set_record(at_ms, mode=info.mode, model=model)

    def _import_message(self, wire: Mapping[str, Any]) -> None:
        """Add a complete message of another server."""
        message = importer.message(wire)
        self.transcript.show(message)
        for part in message.parts.values():
            if isinstance(part, values.ToolCall) and part.tool == "todowrite" and part.status == "completed":
                todos = arr(obj(part.metadata).get("todos")) or arr(part.input.get("todos"))
                if all({"content", "status", "priority"} <= obj(todo).keys() for todo in todos):
                    self.session.todos = tuple(map(importer.imported_todo, todos))  # an export has no list of its own

    # --- statuses ------------------------------------------------------------------------------------------

    def _status_item(self, item: Item, at_ms: int, only: str | None = None) -> None:
        part = item.status_part
        if part is None or only not in (None, part.label):
            return
        handler = self._STATUSES.get(part.label)
        if handler is not None:
            handler(self, item.metadata or {}, part.detail or "", at_ms)
        elif part.detail and part.label not in QUIET_STATUSES:
            self._emit(Notice(part.detail, "info", self.session.record.title))

    def _retry(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        if self.session.is_busy:
            message = text(meta.get("message"), "The model did not answer")
            self._set_status(values.Status("retry", whole(meta.get("attempt"), 1), message, at_ms + whole(meta.get("delay_ms"))))

    def _todo(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        self.session.todos = tuple(map(importer.todo, arr(meta.get("todos"))))
        self._emit(TodosChanged(self.session.todos))

    def _mcp(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        servers = self.session.mcp[self.session.agent] = obj(meta.get("servers"))
        self._emit(ServersReported(servers))

    def _limits(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        self._emit(LimitsReported(windows_of(meta)))

    def _title(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        """Take the agent's name of the conversation, unless a person or the agent has named the session before.

        Some agents repeat the beginning of a prompt (claude-agent-acp 0.101): ours is as good.
        """
        session, title = self.session, " ".join(detail.split())[:TITLE_CHARS]
        first = next((message.text() for message in session.oldest_first() if message.is_user), "")
        last = next((message.text() for message in session.newest_first() if message.is_user), "")
        is_repeated = any(" ".join(prompt.split()).startswith(title.rstrip(" .…")) for prompt in (first, last))
        if is_repeated or is_default_title(title):
            return
        if is_default_title(session.record.title) or session.record.is_named_by(first):
            self._set_record(at_ms, title=title)

    def _compaction(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        """Take the status of a compaction, which was asked for or begun by the agent. Source: recording `summarize`."""
        if not self._is_at_work():
            return
        transcript, phase = self.transcript, text(meta.get("phase"))
        auto = meta["auto"] is True if "auto" in meta else not self.session.is_wish_to_compact(transcript.parent_id)
        if transcript.compaction_id is None and (phase == "started" or auto):
            transcript.begin_compaction(at_ms, auto=auto)
        if phase == "failed":
            transcript.end_compaction("", at_ms, values.Failure(detail or "The compaction failed."))
        elif phase == "completed":
            transcript.end_compaction(text(meta.get("summary")), at_ms)
            self._emit(SessionCompacted())

    def _session(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        self.session.record = importer.patch_record(self.session.record, meta)
        self._set_record(at_ms)

    def _move(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        """Move the session to another directory: `directory`, `project_id`, `path` (in the project)."""
        session = self.session
        session.elsewhere = frozenset(session.messages)
        session.snapshots, session.diffs, session.changes = Snapshots(), (), []
        place = {key: text(meta.get(key)) for key in ("directory", "project_id", "path")}
        self._set_record(at_ms, **place)

    def _project(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        """Note the project that the session's directory has become: `project_id`, `path` (in the project)."""
        self._set_record(at_ms, **{key: text(meta.get(key)) for key in ("project_id", "path")})

    def _mode(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        mode = text(meta.get("mode"))
        if mode and mode != self.session.record.mode:
            self._set_record(at_ms, mode=mode)

    def _prompt_state(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        """`state`: handed to an agent; cancelled; lost with the server (`message`); own (we carry it out: a shell command).

        `chosen`: {agent, model} that it is sent to, if that is not what it was accepted for.
        """
        item_id = text(meta.get("item_id"))
        if meta.get("state") == "handed":
            self.session.agent = text(meta.get("agent"), self.session.agent)
            note = text(meta.get("handover"))
            self.transcript.note_dispatch(item_id, map(text, arr(meta.get("carried"))), self.session.agent, note)
            message = self.session.messages.get(self.transcript.parent_id or "")
            if message is not None and not isinstance(message.info, values.StepInfo) and (choice := obj(meta.get("chosen"))):
                mode, model = text(choice.get("agent"), message.info.mode), importer.message_model(choice.get("model"))
                message.info = replace(message.info, mode=mode, model=model or message.info.model)
                self._emit(MessageChanged(message.info))
        elif meta.get("state") == "own":
            self.transcript.note_dispatch(item_id, (), "")
        elif meta.get("state") == "lost":
            failure = values.Failure(text(meta.get("message")), "agent_exited", None, self.session.agent)
            self.transcript.fail_prompt(item_id, failure, at_ms)
            self._emit(PromptFailed(failure))

    def _command_begins(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        """Note the slash command that began this turn. Its execution is announced at the turn's end."""
        self.command = (text(meta.get("name")), text(meta.get("arguments")))

    def _command_executed(self) -> None:
        command, self.command = self.command, None
        last = next((m for m in reversed(self.session.messages.values()) if not m.is_user), None)
        if command is not None and last is not None:
            self._emit(CommandExecuted(*command, last.info.id))

    def _message_removed(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        message_id = text(meta.get("message_id"))
        if self.session.messages.pop(message_id, None) is not None:
            self._emit(MessageRemoved(message_id))

    def _take_back(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        for item_id in map(text, arr(meta.get("item_ids"))):
            self._message_removed({"message_id": self.transcript.message_of_item.get(item_id, "")}, "", at_ms)

    def _answer_value(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        """Keep the value of an answer in its prompt's schema, or why there is none."""
        message, error = self.session.messages.get(text(meta.get("message_id"))), obj(meta.get("error"))
        if message is None or not isinstance(message.info, values.StepInfo):
            return
        info = message.info
        if error:
            words, retries = text(error.get("message")), {"retries": whole(error.get("retries"))}
            message.info = replace(info, error=values.Failure(words, NOT_STRUCTURED, retries, self.session.agent))
        else:
            message.info = replace(info, extra={**info.extra, "structured": meta.get("value")})
        self._emit(MessageChanged(message.info))

    def _part_removed(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        self._remove_part(text(meta.get("message_id")), text(meta.get("part_id")))

    def _remove_part(self, message_id: str, part_id: str) -> None:
        message = self.session.messages.get(message_id)
        if message is not None and message.parts.pop(part_id, None) is not None:
            self._emit(PartRemoved(message_id, part_id))

    def _part_updated(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        """Replace a part that a client has rewritten."""
        wire = obj(meta.get("part"))
        message = self.session.messages.get(text(wire.get("messageID")))
        if message is None:
            return
        part, old = importer.part(wire), message.parts.get(text(wire.get("id")))
        if isinstance(part, values.ToolCall) and isinstance(old, values.ToolCall):
            part = replace(part, name=old.name, refused=old.refused, child_id=old.child_id)
        message.parts[part.id] = part
        self._emit(PartChanged(message.info.id, part, at_ms))

    def _notice(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        if detail:
            self._emit(Notice(detail, "warning", self.session.record.title))

    def _child(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        self.transcript.child_opened(text(meta.get("call_id")), text(meta.get("session_id")), at_ms)

    # --- snapshots and undo --------------------------------------------------------------------------------

    def _snapshot(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        """Take a snapshot's status: it was taken, or could not be.

        phase (start: before a prompt is sent; step: a step's tools are done; end: the prompt is answered), tree, files (names
        that changed since the tree before, relative to the directory), diffs (`end`: of the prompt), session_diffs (`end`: of
        the session), failed (a sentence; then there is no tree)
        """
        snapshots, phase, tree = self.session.snapshots, text(meta.get("phase")), text(meta.get("tree"))
        if not tree:
            snapshots.is_on = False
            self.transcript.snapshot_taken(None, at_ms)
            return
        before, snapshots.last = snapshots.last, tree
        if phase == "start":
            snapshots.first = snapshots.first or tree
            snapshots.base, snapshots.is_on = tree, True
            before = None
        directory = self.session.record.directory.rstrip("/")
        files = tuple(f"{directory}/{name}" for name in arr(meta.get("files")))
        self.transcript.snapshot_taken((before, files) if files and before else None, at_ms)
        if phase == "end":
            snapshots.is_due = False
            self.transcript.summarise(importer.diffs(meta.get("diffs")))
            self.session.diffs = importer.diffs(meta.get("session_diffs"))

    def _revert(self, meta: dict[str, Any], detail: str, at_ms: int) -> None:
        """Take an undo, a redo, or the end of both. Source: a live OpenCode 1.18.33 (docs/undo.md); the order of its events.

        revert (as in the record, or None: a redo, or the undone messages are gone for good), after (the tree right after the
        undo), diffs (the session's from now on; None: as before the undo), messages, parts ([message, part]): gone for good
        """
        session, snapshots = self.session, self.session.snapshots
        for message_id in arr(meta.get("messages")):
            if session.messages.pop(message_id, None) is not None:
                self._emit(MessageRemoved(message_id))
        for message_id, part_id in arr(meta.get("parts")):
            self._remove_part(message_id, part_id)
        session.calls = {call: place for call, place in session.calls.items() if place[0] in session.messages}
        new = importer.revert(meta.get("revert"))
        if new is not None:
            snapshots.diffs = session.diffs if snapshots.diffs is None else snapshots.diffs
            snapshots.restored = text(meta.get("after")) or None
        diffs = meta.get("diffs")
        session.diffs = importer.diffs(diffs) if diffs is not None else snapshots.diffs or ()
        if new is None:
            snapshots.diffs = snapshots.restored = None
        session.record = replace(session.record, revert=new, summary=values.DiffTotals.of(session.diffs))
        self._emit(DiffsChanged(session.diffs))
        self._set_record(at_ms)

    # --- permissions and questions -------------------------------------------------------------------------

    def _ref(self, meta: Mapping[str, Any]) -> values.CallRef | None:
        """The card of the call that asks. One that is over, whose id the agent uses again, does not ask."""
        call_id = self.transcript.call_id(text(meta.get("call_id")))
        call, place = self.session.call(call_id), self.session.calls.get(call_id)
        if place is None or (call is not None and call.status in ("completed", "error")):
            return None
        return values.CallRef(place[0], call_id)

    def _permission_requested(self, data: PermissionData, at_ms: int) -> None:
        meta = obj(data.metadata)
        if not self._is_at_work() or meta.get("auto"):
            return
        access = primary_access(self.session.agent, data, self.session.record.directory)
        request = values.PermissionRequest(data.permission_id, access, self._ref(meta))
        self.session.permissions[request.id] = request
        self._emit(RequestOpened(request))

    def _permission_resolved(self, data: PermissionData, at_ms: int) -> None:
        request = self.session.permissions.pop(data.permission_id, None)
        if request is None:
            return
        answer = data.status if data.status != "requested" else "reject"
        self._emit(RequestClosed(request, answer))
        if answer == "reject":
            self._refuse(request, rejection(text(obj(data.metadata).get("message"))))

    def _question_requested(self, data: QuestionData, at_ms: int) -> None:
        meta = obj(data.metadata)
        if not self._is_at_work() or meta.get("auto"):
            return
        questions = data.questions or (Question(question=data.prompt, options=tuple(map(_option, data.options))),)
        call, plan = self._ref(meta), text(meta.get("plan"))
        if plan and not self.transcript.show_plan(call.message_id if call is not None else "", plan, at_ms):
            first, *others = questions  # no message can hold it
            questions = (first.model_copy(update={"question": f"{plan.rstrip()}\n\n{first.question}"}), *others)
        request = values.QuestionRequest(data.question_id, questions, call)
        self.session.questions[request.id] = request
        self._emit(RequestOpened(request))

    def _question_resolved(self, data: QuestionData, at_ms: int) -> None:
        request = self.session.questions.pop(data.question_id, None)
        if request is None:
            return
        if data.status == "answered":
            answers = data.answers if data.answers is not None else ((data.response or "",),)
            self._emit(RequestClosed(request, "answered", answers))
        else:
            self._emit(RequestClosed(request, "rejected"))
            self._refuse(request, DISMISSED)

    def _refuse(self, request: values.PermissionRequest | values.QuestionRequest, words: str) -> None:
        """Note the refusal on the call that asked, in native's words, by which clients know it from an error."""
        call = self.session.call(request.call.call_id) if request.call is not None else None
        if call is not None:
            self.transcript.note_call(replace(call, refused=words))

    # --- tables --------------------------------------------------------------------------------------------

    _HANDLERS: ClassVar[dict[EventType, Callable[[Any, Any, int], None]]] = {
        EventType.SESSION_STARTED: _session_started,
        EventType.TURN_STARTED: _turn_started,
        EventType.TURN_ENDED: _turn_ended,
        EventType.ITEM_STARTED: _item_started,
        EventType.ITEM_DELTA: _item_delta,
        EventType.ITEM_COMPLETED: _item_completed,
        EventType.ERROR: _error,
        EventType.PERMISSION_REQUESTED: _permission_requested,
        EventType.PERMISSION_RESOLVED: _permission_resolved,
        EventType.QUESTION_REQUESTED: _question_requested,
        EventType.QUESTION_RESOLVED: _question_resolved,
    }
    """Events without a row (session.ended, agent.unparsed) change nothing that a client of OpenCode sees."""

    _STATUSES: ClassVar[dict[str, Callable[[Any, dict[str, Any], str, int], None]]] = {
        "retry": _retry,
        "todo": _todo,
        "mcp": _mcp,
        "limits": _limits,
        "title": _title,
        "compaction": _compaction,
        "session": _session,
        "mode": _mode,
        "moved": _move,
        "project": _project,
        "prompt": _prompt_state,
        "command": _command_begins,
        "message.removed": _message_removed,
        "retracted": _take_back,
        "structured": _answer_value,
        "part.removed": _part_removed,
        "part.updated": _part_updated,
        "child": _child,
        "snapshot": _snapshot,
        "revert": _revert,
        "notice": _notice,
    }
    """Label -> what it does. The words of a label without a row are a notice, unless it is in `QUIET_STATUSES`."""


def _option(label: str) -> QuestionOption:
    return QuestionOption(label=label)
