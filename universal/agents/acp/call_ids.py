"""Gives each tool call of an ACP agent an id of its own, because its model server may use one again.

llama.cpp gives every call of a session the same id, Kimi the same in each turn. The first call with an id keeps it, the next ones
get a number (`call_0#2`), as in `universal.session.transcript`. Some agents repeat what they have said of a call that is over
(Cline a refused one, pi-acp a completed one), which is no new call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from universal.agents.acp.context import Msg
from universal.agents.acp.tools import Call, input_of
from universal.lib.jsonline import get_text

_OVER = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class _EndedCall:
    arguments: int
    """Hash of its arguments."""
    was_refused: bool
    lost: Call | None
    """The call itself, if its turn has ended before its result came."""


@dataclass(slots=True)
class CallIds:
    """The ids of one session. In: `calls`, the open calls by the ids that are given here."""

    calls: dict[str, Call]
    _ids: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Native id -> ids of its calls, the newest last. Those of older calls that are over are left out."""
    _ended: dict[str, _EndedCall] = field(default_factory=dict[str, _EndedCall])

    def has_ended(self, call_id: str) -> bool:
        """Return whether this call is over."""
        return call_id in self._ended

    def end(self, call: Call, *, is_lost: bool = False) -> None:
        """Note that a call is over. In: `is_lost`, whether its result may still come."""
        self._ended[call.call_id] = _EndedCall(_hash(call.raw_input), call.rejected, call if is_lost else None)

    def find(self, native_id: str) -> Call | None:
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
        arguments = input_of(update.get("rawInput"))
        newest = self.calls[ids[-1]]
        if begins and newest.is_running and arguments and arguments != newest.raw_input:
            return ""
        same = [id_ for id_ in ids if arguments and self.calls[id_].raw_input == arguments]
        if get_text(update, "status") in _OVER:  # they end in the order in which they began
            return (same or ids)[0]
        return (same or ids)[-1]

    def _is_repeat(self, ended: _EndedCall | None, update: Msg, *, begins: bool, is_asked: bool) -> bool:
        """Return whether an update only repeats what was said of a call that is over."""
        status, arguments = get_text(update, "status"), input_of(update.get("rawInput"))
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
    if lost is None or input_of(update.get("rawInput")):
        return update
    return {"name": lost.name, "title": lost.title, "kind": lost.kind, "rawInput": lost.raw_input, **update}


def _hash(arguments: Msg) -> int:
    return hash(json.dumps(arguments, sort_keys=True))
