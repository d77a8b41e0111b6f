"""The codec of OpenCode: one `opencode serve` per session, with HTTP requests and its `/event` stream.

The runtime converts both to lines (see `wire`). Parts of the codec: `wire` (lines, tables), `speech` (items), `results` (results
of tools), `asks` (permissions, questions), `turns` (ends of answers). Pure: no clock, no IO, no randomness; ids come from the
injected factory, message ids of prompts from the last event's id.
Source: recordings of 1.18.33 (`compat_fixtures/agents/opencode`), docs/wire.md, runs against a scripted model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast
from urllib.parse import quote

from universal.agents import kit
from universal.agents.kit.opencode import Origin, ServerAsks, ServerCodec, ServerContext, ServerSession, Step, question_of
from universal.agents.opencode import wire
from universal.agents.opencode.speech import Thread
from universal.agents.opencode.wire import NAME, Msg
from universal.codec import IdFactory, Output, Prompt, Signal, WriteLine
from universal.items import Json
from universal.launch import LaunchOptions, LaunchSpec
from universal.lib.jsonvalue import arr, obj, text, whole
from universal.opencode import ABORTED, message_id, refusal
from universal.opencode_metadata import strings
from universal.permissions import Access, Rule
from universal.setup import McpServer
from universal.turn import Input

# --- the end of an answer ---------------------------------------------------------------------------------------

ABORT_ERROR = "MessageAbortedError"
UNKNOWN_AGENT = "Agent not found"
"""Beginning of an error after which OpenCode sends neither busy nor idle."""


@dataclass(slots=True)
class Course:
    """The state of one session from busy to idle."""

    active: bool = False
    """True while an answer is due, to a prompt or to unprompted work."""
    has_begun: bool = False
    idle: bool = False
    stopping: bool = False
    aborted: bool = False
    error: Json = None

    def start(self) -> None:
        self.active, self.has_begun, self.idle = True, False, False
        self.stopping = self.aborted = False
        self.error = None

    def busy(self) -> bool:
        """Note that OpenCode works. True if the answer has just begun."""
        self.idle = False
        first, self.has_begun = not self.has_begun, True
        return first

    def rests(self, *, speaking: bool) -> bool:
        """Whether the answer is complete. `speaking`: a message is not complete."""
        return self.active and self.has_begun and self.idle and not speaking

    def end(self) -> None:
        self.active = self.has_begun = False


# --- undo -------------------------------------------------------------------------------------------------------


def after(messages: Json, anchor: str) -> list[str] | None:
    """Ids of the messages after `anchor` in an answer of `GET /session/{id}/message`, the last first. None without the anchor."""
    ids = [text(obj(obj(message).get("info")).get("id")) for message in arr(messages)]
    if anchor not in ids:
        return None
    return [id_ for id_ in reversed(ids[ids.index(anchor) + 1 :]) if id_]


# --- the codec --------------------------------------------------------------------------------------------------

_CONFIG_CONTENT = "CONFIG_CONTENT"
"""The variable, behind the program's prefix, in which it reads configuration as JSON."""
_TITLE_CHARS = 80
LOOK_BACK = 20
"""Messages of its own that are looked at before a prompt, for those of another program."""
WRITTEN_ELSEWHERE = (
    "Somebody has gone on with this conversation in another program. {title} knows what was said there; it is not shown here. "
    "A turn that runs in both may end without an answer: close the conversation there before you go on."
)
_OFFERS = ("/config/providers", "/config", "/command", "/agent")
"""Requests at the start, for the catalogue."""
_LOADS_DIRECTORY = "/file?path="
"""A request for which OpenCode loads what a prompt needs in its directory, which takes 0.9 s of processor (1.18.33).

It lists the names in the directory. Most other requests, also those of `/api`, load less, or something else.
"""


def _with_more(options: LaunchOptions, variable: str, servers: Iterable[McpServer]) -> dict[str, str | None]:
    """The variable of the person's configuration with these MCP servers, and with the file of instructions that is left out
    with the project's settings.

    It may hold the person's rules. So a value that cannot be parsed stays as it is, without more.
    """
    try:
        config: object = json.loads(options.environment.get(variable) or "{}")
    except ValueError:
        return {}
    if not isinstance(config, dict):
        return {}
    settings = cast("dict[str, Any]", config)
    more: dict[str, Any] = {}
    instructions = settings.get("instructions", [])
    if not options.project_settings and isinstance(instructions, list):
        more["instructions"] = [*cast("list[Any]", instructions), f"{options.directory}/AGENTS.md"]
    if rows := {server.name: _mcp_row(server) for server in servers}:
        more["mcp"] = {**obj(settings.get("mcp")), **rows}
    return {variable: json.dumps({**settings, **more})} if more else {}


def _mcp_row(server: McpServer) -> Msg:
    if server.url:
        row = {"type": "remote", "url": server.url, "headers": dict(server.headers)}
    else:
        row = {"type": "local", "command": list(server.argv), "environment": dict(server.environment)}
    return {**row, "enabled": True, "timeout": server.timeout_ms}


_Session = ServerSession[Thread, Course]


class OpenCodeCodec(ServerCodec[Thread, Course]):
    """The codec of OpenCode; see `universal.codec.Codec` for the methods' contract."""

    name = NAME
    TITLE = "OpenCode"
    PREFIX: ClassVar[str] = "OPENCODE"
    """Of the program's variables."""
    STATUS_PATH = "/session/status"
    SESSIONS_PATH = "/session"
    IGNORED, IGNORED_FAMILIES = wire.IGNORED, wire.IGNORED_FAMILIES
    AGENT_KEY = "subagent_type"

    def __init__(self, ids: IdFactory) -> None:
        super().__init__(ServerContext(self.name, ids))
        self._asks = ServerAsks(self._ctx, self._reply)
        self._makes_title = False
        """Whether OpenCode makes the title of this conversation, and has not made it yet."""
        self._prepares = False
        """True until the rest of the preparation can be asked for."""
        self._rules: tuple[Rule, ...] = ()
        """The session's permission rules that OpenCode has. It keeps them when its process ends."""
        self._steered: dict[str, str] = {}
        """Message of a prompt that it was given while it works, and does not answer yet -> the prompt's key."""
        self._unheard = ""
        """The last one, until OpenCode has told it. The next sorts after it."""
        self._unwanted: list[str] = []
        """Messages that it has not answered, and must not: the next prompt waits until they are removed."""

    def _new_session(self, session_id: str, child: str | None) -> _Session:
        return _Session(Thread(self._ctx, session_id, child=child), Course())

    @property
    def _open_asks(self) -> ServerAsks:
        return self._asks

    # --- start ----------------------------------------------------------------------------------------

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """`opencode serve`; the runtime chooses the port and the password."""
        self._resume(options)
        # It offers its question tool to known clients, or with this variable.
        env: dict[str, str | None] = {
            f"{self.PREFIX}_DISABLE_AUTOUPDATE": "1",
            f"{self.PREFIX}_ENABLE_QUESTION_TOOL": "1",
            f"{self.PREFIX}_CLIENT": None,
        }
        if not options.project_settings:
            # Tried with 1.18.33: MCP servers, tools and permissions of the project are left out, its plugins are not.
            env[f"{self.PREFIX}_DISABLE_PROJECT_CONFIG"] = "1"
        env |= _with_more(options, f"{self.PREFIX}_{_CONFIG_CONTENT}", self._servers(options))
        return LaunchSpec((options.binary, "serve", "--hostname", "127.0.0.1"), options.directory, env)

    def _servers(self, options: LaunchOptions) -> tuple[McpServer, ...]:
        """The MCP servers that are given to it. It reads those of the person itself."""
        return () if (own := options.setup.shim_server) is None else (own,)

    def _rules_of(self, prompt: Prompt) -> tuple[Rule, ...]:
        """The rules that it is given. It reads those of the configuration itself."""
        return prompt.session_rules

    def adopt(self, options: LaunchOptions) -> bool:
        """Begin a session in a process that waits. OpenCode's session, with its rules, begins with the first prompt."""
        return True

    def prepare(self) -> list[Output]:
        """Make OpenCode load its services for the directory, and then its tools, which it does at a first prompt otherwise."""
        self._prepares = True
        return [self._request("prepare", "GET", _LOADS_DIRECTORY), *self._prepare_tools()]

    def _prepare_tools(self) -> list[Output]:
        """Ask for the tools of the default model, once it is known."""
        provider, slash, model = (self.catalogue.default_model or "" if self.catalogue is not None else "").partition("/")
        if not (self._prepares and slash):
            return []
        self._prepares = False
        query = f"provider={quote(provider, safe='')}&model={quote(model, safe='')}"
        return [self._request("prepare", "GET", f"/experimental/tool?{query}")]

    def start(self) -> list[Output]:
        """Return requests for the catalogue. Prompts need not wait for the answers."""
        return [self._request("offer:" + path, "GET", path) for path in _OFFERS]

    # --- commands -------------------------------------------------------------------------------------

    def _on_prompt(self, prompt: Prompt) -> Iterator[Output]:
        self._main.course.start()
        yield self._await()
        self._prompt = prompt
        if self._steps:  # the session is being made
            return
        if self.native_session_id is None:
            first = prompt.text.strip().partition("\n")[0][:_TITLE_CHARS]
            self._rules = _rules_for_engine(self._rules_of(prompt))
            self._makes_title = prompt.names
            body: Msg = {"title": first} if first and not prompt.names else {}  # without our title it asks a model for one
            if self._rules:
                body["permission"] = [rule.to_json() for rule in self._rules]
            self._steps.append(Step("create", "POST", "", body))
        elif self._anchor:
            self._steps.append(Step("history", "GET", "/message", None))
        self._steps.extend(Step("delete", "DELETE", f"/message/{quote(id_)}", None) for id_ in self._unwanted)
        yield from self._next_step()

    def rename(self, title: str) -> list[Output]:
        return [self._request("rename", "PATCH", self._path(), {"title": title})] if self.native_session_id else []

    # OpenCode answers all messages that it has at its next step. It removes none while it works, so that none is given back then.

    @property
    def may_steer(self) -> bool:
        course = self._main.course
        return course.active and course.has_begun and not (course.idle or course.stopping or self._unheard)

    def steer(self, prompt: Prompt) -> list[Output]:
        message = message_id(prompt.key, self._last_event)
        if not message or _rules_for_engine(self._rules_of(prompt)) != self._rules:
            return [Signal(Input.RETURNED, key=prompt.key)]
        self._main.thread.own_prompts.add(message)
        self._steered[message], self._unheard = prompt.key, message
        return [self._request(f"steer:{message}", "POST", self._path("/prompt_async"), wire.prompt_body(prompt, message))]

    def _take(self, answered: str) -> Iterator[Output]:
        """Handle the beginning of an answer: to this message, and to all before it."""
        for message in tuple(self._steered) if answered in self._steered else ():
            yield Signal(Input.TAKEN, key=self._steered.pop(message))
            if message == answered:
                return

    def _give_back(self) -> Iterator[Output]:
        """Give back what was not answered, and remove it from the conversation."""
        steered, self._steered, self._unheard = self._steered, {}, ""
        for message, key in reversed(steered.items()):
            self._unwanted.append(message)
            yield Signal(Input.RETURNED, key=key)
            yield self._request(f"unwanted:{message}", "DELETE", self._path(f"/message/{quote(message)}"), None)

    def _on_ready(self, prompt: Prompt) -> Iterator[Output]:
        """Send OpenCode the session's rules, if they have changed, and then the prompt."""
        wanted = _rules_for_engine(self._rules_of(prompt))
        if wanted == self._rules:
            if self._main.thread.last:
                yield self._request(f"since:{self._main.thread.last}", "GET", self._path(f"/message?limit={LOOK_BACK}"))
            yield self._send_prompt(prompt)
            return
        self._rules, self._prompt = wanted, prompt
        self._steps.append(Step("rules", "PATCH", "", {"permission": [rule.to_json() for rule in wanted]}))
        yield from self._next_step()

    def _send_prompt(self, prompt: Prompt) -> WriteLine:
        thread = self._main.thread
        message = message_id(prompt.key, self._last_event)
        if message:
            thread.own_prompts.add(message)
        thread.claims = not message
        thread.error = None
        path = self._path()
        if prompt.compact:
            thread.claims = True  # OpenCode makes the message itself
            return self._request("prompt", "POST", f"{path}/summarize", wire.model_ref(prompt.model) or {})
        name, arguments = self._command_of(prompt)
        if name:
            body = wire.command_body(prompt, message, name, arguments)
            return self._request("command", "POST", f"{path}/command", body)
        return self._request("prompt", "POST", f"{path}/prompt_async", wire.prompt_body(prompt, message))

    def _interrupt(self) -> Iterator[Output]:
        course = self._main.course
        if not course.active:
            return
        course.stopping = True
        if course.has_begun:
            yield self._abort()

    def _abort(self) -> WriteLine:
        return self._request("abort", "POST", self._path("/abort"))

    # --- answers --------------------------------------------------------------------------------------

    def _answer(self, purpose: str, answer: Msg) -> Iterator[Output]:
        status, body = whole(answer.get("status")), answer.get("body")
        good = 200 <= status < 300
        if purpose.startswith("offer:"):
            self._offers[purpose.removeprefix("offer:")] = body if good else None
            if len(self._offers) == len(_OFFERS) and self._offers["/config/providers"] is not None:
                self.catalogue = wire.read_catalogue(*(self._offers[path] for path in _OFFERS))
                yield from self._prepare_tools()
            elif purpose == "offer:/config/providers" and not good:
                yield kit.error_fact(refusal(status, body, wire.error_of(body)), answer)
        elif self._steps and purpose == self._steps[0].purpose:
            yield from self._on_step_answered(good, status, body, answer)
        elif purpose in ("prompt", "command"):
            yield from self._prompt_accepted(purpose, good, status, body, answer)
        elif purpose == "status":
            yield from self._on_status_answer(good, body, answer)
        elif purpose.startswith("steer:") and not good:
            message = purpose.removeprefix("steer:")
            self._unheard = "" if self._unheard == message else self._unheard
            if (key := self._steered.pop(message, None)) is not None:
                yield Signal(Input.RETURNED, key=key)
        elif purpose.startswith("since:") and good:
            if self._main.thread.has_others(body, purpose.removeprefix("since:")):
                yield self._ctx.status("notice", WRITTEN_ELSEWHERE.format(title=self.TITLE), {}, answer)
        elif purpose.startswith("unwanted:") and good:
            self._unwanted = [message for message in self._unwanted if message != purpose.removeprefix("unwanted:")]
        elif not good:
            # A late reply, or an abort without a turn: the events have the truth.
            self._ctx.ignore(f"{purpose or 'unknown request'}: status {status}")

    def _on_step_answered(self, good: bool, status: int, body: Json, msg: Msg) -> Iterator[Output]:
        purpose, session_id = self._steps.popleft().purpose, text(obj(body).get("id"))
        message_ids = after(body, self._anchor) if good and purpose == "history" else None
        if purpose == "create" and not (good and session_id):
            yield from self._fail_prompt(refusal(status, body, wire.error_of(body)), msg)
        elif purpose == "rules" and not good:  # without them the prompt is not sent
            self._rules = ()
            yield from self._fail_prompt(self._refusal(status, body), msg)
        elif (purpose == "history" and message_ids is None) or (purpose == "delete" and not good and status != 404):
            yield from self._fail_prompt(self._undo_failed(), msg)
        else:
            if purpose == "create":
                self._know(session_id)
            self._steps.extend(Step("delete", "DELETE", f"/message/{quote(id_)}", None) for id_ in message_ids or ())
            self._anchor = self._anchor if self._steps else ""
            self._unwanted = self._unwanted if self._steps else []
            yield from self._next_step()

    def _prompt_accepted(self, purpose: str, good: bool, status: int, body: Json, msg: Msg) -> Iterator[Output]:
        """Handle the answer to a prompt. That to a command comes when its work is over."""
        if good:
            yield from self._accept()
        if not self._main.course.active:
            return
        if not good:
            yield from self._fail_prompt(self._refusal(status, body), msg)
        elif purpose == "command":
            yield self._watch.on_sign(self._main.thread.session_id, wire.ENDS["POST /session/ID/command"])

    def _refusal(self, status: int, body: Json) -> dict[str, Json]:
        error = refusal(status, body, wire.error_of(body))
        if self._is_lost(status):
            error["code"] = "session_not_found"
        return error

    # --- signs of an end ------------------------------------------------------------------------------

    def _at_work(self, body: Json) -> list[str]:
        return [key for key, row in obj(body).items() if obj(row).get("type") != "idle"]

    def _end_by_sign(self, session_id: str, msg: Msg) -> Iterator[Output]:
        session = self._session(session_id) or self._main
        self._ctx.counters["idle missing"] += 1
        if session.course.has_begun:
            yield from self._end(session, msg)
        elif session.course.stopping:
            session.course.end()
            yield Signal(Input.FAILED, error=ABORTED, aborted=True, child=session.thread.child)
        else:
            yield from self._fail_prompt(self._not_begun(), msg)

    # --- events ---------------------------------------------------------------------------------------

    def _event(self, event: Msg, hash_: str) -> Iterator[Output]:
        kind, properties = text(event.get("type")), obj(event.get("properties"))
        self._last_event = text(event.get("id")) or self._last_event
        handler = self.HANDLERS.get(kind)
        if handler is None:
            yield from self._count_or_report(kind, event, hash_)
            return
        session_id = _session_of(properties)
        if kind == "session.created":
            self._keep_session(session_id, obj(properties.get("info")))
        elif session_id in self._early_events:
            self._early_events[session_id].append(event)
        elif (session := self._session(session_id)) is not None:
            yield from handler(self, session, properties, event)
            yield from self._rest(session, event)
        elif kind == "session.error" and not session_id:
            yield from self._on_error(self._main, properties, event)
        else:
            self._ctx.ignore("event of another session")

    def _on_updated(self, session: _Session, p: Msg, event: Msg) -> Iterator[Output]:
        """Report the title that OpenCode has made for the conversation. Totals and times are kept by the server."""
        title = text(obj(p.get("info")).get("title"))
        if self._makes_title and session is self._main and title and not title.startswith("New session - "):
            self._makes_title = False
            yield self._ctx.status("title", title, {"title": title}, event)

    def _on_status(self, session: _Session, p: Msg, event: Msg) -> Iterator[Output]:
        status = obj(p.get("status"))
        kind, course, thread = text(status.get("type")), session.course, session.thread
        if kind == "idle":
            course.idle = course.has_begun
            if course.idle and thread.is_speaking:
                yield self._watch.on_sign(thread.session_id, wire.ENDS["session.status"])
        elif kind in ("busy", "retry"):
            yield from self._work(session)
            if kind == "busy":
                yield from thread.emit_foreign_prompts()
            else:
                attempt, message = whole(status.get("attempt"), 1), text(status.get("message"))
                wait = wire.delay_ms(whole(status.get("next")), self._last_event, attempt)
                metadata: dict[str, Json] = {"attempt": attempt, "message": message, "delay_ms": wait}
                yield self._ctx.status("retry", message, metadata, event, thread.child)
        else:
            yield self._ctx.report_unparsed(f"session.status/{kind or '?'}", "unknown status", event)

    def _work(self, session: _Session) -> Iterator[Output]:
        course, child = session.course, session.thread.child
        stopping = course.stopping
        if not course.active:
            course.start()
            course.active = True
            # aborted between the last idle and this: it must not run
            course.stopping = stopping and child is None
            yield Signal(Input.ACTIVITY, child=child)
        self._watch.on_work(session.thread.session_id)
        if child is None:
            yield from self._accept()
        if course.busy() and course.stopping and child is None:
            yield self._abort()

    def _on_idle(self, session: _Session, p: Msg, event: Msg) -> Iterator[Output]:
        """Handle `session.idle`, which repeats the status: a sign if that has not come."""
        self._ctx.ignore("session.idle")
        if session.course.active and session.course.has_begun:
            yield self._watch.on_sign(session.thread.session_id, wire.ENDS["session.idle"])

    def _on_error(self, session: _Session, p: Msg, event: Msg) -> Iterator[Output]:
        """Keep an error for the end of the turn, because a later one may be clearer, or the turn may go on."""
        course, native = session.course, obj(p.get("error"))
        if native.get("name") == ABORT_ERROR:
            course.aborted = True
        elif course.active:
            course.error = native
            yield self._watch.on_sign(session.thread.session_id, wire.ENDS["session.error"])
            if not course.has_begun and text(obj(native.get("data")).get("message")).startswith(UNKNOWN_AGENT):
                yield from self._fail_prompt(wire.error_of(native), event)
        else:
            self._ctx.ignore("session.error while idle")

    def _rest(self, session: _Session, event: Msg) -> Iterator[Output]:
        """Check after each event whether the session has answered. What it was given last may begin another answer."""
        course = session.course
        if not course.rests(speaking=session.thread.is_speaking):
            return
        if self._steered and session is self._main and not (course.stopping or course.aborted or course.error):
            yield self._watch.on_sign(session.thread.session_id, wire.ENDS["session.status"])
        else:
            yield from self._end(session, event)

    def _end(self, session: _Session, event: Msg) -> Iterator[Output]:
        course, thread = session.course, session.thread
        yield from self._give_back() if session is self._main else ()
        yield from self._close(session, event)
        native = obj(thread.error) or obj(course.error)
        is_stopped = course.stopping or course.aborted or native.get("name") == ABORT_ERROR
        yield from self._report_end(thread, wire.error_of(native) if native else {}, event, is_stopped=is_stopped)

    # --- messages ---------------------------------------------------------------------------------

    def _on_message(self, session: _Session, p: Msg, event: Msg) -> Iterator[Output]:
        info = obj(p.get("info"))
        if session is self._main:
            self._unheard = "" if self._unheard == info.get("id") else self._unheard
            yield from self._take(text(info.get("parentID")))
        if session.course.active or info.get("role") == "user":
            yield from session.thread.message(info, event)
            is_last = text(info.get("finish"), "tool-calls") != "tool-calls" and not session.thread.is_speaking
            if is_last and session.course.active:
                yield self._watch.on_sign(session.thread.session_id, wire.ENDS["message.updated"])
        else:
            self._ctx.ignore("message.updated while idle")

    def _on_part(self, session: _Session, p: Msg, event: Msg) -> Iterator[Output]:
        part = obj(p.get("part"))
        if obj(part.get("metadata")).get("kilocode.lifecycle") == "transient":  # a spinner, which Kilo removes again
            self._ctx.ignore("transient part")
            return
        yield from session.thread.part(part, event)
        child_id = text(obj(obj(part.get("state")).get("metadata")).get("sessionId"))
        if part.get("type") == "tool" and part.get("tool") == "task" and child_id and child_id not in self._children:
            arguments = obj(obj(part.get("state")).get("input"))
            yield from self._open_child(child_id, text(part.get("callID")), arguments, event)

    def _on_compacted(self, session: _Session, p: Msg, event: Msg) -> Iterator[Output]:
        yield self._ctx.status("compaction", None, {"phase": "completed"}, event, session.thread.child)

    def _on_permission(self, session: _Session, p: Msg, event: Msg) -> Iterator[Output]:
        detail = obj(p.get("metadata"))
        access = Access(text(p.get("permission")), strings(p.get("patterns")), strings(p.get("always")), detail)
        origin = _origin(p, "permission", session.thread)
        yield self._asks.begin_permission(origin, access.permission, access, event, diff=text(detail.get("diff")))

    def _on_question(self, session: _Session, p: Msg, event: Msg) -> Iterator[Output]:
        questions = tuple(question_of(obj(question)) for question in arr(p.get("questions")))
        yield self._asks.begin_question(_origin(p, "question", session.thread), questions, event)

    HANDLERS: ClassVar[Mapping[str, Callable[[Any, _Session, Msg, Msg], Iterator[Output]]]] = {
        "session.created": _on_idle,  # see `_keep_session`
        "session.updated": _on_updated,
        "session.status": _on_status,
        "session.idle": _on_idle,
        "session.error": _on_error,
        "session.compacted": _on_compacted,
        "message.updated": _on_message,
        "message.part.updated": _on_part,
        "message.part.delta": lambda codec, session, p, event: session.thread.piece(p, event),
        "todo.updated": ServerCodec[Thread, Course]._on_todo,
        "permission.asked": _on_permission,
        "permission.replied": ServerCodec[Thread, Course]._on_settled,
        "question.asked": _on_question,
        "question.replied": ServerCodec[Thread, Course]._on_settled,
        "question.rejected": ServerCodec[Thread, Course]._on_settled,
    }
    """Type of event -> its handler."""


class KiloCodec(OpenCodeCodec):
    """The codec of `kilo serve`, a fork of OpenCode. It has another configuration, and variables of its own."""

    name = "kilo-serve"
    TITLE = "Kilo"
    PREFIX = "KILO"

    @property
    def may_steer(self) -> bool:
        """Nobody has seen how it takes in a prompt while it works."""
        return False

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """`kilo serve`, with the name of a user that the runtime tells it."""
        spec = super().launch(options)
        return replace(spec, env={**spec.env, "KILO_SERVER_USERNAME": "opencode"})

    def _servers(self, options: LaunchOptions) -> tuple[McpServer, ...]:
        return options.setup.servers

    def _rules_of(self, prompt: Prompt) -> tuple[Rule, ...]:
        return prompt.rules

    def _answer(self, purpose: str, answer: Msg) -> Iterator[Output]:
        """Call its agent `code` by OpenCode's name `build`, which it takes too."""
        if purpose == "offer:/agent":
            rows = [obj(row) for row in arr(answer.get("body"))]
            answer = {**answer, "body": [{**row, "name": "build"} if row.get("name") == "code" else row for row in rows]}
        return super()._answer(purpose, answer)


_HELD_IN_SUBAGENTS = frozenset({"external_directory", "task"})
"""Permissions whose `ask` rules hold in subagents: OpenCode passes on the first, and subagents start no others."""


def _rules_for_engine(session_rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The session's rules, without subagents if a rule asks.

    OpenCode 1.18.33 passes only denying rules to a subagent's session, and reads them before we can change them. So a subagent
    would make calls without asking that the session asks about. Rules of the configuration hold there.
    """
    asks = any(rule.action == "ask" and rule.permission not in _HELD_IN_SUBAGENTS for rule in session_rules)
    return (*session_rules, Rule("task", "*", "deny")) if asks else session_rules


def _origin(p: Msg, family: str, thread: Thread) -> Origin:
    native_id = text(p.get("id"))
    return Origin(native_id, f"/{family}/{native_id}", thread, text(obj(p.get("tool")).get("callID")))


def _session_of(properties: Msg) -> str:
    """The session of an event. Before 1.14, some events had it only inside of `info` or `part`."""
    info, part = obj(properties.get("info")), obj(properties.get("part"))
    inside = text(info.get("sessionID")) or text(part.get("sessionID")) or text(info.get("id"))
    return text(properties.get("sessionID")) or inside
