"""One client's connection: its messages in and out, the sessions that it follows, and what it is asked.

    in   `receive` takes a line. Requests run as tasks; those of one session that prompt or cancel run in order
    out  `send` queues a message. It never waits: a client that does not read is cut off (`Outbox`)

It holds nothing of a session but what this client was sent of it (`Screen`), and the prompts that it waits for. An answer to a
prompt is sent by `_end_turn`, after all updates of the turn, as the changes come in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import structlog
from pydantic import BaseModel, ValidationError

from shim.faces.acp import offers, updates
from shim.faces.acp.updates import Screen
from shim.http.operation import Ctx, check, check_unparsed
from shim.lib import errors
from shim.lib.complaints import fault
from shim.lib.errors import InvalidRequest, RequestError, SessionElsewhere, SessionNotFound, ShimError, row_of
from shim.lib.tasks import doer, go_on_for, keep
from shim.sessions.feed import Listener, SessionChanges
from universal.lib.jsonline import to_json
from universal.lib.jsonrpc import METHOD_NOT_FOUND, Id, JsonRpc, MalformedMessage, Notification, Request, Response
from universal.lib.jsonvalue import JsonObject, obj, text
from universal.session.changes import (
    MessageRemoved,
    PromptFailed,
    RequestClosed,
    RequestOpened,
    SessionDeleted,
    TurnEnded,
)
from universal.session.model import Session
from universal.session.values import Failure, ModelRef, PermissionRequest, QuestionRequest, SessionRecord, StepInfo

log = structlog.get_logger(__name__)

OUTBOX_MESSAGES, OUTBOX_BYTES = 4096, 32 * 2**20
"""Maximum that waits for a client that does not read. One message alone is never too much."""
MAX_REQUESTS = 64
"""Maximum requests of a client that are at work. Prompts count until they are accepted."""
MAX_SESSIONS = 256
"""Maximum sessions that one connection follows."""
DEEPEST_CHILD = 16
"""Maximum generations between a subagent and the session that is shown."""

INTERNAL, NOT_FOUND, LOGIN, INVALID_REQUEST, INVALID_PARAMS = -32603, -32002, -32000, -32600, -32602
ERRORS: Mapping[type[RequestError], tuple[int, int]] = {
    RequestError: (500, INTERNAL),
    errors.InvalidRequest: (400, INVALID_PARAMS),
    errors.PayloadTooLarge: (413, INVALID_PARAMS),
    errors.MethodNotAllowed: (405, INVALID_REQUEST),
    errors.NotFound: (404, NOT_FOUND),
    errors.LimitReached: (429, INTERNAL),
    errors.Forbidden: (403, INVALID_PARAMS),
    errors.LoginRefused: (401, LOGIN),
    errors.TooManyLogins: (429, LOGIN),
    errors.ServiceUnavailable: (503, INTERNAL),
}
"""Class of an error -> HTTP status, code of JSON-RPC. A row counts for subclasses too."""

Handler: TypeAlias = Callable[["Connection", Any, Id], Awaitable[JsonObject | None]]
"""Answers a request: the result; None if another message answers it later."""
Methods: TypeAlias = Mapping[str, tuple[type[BaseModel], Handler]]


def rpc_error(error: RequestError) -> dict[str, Any]:
    """Render an error as `{code, message, data}`. `data.name` is its class, for programs."""
    return {"code": row_of(ERRORS, error)[1], "message": error.message, "data": {"name": type(error).__name__}}


class Outbox:
    """The messages that wait for a client. `is_over`: it is closed, or was cut off."""

    def __init__(self, cut_off: Callable[[], None]) -> None:
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._more, self._empty, self._ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._end = cut_off
        self.is_over = False

    def put(self, message: bytes) -> None:
        """Queue a message. Never waits. A client that is too far behind is cut off."""
        if self.is_over:
            return
        self._waiting.append(message)
        self._bytes += len(message)
        self._empty.clear()
        self._more.set()
        if len(self._waiting) > 1 and (len(self._waiting) > OUTBOX_MESSAGES or self._bytes > OUTBOX_BYTES):
            log.warning("acp.too_slow", messages=len(self._waiting), bytes=self._bytes)
            self.cut_off()

    async def take(self) -> list[bytes]:
        """Wait for messages. Returns all that wait, and none once the outbox is over."""
        if not self._waiting:
            self._empty.set()  # whoever takes again has sent what it took before
            await self._more.wait()
        self._more.clear()
        taken, self._bytes = list(self._waiting), 0
        self._waiting.clear()
        return taken

    async def drain(self) -> None:
        """Wait until all messages were sent, or the outbox is over."""
        if not self.is_over:
            await self._empty.wait()

    async def end(self) -> list[bytes]:
        """Wait until the outbox is over."""
        await self._ended.wait()
        return []

    def cut_off(self) -> None:
        """End the client's connection at once."""
        self.close()
        self._end()

    def close(self) -> None:
        """Drop what waits, and end `take` and `drain`. May be called again."""
        self.is_over = True
        self._waiting.clear()
        self._more.set()
        self._empty.set()
        self._ended.set()


@dataclass(slots=True)
class View:
    """A session that the client follows. `prompts`: message -> the request that waits for the end of its turn."""

    screen: Screen
    listener: Listener
    order: asyncio.Lock = field(default_factory=asyncio.Lock)
    prompts: dict[str, Id] = field(default_factory=dict[str, Id])
    failure: Failure | None = None
    has_cancel: bool = False


@dataclass(slots=True)
class Ask:
    """A request to the person that the client was asked. `answers`: those of the questions before this one."""

    session_id: str
    request: PermissionRequest | QuestionRequest
    is_form: bool = False
    answers: list[list[str]] = field(default_factory=list[list[str]])


class Connection:
    """A client of this face. In: `methods`, which it may call; `cut_off`, which ends its connection at once."""

    def __init__(self, ctx: Ctx, methods: Methods, cut_off: Callable[[], None]) -> None:
        self.ctx, self.services = ctx, ctx.services
        self.sessions = ctx.services.sessions
        self.outbox = Outbox(cut_off)
        self.capabilities: JsonObject | None = None
        """What the client can do; None before `initialize`."""
        self._methods = methods
        self._rpc = JsonRpc()
        self._views: dict[str, View] = {}
        self._asks: dict[str, Ask] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.sessions.deps.changes.observe(self._on_changes)

    def close(self) -> None:
        """Follow nothing more. Turns and requests that are at work go on: a session does not belong to a connection."""
        self.sessions.deps.changes.forget(self._on_changes)
        self.outbox.close()
        for session_id in list(self._views):
            self.unfollow(session_id)

    # --- in ----------------------------------------------------------------------------------------------------

    def receive(self, line: bytes) -> None:
        """Take a message of the client. Never raises, never waits."""
        try:
            check_unparsed("acp", line)
        except RequestError as error:
            self.send({"id": None, "error": rpc_error(error)})
            return
        match self._rpc.classify(line):
            case Request(id=id_, method=method, params=params):
                if len(self._tasks) < MAX_REQUESTS:
                    self.later(self._serve(id_, method, params), method)
                else:
                    self._refuse(id_, INTERNAL, f"More than {MAX_REQUESTS} requests are at work: wait for some.")
            case Notification(method="session/cancel" | "$/cancel_request" as method, params=params):
                if len(self._tasks) < 2 * MAX_REQUESTS:  # more can only be the same again
                    self.later(self._cancel(method, params), method)
            case Notification(method=method):
                log.debug("acp.ignored", method=method[:100])
            case Response() as response:
                self._take_answer(response)
            case MalformedMessage(why=why, raw=raw):
                code = -32700 if isinstance(raw, str) else INVALID_REQUEST
                self._refuse(None, code, f"This is no message of JSON-RPC: {why[:200]}.")

    def later(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Begin work whose messages come after the answer of the request that begins it."""
        keep(asyncio.create_task(go_on_for(doer(), work), name=f"acp {name[:100]}"), self._tasks)

    async def _serve(self, id_: Id, method: str, params: JsonObject) -> None:
        row = self._methods.get(method)
        if row is None:
            self._refuse(id_, METHOD_NOT_FOUND, f"This server has no method {method[:100]!r}.")
            return
        try:
            if self.capabilities is None and method != "initialize":
                raise InvalidRequest("The first request of a connection is `initialize`.")
            check("acp", params)
            result = await row[1](self, _validate(row[0], params), id_)
        except RequestError as error:
            self.send({"id": id_, "error": rpc_error(error)})
        except ShimError as error:  # such as a store that fails
            self._refuse(id_, INTERNAL, str(error))
        except Exception:  # no fault at one request ends the connection
            log.exception("acp.request_failed", method=method)
            self._refuse(id_, INTERNAL, "The server has failed at this request. Its log says why.")
        else:
            if result is not None:
                self.send({"id": id_, "result": result})

    # --- out ---------------------------------------------------------------------------------------------------

    def send(self, message: JsonObject) -> None:
        self.outbox.put(to_json({"jsonrpc": "2.0", **message}))

    def _refuse(self, id_: Id, code: int, message: str) -> None:
        self.send({"id": id_, "error": {"code": code, "message": message}})

    def update(self, session_id: str, update: JsonObject) -> None:
        self.send({"method": "session/update", "params": {"sessionId": session_id, "update": update}})

    # --- sessions ----------------------------------------------------------------------------------------------

    def new_screen(self, record: SessionRecord) -> Screen:
        """What this client was sent of a session of which it knows no more than its record."""
        can_notices = obj((self.capabilities or {}).get("session")).get("notices") is not None
        return Screen(record.title, self._context_of, can_notices)

    def follow(self, session: Session, screen: Screen) -> None:
        """Send all that happens in a session from now on, and what it asks now."""
        self.unfollow(session.id)
        if self.outbox.is_over:
            return
        self._views[session.id] = View(screen, self.sessions.deps.feed.attend(session.id))
        requests = self.sessions.requests
        for asker, request in (*requests.permissions(), *requests.questions()):
            if self._place_of(asker.record) == session.id:
                self._ask(session.id, request, asker)

    def unfollow(self, session_id: str) -> None:
        """Send nothing more of a session."""
        view = self._views.pop(session_id, None)
        if view is not None:
            view.listener.close()
            for request_id in [id_ for id_, ask in self._asks.items() if ask.session_id == session_id]:
                self._withdraw(request_id)

    def view(self, session_id: str) -> View:
        """What is known of a session that the client follows. Raises NotFound for another one."""
        if session_id in self._views:
            return self._views[session_id]
        if self.sessions.index.find(session_id) is None:
            raise SessionNotFound(session_id)
        raise InvalidRequest(f"This connection does not follow {session_id}: send session/load or session/resume first.")

    def need_room(self, session_id: str = "") -> None:
        """Raise InvalidRequest if the connection follows too many sessions, or waits for the end of a turn of this one."""
        if len(self._views) >= MAX_SESSIONS:
            raise InvalidRequest(f"A connection follows at most {MAX_SESSIONS} sessions: close some.")
        if session_id in self._views and self._views[session_id].prompts:
            raise InvalidRequest("A prompt of this connection is at work in the session: wait for its answer.")

    def _context_of(self, model: ModelRef) -> int:
        agent = self.services.agents.get(model.provider_id)
        models = agent.catalogue.models if agent is not None else ()
        return next((row.context or 0 for row in models if row.id == model.model_id), 0)

    # --- changes -----------------------------------------------------------------------------------------------

    def _on_changes(self, published: SessionChanges) -> None:
        """Send what happens in a session to the client, at the moment when it happens. Never raises."""
        try:
            self._show(published)
        except Exception:  # of this client alone: the session and its other readers go on
            log.exception("acp.render_failed", session_id=published.session.id)
            self.outbox.cut_off()

    def _show(self, published: SessionChanges) -> None:
        changes, session = published.changes, published.session
        view = self._views.get(session.id)
        if view is None:
            if session.record.parent_id and self._views:
                self._on_child(published)
            return
        if published.is_resent:
            return
        model = view.screen.model
        for update in updates.render(changes, session, view.screen):
            self.update(session.id, update)
        if view.screen.model != model:
            self.later(self._send_options(session, view), "options")
        for change in changes:
            match change:
                case RequestOpened(request=request):
                    self._ask(session.id, request, session)
                case RequestClosed(request=request):
                    self._withdraw(request.id)
                case PromptFailed(failure=failure):
                    view.failure = failure
                case MessageRemoved(message_id=message_id) if message_id in view.prompts:
                    self._answer_prompt(view.prompts.pop(message_id), "cancelled")
                case TurnEnded(reason=reason):
                    self._end_turn(session, view, reason)
                case SessionDeleted():
                    self.unfollow(session.id)
                    for id_ in view.prompts.values():
                        self._answer_prompt(id_, "cancelled")
                case _:
                    pass

    async def _send_options(self, session: Session, view: View) -> None:
        """Tell which model another client has chosen. Soon: the options are read from the configuration."""
        with suppress(ShimError):
            choices = await offers.choices_of(self.services, session)
            if self._views.get(session.id) is view:
                options = choices.to_json()["configOptions"]
                self.update(session.id, {"sessionUpdate": "config_option_update", "configOptions": options})

    def _on_child(self, published: SessionChanges) -> None:
        """Ask what a subagent asks, in the name of the session that the client follows."""
        if not any(isinstance(change, RequestOpened | RequestClosed) for change in published.changes):
            return
        for change in published.changes:
            if isinstance(change, RequestOpened) and (place := self._place_of(published.session.record)):
                self._ask(place, change.request, published.session)
            elif isinstance(change, RequestClosed):
                self._withdraw(change.request.id)

    def _place_of(self, record: SessionRecord) -> str:
        """The session that the client follows, of which this one is or is a subagent's; "" if there is none."""
        for _ in range(DEEPEST_CHILD):
            if record.id in self._views:
                return record.id
            parent = self.sessions.index.find_record(record.parent_id) if record.parent_id else None
            if parent is None:
                return ""
            record = parent
        return ""

    def _end_turn(self, session: Session, view: View, reason: str) -> None:
        """Answer the prompts of a turn that has ended. Those that wait for the next turn are answered at its end."""
        failure, view.failure = view.failure, None
        entry = self.sessions.index.find(session.id)
        state = entry.state if entry is not None else None
        is_next = state is not None and state.machine.busy
        waits = {prompt.message_id for prompt in state.pending_prompts.without_answer()} if state is not None and is_next else ()
        for message_id in [id_ for id_ in view.prompts if id_ in session.messages and id_ not in waits]:
            self._answer_prompt(view.prompts.pop(message_id), *_stop_of(session, reason, failure))
        own = set(view.prompts)
        view.screen.forget_turn()
        view.screen.own |= own

    def _answer_prompt(self, id_: Id, stop: str, failure: str = "") -> None:
        if failure:
            self._refuse(id_, INTERNAL, failure)
        else:
            self.send({"id": id_, "result": {"stopReason": stop}})

    # --- cancel ------------------------------------------------------------------------------------------------

    async def _cancel(self, method: str, params: JsonObject) -> None:
        """Abort the turn of a session, or that of a prompt. One abort of a session is at work at a time."""
        session_id, wanted = text(params.get("sessionId")), params.get("requestId")
        if method != "session/cancel":
            prompts = ((key, id_) for key, one in self._views.items() for id_ in one.prompts.values())
            session_id = next((key for key, id_ in prompts if id_ == wanted), "")
        view = self._views.get(session_id)
        if view is not None and not view.has_cancel:
            await self.abort(session_id, view)

    async def abort(self, session_id: str, view: View) -> None:
        """Abort the turn of a session, after the prompts that were sent before."""
        view.has_cancel = True
        try:
            async with view.order:
                await self.sessions.abort(session_id)
        except ShimError as error:
            log.warning("acp.abort_failed", session_id=session_id, error=str(error))
        finally:
            view.has_cancel = False

    # --- what is asked -----------------------------------------------------------------------------------------

    def _ask(self, session_id: str, request: PermissionRequest | QuestionRequest, session: Session) -> None:
        """Ask the client. The id of the request is that of the message, so its answer needs no table to be understood."""
        can_forms = obj((self.capabilities or {}).get("elicitation")).get("form") is not None
        if isinstance(request, QuestionRequest) and not can_forms:
            self._ask_choice(Ask(session_id, request), request)
            return
        self._asks[request.id] = Ask(session_id, request)
        if isinstance(request, PermissionRequest):
            method, params = "session/request_permission", updates.permission(request, session)
        else:
            method, params = "elicitation/create", updates.form(request)
            self._asks[request.id].is_form = True
        self.send({"id": request.id, "method": method, "params": {"sessionId": session_id, **params}})

    def _ask_choice(self, ask: Ask, request: QuestionRequest) -> None:
        """Ask the next question of a client without forms. Where somebody has to type, another client answers."""
        if all(question.options for question in request.questions):
            self._asks[request.id], ask.is_form = ask, False
            params = {"sessionId": ask.session_id, **updates.choice(request, len(ask.answers))}
            self.send({"id": request.id, "method": "session/request_permission", "params": params})

    def _withdraw(self, request_id: str) -> None:
        """Tell the client that a request needs no answer any more: another one has answered, or the turn is over."""
        if self._asks.pop(request_id, None) is not None:
            self.send({"method": "$/cancel_request", "params": {"requestId": request_id}})

    def _take_answer(self, response: Response) -> None:
        """Pass on the person's answer. An answer that comes too late, or to nothing, changes nothing."""
        request_id = response.id if isinstance(response.id, str) else ""
        ask = self._asks.get(request_id)
        if ask is None or self.view(ask.session_id).has_cancel:
            return
        del self._asks[request_id]
        if response.is_error:  # other clients may answer
            log.info("acp.no_answer", id=request_id, error=response.message[:200])
            if ask.is_form and isinstance(ask.request, QuestionRequest):  # it does not take forms, whatever it has announced
                self._ask_choice(ask, ask.request)
            return
        result = obj(response.result)
        try:
            if isinstance(ask.request, PermissionRequest):
                chosen = text(obj(result.get("outcome")).get("optionId"))
                self.sessions.requests.reply_permission(request_id, chosen if chosen in updates.OPTIONS else "reject")
            elif ask.is_form:
                accepted = result.get("action") == "accept"
                answers = updates.form_answers(ask.request, obj(result.get("content"))) if accepted else None
                self.sessions.requests.reply_question(request_id, answers)
            else:
                self._take_choice(ask, ask.request, text(obj(result.get("outcome")).get("optionId")))
        except ShimError as error:  # another client was first, or another server has the session
            log.warning("acp.answer_lost", id=request_id, error=str(error))
            if isinstance(error, SessionElsewhere):
                for update in updates.notice(self.view(ask.session_id).screen, "error", error.message):
                    self.update(ask.session_id, update)

    def _take_choice(self, ask: Ask, request: QuestionRequest, option: str) -> None:
        """One of several questions was answered without a form: ask the next one, or pass on all answers."""
        options = request.questions[len(ask.answers)].options
        if not option.isascii() or not option.isdigit() or int(option) >= len(options):
            self.sessions.requests.reply_question(request.id, None)
            return
        ask.answers.append([options[int(option)].label])
        if len(ask.answers) == len(request.questions):
            self.sessions.requests.reply_question(request.id, ask.answers)
            return
        self._ask_choice(ask, request)


def _validate(model: type[BaseModel], params: JsonObject) -> BaseModel:
    """Validate the parameters of a request. Raises InvalidRequest."""
    try:
        return model.model_validate(params, strict=True)
    except ValidationError as error:
        first = fault(error, params)
        raise InvalidRequest(first.reason, "Payload", first.path) from error


def _stop_of(session: Session, reason: str, failure: Failure | None) -> tuple[str, str]:
    """Why a turn has ended: a stop reason, and the message of an error, if it is none of the protocol's reasons."""
    if reason == "aborted":
        return "cancelled", ""
    if failure is not None and failure.code in updates.FAILURES:
        return failure.code or "", ""
    if reason != "completed":
        return "", failure.message if failure is not None else f"The turn has ended: {reason}."
    last = session.messages.newest
    finish = last.info.finish if last is not None and isinstance(last.info, StepInfo) else None
    return updates.FINISHES.get(finish or "", "end_turn"), ""
