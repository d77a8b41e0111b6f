"""Agents that speak the Agent Client Protocol v1 (JSON-RPC 2.0 over stdio): one codec for all of them.

Parts: `profiles` (which agents, data), `setup` (models, modes, settings), `speech` (items), `tools` (tool calls),
`asks` (permissions, forms), `claude` (Claude that asks for every call), `host` (files, terminals), `errors` (ends
and errors), `context` (what they share).
Pure: no clock, no IO, no random; ids come from the injected factory.

A prompt waits here until the session is there and its settings are answered, so an interrupt before that only drops it.
What comes outside of a prompt has no end that the protocol marks, so it is kept until a sign of its end (a usage with
cost, a title) or the next prompt, and then told as a turn of the agent's own: nothing is lost and nothing stays busy for ever.
Source: recordings in `compat_fixtures/agents/acp`; docs/agents-wire.md, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import ClassVar

from universal.agents import kit
from universal.agents.acp import errors
from universal.agents.acp.asks import Asks
from universal.agents.acp.context import Context, Msg
from universal.agents.acp.host import Host
from universal.agents.acp.notes import Notes, PromptCost
from universal.agents.acp.profiles import Profile
from universal.agents.acp.prompt import prompt_content
from universal.agents.acp.setup import Change, MissingChoice, Setup
from universal.agents.acp.speech import Transcript
from universal.agents.acp.tools import Call
from universal.agents.acp.wire import ABORTED, CAPABILITIES, CLIENT, IGNORED, MODE_NOTE, NOTE, PREAMBLE, RETRY, SUSPECT
from universal.codec import (
    Command,
    Exit,
    IdFactory,
    Interrupt,
    LaunchOptions,
    LaunchSpec,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    Signal,
    WriteLine,
)
from universal.codec import Stop as StopProcess
from universal.host import HostAnswer
from universal.items import Json
from universal.jsonline import digest, get_text
from universal.jsonrpc import Id, JsonRpc, MalformedMessage, Notification, Request, Response
from universal.jsonvalue import obj
from universal.permissions import Rule
from universal.turn import Input


class AcpCodec(kit.BaseCodec[Context]):
    """The codec of an ACP agent; see `universal.codec.Codec` for the methods' contract."""

    def __init__(self, ids: IdFactory, profile: Profile) -> None:
        self.name = profile.name
        super().__init__(Context(profile.name, ids, self._model))
        self._profile = profile
        self._rpc = JsonRpc()
        self._setup = Setup(profile)
        self._talk = Transcript(self._ctx)
        self._host = Host(self._rpc, ids)
        self._asks = Asks(self._ctx, self._rpc, self._setup.mode_id, self._host.approve)
        self._notes = Notes(self._ctx, self._setup)
        self._options: LaunchOptions | None = None
        self._agent: Msg = {}
        """The result of `initialize`."""
        self._ready = False
        self._session = ""
        self._held: list[Prompt] = []
        self._tried: set[str] = set()
        self._change: Change | None = None
        self._running: Id = None
        self._slash = False
        self._stopping = False
        self._prompted = False
        self._own_turn = False
        """The agent asked something outside of a prompt, and a turn of its own is open for it."""
        self._outside: list[Msg] = []
        self._suspect: Msg | None = None
        """An update that may turn out to be the text of an error; held back until more is known."""
        self._spending = PromptCost(profile.usage_sums)

    def _model(self) -> Msg | None:
        model = self._setup.model
        if not model:
            return None
        return {"provider_id": self.name, "model_id": model, "variant": self._setup.variant}

    # --- start ----------------------------------------------------------------------------------------

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """The agent's command; model and mode are set over the protocol."""
        self._options = options
        self.native_session_id = options.native_session_id if options.resume else None
        if self._needs_all_asked(options.rules):
            from universal.agents.acp.claude import ASK_ALWAYS  # late: it loads what is known of Claude Code

            self._asks.ask_always = ASK_ALWAYS
        return LaunchSpec((options.binary, *self._profile.args), options.directory, dict(self._profile.env))

    def start(self) -> list[Output]:
        """The handshake; the session is made when it is answered, and fills `catalogue`."""
        return [self._ask("initialize", {"protocolVersion": 1, "clientInfo": CLIENT, "clientCapabilities": CAPABILITIES})]

    def _needs_all_asked(self, rules: Iterable[Rule]) -> bool:
        """Whether the agent must ask for every call, since one of these rules may forbid it."""
        return self._profile.asks_always and any(rule.action != "allow" for rule in rules)

    def _needs_restart(self, rules: Sequence[Rule]) -> bool:
        """Whether the agent was started for rules with which it would hold back too much or too little."""
        ask_always, launched = self._asks.ask_always, self._options.rules if self._options else ()
        if ask_always is None or not self._needs_all_asked(rules):
            return self._needs_all_asked(rules) != (ask_always is not None)
        return rules != launched and ask_always.meta(rules) != ask_always.meta(launched)

    def _ask(self, method: str, params: Msg) -> WriteLine:
        return WriteLine(self._rpc.request(method, params)[1])

    # --- commands -------------------------------------------------------------------------------------

    def send(self, command: Command) -> list[Output]:
        """A command as lines. A prompt's `system` text goes in front of it, as `<system-reminder>`."""
        match command:
            case Prompt():
                if self._needs_restart(command.rules):
                    return [StopProcess("other permission rules need another process", again=True)]
                self._held.append(command)
                return self._stamp(self._pump())
            case Interrupt():
                return self._stamp(self._interrupt())
            case PermissionReply():
                return self._stamp(self._after_reply(self._host.reply(command) or self._asks.reply(command)))
            case QuestionReply():
                return self._stamp(self._after_reply(self._asks.answer(command)))

    def proceed(self, permission_id: str) -> list[Output]:
        """Let a checked file, command or call go on: no rule concerns it."""
        return self._stamp(self._after_reply(self._host.proceed(permission_id) or self._asks.proceed(permission_id)))

    @property
    def mode(self) -> str:
        """The mode in force, as far as the agent tells it."""
        return self._setup.mode_id()

    def _pump(self) -> Iterator[Output]:
        """Bring the next prompt on its way, as far as it can go now."""
        while self._ready and self._held and self._change is None and self._running is None:
            prompt = self._held[0]
            step = self._setup.next(prompt, self._session, self._tried)
            if isinstance(step, Change):
                self._change = step
                self._tried.add(step.setting)
                yield self._ask(step.method, step.params)
            elif isinstance(step, MissingChoice) and step.setting == "mode":
                self._held.pop(0)
                self._tried.clear()
                yield from errors.prompt_failed(f"{self._profile.title} has no mode for {step.value}.", "mode_unavailable", None)
            elif isinstance(step, MissingChoice):
                self._tried.add(step.setting)
                yield errors.unavailable(step.setting, f"{self._profile.title} does not offer {step.value} here.", None)
            else:
                self._held.pop(0)
                self._tried.clear()
                yield from self._write(prompt)

    def _write(self, prompt: Prompt) -> Iterator[Output]:
        yield from self._end_outside_turn(own_turn=False)
        self._setup.prompt_written(prompt)
        self._talk.begin()
        self._asks.rejected = False
        self._stopping = False
        self._prompted = True
        self._slash = prompt.text.lstrip().startswith("/")
        yield from self._notes.on_compaction_start(wanted=prompt.compact)
        embedded = obj(obj(self._agent.get("agentCapabilities")).get("promptCapabilities")).get("embeddedContext") is True
        params = {"sessionId": self._session, "prompt": prompt_content(prompt, images=self._setup.images, embedded=embedded)}
        self._running, line = self._rpc.request("session/prompt", params)
        yield WriteLine(line)

    def _interrupt(self) -> Iterator[Output]:
        if self._held and self._running is None:  # not even written: nothing to stop
            self._tried.clear()
            count, self._held = len(self._held), []
            for _ in range(count):
                yield Signal(Input.FAILED, error=dict(ABORTED), aborted=True)
            return
        if self._session:
            yield WriteLine(self._rpc.notification("session/cancel", {"sessionId": self._session}))
        self._stopping = self._running is not None
        yield from self._host.withdraw()
        yield from self._host.stop()
        yield from self._asks.cancel()
        yield from self._own_turn_over(aborted=True)

    def _after_reply(self, outputs: list[Output]) -> Iterator[Output]:
        yield from outputs
        if outputs:
            yield from self._own_turn_over()

    def _own_turn_over(self, *, aborted: bool = False) -> Iterator[Output]:
        if self._own_turn and not self._asks:
            self._own_turn = False
            yield Signal(Input.FAILED, error=dict(ABORTED), aborted=True) if aborted else Signal(Input.DONE)

    # --- lines ----------------------------------------------------------------------------------------

    def receive(self, line: bytes) -> list[Output]:
        """One line. What is no JSON-RPC, or of an unknown kind, is `agent.unparsed`."""
        match self._rpc.classify(line):
            case Request() as request:
                return self._stamp(self._on_request(request, line))
            case Notification() as note:
                return self._stamp(self._on_note(note, line))
            case Response() as response:
                return self._stamp(self._on_response(response))
            case MalformedMessage(why=why, raw=raw):
                return self._stamp((self._ctx.report_unparsed("no JSON-RPC", why, raw, digest(line)),))

    def eof(self, exit_: Exit) -> list[Output]:
        """The process is gone: open asks, messages and calls are reported as they are. The session adds the exit."""
        return self._stamp(self._eof())

    def _eof(self) -> Iterator[Output]:
        yield from self._host.withdraw()
        yield from self._asks.withdraw_all()
        yield from self._settle_suspect(None)
        yield from self._talk.close(None, interrupted=True)

    # --- answers to us --------------------------------------------------------------------------------

    def _on_response(self, msg: Response) -> Iterator[Output]:
        if msg.method == "session/prompt":
            yield from self._prompt_answered(msg)
            return
        if (handler := self.ANSWERS.get(msg.method)) is None:
            self._ctx.ignore("answer to no request of ours")
            return
        yield from handler(self, msg)
        yield from self._pump()

    def _on_initialized(self, msg: Response) -> Iterator[Output]:
        if msg.is_error:
            yield from self._fail_setup(errors.response_error(msg.error), msg.raw)
            return
        self._agent = obj(msg.result)
        capabilities = obj(self._agent.get("agentCapabilities"))
        self._setup.images = obj(capabilities.get("promptCapabilities")).get("image") is True
        options = self._options
        params: Msg = {"cwd": options.directory if options else "/", "mcpServers": []}
        if (ask_always := self._asks.ask_always) is not None:
            version = get_text(obj(self._agent.get("agentInfo")), "version")
            if errors.is_older(version, ask_always.since):
                yield from self._fail_setup(errors.too_old(self._profile.title, version, ask_always.since), msg.raw)
                return
            params["_meta"] = dict(ask_always.meta(options.rules if options else ()))
        if self.native_session_id is None:
            yield self._ask("session/new", params)
            return
        params["sessionId"] = self.native_session_id
        if "resume" in obj(capabilities.get("sessionCapabilities")):
            yield self._ask("session/resume", params)
        elif capabilities.get("loadSession") is True:
            yield self._ask("session/load", params)
        else:
            lost = errors.make(f"{self._profile.title} cannot continue earlier conversations.", errors.SESSION_NOT_FOUND)
            yield from self._fail_setup(lost, msg.raw)

    def _on_session(self, msg: Response) -> Iterator[Output]:
        resumed = msg.method != "session/new"
        if msg.is_error:
            error = errors.response_error(msg.error, self._agent.get("authMethods"), self._profile.login_hint)
            if resumed and error["code"] != "authentication_failed":
                error = errors.make(error["message"], errors.SESSION_NOT_FOUND)
            yield from self._fail_setup(error, msg.raw)
            return
        result = obj(msg.result)
        self._session = get_text(result, "sessionId") or (self.native_session_id or "")
        self.native_session_id = self._session or None
        self._setup.read(result, resumed=resumed)
        self._spending.begin(resumed=resumed)
        self._ready = True
        if self._held or not self._profile.tells_commands or self._setup.commands is not None:
            self.catalogue = self._setup.catalogue(self._agent)

    def _on_set(self, msg: Response) -> Iterator[Output]:
        change, self._change = self._change, None
        if change is None:
            return
        if not msg.is_error:
            self._setup.note_change(change, obj(msg.result))
            yield from self._notes.mode(msg.raw)
        elif change.setting.startswith("mode"):
            if self._held:
                self._held.pop(0)
                self._tried.clear()
                yield from errors.prompt_failed(msg.message, "mode_unavailable", msg.raw)
        else:
            yield errors.unavailable(change.setting, msg.message, msg.raw)

    def _fail_setup(self, error: Msg, raw: Json) -> Iterator[Output]:
        """There will be no session: every prompt that waits for it has failed, and the process is of no use."""
        count, self._held = len(self._held), []
        yield kit.error_fact(error, raw)
        for _ in range(count):
            yield Signal(Input.FAILED, error=error)
        if not count or error["code"] != errors.SESSION_NOT_FOUND:
            yield StopProcess(error["message"])

    # --- the end of a prompt --------------------------------------------------------------------------

    def _prompt_answered(self, msg: Response) -> Iterator[Output]:
        if msg.id != self._running:
            self._ctx.ignore("answer to a prompt that is over")
            return
        self._running = None
        stopping, self._stopping = self._stopping, False
        result = obj(msg.result)
        reason = get_text(result, "stopReason")
        error = (
            errors.response_error(msg.error, self._agent.get("authMethods"), self._profile.login_hint) if msg.is_error else None
        )
        error = yield from self._settle_suspect(msg.raw, error)
        stop = errors.STOP_REASONS.get(reason, errors.STOP_REASONS["end_turn"])
        aborted = stopping and (error is not None or reason == "cancelled")
        if error is None and stop.code:
            error = errors.make(stop.message, stop.code)
        silent = not self._talk.has_spoken and not self._slash and not stopping and reason not in ("cancelled", "max_tokens")
        if error is None and silent:
            error = errors.make(f"{self._profile.title} ended the turn without an answer.", "no_answer")
        total = self._spending.take(result)
        yield from self._host.withdraw()
        yield from self._asks.withdraw_all()
        cancelled = aborted or (reason == "cancelled" and not self._asks.rejected)
        yield from self._talk.close(msg.raw, finish=stop.finish, interrupted=cancelled or error is not None, extra=total)
        yield from self._notes.on_compaction_end(msg.raw, failed=cancelled or error is not None)
        if cancelled:
            yield Signal(Input.FAILED, error=dict(ABORTED), aborted=True, metadata=total or None)
        elif error is not None:
            yield kit.error_fact(error, msg.raw)
            yield Signal(Input.FAILED, error=error, metadata=total or None)
        else:
            yield Signal(Input.DONE, metadata=total or None)
        yield from self._pump()

    def _settle_suspect(self, raw: Json, error: Msg | None = None) -> Generator[Output, None, Msg | None]:
        """Decide whether the update that was held back is an error or text. Returns the error."""
        update, self._suspect = self._suspect, None
        if update is None:
            return error
        text = get_text(obj(update.get("content")), "text")
        if error is not None and text.strip() in error["message"]:
            return error
        if error is None and raw is not None and errors.is_text(self._profile, text, get_text(update, "messageId")):
            return errors.of_text(text)
        yield from self._talk.chunk("text", obj(update.get("content")), get_text(update, "messageId"), update)
        return error

    # --- what the agent says --------------------------------------------------------------------------

    def _on_note(self, msg: Notification, line: bytes) -> Iterator[Output]:
        if msg.method == "session/update":
            yield from self._on_update(msg, line)
        elif msg.method == "$/cancel_request":
            yield from self._after_reply(self._asks.withdraw(msg.params.get("requestId"), msg.raw))
        elif msg.method in IGNORED:
            self._setup.account(obj(msg.params.get("authStatus")))
            self._ctx.ignore(msg.method)
        else:
            yield self._ctx.report_unparsed(msg.method, "unknown notification", msg.raw, digest(line))

    def _on_update(self, msg: Notification, line: bytes) -> Iterator[Output]:
        update = obj(msg.params.get("update"))
        kind = get_text(update, "sessionUpdate")
        session_id = get_text(msg.params, "sessionId")
        if kind in IGNORED:
            self._ctx.ignore(kind)
        elif kind in self.TELLS:
            yield from self.TELLS[kind](self, update, msg.raw)
        elif kind not in self.SPEAKS:
            yield self._ctx.report_unparsed(kind or "update without kind", "unknown session update", msg.raw, digest(line))
        elif self._session and session_id and session_id != self._session:
            self._ctx.ignore("update of another session")
        elif self._running is not None:
            yield from self.SPEAKS[kind](self, update, msg.raw)
        elif not self._prompted:
            self._ctx.ignore("history")
        elif self._talk.has_ended(get_text(update, "toolCallId") or get_text(update, "messageId")):
            self._ctx.ignore("late update of what is over")
        else:
            self._outside.append(msg.raw)

    def _end_outside_turn(self, *, own_turn: bool = True) -> Iterator[Output]:
        """Report updates that came outside of a prompt, as an own turn or as the beginning of the running turn."""
        updates, self._outside = self._outside, []
        if not updates:
            return
        if own_turn:
            yield Signal(Input.ACTIVITY)
        for raw in updates:
            update = obj(obj(raw.get("params")).get("update"))
            yield from self.SPEAKS[get_text(update, "sessionUpdate")](self, update, raw)
        yield from self._settle_suspect(None)
        total = self._spending.take({}) if own_turn else {}
        yield from self._talk.close(updates[-1], finish="stop", extra=total)
        if own_turn:
            yield Signal(Input.DONE, metadata=total or None)

    def _chunk(self, update: Msg, raw: Json) -> Iterator[Output]:
        yield from self._settle_suspect(None)
        content = obj(update.get("content"))
        text, native_id = get_text(content, "text"), get_text(update, "messageId")
        self._spending.step(update)
        if self._profile.notes and (retry := RETRY.fullmatch(text)):
            metadata = {"attempt": int(retry[1]), "message": text.strip(), "delay_ms": int(retry[3]) * 1000}
            yield self._ctx.status("retry", text.strip(), metadata, raw)
        elif (self._profile.notes and (NOTE.fullmatch(text) or PREAMBLE.fullmatch(text))) or MODE_NOTE.fullmatch(text):
            self._ctx.ignore("remark of the adapter")
        elif text.startswith(SUSPECT) or errors.is_text(self._profile, text, native_id):
            self._suspect = update
        else:
            yield from self._talk.chunk("text", content, native_id, raw)

    def _on_thought(self, update: Msg, raw: Json) -> Iterator[Output]:
        yield from self._settle_suspect(None)
        yield from self._talk.chunk("reasoning", obj(update.get("content")), get_text(update, "messageId"), raw)

    def _tool(self, update: Msg, raw: Json) -> Iterator[Output]:
        yield from self._settle_suspect(None)
        yield from self._talk.tool(self._host.with_terminal(update, self._call_of(update)), raw)

    # --- status ---------------------------------------------------------------------------------------

    def _usage(self, update: Msg, raw: Json) -> Iterator[Output]:
        if self._spending.add(update) and self._running is None:
            yield from self._end_outside_turn()

    def _info(self, update: Msg, raw: Json) -> Iterator[Output]:
        title = get_text(update, "title")
        yield from self._notes.title(title, raw)
        if title and self._running is None:
            yield from self._end_outside_turn()

    def _commands(self, update: Msg, raw: Json) -> Iterator[Output]:
        yield from self._notes.commands(update, raw)
        if self._ready:
            self.catalogue = self._setup.catalogue(self._agent)

    # --- what the agent asks --------------------------------------------------------------------------

    def _on_request(self, msg: Request, line: bytes) -> Iterator[Output]:
        if msg.method in ("session/request_permission", "elicitation/create"):
            yield from self._on_ask(msg)
        elif msg.method in self._host.METHODS:
            yield from self._host.handle(msg, stopping=self._stopping)
        else:
            yield WriteLine(self._rpc.error(msg.id, f"not supported: {msg.method}"))
            yield self._ctx.report_unparsed(msg.method, "unknown request", msg.raw, digest(line))

    def on_host_answer(self, answer: HostAnswer) -> list[Output]:
        """What came of a file or command that the agent has asked for."""
        return self._stamp(self._on_host_answer(answer))

    def _on_host_answer(self, answer: HostAnswer) -> Iterator[Output]:
        for output in self._host.on_answer(answer):
            if not isinstance(output, dict):
                yield output
            elif self._call_of(output) is not None:
                yield from self._talk.tool(output, None)

    def _on_ask(self, msg: Request) -> Iterator[Output]:
        permission = msg.method == "session/request_permission"
        if self._stopping:  # we have cancelled: what is asked now is answered so, as the protocol demands
            result: Msg = {"outcome": {"outcome": "cancelled"}} if permission else {"action": "cancel"}
            yield WriteLine(self._rpc.response(msg.id, result))
            return
        if self._running is None and not self._own_turn:
            yield from self._end_outside_turn()
            self._own_turn = True
            yield Signal(Input.ACTIVITY)
        yield from self._settle_suspect(None)
        if permission:
            tool_call = obj(msg.params.get("toolCall"))
            if get_text(tool_call, "toolCallId") and not self._talk.has_ended(get_text(tool_call, "toolCallId")):
                yield from self._talk.tool({**tool_call, "status": "pending"}, msg.raw, asked=True)
            yield from self._asks.permission(msg, self._call_of(tool_call))
        elif get_text(msg.params, "mode") in ("", "form"):
            yield from self._asks.form(msg, self._call_of(msg.params))
        else:  # a page to be opened in a browser: was not announced
            self._ctx.ignore("elicitation of another mode")
            yield WriteLine(self._rpc.response(msg.id, {"action": "decline"}))
        yield from self._own_turn_over()

    def _call_of(self, update: Msg) -> Call | None:
        return self._talk.calls.get(get_text(update, "toolCallId"))

    ANSWERS: ClassVar[dict[str, Callable[[AcpCodec, Response], Iterator[Output]]]] = {
        "initialize": _on_initialized,
        "session/new": _on_session,
        "session/load": _on_session,
        "session/resume": _on_session,
        "session/set_mode": _on_set,
        "session/set_model": _on_set,
        "session/set_config_option": _on_set,
    }
    """Method of ours -> what is done with its answer."""

    SPEAKS: ClassVar[dict[str, Callable[[AcpCodec, Msg, Json], Iterator[Output]]]] = {
        "agent_message_chunk": _chunk,
        "agent_thought_chunk": _on_thought,
        "tool_call": _tool,
        "tool_call_update": _tool,
    }
    """Updates that belong to a turn."""

    TELLS: ClassVar[dict[str, Callable[[AcpCodec, Msg, Json], Iterator[Output]]]] = {
        "plan": lambda codec, update, raw: codec._notes.plan(update, raw),
        "usage_update": _usage,
        "session_info_update": _info,
        "available_commands_update": _commands,
        "current_mode_update": lambda codec, update, raw: codec._notes.current_mode(update, raw),
        "config_option_update": lambda codec, update, raw: codec._notes.options(update, raw),
    }
    """Updates about the session, at any time."""
