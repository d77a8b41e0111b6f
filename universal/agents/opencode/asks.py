"""What OpenCode asks a person: permissions and questions.

Owns: the open asks. Each gets exactly one `resolved`: by our reply, by OpenCode (a rejection rejects all of its
session), or at the end of the turn: an abort leaves them open there (docs/wire.md, trap 10), but nobody waits any more.
`metadata.opencode` {permission, patterns, always, metadata} is the request itself, for our face.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from universal.agents.opencode.speech import Call, Context, Thread
from universal.agents.opencode.wire import Msg
from universal.codec import Fact, Output, PermissionReply, QuestionReply, WriteLine
from universal.events import EventType, PermissionData, Question, QuestionData, QuestionOption
from universal.items import Json
from universal.jsonvalue import arr, obj, text

_REPLIES = {"accept": "once", "accept_for_session": "always", "reject": "reject"}
_DECISIONS = {reply: decision for decision, reply in _REPLIES.items()}

Post = Callable[[str, Json], WriteLine]
"""Makes a POST request of a path and a body."""


@dataclass(slots=True)
class _Ask:
    native_id: str
    data: PermissionData | QuestionData
    thread: Thread
    call: Call | None


@dataclass(slots=True)
class Asks:
    """The open asks of one process, by our ids."""

    ctx: Context
    post: Post
    _open: dict[str, _Ask] = field(default_factory=dict[str, _Ask])

    # --- asked ----------------------------------------------------------------------------------------

    def permission(self, p: Msg, thread: Thread, raw: Msg) -> Iterator[Output]:
        """`permission.asked`."""
        call_id = text(obj(p.get("tool")).get("callID"))
        call = thread.call_of(call_id)
        name, detail = text(p.get("permission")), obj(p.get("metadata"))
        metadata: dict[str, Json] = {
            "tool": call.name if call else name,
            "call_id": call_id,
            "input": (call.arguments if call else None) or detail,
            "patterns": arr(p.get("patterns")),
            "always": arr(p.get("always")),
            "opencode": {
                "permission": name,
                "patterns": arr(p.get("patterns")),
                "always": arr(p.get("always")),
                "metadata": detail,
            },
        }
        if text(detail.get("diff")):
            metadata["diff"] = detail["diff"]
        data = PermissionData(permission_id=self.ctx.ids("permission"), action=name, status="requested", metadata=metadata)
        self._open[data.permission_id] = _Ask(text(p.get("id")), data, thread, call)
        yield Fact(EventType.PERMISSION_REQUESTED, data, raw=raw, child=thread.child)

    def question(self, p: Msg, thread: Thread, raw: Msg) -> Iterator[Output]:
        """`question.asked`."""
        call_id = text(obj(p.get("tool")).get("callID"))
        call = thread.call_of(call_id)
        questions = tuple(_question(obj(question)) for question in arr(p.get("questions")))
        first = questions[0] if questions else Question(question="")
        data = QuestionData(
            question_id=self.ctx.ids("question"),
            prompt=first.question,
            options=tuple(option.label for option in first.options),
            status="requested",
            questions=questions,
            metadata={"tool": call.name if call else "question", "call_id": call_id, "input": (call and call.arguments) or {}},
        )
        self._open[data.question_id] = _Ask(text(p.get("id")), data, thread, call)
        yield Fact(EventType.QUESTION_REQUESTED, data, raw=raw, child=thread.child)

    # --- answered -------------------------------------------------------------------------------------

    def reply(self, command: PermissionReply) -> Iterator[Output]:
        """Our answer to a permission; nothing when it is not open any more."""
        ask = self._open.get(command.permission_id)
        if ask is None or not isinstance(ask.data, PermissionData):
            return
        body = {"reply": _REPLIES[command.decision], **({"message": command.message} if command.message else {})}
        yield self.post(f"/permission/{ask.native_id}/reply", body)
        extra = {"message": command.message} if command.message and command.decision == "reject" else {}
        yield self._resolved(command.permission_id, _REPLIES[command.decision], extra, None)

    def answer(self, command: QuestionReply) -> Iterator[Output]:
        """Our answer to a question; nothing when it is not open any more. OpenCode takes no reason for a rejection."""
        ask = self._open.get(command.question_id)
        if ask is None or not isinstance(ask.data, QuestionData):
            return
        if command.answers is None:
            yield self.post(f"/question/{ask.native_id}/reject", None)
            yield self._answered(command.question_id, None, None)
            return
        answers = [list(labels) for labels in command.answers]
        if ask.call is not None:
            ask.call.answers = answers
        yield self.post(f"/question/{ask.native_id}/reply", {"answers": answers})
        yield self._answered(command.question_id, answers, None)

    def settled(self, p: Msg, raw: Msg) -> Iterator[Output]:
        """`permission.replied`, `question.replied`, `question.rejected`: an echo of ours, or OpenCode's own doing."""
        ask_id = next((key for key, ask in self._open.items() if ask.native_id == p.get("requestID")), None)
        if ask_id is None:
            self.ctx.ignore("the echo of a reply")
        elif isinstance(self._open[ask_id].data, PermissionData):
            yield self._resolved(ask_id, text(p.get("reply"), "reject"), {}, raw)
        else:
            answers = [[text(label) for label in arr(labels)] for labels in arr(p["answers"])] if "answers" in p else None
            yield self._answered(ask_id, answers, raw)

    def close(self, thread: Thread | None = None) -> Iterator[Output]:
        """Nobody waits for an answer any more: of one thread, or of all."""
        for ask_id, ask in list(self._open.items()):
            if thread is not None and ask.thread is not thread:
                continue
            if isinstance(ask.data, PermissionData):
                yield self._resolved(ask_id, "reject", {"withdrawn": True}, None)
            else:
                yield self._answered(ask_id, None, None)

    def _resolved(self, ask_id: str, reply: str, extra: Msg, raw: Json) -> Fact:
        ask = self._open.pop(ask_id)
        metadata = {**obj(ask.data.metadata), **extra}
        update = {"status": _DECISIONS.get(reply, "reject"), "metadata": metadata}
        data = ask.data.model_copy(update=update)
        return Fact(EventType.PERMISSION_RESOLVED, data, raw=raw, synthetic=raw is None, child=ask.thread.child)

    def _answered(self, ask_id: str, answers: list[list[str]] | None, raw: Json) -> Fact:
        ask = self._open.pop(ask_id)
        update: dict[str, Json] = {"status": "rejected"}
        if answers is not None:
            first = ", ".join(answers[0]) if answers else ""
            update = {"status": "answered", "answers": tuple(tuple(labels) for labels in answers), "response": first or None}
        data = ask.data.model_copy(update=update)
        return Fact(EventType.QUESTION_RESOLVED, data, raw=raw, synthetic=raw is None, child=ask.thread.child)


def _question(value: Msg) -> Question:
    return Question(
        question=text(value.get("question")),
        header=text(value.get("header")),
        options=tuple(
            QuestionOption(label=text(option.get("label")), description=text(option.get("description")))
            for option in map(obj, arr(value.get("options")))
        ),
        multiple=value.get("multiple") is True,
        custom=value.get("custom") is not False,
    )
