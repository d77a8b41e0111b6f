"""Forms: the agent's questions, one field for each. Source: recordings `question*` of v2-20260717."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel

from shim.errors import RequestNotFound, Tagged
from shim.http.operation import NO_CONTENT, Ctx, operation2
from shim.opencode.build import Wire
from shim.projection.opencode2 import asks
from shim.routes.opencode2.located import located
from shim.routes.opencode2.sessions import need_id, seen
from universal.jsonvalue import arr

GLOBAL = "global"
"""The session of forms that belong to no session; there are none of them here."""


class FormsPath(BaseModel):
    """`{sessionID}`, which may be `global`."""

    sessionID: str


class FormPath(FormsPath):
    """`{formID}`."""

    formID: Annotated[str, need_id("frm_", "form", "formID")]


@operation2("form.list")
async def of_location(ctx: Ctx) -> object:
    """Open forms of the directory."""
    asked = ctx.services.sessions.questions(ctx.directory)
    views = [await seen(ctx, id_) for id_ in dict.fromkeys(str(wire["sessionID"]) for wire in asked)]
    return await located(ctx, [form for view in views for form in view.forms.values()])


@operation2("session.form.list")
async def listing(ctx: Ctx, path: FormsPath) -> object:
    """Open forms of the session, oldest first."""
    return {"data": [] if path.sessionID == GLOBAL else list((await seen(ctx, path.sessionID)).forms.values())}


@operation2("session.form.get")
async def get(ctx: Ctx, path: FormPath) -> object:
    """A form, and what became of it."""
    return {"data": await _form(ctx, path)}


async def _form(ctx: Ctx, path: FormPath) -> Wire:
    if path.sessionID != GLOBAL:
        view = await seen(ctx, path.sessionID)
        if path.formID in view.forms:
            return {**view.forms[path.formID], "state": {"status": "pending"}}
        if path.formID in view.settled:
            return view.settled[path.formID]
    raise Tagged(404, "FormNotFoundError", f"Form not found: {path.formID}", id=path.formID)


async def _open(ctx: Ctx, path: FormPath) -> Wire:
    form = await _form(ctx, path)
    if form["state"]["status"] != "pending":
        raise _settled(path.formID)
    return form


def _settled(form_id: str) -> Tagged:
    return Tagged(409, "FormAlreadySettledError", f"Form already settled: {form_id}", id=form_id)


class ReplyBody(BaseModel):
    """Field -> its answer; one without an answer may be left out."""

    answer: dict[str, Any]


@operation2("session.form.reply")
async def reply(ctx: Ctx, path: FormPath, body: ReplyBody) -> object:
    """Answer it. 400 for what the form does not take, 409 when it was answered or cancelled already."""
    form = await _open(ctx, path)
    if (wrong := invalid(form["fields"], body.answer)) is not None:
        raise Tagged(400, "FormInvalidAnswerError", wrong, id=path.formID)
    await _settle(ctx, path, asks.answers(form, body.answer))
    return NO_CONTENT


@operation2("session.form.cancel")
async def cancel(ctx: Ctx, path: FormPath) -> object:
    """Refuse to answer; the agent is told."""
    await _open(ctx, path)
    await _settle(ctx, path, None)
    return NO_CONTENT


async def _settle(ctx: Ctx, path: FormPath, answers: list[list[str]] | None) -> None:
    question = (await seen(ctx, path.sessionID)).questions[path.formID]
    try:
        ctx.services.sessions.reply_question(question, answers)
    except RequestNotFound as error:
        raise _settled(path.formID) from error


def invalid(fields: list[Wire], answer: dict[str, Any]) -> str | None:
    """What is wrong with an answer, in native's words; None if it is right."""
    known = {field["key"]: field for field in fields}
    for key, value in answer.items():
        field = known.get(key)
        if field is None:
            return f"Unknown form field: {key}"
        many = field["type"] == "multiselect"
        if many and not (isinstance(value, list) and all(isinstance(one, str) for one in arr(value))):
            return f"Expected string[] for form field: {key}"
        if not many and not isinstance(value, str):
            return f"Expected string for form field: {key}"
        options = [option["value"] for option in field["options"]]
        said = [str(one) for one in (arr(answer[key]) if many else [answer[key]])]
        if not field["custom"] and not set(said) <= set(options):
            return f"Expected one of {', '.join(options)} for form field: {key}"
    return None
