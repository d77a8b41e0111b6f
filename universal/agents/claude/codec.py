"""The codec of Claude Code: one long-lived `claude --print` process per session, stream-json both ways.

Its parts: `wire` (lines, tables), `settings` (launch, model, mode), `speech` (items), `tools` (results, diffs, todos), `asks`
(permissions, the hook before each call, questions), `tasks` (subagents), `turns` (signals), `notes` (status items), `errors`
(texts of errors). Pure: no clock, no IO, no randomness; ids come from the injected factory, uuids of prompts from their keys.
Source: recordings of 2.1.197 and 2.1.330 (`compat_fixtures/agents/claude`), runs of both against a scripted model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from universal.agents import kit
from universal.agents.claude import wire
from universal.agents.claude.asks import EDIT_HOOKS, HOOKS, Asks
from universal.agents.claude.errors import INTERRUPTION, exit_error, reset_of, result_error
from universal.agents.claude.notes import Notes
from universal.agents.claude.settings import PREPARATION, RENAME, SERVERS, SET_SERVERS, TITLE, Settings
from universal.agents.claude.speech import SYNTHETIC_MODEL, Call, Context, Transcript
from universal.agents.claude.tasks import INTERRUPTED, Crew
from universal.agents.claude.tools import Todos, read_result
from universal.agents.claude.turns import Turns
from universal.agents.claude.wire import NAME, Msg
from universal.codec import Fact, IdFactory, Output, PermissionReply, Prompt, QuestionReply, SetTimer, Signal, Stop
from universal.events import ErrorData, EventType
from universal.items import Json
from universal.launch import Exit, LaunchOptions, LaunchSpec
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text
from universal.setup import DirectorySetup
from universal.turn import Input

NOISE = ("<local-command-", "<command-", "<task-notification", INTERRUPTED)
"""Beginnings of texts in `user` lines that no person wrote."""

NOT_HELD = (
    "This Claude Code does not wait for the server before each tool call: permission rules hold only for what it asks about. "
    "Update it (`npm install -g @anthropic-ai/claude-code`), or choose the agent `build`, in which it asks most."
)
SHELL_LINES_OFF = (
    "Shell lines (!`...`) of Claude Code's commands and skills do not run in this session: a permission rule for `bash` denies "
    "or asks, or the project is not trusted, and this Claude Code runs them without asking. Update it to 2.1.332 or newer, "
    "which asks, or ask for the command in your prompt."
)
_AFTER_RESULT = frozenset({"result", "system/session_state_changed", "command_lifecycle"})
"""Lines about turns that come after a `result`."""
_ANSWERS = frozenset({"control_response", "keep_alive"})
"""Lines that show only that the program runs."""
STEERS = frozenset({"msg_lifecycle_v1", "interrupt_cancel_queued_v1"})
"""What a version must be able to do, so that no steered prompt is lost or outlives an interrupt (2.1.330; not 2.1.197)."""
BACKGROUND: Msg = {"subtype": "background_tasks"}


class ClaudeCodec(kit.LineCodec[Context]):
    """The codec of Claude Code; see `universal.codec.Codec` for the methods' contract."""

    name = NAME

    def __init__(self, ids: IdFactory) -> None:
        self._settings = Settings()
        super().__init__(Context(NAME, ids, self._settings.model_of))
        self._calls: dict[str, Call] = {}
        self._main = Transcript(self._ctx, self._calls)
        self._is_told_of_skill_shell = False
        self._leaving = set[str]()
        """Calls that move to the background as soon as they are tasks."""
        self._crew = Crew(self._ctx, self._calls)
        self._asks = Asks(self._ctx)
        self._has_rules = False
        self._turns = Turns()
        self._notes = Notes(self._ctx)
        self._todos = Todos()
        self._error_line: Msg = {}
        """A synthetic error message. It is reported with the result that follows, which repeats it."""
        self._resets_at = 0
        """When the limit that refuses work resets, in seconds since 1970; 0 while none does."""
        self._held: list[Msg] = []
        """A `result` that came before results of its calls, and lines about turns after it."""
        self._resumed = self._is_heard = False
        """`_is_heard`: Claude has said something of its own, not only answered requests."""
        self._has_begun = False
        """True since the first turn of this process."""
        self._can_steer = False

    # --- start ----------------------------------------------------------------------------------------

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        self.native_session_id = options.native_session_id or None
        self._has_rules = bool(options.rules)
        self._asks.directory = options.directory.removesuffix("/")
        self._resumed = bool(options.resume and options.native_session_id)
        return self._settings.launch(options)

    @property
    def has_conversation(self) -> bool:
        """Whether Claude has begun a turn in the conversation, or has begun a new one."""
        return self._has_begun or not self._resumed

    def adopt(self, options: LaunchOptions) -> bool:
        """Begin a session in a process that waits. Model, effort and mode are set before its first prompt."""
        self._has_rules = bool(options.rules)
        return True

    def prepare(self) -> list[Output]:
        """Let Claude build its next request ahead, without sending it; see `Settings.prepare`."""
        return [*self._settings.prepare()]

    def start(self) -> list[Output]:
        """Return the handshake. Its answer fills `catalogue`. Prompts need not wait for it."""
        return [*self._settings.handshake(HOOKS, EDIT_HOOKS)]

    def change_setup(self, setup: DirectorySetup) -> list[Output]:
        """Give Claude another set of MCP servers, also in a turn: its next request to the model has their tools."""
        return self._stamp(self._settings.change_setup(setup))

    @property
    def mode(self) -> str:
        """Id of the mode in force. An unknown mode has Claude's name."""
        return wire.MODE_ID.get(self._settings.mode, self._settings.mode)

    # --- commands -------------------------------------------------------------------------------------

    def proceed(self, permission_id: str) -> list[Output]:
        return self._asks.proceed(permission_id)

    def background(self) -> list[Output]:
        """Do what Ctrl+B does in Claude's terminal: each call that the turn waits for gets a result at once, and goes on.

        Claude moves only tasks, and a command becomes a task after 3 s (2.1.330). So the request is repeated for each new task.
        """
        self._leaving = set(self._crew.calls)
        return self._stamp((self._settings.request(BACKGROUND),))

    def live_work(self) -> list[str]:
        return self._crew.live_work()

    def _on_task(self, msg: Msg) -> Iterator[Output]:
        yield from self._crew.on_start(msg)
        call_id = get_text(msg, "tool_use_id")
        if call_id in self._leaving and msg.get("is_backgrounded") is False:
            self._leaving.discard(call_id)
            yield self._settings.request({**BACKGROUND, "tool_use_id": call_id})

    def _on_prompt(self, prompt: Prompt, *, steered: bool = False) -> Iterator[Output]:
        """The lines of a prompt: of one that is dispatched with its settings, of a steered one alone.

        A prompt's `system` text goes before it, as `<system-reminder>`.
        """
        if not steered and not self._settings.fits(prompt):
            yield Stop("other instructions or another schema need another process", again=True)
            return
        if not steered:
            yield from self._release()
            if not self._is_heard:
                yield kit.await_handshake()
            yield from self._settings.changes_for(prompt)
            if prompt.text.startswith("/") and not self._settings.has_skill_shell and not self._is_told_of_skill_shell:
                self._is_told_of_skill_shell = True  # once is enough
                yield self._ctx.status("notice", SHELL_LINES_OFF, {}, {"text": prompt.text})
        uuid = self._turns.new_uuid(prompt.key)
        self._turns.prompt_written(uuid, steered=prompt.key if steered else "")
        content = wire.prompt_content(prompt.text, prompt.attachments, prompt.system)
        line: Msg = {
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": None,
            "session_id": self.native_session_id or "default",
            "uuid": uuid,
        }
        yield kit.write({**line, "priority": "next"} if steered else line)
        if prompt.names:
            yield from self._settings.ask_title(prompt.text)

    @property
    def may_steer(self) -> bool:
        """Whether Claude answers a prompt, and this version tells what becomes of another one."""
        return self._can_steer and self._turns.may_steer

    def steer(self, prompt: Prompt) -> list[Output]:
        """Write a prompt that Claude takes in after its next tool, or else answers next."""
        return self._stamp(self._on_prompt(prompt, steered=True))

    def recall(self, key: str) -> list[Output]:
        """Take a prompt out of Claude's queue. Its lifecycle says whether it was there."""
        uuid = self._turns.uuid_of_offer(key)
        return [self._settings.request({"subtype": "cancel_async_message", "message_uuid": uuid})] if uuid else []

    def rename(self, title: str) -> list[Output]:
        """Set the title that Claude's own list of conversations shows. A refusal of an older version is not told."""
        return [self._settings.request({"subtype": RENAME, "title": title, "source": "host"})] if self.native_session_id else []

    def _on_permission_reply(self, reply: PermissionReply) -> Sequence[Output]:
        return self._asks.reply(reply)

    def _on_question_reply(self, reply: QuestionReply) -> Sequence[Output]:
        return self._asks.answer(reply)

    def _interrupt_by_answer(self) -> Iterator[Output]:
        """Claude 2.1.197 goes on in spite of the `interrupt` in an answer."""
        if self._turns.interrupt():
            yield self._interrupt_request()

    def _interrupt_request(self) -> Output:
        """Interrupt, and empty Claude's queue: it would go on with what waits there."""
        return self._settings.request({"subtype": "interrupt"} | ({"cancel_queued": True} if self._turns.has_offers else {}))

    def _interrupt(self) -> Iterator[Output]:
        """Interrupt first: that ends background agents silently. After `stop_task` alone, Claude reports on them.

        What goes on since an earlier turn (a server) goes on, unless Claude has begun this turn by itself.
        """
        if self._turns.interrupt():
            yield self._interrupt_request()
        for task_id in self._crew.background() if self._turns.is_woken else self._crew.work_of_turn():
            yield self._settings.request({"subtype": "stop_task", "task_id": task_id})

    # --- lines ----------------------------------------------------------------------------------------

    def receive(self, line: bytes) -> list[Output]:
        """Handle one line. Nearly all lines are pieces of text, which take a short path."""
        message = self._object(line)
        if isinstance(message, Fact):
            return self._stamp((message,))
        if message.get("type") == "stream_event" and not message.get("parent_tool_use_id"):
            event: Msg = message.get("event") or {}
            if type(event) is dict and event.get("type") == "content_block_delta":
                return [*self._main.piece(event, message, self.native_session_id)]
        kind = wire.kind_of(message)
        self._is_heard = self._is_heard or kind not in _ANSWERS
        if kind == "assistant" and not message.get("parent_tool_use_id"):
            self.anchor = get_text(message, "uuid")
        if self._held:
            if kind in _AFTER_RESULT:
                self._held.append(message)
                return []
            if kind == "system/init":  # another turn
                return [*self._stamp(self._release()), *self._handle(kind, message, line)]
        return self._handle(kind, message, line)

    def _on_eof(self, exit_: Exit) -> Iterator[Output]:
        yield from self._release()
        if self._turns.is_resting and not self._crew.background():  # all is answered, and only `idle` has not come
            yield from self._turns.rest()
        yield from self._asks.close()
        yield from self._notes.end_compaction(None)
        if self._error_line:  # its result will not come
            yield from self._main.assistant(self._error_line)
        yield from self._main.close(None)
        yield from self._crew.close()
        error = exit_error(exit_.stderr)
        if error is not None:  # reported here, because it is clearer than an exit code
            yield kit.error_fact(error, None)
            yield Signal(Input.FAILED, error=error)

    def _stamp(self, outputs: Iterable[Output]) -> list[Output]:
        stamped = super()._stamp(outputs)
        self.catalogue = self._settings.catalogue
        for place, output in enumerate(stamped):
            if isinstance(output, Signal):
                stamped[place] = self._with_anchor(output)
        return stamped

    def _with_anchor(self, out: Signal) -> Signal:
        """Add to an answered prompt the place after which the transcript can continue (`LaunchOptions.resume_at`)."""
        if not (out.input in (Input.DONE, Input.FAILED) and out.child is None and self.anchor):
            return out
        return replace(out, metadata={**(out.metadata or {}), "anchor": self.anchor})

    # --- turns ----------------------------------------------------------------------------------------

    def _note_begin(self) -> Iterator[Output]:
        if self._turns.note_begin():
            yield self._interrupt_request()

    def _on_init(self, msg: Msg) -> Iterator[Output]:
        """Handle `system/init`, with which every turn begins. After `/clear` it has another session id."""
        self.native_session_id = get_text(msg, "session_id") or self.native_session_id
        self._has_begun = True
        self._can_steer = set(map(as_text, arr(msg.get("capabilities")))) >= STEERS
        yield from self._turns.init()
        yield from self._note_begin()
        yield from self._on_mode(msg)
        yield from self._notes.servers(msg.get("mcp_servers"), msg)

    def _on_state(self, msg: Msg) -> Iterator[Output]:
        state = get_text(msg, "state")
        if state == "idle":
            yield from self._crew.settle(msg)
        yield from self._turns.state(state)
        if state == "running":
            yield from self._note_begin()
        elif state == "idle" and self._turns.unbegun:
            yield SetTimer(f"idle {self._turns.unbegun}", wire.ENDS["idle"].wait_s)

    def _on_lifecycle(self, msg: Msg) -> Iterator[Output]:
        uuid = get_text(msg, "command_uuid")
        yield from self._report_errors(self._turns.lifecycle(uuid, get_text(msg, "state")), msg)
        if self._turns.awaits_result(uuid):
            yield SetTimer(f"command_lifecycle {uuid}", wire.ENDS["command_lifecycle"].wait_s)
        if get_text(msg, "state") == "started":
            yield from self._note_begin()

    def _report_errors(self, signals: Iterable[Signal], raw: Json) -> Iterator[Output]:
        for signal in signals:
            if signal.error is not None and not signal.aborted:
                yield kit.error_fact(signal.error, raw)
            yield signal

    def _on_result(self, msg: Msg) -> Iterator[Output]:
        """Handle the end of a turn. Results of complete calls may come a little later, unless it was cut off."""
        is_whole = result_error(msg, "") is None and not get_text(msg, "terminal_reason").startswith("aborted")
        if is_whole and any(self._calls[call_id].arguments is not None for call_id in self._open_calls()):
            self._held = [msg]
            yield SetTimer("result", wire.ENDS["result"].wait_s)
        else:
            yield from self._end(msg)

    def _open_calls(self) -> list[str]:
        return [call.call_id for call in self._calls.values() if call.thread is None]

    def _release(self) -> Iterator[Output]:
        """Handle a `result` that was held back, and what came after it."""
        held, self._held = self._held, []
        for number, msg in enumerate(held):
            yield from self._end(msg) if number == 0 else self.HANDLERS[wire.kind_of(msg)](self, msg)

    def _end(self, msg: Msg) -> Iterator[Output]:
        error = result_error(msg, get_text(self._error_line, "error"), self._resets_at)
        if error is not None and not self.has_conversation:
            error["code"] = "session_not_found"
        if self._error_line and error is None:
            yield from self._main.assistant(self._error_line)
        self._error_line = {}
        calls = self._open_calls()
        yield from self._main.close(msg)
        yield from self._crew.abandon(calls, msg)
        yield from self._notes.end_compaction(msg)
        self._settings.read_limits(msg)
        reason = get_text(msg, "terminal_reason")
        # A turn that another prompt has cut off is a "success" too.
        aborted = reason.startswith("aborted") or (error is not None and not reason and self._turns.is_stopping)
        if error is not None and not aborted:
            yield kit.error_fact(error, msg)
        elif aborted:
            error = dict(INTERRUPTION)
        yield from self._turns.result(msg, error, aborted=aborted)
        yield from self._await_idle()

    # --- other signs of an end ------------------------------------------------------------------------

    def _await_idle(self) -> Iterator[Output]:
        if self._turns.is_resting:
            yield SetTimer("rest", wire.ENDS["rest"].wait_s)

    def on_timer(self, key: str) -> list[Output]:
        """Give up the handshake, or end a turn by a sign that no other has followed (`ENDS`)."""
        if key == kit.HANDSHAKE:
            missing = "initialize" if self._settings.is_starting else "the first prompt"
            late = kit.handshake_failed("Claude Code", missing, resumes=not self.has_conversation)
            return [] if self._is_heard else [late]
        return self._stamp(self._by_sign(*key.split(" ", 1)))

    def _by_sign(self, sign: str, subject: str = "") -> Iterator[Output]:
        if sign == "result":
            yield from self._release()
        elif sign == "idle":
            yield from self._report_errors(self._turns.give_up(subject), None)
        elif sign == "command_lifecycle" and self._turns.awaits_result(subject):
            yield from self._close(None)
            yield from self._report_errors(self._turns.end_without_result(subject), None)
            yield from self._await_idle()
        elif sign == "end_turn" and subject == self.anchor and not self._open_calls():
            yield from self._close(None)
            yield from self._turns.rest()
        elif sign == "rest" and self._turns.is_resting:
            if self._crew.background():  # it holds the turn
                yield from self._await_idle()
            else:
                yield from self._crew.settle({})
                yield from self._turns.rest()

    def _close(self, raw: Json) -> Iterator[Output]:
        """Complete what a turn leaves open, because its `result` does not come."""
        self._ctx.counters["result missing"] += 1
        yield from self._show_error_line()
        yield from self._main.close(raw)
        yield from self._notes.end_compaction(raw)

    # --- messages -----------------------------------------------------------------------------

    def _thread(self, msg: Msg) -> Iterator[Output]:
        if get_text(msg, "parent_tool_use_id"):
            yield from self._crew.thread(msg)

    def _transcript(self, msg: Msg) -> Transcript:
        """The transcript of a line's thread, after `_thread`."""
        return self._crew.transcript(msg) if get_text(msg, "parent_tool_use_id") else self._main

    def _on_stream(self, msg: Msg) -> Iterator[Output]:
        yield from self._thread(msg)
        event = obj(msg.get("event"))
        if event.get("type") == "message_start" and not get_text(msg, "parent_tool_use_id"):
            yield from self._show_error_line()
            yield from self._notes.no_summary()
            yield from self._note_begin()
        yield from self._transcript(msg).stream(event, msg)
        is_last = obj(event.get("delta")).get("stop_reason") == "end_turn" and not get_text(msg, "parent_tool_use_id")
        if is_last and not self._turns.has_states:
            yield SetTimer(f"end_turn {self.anchor}", wire.ENDS["end_turn"].wait_s)

    def _show_error_line(self) -> Iterator[Output]:
        """Show an error message that no result repeats, because Claude goes on after it."""
        line, self._error_line = self._error_line, {}
        if line:
            yield from self._main.assistant(line)

    def _on_assistant(self, msg: Msg) -> Iterator[Output]:
        native = obj(msg.get("message"))
        blocks = [obj(block) for block in arr(native.get("content"))]
        if not get_text(msg, "parent_tool_use_id"):
            if get_text(msg, "error"):
                yield from self._show_error_line()
                self._error_line = msg
                return
            yield from self._show_error_line()
            if native.get("model") == SYNTHETIC_MODEL and [block.get("text") for block in blocks] == ["(no content)"]:
                self._ctx.ignore("assistant/(no content)")
                return
        yield from self._thread(msg)
        transcript = self._transcript(msg)
        yield from transcript.retract(map(as_text, arr(msg.get("supersedes"))), msg)
        yield from transcript.assistant(msg)
        for block in blocks:
            call = self._calls.get(get_text(block, "id")) if block.get("type") == "tool_use" else None
            if call is not None:
                yield from self._crew.on_call(call, msg)

    def _on_user(self, msg: Msg) -> Iterator[Output]:
        """Handle a `user` line: tool results, a subagent's prompt, or a text of the CLI in the user's name."""
        content = obj(msg.get("message")).get("content")
        blocks = [obj(block) for block in arr(content)]
        results = [block for block in blocks if block.get("type") == "tool_result"]
        yield from self._thread(msg)
        for block in results:
            yield from self._result(block, msg.get("tool_use_result") if len(results) == 1 else None, msg)
        if results:
            return
        text = content if isinstance(content, str) else "\n".join(as_text(block.get("text")) for block in blocks)
        if get_text(msg, "parent_tool_use_id"):
            yield from self._crew.user(msg)
        elif msg.get("isSynthetic") is True and self._notes.awaits_summary:
            yield from self._notes.summary(text)
        elif msg.get("isReplay") is True or msg.get("isSynthetic") is True or not text or text.startswith(NOISE):
            self._ctx.ignore("user/echo or note of the CLI")
        else:
            yield self._main.user(text, msg, synthetic=False)

    def _result(self, block: Msg, structured: Json, msg: Msg) -> Iterator[Output]:
        call = self._calls.get(get_text(block, "tool_use_id"))
        if call is None:
            self._ctx.ignore("tool_result of no open call")
            return
        arguments = call.arguments or {}
        result = read_result(call.name, arguments, block, structured)
        if self._asks.close_call(call.call_id, call.name) and not result.failed and self._has_rules:
            self._has_rules = False  # once is enough
            yield self._ctx.status("notice", NOT_HELD, {}, msg)
        if not result.failed:  # before the result, because its card shows the list after the call
            output = next((part.output for part in result.content if part.type == "tool_result"), "")
            todos = self._todos.after(call.name, arguments, obj(structured), output)
            if todos is not None:
                yield self._ctx.status("todo", f"{len(todos)} todos", {"todos": todos}, msg, child=call.thread)
        yield from self._crew.of(call.thread, self._main).result(call, result, msg)
        yield from self._crew.on_result(call, result, msg)
        if self._held and not self._open_calls():
            yield from self._release()

    def _on_local_output(self, msg: Msg) -> Iterator[Output]:
        """Handle `local_command_output`: the output of a slash command that is no `assistant` line."""
        block = {"type": "text", "text": get_text(msg, "content")}
        native = {"id": get_text(msg, "uuid"), "model": SYNTHETIC_MODEL, "content": [block], "stop_reason": "end_turn"}
        yield from self._main.assistant({**msg, "message": native})

    # --- asks and controls ----------------------------------------------------------------------------

    def _on_ask(self, msg: Msg) -> Iterator[Output]:
        request = obj(msg.get("request"))
        call = self._calls.get(get_text(request, "tool_use_id"))
        child = call.thread if call is not None else self._crew.child_of_agent(get_text(request, "agent_id"))
        yield from self._asks.ask(msg, call, child)

    def _on_hook(self, msg: Msg) -> Iterator[Output]:
        """Handle a call that waits for our answer. Only calls of the main thread reveal its mode; a subagent may have another."""
        hook = obj(obj(msg.get("request")).get("input"))
        agent_id = get_text(hook, "agent_id")
        if not agent_id:
            yield from self._on_mode({"permissionMode": get_text(hook, "permission_mode")})
        call = self._calls.get(get_text(hook, "tool_use_id"))
        child = call.thread if call is not None else self._crew.child_of_agent(agent_id)
        yield from self._asks.check(msg, call, child)

    def _on_refused(self, msg: Msg) -> Iterator[Output]:
        """Refuse a known request that is not served."""
        subtype = get_text(obj(msg.get("request")), "subtype")
        self._ctx.ignore(f"control_request/{subtype}")
        how, why = wire.REFUSED[subtype]
        if how == "error":
            yield wire.control_refusal(get_text(msg, "request_id"), why)

    def _refusal(self, kind: str, message: Msg) -> Iterable[Output]:
        if not kind.startswith("control_request/") or not get_text(message, "request_id"):
            return ()
        return (wire.control_refusal(get_text(message, "request_id"), "not supported"),)

    def _on_answer(self, msg: Msg) -> Iterator[Output]:
        """Handle the answer to our request. A refused setting is reported; a refused `stop_task` means that the task is over."""
        response = obj(msg.get("response"))
        subtype, refusal = self._settings.on_answer(response)
        if subtype in PREPARATION:
            yield from self._settings.on_preparation(subtype, refusal)
        elif subtype == SET_SERVERS and not refusal:
            yield self._settings.request({"subtype": SERVERS})
        elif subtype == SERVERS and not refusal:  # its rows have headers, which may be secret: so no raw line
            yield from self._notes.servers(obj(response.get("response")).get("mcpServers"), None)
        elif subtype == TITLE:
            yield from self._notes.title(obj(response.get("response")), msg)
        elif subtype == "interrupt":
            self._turns.acknowledge_interrupt()
        elif refusal and subtype == BACKGROUND["subtype"]:  # an older version, or the feature is switched off
            text = f"Nothing was moved to the background: {refusal}"
            yield self._ctx.status("notice", text, {}, msg)
        elif refusal and subtype and subtype not in ("stop_task", RENAME):
            details = {"hint": NOT_HELD if subtype == "initialize" else "The turn goes on with the setting that was in force."}
            yield Fact(EventType.ERROR, ErrorData(message=refusal, code=f"{subtype}_refused", details=details), raw=msg)
            if subtype == "set_permission_mode":
                yield from self._notes.mode(self._settings.mode, msg)
        elif not subtype:
            self._ctx.ignore("control_response to no request of ours")

    # --- status ---------------------------------------------------------------------------------------

    def _on_status(self, msg: Msg) -> Iterator[Output]:
        status = get_text(msg, "status")
        if status == "requesting":
            yield from self._notes.no_summary()
            yield from self._main.boundary(msg)
            yield from self._note_begin()
        elif status == "compacting":
            yield from self._notes.on_compacting(msg)
        elif get_text(msg, "compact_result"):
            yield from self._notes.compact_result(msg, is_stopping=self._turns.is_stopping)
        yield from self._on_mode(msg)

    def _on_mode(self, msg: Msg) -> Iterator[Output]:
        native = get_text(msg, "permissionMode")
        if self._settings.note_mode(native):
            yield from self._notes.mode(native, msg)

    def _on_refusal(self, msg: Msg) -> Iterator[Output]:
        """Handle `model_refusal_fallback`: the refused answer is taken back, and another model goes on."""
        yield from self._main.retract(map(as_text, arr(msg.get("retracted_message_uuids"))), msg)
        yield from self._notes.fallback(msg)

    def _on_progress(self, msg: Msg) -> Iterator[Output]:
        """Handle `tool_progress`: of a subagent it tells the retries, which `api_retry` does not. Other progress is not used."""
        retry, call = obj(msg.get("subagent_retry")), self._calls.get(get_text(msg, "parent_tool_use_id"))
        if not retry or call is None:
            self._ctx.ignore("tool_progress")
            return
        yield from self._thread(msg)
        cause = {"error_status": retry.get("error_status"), "error": get_text(retry, "error_category")}
        yield from self._notes.retry({**retry, **cause}, msg, child=self._crew.transcript(msg).child)

    def _on_limit(self, msg: Msg) -> Iterator[Output]:
        """Handle `rate_limit_event`, which comes before the error of a refused request, and when a limit changes."""
        self._resets_at = reset_of(msg)
        yield from self._notes.limit(msg)

    def _on_commands(self, msg: Msg) -> Iterator[Output]:
        count = self._settings.read_commands(msg)
        yield self._ctx.status("commands", f"{count} commands", {}, msg)

    def _on_reset(self, msg: Msg) -> Iterator[Output]:
        """Handle `conversation_reset` (`/clear`): the todos are gone too. The next `init` has the new id."""
        self._todos = Todos()
        yield from ()

    IGNORED = wire.IGNORED
    HANDLERS: ClassVar[kit.Handlers] = {
        "assistant": _on_assistant,
        "user": _on_user,
        "result": _on_result,
        "stream_event/message_start": _on_stream,
        "stream_event/content_block_start": _on_stream,
        "stream_event/content_block_delta": _on_stream,
        "stream_event/message_delta": _on_stream,
        "stream_event/message_stop": _on_stream,
        "control_request/can_use_tool": _on_ask,
        "control_request/hook_callback": _on_hook,
        "control_request/mcp_message": _on_refused,
        "control_request/elicitation": lambda codec, msg: codec._asks.elicitation(msg),
        "control_request/request_user_dialog": _on_refused,
        "control_request/oauth_token_refresh": _on_refused,
        "control_request/host_auth_token_refresh": _on_refused,
        "rate_limit_event": _on_limit,
        "tool_progress": _on_progress,
        "control_cancel_request": lambda codec, msg: codec._asks.withdraw(msg),
        "control_response": _on_answer,
        "command_lifecycle": _on_lifecycle,
        "conversation_reset": _on_reset,
        "system/init": _on_init,
        "system/status": _on_status,
        "system/session_state_changed": _on_state,
        "system/task_started": _on_task,
        "system/background_tasks_changed": lambda codec, msg: codec._crew.keep_live(msg),
        "system/task_notification": lambda codec, msg: codec._crew.on_notification(msg),
        "system/api_retry": lambda codec, msg: codec._notes.retry(msg, msg),
        "system/compact_boundary": lambda codec, msg: codec._notes.on_compact_boundary(msg),
        "system/model_fallback": lambda codec, msg: codec._notes.fallback(msg),
        "system/model_refusal_fallback": _on_refusal,
        "system/model_consent_fallback": lambda codec, msg: codec._notes.fallback(msg),
        "system/session_title_changed": lambda codec, msg: codec._notes.title(msg, msg),
        "system/informational": lambda codec, msg: codec._notes.informational(msg),
        "system/commands_changed": _on_commands,
        "system/local_command_output": _on_local_output,
    }
    """Kind of line (see `wire.kind_of`) -> its handler."""
