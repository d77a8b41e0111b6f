"""The prompts of one session that are not answered yet: in which order they are handed, and which wait for a person's word.

accepted  key -> prompts that are queued, or being answered
parked    message id -> prompts that are shown and that no agent has been given: an abort has cancelled them, or they were sent
          to wait, or the server was killed before it could hand them over. The next prompt takes them along as text
          (`context`), or `resume` hands them over as they are. They come back from the journal (`given.Waiting`).

Whether a turn runs is the turn machine's business; this only says what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from shim.sessions.accepted import Accepted
from shim.sessions.branch import Branch
from universal.events import EventType, ItemData

PARKED = 100
"""So many are kept for `resume`, the newest."""


class Inbox:
    """One session's. `prompt` gives the key of a new prompt to the session's turn machine."""

    def __init__(self, branch: Branch, prompt: Callable[[str], None]) -> None:
        self._branch = branch
        self._prompt = prompt
        self.accepted: dict[str, Accepted] = {}
        self.parked: dict[str, Accepted] = {}

    def show(self, accepted: Accepted) -> Accepted:
        """Its message; from then on it has that message's id."""
        self._branch.record(EventType.ITEM_COMPLETED, ItemData(item=accepted.item))
        message_id = self._branch.reducer.transcript.prompt_of_item(accepted.item.item_id)
        return accepted.shown(message_id)

    def queue(self, accepted: Accepted) -> None:
        """To be handed over: behind those that wait already, but before those that wait for all."""
        self.accepted[accepted.prompt.key] = accepted
        self._prompt(accepted.prompt.key)
        self._order(accepted)

    def _order(self, accepted: Accepted) -> None:
        if not accepted.queues:
            patient = [key for key, other in self.accepted.items() if other.queues]
            self._branch.machine.advance(accepted.prompt.key, patient)

    def park(self, accepted: Accepted) -> None:
        """It waits for the next prompt, or for `resume`."""
        self.parked[accepted.message_id] = accepted
        if len(self.parked) > PARKED:
            del self.parked[next(iter(self.parked))]

    def restore(self, waiting: Mapping[str, Accepted]) -> None:
        """What the journal says that waits, of a session that was just read: message id -> prompt, oldest first."""
        for message_id, accepted in waiting.items():
            if message_id in self._branch.session.messages:  # else it was undone, or removed
                self.park(accepted)

    def cancelled(self, *keys: str) -> None:
        """They will not be handed over by this turn. Those that are not here are none."""
        for key in keys:
            accepted = self.accepted.pop(key, None)
            if accepted is None:
                continue
            if not accepted.prompt.compact:
                self.park(accepted)
            self._branch.status("prompt", state="cancelled", item_id=key)

    def change(self, message_id: str, accepted: Accepted) -> None:
        """What is parked is to be handed otherwise; nothing if it was taken meanwhile."""
        if message_id in self.parked:
            self.parked[message_id] = accepted

    def carried(self, message_ids: Iterable[str]) -> None:
        """These went along with another prompt."""
        for id_ in message_ids:
            self.parked.pop(id_, None)

    def resume(self) -> None:
        """Hand over what was parked, oldest first, but those that wait for all last; less what is not shown any more."""
        waiting, self.parked = sorted(self.parked.items(), key=lambda one: one[1].queues), {}
        for id_, accepted in waiting:
            if id_ in self._branch.session.messages:
                self.queue(accepted)

    def withdraw(self, message_id: str) -> bool:
        """The prompt is not to be handed over, and not shown any more; False if it waits for nothing."""
        accepted = self._waiting(message_id)
        if accepted is None:
            return False
        self._branch.machine.withdraw(accepted.prompt.key)
        self.accepted.pop(accepted.prompt.key, None)
        self.parked.pop(message_id, None)
        self._branch.status("prompt", state="withdrawn", item_id=accepted.item.item_id)
        self._branch.status("message.removed", message_id=message_id)
        return True

    def redeliver(self, message_id: str, delivery: str) -> bool:
        """Change how a prompt that waits is to be handed over ("steer", "queue"); False if it does not wait."""
        accepted = self._waiting(message_id)
        if accepted is None:
            return False
        changed = accepted.with_metadata({"delivery": delivery})
        if message_id in self.parked:
            self.parked[message_id] = changed
        else:
            self.accepted[changed.prompt.key] = changed
            self._order(changed)
        self._branch.status("prompt", state="delivery", item_id=accepted.item.item_id, delivery=delivery)
        return True

    def _waiting(self, message_id: str) -> Accepted | None:
        queued = (one for one in self.accepted.values() if one.prompt.key in self._branch.machine.queue)
        return next((one for one in queued if one.message_id == message_id), None) or self.parked.get(message_id)
