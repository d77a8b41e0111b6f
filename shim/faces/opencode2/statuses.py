"""What status items say on the OpenCode 2 face: the inbox, the session's own properties, undo, skills. Pure.

`STATUSES` is the table: label -> what it does. Their metadata, where no other face writes it:

    prompt     state "delivery" with item_id, delivery; "withdrawn" with item_id: taken out of the inbox by a person
    viewed     idle (ms): the end of a turn that a person has seen
    skill      id, name, text
    synthetic  text, description?, metadata?: put into the conversation, for no agent to answer
"""

from __future__ import annotations

from collections.abc import Callable

from shim.faces.opencode2 import session_info as session
from shim.faces.opencode2.events import Wire
from shim.faces.opencode2.state import Conversation2
from shim.faces.opencode2.steps import Steps
from shim.faces.opencode2.teller import Teller, message_id
from universal.jsonvalue import arr, obj, text, whole
from universal.session import importer
from universal.session.reducer import Reducer

Deliver = Callable[[list[str]], None]

PROPERTIES: dict[str, tuple[str, object]] = {
    "title": ("session.renamed", ""),
    "metadata": ("session.metadata.updated", dict[str, object]()),
    "permissions": ("session.permissions", list[object]()),
}
"""Property of `SessionInfo` -> (the event of a change, its value if it is absent)."""


class Statuses:
    """Status items of one session. `reducer` has the session after the same event."""

    def __init__(self, conversation: Conversation2, teller: Teller, steps: Steps, reducer: Reducer, deliver: Deliver) -> None:
        self._conversation = conversation
        self._teller = teller
        self._steps = steps
        self._reducer = reducer
        self._deliver = deliver
        self._cancelled: list[str] = []

    # --- the session's properties --------------------------------------------------------------------------

    def updated(self, new: Wire, *, chosen: frozenset[str]) -> None:
        """The record has changed; `new` is its `info`. `chosen`: which of agent and model somebody selected.

        A session that has neither gets those of its first step; what a prompt brings is told when it is another one.
        """
        old = self._conversation.info
        time = {**old["time"], "updated": new["time"]["updated"]}
        time = {k: v for k, v in time.items() if k != "archived"} | {k: v for k, v in new["time"].items() if k == "archived"}
        self._conversation.info = {**old, "time": time}
        if ("archived" in time) != ("archived" in old["time"]):
            self._teller.tell("session.archived" if "archived" in time else "session.unarchived", {})
        for key, (kind, empty) in PROPERTIES.items():
            if new.get(key, empty) != old.get(key, empty):
                self._change(kind, key, new.get(key, empty))
        for key in ("agent", "model"):
            if key in new and new[key] != old.get(key) and (key in chosen or key in old):
                self._select(key, new[key], old.get(key))

    def _change(self, kind: str, key: str, value: object) -> None:
        self._teller.tell(kind, {key: value})
        self._conversation.info = {**self._conversation.info, key: value}

    def _select(self, key: str, value: object, previous: object) -> None:
        told: Wire = {key: value, **({"previous": previous} if previous is not None else {})}
        event = self._teller.tell(f"session.{key}.selected", told)
        self._conversation.info = {**self._conversation.info, key: value}
        self._show(message_id(event), f"{key}-switched", told)

    def _show(self, id_: str, kind: str, told: Wire) -> None:
        self._conversation.messages[id_] = {"id": id_, "time": {"created": self._teller.at}, "type": kind, **told}

    def viewed(self, meta: Wire) -> None:
        """A person has seen the end of a turn."""
        idle = whole(meta.get("idle"))
        self._teller.tell("session.viewed", {"idle": idle})
        info = self._conversation.info
        self._conversation.info = {**info, "time": {**info["time"], "viewed": idle}}

    # --- prompts -------------------------------------------------------------------------------------------

    def prompt(self, meta: Wire) -> None:
        """What became of a prompt."""
        inbox, state = self._conversation.inbox, meta.get("state")
        id_ = self._reducer.transcript.prompt_of_item(text(meta.get("item_id")))
        entry = inbox.get(id_)
        if state == "handed":
            carried = {text(one) for one in arr(meta.get("carried"))}
            self._instructed(obj(meta.get("instructions")))
            self._deliver([one for one in inbox if one in carried and one != id_] + [id_])
        elif entry is None:
            return
        elif state == "withdrawn" or (state == "cancelled" and entry["type"] == "compaction"):
            self.withdraw(id_)
        elif state == "cancelled":
            self._cancelled = [id_]
        elif state == "delivery":
            delivery = text(meta.get("delivery"), "steer")
            inbox[id_] = {**entry, "delivery": delivery}
            self._teller.tell("session.inbox.delivery.changed", {"inboxID": id_, "delivery": delivery})

    def take_cancelled(self) -> list[str]:
        """The prompt that was cancelled last, once: it belongs to the error that the journal has behind it."""
        found, self._cancelled = self._cancelled, []
        return found

    def _instructed(self, told: Wire) -> None:
        """Instructions that have changed go along with the prompt; the session's first ones are no message."""
        if not told:
            return
        event = self._teller.tell("session.instructions.updated", {key: told[key] for key in ("delta", "text") if key in told})
        if "text" in told:
            self._show(message_id(event), "system", {"text": told["text"]})

    def withdraw(self, id_: str) -> None:
        """An item of the inbox will never be delivered."""
        if self._conversation.inbox.pop(id_, None) is not None:
            self._teller.tell("session.inbox.cancelled", {"inboxID": id_})

    # --- what is put in, taken out, rewritten --------------------------------------------------------------

    def moved(self, meta: Wire) -> None:
        """The session works in another directory from now on."""
        info = self._conversation.info
        previous = {key: info[key] for key in ("location", "projectID", "subpath") if key in info}
        place: Wire = {"location": {"directory": text(meta.get("directory"))}, "projectID": text(meta.get("project_id"))}
        place |= {"subpath": meta["path"]} if meta.get("path") else {}
        self._conversation.info = {**{key: value for key, value in info.items() if key != "subpath"}, **place}
        event = self._teller.tell("session.moved", place)
        self._show(message_id(event), "location-switched", {**place, "previous": previous})

    def skill(self, meta: Wire) -> None:
        """A skill was put into the conversation."""
        told: Wire = {key: text(meta.get(key)) for key in ("id", "name", "text")}
        event = self._teller.tell("session.skill.activated", told)
        self._show(message_id(event), "skill", {"skill": told["id"], "name": told["name"], "text": told["text"]})

    def synthetic(self, meta: Wire) -> None:
        """A text was put into the conversation."""
        told: Wire = {"text": text(meta.get("text")), **{k: meta[k] for k in ("description", "metadata") if meta.get(k)}}
        event = self._teller.tell("session.synthetic", told)
        self._show(message_id(event), "synthetic", told)

    def revert(self, meta: Wire) -> None:
        """An undo is staged, taken back, or made for good."""
        info, new = self._conversation.info, importer.revert(meta.get("revert"))
        if new is not None:
            staged = session.revert_of(new, self._steps.wire_id(new.message_id), importer.diffs(meta.get("diffs")))
            self._conversation.info = {**info, "revert": staged}
            self._teller.tell("session.revert.staged", {"revert": staged})
            return
        self._conversation.info = {key: value for key, value in info.items() if key != "revert"}
        touched = {text(core_id) for core_id, _ in map(arr, arr(meta.get("parts")))}
        for core_id in touched:
            self._rewrite(core_id)
        gone = [self._steps.wire_id(text(core_id)) for core_id in arr(meta.get("messages"))]
        for id_ in gone:
            self.withdraw(id_)
        to = next((id_ for id_ in self._conversation.messages if id_ in gone), None)
        if to is not None:
            self._cut(to)
        elif "revert" in info:
            self._teller.tell("session.revert.cleared", {})

    def _cut(self, to: str) -> None:
        """Messages from this one on are gone. A prompt accepted before it, but delivered after it, is not: it comes again."""
        messages = self._conversation.messages
        known = list(messages)
        cut = [messages.pop(id_) for id_ in known[known.index(to) :]]
        self._teller.tell("session.revert.committed", {"to": to})
        for message in cut:
            if message["type"] in ("user", "synthetic") and message["id"] in self._reducer.session.messages:
                payload = {key: value for key, value in message.items() if key not in ("id", "time", "type")}
                item = {"type": message["type"], "payload": payload, "delivery": "steer"}
                self._teller.tell("session.inbox.enqueued", {"inboxID": message["id"], "item": item})
                self._teller.tell("session.inbox.delivered", {"inboxID": message["id"]})
                messages[message["id"]] = {**message, "time": {"created": self._teller.at}}

    def removed(self, meta: Wire) -> None:
        """A client of OpenCode 1 has removed a message. Events can only say so of the last ones, and empty others."""
        core_id = text(meta.get("message_id"))
        id_ = self._steps.wire_id(core_id)
        self.withdraw(id_)
        messages = self._conversation.messages
        if id_ not in messages:
            return
        known = list(messages)
        if all(messages[later]["type"] == "idle" for later in known[known.index(id_) + 1 :]):
            self._cut(id_)
            if (staged := self._conversation.revert) is not None:  # a commit ends what is staged, but this was none
                self._teller.tell("session.revert.staged", {"revert": staged})
            return
        if messages[id_]["type"] == "assistant":
            self._teller.tell("session.message.content.updated", {"messageID": id_, "content": []})
        del messages[id_]

    def rewritten(self, meta: Wire) -> None:
        """A client of OpenCode 1 has changed or removed a part. Of prompts, no event can say so."""
        self._rewrite(text(meta.get("message_id")) or text(obj(meta.get("part")).get("messageID")))

    def _rewrite(self, core_id: str) -> None:
        message = self._reducer.session.messages.get(core_id)
        shown = self._conversation.messages.get(core_id)
        if message is not None and self._steps.knows(core_id):
            self._steps.rewritten(core_id, message)
        elif message is not None and shown is not None and shown["type"] == "user":
            self._conversation.messages[core_id] = {**shown, "text": message.text()}


STATUSES: dict[str, Callable[[Statuses, Wire], None]] = {
    "prompt": Statuses.prompt,
    "viewed": Statuses.viewed,
    "moved": Statuses.moved,
    "skill": Statuses.skill,
    "synthetic": Statuses.synthetic,
    "revert": Statuses.revert,
    "message.removed": Statuses.removed,
    "part.removed": Statuses.rewritten,
    "part.updated": Statuses.rewritten,
}
"""Labels without a row say nothing here, or are told by the changes that the core makes of them (retry ...)."""
