"""The questions that OpenCode 2 asks a person: permissions, and forms of OpenCode, its tools and MCP servers.

Owns the open asks. Each gets exactly one `resolved`: by our reply, by OpenCode itself, or at the end of the turn, since an
interrupt leaves them open there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from universal.agents import kit
from universal.agents.opencode2.dialects import JULY, Dialect, Msg, call_id_of
from universal.agents.opencode2.speech import Context, Thread
from universal.agents.opencode2.wire import PERMISSIONS
from universal.codec import Output, PermissionReply, QuestionReply, WriteLine
from universal.events import Question, QuestionOption
from universal.items import Json
from universal.lib.jsonvalue import arr, obj, text
from universal.opencode_metadata import access_metadata, strings
from universal.permissions import DECISIONS, REPLIES, Access

_YES, _NO = "Yes", "No"
_OPENED = "Done"
"""The answer to a field that asks to open a page."""

Send = Callable[[str, str, Json], WriteLine]
"""Makes a request of a method, a path and a body."""


@dataclass(slots=True, kw_only=True)
class _Ask(kit.Ask):
    """`path` is that of the request; `fields` are those of a form, None for a question of the preview."""

    native_id: str
    thread: Thread
    path: str
    call: kit.Call | None
    fields: Sequence[Msg] | None = None


@dataclass(slots=True)
class Asks:
    """The open asks of one process."""

    ctx: Context
    send: Send
    dialect: Dialect = JULY
    _asks: kit.OpenAsks[_Ask] = field(default_factory=kit.OpenAsks[_Ask])

    # --- asked ----------------------------------------------------------------------------------------

    def permission(self, data: Msg, thread: Thread, raw: Msg) -> Iterator[Output]:
        call_id, native_id, action = call_id_of(data.get("source")), text(data.get("id")), text(data.get("action"))
        call, detail = thread.speech.calls.get(call_id), obj(data.get("metadata"))
        permission, patterns = PERMISSIONS.get(action, action), strings(data.get("resources"))
        access = Access(permission, patterns, strings(data.get("save")), detail)
        metadata: dict[str, Json] = {
            "tool": call.name if call else action,
            "call_id": call_id,
            "input": (call.arguments if call else None) or detail,
            "patterns": list(access.patterns),
            "always": list(access.always),
            **access_metadata(access),
        }
        if words := text(data.get("message")):
            metadata["description"] = words
        ask = _Ask(
            ask_id=self.ctx.ids("permission"),
            action=access.permission,
            metadata=metadata,
            child=thread.child,
            native_id=native_id,
            thread=thread,
            path=_path(data, "permission", native_id),
            call=call,
        )
        yield self._asks.begin(ask, raw)

    def form(self, data: Msg, thread: Thread, raw: Msg) -> Iterator[Output]:
        form = obj(data.get("form"))
        fields = tuple(row for row in map(obj, arr(form.get("fields"))) if row.get("hidden") is not True)
        source = obj(form.get("metadata")).get("tool")
        questions = tuple(_question_of_field(row, text(form.get("title"))) for row in fields)
        yield self._question(form, thread, raw, "form", call_id_of(source), questions, fields)

    def question(self, data: Msg, thread: Thread, raw: Msg) -> Iterator[Output]:
        questions = tuple(_question(obj(row)) for row in arr(data.get("questions")))
        yield self._question(data, thread, raw, "question", call_id_of(data.get("tool")), questions, None)

    def _question(
        self,
        request: Msg,
        thread: Thread,
        raw: Msg,
        family: str,
        call_id: str,
        questions: tuple[Question, ...],
        fields: Sequence[Msg] | None,
    ) -> Output:
        call, native_id = thread.speech.calls.get(call_id), text(request.get("id"))
        tool = call.name if call else "question"
        ask = _Ask(
            ask_id=self.ctx.ids("question"),
            action=tool,
            metadata={"tool": tool, "call_id": call_id, "input": (call and call.arguments) or {}},
            child=thread.child,
            questions=questions,
            native_id=native_id,
            thread=thread,
            path=_path(request, family, native_id),
            call=call,
            fields=fields,
        )
        return self._asks.begin(ask, raw)

    # --- answered -------------------------------------------------------------------------------------

    def thread_of(self, ask_id: str) -> Thread | None:
        ask = self._asks.find(lambda ask: ask.ask_id == ask_id)
        return ask.thread if ask is not None else None

    def reply(self, command: PermissionReply) -> Iterator[Output]:
        """Answer a permission. Does nothing if it is no longer open."""
        ask = self._asks.permission(command.permission_id)
        if ask is None:
            return
        body = {self.dialect.reply: REPLIES[command.decision], **({"message": command.message} if command.message else {})}
        yield self.send("POST", f"{ask.path}/reply", body)
        reason = command.message if command.decision == "reject" else None
        yield self._asks.resolve_permission(ask, command.decision, reason)

    def answer(self, command: QuestionReply) -> Iterator[Output]:
        """Answer a form. Does nothing if it is no longer open."""
        ask = self._asks.question(command.question_id)
        if ask is None:
            return
        if command.answers is None:
            yield self._cancel(ask)
            yield self._asks.resolve_question(ask, None)
            return
        answers = [list(labels) for labels in command.answers]
        if ask.call is not None:
            ask.call.answers = answers
        body: Json = {"answers": answers} if ask.fields is None else {"answer": _form_answer(ask.fields, answers)}
        yield self.send("POST", f"{ask.path}/reply", body)
        yield self._asks.resolve_question(ask, answers)

    def _cancel(self, ask: _Ask) -> WriteLine:
        if ask.fields is None:
            return self.send("POST", f"{ask.path}/reject", None)
        method, rest = self.dialect.cancel
        return self.send(method, ask.path + rest, None)

    def on_reply_event(self, data: Msg, raw: Msg) -> Iterator[Output]:
        """Handle a settled permission or form: an echo of our answer, or an act of OpenCode itself."""
        native_id = text(data.get("requestID")) or text(data.get("id"))
        ask = self._asks.find(lambda ask: ask.native_id == native_id)
        if ask is None:
            self.ctx.ignore("the echo of a reply")
        elif not ask.is_question:
            yield self._asks.resolve_permission(ask, DECISIONS.get(text(data.get("reply")), "reject"), raw=raw)
        elif "answers" in data:
            yield self._asks.resolve_question(ask, [list(map(text, arr(labels))) for labels in arr(data["answers"])], raw=raw)
        else:
            yield self._asks.resolve_question(ask, _labels(ask.fields or (), data.get("answer")), raw=raw)

    def close(self, thread: Thread | None = None) -> Iterator[Output]:
        """Close the open asks of one thread, or of all, because nobody waits for an answer."""
        yield from self._asks.close([ask for ask in self._asks if thread is None or ask.thread is thread])


def _path(request: Msg, family: str, native_id: str) -> str:
    return f"/api/session/{quote(text(request.get('sessionID')))}/{family}/{quote(native_id)}"


# --- forms ---------------------------------------------------------------------------------------------


def _question(value: Msg) -> Question:
    return Question(
        question=text(value.get("question")),
        header=text(value.get("header")),
        options=_options(value),
        multiple=value.get("multiple") is True,
        custom=value.get("custom") is not False,
    )


def _question_of_field(value: Msg, title: str) -> Question:
    """Return a field of a form as a question. Fields without options take a text."""
    kind, header = text(value.get("type")), text(value.get("title"))
    words = text(value.get("description")) or header or text(value.get("key"))
    if kind == "external":
        words = f"{words}\n{text(value.get('url'))}"
    options = {
        "boolean": (QuestionOption(label=_YES, description=""), QuestionOption(label=_NO, description="")),
        "external": (QuestionOption(label=_OPENED, description=""),),
    }.get(kind, _options(value))
    is_free = kind in ("number", "integer") or (kind == "string" and not options)
    return Question(
        question=words,
        header=header or title,
        options=options,
        multiple=kind == "multiselect",
        custom=is_free or value.get("custom") is True,
    )


def _options(value: Msg) -> tuple[QuestionOption, ...]:
    return tuple(
        QuestionOption(label=text(option.get("label")) or text(option.get("value")), description=text(option.get("description")))
        for option in map(obj, arr(value.get("options")))
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


def _labels(fields: Sequence[Msg], answer: Json) -> list[list[str]] | None:
    """Return the labels of an answer that came from elsewhere; None: the form was cancelled."""
    if not isinstance(answer, dict):
        return None
    values = obj(answer)
    rows = [values.get(text(row.get("key"))) for row in fields]
    return [[str(value) for value in arr(row) or [row]] if row is not None else [] for row in rows]
