"""The only writer of one session's journal, state and turn.

All methods are synchronous and run on the event loop, so each is a critical section. An event is stamped, queued for the store,
applied to the state that HTTP reads, and published, before anything else can happen. There is no mailbox (docs/adr/0002).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Unpack

import structlog

from shim.host.config.opencode_config import OpenCodeConfig
from shim.lib.clock import from_rfc3339
from shim.lib.errors import SessionNotFound, SessionTerminated
from shim.lib.tasks import doer
from shim.sessions.feed import ChangeFeed
from shim.sessions.prompts.instructions import Instructions
from shim.sessions.prompts.pending_prompt import PendingPrompt
from shim.sessions.prompts.prompt_payload import PendingPrompts
from shim.sessions.session.exit_errors import PROMPT_LOST
from shim.sessions.session.session_journal import SessionJournal
from universal.codec import Fact
from universal.events import (
    ErrorData,
    EventData,
    EventType,
    ItemData,
    ItemDeltaData,
    PermissionData,
    QuestionData,
    SessionEndedData,
    Source,
    TurnData,
    UniversalEvent,
    UnparsedData,
)
from universal.items import Item, ItemKind, ItemStatus, StatusPart
from universal.lib.jsonvalue import JsonObject, obj
from universal.session import checkpoint as core
from universal.session.changes import Change, MessageChanged, PartChanged, TextGrew
from universal.session.record_json import RecordChanges, changes_json
from universal.session.reducer import Reducer
from universal.turn import Effect, Input, State, TurnEnd, TurnMachine, TurnStart

if TYPE_CHECKING:
    from shim.sessions.session.dependencies import SessionDeps

# --- what a late reader gets again ------------------------------------------------------------------------------

AFTER_S = (0.1, 1.0)
"""Seconds after an answer at which parts are resent: when its reader has processed it (the TUI processes events every 16 ms), and
again for a large answer on a slow connection."""
KEEP_S = 1.1
"""Seconds for which changes are kept for resending. It is longer than the last of these times."""
INFO = ""
"""Stands for the message itself, in place of a part's id."""

Changed = Iterable[tuple[str, str]]
"""(message, part or INFO), in the order of their last changes."""


class Resync:
    """Resends what changed in one session. `resend` publishes messages, parts and growing texts in their present state."""

    def __init__(self, resend: Callable[[Changed], None]) -> None:
        self._resend = resend
        self._timers: dict[float, asyncio.TimerHandle] = {}
        self._changed: dict[tuple[str, str], float] = {}
        self.waits = False
        """Whether a resend is due, so that changes must be noted."""

    def on_read(self) -> None:
        """A client has read the running turn."""
        self.waits = True
        loop = asyncio.get_running_loop()
        for after_s in AFTER_S:
            if after_s not in self._timers:
                self._timers[after_s] = loop.call_later(after_s, self._due, after_s)

    def note(self, change: Change) -> None:
        """Note published changes. Ignored unless `waits`."""
        subject = _subject(change)
        if subject is not None:
            self._changed.pop(subject, None)
            self._changed[subject] = asyncio.get_running_loop().time()

    def _due(self, after_s: float) -> None:
        del self._timers[after_s]
        since = asyncio.get_running_loop().time() - KEEP_S
        self._changed = {subject: at for subject, at in self._changed.items() if at > since}
        self._resend(tuple(self._changed))
        if not self._timers:
            self.waits = False
            self._changed.clear()


def _subject(change: Change) -> tuple[str, str] | None:
    match change:
        case TextGrew():
            return change.message_id, change.part_id
        case PartChanged():
            return change.message_id, change.part.id
        case MessageChanged():
            return change.info.id, INFO
        case _:
            return None


# --- bounds of unparsed lines -----------------------------------------------------------------------------------

KEPT = 1_000
"""Maximum recorded unparsed lines of one turn."""


class UnparsedLimit:
    """The limit for one session."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._recorded = 0
        self._more = 0
        self._last = ""

    def keep(self, fact: Fact) -> bool:
        """Whether to record the fact of an unparsed line."""
        if self._recorded < KEPT:
            self._recorded += 1
            return True
        if self._more == 0:
            log.warning("agent.unparsed_too_much", session_id=self._session_id, kept=self._recorded)
        self._more += 1
        if isinstance(fact.data, UnparsedData):
            self._last = fact.data.location
        return False

    def end(self) -> UnparsedData | None:
        """End the turn: the data of the event with the number of dropped lines, or None. Counting begins anew."""
        more, self._recorded, self._more = self._more, 0, 0
        if not more:
            return None
        log.warning("agent.unparsed_total", session_id=self._session_id, dropped=more)
        return UnparsedData(error=f"{more} more that no rule knows: counted, not kept", location=self._last)


log = structlog.get_logger()

# --- the state of a session -------------------------------------------------------------------------------------

ACCOUNT = "account"
"""Key of the fact for whom a session's running or last turn counts, and what the session had cost before it (USD)."""
OUTCOMES = {"completed": "succeeded", "aborted": "interrupted"}
"""Reason of a turn's end -> outcome in OpenCode 2. Other reasons mean `failed`."""
OF_A_TURN = ("outcome", "idle", ACCOUNT)
"""Facts that the begin of the next turn removes."""
NOTED_LABELS = frozenset({"prompt", "instructions"})
"""Status items that tell of prompts, and of what goes along with them."""
NOTED = frozenset({EventType.SESSION_STARTED, EventType.SESSION_ENDED, EventType.ITEM_COMPLETED})
"""Events of which the session remembers more than its clients see."""
PART_OF_PIECE = attrgetter("data.item_id", "data.part_index", "data.part_type")
"""The part that a piece of text is for."""
THE_TURN = "turn"
"""Stands for the turn among the subjects of what people do."""
NO_ROOM = "The turn was stopped: the server cannot write it down. {error}"


def _subject_of(data: EventData) -> str:
    match data:
        case PermissionData():
            return data.permission_id
        case QuestionData():
            return data.question_id
        case TurnData(phase="ended"):
            return THE_TURN
        case _:
            return ""


@dataclass(slots=True)
class StoredCheckpoint:
    """The stored checkpoint of a session: its event, the size of its head (bytes), its pages.

    is_off      it has something that cannot be written
    is_writing  one is being written
    is_damaged  a page could not be read
    """

    sequence: int = 0
    head_bytes: int = 0
    pages: frozenset[int] = frozenset()
    is_off: bool = False
    is_writing: bool = False
    is_damaged: bool = False


class SessionState:
    """One session.

    on_change, feed: called after turns and info changed, and with each event.

    facts: what only OpenCode 2 tells of a session, for lists of those that nobody has opened: `outcome` and `idle` (ms) of the
    last turn unless one runs, `viewed`, `fork`; and ACCOUNT; kept in its row.
    instructions: what clients have set for its agents, to go along with each prompt.
    variables: of the environment of its commands and agents, as a client has set them; in memory, since they may be secret.
    config_at_start: the configuration when the agent got the first prompt of the running or last turn.
    pending_prompts: prompts that no agent has been given, as the journal tells; the queue has those to be handed over.
    stored: what the store has as the session's checkpoint.
    session: what clients see.
    ended: why its agent is gone, None while it is there or may come back. With `terminated_by: daemon` it is gone for good.
    """

    account = ""
    """The named person for whom the next or running turn counts (`shim.sessions.index.accounts`), or ""."""

    def __init__(
        self,
        session_id: str,
        agent: str,
        deps: SessionDeps,
        on_change: Callable[[SessionState], None] = lambda _: None,
        feed: Callable[[Sequence[UniversalEvent]], object] | None = None,
    ) -> None:
        self.id = session_id
        self.journal = SessionJournal(session_id, store=deps.store, clock=deps.clock, ids=deps.ids)
        self.reducer = Reducer(session_id, agent)
        self.session = self.reducer.session
        self.machine = TurnMachine()
        self.facts: JsonObject = {}
        self.instructions = Instructions()
        self.variables: dict[str, str] = {}
        self.config_at_start: OpenCodeConfig | None = None
        self.pending_prompts = PendingPrompts(lambda item_id: self.reducer.transcript.prompt_of_item.get(item_id, ""))
        self.stored = StoredCheckpoint()
        self._ownership = deps.store.ownership
        self._changes = deps.changes
        self._clock = deps.clock
        self._ids = deps.ids
        self._on_change = on_change
        self._feed = feed
        self.ended: SessionEndedData | None = None
        self.turn_id = ""
        self.turn_metadata: dict[str, Any] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._resync = Resync(self._resend)
        self._stopped_turn = ""
        self._unparsed = UnparsedLimit(session_id)

    @property
    def sequence(self) -> int:
        """Sequence of the journal's last event."""
        return self.journal.sequence

    def restore(self, reducer: Reducer) -> None:
        """Go on with the session of a checkpoint."""
        self.reducer, self.session = reducer, reducer.session

    def load(self, events: Sequence[UniversalEvent]) -> None:
        """Rebuild the state from the journal, page by page, with the same code as live. Nothing is stored or published."""
        for event in events:
            self.reducer.load(event, from_rfc3339(event.time))
            self.journal.load(event)
            self._note(event)
            self._replay_turn(event)

    def mute(self, feed: Callable[[Sequence[UniversalEvent]], object]) -> None:
        """Show clients nothing more: another server has the session, and tells of it.

        In: `feed`, which gets all events from now on.
        """
        self._changes, self._feed = ChangeFeed(), feed

    def show(self, event: UniversalEvent, changes: ChangeFeed) -> None:
        """Apply an event that another server has written, and show its changes to the clients of this one. Nothing is stored."""
        at_ms = from_rfc3339(event.time)
        self.journal.load(event)
        published = self.reducer.apply(event, at_ms)
        self._note(event)
        self._replay_turn(event)
        changes.publish(published, self.session, at_ms, sequence=event.sequence, is_stored=True)

    def _replay_turn(self, event: UniversalEvent) -> None:
        """Give a turn of the journal to the turn machine."""
        if event.type is EventType.TURN_STARTED and isinstance(event.data, TurnData):
            self.turn_id = event.data.turn_id
            self.machine.apply(Input.REPLAY_STARTED)
        elif event.type is EventType.TURN_ENDED:
            self.machine.apply(Input.REPLAY_ENDED)

    def lose_prompt(self, pending: PendingPrompt) -> None:
        """End a prompt that no agent got before the server stopped: its client gets an error, since it sees no inbox."""
        self.status("prompt", state="lost", item_id=pending.item.item_id, message=PROMPT_LOST)

    @property
    def cost(self) -> float:
        """What the session has cost so far, in USD. An agent may tell it at the end of a prompt only."""
        return self.session.record.cost + max(self.reducer.transcript.turn_cost, self.turn_metadata.get("cost", 0.0))

    @property
    def is_at_rest(self) -> bool:
        """Whether no turn runs, no request is open, and all events are queued for the store."""
        return not (self.machine.busy or self.journal.is_behind) and core.is_at_rest(self.reducer)

    @property
    def is_terminated(self) -> bool:
        """True if the session was terminated: it can be read, and takes no prompts."""
        return self.machine.state is State.CLOSED or (self.ended is not None and self.ended.terminated_by == "daemon")

    def require_open(self) -> None:
        """Raise NotFound if the session was deleted, Conflict if it was terminated."""
        if self.journal.is_closed:
            raise SessionNotFound(self.id)
        if self.is_terminated:
            raise SessionTerminated(self.id)

    def _note(self, event: UniversalEvent) -> None:
        if event.type is EventType.ITEM_COMPLETED:
            self._note_item(event)
        elif event.type is EventType.SESSION_ENDED and isinstance(event.data, SessionEndedData):
            self.ended = event.data
        elif event.type is EventType.SESSION_STARTED:
            self.ended = None

    def record(self, type_: EventType, data: EventData, *, source: Source = Source.DAEMON, raw: Any = None) -> UniversalEvent:
        """Write one event, apply it to the session, and publish the changes."""
        now = self._clock.now_ms()
        by = self.journal.doers.pop(_subject_of(data), None) if self.journal.doers else None
        event = self.journal.write(type_, data, now, source=source, raw=raw, by=by)
        changes = self.reducer.apply(event, now)
        if type_ in NOTED:
            self._note(event)
        self._publish(changes, (event,), now)
        return event

    def note_doer(self, subject: str) -> None:
        """Note that a person answers a request or stops the turn. The agent may say so later, and not in their task."""
        if (by := doer()) is not None:
            self.journal.doers[subject] = by

    def record_prompt(self, pending: PendingPrompt) -> PendingPrompt:
        """Record the message of an accepted prompt, as `record` does. Out: the prompt with the message's id."""
        now = self._clock.now_ms()
        event = self.journal.write(EventType.ITEM_COMPLETED, ItemData(item=pending.item), now, source=Source.DAEMON, raw=None)
        changes = self.reducer.apply(event, now)
        shown = replace(pending, message_id=self.reducer.transcript.prompt_of_item.get(pending.item.item_id, ""))
        self.pending_prompts.accept(shown)
        self._publish(changes, (event,), now)
        return shown

    def record_pieces(self, facts: Sequence[Fact], now: int) -> None:
        """Record pieces of text that the agent has written together just now. Those that lengthen one text are one change.

        In a cluster each is published alone, because a client that goes on at another server needs the place of each event.
        """
        is_alone = self._ownership.sessions_move
        self.journal.native_session_id = facts[-1].native_session_id or self.journal.native_session_id
        for _, pieces in groupby(facts, PART_OF_PIECE):
            run = list(pieces)
            while run:
                piece = run[0].data
                assert isinstance(piece, ItemDeltaData)
                text = self.reducer.growing_text(piece)
                count = 1 if text is None or is_alone else len(run)
                events = self.journal.write_pieces(run[:count], now)
                changes = self.reducer.apply(events[0], now) if text is None else [self.reducer.grow(text, events, now)]
                self._publish(changes, events, now)
                del run[:count]

    def _publish(self, changes: Sequence[Change], events: Sequence[UniversalEvent], now: int) -> None:
        """Show clients these changes, which the events have made."""
        sequence, event_id = self.journal.sequence, self.journal.event_id
        self._changes.publish(changes, self.session, now, sequence=sequence, event_id=event_id)
        if self._resync.waits:
            for change in changes:
                self._resync.note(change)
        if self._feed is not None:
            self._feed(events)

    def stop_for_full_store(self) -> bool:
        """Whether the turn must stop because too many events wait for the store. Records the reason, once a turn."""
        error = self.journal.overflow
        if error is None or self._stopped_turn == self.turn_id:
            return False
        self._stopped_turn = self.turn_id
        self.record(EventType.ERROR, ErrorData(message=NO_ROOM.format(error=error), code="no_room"))
        return True

    def copy(self, event: UniversalEvent) -> None:
        """Write an event of another session's journal into this one, at its own time. Nothing is published."""
        event = self.journal.copy(event)
        self._note_fact(event)
        self.reducer.load(event, from_rfc3339(event.time))
        self._note_item(event)
        self._replay_turn(event)

    def _note_item(self, event: UniversalEvent) -> None:
        if event.type is EventType.ITEM_COMPLETED and isinstance(event.data, ItemData):
            item = event.data.item
            if item.kind is not ItemKind.STATUS:
                self.pending_prompts.add(item)
            elif (part := item.status_part) is not None and part.label in NOTED_LABELS:
                meta = item.metadata or {}
                self.pending_prompts.note(part.label, meta)
                if part.label != "prompt" or "instructions" in meta:
                    self.instructions.note(part.label, meta)

    def on_read(self) -> None:
        """Note that a client has read the session. While a turn runs, it soon gets again what it may have missed."""
        if self.session.is_busy:
            self._resync.on_read()

    def _resend(self, changed: Changed) -> None:
        if not self.session.is_busy:  # idle was sent, and nothing of the turn may come after it
            return
        with self._changes.burst:
            now = self._clock.now_ms()
            self._changes.publish(self.reducer.current(changed, now), self.session, now, is_resent=True)

    def fact(self, fact: Fact) -> None:
        """Record a codec's fact. Of many unparsed lines, only the first ones and the number are recorded."""
        if fact.type is EventType.UNPARSED and not self._unparsed.keep(fact):
            return
        self.journal.native_session_id = fact.native_session_id or self.journal.native_session_id
        self.record(fact.type, fact.data, source=Source.DAEMON if fact.synthetic else Source.AGENT, raw=fact.raw)

    def status(self, label: str, detail: str | None = None, **metadata: Any) -> UniversalEvent:
        """Record a status item of the server and return its event."""
        item = Item(
            item_id=self._ids.new("item"),
            kind=ItemKind.STATUS,
            status=ItemStatus.COMPLETED,
            content=(StatusPart(label=label, detail=detail),),
            metadata=metadata,
        )
        return self.record(EventType.ITEM_COMPLETED, ItemData(item=item))

    def change_record(self, **changes: Unpack[RecordChanges]) -> None:
        """Record that fields of the session's record change."""
        self.status("session", **changes_json(changes))

    def record_viewed(self, idle: int) -> None:
        """Record that a person has seen the end of the turn that ended at this time (ms)."""
        self._note_fact(self.status("viewed", idle=idle))
        self.notify_changed()

    def _note_fact(self, event: UniversalEvent) -> None:
        """Update `facts` by an event, also a copied one."""
        data = event.data
        if event.type is EventType.TURN_STARTED:
            account = {ACCOUNT: [self.account, self.session.record.cost]} if self.account else {}
            kept = {**self.facts}
            for key in OF_A_TURN:
                kept.pop(key, None)
            self.facts = {**kept, **account}
        elif event.type is EventType.TURN_ENDED and isinstance(data, TurnData):
            outcome = OUTCOMES.get(str(obj(data.metadata).get("reason", "completed")), "failed")
            self.facts = {**self.facts, "outcome": outcome, "idle": from_rfc3339(event.time)}
        elif isinstance(data, ItemData) and (part := data.item.status_part) is not None and part.label == "viewed":
            self.facts = {**self.facts, "viewed": obj(data.item.metadata).get("idle")}

    def count_for(self, account: str) -> None:
        """Let the running turn count for another person: it goes on with their prompt."""
        before = self.facts.get(ACCOUNT) or ["", self.session.record.cost]
        self.account, self.facts = account, {**self.facts, ACCOUNT: [account, before[1]]}
        self.notify_changed()

    def notify_changed(self) -> None:
        """Note that the session's record has changed."""
        self._on_change(self)

    def apply(self, input_: Input, key: str = "", **metadata: Any) -> list[Effect]:
        """Apply an input to the turn machine. Starts and ends are recorded here; other effects are for the caller."""
        if metadata:
            self._add_metadata(metadata)
        effects = self.machine.apply(input_, key)
        for effect in effects:
            if isinstance(effect, TurnStart):
                self.turn_id = self._ids.new("turn")
                self.turn_metadata = {}
                data = TurnData(phase="started", turn_id=self.turn_id, metadata={"origin": effect.origin})
                self._note_fact(self.record(EventType.TURN_STARTED, data))
                self._on_change(self)
            elif isinstance(effect, TurnEnd):
                self._end_turn(effect.reason)
        return effects

    def _add_metadata(self, metadata: dict[str, Any]) -> None:
        """Add up usage and cost of the prompts of a turn. The last anchor counts (`AgentAbilities.rewinds`)."""
        if "anchor" in metadata:
            self.turn_metadata["anchor"] = {"agent": self.session.agent, "id": metadata["anchor"]}
        cost = metadata.get("cost")
        if isinstance(cost, (int, float)):
            self.turn_metadata["cost"] = self.turn_metadata.get("cost", 0) + cost
        usage = obj(metadata.get("usage"))
        if usage:
            total = self.turn_metadata.setdefault("usage", {})
            for key, value in usage.items():
                total[key] = total.get(key, 0) + value

    def _end_turn(self, reason: str) -> None:
        """Resolve everything that a turn leaves open, then record its end. Only this method writes `turn.ended`."""
        self.withdraw_requests()
        if (rest := self._unparsed.end()) is not None:
            self.record(EventType.UNPARSED, rest)
        if reason not in OUTCOMES:
            log.warning("turn.failed", session_id=self.id, reason=reason)
        metadata = {"reason": reason, **self.turn_metadata}
        data = TurnData(phase="ended", turn_id=self.turn_id, metadata=metadata)
        self._note_fact(self.record(EventType.TURN_ENDED, data))
        self.journal.doers.clear()
        self.turn_metadata = {}
        self.notify_changed()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def withdraw_requests(self) -> None:
        """Reject open permissions and questions."""
        for id_ in list(self.session.permissions):
            data = PermissionData(permission_id=id_, action="withdrawn", status="reject", metadata={"withdrawn": True})
            self.record(EventType.PERMISSION_RESOLVED, data)
        for id_ in list(self.session.questions):
            question = QuestionData(question_id=id_, prompt="", options=(), status="rejected", metadata={"withdrawn": True})
            self.record(EventType.QUESTION_RESOLVED, question)

    def when_idle(self, then: Callable[[], object]) -> None:
        """Call a function when no turn runs: at once, or soon after the end of the running turn."""
        if not self.machine.busy:
            then()
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(lambda _: self.when_idle(then))
        self._waiters.append(waiter)

    async def idle(self) -> None:
        """Wait for the end of the running turn, if there is one."""
        if self.machine.busy:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
