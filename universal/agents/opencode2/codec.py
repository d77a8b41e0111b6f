"""OpenCode 2: a server (`opencode2 serve`) per session, driven over HTTP, its `/api/event` stream read.

The runtime turns both into lines (see `wire`); the codec reads lines and returns facts and signals. Its parts: `wire` (requests,
tables), `dialects` (builds), `speech` (items), `asks` (permissions, forms).
A prompt is a sequence of requests, each sent after the answer to the one before: the session is created, or its rules, agent,
model and instructions are set where they have changed; then the prompt is sent.
Source: the published contract of 2.0 and 2.1, recordings of two older builds (`compat_fixtures/opencode2`); docs/wire2.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from universal.agents import kit
from universal.agents.kit.opencode import ServerCodec, ServerContext, ServerSession, Step
from universal.agents.opencode2 import wire
from universal.agents.opencode2.asks import Asks
from universal.agents.opencode2.dialects import HEALTH_PATH, INFO_PATH, V2, Dialect, Msg, dialect_of_health, normalize
from universal.agents.opencode2.speech import Thread
from universal.agents.opencode2.wire import NAME
from universal.codec import IdFactory, Output, PermissionReply, Prompt, QuestionReply, Signal, WriteLine
from universal.items import Json
from universal.launch import LaunchOptions, LaunchSpec
from universal.lib.jsonvalue import arr, obj, text, whole
from universal.opencode import message_id, refusal
from universal.turn import Input

EVENTS_HELD = 1000
"""Maximum number of events of a subagent's session that wait for the tool call that made it."""
ACTIVE_READS = 500
"""Maximum number of reads in a row, to learn that a session of the preview is idle. Each takes it some milliseconds."""
IDLE_READS = 20
"""Number of reads by which the last events of an idle session of the preview have come. A rejection leaves its step open."""
HISTORY_PAGES = 50
"""Maximum number of pages of a session's messages that are read to find the last answer that stays after an undo."""
ACTIVE_PATH = "/api/session/active"
"""Path of the list of sessions that work."""
GLOBAL_FORMS = "global"
"""Pseudo session of forms that belong to no session."""


# --- the end of an answer ---------------------------------------------------------------------------------------

# A session works in executions, each of which runs until nothing is left to do and ends by exactly one event. An execution that
# began before our prompt may end without it (a background task had woken it). An end counts only once the model got the prompt.


@dataclass(slots=True)
class Course:
    """The progress of one session from a prompt, or from work of its own, until it rests."""

    active: bool = False
    """Whether something is to be answered: a prompt, or work that the agent began."""
    running: bool = False
    """Whether an execution has begun and not ended."""
    delivered: bool = False
    """Whether the model has received what is to be answered."""
    stopping: bool = False
    rejected: bool = False
    """A person rejected something, which ends an execution too."""

    def start(self, *, delivered: bool) -> None:
        self.active, self.delivered = True, delivered
        self.stopping = self.rejected = False

    def is_answered(self, outcome: str) -> bool:
        """Return whether the end of an execution is the answer. A failure counts even if the prompt was never delivered."""
        return self.active and (self.delivered or outcome != "succeeded")

    def end(self) -> None:
        self.active = self.running = False


_Session = ServerSession[Thread, Course]


class OpenCode2Codec(ServerCodec[Thread, Course]):
    """The codec of OpenCode 2; see `universal.codec.Codec` for the methods' contract."""

    name = NAME
    TITLE = "OpenCode 2"
    STATUS_PATH = ACTIVE_PATH
    SESSIONS_PATH = "/api/session"
    IGNORED, IGNORED_FAMILIES = wire.IGNORED, wire.IGNORED_FAMILIES
    AGENT_KEY = "agent"

    def __init__(self, ids: IdFactory, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        """`arguments` stand before `serve`; `environment` is added to that of the process. Both come from a person's settings."""
        super().__init__(ServerContext(NAME, ids))
        self._arguments = tuple(arguments)
        self._environment = dict(environment or {})
        self._dialect: Dialect | None = None
        self._trouble: dict[str, Json] | None = None
        """Why the server cannot be used."""
        self._asks = Asks(self._ctx, self._reply)
        self._offers_old = False
        """The catalogue changed while it was asked for."""
        self._skills: frozenset[str] = frozenset()
        self._settings: dict[str, Json] = {}
        """Rules, agent, model and instructions that the session has."""
        self._undone_prompt = ""
        """The oldest prompt after the anchor on the pages that were read."""
        self._pages_left = HISTORY_PAGES
        self._reads_left = self._idle_reads = 0

    def _new_session(self, session_id: str, child: str | None) -> _Session:
        return _Session(Thread(self._ctx, session_id, child=child), Course())

    @property
    def _open_asks(self) -> Asks:
        return self._asks

    # --- start ----------------------------------------------------------------------------------------

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        self._ctx.directory = options.directory
        self._resume(options)
        argv = (options.binary, *self._arguments, "serve", "--hostname", "127.0.0.1")
        env = {"OPENCODE_DISABLE_AUTOUPDATE": "1", **self._environment}
        return LaunchSpec(argv, options.directory, env, events=wire.EVENTS_PATH)

    def start(self) -> list[Output]:
        """Ask for the build and for its offers. Prompts wait only for the answer about the build."""
        return [self._request("info", "GET", INFO_PATH), *self._ask_offers()]

    def _ask_offers(self) -> list[Output]:
        self._offers = {}
        self._offers_old = False
        where = f"?location[directory]={quote(self._ctx.directory)}" if self._ctx.directory else ""
        return [self._request("offer:" + path, "GET", path + where) for path in wire.OFFERS]

    # --- commands -------------------------------------------------------------------------------------

    def _on_prompt(self, prompt: Prompt) -> Iterator[Output]:
        self._main.course.start(delivered=False)
        self._prompt = prompt
        yield self._await()
        if self._trouble is not None:
            yield from self._fail_prompt(self._trouble, None)
        elif self._dialect is not None:
            yield from self._prepare(prompt, self._dialect)

    def _prepare(self, prompt: Prompt, dialect: Dialect) -> Iterator[Output]:
        """Queue the requests of a prompt and send the first."""
        self._steps.clear()
        if self._anchor and not dialect.reverts:
            yield from self._fail_prompt(self._undo_failed(), None)
            return
        if self._anchor:
            self._steps.append(Step("history", "GET", "/message?order=desc", None))
        settings = self._session_settings(prompt, dialect)
        changed = {key: value for key, value in settings.items() if self._settings.get(key) != value}
        if self.native_session_id is None:
            body: Msg = {key: value for key, value in settings.items() if key != "system" and value}
            if self._ctx.directory:
                body["location"] = {"directory": self._ctx.directory}
            self._steps.append(Step("create", "POST", "", body))
            changed = {key: value for key, value in changed.items() if key == "system" and value}
        if "permissions" in changed:
            self._steps.append(Step("permissions", "PATCH", "", {"permissions": changed["permissions"]}))
        if changed.get("agent"):
            self._steps.append(Step("agent", "POST", "/agent", {"agent": changed["agent"]}))
        if changed.get("model"):
            self._steps.append(Step("model", "POST", "/model", {"model": changed["model"]}))
        if "system" in changed:
            path, system = f"/instructions/entries/{wire.SYSTEM_ENTRY}", text(changed["system"])
            value = {"value": system} if system else None
            self._steps.append(Step("system", "PUT" if system else "DELETE", path, value, is_needed=False))
        self._settings |= settings
        yield from self._next_step()

    def _session_settings(self, prompt: Prompt, dialect: Dialect) -> dict[str, Json]:
        """Return the settings that a session is to have for a prompt. What a prompt does not name stays as it is."""
        settings: dict[str, Json] = {}
        rules = wire.ruleset(prompt.rules)
        if dialect.takes_rules and (rules or self._settings.get("permissions") or self._resumed):
            settings["permissions"] = rules
        if prompt.mode:
            settings["agent"] = prompt.mode
        if model := wire.model_ref(prompt.model, prompt.variant):
            settings["model"] = model
        if dialect.takes_system and (prompt.system or self._settings.get("system")):
            settings["system"] = prompt.system or ""
        return settings

    def _step_path(self, step: Step) -> str:
        if step.purpose == "system":
            return f"/api/experimental/session/{quote(self.native_session_id or '')}{step.path}"
        return super()._step_path(step)

    def _on_ready(self, prompt: Prompt) -> Iterator[Output]:
        yield self._send_prompt(prompt, self._dialect or V2)

    def _send_prompt(self, prompt: Prompt, dialect: Dialect) -> WriteLine:
        thread, course = self._main.thread, self._main.course
        if prompt.compact:
            course.delivered = True  # it is no input of the model
            return self._request("prompt", "POST", self._path("/compact"), {})
        name, arguments = self._command_of(prompt)
        if name and name not in self._skills:
            course.delivered = thread.claims = True  # a command may end without an input of the model
            return self._request("prompt", "POST", self._path("/command"), wire.command_body(dialect, prompt, name, arguments))
        message = message_id(prompt.key, self._last_event)
        if message:
            thread.own_prompts.add(message)
        thread.claims = not message
        body = wire.prompt_body(dialect, prompt, message)
        if name in self._skills and not dialect.is_wrapped:
            body |= {"text": arguments or prompt.text, "skills": [{"id": name}]}
        return self._request("prompt", "POST", self._path("/prompt"), body)

    def _interrupt(self) -> Iterator[Output]:
        course = self._main.course
        if course.active:
            course.stopping = True
            if course.running:
                yield self._stop()

    def _stop(self) -> WriteLine:
        return self._request("interrupt", "POST", self._path("/interrupt"))

    def _on_permission_reply(self, reply: PermissionReply) -> Iterator[Output]:
        self._note_rejection(reply.permission_id, rejected=reply.decision == "reject")
        yield from self._asks.reply(reply)

    def _on_question_reply(self, reply: QuestionReply) -> Iterator[Output]:
        self._note_rejection(reply.question_id, rejected=reply.answers is None)
        yield from self._asks.answer(reply)

    def _note_rejection(self, ask_id: str, *, rejected: bool) -> None:
        """Note a rejection without a message. It ends the execution, which is then not a failure."""
        thread = self._asks.thread_of(ask_id)
        for session in (self._main, *self._children.values()):
            if rejected and session.thread is thread:
                session.course.rejected = True

    # --- answers --------------------------------------------------------------------------------------

    def _answer(self, purpose: str, answer: Msg) -> Iterator[Output]:
        status, body = whole(answer.get("status")), answer.get("body")
        good = 200 <= status < 300
        if purpose in ("info", "health"):
            yield from self._on_info(purpose, good, status, body, answer)
        elif purpose.startswith("offer:"):
            yield from self._on_offer(purpose.removeprefix("offer:"), body if good else None)
        elif purpose == "active":
            yield from self._on_active(body if good else None, answer)
        elif purpose == "status":
            yield from self._on_status_answer(good, body, answer)
        elif purpose == "prompt":
            yield from self._on_prompt_accepted(good, status, body, answer)
        elif self._steps and purpose == self._steps[0].purpose:
            yield from self._on_step_answered(good, status, body, answer)
        else:
            if not good:  # the reply came too late, or nothing was there to interrupt: the events report the true state
                self._ctx.ignore(f"{purpose or 'unknown request'}: status {status}")
            yield from self._look_for_end()

    def _on_info(self, purpose: str, good: bool, status: int, body: Json, msg: Msg) -> Iterator[Output]:
        """Handle the answer about the build. A prompt may be waiting for it."""
        if good:
            self._dialect = V2 if purpose == "info" else dialect_of_health(body)
            self._asks.use(self._dialect)
        elif purpose == "info" and status == 404:
            yield self._request("health", "GET", HEALTH_PATH)
            return
        else:
            self._trouble = self._refusal(status, body)
            if status == 404:
                self._trouble["message"] = (
                    "The program is no server of OpenCode 2: it answers neither /api/info nor /api/health. "
                    "Name that of OpenCode 2 in SHIM_OPENCODE2_BIN; for OpenCode 1 choose the agent `opencode`."
                )
            yield kit.error_fact(self._trouble, msg)
        prompt = self._prompt
        if prompt is None:
            return
        if self._dialect is None:
            yield from self._fail_prompt(self._trouble or {}, msg, is_told=True)
        else:
            yield from self._prepare(prompt, self._dialect)

    def _on_offer(self, path: str, body: Json) -> Iterator[Output]:
        """The catalogue is whole when all have answered. No models: its plugins are still loading, an event follows."""
        self._offers[path] = body
        if len(self._offers) < len(wire.OFFERS):
            return
        if arr(obj(self._offers["/api/model"]).get("data")):
            self.catalogue = wire.read_catalogue(self._offers)
            self._skills = wire.skill_names(self._offers["/api/skill"])
        yield from self._renew_offers()

    def _on_step_answered(self, good: bool, status: int, body: Json, msg: Msg) -> Iterator[Output]:
        step = self._steps.popleft()
        session_id = text(obj(obj(body).get("data")).get("id"))
        if not good and not step.is_needed:
            self._ctx.ignore(f"{step.purpose}: status {status}")
        elif not good or (step.purpose == "create" and not session_id):
            self._settings.clear()
            yield from self._fail_prompt(self._undo_failed() if step.purpose in wire.UNDO else self._refusal(status, body), msg)
            return
        elif step.purpose == "history" and not self._plan_undo(obj(body)):
            yield from self._fail_prompt(self._undo_failed(), msg)
            return
        elif step.purpose == "commit":
            self._anchor = ""
        elif step.purpose == "create":
            self._know(session_id)
        yield from self._next_step()

    def _plan_undo(self, page: Msg) -> bool:
        """Queue what follows from a page of the messages, the newest first. Return False if the last answer that stays is gone.

        The conversation is cut without its files, which the server restores itself.
        """
        is_there, prompt = wire.prompt_after(page, self._anchor)
        self._undone_prompt = prompt or self._undone_prompt
        cursor, self._pages_left = text(obj(page.get("cursor")).get("next")), self._pages_left - 1
        if is_there and self._undone_prompt:
            stage: Msg = {"messageID": self._undone_prompt, "files": False}
            self._steps.appendleft(Step("commit", "POST", "/revert/commit", None))
            self._steps.appendleft(Step("stage", "POST", "/revert/stage", stage))
        elif is_there:
            self._anchor = ""  # nothing came after it
        elif cursor and self._pages_left > 0:
            self._steps.appendleft(Step("history", "GET", f"/message?cursor={quote(cursor)}", None))
        else:
            return False
        return True

    def _on_prompt_accepted(self, good: bool, status: int, body: Json, msg: Msg) -> Iterator[Output]:
        course = self._main.course
        if good:
            yield from self._accept()
        if not good and course.active:
            yield from self._fail_prompt(self._refusal(status, body), msg)
        elif course.active and self._dialect is not None and not self._dialect.tells_end:
            yield from self._work(self._main)
            yield from self._look_for_end(reads=1)

    def _refusal(self, status: int, body: Json) -> dict[str, Json]:
        error = refusal(status, body, wire.error_of(body))
        is_unknown = error["code"] == "SessionNotFoundError" and self._resumed
        if is_unknown or self._is_lost(status):
            error["code"] = "session_not_found"
        return error

    # --- events ---------------------------------------------------------------------------------------

    def _event(self, event: Msg, hash_: str) -> Iterator[Output]:
        kind, data = normalize(text(event.get("type")), obj(event.get("data")))
        self._last_event = text(event.get("id")) or self._last_event
        handler = self.HANDLERS.get(kind)
        session_id = text(data.get("sessionID"))
        if kind in wire.CATALOGUE_EVENTS:
            yield from self._on_catalogue_changed(kind)
        elif handler is None:
            yield from self._count_or_report(kind, event, hash_)
        elif kind == "session.created":
            self._keep_session(session_id, data)
        elif session_id in self._early_events:
            yield from self._hold(session_id, event)
        elif (session := self._session(session_id)) is not None:
            yield from handler(self, session, data, event)
        else:
            self._ctx.ignore("event of another session")

    def _session(self, session_id: str) -> _Session | None:
        return self._main if session_id == GLOBAL_FORMS else super()._session(session_id)

    def _on_catalogue_changed(self, kind: str) -> Iterator[Output]:
        """Ask again for the offers: at once, or after the pending answers and the end of the turn."""
        self._ctx.ignore(kind)
        self._offers_old = True
        yield from self._renew_offers()

    def _renew_offers(self) -> Iterator[Output]:
        is_asked = len(self._offers) < len(wire.OFFERS)
        if self._offers_old and not is_asked and (self.catalogue is None or not self._main.course.active):
            yield from self._ask_offers()

    def _hold(self, session_id: str, event: Msg) -> Iterator[Output]:
        early = self._early_events[session_id]
        early.append(event)
        if len(early) >= EVENTS_HELD:  # no call names it, but it is shown anyway
            yield from self._open_child(session_id, session_id, {}, event)

    # --- turns ----------------------------------------------------------------------------------------

    def _work(self, session: _Session) -> Iterator[Output]:
        course, child = session.course, session.thread.child
        if not course.active:
            course.start(delivered=True)
            yield Signal(Input.ACTIVITY, child=child)
        self._watch.on_work(session.thread.session_id)
        if not course.running:
            course.running = True
            if course.stopping and child is None:
                yield self._stop()

    def _on_enqueued(self, session: _Session, data: Msg, event: Msg) -> Iterator[Output]:
        session.thread.on_enqueued(data)
        yield from ()

    def _on_delivered(self, session: _Session, data: Msg, event: Msg) -> Iterator[Output]:
        if text(data.get("inboxID")) in session.thread.own_prompts:
            session.course.delivered = True
        yield from session.thread.on_delivered(data, event)

    def _on_failed(self, session: _Session, data: Msg, event: Msg) -> Iterator[Output]:
        yield from self._rest(session, "failed", wire.error_of(data.get("error")), event)

    def _rest(self, session: _Session, outcome: str, error: dict[str, Json], event: Msg) -> Iterator[Output]:
        """Handle the end of an execution: the session has answered, or the prompt is still to come."""
        course, thread = session.course, session.thread
        if not course.is_answered(outcome):
            course.running = False
            self._ctx.ignore("the end of an execution without our prompt")
            if course.active:
                yield self._watch.on_sign(thread.session_id, wire.ENDS["session.execution.succeeded"])
            return
        yield from self._end(session, outcome, error, event)

    def _end(self, session: _Session, outcome: str, error: dict[str, Json], event: Msg) -> Iterator[Output]:
        course = session.course
        is_stopped = course.stopping or (outcome == "interrupted" and not course.rejected) or error.get("code") == "aborted"
        yield from self._close(session, event)
        yield from self._report_end(session.thread, error, event, is_stopped=is_stopped)
        yield from self._renew_offers()

    # --- signs of an end ------------------------------------------------------------------------------

    def _at_work(self, body: Json) -> list[str]:
        return list(obj(obj(body).get("data")))

    def _end_by_sign(self, session_id: str, msg: Msg) -> Iterator[Output]:
        session = self._session(session_id) or self._main
        self._ctx.counters["execution's end missing"] += 1
        course = session.course
        if course.delivered or course.stopping:
            error = session.thread.take_error()
            outcome = "interrupted" if course.stopping else "failed" if error else "succeeded"
            yield from self._end(session, outcome, error, msg)
        else:
            yield from self._fail_prompt(self._not_begun(), msg)

    # --- the end of a turn of the preview -------------------------------------------------------------

    def _look_for_end(self, reads: int = 0) -> Iterator[Output]:
        """Ask whether the session still works, for a build that does not say when it rests."""
        if self._dialect is not None and not self._dialect.tells_end and self._main.course.active:
            if "active" not in self._purposes.values():
                yield self._request("active", "GET", ACTIVE_PATH)
            self._reads_left, self._idle_reads = reads or ACTIVE_READS, 0

    def _on_active(self, body: Json, msg: Msg) -> Iterator[Output]:
        running = obj(obj(body).get("data"))
        self._reads_left -= 1
        if not self._main.course.active:
            return
        is_running = body is None or self.native_session_id in running
        self._idle_reads = 0 if is_running else self._idle_reads + 1
        if is_running or (self._main.thread.is_speaking and self._idle_reads < IDLE_READS):
            if self._reads_left > 0:
                yield self._request("active", "GET", ACTIVE_PATH)
            return
        self._main.course.delivered = True
        yield from self._rest(self._main, "succeeded", self._main.thread.take_error(), msg)

    # --- what is said ---------------------------------------------------------------------------------

    def _on_step_started(self, session: _Session, data: Msg, event: Msg) -> Iterator[Output]:
        yield from self._work(session)
        yield from session.thread.step_started(data, event)

    def _on_step_ended(self, session: _Session, data: Msg, event: Msg) -> Iterator[Output]:
        yield from session.thread.step_ended(data, event)
        yield from self._look_for_end()
        is_failed = "error" in data
        if session.course.active and (is_failed or text(data.get("finish"), "tool-calls") != "tool-calls"):
            yield self._watch.on_sign(
                session.thread.session_id, wire.ENDS["session.step.failed" if is_failed else "session.step.ended"]
            )

    def _on_progress(self, session: _Session, data: Msg, event: Msg) -> Iterator[Output]:
        yield from self._name_child(session, data, event)
        yield from session.thread.progress(data, event)

    def _on_success(self, session: _Session, data: Msg, event: Msg) -> Iterator[Output]:
        yield from self._name_child(session, data, event)
        yield from session.thread.success(data, event)

    def _name_child(self, session: _Session, data: Msg, event: Msg) -> Iterator[Output]:
        """Open the subagent's session that a tool call names."""
        child_id = text(obj(data.get("metadata")).get("sessionID"))
        if child_id in self._early_events:
            call_id = text(data.get("id"))
            call = session.thread.call_of(call_id)
            yield from self._open_child(child_id, call_id, (call.arguments if call else None) or {}, event)

    def _on_tool_failed(self, session: _Session, data: Msg, event: Msg) -> Iterator[Output]:
        yield from session.thread.on_tool_failed(data, event)
        yield from self._look_for_end()

    def _on_retry(self, session: _Session, data: Msg, event: Msg) -> Iterator[Output]:
        wait = wire.delay_ms(data.get("at"), event.get("created"), whole(data.get("attempt"), 1))
        yield session.thread.retry(data, event, wait)

    def _on_renamed(self, session: _Session, data: Msg, event: Msg) -> Iterator[Output]:
        title = text(data.get("title"))
        if title and session.thread.child is None:
            yield self._ctx.status("title", title, {"title": title}, event)

    HANDLERS: ClassVar[Mapping[str, Callable[[Any, _Session, Msg, Msg], Iterator[Output]]]] = {
        "session.created": lambda codec, session, data, event: codec._work(session),  # see `_keep_session`
        "session.execution.started": lambda codec, session, data, event: codec._work(session),
        "session.execution.succeeded": lambda codec, session, data, event: codec._rest(session, "succeeded", {}, event),
        "session.execution.failed": _on_failed,
        "session.execution.interrupted": lambda codec, session, data, event: codec._rest(session, "interrupted", {}, event),
        "session.inbox.enqueued": _on_enqueued,
        "session.inbox.delivered": _on_delivered,
        "session.step.started": _on_step_started,
        "session.step.ended": _on_step_ended,
        "session.step.failed": _on_step_ended,
        "session.text.delta": lambda codec, session, data, event: session.thread.piece("text", data, event),
        "session.text.ended": lambda codec, session, data, event: session.thread.whole_part("text", data, event),
        "session.reasoning.delta": lambda codec, session, data, event: session.thread.piece("reasoning", data, event),
        "session.reasoning.ended": lambda codec, session, data, event: session.thread.whole_part("reasoning", data, event),
        "session.tool.input.started": lambda codec, session, data, event: session.thread.input_started(data, event),
        "session.tool.input.delta": lambda codec, session, data, event: session.thread.input_piece(data, event),
        "session.tool.called": lambda codec, session, data, event: session.thread.on_tool_called(data, event),
        "session.tool.progress": _on_progress,
        "session.tool.success": _on_success,
        "session.tool.failed": _on_tool_failed,
        "session.retry.scheduled": _on_retry,
        "session.compaction.started": lambda codec, session, data, event: session.thread.compaction("started", data, event),
        "session.compaction.ended": lambda codec, session, data, event: session.thread.compaction("completed", data, event),
        "session.compaction.failed": lambda codec, session, data, event: session.thread.compaction("failed", data, event),
        "session.renamed": _on_renamed,
        "todo.updated": ServerCodec[Thread, Course]._on_todo,
        "permission.asked": lambda codec, session, data, event: codec._asks.permission(data, session.thread, event),
        "permission.replied": ServerCodec[Thread, Course]._on_settled,
        "form.created": lambda codec, session, data, event: codec._asks.form(data, session.thread, event),
        "form.replied": ServerCodec[Thread, Course]._on_settled,
        "form.cancelled": ServerCodec[Thread, Course]._on_settled,
        "question.asked": lambda codec, session, data, event: codec._asks.question(data, session.thread, event),
        "question.replied": ServerCodec[Thread, Course]._on_settled,
        "question.rejected": ServerCodec[Thread, Course]._on_settled,
    }
    """Type of event, by the names of 2.x -> what is done with it."""
