"""The codec of Codex: one long-lived `codex app-server` process per session, JSON-RPC (without the `jsonrpc` field) over stdio.

Its parts: `wire` (tables), `settings` (model, effort, mode), `speech` (items of a thread), `tools` (calls, results, diffs),
`asks` (approvals, questions), `turns` (prompts, turns, interrupts, subagents' turns). Pure: no clock, no IO, no randomness; ids
come from the injected factory.
Source: recordings of 0.169.0 (`compat_fixtures/agents/codex`), runs of it against a scripted model.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import ClassVar

from universal.agents import kit
from universal.agents.codex import wire
from universal.agents.codex.asks import Asks
from universal.agents.codex.settings import CLIENT, Settings
from universal.agents.codex.speech import Context, Thread
from universal.agents.codex.tools import Display, agent_name, bare_command, read_plan
from universal.agents.codex.turns import COMPACT_METHOD, RENAME, Turns
from universal.agents.codex.wire import NAME, Msg
from universal.codec import Fact, IdFactory, Output, PermissionReply, Prompt, QuestionReply, SetTimer, Signal, Stop, WriteLine
from universal.events import EventType, SessionStartedData
from universal.items import Json, ToolResultPart
from universal.launch import Exit, LaunchOptions, LaunchSpec
from universal.lib.jsonline import get_text
from universal.lib.jsonrpc import Id, JsonRpc, MalformedMessage, Notification, Request, Response
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text
from universal.limits import PlanLimits
from universal.limits import of_codex as limits_of_codex
from universal.mcp import McpServers, of_codex, summary
from universal.turn import Input


class CodexCodec(kit.BaseCodec[Context]):
    """The codec of Codex; see `universal.codec.Codec` for the methods' contract."""

    name = NAME

    def __init__(self, ids: IdFactory) -> None:
        self._rpc = JsonRpc(versioned=False)
        self._settings = Settings()
        super().__init__(Context(NAME, ids, self._settings.model_of, lambda: self._settings.directory))
        self._main = Thread(self._ctx, "")
        self._children: dict[str, Thread] = {}
        """Thread id of a subagent -> its thread."""
        self._asks = Asks(self._ctx, self._rpc, self._settings.asks_person)
        self._servers = McpServers()
        self._limits = PlanLimits()
        self._warnings = set[str]()
        self._turns = Turns(self._rpc, self._settings, self._main)
        self._commands: dict[str, str] = {}
        """Commands that run: item -> its words. Codex tells the end of one also after its turn."""
        self._earlier = frozenset[str]()
        """Those that have run since an earlier turn."""

    # --- start ----------------------------------------------------------------------------------------

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        self.native_session_id = options.native_session_id or None
        return self._settings.launch(options)

    def adopt(self, options: LaunchOptions) -> bool:
        """Begin a session in a process that waits, unless its rules need other tools than the waiting thread has."""
        return self._settings.has_tools_of(options.rules)

    def prepare(self) -> list[Output]:
        """Begin the thread before there is a prompt. Codex 0.169.0 neither stores nor lists a thread without a turn."""
        return self._stamp(self._turns.begin_ahead())

    def start(self) -> list[Output]:
        """Return the handshake. Prompts need not wait for it: they are kept until the thread has begun."""
        return [WriteLine(self._rpc.request("initialize", CLIENT)[1])]

    # --- commands -------------------------------------------------------------------------------------

    def _on_prompt(self, prompt: Prompt) -> Iterable[Output]:
        if self._settings.needs_restart(prompt):
            return (Stop("other permission rules or MCP servers need another process", again=True),)
        return self._turns.prompt(prompt)

    def _interrupt(self) -> Iterator[Output]:
        return self._turns.interrupt(list(self._children.values()))

    def _interrupt_by_answer(self) -> Iterator[Output]:
        return self._turns.interrupt(())

    def _on_permission_reply(self, reply: PermissionReply) -> Iterable[Output]:
        return self._asks.reply(reply)

    def _on_question_reply(self, reply: QuestionReply) -> Iterable[Output]:
        return self._asks.answer(reply)

    def proceed(self, permission_id: str) -> list[Output]:
        """Let a checked call go on. Codex would have made it without asking if there were no rules."""
        return self._asks.proceed(permission_id)

    @property
    def may_steer(self) -> bool:
        """Whether a call of the running turn waits, after which Codex takes in a prompt."""
        return self._turns.may_steer

    def rename(self, title: str) -> list[Output]:
        params = {"threadId": self._main.thread_id, "name": title}
        return [WriteLine(self._rpc.request(RENAME, params)[1])] if self._main.thread_id else []

    def steer(self, prompt: Prompt) -> list[Output]:
        return self._stamp(self._turns.steer(prompt))

    @property
    def has_conversation(self) -> bool:
        return bool(self._main.thread_id)

    @property
    def mode(self) -> str:
        return self._settings.mode

    def live_work(self) -> list[str]:
        open_calls = {id_ for thread in (self._main, *self._children.values()) for id_ in thread.calls}
        return [title for id_, title in self._commands.items() if id_ not in open_calls]

    # --- lines ----------------------------------------------------------------------------------------

    def receive(self, line: bytes) -> list[Output]:
        """Handle one line. A line that is no JSON-RPC, or of an unknown method, becomes `agent.unparsed`."""
        message = self._rpc.classify(line)
        match message:
            case MalformedMessage(why=why, raw=raw):
                return self._stamp((self._ctx.report_unparsed("malformed", why, raw),))
            case Response():
                return self._stamp(self._response(message))
            case Notification(method=method):
                handler = self.NOTIFICATIONS.get(method)
                if handler is not None:
                    return self._stamp(handler(self, message.params, message.raw))
                if method in wire.IGNORED:
                    self._ctx.ignore(method)
                    return []
                return self._stamp((self._ctx.report_unparsed(method, "unknown notification", message.raw),))
            case Request():
                return self._stamp(self._request(message))

    def _on_eof(self, exit_: Exit) -> Iterator[Output]:
        yield from self._asks.close()
        for thread in (self._main, *self._children.values()):
            yield from thread.close(None, interrupted=True)
        if self._main.error:
            yield kit.error_fact(wire.turn_error(self._main.error), None)

    def _stamp(self, outputs: Iterable[Output]) -> list[Output]:
        stamped = super()._stamp(outputs)
        self.catalogue = self._settings.catalogue
        return stamped

    # --- answers to our requests --------------------------------------------------------------------------------

    def _response(self, response: Response) -> Iterator[Output]:
        result = obj(response.result)
        if not response.method:
            self._ctx.ignore("a response to no request of ours")
        elif response.method == "initialize":
            if response.is_error:
                yield from self._on_refusal("initialize", response)
                return
            yield WriteLine(self._rpc.notification("initialized"))
            yield WriteLine(self._rpc.request("config/read", {})[1])
            yield from self._turns.ready()
        elif response.method == "config/read":
            self._settings.configured = "" if response.is_error else get_text(obj(result.get("config")), "model")
            yield WriteLine(self._rpc.request("model/list", {})[1])
        elif response.method == "model/list":
            cursor = self._settings.read_models({} if response.is_error else result)
            if cursor:
                yield WriteLine(self._rpc.request("model/list", {"cursor": cursor})[1])
        elif response.is_error:
            yield from self._on_refusal(response.method, response)
        elif response.method in ("thread/start", "thread/resume", "thread/fork"):
            self._main.thread_id = get_text(obj(result.get("thread")), "id")
            self.native_session_id = self._main.thread_id or self.native_session_id
            self._settings.on_thread_start(result)
            yield from self._turns.thread_begun()
        elif response.method == wire.READ_METHOD:
            yield from self._on_thread_read(response.id, obj(result.get("thread")), response.raw)
        elif response.method == wire.LIST_METHOD:
            for row in map(obj, arr(result.get("data"))):
                if get_text(row, "itemId") not in self._earlier:
                    params = {"threadId": self._main.thread_id, "processId": row.get("processId")}
                    yield WriteLine(self._rpc.request(wire.END_METHOD, params)[1])
        elif response.method == "turn/start":
            yield from self._turns.turn_accepted(response.id, get_text(obj(result.get("turn")), "id"))

    def _on_refusal(self, method: str, response: Response) -> Iterator[Output]:
        """A refusal ends the prompt, except for the interrupt of a turn that has not begun or is over."""
        if method == RENAME:
            self._ctx.ignore("a title, refused")
            return
        if method == wire.LIST_METHOD:  # an older version
            yield self._end_commands(self._main)
            return
        if method in ("turn/interrupt", wire.CLEAN_METHOD, wire.END_METHOD):
            self._ctx.ignore(f"{method}, refused")
            self._turns.interrupt_refused()
            return
        if method == "turn/steer":
            self._ctx.ignore("turn/steer, refused")
            yield from self._turns.steer_refused(response.id)
            return
        if method == wire.READ_METHOD:
            yield from self._on_thread_read(response.id, {}, response.raw)
            return
        error = self._turns.refusal(method, response.id, response.message)
        if error is not None:
            yield kit.error_fact(error, response.raw)
            yield Signal(Input.FAILED, error=error)
            if method not in ("turn/start", COMPACT_METHOD) and error["code"] != "session_not_found":
                yield Stop(why=error["message"])

    # --- requests of Codex -------------------------------------------------------------------------------

    def _request(self, request: Request) -> Iterator[Output]:
        ask = self.REQUESTS.get(request.method)
        if ask is not None:
            thread = self._thread(request.params)
            if (
                thread.child is not None
                or not get_text(request.params, "threadId")
                or thread.thread_id == request.params["threadId"]
            ):
                yield from ask(self._asks, request, thread)
                return
            thread = yield from self._adopt(get_text(request.params, "threadId"), request.raw)
            yield from ask(self._asks, request, thread)
            return
        why = wire.REFUSED.get(request.method)
        yield WriteLine(self._rpc.error(request.id, why or "not supported"))
        if why is None:
            yield self._ctx.report_unparsed(request.method, "unknown request", request.raw)
        else:
            self._ctx.ignore(f"{request.method}, refused")

    # --- threads --------------------------------------------------------------------------------------

    def _thread(self, params: Msg) -> Thread:
        """The thread of a message, or the main thread if it is unknown."""
        return self._children.get(get_text(params, "threadId"), self._main)

    def _is_main(self, params: Msg) -> bool:
        return get_text(params, "threadId") in (self._main.thread_id, "")

    def _open_child(self, thread_id: str, key: str, parent: Thread, about: Mapping[str, Json], raw: Msg) -> Iterator[Output]:
        """Open the child session of a subagent, below the call that made it."""
        if not thread_id or thread_id in self._children or thread_id == self._main.thread_id:
            return
        self._children[thread_id] = Thread(self._ctx, thread_id, child=key)
        metadata = {"call_id": key, "agent": "general", **about}
        if parent.child is not None:
            metadata["parent"] = parent.child
        yield Fact(EventType.SESSION_STARTED, SessionStartedData(metadata=metadata), raw=raw, child=key)

    def _adopt(self, thread_id: str, raw: Msg) -> Generator[Output, None, Thread]:
        """Open a thread that sends before its call names it. It belongs to the spawning call without a receiver."""
        children = {thread.child for thread in self._children.values()}
        waiting = [
            (call.call_id, thread, call.source)
            for thread in (self._main, *self._children.values())
            for call in thread.calls.values()
            if call.source.get("tool") == "spawnAgent" and call.call_id not in children
        ]
        key, parent, source = waiting[0] if waiting else (thread_id, self._main, {})
        prompt = get_text(source, "prompt")
        yield from self._open_child(thread_id, key, parent, {"title": prompt[:60] or "subagent", "prompt": prompt}, raw)
        return self._children.get(thread_id, self._main)

    # --- turns ----------------------------------------------------------------------------------------

    def _on_turn_started(self, params: Msg, raw: Msg) -> Iterator[Output]:
        turn_id = get_text(obj(params.get("turn")), "id")
        if self._is_main(params):
            self._main.begin_turn(turn_id)
            self._earlier = frozenset(self._commands)
            yield from self._turns.on_turn_started(turn_id)
            return
        thread_id = get_text(params, "threadId")
        if thread_id not in self._children:
            yield from self._adopt(thread_id, raw)
        thread = self._children[thread_id]
        thread.begin_turn(turn_id)
        yield from self._turns.child_started(thread)

    def _on_turn_completed(self, params: Msg, raw: Msg) -> Iterator[Output]:
        turn = obj(params.get("turn"))
        if not self._is_main(params) and get_text(params, "threadId") not in self._children:
            self._ctx.ignore("turn/completed of a thread that never began")
            return
        thread = self._thread(params)
        if thread.turn_id and thread.turn_id != get_text(turn, "id"):
            self._ctx.ignore("turn/completed of an older turn")
            return
        status = get_text(turn, "status")
        interrupted = status == "interrupted"
        thread.read_id = None
        yield from self._not_over(params)
        begun = self._commands.keys() - self._earlier if thread is self._main else self._commands.keys() & thread.calls.keys()
        yield from self._asks.close(thread)
        yield from thread.close(raw, interrupted=interrupted or status == "failed")
        error = None
        if status == "failed":
            error = wire.turn_error(obj(turn.get("error")) or thread.error)
        elif interrupted and thread.child is None and not self._turns.is_interrupted(get_text(turn, "id")):
            error = wire.turn_error(obj(turn.get("error")) or thread.error or wire.SELF_INTERRUPTION)
        if error is not None:
            if error["code"] == wire.LIMIT and self._limits.resets_at:
                error["details"]["resets_at"] = self._limits.resets_at
            yield kit.error_fact(error, raw, thread.child)
        thread.error = {}
        if interrupted and begun:  # Codex lets a command run on after an interrupt, and tells of its end no more
            for id_ in begun:
                del self._commands[id_]
            yield self._end_commands(thread, wire.LIST_METHOD if thread is self._main and self._commands else wire.CLEAN_METHOD)
        if thread.child is None:
            yield from self._turns.on_turn_completed(get_text(turn, "id"), error, aborted=interrupted and error is None)
        else:
            yield from self._turns.child_completed(thread, error, aborted=interrupted)

    def _end_commands(self, thread: Thread, method: str = wire.CLEAN_METHOD) -> Output:
        """End the commands of a thread, or ask which there are, because those of earlier turns (a server) go on."""
        return WriteLine(self._rpc.request(method, {"threadId": thread.thread_id})[1])

    # --- other signs of an end ------------------------------------------------------------------------

    def _has_turn(self, thread: Thread) -> bool:
        return bool(thread.turn_id or (thread is self._main and self._turns.current_turn))

    def _on_status(self, params: Msg, raw: Msg) -> Iterator[Output]:
        """Handle the status of a thread, one of the other signs of a turn's end (`ENDS`)."""
        kind = get_text(obj(params.get("status")), "type")
        if kind == "active":
            yield from self._not_over(params)
        elif kind in wire.RESTING:
            yield from self._sign(params, kind)

    def _sign(self, params: Msg, kind: str) -> Iterator[Output]:
        """Wait for `turn/completed`, because a thread seems to be at rest."""
        thread = self._thread(params)
        if (self._is_main(params) or thread is not self._main) and self._has_turn(thread):
            thread.resting = kind
            yield SetTimer(thread.thread_id, kit.END_S)

    def _not_over(self, params: Msg) -> Iterator[Output]:
        thread = self._thread(params)
        if thread.resting:
            thread.resting = ""
            yield SetTimer(thread.thread_id, None)

    def on_timer(self, key: str) -> list[Output]:
        """Give up the handshake, or ask for a thread whose turn seems to be over."""
        if key == kit.HANDSHAKE:
            missing = next(iter(self._rpc.waiting_requests.values()), "initialize")
            is_late = self._turns.is_waiting
            return [kit.handshake_failed("Codex", missing, resumes=bool(self._settings.resume_id))] if is_late else []
        thread = next((thread for thread in (self._main, *self._children.values()) if thread.thread_id == key), None)
        if thread is None or not thread.resting or not self._has_turn(thread):
            return []
        if thread.read_id is not None:  # it was asked, and does not answer
            return self._stamp(self._end_by_sign(thread, {}, None))
        thread.read_id, line = self._rpc.request(wire.READ_METHOD, {"threadId": key, "includeTurns": True})
        return [WriteLine(line), SetTimer(key, kit.ASK_S)]

    def _on_thread_read(self, request_id: Id, native: Msg, raw: Msg) -> Iterator[Output]:
        """Handle Codex' word on a thread that seemed to be at rest: its turn is over, or goes on."""
        thread = next((thread for thread in (self._main, *self._children.values()) if thread.read_id == request_id), None)
        if thread is None:
            self._ctx.ignore("thread/read, the turn is over")
            return
        if get_text(obj(native.get("status")), "type") == "active":
            thread.read_id, thread.resting = None, ""
            yield SetTimer(thread.thread_id, None)
        else:
            yield from self._end_by_sign(thread, native, raw)

    def _end_by_sign(self, thread: Thread, native: Msg, raw: Msg | None) -> Iterator[Output]:
        """End a turn whose `turn/completed` has not come, as the thread's history tells it, else by the sign."""
        turn_id = thread.turn_id or self._turns.current_turn
        turn = next((turn for turn in map(obj, arr(native.get("turns"))) if get_text(turn, "id") == turn_id), obj(None))
        has_failed = bool(thread.error) or thread.resting == "systemError"
        status = get_text(turn, "status")
        if status in ("", "inProgress"):
            status = "failed" if has_failed else "completed"
        end = {"threadId": thread.thread_id, "turn": {"id": turn_id, "status": status, "error": turn.get("error")}}
        self._ctx.counters["turn/completed missing"] += 1
        yield from self._on_turn_completed(end, raw or {})

    def _on_limits(self, params: Msg, raw: Msg) -> Iterator[Output]:
        """Handle `account/rateLimits/updated`, which comes with each answer, and before the error of a used up limit."""
        report = self._limits.update(limits_of_codex(obj(params.get("rateLimits"))))
        if report is not None:
            yield self._ctx.status("limits", self._limits.summary, report, raw)

    def _on_error(self, params: Msg, raw: Msg) -> Iterator[Output]:
        """Handle `error`. With `willRetry` the turn goes on. Otherwise `turn/completed` repeats the error, and reports it."""
        thread, error = self._thread(params), obj(params.get("error"))
        if params.get("willRetry") is True:
            yield from thread.cut(raw)
            text, metadata = wire.retry_of(error)
            yield self._ctx.status("retry", text, metadata, raw, thread.child)
        elif thread.turn_id:
            thread.error = error
            yield from self._sign(params, "systemError")
        else:
            yield kit.error_fact(wire.turn_error(error), raw, thread.child)

    # --- items ----------------------------------------------------------------------------------------

    def _current(self, params: Msg, other: str) -> Thread | None:
        """The thread of a message that belongs to its running turn. Any `other` message is counted by this name, and has none."""
        thread, turn_id = self._thread(params), get_text(params, "turnId")
        is_unknown = not self._is_main(params) and thread is self._main
        if not is_unknown and thread.turn_id and turn_id in ("", thread.turn_id):
            return thread
        self._ctx.ignore(other)
        return None

    def _on_item_started(self, params: Msg, raw: Msg) -> Iterator[Output]:
        if (thread := self._current(params, "item/started outside of its turn")) is None:
            return
        item = obj(params.get("item"))
        if get_text(item, "type") == "commandExecution":
            self._commands[get_text(item, "id")] = bare_command(item)
        yield from thread.on_item_started(item, raw)

    def _on_item_completed(self, params: Msg, raw: Msg) -> Iterator[Output]:
        item = obj(params.get("item"))
        self._commands.pop(get_text(item, "id"), None)
        if (thread := self._current(params, "item/completed outside of its turn")) is None:
            return
        kind = get_text(item, "type")
        if kind == "subAgentActivity" and get_text(item, "kind") == "started":
            name = agent_name(item)
            yield from self._open_child(get_text(item, "agentThreadId"), get_text(item, "id"), thread, {"title": name}, raw)
        elif kind == "collabAgentToolCall" and get_text(item, "tool") == "spawnAgent":
            prompt = get_text(item, "prompt")
            for receiver in map(as_text, arr(item.get("receiverThreadIds"))[:1]):
                about = {"title": prompt.strip().split("\n")[0][:60] or "subagent", "prompt": prompt}
                yield from self._open_child(receiver, get_text(item, "id"), thread, about, raw)
        if kind == "userMessage" and thread is self._main:
            yield from self._turns.on_echo(get_text(item, "clientId"))
        yield from thread.on_item_completed(item, raw)

    def _say(self, params: Msg, raw: Msg, key: str, *, reasoning: bool) -> Iterator[Output]:
        if (thread := self._current(params, "a delta outside of its turn")) is None:
            return
        yield from thread.say(key, "reasoning" if reasoning else "text", as_text(params.get("delta")), raw)

    def _on_text(self, params: Msg, raw: Msg) -> Iterator[Output]:
        yield from self._say(params, raw, get_text(params, "itemId"), reasoning=False)

    def _on_summary(self, params: Msg, raw: Msg) -> Iterator[Output]:
        yield from self._say(params, raw, f"{get_text(params, 'itemId')}/summary/{params.get('summaryIndex', 0)}", reasoning=True)

    def _on_reasoning(self, params: Msg, raw: Msg) -> Iterator[Output]:
        yield from self._say(params, raw, f"{get_text(params, 'itemId')}/content/{params.get('contentIndex', 0)}", reasoning=True)

    def _on_output(self, params: Msg, raw: Msg) -> Iterator[Output]:
        if (thread := self._current(params, "output outside of its turn")) is None:
            return
        yield from thread.output(get_text(params, "itemId"), as_text(params.get("delta")), raw)

    def _on_plan(self, params: Msg, raw: Msg) -> Iterator[Output]:
        """Make a tool call of a plan, because Codex has no item for it. OpenCode shows the list at this place."""
        if (thread := self._current(params, "turn/plan/updated outside of its turn")) is None:
            return
        todos = read_plan(params.get("plan"))
        explanation = get_text(params, "explanation")
        yield self._ctx.status("todo", explanation or f"{len(todos)} todos", {"todos": todos}, raw, thread.child)

        def result(call_id: str) -> kit.Result:
            return kit.Result((ToolResultPart(call_id=call_id, output=explanation or "Plan updated"),), {"todos": todos})

        yield from thread.synthetic_call(Display("update_plan", {"todos": todos}, f"{len(todos)} todos"), result, raw)

    def _on_tokens(self, params: Msg, raw: Msg) -> Iterator[Output]:
        if (thread := self._current(params, "thread/tokenUsage/updated between turns")) is None:
            return
        usage = obj(params.get("tokenUsage"))
        if thread is self._main:
            self._settings.read_limits(usage)
        yield from thread.tokens(usage, raw)

    # --- status ---------------------------------------------------------------------------------------

    def _on_name(self, params: Msg, raw: Msg) -> Iterator[Output]:
        name = get_text(params, "threadName")
        if name and self._is_main(params):
            yield self._ctx.status("title", name, {"title": name}, raw)

    def _on_settings(self, params: Msg, raw: Msg) -> Iterator[Output]:
        if self._is_main(params):
            self._settings.on_settings_updated(obj(params.get("threadSettings")))
        yield from ()

    def _server(self, params: Msg) -> tuple[str, Json]:
        name, state = of_codex(params)
        return self._settings.server_name(name), state

    def _on_server(self, params: Msg, raw: Msg) -> Iterator[Output]:
        """Handle the state of an MCP server. Subagents have the same servers."""
        report = self._servers.update([self._server(params)], whole=False) if self._is_main(params) else None
        if report is not None:
            yield self._ctx.status("mcp", summary(report), report, raw)

    def _on_warning(self, params: Msg, raw: Msg) -> Iterator[Output]:
        """Handle a warning for the person, each once. One about the configuration counts if it is about the person's file."""
        text = "\n".join(filter(None, (get_text(params, "message", "summary"), get_text(params, "details"))))
        is_theirs = "summary" not in params or bool(get_text(params, "path"))
        if not text or not is_theirs or text in self._warnings:
            self._ctx.ignore(get_text(raw, "method"))
            return
        self._warnings.add(text)
        yield self._ctx.note(text, raw)

    def _on_rerouted(self, params: Msg, raw: Msg) -> Iterator[Output]:
        model, reason = get_text(params, "toModel"), get_text(params, "reason")
        detail = f"{get_text(params, 'fromModel')} -> {model}" + (f" ({reason})" if reason else "")
        yield self._ctx.status("model", detail, {"model_id": model, "variant": None}, raw, self._thread(params).child)

    NOTIFICATIONS: ClassVar[dict[str, Callable[[CodexCodec, Msg, Msg], Iterator[Output]]]] = {
        "turn/started": _on_turn_started,
        "turn/completed": _on_turn_completed,
        "thread/status/changed": _on_status,
        "thread/closed": lambda codec, params, raw: codec._sign(params, "notLoaded"),
        "thread/deleted": lambda codec, params, raw: codec._sign(params, "notLoaded"),
        "account/rateLimits/updated": _on_limits,
        "error": _on_error,
        "item/started": _on_item_started,
        "item/completed": _on_item_completed,
        "item/agentMessage/delta": _on_text,
        "item/plan/delta": _on_text,
        "item/reasoning/summaryTextDelta": _on_summary,
        "item/reasoning/textDelta": _on_reasoning,
        "item/commandExecution/outputDelta": _on_output,
        "turn/plan/updated": _on_plan,
        "thread/tokenUsage/updated": _on_tokens,
        "thread/name/updated": _on_name,
        "thread/settings/updated": _on_settings,
        "model/rerouted": _on_rerouted,
        "mcpServer/startupStatus/updated": _on_server,
        "warning": _on_warning,
        "configWarning": _on_warning,
        "serverRequest/resolved": lambda codec, params, raw: codec._asks.on_resolved(params.get("requestId"), raw),
    }
    """Notification -> its handler."""

    REQUESTS: ClassVar[dict[str, Callable[[Asks, Request, Thread], Iterator[Output]]]] = {
        "item/commandExecution/requestApproval": Asks.command,
        "item/fileChange/requestApproval": Asks.files,
        "item/permissions/requestApproval": Asks.permissions,
        "item/tool/requestUserInput": Asks.question,
        "mcpServer/elicitation/request": Asks.elicitation,
    }
    """Request of Codex -> the method that asks the person."""
