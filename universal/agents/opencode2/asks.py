"""The questions that OpenCode 2 asks a person: permissions, and forms of OpenCode, its tools and MCP servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from universal.agents.kit.opencode import Origin, ServerAsks, options_of, question_of
from universal.agents.opencode2.dialects import JULY, Dialect, Msg, call_id_of
from universal.agents.opencode2.speech import Thread
from universal.agents.opencode2.wire import PERMISSIONS
from universal.codec import Output, WriteLine
from universal.events import Question, QuestionOption
from universal.items import Json
from universal.lib.jsonvalue import arr, obj, text
from universal.opencode_metadata import strings
from universal.permissions import Access

_YES, _NO = "Yes", "No"
_OPENED = "Done"
"""The answer to a field that asks to open a page."""


@dataclass(slots=True)
class Asks(ServerAsks):
    """The open asks of one process."""

    cancel: tuple[str, str] = JULY.cancel
    """As in `Dialect`."""

    def use(self, dialect: Dialect) -> None:
        """Speak as this build does."""
        self.reply_key, self.cancel = dialect.reply, dialect.cancel

    def permission(self, data: Msg, thread: Thread, raw: Msg) -> Iterator[Output]:
        action = text(data.get("action"))
        permission, patterns = PERMISSIONS.get(action, action), strings(data.get("resources"))
        access = Access(permission, patterns, strings(data.get("save")), obj(data.get("metadata")))
        origin = _origin(data, "permission", thread, data.get("source"))
        yield self.begin_permission(origin, action, access, raw, description=text(data.get("message")))

    def form(self, data: Msg, thread: Thread, raw: Msg) -> Iterator[Output]:
        form = obj(data.get("form"))
        fields = tuple(row for row in map(obj, arr(form.get("fields"))) if row.get("hidden") is not True)
        questions = tuple(_question_of_field(row, text(form.get("title"))) for row in fields)
        origin = _origin(form, "form", thread, obj(form.get("metadata")).get("tool"))
        yield self.begin_question(origin, questions, raw, fields)

    def question(self, data: Msg, thread: Thread, raw: Msg) -> Iterator[Output]:
        questions = tuple(question_of(obj(row)) for row in arr(data.get("questions")))
        yield self.begin_question(_origin(data, "question", thread, data.get("tool")), questions, raw)

    def _dismiss(self, path: str, *, is_form: bool) -> WriteLine:
        method, rest = self.cancel if is_form else ("POST", "/reject")
        return self.send(method, path + rest, None)

    def _answer_body(self, fields: Sequence[Msg] | None, answers: list[list[str]]) -> Json:
        return {"answers": answers} if fields is None else {"answer": _form_answer(fields, answers)}


def _origin(request: Msg, family: str, thread: Thread, source: Json) -> Origin:
    native_id = text(request.get("id"))
    path = f"/api/session/{quote(text(request.get('sessionID')))}/{family}/{quote(native_id)}"
    return Origin(native_id, path, thread, call_id_of(source))


# --- forms ---------------------------------------------------------------------------------------------


def _question_of_field(value: Msg, title: str) -> Question:
    """Return a field of a form as a question. Fields without options take a text."""
    kind, header = text(value.get("type")), text(value.get("title"))
    words = text(value.get("description")) or header or text(value.get("key"))
    if kind == "external":
        words = f"{words}\n{text(value.get('url'))}"
    options = {
        "boolean": (QuestionOption(label=_YES, description=""), QuestionOption(label=_NO, description="")),
        "external": (QuestionOption(label=_OPENED, description=""),),
    }.get(kind, options_of(value))
    is_free = kind in ("number", "integer") or (kind == "string" and not options)
    return Question(
        question=words,
        header=header or title,
        options=options,
        multiple=kind == "multiselect",
        custom=is_free or value.get("custom") is True,
    )


def _form_answer(fields: Sequence[Msg], answers: Sequence[Sequence[str]]) -> Msg:
    """Return the answer of a form: each field's value in its type. A field without an answer is left out."""
    answer: Msg = {}
    for row, labels in zip(fields, answers, strict=False):
        values = [_value_of(row, label) for label in labels]
        if values:
            answer[text(row.get("key"))] = values if row.get("type") == "multiselect" else values[0]
    return {text(row.get("key")): answer[row["key"]] for row in fields if row.get("key") in answer and _is_shown(row, answer)}


def _is_shown(row: Msg, answer: Msg) -> bool:
    """Return whether the conditions of a field hold. A form refuses answers to fields that it would not show."""
    return all(
        (answer.get(text(condition.get("key"))) == condition.get("value")) == (condition.get("op") == "eq")
        for condition in map(obj, arr(row.get("when")))
    )


def _value_of(row: Msg, label: str) -> Json:
    kind = text(row.get("type"))
    if kind == "boolean":
        return label == _YES
    if kind in ("number", "integer"):
        return _number(label)
    if kind == "external":
        return True
    for option in map(obj, arr(row.get("options"))):
        if label == (text(option.get("label")) or text(option.get("value"))):
            return text(option.get("value")) or label
    return label


def _number(label: str) -> Json:
    """Return a number that a person wrote, or the text itself, which OpenCode then refuses with its reason."""
    try:
        value = float(label)
    except ValueError:
        return label
    return int(value) if value.is_integer() else value
