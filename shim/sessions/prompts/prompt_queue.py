"""The prompts of one session that are not answered yet: their order, and which of them are parked.

pending   key -> prompts that are queued, or being answered
parked    message id -> prompts that clients see and that no agent got: an abort cancelled them, or they were sent to wait, or
          the server was killed first. The next prompt takes them along as text (`context`), or `resume` dispatches them as
          they are. They are read back from the journal (`prompt_payload.PendingPrompts`).

Whether a turn runs is decided by the turn machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from shim.sessions.prompts.pending_prompt import PendingPrompt
from universal.session.user_prompt import Delivery
from universal.turn import Input

if TYPE_CHECKING:
    from shim.sessions.session.actor import SessionActor

PARKED = 100
"""Parked prompts that are kept, the newest."""


class PromptQueue:
    """The queue of one session, whose turn machine gets the key of each new prompt."""

    def __init__(self, session: SessionActor) -> None:
        self._session = session
        self._state = session.main
        self.pending: dict[str, PendingPrompt] = {}
        self.parked: dict[str, PendingPrompt] = {}
        self.read_for_key = ""
        """The prompt for which the configuration was read when it was accepted. It is read again for one that has waited."""

    def queue(self, pending: PendingPrompt, *, is_current: bool = False) -> None:
        """Queue a prompt for dispatch: behind those that wait already, but before those that wait for all.

        In: `is_current`, the configuration was read for it just now.
        """
        key = pending.prompt.key
        if not self.pending:
            self._state.account = pending.account
        self.pending[key] = pending
        self.read_for_key = key if is_current else ""
        self._session.apply(Input.PROMPT, key)
        if key in self._state.machine.queue:
            self.read_for_key = ""
        self._order(pending)

    def _order(self, pending: PendingPrompt) -> None:
        if len(self.pending) > 1 and not pending.waits_for_all:
            patient = [key for key, prompt in self.pending.items() if prompt.waits_for_all]
            self._state.machine.advance(pending.prompt.key, patient)

    def park(self, pending: PendingPrompt) -> None:
        """Keep a prompt for the next prompt, or for `resume`."""
        self.parked[pending.message_id] = pending
        if len(self.parked) > PARKED:
            del self.parked[next(iter(self.parked))]

    def restore(self, waiting: Mapping[str, PendingPrompt]) -> None:
        """Park the prompts that a journal says wait: message id -> prompt, oldest first."""
        for message_id, pending in waiting.items():
            if message_id in self._state.session.messages:  # else it was undone, or removed
                self.park(pending)

    def cancel(self, *keys: str) -> None:
        """Take prompts out of this turn, and park them. Unknown keys are ignored."""
        for key in keys:
            pending = self.pending.pop(key, None)
            if pending is None:
                continue
            if not pending.prompt.compact:
                self.park(pending)
            self._state.status("prompt", state="cancelled", item_id=key)

    def lose_queued(self) -> None:
        """Take all prompts that no agent has taken in out of this turn, since the server stops, and park them."""
        for key in self._state.machine.take_waiting():
            pending = self.pending.get(key)
            if pending is not None and pending.expects_answer:
                self.park(self.pending.pop(key))
                self._state.lose_prompt(pending)
            else:
                self.cancel(key)

    def replace_parked(self, message_id: str, pending: PendingPrompt) -> None:
        """Change a parked prompt; nothing if it was taken meanwhile."""
        if message_id in self.parked:
            self.parked[message_id] = pending

    def drop_parked(self, message_ids: Iterable[str]) -> None:
        """Remove prompts that went along with another one."""
        for id_ in message_ids:
            self.parked.pop(id_, None)

    def count_waits(self, account: str) -> int:
        """How many prompts wait that count for a person."""
        waiting = filter(None, map(self.pending.get, self._state.machine.queue))
        return sum(prompt.account == account for prompt in waiting)

    def resume(self, account: str = "") -> None:
        """Queue what was parked, oldest first, but those that wait for all last; leave out messages that were removed.

        In: `account`, the person for whom they count now.
        """
        waiting, self.parked = sorted(self.parked.items(), key=lambda item: item[1].waits_for_all), {}
        for id_, pending in waiting:
            if id_ in self._state.session.messages:
                self.queue(replace(pending, account=account))

    def withdraw(self, message_id: str) -> bool:
        """Remove a prompt that waits, with its message; False if it does not wait."""
        pending = self._find(message_id)
        if pending is None:
            return False
        self._state.machine.withdraw(pending.prompt.key)
        self.remove(pending)
        return True

    def remove(self, pending: PendingPrompt) -> None:
        """Remove a prompt that the turn machine has not (any more), with its message."""
        self.pending.pop(pending.prompt.key, None)
        self.parked.pop(pending.message_id, None)
        self._state.status("prompt", state="withdrawn", item_id=pending.item.item_id)
        self._state.status("message.removed", message_id=pending.message_id)

    def redeliver(self, message_id: str, delivery: Delivery) -> bool:
        """Change the delivery of a prompt that waits ("steer", "queue"); False if it does not wait."""
        pending = self._find(message_id)
        if pending is None:
            return False
        changed = pending.with_delivery(delivery)
        if message_id in self.parked:
            self.parked[message_id] = changed
        else:
            self.pending[changed.prompt.key] = changed
            self._order(changed)
        self._state.status("prompt", state="delivery", item_id=pending.item.item_id, delivery=delivery)
        return True

    def find_offer(self, message_id: str) -> PendingPrompt | None:
        """The prompt of this message, if the agent has it and has not taken it in."""
        offers = (self.pending.get(key) for key in self._state.machine.offers)
        return next((prompt for prompt in offers if prompt is not None and prompt.message_id == message_id), None)

    def _find(self, message_id: str) -> PendingPrompt | None:
        queued = (prompt for prompt in self.pending.values() if prompt.prompt.key in self._state.machine.queue)
        return next((prompt for prompt in queued if prompt.message_id == message_id), None) or self.parked.get(message_id)
