"""Builds the items of what an ACP agent says: messages with text and thinking, tool calls and their results.

Each item is started before it is completed and completed exactly once; the text of a message is the concatenation of its
deltas. ACP marks no end of a message: it ends when a chunk of another message comes, when text follows a tool call, when a call
begins after all earlier calls have ended, or with the turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from universal.agents import kit
from universal.agents.acp import tools
from universal.agents.acp.wire import Context, Msg
from universal.codec import Fact
from universal.items import ContentPart, ImagePart, Item, ItemStatus, Json
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import obj

# --- ids of calls -----------------------------------------------------------------------------------------------

_OVER = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class _EndedCall:
    arguments: int
    was_refused: bool
    lost: tools.Call | None
    """The call itself, if its turn has ended before its result came."""


@dataclass(slots=True)
class CallIds:
    """The ids of one session. In: `calls`, the open calls by the ids that are given here."""

    calls: dict[str, tools.Call]
    _ids: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Native id -> ids of its calls, the newest last. Those of older calls that are over are left out."""
    _ended: dict[str, _EndedCall] = field(default_factory=dict[str, _EndedCall])

    def has_ended(self, call_id: str) -> bool:
        return call_id in self._ended

    def end(self, call: tools.Call, *, is_lost: bool = False) -> None:
        """Note that a call is over. In: `is_lost`, whether its result may still come."""
        self._ended[call.call_id] = _EndedCall(_hash(call.raw_input), call.rejected, call if is_lost else None)

    def find(self, native_id: str) -> tools.Call | None:
        """Return the newest open call with this native id, or with this id."""
        ids = self._ids.get(native_id) or [native_id]
        return next((self.calls[id_] for id_ in reversed(ids) if id_ in self.calls), None)

    def address(self, update: Msg, *, begins: bool = False, is_asked: bool = False) -> Msg:
        """Return an update with the id of the call that it is of.

        In: `begins`, whether it is a `tool_call`; `is_asked`, whether it is the call of a request for a permission.
        """
        native_id = get_text(update, "toolCallId")
        ids = self._ids.setdefault(native_id, [])
        open_ids = [id_ for id_ in ids if id_ in self.calls]
        if not ids:
            call_id = self._new_id(native_id)
        elif open_ids:
            call_id = self._open_id(open_ids, update, begins=begins) or self._new_id(native_id)
        elif self._is_repeat(self._ended.get(ids[-1]), update, begins=begins, is_asked=is_asked):
            call_id = ids[-1]
        else:
            call_id = self._new_id(native_id)
            update = update if begins or is_asked else _with_lost(self._ended.get(ids[-1]), update)
        self._ids[native_id] = [*(id_ for id_ in open_ids if id_ != call_id), call_id] if call_id not in open_ids else open_ids
        return update if call_id == native_id else {**update, "toolCallId": call_id}

    def _new_id(self, native_id: str) -> str:
        call_id, number = native_id, 1
        while call_id in self.calls or call_id in self._ended:
            number += 1
            call_id = f"{native_id}#{number}"
        return call_id

    def _open_id(self, ids: list[str], update: Msg, *, begins: bool) -> str:
        """Return which of these open calls an update is of, or "" for another call beside them."""
        arguments = tools.input_of(update.get("rawInput"))
        newest = self.calls[ids[-1]]
        if begins and newest.is_running and arguments and arguments != newest.raw_input:
            return ""
        same = [id_ for id_ in ids if arguments and self.calls[id_].raw_input == arguments]
        if get_text(update, "status") in _OVER:  # they end in the order in which they began
            return (same or ids)[0]
        return (same or ids)[-1]

    def _is_repeat(self, ended: _EndedCall | None, update: Msg, *, begins: bool, is_asked: bool) -> bool:
        """Return whether an update only repeats what was said of a call that is over."""
        status, arguments = get_text(update, "status"), tools.input_of(update.get("rawInput"))
        if ended is None or is_asked:
            return False
        if ended.lost is not None and not begins:
            return status in ("", "failed", "cancelled")
        is_same = not arguments or _hash(arguments) == ended.arguments
        if begins:
            return ended.was_refused and is_same and status in ("", "pending", "failed")
        if status in ("pending", "in_progress"):
            return not (arguments or get_text(update, "title", "kind"))
        return is_same or not status


def _with_lost(ended: _EndedCall | None, update: Msg) -> Msg:
    """Return an update of a call whose turn has ended before its result came, with what was known of the call."""
    lost = ended.lost if ended is not None else None
    if lost is None or tools.input_of(update.get("rawInput")):
        return update
    return {"name": lost.name, "title": lost.title, "kind": lost.kind, "rawInput": lost.raw_input, **update}


def _hash(arguments: Msg) -> int:
    return hash(json.dumps(arguments, sort_keys=True))


# --- items ------------------------------------------------------------------------------------------------------

_EXIT_CODE = re.compile(r"Exit code (\d{1,10})\b")
"""The beginning of the output with which Claude Code, behind its adapter, reports a failed command."""


@dataclass(slots=True)
class _Message:
    item_id: str
    native_id: str
    model: Msg | None
    parts: list[kit.Part] = field(default_factory=list[kit.Part])
    images: list[ImagePart] = field(default_factory=list[ImagePart])
    calls: set[str] = field(default_factory=set[str])
    ids: set[str] = field(default_factory=set[str])
    """Its native ids. Some agents give thinking an id of its own."""


@dataclass(slots=True)
class Transcript(kit.Items[Context]):
    """The items of one session: it takes updates and yields facts."""

    untold_output: str = ""
    arguments_grow: bool = False
    """As in `Profile`."""
    calls: dict[str, tools.Call] = field(default_factory=dict[str, tools.Call])
    """Open calls by id."""
    has_spoken: bool = False
    """Whether a message has begun since `begin`."""
    ids: CallIds = field(init=False)
    _open: _Message | None = None

    def __post_init__(self) -> None:
        self.ids = CallIds(self.calls)

    def begin(self) -> None:
        """Reset `has_spoken`, because a new prompt begins."""
        self.has_spoken = False

    # --- messages -------------------------------------------------------------------------------------

    def chunk(self, kind: kit.PartKind, content: Msg, native_id: str, raw: Json) -> Iterator[Fact]:
        """Add a piece to the current message, or begin another one: text or an image."""
        image = content.get("type") == "image" and get_text(content, "data")
        text = tools.block_text(content)
        if not text and not image:
            if content.get("type") != "text":
                self.ctx.ignore(f"content of type {get_text(content, 'type') or 'none'}")
            return
        if self._begins_message(native_id):
            yield from self._begin(native_id, raw)
        message = self._open
        if message is None:
            return
        if native_id:
            message.ids.add(native_id)
        if image:
            message.images.append(kit.image(image, get_text(content, "mimeType")))
            return
        if not message.parts or message.parts[-1].kind != kind:
            message.parts.append(kit.Part(kind))
        message.parts[-1].growing.add(text)
        yield self.delta(message.item_id, message.native_id, text, len(message.parts) - 1, kind, raw)

    def _begins_message(self, native_id: str) -> bool:
        """Return whether a chunk with this id begins another message."""
        message = self._open
        if message is None or message.calls:
            return True
        only_thinking = all(part.kind == "reasoning" for part in message.parts)
        return bool(native_id and message.ids and native_id not in message.ids) and not only_thinking

    def _begin(self, native_id: str, raw: Json) -> Iterator[Fact]:
        yield from self._end(raw, finish="", interrupted=False)
        yield from self._close_refused(raw)
        self._open = _Message(self.ctx.ids("item"), native_id, self.ctx.model())
        self.has_spoken = True
        yield self.item_fact(self._item(self._open, ItemStatus.IN_PROGRESS, (), {}), raw)

    def _end(self, raw: Json, *, finish: str, interrupted: bool, extra: Msg | None = None) -> Iterator[Fact]:
        message, self._open = self._open, None
        if message is None:
            return
        metadata: Msg = (
            dict(kit.INTERRUPTED) if interrupted else {"finish": finish or ("tool-calls" if message.calls else "stop")}
        )
        content = (*kit.contents(message.parts), *message.images)
        item = self._item(message, kit.end_status(failed=interrupted), content, {**metadata, **(extra or {})})
        yield self.item_fact(item, raw)

    def close(self, raw: Json, *, finish: str = "", interrupted: bool = False, extra: Msg | None = None) -> Iterator[Fact]:
        """Complete all that is open, because the turn ends. `extra` (usage, cost) goes to the last message."""
        yield from self._end(raw, finish=finish, interrupted=interrupted, extra=extra)
        yield from self._close_refused(raw)
        for call in list(self.calls.values()):
            self._forget(call, is_lost=call.whole and not interrupted)
            if not call.whole:
                yield self.call_fact(call, ItemStatus.FAILED, raw, synthetic=True)
                continue
            yield from self._result(call, raw, failed=True, abandoned=True)

    def _close_refused(self, raw: Json) -> Iterator[Fact]:
        """Fail the calls that a person has refused and of which the agent says nothing more."""
        for call in [call for call in self.calls.values() if call.rejected and call.whole]:
            self._forget(call)
            yield from self._result(call, raw, failed=True)

    # --- tools ----------------------------------------------------------------------------------------

    def tool(self, update: Msg, raw: Json, *, is_asked: bool = False) -> Iterator[Fact]:
        """Read a `tool_call`, a `tool_call_update`, or (`is_asked`) the call of a permission request, with an id of `ids`."""
        if self.arguments_grow:
            update = tools.with_grown_arguments(update)
        call_id, status = get_text(update, "toolCallId"), get_text(update, "status")
        if not call_id:
            yield self.ctx.report_unparsed("tool call without id", "a tool call without toolCallId", raw)
            return
        if self.ids.has_ended(call_id):
            self.ctx.ignore("update of a call that is over")
            return
        call = self.calls.get(call_id)
        if call is None:
            call = yield from self._begin_call(call_id, update, raw)
        call.merge(update)
        call.is_running = call.is_running or status == "in_progress"
        yield from self._whole(call, raw, ran=is_asked or status in ("in_progress", "completed", "failed") or bool(call.response))
        yield from self._output(call, obj(update.get("_meta")), status, raw)
        if status in ("completed", "failed"):
            self._forget(call)
            if status == "failed" and call.kind == "execute" and call.exit_code is None:
                match = _EXIT_CODE.match(tools.output_of(call))
                call.exit_code = int(match[1]) if match else None
            yield from self._result(call, raw, failed=status == "failed" or call.dismissed or tools.reports_failure(call))
            todos = tools.todos_of(call) if status == "completed" else []
            if todos:
                yield self.ctx.status("todo", f"{len(todos)} todos", {"todos": todos}, raw)

    def _begin_call(self, call_id: str, update: Msg, raw: Json) -> Generator[Fact, None, tools.Call]:
        message = self._open
        if message is None or (message.calls and all(map(self.ids.has_ended, message.calls))):
            yield from self._begin("", raw)
            message = self._open
        parent = message.item_id if message is not None else ""
        if message is not None:
            message.calls.add(call_id)
        call = tools.Call(
            call_id,
            tools.name_of(update),
            self.ctx.ids("item"),
            parent,
            kind=get_text(update, "kind"),
            title=get_text(update, "title"),
        )
        call.titled = call.name == tools.name_by_title(update)
        self.calls[call_id] = call
        yield self.call_fact(call, ItemStatus.IN_PROGRESS, raw)
        return call

    def _whole(self, call: tools.Call, raw: Json, *, ran: bool) -> Iterator[Fact]:
        """Complete the call once it runs and its arguments are fixed. Before that, agents send them in growing pieces."""
        if ran and not call.whole:
            call.whole = True
            call.arguments = tools.arguments_of(call)
            yield self.call_fact(call, ItemStatus.COMPLETED, raw, title=tools.title_of(call))

    def _output(self, call: tools.Call, meta: Msg, status: str, raw: Json) -> Iterator[Fact]:
        """Report output while the call runs: pieces in `_meta`, or `content` that repeats and grows."""
        data = "".join(get_text(obj(meta.get(key)), "data") for key in ("terminal_output", "terminal_output_delta"))
        call.terminal += data
        if not data and status == "in_progress" and call.kind == "execute":
            text = tools.texts(call.content)
            data = text[len(call.output) :] if text.startswith(call.output) else ""
        if data and call.whole:
            yield from self.output_piece(call, data, raw)

    def _forget(self, call: tools.Call, *, is_lost: bool = False) -> None:
        self.calls.pop(call.call_id, None)
        self.ids.end(call, is_lost=is_lost)

    def _result(self, call: tools.Call, raw: Json, *, failed: bool, abandoned: bool = False) -> Iterator[Fact]:
        metadata = tools.metadata_of(call)
        content = tools.content_of(call, failed=failed)
        if self.untold_output and call.kind == "execute" and not tools.output_of(call):
            content = kit.output_part(call, self.untold_output)
        for kind in tools.hidden_content(call.content):
            self.ctx.ignore(f"content of type {kind}")
        if abandoned:
            metadata["interrupted"] = True
            content = kit.output_part(call, call.terminal or call.output or kit.ABANDONED)
        yield self.result_fact(call, content, metadata, raw, kit.end_status(failed=failed), synthetic=abandoned)

    # --- building -------------------------------------------------------------------------------------

    def _item(self, message: _Message, status: ItemStatus, content: tuple[ContentPart, ...], metadata: Msg) -> Item:
        model = {"model": message.model} if message.model else {}
        return kit.message_item(message.item_id, message.native_id, status, content, {**model, **metadata})
