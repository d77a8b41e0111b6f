"""The codec of Pi: one long-lived `pi --mode rpc` process per session, lines of JSON both ways; generations 0.73 and 0.87.

Its parts: `wire` (tables, models, errors), `speech` (messages and tools), `tools` (results, diffs), `asks` (dialogs), `gate.ts`
(the extension that asks, because Pi itself asks nothing), `universal.agents.kit` (items).

The end of an answer (Pi's "turn" is one call of its model, so `turn_end` does not show it):

    0.87   `agent_settled`; an `agent_end` has `willRetry`
    0.73   `agent_end`, unless a retry or a compaction follows, which it does not show. So the codec asks for Pi's state. Messages
           that follow at once come before the answer; an answer "not streaming, not compacting" is the end. The same request
           after the answer to a prompt finds commands of extensions, which run no model, and after an abort the end of a
           waiting retry.

An abort before the run has begun would be lost, so it is held until `agent_start`.
Source: recordings (`compat_fixtures/agents/pi`), the sources of 0.73.1 and 0.87.1, runs of both against a scripted model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from universal.agents import kit
from universal.agents.pi import wire
from universal.agents.pi.asks import PLAN_NOTE, SERVERS, Asks, read_json
from universal.agents.pi.speech import Voice
from universal.agents.pi.tools import text_of
from universal.agents.pi.wire import NAME, Msg
from universal.codec import Catalogue, Fact, IdFactory, Output, PermissionReply, Prompt, QuestionReply, SetTimer, Signal, Stop
from universal.events import ErrorData, EventType
from universal.items import Json
from universal.launch import Exit, LaunchOptions, LaunchSpec
from universal.lib.jsonline import get_int, get_text
from universal.lib.jsonvalue import arr, obj
from universal.mcp import McpServers, of_claude, summary
from universal.turn import Input

GATE, SERVERS_EXTENSION = (f"{__file__.rpartition('/')[0]}/{name}" for name in ("gate.ts", "mcp.ts"))
"""The extension that asks, and the one that has the MCP servers of a set-up. Paths, not read here."""

STEERS = (0, 87)
"""The first version that gives back what it was steered with and has not taken in (`clear_queue`)."""
COMMAND_S = 1800.0
"""Seconds for a compaction, or for a command of an extension, which may ask and wait."""
_PAUSE = "pause"
"""Key of the timer for the longest time without a run inside of a turn."""

_ENVIRONMENT: dict[str, str | None] = {"PI_SKIP_VERSION_CHECK": "1"}


class PiCodec(kit.LineCodec[kit.Context]):
    """The codec of Pi; see `universal.codec.Codec` for the methods' contract."""

    name = NAME

    def __init__(self, ids: IdFactory) -> None:
        super().__init__(kit.Context(NAME, ids))
        self._speech = kit.Speech(self._ctx)
        self._voice = Voice(self._ctx, self._speech)
        self._asks = Asks(self._ctx, self._speech.calls)
        self._servers = McpServers()
        self._request_count = 0
        self._waiting: dict[str, tuple[str, str]] = {}
        """Commands without an answer: id -> (command, purpose)."""
        self._start_answers: dict[str, Msg] = {}
        """Answers to the requests at the start, until all have come."""
        self._model = ""
        self._level = ""
        self._default_level = ""
        self._prompt = ""
        """Id of the written prompt that is not answered."""
        self._unsettled: set[str] = set()
        """Ids of settings without an answer. Pi may begin a prompt before it has applied a setting that came just before."""
        self._rewind = ""
        """The entry after which the conversation is cut. `anchor` is that of the last answered prompt, from `gate.ts`."""
        self._branch = frozenset[str]()
        """The prompts after which Pi goes on. Its file may have others, which another Pi has written. Empty: all."""
        self._offers: dict[str, str] = {}
        """Key of a steered prompt that Pi has not taken in -> its text."""
        self._can_steer = self._is_clearing = False
        self._end: Signal | None = None
        """The end of a run, until Pi has told what is left of its queue."""
        self._delayed: Output | None = None
        """The prompt that waits for these answers."""
        self._has_begun = False
        self._running = False
        """True while Pi works, on a prompt or unprompted."""
        self._ending = self._retrying = self._stopping = False
        self._last: Msg = {}
        """The last assistant message of the run, which shows how the run ended."""
        self._usage: dict[str, int] = {}
        self._cost = 0.0
        self._watch = kit.Watch("Pi", lambda: self._command("get_state", "watch"), self._active, self._end_by_sign)
        self._resumed = False
        self._is_awaited = False
        """True while Pi has not taken the prompt."""
        self._is_command = False
        """The prompt is a compaction, or may be a command of an extension. Pi answers both when they are over."""
        self._is_paused = False
        """True while Pi compacts or waits for a retry, which its state does not always show."""

    # --- start ----------------------------------------------------------------------------------------

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """Return argv and environment. Pi chooses the id of a new conversation; the answer to `get_state` has it."""
        numbers = tuple(int(part) for part in (options.version or "").split(".") if part.isdecimal())
        self._can_steer = numbers >= STEERS
        self._asks.servers = options.setup.servers
        servers = ("-e", SERVERS_EXTENSION) if options.setup.servers else ()
        self._asks.hides_skills = bool(options.setup.withheld_skills)
        skills = ("--no-skills",) if self._asks.hides_skills else ()
        argv = [options.binary, "--mode", "rpc", "-e", GATE, *servers, *skills, *wire.project_flags(options)]
        if options.model:
            argv += ["--model", options.model]
        if options.variant:
            argv += ["--thinking", options.variant]
        if options.resume and options.native_session_id:
            self.native_session_id = options.native_session_id
            self._resumed = True
            argv += ["--session", options.native_session_id]
            self._rewind = options.resume_at or ""
        self._model, self._level = options.model or "", options.variant or ""
        self._asks.mode, self._voice.directory = options.mode or "build", options.directory
        return LaunchSpec(argv=tuple(argv), cwd=options.directory, env=dict(_ENVIRONMENT))

    @property
    def has_conversation(self) -> bool:
        """Whether Pi has opened the conversation, or has begun a new one."""
        return not self._resumed or "get_state" in self._start_answers

    def adopt(self, options: LaunchOptions) -> bool:
        """Begin a session in a process that waits. Model and effort are set before its first prompt."""
        self._asks.mode = options.mode or "build"
        return True

    def start(self) -> list[Output]:
        """Ask for Pi's offers and its conversation's id. Prompts need not wait for the answers."""
        lines = [self._command(kind, "start") for kind in ("get_state", "get_available_models", "get_commands")]
        return [*lines, self._setting("get_fork_messages")] if self._rewind else lines

    def _command(self, kind: str, purpose: str = "", **fields: Json) -> Output:
        self._request_count += 1
        id_ = f"req_{self._request_count}"
        self._waiting[id_] = (kind, purpose)
        return kit.write({"id": id_, "type": kind, **fields})

    # --- commands -------------------------------------------------------------------------------------

    def rename(self, title: str) -> list[Output]:
        return [self._command("set_session_name", name=title)] if self.native_session_id else []

    INTERRUPTS_FIRST = True

    def _on_permission_reply(self, reply: PermissionReply) -> Iterable[Output]:
        return self._asks.reply(reply)

    def _on_question_reply(self, reply: QuestionReply) -> Iterable[Output]:
        return self._asks.answer(reply)

    def _interrupt_by_answer(self) -> Iterator[Output]:
        return self._interrupt()

    def proceed(self, permission_id: str) -> list[Output]:
        return self._asks.proceed(permission_id)

    @property
    def mode(self) -> str:
        return self._asks.mode

    def _on_prompt(self, prompt: Prompt) -> Iterator[Output]:
        if (prompt.setup.servers, bool(prompt.setup.withheld_skills)) != (self._asks.servers, self._asks.hides_skills):
            yield Stop("other MCP servers or skills need another process", again=True)
            return
        self._asks.mode = prompt.mode or self._asks.mode
        if prompt.model and prompt.model != self._model:
            provider, _, name = prompt.model.partition("/")
            yield self._setting("set_model", self._model, provider=provider, modelId=name)
            self._model = prompt.model
            self._level = ""  # Pi adapts it to the model
        level = prompt.variant or self._default_level
        if level and level != (self._level or self._default_level):
            yield self._setting("set_thinking_level", level=level)
        self._level = prompt.variant or ""
        notes = [note for note in (prompt.system, PLAN_NOTE if self._asks.mode == "plan" else "") if note]
        message, images = wire.prompt_of(prompt.text, list(prompt.attachments), notes)
        if not self._running:
            self._stopping = self._has_begun = False
        self._is_awaited, self._is_command = True, prompt.compact or prompt.text.startswith("/")
        has_started = "get_state" in self._start_answers
        yield kit.await_handshake(COMMAND_S if has_started and self._is_command else kit.HANDSHAKE_S)
        if prompt.compact:
            yield from self._when_settled(self._command("compact"))
            return
        line = self._command("prompt", "", message=message, images=images) if images else self._command("prompt", message=message)
        yield from self._when_settled(line)

    @property
    def may_steer(self) -> bool:
        """Whether Pi works on a prompt, and this version gives back what it has not taken in."""
        return self._can_steer and self._has_begun and self._running and not (self._stopping or self._ending)

    def steer(self, prompt: Prompt) -> list[Output]:
        """Give Pi a prompt that it takes in after the calls of its present step, or before it would stop."""
        notes = [note for note in (prompt.system, PLAN_NOTE if self._asks.mode == "plan" else "") if note]
        message, images = wire.prompt_of(prompt.text, list(prompt.attachments), notes)
        self._offers[prompt.key] = message
        more: dict[str, Json] = {"images": images} if images else {}
        return [self._command("steer", prompt.key, message=message, **more)]

    def recall(self, key: str) -> list[Output]:
        """Empty Pi's queue: it gives back all that it has not taken in."""
        if key not in self._offers:
            return []
        return [*self._take_back(), SetTimer("queue", None)]  # an answer comes, also if the request is not written yet

    def _take_back(self) -> Iterator[Output]:
        self._is_clearing = bool(self._offers)
        yield from self._clear()

    def _clear(self) -> Iterator[Output]:
        """Empty the queue when all steers are answered: Pi takes commands side by side, and it would overtake them (1.5.2)."""
        if self._is_clearing and not any(kind == "steer" for kind, _ in self._waiting.values()):
            self._is_clearing = False
            yield self._command("clear_queue")

    def _on_queue(self, queue: Json, failure: str) -> Iterator[Output]:
        """What Pi gives back. The echo of what it has taken in meanwhile came before, or comes.

        An extension of the person's may have changed a text: then the last ones are meant. After the run no echo comes any more:
        the rest is one that was changed and taken in, or that an extension has handled itself.
        """
        told, offered = arr(queue), tuple(self._offers)
        strange = [key for key in offered if self._offers[key] not in told]
        count = len(told) - (len(offered) - len(strange))
        back = set(offered) - set(strange[: len(strange) - max(count, 0)])
        for key in reversed(offered):
            if failure or key in back:
                del self._offers[key]
                yield Signal(Input.RETURNED, key=key)
        if self._end is not None:
            yield from (Signal(Input.TAKEN, key=key) for key in self._offers)
            yield self._end
            self._offers.clear()
            self._end = None

    def _setting(self, kind: str, purpose: str = "", **fields: Json) -> Output:
        line = self._command(kind, purpose, **fields)
        self._unsettled.add(f"req_{self._request_count}")
        return line

    def _when_settled(self, line: Output) -> Iterator[Output]:
        """The line of a prompt, once Pi has answered the settings before it."""
        self._prompt = f"req_{self._request_count}"
        if self._unsettled:
            self._delayed = line
        else:
            yield line

    def _interrupt(self) -> Iterator[Output]:
        """Interrupt Pi. Dialogs are closed first, because Pi does not stop while one is open."""
        yield from self._asks.cancel()
        self._stopping = bool(self._prompt) or self._running
        yield from self._take_back()
        if self._running and (self._has_begun or not self._prompt):
            yield self._command("abort")

    # --- lines ----------------------------------------------------------------------------------------

    def _kind_of(self, message: Msg) -> str:
        return wire.kind_of(message)

    def _on_eof(self, exit_: Exit) -> Iterator[Output]:
        yield from self._asks.close()
        yield from self._speech.close(None)
        error = wire.exit_error(exit_.stderr)
        if error is not None:
            yield kit.error_fact(error, None)
            yield Signal(Input.FAILED, error=error)

    # --- answers to commands ----------------------------------------------------------------------------

    def _on_response(self, msg: Msg) -> Iterator[Output]:
        """Handle the answer to a command. 0.73 answers an unknown command without its id."""
        kind, purpose = self._waiting.pop(get_text(msg, "id"), ("", ""))
        failure = "" if msg.get("success") is True else get_text(msg, "error") or "refused"
        data = obj(msg.get("data"))
        if purpose == "start":
            self._start_answers[kind] = data
            self._learn(kind, data)
        elif purpose == "forked":
            self.native_session_id = get_text(data, "sessionId") or self.native_session_id
        elif kind == "get_state":
            yield from self._state(data, purpose, msg)
        elif kind == "prompt":
            yield from self._prompt_accepted(msg, failure)
        elif kind == "compact":
            if get_text(msg, "id") == self._prompt:
                yield from self._compact_after_answer(msg, failure)
        elif kind == "clear_queue":
            yield from self._on_queue(data.get("steering"), failure)
        elif kind == "abort":
            yield from self._ask_state("response", "abort")
        elif kind in ("get_fork_messages", "fork"):
            yield from self._rewound(kind, data, failure, msg)
        elif kind and failure:
            yield from self._on_refusal(kind, purpose, failure, msg)
        elif not kind:
            self._ctx.ignore("response to no command of ours")
        yield from self._clear()
        self._unsettled.discard(get_text(msg, "id"))
        if self._delayed is not None and not self._unsettled:
            delayed, self._delayed = self._delayed, None
            yield delayed

    def _on_refusal(self, kind: str, purpose: str, failure: str, msg: Msg) -> Iterator[Output]:
        if kind == "steer":
            if self._offers.pop(purpose, None) is not None:
                yield Signal(Input.RETURNED, key=purpose)
            return
        if kind == "set_model":
            self._model = purpose
        details = {"hint": "The turn goes on with the setting that was in force."}
        yield Fact(EventType.ERROR, ErrorData(message=failure, code=f"{kind}_refused", details=details), raw=msg)

    def _learn(self, kind: str, data: Msg) -> None:
        if kind == "get_state":
            self.native_session_id = get_text(data, "sessionId") or self.native_session_id
            self._model = self._model or wire.model_id(obj(data.get("model")))
            if not self._level:
                self._default_level = get_text(data, "thinkingLevel")
        if self._start_answers.keys() >= {"get_state", "get_available_models", "get_commands"}:
            models = wire.read_models(self._start_answers["get_available_models"].get("models"))
            chosen = wire.model_id(obj(self._start_answers["get_state"].get("model")))
            default = chosen if any(model.id == chosen for model in models) else models[0].id if models else None
            self.catalogue = Catalogue(models, wire.read_commands(self._start_answers["get_commands"].get("commands")), default)

    def _rewound(self, kind: str, data: Msg, failure: str, msg: Msg) -> Iterator[Output]:
        """Go back to `_rewind`: Pi forks its conversation before the next prompt there. A new prompt waits for this."""
        if kind == "get_fork_messages":
            entry = wire.after_anchor(data.get("messages"), self._rewind, self._branch)
            failure = failure or ("" if entry is not None else "the prompt is not there any more")
            if entry:
                yield self._setting("fork", entryId=entry)
        elif data.get("cancelled") is True:
            failure = "an extension has refused to fork the conversation"
        elif not failure:
            yield self._setting("get_state", "forked")
        if failure:
            self._delayed = None
            error = wire.lost_error(f"Pi could not take back what was undone: {failure}")
            yield kit.error_fact(error, msg)
            yield Signal(Input.FAILED, error=error)

    def _prompt_accepted(self, msg: Msg, failure: str) -> Iterator[Output]:
        if get_text(msg, "id") != self._prompt:
            return
        if failure:
            error = wire.error_of(failure)
            yield kit.error_fact(error, msg)
            yield from self._end_turn(msg, error)
        elif not self._has_begun:
            yield from self._accept()
            yield from self._ask_state("response", "prompt")

    def _compact_after_answer(self, msg: Msg, failure: str) -> Iterator[Output]:
        """Handle the end of our compaction. Pi does not report itself as working in it."""
        if failure and self._stopping:
            yield from self._end_turn(msg, dict(wire.ABORTED))
        elif failure:
            error = wire.error_of(failure)
            yield kit.error_fact(error, msg)
            yield from self._end_turn(msg, error)
        else:
            yield from self._end_turn(msg, None)

    def _state(self, data: Msg, purpose: str, msg: Msg) -> Iterator[Output]:
        """Handle Pi's state, which was requested because something may have ended without a message."""
        if purpose == "watch":
            yield from self._on_watch(data, msg)
            return
        if data.get("isStreaming") is True or data.get("isCompacting") is True:
            return
        if purpose == "prompt" and self._prompt and not self._has_begun:
            yield from self._end_turn(msg, dict(wire.ABORTED) if self._stopping else None)  # a command of an extension
        elif (purpose == "end" and self._ending) or (purpose == "abort" and self._running):
            yield from self._finish(msg)

    # --- other signs of an end ------------------------------------------------------------------------

    def _accept(self) -> Iterator[Output]:
        """Note that Pi has the prompt, or works without one, and begin to ask whether it works."""
        if self._is_awaited:
            yield kit.end_handshake()
        self._is_awaited = False
        yield self._watch.begin("")

    def _ask_state(self, sign: str, purpose: str) -> Iterator[Output]:
        """Ask whether Pi works, because a sign says that it does not."""
        yield self._command("get_state", purpose)
        yield self._watch.on_sign("", wire.ENDS[sign]._replace(wait_s=kit.ASK_S))

    def on_timer(self, key: str) -> list[Output]:
        """Give up the handshake, or ask whether Pi works."""
        if key == kit.HANDSHAKE:
            return self._on_late_handshake()
        if key == _PAUSE:
            self._is_paused = False
            return []
        return self._stamp(self._watch.on_timer())

    def _on_late_handshake(self) -> list[Output]:
        has_started = "get_state" in self._start_answers
        if not self._is_awaited:
            return []
        if has_started and self._asks.is_open:  # an extension asks the person before it lets Pi take the prompt
            return [kit.await_handshake()]
        missing = "prompt" if has_started else "get_state"
        after_s = COMMAND_S if has_started and self._is_command else kit.HANDSHAKE_S
        return [kit.handshake_failed("Pi", missing, resumes=not self.has_conversation, after_s=after_s)]

    def _begin_pause(self, at_most_s: float) -> SetTimer:
        self._is_paused = True
        return SetTimer(_PAUSE, at_most_s)

    def _active(self) -> tuple[str, ...]:
        """The one session, if it has something to answer that Pi has taken."""
        return ("",) if not self._is_awaited and (self._prompt or self._running) else ()

    def _on_watch(self, data: Msg, msg: Msg) -> Iterator[Output]:
        is_at_work = data.get("isStreaming") is True or data.get("isCompacting") is True
        is_at_work = is_at_work or self._is_paused or self._asks.is_open
        yield from self._watch.on_answer(("",) if is_at_work else (), msg)

    def _end_by_sign(self, _session: str, msg: Msg) -> Iterator[Output]:
        """End a run whose end Pi has not told."""
        self._ctx.counters["agent_settled missing"] += 1
        if self._running:
            yield from self._finish(msg)
        else:
            yield from self._end_turn(msg, dict(wire.ABORTED) if self._stopping else None)

    # --- runs -----------------------------------------------------------------------------------------

    def _on_agent_start(self, msg: Msg) -> Iterator[Output]:
        """Handle the begin of a run, or its continuation after a failure. A run without a prompt is unprompted."""
        if not self._running:
            self._last = {}
            if not self._prompt:
                yield Signal(Input.ACTIVITY)
        must_abort = self._stopping and not self._running
        self._running, self._ending, self._retrying = True, False, False
        self._has_begun = self._has_begun or bool(self._prompt)
        self._is_paused = False
        self._watch.on_work("")
        yield from self._accept()
        if must_abort:
            yield self._command("abort")

    def _on_agent_end(self, msg: Msg) -> Iterator[Output]:
        yield from self._speech.close(msg)
        if "willRetry" not in msg and self._running:
            self._ending = True
            yield from self._ask_state("agent_end", "end")
        elif msg.get("willRetry") is False and self._running:
            yield self._watch.on_sign("", wire.ENDS["agent_end"])

    def _on_settled(self, msg: Msg) -> Iterator[Output]:
        if self._running:
            yield from self._finish(msg)
        else:
            self._ctx.ignore("agent_settled, nothing ran")

    def _finish(self, msg: Msg) -> Iterator[Output]:
        """End the run with the result of its last message."""
        yield from self._speech.close(msg)
        stop = get_text(self._last, "stopReason")
        if stop == "aborted" or (stop == "error" and self._stopping) or self._retrying:
            yield from self._end_turn(msg, dict(wire.ABORTED))
        elif stop == "error":
            error = wire.error_of(get_text(self._last, "errorMessage"))
            yield kit.error_fact(error, msg)
            yield from self._end_turn(msg, error)
        else:
            yield from self._end_turn(msg, None)

    def _end_turn(self, msg: Msg, error: dict[str, Json] | None) -> Iterator[Output]:
        metadata: dict[str, Json] = {"usage": self._usage, "cost": self._cost} if self._usage else {}
        if self.anchor:
            metadata["anchor"] = self.anchor
        self._usage, self._cost, self._prompt, self._is_awaited = {}, 0.0, "", False
        self._has_begun = self._running = self._ending = self._retrying = self._stopping = False
        yield from self._asks.close()
        yield from self._take_back()
        if error is None:
            end = Signal(Input.DONE, metadata=metadata or None)
        else:
            end = Signal(Input.FAILED, error=error, aborted=error.get("code") == "aborted", metadata=metadata or None)
        if self._is_clearing or any(kind == "clear_queue" for kind, _ in self._waiting.values()):
            self._end = end
        else:
            yield end

    def _on_retry(self, msg: Msg) -> Iterator[Output]:
        self._ending, self._retrying = False, True
        why = get_text(wire.error_of(get_text(msg, "errorMessage")), "message")
        metadata: dict[str, Json] = {
            "attempt": get_int(msg, "attempt"),
            "message": why,
            "delay_ms": max(get_int(msg, "delayMs"), 0),
        }
        yield self._begin_pause(max(get_int(msg, "delayMs"), 0) / 1000 + kit.HANDSHAKE_S)
        yield self._ctx.status("retry", why, metadata, msg)

    def _on_retry_end(self, msg: Msg) -> Iterator[Output]:
        """Handle the end of retries: given up, or aborted during the wait, after which 0.73 sends nothing more."""
        self._is_paused = False
        if msg.get("success") is not True and self._running and not self._ending:
            self._ending = True
            yield from self._ask_state("auto_retry_end", "end")

    def _on_compaction(self, msg: Msg) -> Iterator[Output]:
        self._ending = False
        yield self._begin_pause(COMMAND_S)
        metadata: dict[str, Json] = {"phase": "started", "auto": msg.get("reason") != "manual"}
        yield self._ctx.status("compaction", "Compacting the conversation", metadata, msg)

    def _on_compacted(self, msg: Msg) -> Iterator[Output]:
        self._is_paused = False
        failure = get_text(msg, "errorMessage") or ("The compaction was interrupted" if msg.get("aborted") is True else "")
        phase = "failed" if failure else "completed"
        metadata: dict[str, Json] = {"phase": phase, "auto": msg.get("reason") != "manual"}
        summary = get_text(obj(msg.get("result")), "summary")
        if summary:
            metadata["summary"] = summary
        yield self._ctx.status("compaction", failure or "The conversation was compacted", metadata, msg)
        if self._running and msg.get("willRetry") is not True:
            self._ending = True
            yield from self._ask_state("compaction_end", "end")

    # --- messages -----------------------------------------------------------------------------------

    def _on_message(self, msg: Msg) -> Iterator[Output]:
        yield from self._voice.message(msg, self._level)

    def _on_message_end(self, msg: Msg) -> Iterator[Output]:
        self._last = native = obj(msg.get("message"))
        tokens = wire.usage_of(obj(native.get("usage")))
        self._usage = kit.add_usage(self._usage, tokens)
        self._cost += wire.cost_of(obj(native.get("usage")))
        yield from self._voice.message_end(msg, self._level)

    def _on_user(self, msg: Msg) -> Iterator[Output]:
        """The echo of a prompt, or a text of an extension in the person's name."""
        content = obj(msg.get("message")).get("content")
        words = content if isinstance(content, str) else text_of(content)
        key = next((key for key, offer in self._offers.items() if offer == words), "")
        if key:
            del self._offers[key]
            yield Signal(Input.TAKEN, key=key)
        elif self._prompt:
            self._ctx.ignore("message_end/user, the prompt")
        else:
            yield self._speech.user(words, msg)

    def _on_result(self, msg: Msg) -> Iterator[Output]:
        yield from self._asks.call_ended(get_text(msg, "toolCallId"))
        yield from self._voice.result(msg)

    # --- the rest ---------------------------------------------------------------------------------------

    def _on_name(self, msg: Msg) -> Iterator[Output]:
        title = get_text(msg, "name")
        if title:
            yield self._ctx.status("title", title, {"title": title}, msg)

    def _on_line(self, msg: Msg) -> Iterator[Output]:
        """Handle a status line of Pi's screen. Ours are from `gate.ts`, and from `mcp.ts`, whose rows are in Claude's form."""
        if get_text(msg, "statusKey") == wire.ANCHOR_KEY:
            if prompts := get_text(msg, "statusText").split():
                self.anchor, self._branch = prompts[-1], self._branch or frozenset(prompts)
        elif get_text(msg, "statusKey") == SERVERS:
            report = self._servers.update(map(of_claude, arr(read_json(get_text(msg, "statusText")))), whole=True)
            if report is not None:
                yield self._ctx.status("mcp", summary(report), report, msg)
        else:
            self._ctx.ignore("extension_ui_request/setStatus")
        yield from ()

    def _on_notify(self, msg: Msg) -> Iterator[Output]:
        """Handle a note of an extension. Only warnings and errors are for the person."""
        if get_text(msg, "notifyType") in ("warning", "error") and get_text(msg, "message"):
            yield self._ctx.note(get_text(msg, "message"), msg)
        else:
            self._ctx.ignore("extension_ui_request/notify")

    def _on_extension_error(self, msg: Msg) -> Iterator[Output]:
        where = get_text(msg, "extensionPath").rpartition("/")[2] or "an extension"
        yield self._ctx.note(f"Error in {where} of Pi: {get_text(msg, 'error') or 'unknown'}", msg)

    def _on_summary_retry(self, msg: Msg) -> Iterator[Output]:
        why = get_text(wire.error_of(get_text(msg, "errorMessage")), "message")
        delay_ms = max(get_int(msg, "delayMs"), 0)
        yield self._ctx.status("retry", why, {"attempt": get_int(msg, "attempt"), "message": why, "delay_ms": delay_ms}, msg)

    IGNORED = wire.IGNORED
    HANDLERS: ClassVar[kit.Handlers] = {
        "response": _on_response,
        "agent_start": _on_agent_start,
        "agent_end": _on_agent_end,
        "agent_settled": _on_settled,
        "message_start/assistant": _on_message,
        "message_end/assistant": _on_message_end,
        "message_end/user": _on_user,
        "message_update/text_delta": lambda codec, msg: codec._voice.delta(msg),
        "message_update/thinking_delta": lambda codec, msg: codec._voice.delta(msg),
        "message_update/text_end": lambda codec, msg: codec._voice.part_end(msg),
        "message_update/thinking_end": lambda codec, msg: codec._voice.part_end(msg),
        "message_update/toolcall_start": lambda codec, msg: codec._voice.call(msg),
        "message_update/toolcall_delta": lambda codec, msg: codec._voice.call_delta(msg),
        "message_update/toolcall_end": lambda codec, msg: codec._voice.call_end(msg),
        "tool_execution_start": lambda codec, msg: codec._voice.tool(msg),
        "tool_execution_update": lambda codec, msg: codec._voice.output(msg),
        "tool_execution_end": _on_result,
        "extension_ui_request/select": lambda codec, msg: codec._asks.ask(msg),
        "extension_ui_request/confirm": lambda codec, msg: codec._asks.ask(msg),
        "extension_ui_request/input": lambda codec, msg: codec._asks.ask(msg),
        "extension_ui_request/editor": lambda codec, msg: codec._asks.ask(msg),
        "extension_ui_request/notify": _on_notify,
        "extension_ui_request/setStatus": _on_line,
        "extension_error": _on_extension_error,
        "auto_retry_start": _on_retry,
        "auto_retry_end": _on_retry_end,
        "summarization_retry_scheduled": _on_summary_retry,
        "compaction_start": _on_compaction,
        "compaction_end": _on_compacted,
        "session_info_changed": _on_name,
    }
    """Kind of line (see `wire.kind_of`) -> its handler."""
