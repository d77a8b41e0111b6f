"""Shared by the routes about sessions: paths, reading of a session, permission rules in both forms, cursors of lists."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel

from shim.faces.opencode2 import read
from shim.faces.opencode2.errors import CursorInvalid, IdInvalid
from shim.faces.opencode2.names import ACTIONS
from shim.faces.opencode2.services import FaceServices
from shim.http.operation import Ctx
from shim.http.shapes import decode_cursor
from shim.lib.ids import is_id
from universal.lib.jsonvalue import JsonObject
from universal.session import values
from universal.session.entries import PendingPrompt
from universal.session.model import Session
from universal.session.values import SessionRecord

PERMISSIONS = {action: permission for permission, action in reversed(ACTIONS.items())} | {"edit": "edit"}
"""Action of 2.x -> permission of 1.x; all others keep their name."""


def need_id(prefix: str, kind: str, field: str) -> AfterValidator:
    """Check that an id begins with this prefix and has only an id's characters. Raises IdInvalid, with OpenCode's text."""

    def check(value: str) -> str:
        if not is_id(value, prefix):
            raise IdInvalid(kind, field)
        return value

    return AfterValidator(check)


SessionID = Annotated[str, need_id("ses", "session", "sessionID")]
MessageID = Annotated[str, need_id("msg_", "message", "messageID")]


class SessionPath(BaseModel):
    """`{sessionID}`."""

    sessionID: SessionID


class ModelFields(BaseModel):
    """A model. The variant `default` means none."""

    id: str
    providerID: str
    variant: str | None = None


class RuleBody(BaseModel):
    """A permission rule of 2.x."""

    action: str
    resource: str
    effect: str

    def first(self) -> dict[str, str]:
        """The rule in the form of 1.x."""
        return {"permission": PERMISSIONS.get(self.action, self.action), "pattern": self.resource, "action": self.effect}


def face(ctx: Ctx) -> FaceServices:
    """The services of this face."""
    assert ctx.services.opencode2 is not None
    return ctx.services.opencode2


def inbox_item(session: Session, prompt: PendingPrompt) -> JsonObject:
    """An inbox item with its number in the log, which older dialects need."""
    return {**read.inbox_entry(prompt, session), "admittedSeq": prompt.number}


def need(ctx: Ctx, session_id: str) -> SessionRecord:
    """The session's record. Raises SessionNotFound."""
    return ctx.services.sessions.index.record(session_id)


def model_of(ref: ModelFields) -> values.ModelRef:
    """The model that a client names."""
    return values.ModelRef(ref.providerID, ref.id, ref.variant or "default")


# --- cursors ---------------------------------------------------------------------------------------------

# A page with data has both cursors, also at the ends of the list, where the next page is empty. Source: recording `endpoints` of
# v2-20260717.


def read_cursor(cursor: str) -> dict[str, Any]:
    """Decode a cursor. Raises CursorInvalid."""
    value = decode_cursor(cursor)
    if not value:
        raise CursorInvalid
    return value
