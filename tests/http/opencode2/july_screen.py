"""What the TUI of July shows of one session, by when its events and its answers came. Pure.

It works as that program's data layer (`context/data.tsx`, "last write wins"): events are taken in BATCH_S after they came, an
answer replaces what it is about, a text or call that begins is appended without a look whether it is there, and what belongs to a
message that is not there is dropped. A prompt that is admitted is pinned below the messages, and becomes one when it is promoted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Wire = dict[str, Any]
BATCH_S = 0.016


class Observation(NamedTuple):
    """An event that came, or (`read`) an answer that was laid over what was there."""

    at: float
    what: str
    data: Any
    read: bool = False


@dataclass
class Screen:
    """One session. `messages` are those of `v2_july`, by id and in order."""

    messages: dict[str, Wire] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    permissions: dict[str, Wire] = field(default_factory=dict)
    forms: dict[str, Wire] = field(default_factory=dict)
    running: bool = False

    def lay(self, what: str, data: list[Wire]) -> None:
        match what:
            case "message":
                self.messages = {one["id"]: copy_message(one) for one in reversed(data)}
            case "pending":
                self.inputs = {one["id"]: one["data"]["text"] for one in data}
            case "permission":
                self.permissions = {one["id"]: one for one in data}
            case "form":
                self.forms = {one["id"]: one for one in data}

    def feed(self, kind: str, data: Wire) -> None:
        if kind.startswith(("session.text.", "session.reasoning.")):
            self._talk(*kind.split(".")[1:], data)
        elif kind.startswith("session.tool."):
            self._tool(kind.removeprefix("session.tool."), data)
        elif kind.startswith("session.execution."):
            self.running = kind.endswith("started")
        elif (handler := getattr(self, "on_" + kind.replace(".", "_"), None)) is not None:
            handler(data)

    def on_session_input_admitted(self, data: Wire) -> None:
        self.inputs[data["inputID"]] = data["input"]["data"]["text"]

    def on_session_input_promoted(self, data: Wire) -> None:
        if (text := self.inputs.pop(data["inputID"], None)) is not None:
            self.messages[data["inputID"]] = {"id": data["inputID"], "type": "user", "text": text}

    def on_session_step_started(self, data: Wire) -> None:
        self.messages.setdefault(
            data["assistantMessageID"], {"id": data["assistantMessageID"], "type": "assistant", "content": []}
        )

    def on_permission_v2_asked(self, data: Wire) -> None:
        self.permissions.setdefault(data["id"], data)

    def on_permission_v2_replied(self, data: Wire) -> None:
        self.permissions.pop(data["requestID"], None)

    def on_form_created(self, data: Wire) -> None:
        self.forms.setdefault(data["form"]["id"], data["form"])

    def on_form_replied(self, data: Wire) -> None:
        self.forms.pop(data["id"], None)

    def _content(self, data: Wire) -> list[Wire]:
        return self.messages.get(data["assistantMessageID"], {}).get("content", [])

    def _talk(self, kind: str, what: str, data: Wire) -> None:
        content = self._content(data)
        if what == "started":
            content.append({"type": kind, "text": ""})
            return
        latest = next((one for one in reversed(content) if one["type"] == kind), None)
        if latest is not None:
            latest["text"] = latest["text"] + data["delta"] if what == "delta" else data["text"]

    def _tool(self, what: str, data: Wire) -> None:
        content = self._content(data)
        if what == "input.started":
            content.append({"type": "tool", "id": data["callID"], "name": data["name"], "state": {"status": "streaming"}})
            return
        latest = next((one for one in reversed(content) if one.get("id") == data["callID"]), None)
        status = {"called": "running", "success": "completed", "failed": "error"}.get(what)
        if latest is not None and status is not None:
            latest["state"] = {"status": status}

    def visible_rows(self) -> list[Any]:
        """What a person sees: prompts, texts, and cards of calls with their states."""
        found: list[Any] = []
        for one in self.messages.values():
            if one["type"] == "user":
                found.append(("user", one["text"]))
            elif one["type"] == "assistant":
                found += [
                    (part["name"], part["state"]["status"]) if part["type"] == "tool" else (part["type"], part["text"])
                    for part in one["content"]
                ]
        return found


def copy_message(message: Wire) -> Wire:
    return {**message, "content": [dict(part) for part in message["content"]]} if "content" in message else dict(message)


def screen_of(seen: Iterable[Observation]) -> Screen:
    """The screen after all of it. `at` of an event is when it came, of an answer when the client has laid it."""
    screen = Screen()
    for one in sorted(seen, key=lambda one: one.at if one.read else one.at + BATCH_S):
        if one.read:
            screen.lay(one.what, one.data)
        else:
            screen.feed(one.what, one.data)
    return screen
