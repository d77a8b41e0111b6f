"""Forms that one client creates and another answers. Forms of agents' questions are in `asks`.

They live in memory until the server ends, as in OpenCode. A form of the session `global` belongs to a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from shim.faces.opencode2.wire_event import ReadOnlyWire
from shim.lib.errors import LimitReached
from shim.lib.ids import Ids

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import event_types, types

GLOBAL = "global"
MAX_OPEN = 100
"""Maximum of open forms, and of answered forms that are remembered."""

Tell = Callable[[str, ReadOnlyWire, str | None], None]
"""(type, data, directory) of an event."""


class FormDraft(TypedDict):
    """A form as a client asks for it."""

    title: str
    fields: list[types.FormField]
    metadata: NotRequired[dict[str, Any]]


@dataclass(slots=True)
class ClientForm:
    """A form of a client. `state` is `FormDetail.state`."""

    form: types.FormInfo
    directory: str
    state: types.FormState = field(default_factory=lambda: {"status": "pending"})

    @property
    def is_open(self) -> bool:
        return self.state["status"] == "pending"


class Forms:
    """The forms of one server."""

    def __init__(self, ids: Ids, tell: Tell) -> None:
        self._ids = ids
        self._tell = tell
        self._forms: dict[str, ClientForm] = {}

    def create(self, session_id: str, directory: str, form_id: str | None, draft: FormDraft) -> types.FormInfo | None:
        """Create a form. None if the id is used. Raises LimitReached."""
        if form_id in self._forms:
            return None
        if sum(entry.is_open for entry in self._forms.values()) >= MAX_OPEN:
            raise LimitReached("forms", MAX_OPEN, "Too many forms wait for an answer: cancel some.")
        id_ = form_id or f"frm_{self._ids.new('question').partition('_')[2]}"
        form: types.FormInfo = {"id": id_, "sessionID": session_id, **draft}
        self._forms[id_] = ClientForm(form, directory)
        self._forget()
        created: event_types.FormCreatedData = {"form": form}
        self._tell("form.created", created, directory)
        return form

    def open(self, session_id: str, directory: str | None = None) -> list[types.FormInfo]:
        """The open forms, oldest first, of one directory or of all."""
        return [
            entry.form
            for entry in self._open_forms()
            if entry.form["sessionID"] == session_id and directory in (None, entry.directory)
        ]

    def of(self, directory: str) -> list[types.FormInfo]:
        return [entry.form for entry in self._open_forms() if entry.directory == directory]

    def get(self, session_id: str, form_id: str) -> types.FormDetail | None:
        """The `FormDetail` of a form, or None if the session has no such form."""
        entry = self._forms.get(form_id)
        return {**entry.form, "state": entry.state} if entry is not None and entry.form["sessionID"] == session_id else None

    def settle(self, form_id: str, answer: types.FormAnswer | None, message: str | None = None) -> bool:
        """Answer a form, or cancel it with None. False if it was settled already or does not exist."""
        entry = self._forms.get(form_id)
        if entry is None or not entry.is_open:
            return False
        ids = {"id": form_id, "sessionID": entry.form["sessionID"]}
        if answer is None:
            entry.state = {"status": "cancelled", "message": message} if message else {"status": "cancelled"}
            self._tell("form.cancelled", ids, entry.directory)
        else:
            entry.state = {"status": "answered", "answer": answer}
            self._tell("form.replied", {**ids, "answer": answer}, entry.directory)
        return True

    def _open_forms(self) -> Iterable[ClientForm]:
        return (entry for entry in self._forms.values() if entry.is_open)

    def _forget(self) -> None:
        settled = [id_ for id_, entry in self._forms.items() if not entry.is_open]
        for id_ in settled[: max(0, len(settled) - MAX_OPEN)]:
            del self._forms[id_]
