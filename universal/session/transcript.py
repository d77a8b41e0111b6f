"""Messages and parts of one session, from universal items. Pure; owner of the order of parts and of the ends of messages.

One assistant message for each step of the model: `StepStart`, texts, thoughts and tools, `StepFinish`.
A step ends when the model has said all *and* all its tools have results, whichever comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from universal.events import ItemDeltaData
from universal.items import FileRefPart, ImagePart, Item, ItemStatus, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from universal.lib.diffs import FileChange, FileDiff, turn_diff
from universal.lib.ids import MASK, IdSequence, hashed_tail
from universal.lib.jsonvalue import obj, text
from universal.session import values
from universal.session.changes import Change, FileEdited, MessageChanged, PartChanged, TextGrew
from universal.session.messages import Message
from universal.session.model import Session
from universal.session.user_prompt import prompt_of
from universal.tools import cards

COST_ROUNDING = 1e-9
"""USD. Smaller differences between a turn's cost and its steps' are floating point."""
INTERRUPTED = "Tool execution aborted"
"""Native OpenCode's error of a call that was aborted. The TUI draws an error with these words as refused, not as failed."""
NO_RESULT = "The agent went on without a result for this tool call."
NO_PROMPT = values.Text("", "The agent has begun this by itself, or does not tell what it was asked.", synthetic=True)
"""The text of a prompt that nobody knows. Clients show answers below their prompts, and not this text."""
PERSONS_COMMAND = "shell"
"""`metadata.origin` of items that are a person's shell command."""

ITEMS = 1024
"""Maximum items, and calls, that are remembered after a turn. If there are more, the oldest are forgotten."""
ITEMS_LEFT = 512
"""Items, and calls, that are left after that."""

Emit = Callable[[Change], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TranscriptState:
    """The state of a transcript between two turns, beside the session itself. The fields are those of `Transcript`."""

    last_id: int
    message_of_item: dict[str, str]
    prompt_of_item: dict[str, str]
    call_of_item: dict[str, str]
    changes: tuple[FileChange, ...]
    note: str


class Transcript:
    """The part of the reducer that owns messages. Their ids depend on the journal alone.

    agent          whose tool table is used
    parent_id      the prompt that is being answered
    open_id        the message that the model is writing
    compaction_id  the message of a compaction that goes on
    turn_messages  messages of this turn
    awaiting       messages whose step only lacks the snapshot of what their tools changed
    """

    def __init__(self, session: Session, emit: Emit) -> None:
        self.session = session
        self._emit = emit
        self.ids = IdSequence()
        self.message_of_item: dict[str, str] = {}
        self.prompt_of_item: dict[str, str] = {}
        self.call_of_item: dict[str, str] = {}
        self._call_names: dict[str, str] = {}
        self._changes: list[FileChange] = []
        self._note = ""
        self.parent_id: str | None = None
        self.open_id: str | None = None
        self.compaction_id: str | None = None
        self.turn_messages: list[str] = []
        self._is_own = False
        """Whether nothing of this turn is in an agent's conversation."""
        self.awaiting: list[str] = []

    # --- between turns -------------------------------------------------------------------------------------

    def state(self) -> TranscriptState:
        """The transcript's state for a checkpoint. Call it only while no turn runs."""
        items = dict(self.message_of_item), dict(self.prompt_of_item), dict(self.call_of_item)
        return TranscriptState(self.ids.last, *items, tuple(self._changes), self._note)

    def restore(self, state: TranscriptState) -> None:
        """Restore the transcript from what `state` returned."""
        self.ids = IdSequence(state.last_id)
        self.message_of_item = dict(state.message_of_item)
        self.prompt_of_item = dict(state.prompt_of_item)
        self.call_of_item = dict(state.call_of_item)
        self._changes, self._note = list(state.changes), state.note

    def _forget_items(self) -> None:
        """Forget the oldest items and calls at a turn's end; of prompts, only those that an agent has.

        If an agent names one of them later, it is taken for something new. So memory is bounded, however long the session.
        """
        self.message_of_item = _newest(self.message_of_item)
        self.call_of_item = _newest(self.call_of_item)
        self.session.calls = _newest(self.session.calls)
        newest, messages = _newest(self.prompt_of_item), self.session.messages
        if newest is not self.prompt_of_item:
            old = self.prompt_of_item.items() - newest.items()
            waiting = {item for item, id_ in old if id_ in messages and not messages.known_by(id_)}
            prompts = self.prompt_of_item.items()
            self.prompt_of_item = {item: id_ for item, id_ in prompts if item in newest or item in waiting}

    # --- ids and emission --------------------------------------------------------------------------------

    def _id(self, prefix: str, at_ms: int) -> str:
        value = self.ids.next(at_ms)
        return f"{prefix}_{value & MASK:012x}{hashed_tail(f'{self.session.record.id}:{prefix}:{value}')}"

    def _put(self, message: Message, part: values.Part, at_ms: int, *, is_empty: bool = False) -> None:
        message.parts[part.id] = part
        self._emit(PartChanged(message.info.id, part, at_ms, is_empty))

    def _say(self, message: Message, words: str, at_ms: int, *, handover: bool = False) -> None:
        part = values.Text(self._id("prt", at_ms), words, at_ms, at_ms)
        self._put(message, replace(part, synthetic=True, metadata=values.HANDOVER) if handover else part, at_ms)

    def _in_turn(self) -> list[Message]:
        return [message for id_ in self.turn_messages if (message := self.session.messages.get(id_))]

    @property
    def turn_cost(self) -> float:
        """What the steps of the running turn have cost so far, in USD."""
        return sum(map(_cost, self._in_turn()))

    # --- prompts -----------------------------------------------------------------------------------------

    def user(self, item: Item, at_ms: int) -> values.UserInfo:
        """Add the message of a prompt."""
        prompt = prompt_of(item)
        record = self.session.record
        message_id = prompt.message_id
        if message_id:
            self.ids.saw(message_id, at_ms)
        else:
            message_id = self._id("msg", at_ms)
        info = values.UserInfo(
            message_id,
            at_ms,
            prompt.mode or record.mode or "build",
            prompt.model or self.model(),
            prompt.system,
            prompt.tools,
            prompt.format,
        )
        message = Message(info, is_said=True, is_over=True)
        self.session.add(message)
        self.prompt_of_item[item.item_id] = message_id
        self._emit(MessageChanged(info))
        for part in self._parts_of(prompt.parts, item, at_ms):
            self._put(message, part, at_ms)
        return info

    def _parts_of(self, parts: Sequence[values.Part], item: Item, at_ms: int) -> Iterable[values.Part]:
        """The parts that a client sent, else those of the item's content (a subagent's prompt, another face)."""
        for part in parts:
            if part.id:
                self.ids.saw(part.id, at_ms)
                yield part
            else:
                yield replace(part, id=self._id("prt", at_ms))
        for content in () if parts else item.content:
            if isinstance(content, TextPart):
                yield values.Text(self._id("prt", at_ms), content.text)
            elif isinstance(content, ImagePart):
                yield values.File(self._id("prt", at_ms), content.mime or "image/png", url_of(content))
            elif isinstance(content, FileRefPart):
                name = content.path.rsplit("/", 1)[-1]
                yield values.File(self._id("prt", at_ms), "text/plain", f"file://{content.path}", name)

    def model(self) -> values.ModelRef:
        """The model that the session used last, as messages name it."""
        model = self.session.record.model
        if model is None:
            return values.ModelRef(self.session.agent, "default")
        return replace(model, variant=None) if model.variant == "default" else model

    def show(self, message: Message) -> None:
        """Add an imported message. What comes later sorts after it."""
        self.session.add(message)
        created = message.info.created_ms
        for id_ in (message.info.id, *message.parts):
            self.ids.saw(id_, created)
        self._emit(MessageChanged(message.info))
        for part in message.parts.values():
            self._put(message, part, created)

    def note_dispatch(self, item_id: str, carried: Iterable[str], agent: str, note: str = "") -> None:
        """Note that this item's prompt is being answered now. `carried` messages went along; `note` is shown above the answer."""
        self.summarise()
        self._note, self._is_own = note, not agent
        self.parent_id = self.prompt_of_item.get(item_id, self.parent_id)
        for message_id in (*carried, self.parent_id or ""):
            self.session.messages.learn(message_id, agent)

    def summarise(self, diffs: tuple[FileDiff, ...] | None = None) -> None:
        """Set the file diffs of the prompt that is being answered, if it has none. Without `diffs`: what tools reported."""
        message = self.session.messages.get(self.parent_id or "")
        changes, self._changes = self._changes, []
        if message is None or not isinstance(message.info, values.UserInfo):
            return
        if message.info.diffs is not None or "summary" in message.info.extra:
            return
        self.session.changes.extend(changes)
        if diffs is None:
            diffs = turn_diff(changes, self.session.record.directory)
        message.info = replace(message.info, diffs=diffs)
        self._emit(MessageChanged(message.info))

    # --- assistant messages ------------------------------------------------------------------------------

    def assistant(self, item: Item, at_ms: int) -> Message:
        """Return the message of this item, begun if it is new. While a compaction is under way, it is the summary's message."""
        message = self.session.messages.get(self.message_of_item.get(item.item_id, ""))
        if message is not None:
            return message
        compaction = self.session.messages.get(self.compaction_id or "")
        if compaction is not None and not compaction.is_over:  # what is said in it is the summary
            self.message_of_item[item.item_id] = compaction.info.id
            return compaction
        return self._new_assistant(at_ms, item)

    def begin_compaction(self, at_ms: int, *, auto: bool) -> None:
        """Add the message for a compaction's summary, below its prompt (which exists already if a person asked)."""
        parent = self.parent_id
        if auto:
            number = self.ids.next(at_ms)
            self.parent_id = self._unasked_prompt(values.CompactionMark("", auto=True), at_ms)
            self.prompt_of_item[f"{self.session.id}:compaction:{number}"] = self.parent_id
        self.compaction_id = self._new_assistant(at_ms, None, compacts=True).info.id
        self.parent_id = parent

    def _unasked_prompt(self, part: values.Part, at_ms: int) -> str:
        """Add a prompt that nobody wrote, for an answer to stand under: its id, which depends on the journal alone."""
        info = values.UserInfo(self._id("msg", at_ms), at_ms, self.session.record.mode or "build", self.model())
        message = Message(info, is_said=True, is_over=True)
        self.session.add(message)
        self._emit(MessageChanged(info))
        self._put(message, replace(part, id=self._id("prt", at_ms)), at_ms)
        message.known_by.add(self.session.agent)
        return info.id

    def end_compaction(self, summary: str, at_ms: int, failure: values.Failure | None = None) -> None:
        """End a compaction, whose summary is a text of its own or in the message, or which has failed."""
        message = self.session.messages.get(self.compaction_id or "")
        self.compaction_id = None
        if message is None or message.is_over:
            return
        if summary and not any(isinstance(part, values.Text) for part in message.parts.values()):
            self._say(message, summary, at_ms)
        if failure is not None:
            self._finish(message, at_ms, failure=failure)
        else:
            self._finish_step(message, at_ms)

    def _new_assistant(self, at_ms: int, item: Item | None, *, compacts: bool = False) -> Message:
        self.close_step(at_ms)
        record = self.session.record
        parent = self.parent_id or self.session.last_user() or self._unasked_prompt(NO_PROMPT, at_ms)
        prompt = self.session.messages.get(parent)
        user = prompt.info if prompt is not None else None
        mode = "compaction" if compacts else user.mode if user is not None else record.mode or "build"
        model = user.model if user is not None else self.model()
        message_id = self._id("msg", at_ms)
        place = record.directory
        info = values.StepInfo(message_id, parent, at_ms, mode, model, place, place, compacts=compacts)
        message = Message(info)
        is_persons = item is not None and obj(item.metadata).get("origin") == PERSONS_COMMAND
        if not self._is_own:
            message.known_by.add(self.session.agent)
        self.session.add(message)
        self.turn_messages.append(message_id)
        self.open_id = message_id
        if item is not None:
            self.message_of_item[item.item_id] = message_id
        self._emit(MessageChanged(info))
        if (item is not None and not is_persons) or compacts:
            self._put(message, values.StepStart(self._id("prt", at_ms), self._tree()), at_ms)
        if self._note and not compacts:
            self._say(message, f"*{self._note}*", at_ms, handover=True)
            self._note = ""
        return message

    def delta(self, data: ItemDeltaData, at_ms: int) -> None:
        """Append a piece of text, reasoning or tool output."""
        if data.part_type == "tool_output":
            self._tool_output(data, at_ms)
            return
        try:
            message = self.session.messages[self.message_of_item[data.item_id]]
        except KeyError:  # it was removed
            return
        if data.part_type == "tool_input" or message.is_said:
            return
        part_id = message.text_parts.get(data.part_index)
        if part_id is None:
            kind = values.Text if data.part_type == "text" else values.Reasoning
            part = kind(self._id("prt", at_ms), "", at_ms)
            part_id = message.text_parts[data.part_index] = part.id
            message.streaming[part_id] = []
            self._put(message, part, at_ms, is_empty=True)
        pieces = message.streaming.get(part_id)
        if pieces is not None:
            pieces.append(data.delta)
            self._emit(TextGrew(message.info.id, part_id, data.delta, len(pieces)))

    def complete(self, item: Item, at_ms: int) -> None:
        """Complete an assistant message: final texts, usage. Its step ends when its tools have ended."""
        message = self.assistant(item, at_ms)
        if message.is_said:
            return
        for index, part in enumerate(p for p in item.content if isinstance(p, (TextPart, ReasoningPart))):
            self._final_text(message, index, part, at_ms)
        self._end_texts(message, at_ms)
        meta = obj(item.metadata)
        message.is_said = True
        message.finish = text(meta.get("finish")) or None
        assert isinstance(message.info, values.StepInfo)
        message.info = replace(message.info, usage=values.Usage.of(obj(meta.get("usage"))), cost=meta.get("cost") or 0)
        is_persons = meta.get("origin") == PERSONS_COMMAND  # that is no step of a model
        if is_persons or (item.status is ItemStatus.FAILED and not message.open_calls):
            self._finish(message, at_ms)
        else:
            self._finish_if_over(message, at_ms)

    def _final_text(self, message: Message, index: int, part: TextPart | ReasoningPart, at_ms: int) -> None:
        part_id = message.text_parts.get(index)
        if part_id is None and not part.text:
            return
        if part_id is None:
            kind = values.Text if isinstance(part, TextPart) else values.Reasoning
            new_part = kind(self._id("prt", at_ms), "", at_ms)
            part_id = message.text_parts[index] = new_part.id
            message.parts[part_id] = new_part
        message.streaming.pop(part_id, None)
        text_part = message.parts[part_id]
        assert isinstance(text_part, (values.Text, values.Reasoning))
        self._put(message, replace(text_part, text=part.text, end_ms=at_ms), at_ms)

    def _end_texts(self, message: Message, at_ms: int) -> None:
        for part_id in list(message.streaming):
            part = message.part(part_id)
            del message.streaming[part_id]
            assert isinstance(part, (values.Text, values.Reasoning))
            self._put(message, replace(part, end_ms=at_ms), at_ms)

    # --- the ends of steps ---------------------------------------------------------------------------------

    def _finish_if_over(self, message: Message, at_ms: int) -> None:
        if not message.is_said or message.open_calls or message.is_over:
            return
        if not (message.had_calls and self.session.snapshots.is_on):
            self._finish_step(message, at_ms)
        elif message.info.id not in self.awaiting:
            self.awaiting.append(message.info.id)
            self.open_id = None if self.open_id == message.info.id else self.open_id

    def _tree(self) -> str | None:
        """The newest snapshot, while snapshots are taken."""
        return self.session.snapshots.last if self.session.snapshots.is_on else None

    def snapshot_taken(self, patch: tuple[str, tuple[str, ...]] | None, at_ms: int) -> None:
        """End the steps that waited for the new `snapshots.last`. `patch`: the previous snapshot and the files changed since."""
        messages = self.session.messages
        waiting = [m for id_ in self.awaiting if (m := messages.get(id_)) and not m.open_calls]
        self.awaiting = [id_ for id_ in self.awaiting if id_ in messages and messages[id_].open_calls]
        for message in waiting:
            is_last = message is waiting[-1]
            if not message.is_over:
                self._finish_step(message, at_ms, patch=patch if is_last else None)
                patch = None if is_last else patch
        turn = self._in_turn()
        if patch is not None and turn:
            at = next((m for m in reversed(turn) if m.had_calls), turn[-1])
            self._put(at, values.Patch(self._id("prt", at_ms), *patch), at_ms)
        current = messages.get(self.open_id or "")
        if current is not None:
            first = next(iter(current.parts.values()), None)
            if isinstance(first, values.StepStart) and first.snapshot != self._tree():
                self._put(current, replace(first, snapshot=self._tree() or first.snapshot), at_ms)

    def _settle(self, at_ms: int) -> None:
        """End steps that still wait for a snapshot, without it."""
        waiting, self.awaiting = self.awaiting, []
        for message in [m for id_ in waiting if (m := self.session.messages.get(id_)) and not m.is_over]:
            self._finish_step(message, at_ms, with_tree=False)

    def _finish_step(
        self, message: Message, at_ms: int, *, with_tree: bool = True, patch: tuple[str, tuple[str, ...]] | None = None
    ) -> None:
        """End a step of the model that has not failed."""
        self._end_texts(message, at_ms)
        assert isinstance(message.info, values.StepInfo)
        info, reason = message.info, message.finish or ("tool-calls" if message.had_calls else "stop")
        tree = self._tree() if with_tree else None
        self._put(message, values.StepFinish(self._id("prt", at_ms), reason, info.cost, info.usage, tree), at_ms)
        if patch is not None:
            self._put(message, values.Patch(self._id("prt", at_ms), *patch), at_ms)
        self._close(message, replace(info, completed_ms=at_ms, finish=reason))

    def _finish(self, message: Message, at_ms: int, failure: values.Failure | None = None) -> None:
        """Close a message without a step's end: it has failed, or is no step of a model."""
        self._end_texts(message, at_ms)
        assert isinstance(message.info, values.StepInfo)
        self._close(message, replace(message.info, completed_ms=at_ms, error=failure or message.info.error))

    def _close(self, message: Message, info: values.StepInfo) -> None:
        message.info = info
        message.is_said = message.is_over = True
        if self.open_id == info.id:
            self.open_id = None
        self._emit(MessageChanged(info))

    def close_step(self, at_ms: int) -> None:
        """End the open step because the model goes on with another message. Its calls (a subagent's) stay open."""
        self._settle(at_ms)
        message = self.session.messages.get(self.open_id or "")
        if message is not None and not message.is_over:
            self._finish_step(message, at_ms)

    # --- tools ---------------------------------------------------------------------------------------------

    def tool_call(self, item: Item, at_ms: int, *, complete: bool) -> None:
        """Show a tool call that was first seen (pending) or has all its arguments (running)."""
        part = next((p for p in item.content if isinstance(p, ToolCallPart)), None)
        if part is None:
            return
        agent = self.session.agent
        call_id = self.call_of_item.get(item.item_id)
        if call_id is None:
            call_id = self.call_of_item[item.item_id] = self._name_call(part.call_id, at_ms)
        call = self.session.call(call_id)
        if call is None and call_id in self.session.calls:
            return  # a person has removed its message
        if call is None:
            message = self._message_for(item, at_ms)
            tool = cards.view_call(agent, part.name, {}, []).tool
            call = values.ToolCall(self._id("prt", at_ms), call_id, tool, name=part.name)
            self.session.calls[call_id] = (message.info.id, call.id)
            message.open_calls.add(call_id)
            message.had_calls = self.session.snapshots.is_due = True
            self._put(message, call, at_ms)
        if complete and call.status == "pending":
            view = cards.view_call(agent, part.name, cards.arguments_of(part.arguments), todos_json(self.session.todos))
            arguments = dict(view.input)
            plan = text(arguments.pop("plan", None)) if view.tool == "plan_exit" else ""  # it is shown as text, and only once
            self._run(replace(call, tool=view.tool, input=arguments, status="running", start_ms=at_ms), at_ms)
            if plan:
                self.show_plan(self.session.calls[call_id][0], plan, at_ms)

    def show_plan(self, message_id: str, plan: str, at_ms: int) -> bool:
        """Show a plan as a text of the message whose call it is of, or of the newest answer, unless it is one already.

        False if there is no such message.
        """
        answers = [message for message in self._in_turn() if isinstance(message.info, values.StepInfo)]
        said = (part.text.strip() for message in answers for part in message.parts.values() if isinstance(part, values.Text))
        if plan.strip() in said:
            return True
        message = self.session.messages.get(message_id) or next(reversed(answers), None)
        if message is not None:
            self._say(message, plan, at_ms)
        return message is not None

    def call_id(self, native_id: str) -> str:
        """The id of the agent's newest call with this native id."""
        return self._call_names.get(native_id, native_id)

    def _name_call(self, native_id: str, at_ms: int) -> str:
        """Return an id for a new call. A native id is no identity: model servers use one again, some for each call.

        An open call that the agent repeats the id of has lost its result.
        """
        if native_id not in self.session.calls:
            return native_id
        old = self.session.call(self.call_id(native_id))
        if old is not None and old.status in ("pending", "running"):
            self._fail_call(old, NO_RESULT, at_ms)
            self.session.messages[self.session.calls[old.call_id][0]].open_calls.discard(old.call_id)
        number = 2
        while f"{native_id}#{number}" in self.session.calls:
            number += 1
        name = self._call_names[native_id] = f"{native_id}#{number}"
        return name

    def _message_for(self, item: Item, at_ms: int) -> Message:
        parent = self.session.messages.get(self.message_of_item.get(item.parent_id or "", ""))
        if parent is not None and not parent.is_over:
            return parent
        current = self.session.messages.get(self.open_id or "")
        return current if current is not None else self._new_assistant(at_ms, None)

    def _context(self, call: values.ToolCall) -> cards.ToolContext:
        message = self.session.messages[self.session.calls[call.call_id][0]]
        model = (message.info.model.provider_id, message.info.model.model_id)
        return cards.ToolContext(self.session.record.directory, self.session.agent, self.session.id, call.child_id, model)

    def put_call(self, call: values.ToolCall, at_ms: int) -> None:
        """Replace a call by its changed value."""
        self._put(self.session.messages[self.session.calls[call.call_id][0]], call, at_ms)

    def _run(self, call: values.ToolCall, at_ms: int, output: str | None = None) -> None:
        title, metadata = cards.running_metadata(cards.ToolView(call.tool, dict(call.input)), self._context(call))
        if output is not None:
            metadata = {**(metadata or {}), "output": output}
        self.put_call(replace(call, title=title, metadata=metadata, output=call.output if output is None else output), at_ms)

    def child_opened(self, call_id: str, child_id: str, at_ms: int) -> None:
        """Note that a subagent's session exists, so that its tool card can be opened."""
        call = self.session.call(self.call_id(call_id))
        if call is None:
            return
        call = replace(call, child_id=child_id)
        if call.status == "running":
            self._run(call, at_ms)
        else:
            self.note_call(call)

    def note_call(self, call: values.ToolCall) -> None:
        """Keep a changed call without announcing it, since its card looks the same."""
        message_id, part_id = self.session.calls[call.call_id]
        self.session.messages[message_id].parts[part_id] = call

    def result_started(self, item: Item) -> None:
        """Note the call whose tool begins to give output."""
        part = next((p for p in item.content if isinstance(p, ToolResultPart)), None)
        if part is not None:
            self.call_of_item[item.item_id] = self.call_id(part.call_id)

    def _tool_output(self, data: ItemDeltaData, at_ms: int) -> None:
        call = self.session.call(self.call_of_item.get(data.item_id, ""))
        if call is not None and call.status == "running":
            self._run(call, at_ms, call.wrote(data.delta))

    def result(self, item: Item, at_ms: int) -> None:
        """Complete or fail the call whose tool has ended."""
        part = next((p for p in item.content if isinstance(p, ToolResultPart)), None)
        known = self.call_of_item.get(item.item_id)
        call = self.session.call(known or self.call_id(part.call_id)) if part is not None else None
        if part is None or call is None or call.status in ("completed", "error"):
            return
        message = self.session.messages[self.session.calls[call.call_id][0]]
        meta = obj(item.metadata)
        interrupted = meta.get("interrupted") is True
        failed_shell = call.tool == "bash" and isinstance(meta.get("exit_code"), int)
        if item.status is ItemStatus.FAILED and not failed_shell:
            error = (
                INTERRUPTED
                if interrupted
                else call.refused or cards.failure(part.output + cards.refusals_of(item), self.session.id)
            )
            self._fail_call(call, error, at_ms, interrupted=interrupted)
        else:
            self._complete_call(call, item, at_ms)
        message.open_calls.discard(call.call_id)
        self._finish_if_over(message, at_ms)

    def _complete_call(self, call: values.ToolCall, item: Item, at_ms: int) -> None:
        for part in item.content:
            if isinstance(part, FileRefPart) and part.action != "read":
                self._changes.append(FileChange(part.path, part.diff or "", part.action == "write"))
                self._emit(FileEdited(part.path))
        if cards.says_changes(self.session.agent, call.name):
            call = replace(call, tool="todowrite", input={"todos": todos_json(self.session.todos)})
        card = cards.view_result(cards.ToolView(call.tool, dict(call.input)), item, self._context(call))
        attachments = tuple(values.File(self._id("prt", at_ms), a.mime or "image/png", url_of(a)) for a in card.attachments)
        ended = replace(
            call,
            status="completed",
            output=card.output,
            title=card.title,
            metadata=card.metadata,
            start_ms=call.start_ms or at_ms,
            end_ms=at_ms,
            attachments=attachments or None,
        )
        self.put_call(ended, at_ms)

    def _fail_call(self, call: values.ToolCall, error: str, at_ms: int, *, interrupted: bool = False) -> None:
        metadata: dict[str, object] = {"output": call.output} if call.output else {}
        if interrupted:
            metadata["interrupted"] = True
        times = {"start_ms": call.start_ms or at_ms, "end_ms": at_ms}
        self.put_call(replace(call, status="error", error=error, metadata=metadata or None, title=None, **times), at_ms)

    # --- the end of a turn ---------------------------------------------------------------------------------

    def _fail_open_calls(self, error: str, at_ms: int, *, interrupted: bool = False) -> None:
        """Fail all calls of this turn that have no result."""
        for message in self._in_turn():
            for call_id in sorted(message.open_calls):
                if (call := self.session.call(call_id)) is not None:
                    self._fail_call(call, error, at_ms, interrupted=interrupted)
            message.open_calls.clear()

    def fail(self, failure: values.Failure, at_ms: int, *, call_error: str) -> None:
        """Fail the prompt that is being answered: its open calls fail and its message carries the failure."""
        if self.open_id is None:
            self._settle(at_ms)
        message = self.session.messages.get(self.open_id or "")
        if message is None and self.turn_messages:
            message = self.session.messages.get(self.turn_messages[-1])
            info = message.info if message is not None else None
            if isinstance(info, values.StepInfo):
                if info.compacts and info.error is not None and info.parent_id == self.parent_id:
                    return  # the compaction that was asked for has its own error already
                if info.parent_id != self.parent_id or info.compacts or info.error is not None:
                    message = None
        if message is None:
            message = self._new_assistant(at_ms, None)
        self._fail_open_calls(call_error, at_ms, interrupted=True)
        self._finish(message, at_ms, failure=failure)

    def fail_prompt(self, item_id: str, failure: values.Failure, at_ms: int) -> None:
        """Answer a prompt that no agent got with a failure, beside the prompt that is being answered."""
        current, self.parent_id = self.parent_id, self.prompt_of_item.get(item_id)
        if self.parent_id in self.session.messages:
            message = self._new_assistant(at_ms, None)
            self._finish(message, at_ms, failure=failure)
            self.turn_messages.remove(message.info.id)
        self.parent_id = current

    def end_turn(self, turn_cost: float, at_ms: int) -> None:
        """End all that is still open in the turn. The part of `turn_cost` (USD) that no step has goes to the last message."""
        self._fail_open_calls(NO_RESULT, at_ms)
        self.close_step(at_ms)
        messages = [message for message in self._in_turn() if isinstance(message.info, values.StepInfo)]
        unpaid = turn_cost - sum(_cost(message) for message in messages)
        if messages and unpaid > COST_ROUNDING:
            last = messages[-1]
            assert isinstance(last.info, values.StepInfo)
            last.info = replace(last.info, cost=last.info.cost + unpaid)
            self._emit(MessageChanged(last.info))
        self.summarise()
        record, steps = self.session.record, [message.info for message in messages if isinstance(message.info, values.StepInfo)]
        usage, cost = sum((step.usage for step in steps), record.usage), sum((step.cost for step in steps), record.cost)
        self.session.record = replace(record, usage=usage, cost=cost)
        self.turn_messages, self._is_own = [], False
        self.parent_id = self.compaction_id = None
        self._call_names = {}
        self._forget_items()


def _newest(items: dict[str, T]) -> dict[str, T]:
    return items if len(items) <= ITEMS else dict(islice(items.items(), len(items) - ITEMS_LEFT, None))


def _cost(message: Message) -> float:
    return message.info.cost if isinstance(message.info, values.StepInfo) else 0


def url_of(image: ImagePart) -> str:
    """An image as a URL."""
    return image.path if image.path.startswith(("data:", "http:", "https:", "file:")) else f"file://{image.path}"


def todos_json(todos: Iterable[values.Todo]) -> list[dict[str, object]]:
    """The todo list in the form of tools' input."""
    return [{"content": t.content, "status": t.status, "priority": t.priority, **t.extra} for t in todos]
