"""Folds OpenCode 1's events into the state that a client shows, to compare it with HTTP's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Wire = dict[str, Any]


@dataclass
class Fold:
    """One session as its events tell it; `violations` lists what a client could not make sense of."""

    session_id: str
    info: Wire = field(default_factory=dict)
    messages: dict[str, Wire] = field(default_factory=dict)
    parts: dict[str, dict[str, Wire]] = field(default_factory=dict)
    todos: list[Wire] = field(default_factory=list)
    diffs: list[Wire] = field(default_factory=list)
    permissions: dict[str, Wire] = field(default_factory=dict)
    questions: dict[str, Wire] = field(default_factory=dict)
    status: Wire = field(default_factory=lambda: {"type": "idle"})
    idles: int = 0
    busies: int = 0
    errors: list[Wire] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    copied: set[str] = field(default_factory=set)
    """Messages that a fork brought along: whole when first seen, without a turn."""

    def feed(self, kind: str, p: Wire) -> None:
        """One event. Events of other sessions are left alone."""
        if p.get("sessionID") != self.session_id:
            return
        handler = getattr(self, "on_" + kind.replace(".", "_"), None)
        if handler is not None:
            handler(p)

    def on_session_created(self, p: Wire) -> None:
        self.info = p["info"]

    def on_session_updated(self, p: Wire) -> None:
        self.info = p["info"]

    def on_message_updated(self, p: Wire) -> None:
        info = p["info"]
        if info["role"] == "assistant" and self.status["type"] == "idle":
            if info["id"] in self.messages or "completed" not in info["time"]:
                self.violations.append(f"assistant message {info['id']} changed while idle")
            self.copied.add(info["id"])
        self.messages[info["id"]] = info
        self.parts.setdefault(info["id"], {})

    def on_message_removed(self, p: Wire) -> None:
        self.messages.pop(p["messageID"], None)
        self.parts.pop(p["messageID"], None)

    def on_message_part_updated(self, p: Wire) -> None:
        part = p["part"]
        if part["messageID"] not in self.messages:
            self.violations.append(f"part {part['id']} of an unknown message")
            return
        message = self.messages[part["messageID"]]
        if message["role"] == "assistant" and self.status["type"] == "idle" and message["id"] not in self.copied:
            self.violations.append(f"part {part['id']} changed while idle")
        self.parts[part["messageID"]][part["id"]] = part

    def on_message_part_removed(self, p: Wire) -> None:
        self.parts.get(p["messageID"], {}).pop(p["partID"], None)

    def on_message_part_delta(self, p: Wire) -> None:
        part = self.parts.get(p["messageID"], {}).get(p["partID"])
        if part is None:
            self.violations.append(f"delta for an unknown part {p['partID']}")
            return
        self.parts[p["messageID"]][p["partID"]] = {**part, p["field"]: part[p["field"]] + p["delta"]}

    def on_session_status(self, p: Wire) -> None:
        before, self.status = self.status, p["status"]
        if self.status["type"] == "idle" and before["type"] != "idle":
            self._check_settled()
        if self.status["type"] == "busy" and before["type"] == "idle":
            self.busies += 1

    def on_session_idle(self, p: Wire) -> None:
        self.idles += 1
        if self.status["type"] != "idle":
            self.violations.append("session.idle while the status is not idle")

    def on_session_error(self, p: Wire) -> None:
        self.errors.append(p["error"])

    def on_todo_updated(self, p: Wire) -> None:
        self.todos = p["todos"]

    def on_session_diff(self, p: Wire) -> None:
        self.diffs = p["diff"]

    def on_permission_asked(self, p: Wire) -> None:
        self.permissions[p["id"]] = p

    def on_permission_replied(self, p: Wire) -> None:
        if self.permissions.pop(p["requestID"], None) is None:
            self.violations.append(f"a reply to an unknown permission {p['requestID']}")

    def on_question_asked(self, p: Wire) -> None:
        self.questions[p["id"]] = p

    def on_question_replied(self, p: Wire) -> None:
        if self.questions.pop(p["requestID"], None) is None:
            self.violations.append(f"a reply to an unknown question {p['requestID']}")

    on_question_rejected = on_question_replied

    def _check_settled(self) -> None:
        for message_id, parts in self.parts.items():
            for part in parts.values():
                if part["type"] == "tool" and part["state"]["status"] in ("pending", "running"):
                    self.violations.append(f"tool {part['id']} is {part['state']['status']} at idle")
                if part["type"] in ("text", "reasoning") and "time" in part and "end" not in part["time"]:
                    self.violations.append(f"{part['type']} {part['id']} has no end at idle")
            info = self.messages[message_id]
            if info["role"] == "assistant" and "completed" not in info["time"]:
                self.violations.append(f"message {message_id} is not completed at idle")
        if self.permissions or self.questions:
            self.violations.append("a permission or question is open at idle")

    def wire(self) -> list[Wire]:
        """Messages with their parts, as GET gives them."""
        return [{"info": info, "parts": list(self.parts[id_].values())} for id_, info in self.messages.items()]

    def check(self) -> None:
        """Fails with everything that was wrong; also the order of ids and the balance of busy and idle."""
        for parts in self.parts.values():
            ids = list(parts)
            if ids != sorted(ids):
                self.violations.append(f"part ids do not ascend: {ids}")
        if self.idles != self.busies - (self.status["type"] != "idle"):
            self.violations.append(f"{self.busies} times busy, {self.idles} times idle")
        assert not self.violations, "\n".join(self.violations)
