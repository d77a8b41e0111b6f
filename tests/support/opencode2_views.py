"""A session as OpenCode 2's JSON, to compare it with what clients were sent."""

from __future__ import annotations

from typing import Any

from shim.faces.opencode2 import asks, read
from universal.session.model import Session

Wire = dict[str, Any]


class OpenCode2View:
    """Everything that a client of OpenCode 2 can read of one session, as it is now."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.id = session.id

    @property
    def info(self) -> Wire:
        """`SessionInfo`."""
        return read.info(self._session)

    @property
    def messages(self) -> dict[str, Wire]:
        """`SessionMessageInfo` by id, in order."""
        return {wire["id"]: wire for wire in read.messages(self._session)}

    @property
    def inbox(self) -> dict[str, Wire]:
        """`SessionInboxInfo` by id, in order."""
        return {prompt.id: read.inbox_entry(prompt, self._session) for prompt in self._session.timeline.inbox.values()}

    @property
    def permissions(self) -> dict[str, Wire]:
        """`PermissionRequest` of the open ones."""
        return {wire["id"]: wire for wire in read.permissions(self._session)}

    @property
    def forms(self) -> dict[str, Wire]:
        """`FormInfo` of the open ones."""
        return {wire["id"]: wire for wire in read.forms(self._session)}

    @property
    def closed_forms(self) -> dict[str, Wire]:
        """`FormDetail` of the others."""
        ids = map(asks.form_id, self._session.timeline.questions)
        return {id_: detail for id_ in ids if (detail := read.form_detail(self._session, id_)) is not None}

    @property
    def is_running(self) -> bool:
        """Whether a turn runs."""
        return self._session.timeline.is_running

    @property
    def outcome(self) -> str | None:
        """How the last turn ended."""
        return self._session.timeline.outcome

    @property
    def revert(self) -> Wire | None:
        """What is staged to be undone."""
        return read.revert(self._session)
