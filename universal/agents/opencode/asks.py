"""Keeps the open permissions and questions of OpenCode.

Each request gets exactly one `resolved`: by our reply, by OpenCode (a rejection rejects all requests of its session), or at the
end of the turn, because OpenCode leaves them open after an abort (docs/wire.md, trap 10). `metadata.opencode` {permission,
patterns, always, metadata} is the request itself, for our face.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from universal.agents import kit
from universal.agents.opencode.speech import Context, Thread
from universal.agents.opencode.wire import Msg
from universal.codec import Output, PermissionReply, QuestionReply, WriteLine
from universal.events import Question, QuestionOption
from universal.items import Json
from universal.lib.jsonvalue import arr, obj, text
from universal.opencode_metadata import access_metadata, strings
from universal.permissions import DECISIONS, REPLIES, Access

Post = Callable[[str, Json], WriteLine]
"""Makes a POST request from a path and a body."""


@dataclass(slots=True, kw_only=True)
class _Ask(kit.Ask):
    native_id: str
    thread: Thread
    call: kit.Call | None


@dataclass(slots=True)
class Asks:
    """The open asks of one process."""

    ctx: Context
    post: Post
    _asks: kit.OpenAsks[_Ask] = field(default_factory=kit.OpenAsks[_Ask])

    # --- requests ----------------------------------------------------------------------------------------

    def permission(self, p: Msg, thread: Thread, raw: Msg) -> Iterator[Output]:
        call_id = text(obj(p.get("tool")).get("callID"))
        call = thread.call_of(call_id)
        name, detail = text(p.get("permission")), obj(p.get("metadata"))
        metadata: dict[str, Json] = {
            "tool": call.name if call else name,
            "call_id": call_id,
            "input": (call.arguments if call else None) or detail,
            "patterns": arr(p.get("patterns")),
            "always": arr(p.get("always")),
            **access_metadata(Access(name, strings(p.get("patterns")), strings(p.get("always")), detail)),
        }
        if text(detail.get("diff")):
            metadata["diff"] = detail["diff"]
        ask = _Ask(
            ask_id=self.ctx.ids("permission"),
            action=name,
            metadata=metadata,
            child=thread.child,
            native_id=text(p.get("id")),
            thread=thread,
            call=call,
        )
        yield self._asks.begin(ask, raw)

    def question(self, p: Msg, thread: Thread, raw: Msg) -> Iterator[Output]:
        call_id = text(obj(p.get("tool")).get("callID"))
        call = thread.call_of(call_id)
        tool = call.name if call else "question"
        ask = _Ask(
            ask_id=self.ctx.ids("question"),
            action=tool,
            metadata={"tool": tool, "call_id": call_id, "input": (call and call.arguments) or {}},
            child=thread.child,
            questions=tuple(_question(obj(question)) for question in arr(p.get("questions"))),
            native_id=text(p.get("id")),
            thread=thread,
            call=call,
        )
        yield self._asks.begin(ask, raw)

    # --- answers -------------------------------------------------------------------------------------

    def reply(self, command: PermissionReply) -> Iterator[Output]:
        """Answer a permission. Nothing if it is not open any more."""
        ask = self._asks.permission(command.permission_id)
        if ask is None:
            return
        body = {"reply": REPLIES[command.decision], **({"message": command.message} if command.message else {})}
        yield self.post(f"/permission/{ask.native_id}/reply", body)
        reason = command.message if command.decision == "reject" else None
        yield self._asks.resolve_permission(ask, command.decision, reason)

    def answer(self, command: QuestionReply) -> Iterator[Output]:
        """Answer a question. Nothing if it is not open any more. OpenCode takes no reason for a rejection."""
        ask = self._asks.question(command.question_id)
        if ask is None:
            return
        if command.answers is None:
            yield self.post(f"/question/{ask.native_id}/reject", None)
            yield self._asks.resolve_question(ask, None)
            return
        answers = [list(labels) for labels in command.answers]
        if ask.call is not None:
            ask.call.answers = answers
        yield self.post(f"/question/{ask.native_id}/reply", {"answers": answers})
        yield self._asks.resolve_question(ask, answers)

    def on_reply_event(self, p: Msg, raw: Msg) -> Iterator[Output]:
        """`permission.replied`, `question.replied`, `question.rejected`: an echo of our answer, or a decision of OpenCode."""
        ask = self._asks.find(lambda ask: ask.native_id == p.get("requestID"))
        if ask is None:
            self.ctx.ignore("the echo of a reply")
        elif ask.is_question:
            answers = [[text(label) for label in arr(labels)] for labels in arr(p["answers"])] if "answers" in p else None
            yield self._asks.resolve_question(ask, answers, raw=raw)
        else:
            yield self._asks.resolve_permission(ask, DECISIONS.get(text(p.get("reply")), "reject"), raw=raw)

    def close(self, thread: Thread | None = None) -> Iterator[Output]:
        """Resolve the requests of one thread, or of all, because OpenCode does not wait any more."""
        for ask in self._asks:
            if thread is None or ask.thread is thread:
                yield self._asks.resolve_question(ask, None) if ask.is_question else self._asks.withdrawn(ask)


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
