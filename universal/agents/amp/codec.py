"""The codec of Amp: `amp --execute --stream-json --stream-json-input`, one process per session, whole messages without deltas.

Tests: all recordings of 0.0.1774569934 (March 2026, the last version that calls the model through
AMP_URL) are replayed through this codec, and that version was run behind the server against a scripted model and a
stand-in for Amp's account calls. Current versions keep the thread on Amp's server, which cannot be reached without an
account: no run against it has been made. Their messages are those of `amp_sdk/types.py` 0.1.20260918, which has the
same five kinds. Not observed: messages of subagents (`parent_tool_use_id`), `error_max_turns`, images.

- A prompt is answered by an `assistant` message with `stop_reason: end_turn`; `result` comes once, after the end of
  input. A `stop_reason` of null without a tool call is the token limit, and nothing ever follows: the process is
  stopped, the next prompt continues the thread.
- `result` with an error ends the turn; the exit code is 0 all the same.
- There is no message for an interrupt: SIGINT. The process exits then; the next prompt continues the thread.
- There is no channel for permissions or questions: Amp's own rules decide, or nothing is held back (mode `bypass`).
  A person's rules become settings of one process (`rules`); other rules mean another process.
  A tool that they want approved ends the turn with an error (seen with the recorded version).
- Amp's models are modes (`--mode`), chosen at the start of a process: another one means another process.
- Thinking is told with `--stream-json-thinking`. No cost is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from universal.agents import kit
from universal.agents.amp.rules import personal_settings_files, restricts, settings_with_rules
from universal.agents.amp.wire import (
    ABORTED,
    CANCELLED,
    CATALOGUE,
    DEFAULT_MODEL,
    FINISH,
    LOGIN_NEEDED,
    MODEL_REFUSALS,
    NAME,
    Msg,
    error_of,
    exit_error,
    login_error,
    prompt_line,
    read_result,
    title_of,
    usage_of,
)
from universal.codec import (
    Command,
    Exit,
    IdFactory,
    Interrupt,
    InterruptProcess,
    LaunchOptions,
    LaunchSpec,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    SettingsFile,
    Signal,
    Stop,
)
from universal.items import Json
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text
from universal.permissions import Rule
from universal.turn import Input


class AmpCodec(kit.LineCodec[kit.Context]):
    """The codec of Amp; see `universal.codec.Codec` for the methods' contract."""

    name = NAME

    def __init__(self, ids: IdFactory) -> None:
        super().__init__(kit.Context(NAME, ids))
        self.catalogue = CATALOGUE
        """The catalogue is fixed, because Amp cannot list it, and its start without a login opens a browser."""
        self._speech = kit.Speech(self._ctx)
        self._model = DEFAULT_MODEL
        self._mode = "build"
        self._directory = ""
        self._rules: tuple[Rule, ...] = ()
        """The written permission rules that Amp was started with."""
        self._prompt_count = 0
        """Number of written prompts without an answer."""
        self._stopping = False
        self._login = False
        self._fresh = False
        """True while a resumed thread has no message yet."""
        self._usage: dict[str, int] = {}
        self._has_begun = False
        """True since Amp's first message."""

    @property
    def has_conversation(self) -> bool:
        """Whether Amp has said something in a thread that it continues, or has begun a new one."""
        return not self._fresh

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        """Return argv. `threads continue` resumes a thread, which Amp keeps on its server."""
        self._model, self._mode = options.model or DEFAULT_MODEL, options.mode or "build"
        self._directory = options.directory
        argv = [options.binary]
        if options.resume and options.native_session_id:
            self.native_session_id, self._fresh = options.native_session_id, True
            argv += ["threads", "continue", options.native_session_id]
        argv += ["--execute", "--stream-json", "--stream-json-thinking", "--stream-json-input"]
        if self._model != DEFAULT_MODEL:
            argv += ["--mode", self._model]
        self._rules = options.rules
        settings = None
        if restricts(self._rules):
            change = partial(settings_with_rules, rules=self._rules, mode=self._mode, directory=self._directory)
            settings = SettingsFile("--settings-file", personal_settings_files(options.environment, options.directory), change)
        elif self._mode == "bypass":
            argv.append("--dangerously-allow-all")
        env = {"AMP_SKIP_UPDATE_CHECK": "1"}
        return LaunchSpec(argv=tuple(argv), cwd=options.directory, env=env, settings=settings)

    def start(self) -> list[Output]:
        """Return no handshake: Amp sends its first message after the first prompt."""
        return []

    def send(self, command: Command) -> list[Output]:
        """Translate a command to a line, a signal or a new process. Replies are ignored, because Amp never asks."""
        match command:
            case Prompt():
                model, mode = command.model or self._model, command.mode or self._mode
                if (model, mode) != (self._model, self._mode):
                    return [Stop(f"Amp is to run in the mode {model} ({mode})", again=True)]
                if command.rules != self._rules and (restricts(command.rules) or restricts(self._rules)):
                    return [Stop("other permission rules or MCP servers need another process", again=True)]
                self._prompt_count += 1
                self._stopping = False
                line = prompt_line(command.text, command.attachments, command.system)
                return [line] if self._has_begun else [line, kit.await_handshake()]
            case Interrupt():
                self._stopping = True
                return [InterruptProcess()]
            case PermissionReply() | QuestionReply():
                return []

    def on_timer(self, key: str) -> list[Output]:
        """Give up the handshake: Amp has a prompt, and has said nothing."""
        late = kit.handshake_failed("Amp", "the first prompt with `system/init`", resumes=self._fresh)
        return [late] if self._prompt_count and not self._has_begun else []

    # --- lines ----------------------------------------------------------------------------------------

    def receive(self, line: bytes) -> list[Output]:
        """Handle one line: JSON, an empty line, or Amp's text that asks for a login."""
        text = line.decode("utf-8", errors="replace")
        if text.startswith(LOGIN_NEEDED):
            self._login = True
            return self._stamp(self._no_login(text))
        if self._login or not text.strip():
            self._ctx.ignore("words of the login" if self._login else "an empty line")
            return []
        return super().receive(line)

    def _kind_of(self, message: Msg) -> str:
        kind = get_text(message, "type") or "?"
        return f"system/{get_text(message, 'subtype') or '?'}" if kind == "system" else kind

    def _handle(self, kind: str, message: Msg, line: bytes) -> list[Output]:
        if kind in self.HANDLERS and get_text(message, "parent_tool_use_id"):
            self._ctx.ignore(f"{kind} of a subagent")  # never seen; the call's result shows the outcome
            return []
        return super()._handle(kind, message, line)

    def eof(self, exit_: Exit) -> list[Output]:
        """Complete all open items, because the process has ended."""
        return self._stamp(self._eof(exit_))

    def _eof(self, exit_: Exit) -> Iterator[Output]:
        yield from self._speech.close(None)
        error = exit_error(exit_.stderr)
        if error is not None and self._prompt_count:
            yield kit.error_fact(error, None)
            yield from self._end_turn(error)

    def _no_login(self, text: str) -> Iterator[Output]:
        error = login_error(text)
        yield kit.error_fact(error, text)
        yield Stop("nobody is logged in")
        yield from self._end_turn(error)

    def _on_init(self, msg: Msg) -> Iterator[Output]:
        self._has_begun = True
        yield kit.end_handshake()
        self.native_session_id = get_text(msg, "session_id") or self.native_session_id

    def _on_user(self, msg: Msg) -> Iterator[Output]:
        """The echo of a prompt, or results of tools."""
        for block in map(obj, arr(obj(msg.get("message")).get("content"))):
            kind = get_text(block, "type")
            if kind == "tool_result":
                yield from self._result(block, msg)
            elif kind in ("text", "image"):
                self._ctx.ignore("user, the prompt")
            else:
                yield self._ctx.report_unparsed(f"block/{kind or '?'}", "unknown content block", msg)

    def _result(self, block: Msg, msg: Msg) -> Iterator[Output]:
        call = self._speech.calls.get(get_text(block, "tool_use_id"))
        if call is None:
            self._ctx.ignore("tool_result of no open call")
            return
        result = read_result(call.name, call.arguments or {}, block, self._directory)
        yield from self._speech.result(call, result.content, result.metadata, msg, failed=block.get("is_error") is True)

    def _on_assistant(self, msg: Msg) -> Iterator[Output]:
        """A whole message. Each of its texts is one synthetic delta."""
        native = obj(msg.get("message"))
        blocks = [obj(block) for block in arr(native.get("content"))]
        stop, calls = get_text(native, "stop_reason"), any(block.get("type") == "tool_use" for block in blocks)
        model: dict[str, Json] = {"provider_id": NAME, "model_id": self._model, "variant": None}
        self._fresh = False
        if not self._prompt_count:
            self._prompt_count = 1
            yield Signal(Input.ACTIVITY)
        yield from self._speech.begin(msg, native_id=get_text(native, "id"), model=model)
        for place, block in enumerate(blocks):
            kind = get_text(block, "type")
            if kind == "text":
                yield from self._speech.whole(place, "text", as_text(block.get("text")), msg)
            elif kind == "thinking":
                yield from self._speech.whole(place, "reasoning", as_text(block.get("thinking")), msg)
            elif kind == "tool_use":
                name, arguments = get_text(block, "name") or "unknown", obj(block.get("input"))
                yield from self._speech.call_whole(get_text(block, "id"), name, arguments, title_of(name, arguments), msg)
            elif kind == "redacted_thinking":
                self._ctx.ignore("block/redacted_thinking")
            else:
                yield self._ctx.report_unparsed(f"block/{kind or '?'}", "unknown content block", msg)
        usage = usage_of(obj(native.get("usage")))
        self._usage = kit.add_usage(self._usage, usage)
        finish = FINISH.get(stop, stop) or ("tool-calls" if calls else "length")
        yield from self._speech.end(msg, metadata={"usage": usage, "finish": finish})
        if not calls:
            yield from self._speech.close(msg)
            if not stop:
                yield Stop("Amp says nothing more after a token limit")
            yield from self._end_turn(None)

    def _on_result(self, msg: Msg) -> Iterator[Output]:
        """Handle `result`, after which the process ends. If the turn has not ended yet, it failed.

        A thread that is continued may fail at once: Amp does not have it, or a tool needed approval by Amp's rules. Then the
        conversation is lost, whatever the reason, and the session begins a new thread. A model that refuses is no such reason.
        """
        yield from self._speech.close(msg)
        yield Stop("Amp has said its result")
        if not self._prompt_count:
            self._ctx.ignore("result, the turn has ended")
            return
        if msg.get("is_error") is not True:
            yield from self._end_turn(None)
            return
        words = get_text(msg, "error", "result") or get_text(msg, "subtype")
        if words.startswith(CANCELLED) or self._stopping:
            yield from self._end_turn(dict(ABORTED))
            return
        error = error_of(words)
        if self._fresh and error["code"] not in MODEL_REFUSALS:
            error["code"] = "session_not_found"
        yield kit.error_fact(error, msg)
        yield from self._end_turn(error)

    def _end_turn(self, error: dict[str, Json] | None) -> Iterator[Output]:
        metadata: dict[str, Json] | None = {"usage": self._usage} if self._usage else None
        self._prompt_count, self._usage = 0, {}
        if error is None:
            yield Signal(Input.DONE, metadata=metadata)
        else:
            yield Signal(Input.FAILED, error=error, aborted=error["code"] == "aborted", metadata=metadata)

    HANDLERS: ClassVar[kit.Handlers] = {
        "system/init": _on_init,
        "user": _on_user,
        "assistant": _on_assistant,
        "result": _on_result,
    }
    """Kind of line -> its handler."""
