"""The state of one session on the OpenCode 2 face, in R's form: what GET answers are read from.

Wire values are never changed in place: an update puts a new dict in the old one's place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shim.faces.opencode2.events import Wire


@dataclass(slots=True)
class Conversation2:
    """Everything that a client can read of one session.

    info         `Session.Info`, `outcome`, `revert`, `permissions` and totals included
    messages     by id, in order (a prompt is here from its delivery on); running text is "" until it has ended
    inbox        `Inbox.Info` of what is accepted and not delivered, by id, in order
    permissions  `Permission.Request` of the open ones
    forms        `Form.Info` of the open ones; `settled`: `Form.Detail` of the others
    questions    form id -> universal question id, of all
    running      an execution has started and not ended (`GET /api/session/active`)
    """

    info: Wire
    messages: dict[str, Wire] = field(default_factory=dict[str, Wire])
    inbox: dict[str, Wire] = field(default_factory=dict[str, Wire])
    permissions: dict[str, Wire] = field(default_factory=dict[str, Wire])
    forms: dict[str, Wire] = field(default_factory=dict[str, Wire])
    settled: dict[str, Wire] = field(default_factory=dict[str, Wire])
    questions: dict[str, str] = field(default_factory=dict[str, str])
    running: bool = False

    def copy(self) -> Conversation2:
        """It as it is now, for somebody who reads it later."""
        return Conversation2(
            self.info,
            dict(self.messages),
            dict(self.inbox),
            dict(self.permissions),
            dict(self.forms),
            dict(self.settled),
            dict(self.questions),
            self.running,
        )

    @property
    def id(self) -> str:
        """The session's id."""
        return str(self.info["id"])

    @property
    def outcome(self) -> str | None:
        """How the last execution ended: succeeded, failed, interrupted; None before the first end."""
        return self.info.get("outcome")

    @property
    def revert(self) -> Wire | None:
        """What is staged to be undone."""
        return self.info.get("revert")
