"""What the codecs of OpenCode 1 and OpenCode 2 share: their sessions, and what their servers ask a person.

A session of a subagent is known before the tool call that made it, so its events wait until the call names it. Each permission
and question gets exactly one `resolved`: by our reply, by OpenCode (a rejection rejects all requests of its session), or at the
end of the turn, because OpenCode leaves them open after an abort (docs/wire.md, trap 10). `metadata.opencode` {permission,
patterns, always, metadata} is the request itself, for our faces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from urllib.parse import quote

from universal.agents.kit.asks import Ask, OpenAsks
from universal.agents.kit.context import Context, error_fact
from universal.agents.kit.http import WatchedCodec
from universal.agents.kit.items import Call
from universal.codec import Fact, Output, PermissionReply, Prompt, QuestionReply, Signal, WriteLine
from universal.events import EventType, Question, QuestionOption, SessionStartedData
from universal.items import Json
from universal.launch import Exit, LaunchOptions
from universal.lib.jsonvalue import arr, obj, text
from universal.opencode import ABORTED, child_metadata
from universal.opencode_metadata import access_metadata
from universal.permissions import DECISIONS, REPLIES, Access
from universal.turn import Input

Msg = dict[str, Any]


@dataclass(slots=True)
class ServerContext(Context):
    """What the threads of one codec share. `directory` is that of the process."""

    directory: str = ""

    def location(self, kind: str) -> str:
        """The location of a message of this kind: an HTTP answer or an event, not stdout."""
        return f"{self.agent}: {kind}"


class Thread(Protocol):
    """The items of one session of OpenCode's. `child`: the tool call that a subagent's session is of."""

    session_id: str
    child: str | None

    @property
    def last(self) -> str:
        """OpenCode's id of the last message of the model, or ""."""
        ...

    def call_of(self, call_id: str) -> Call | None: ...

    def close(self, raw: Json) -> Iterator[Fact]: ...

    def take_usage(self) -> dict[str, Json] | None: ...


# --- permissions and questions ----------------------------------------------------------------------------------

Send = Callable[[str, str, Json], WriteLine]
"""Makes a request of a method, a path and a body."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The request of OpenCode's that an ask is: its id, its path, the session, and the tool call that it is about."""

    native_id: str
    path: str
    thread: Thread
    call_id: str


@dataclass(slots=True, kw_only=True)
class _Ask(Ask):
    """`fields` are those of a form, None for a plain question."""

    origin: Origin
    call: Call | None
    fields: Sequence[Msg] | None = None


@dataclass(slots=True)
class ServerAsks:
    """The open asks of one process."""

    ctx: Context
    send: Send
    reply_key: str = "reply"
    """Key of the decision in a reply to a permission."""
    _asks: OpenAsks[_Ask] = field(default_factory=OpenAsks[_Ask])

    def begin_permission(self, origin: Origin, action: str, access: Access, raw: Msg, **more: Json) -> Fact:
        """A person is asked for an access. In: OpenCode's name of the action; `more`, for the metadata."""
        call = origin.thread.call_of(origin.call_id)
        metadata: dict[str, Json] = {
            "tool": call.name if call else action,
            "call_id": origin.call_id,
            "input": (call.arguments if call else None) or dict(access.metadata),
            "patterns": list(access.patterns),
            "always": list(access.always),
            **access_metadata(access),
            **{key: value for key, value in more.items() if value},
        }
        return self._begin(origin, access.permission, metadata, call, raw)

    def begin_question(
        self, origin: Origin, questions: tuple[Question, ...], raw: Msg, fields: Sequence[Msg] | None = None
    ) -> Fact:
        call = origin.thread.call_of(origin.call_id)
        tool = call.name if call else "question"
        metadata: dict[str, Json] = {"tool": tool, "call_id": origin.call_id, "input": (call and call.arguments) or {}}
        return self._begin(origin, tool, metadata, call, raw, questions, fields)

    def _begin(
        self,
        origin: Origin,
        action: str,
        metadata: dict[str, Json],
        call: Call | None,
        raw: Msg,
        questions: tuple[Question, ...] | None = None,
        fields: Sequence[Msg] | None = None,
    ) -> Fact:
        ask = _Ask(
            ask_id=self.ctx.ids("permission" if questions is None else "question"),
            action=action,
            metadata=metadata,
            child=origin.thread.child,
            questions=questions,
            origin=origin,
            call=call,
            fields=fields,
        )
        return self._asks.begin(ask, raw)

    def thread_of(self, ask_id: str) -> Thread | None:
        ask = self._asks.find(lambda ask: ask.ask_id == ask_id)
        return ask.origin.thread if ask is not None else None

    def reply(self, command: PermissionReply) -> Iterator[Output]:
        """Answer a permission. Nothing if it is not open any more. "Always" is not passed on: it would beat a deny there."""
        ask = self._asks.permission(command.permission_id)
        if ask is None:
            return
        word = REPLIES["reject" if command.decision == "reject" else "accept"]
        body = {self.reply_key: word, **({"message": command.message} if command.message else {})}
        yield self.send("POST", f"{ask.origin.path}/reply", body)
        reason = command.message if command.decision == "reject" else None
        yield self._asks.resolve_permission(ask, command.decision, reason)

    def answer(self, command: QuestionReply) -> Iterator[Output]:
        """Answer a question or a form. Nothing if it is not open any more. OpenCode takes no reason for a rejection."""
        ask = self._asks.question(command.question_id)
        if ask is None:
            return
        answers = None if command.answers is None else [list(labels) for labels in command.answers]
        if answers is None:
            yield self._dismiss(ask.origin.path, is_form=ask.fields is not None)
        else:
            if ask.call is not None:
                ask.call.answers = answers
            yield self.send("POST", f"{ask.origin.path}/reply", self._answer_body(ask.fields, answers))
        yield self._asks.resolve_question(ask, answers)

    def _dismiss(self, path: str, *, is_form: bool) -> WriteLine:
        return self.send("POST", f"{path}/reject", None)

    def _answer_body(self, fields: Sequence[Msg] | None, answers: list[list[str]]) -> Json:
        return {"answers": answers}

    def on_reply_event(self, data: Msg, raw: Msg) -> Iterator[Output]:
        """Handle a settled request: an echo of our answer, or an act of OpenCode itself."""
        native_id = text(data.get("requestID")) or text(data.get("id"))
        ask = self._asks.find(lambda ask: ask.origin.native_id == native_id)
        if ask is None:
            self.ctx.ignore("the echo of a reply")
        elif not ask.is_question:
            yield self._asks.resolve_permission(ask, DECISIONS.get(text(data.get("reply")), "reject"), raw=raw)
        elif "answers" in data:
            yield self._asks.resolve_question(ask, [list(map(text, arr(labels))) for labels in arr(data["answers"])], raw=raw)
        else:
            yield self._asks.resolve_question(ask, form_labels(ask.fields or (), data.get("answer")), raw=raw)

    def close(self, thread: Thread | None = None) -> Iterator[Output]:
        """Close the requests of one session, or of all, because OpenCode does not wait any more."""
        yield from self._asks.close([ask for ask in self._asks if thread is None or ask.origin.thread is thread])


def question_of(value: Msg) -> Question:
    """A question of OpenCode's tool."""
    return Question(
        question=text(value.get("question")),
        header=text(value.get("header")),
        options=options_of(value),
        multiple=value.get("multiple") is True,
        custom=value.get("custom") is not False,
    )


def options_of(value: Msg) -> tuple[QuestionOption, ...]:
    """The options of a question or of a form's field."""
    return tuple(
        QuestionOption(label=text(option.get("label")) or text(option.get("value")), description=text(option.get("description")))
        for option in map(obj, arr(value.get("options")))
    )


def form_labels(fields: Sequence[Msg], answer: Json) -> list[list[str]] | None:
    """Return the labels of a form's answer that came from elsewhere; None: the form was cancelled."""
    if not isinstance(answer, dict):
        return None
    values = obj(answer)
    rows = [values.get(text(row.get("key"))) for row in fields]
    return [[str(value) for value in arr(row) or [row]] if row is not None else [] for row in rows]


# --- sessions ---------------------------------------------------------------------------------------------------


class Course(Protocol):
    """The progress of one session from a prompt, or from work of its own, until it rests."""

    active: bool
    stopping: bool

    def end(self) -> None: ...


ThreadT = TypeVar("ThreadT", bound=Thread)
CourseT = TypeVar("CourseT", bound=Course)


@dataclass(slots=True)
class ServerSession(Generic[ThreadT, CourseT]):
    """A session of OpenCode: ours (without a key) or that of a subagent."""

    thread: ThreadT
    course: CourseT


@dataclass(frozen=True, slots=True)
class Step:
    """A request that prepares a session for a prompt. `path` is below the session.

    If not `is_needed`, the prompt continues after a refusal.
    """

    purpose: str
    method: str
    path: str
    body: Json
    is_needed: bool = True


class ServerCodec(WatchedCodec[ServerContext], Generic[ThreadT, CourseT]):
    """A codec of an OpenCode server: the conversation, the sessions of its subagents, and what they ask."""

    SESSIONS_PATH: ClassVar[str]
    IGNORED: ClassVar[Mapping[str, str]]
    """Events that are not used -> why."""
    IGNORED_FAMILIES: ClassVar[Mapping[str, str]]
    """The same by the beginning of their names."""
    AGENT_KEY: ClassVar[str]
    """The argument of a tool call that says which agent works in the session that it makes."""

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self._main = self._new_session("", None)
        self._children: dict[str, ServerSession[ThreadT, CourseT]] = {}
        """Subagents' sessions by OpenCode's id."""
        self._early_events: dict[str, list[Msg]] = {}
        """Events of subagents' sessions whose tool call is not known yet."""
        self._infos: dict[str, Msg] = {}
        self._offers: dict[str, Json] = {}
        self._prompt: Prompt | None = None
        """The prompt that waits for its session."""
        self._steps: deque[Step] = deque()
        """What is left to request for the prompt. The first has been requested."""
        self._anchor = ""
        """The message after which the conversation is cut, before the first prompt."""
        self._last_event = ""

    def _new_session(self, session_id: str, child: str | None) -> ServerSession[ThreadT, CourseT]:
        raise NotImplementedError

    @property
    def _open_asks(self) -> ServerAsks:
        raise NotImplementedError

    def _resume(self, options: LaunchOptions) -> None:
        """Note the conversation that the process goes on with."""
        self._resumed = bool(options.resume and options.native_session_id)
        if self._resumed:
            self._know(options.native_session_id or "")
            self._anchor = options.resume_at or ""

    def _know(self, session_id: str) -> None:
        self.native_session_id = self._main.thread.session_id = session_id

    def _path(self, rest: str = "") -> str:
        return f"{self.SESSIONS_PATH}/{quote(self.native_session_id or '')}{rest}"

    # --- the requests of a prompt -----------------------------------------------------------------------

    def _next_step(self) -> Iterator[Output]:
        """Make the next request of the prompt, the prompt itself at the end. An interrupt before it keeps it back."""
        if self._main.course.stopping:
            self._drop_prompt()
            yield Signal(Input.FAILED, error=ABORTED, aborted=True)
        elif self._steps:
            step = self._steps[0]
            yield self._request(step.purpose, step.method, self._step_path(step), step.body)
        elif self._prompt is not None:
            prompt, self._prompt = self._prompt, None
            yield from self._on_ready(prompt)

    def _step_path(self, step: Step) -> str:
        return self.SESSIONS_PATH if step.purpose == "create" else self._path(step.path)

    def _command_of(self, prompt: Prompt) -> tuple[str, str]:
        """(name, arguments) of a prompt that is one of OpenCode's commands; ("", "") for any other."""
        name, _, arguments = prompt.text.removeprefix("/").partition(" ")
        commands = self.catalogue.commands if self.catalogue is not None else ()
        is_command = prompt.text.startswith("/") and any(command.name == name for command in commands)
        return (name, arguments) if is_command else ("", "")

    def _on_ready(self, prompt: Prompt) -> Iterator[Output]:
        """Send a prompt whose session is as it is to be."""
        raise NotImplementedError

    def _drop_prompt(self) -> None:
        self._prompt = None
        self._is_awaited = False
        self._steps.clear()
        self._main.course.end()

    def _fail_prompt(self, error: dict[str, Json], raw: Json, *, is_told: bool = False) -> Iterator[Output]:
        self._drop_prompt()
        if not is_told:
            yield error_fact(error, raw)
        yield Signal(Input.FAILED, error=error)

    def _undo_failed(self) -> dict[str, Json]:
        """The error by which the server begins a new conversation, and tells it what stays."""
        return {"message": f"{self.TITLE} could not take back what was undone.", "code": "session_not_found"}

    # --- sessions ---------------------------------------------------------------------------------------

    def _reply(self, method: str, path: str, body: Json) -> WriteLine:
        return self._request("reply", method, path, body)

    def _session(self, session_id: str) -> ServerSession[ThreadT, CourseT] | None:
        if session_id and session_id == self.native_session_id:
            return self._main
        return self._children.get(session_id)

    def _keep_session(self, session_id: str, info: Msg) -> None:
        """Keep a subagent's session waiting until a tool call says that it has created it."""
        parent = text(info.get("parentID"))
        if session_id and (parent in self._infos or self._session(parent) is not None):
            self._infos[session_id] = info
            self._early_events[session_id] = []
        else:
            self._ctx.ignore("session.created")

    def _open_child(self, session_id: str, call_id: str, arguments: Msg, event: Msg) -> Iterator[Output]:
        """Open the session that a tool call names as its subagent's."""
        info = self._infos.pop(session_id, {})
        self._children[session_id] = self._new_session(session_id, call_id)
        metadata = child_metadata(call_id, arguments, info, self.AGENT_KEY)
        yield Fact(EventType.SESSION_STARTED, SessionStartedData(metadata=metadata), raw=event, child=call_id)
        for early in self._early_events.pop(session_id, []):
            yield from self._event(early, "")

    def _on_permission_reply(self, reply: PermissionReply) -> Iterator[Output]:
        return self._open_asks.reply(reply)

    def _on_question_reply(self, reply: QuestionReply) -> Iterator[Output]:
        return self._open_asks.answer(reply)

    def _on_eof(self, exit_: Exit) -> Iterator[Output]:
        yield from self._open_asks.close()
        for session in (self._main, *self._children.values()):
            yield from session.thread.close(None)
            session.course.end()

    def _count_or_report(self, kind: str, event: Msg, hash_: str) -> Iterator[Output]:
        """Handle an event without a handler."""
        if kind in self.IGNORED or kind.startswith(tuple(self.IGNORED_FAMILIES)):
            self._ctx.ignore(kind)
        else:
            yield self._ctx.report_unparsed(kind or "event", "unknown type of event", event, hash_)

    def _active(self) -> list[str]:
        sessions = [*self._children.values(), *(() if self._is_awaited else (self._main,))]
        return [session.thread.session_id for session in sessions if session.course.active]

    def _on_todo(self, session: ServerSession[ThreadT, CourseT], data: Msg, event: Msg) -> Iterator[Output]:
        todos = [obj(todo) for todo in arr(data.get("todos"))]
        yield self._ctx.status("todo", f"{len(todos)} todos", {"todos": todos}, event, session.thread.child)

    def _on_settled(self, session: ServerSession[ThreadT, CourseT], data: Msg, event: Msg) -> Iterator[Output]:
        return self._open_asks.on_reply_event(data, event)

    def _close(self, session: ServerSession[ThreadT, CourseT], event: Msg) -> Iterator[Output]:
        """Complete what a session has left open, because it rests."""
        session.course.end()
        yield from self._open_asks.close(session.thread)
        yield from session.thread.close(event)

    def _report_end(self, thread: ThreadT, error: dict[str, Json], event: Msg, *, is_stopped: bool) -> Iterator[Output]:
        """Report the end of what a session was to answer."""
        usage, child = thread.take_usage(), thread.child
        if child is None and thread.last:
            usage = {**(usage or {}), "anchor": thread.last}
        if is_stopped:
            yield Signal(Input.FAILED, error=ABORTED, aborted=True, metadata=usage, child=child)
        elif error:
            yield error_fact(error, event, child)
            yield Signal(Input.FAILED, error=error, metadata=usage, child=child)
        else:
            yield Signal(Input.DONE, metadata=usage, child=child)
