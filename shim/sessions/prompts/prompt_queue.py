"""The prompts of one session that are not answered yet: in which order they are handed, and which wait for a person's word.

pending  key -> prompts that are queued, or being answered
parked    message id -> prompts that are shown and that no agent has been given: an abort has cancelled them, or they were sent
          to wait, or the server was killed before it could hand them over. The next prompt takes them along as text
          (`context`), or `resume` hands them over as they are. They come back from the journal (`given.PendingPrompts`).

Whether a turn runs is the turn machine's business; this only says what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from shim.sessions.prompts.pending_prompt import PendingPrompt
from shim.sessions.session_state import SessionState
from universal.events import EventType, ItemData

PARKED = 100
"""So many are kept for `resume`, the newest."""


class PromptQueue:
    """One session's. `prompt` gives the key of a new prompt to the session's turn machine."""

    def __init__(self, state: SessionState, prompt: Callable[[str], None]) -> None:
        self._state = state
        self._prompt = prompt
        self.pending: dict[str, PendingPrompt] = {}
        self.parked: dict[str, PendingPrompt] = {}

    def show(self, pending: PendingPrompt) -> PendingPrompt:
        """Its message; from then on it has that message's id."""
        self._state.record(EventType.ITEM_COMPLETED, ItemData(item=pending.item))
        message_id = self._state.reducer.transcript.prompt_of_item(pending.item.item_id)
        return pending.with_message_id(message_id)

    def queue(self, pending: PendingPrompt) -> None:
        """To be handed over: behind those that wait already, but before those that wait for all."""
        self.pending[pending.prompt.key] = pending
        self._prompt(pending.prompt.key)
        self._order(pending)

    def _order(self, pending: PendingPrompt) -> None:
        if not pending.waits_for_all:
            patient = [key for key, other in self.pending.items() if other.waits_for_all]
            self._state.machine.advance(pending.prompt.key, patient)

    def park(self, pending: PendingPrompt) -> None:
        """It waits for the next prompt, or for `resume`."""
        self.parked[pending.message_id] = pending
        if len(self.parked) > PARKED:
            del self.parked[next(iter(self.parked))]

    def restore(self, waiting: Mapping[str, PendingPrompt]) -> None:
        """What the journal says that waits, of a session that was just read: message id -> prompt, oldest first."""
        for message_id, pending in waiting.items():
            if message_id in self._state.session.messages:  # else it was undone, or removed
                self.park(pending)

    def cancel(self, *keys: str) -> None:
        """They will not be handed over by this turn. Those that are not here are none."""
        for key in keys:
            pending = self.pending.pop(key, None)
            if pending is None:
                continue
            if not pending.prompt.compact:
                self.park(pending)
            self._state.status("prompt", state="cancelled", item_id=key)

    def replace_parked(self, message_id: str, pending: PendingPrompt) -> None:
        """What is parked is to be handed otherwise; nothing if it was taken meanwhile."""
        if message_id in self.parked:
            self.parked[message_id] = pending

    def drop_parked(self, message_ids: Iterable[str]) -> None:
        """These went along with another prompt."""
        for id_ in message_ids:
            self.parked.pop(id_, None)

    def resume(self) -> None:
        """Hand over what was parked, oldest first, but those that wait for all last; less what is not shown any more."""
        waiting, self.parked = sorted(self.parked.items(), key=lambda one: one[1].waits_for_all), {}
        for id_, pending in waiting:
            if id_ in self._state.session.messages:
                self.queue(pending)

    def withdraw(self, message_id: str) -> bool:
        """The prompt is not to be handed over, and not shown any more; False if it waits for nothing."""
        pending = self._find(message_id)
        if pending is None:
            return False
        self._state.machine.withdraw(pending.prompt.key)
        self.pending.pop(pending.prompt.key, None)
        self.parked.pop(message_id, None)
        self._state.status("prompt", state="withdrawn", item_id=pending.item.item_id)
        self._state.status("message.removed", message_id=message_id)
        return True

    def redeliver(self, message_id: str, delivery: str) -> bool:
        """Change how a prompt that waits is to be handed over ("steer", "queue"); False if it does not wait."""
        pending = self._find(message_id)
        if pending is None:
            return False
        changed = pending.with_metadata({"delivery": delivery})
        if message_id in self.parked:
            self.parked[message_id] = changed
        else:
            self.pending[changed.prompt.key] = changed
            self._order(changed)
        self._state.status("prompt", state="delivery", item_id=pending.item.item_id, delivery=delivery)
        return True

    def _find(self, message_id: str) -> PendingPrompt | None:
        queued = (one for one in self.pending.values() if one.prompt.key in self._state.machine.queue)
        return next((one for one in queued if one.message_id == message_id), None) or self.parked.get(message_id)
