"""Routes of forms: the agent's questions, and forms that clients create for each other.

Source: recordings `question*` of v2-20260717; compat_fixtures/opencode2/operations.json.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from shim.faces.opencode2 import asks, read
from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.dialects import PREVIEW
from shim.faces.opencode2.dialects.preview import question
from shim.faces.opencode2.endpoint import operation, preview_operation
from shim.faces.opencode2.envelope import with_project
from shim.faces.opencode2.errors import FormAnswerInvalid, FormNotFound, FormSettled, ResourceConflict
from shim.faces.opencode2.forms import GLOBAL, FormDraft
from shim.faces.opencode2.negotiation import dialect_of
from shim.faces.opencode2.routes.location_answer import locate_answer
from shim.faces.opencode2.routes.sessions import SessionPath, face, need, need_id
from shim.faces.opencode2.wire_event import ReadOnlyWire, Wire
from shim.http.operation import Ctx
from shim.lib.errors import InvalidRequest, QuestionNotFound
from universal.lib.jsonvalue import arr, obj, text
from universal.session.model import Session
from universal.session.values import QuestionRequest

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import types


Count = Annotated[int, Field(ge=0)]
MAX_FIELDS = 100


class FormsPath(BaseModel):
    """`{sessionID}`, which may be `global`."""

    sessionID: str


class FormPath(FormsPath):
    """`{formID}`."""

    formID: Annotated[str, need_id("frm_", "form", "formID")]


@operation("form.list")
async def of_location(ctx: Ctx) -> object:
    """Open forms of the directory."""
    await ctx.services.sessions.others.read_requests()
    requests = ctx.services.sessions.requests.questions(ctx.directory)
    sessions = [await ctx.services.sessions.session(id_) for id_ in dict.fromkeys(session.id for session, _ in requests)]
    client_forms = face(ctx).forms.of(ctx.directory)
    return await locate_answer(ctx, [*(form for session in sessions for form in read.forms(session)), *client_forms])


class Option(BaseModel):
    """An option of a field."""

    value: str
    label: str
    description: str | None = None


class When(BaseModel):
    """A condition: another field's answer."""

    key: str
    op: Literal["eq", "neq"]
    value: str | bool | float


class FieldBody(BaseModel):
    """A field of any type. Keys that its type does not have are left out."""

    key: Annotated[str, Field(min_length=1)]
    type: Literal["string", "number", "integer", "boolean", "multiselect", "external"]
    title: str | None = None
    description: str | None = None
    required: bool | None = None
    hidden: bool | None = None
    when: list[When] | None = None
    format: Literal["email", "uri", "date", "date-time"] | None = None
    minLength: Count | None = None
    maxLength: Count | None = None
    pattern: str | None = None
    placeholder: str | None = None
    default: str | bool | float | list[str] | None = None
    options: list[Option] | None = None
    custom: bool | None = None
    minimum: float | None = None
    maximum: float | None = None
    minItems: Count | None = None
    maxItems: Count | None = None
    url: str | None = None


class CreateBody(BaseModel):
    """`POST .../form`."""

    id: Annotated[str, need_id("frm_", "form", "id")] | None = None
    title: str
    metadata: dict[str, Any] | None = None
    fields: Annotated[list[FieldBody], Field(min_length=1, max_length=MAX_FIELDS)]


@operation("session.form.create")
async def create(ctx: Ctx, path: FormsPath, body: CreateBody) -> object:
    """Create a form for the clients that read the events. `form.replied` has its answer. Raises 400, and 409 for a used id."""
    directory = ctx.directory if path.sessionID == GLOBAL else need(ctx, path.sessionID).directory
    fields = fields_of([field.model_dump(exclude_none=True) for field in body.fields])
    draft: FormDraft = {"title": body.title, "fields": fields}
    if body.metadata:
        draft["metadata"] = body.metadata
    is_used = path.sessionID != GLOBAL and body.id is not None and await _is_agents(ctx, path.sessionID, body.id)
    form = None if is_used else face(ctx).forms.create(path.sessionID, directory, body.id, draft)
    if form is None:
        raise ResourceConflict(f"There is a form {body.id} already.", body.id or "")
    return {"data": form}


async def _is_agents(ctx: Ctx, session_id: str, form_id: str) -> bool:
    return read.form_detail(await ctx.services.sessions.session(session_id), form_id) is not None


@operation("session.form.list")
async def listing(ctx: Ctx, path: FormsPath) -> object:
    """Open forms of the session, oldest first."""
    if path.sessionID == GLOBAL:
        return {"data": face(ctx).forms.open(GLOBAL, ctx.directory)}
    return {"data": [*read.forms(await ctx.services.sessions.session(path.sessionID)), *face(ctx).forms.open(path.sessionID)]}


@operation("session.form.get")
async def get(ctx: Ctx, path: FormPath) -> object:
    """A form and its state."""
    return {"data": await _form(ctx, path)}


async def _form(ctx: Ctx, path: FormPath) -> types.FormDetail:
    if path.sessionID != GLOBAL:
        detail = read.form_detail(await ctx.services.sessions.session(path.sessionID), path.formID)
        if detail is not None:
            return detail
    if (client_form := face(ctx).forms.get(path.sessionID, path.formID)) is not None:
        return client_form
    raise FormNotFound(path.formID)


async def _open(ctx: Ctx, path: FormPath) -> types.FormDetail:
    form = await _form(ctx, path)
    if form["state"]["status"] != "pending":
        raise FormSettled(path.formID)
    return form


@operation("session.form.reply")
async def reply(ctx: Ctx, path: FormPath, body: requests.FormReplyBody) -> None:
    """Answer a form. 400 for an invalid answer, 409 if it was answered or cancelled already."""
    form = await _open(ctx, path)
    if (wrong := invalid(form["fields"], body.answer)) is not None:
        raise FormAnswerInvalid(path.formID, wrong)
    if face(ctx).forms.settle(path.formID, body.answer):
        return
    await _settle(ctx, path, asks.answers(form, body.answer))


@operation("session.form.cancel")
async def cancel(ctx: Ctx, path: FormPath, query: requests.CancelQuery) -> None:
    """Cancel a form. Its creator gets the message; an agent learns only that it was cancelled."""
    await _open(ctx, path)
    if face(ctx).forms.settle(path.formID, None, query.message):
        return
    await _settle(ctx, path, None)


async def _settle(ctx: Ctx, path: FormPath, answers: list[list[str]] | None) -> None:
    request = read.question_of_form(await ctx.services.sessions.session(path.sessionID), path.formID)
    if request is None:
        raise FormSettled(path.formID)
    try:
        ctx.services.sessions.requests.reply_question(request.id, answers)
    except QuestionNotFound as error:
        raise FormSettled(path.formID) from error


# --- form fields -----------------------------------------------------------------------------------------

# Validates the fields of a form, and the answer to a form. Pure. Source: `FormFields`, `FormAnswer` of 2.0.21.
#
# An answer has a value for each visible field. A field with `when` is visible if all its conditions hold for the other answers.
# A field that is not `required` may be left out. `external` is a page to open and takes no value. A `pattern` is a JavaScript
# pattern, which clients check and the server only passes on.

EVERY = ("key", "type", "title", "description")
BASE = (*EVERY, "required", "hidden", "when")
KEYS: Mapping[str, Sequence[str]] = {
    "string": (*BASE, "format", "minLength", "maxLength", "pattern", "placeholder", "default", "options", "custom"),
    "number": (*BASE, "minimum", "maximum", "default"),
    "integer": (*BASE, "minimum", "maximum", "default"),
    "boolean": (*BASE, "default"),
    "multiselect": (*BASE, "options", "minItems", "maxItems", "custom", "default"),
    "external": (*EVERY, "url"),
}
"""Type of a field -> its keys. Other keys are left out."""


def fields_of(rows: Sequence[ReadOnlyWire]) -> list[types.FormField]:
    """Validate the fields of a new form. Raises InvalidRequest."""
    fields: list[types.FormField] = []
    for number, row in enumerate(rows):
        field = {key: row[key] for key in KEYS[row["type"]] if row.get(key) is not None}
        why = _field_fault(field, {earlier["key"] for earlier in fields})
        if why:
            raise InvalidRequest(why, path=("fields", number))
        fields.append(cast("types.FormField", field))  # the request body and `KEYS` hold its shape
    return fields


def _field_fault(field: ReadOnlyWire, earlier_keys: set[str]) -> str:
    if field["key"] in earlier_keys:
        return f'There are two fields "{field["key"]}"'
    if field["type"] == "multiselect" and not field.get("options"):
        return "A multiselect has options"
    if field["type"] == "external" and not field.get("url"):
        return "An external field has a url"
    unknown = [obj(condition)["key"] for condition in arr(field.get("when")) if obj(condition)["key"] not in earlier_keys]
    if unknown:
        return f'`when` names a field before it, not "{unknown[0]}"'
    return ""


def invalid(fields: Sequence[ReadOnlyWire], answer: Mapping[str, Any]) -> str | None:
    """Why an answer is invalid, in OpenCode's words where known, or None if it is valid."""
    by_key = {field["key"]: field for field in fields}
    for key in answer:
        if key not in by_key:
            return f"Unknown form field: {key}"
    for key, field in by_key.items():
        visible = all(_holds(obj(condition), answer) for condition in arr(field.get("when")))
        if key not in answer:
            if field.get("required") is True and visible:
                return f"Missing form field: {key}"
            continue
        if not visible:
            return f"Form field is not shown for these answers: {key}"
        if (wrong := _CHECKS[field["type"]](field, answer[key])) is not None:
            return f"{wrong} for form field: {key}"
    return None


def _holds(when: ReadOnlyWire, answer: Mapping[str, Any]) -> bool:
    return (answer.get(when["key"]) == when["value"]) == (when["op"] == "eq")


def _string(field: ReadOnlyWire, value: Any) -> str | None:
    if not isinstance(value, str):
        return "Expected string"
    options = _options(field)
    if options and field.get("custom") is False and value not in options:
        return f"Expected one of {', '.join(options)}"
    if len(value) < field.get("minLength", 0) or len(value) > field.get("maxLength", len(value)):
        return f"Expected {field.get('minLength', 0)} to {field.get('maxLength', 'any number of')} characters"
    if not _FORMATS[field.get("format", "")](value):
        return f"Expected a string of the format {field['format']}"
    return None


def _number(field: ReadOnlyWire, value: Any) -> str | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return f"Expected {field['type']}"
    if field["type"] == "integer" and value != int(value):
        return "Expected integer"
    if value < field.get("minimum", value) or value > field.get("maximum", value):
        return f"Expected {field['type']} from {field.get('minimum', 'any')} to {field.get('maximum', 'any')}"
    return None


def _boolean(_field: ReadOnlyWire, value: Any) -> str | None:
    return None if isinstance(value, bool) else "Expected boolean"


def _list_fault(field: ReadOnlyWire, value: Any) -> str | None:
    choices: list[Any] = arr(value)
    if not isinstance(value, list) or not all(isinstance(choice, str) for choice in choices):
        return "Expected string[]"
    options = _options(field)
    if field.get("custom") is False and not set(choices) <= set(options):
        return f"Expected one of {', '.join(options)}"
    if len(choices) < field.get("minItems", 0) or len(choices) > field.get("maxItems", len(choices)):
        return f"Expected {field.get('minItems', 0)} to {field.get('maxItems', 'any number of')} items"
    return None


def _external(_field: ReadOnlyWire, _value: Any) -> str | None:
    return "Expected nothing, it is a page to open,"


def _options(field: ReadOnlyWire) -> list[str]:
    return [text(obj(option).get("value")) for option in arr(field.get("options"))]


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            parse(value)
        except ValueError:
            return False
        return True

    return check


_CHECKS: Mapping[str, Callable[[ReadOnlyWire, Any], str | None]] = {
    "string": _string,
    "number": _number,
    "integer": _number,
    "boolean": _boolean,
    "multiselect": _list_fault,
    "external": _external,
}
_FORMATS: Mapping[str, Callable[[str], bool]] = {
    "": lambda _: True,
    "email": lambda value: re.fullmatch(r"[^@\s]+@[^@\s]+", value) is not None,
    "uri": lambda value: bool(urlsplit(value).scheme) if _parses(urlsplit)(value) else False,
    "date": _parses(date.fromisoformat),
    "date-time": _parses(datetime.fromisoformat),
}


# --- health and questions of the preview -----------------------------------------------------------------

# Routes that only builds before 2.0 have: health, and questions, which are forms in `v2_0`.
#
# The answer of health is that of 1.18's document, without a `pid`. With one, the web UI of 1.18 would turn to an early form of
# this wire, which nobody else speaks.


@preview_operation("v2.health.get")
async def health(ctx: Ctx) -> object:
    """The server is healthy."""
    return {"healthy": True}


# --- questions ------------------------------------------------------------------------------------------------


class QuestionPath(SessionPath):
    """`{requestID}`."""

    requestID: str


class AnswerBody(BaseModel):
    """Chosen labels (or typed texts), a list for each question."""

    answers: list[list[str]]


@preview_operation("v2.question.request.list")
async def questions(ctx: Ctx) -> object:
    """Open questions of the directory, oldest first."""
    await ctx.services.sessions.others.read_requests()
    return with_project(await locate_answer(ctx, _questions(ctx, ctx.services.sessions.requests.questions(ctx.directory))))


@preview_operation("v2.session.question.list")
async def questions_of(ctx: Ctx, path: SessionPath) -> object:
    """Open questions of a session."""
    need(ctx, path.sessionID)
    await ctx.services.sessions.others.read_requests()
    pairs = [pair for pair in ctx.services.sessions.requests.questions(None) if pair[0].id == path.sessionID]
    return {"data": _questions(ctx, pairs)}


def _questions(ctx: Ctx, pairs: list[tuple[Session, QuestionRequest]]) -> list[Wire | None]:
    """Questions as the client's dialect has them. Clients that have forms get them there, and not twice."""
    if dialect_of(ctx.request) is not PREVIEW:
        return []
    return [question(read.form(request, session)) for session, request in pairs]


@preview_operation("v2.session.question.reply")
async def answer_questions(ctx: Ctx, path: QuestionPath, body: AnswerBody) -> None:
    """Answer one. 404 when it is unknown or was answered already."""
    _settle_questions(ctx, path, body.answers)


@preview_operation("v2.session.question.reject")
async def reject_questions(ctx: Ctx, path: QuestionPath) -> None:
    """Refuse to answer; the agent is told."""
    _settle_questions(ctx, path, None)


def _settle_questions(ctx: Ctx, path: QuestionPath, answers: list[list[str]] | None) -> None:
    need(ctx, path.sessionID)
    ctx.services.sessions.requests.reply_question(path.requestID, answers)
