"""A turn of the Agent Client Protocol, from the prompt to its answer, and updates outside of prompts.

The answer to the prompt is the sign of its end, and agents send updates after it. They belong to the turn until nothing has come
for a while (`ends`). An update that comes later, or without a prompt, begins a turn of the agent's own. It ends in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from universal.agents import kit
from universal.agents.acp import errors
from universal.agents.acp.asks import Asks
from universal.agents.acp.ends import CALLS_S, END, LATE_S, OWN_CALLS_S, OWN_S, SILENT_S, STEADY, STEADY_S, End
from universal.agents.acp.host import Host
from universal.agents.acp.logins import login_hint
from universal.agents.acp.notes import Notes, PromptCost
from universal.agents.acp.profiles import Profile
from universal.agents.acp.setup import Setup
from universal.agents.acp.speech import Transcript
from universal.agents.acp.tools import QUESTION_TOOL, Call
from universal.agents.acp.wire import ABORTED, IGNORED, OWN_WORK_BEGINS, REFUSED, STEER, SUSPECT, Context, Msg
from universal.codec import Attachment, Fact, Output, Prompt, SetTimer, Signal, WriteLine
from universal.host import HostAnswer
from universal.items import Json
from universal.lib.jsonline import digest, get_text
from universal.lib.jsonrpc import Id, JsonRpc, Notification, Request, Response
from universal.lib.jsonvalue import obj
from universal.turn import Input

# --- blocks of a prompt -----------------------------------------------------------------------------------------


def prompt_content(prompt: Prompt, *, images: bool, embedded: bool) -> list[Msg]:
    """Return the content blocks of a prompt, its text last.

    An attachment that the agent cannot take is written into the text, linked, or only named.
    """
    blocks = [_attachment_block(item, images=images, embedded=embedded) for item in prompt.attachments]
    if prompt.system:
        blocks.insert(0, _text(kit.reminder(prompt.system)))
    if prompt.text or not blocks:
        blocks.append(_text(prompt.text))
    return blocks


def _text(text: str) -> Msg:
    return {"type": "text", "text": text}


def _attachment_block(item: Attachment, *, images: bool, embedded: bool) -> Msg:
    if item.base64 and item.mime.startswith("image/") and images:
        return {"type": "image", "mimeType": item.mime, "data": item.base64}
    uri = f"file://{item.path}" if item.path else f"attachment:///{item.filename or 'attachment'}"
    if item.text is not None and embedded:
        return {"type": "resource", "resource": {"uri": uri, "mimeType": item.mime, "text": item.text}}
    if item.path and item.text is None:
        return {"type": "resource_link", "uri": uri, "name": item.filename or item.path, "mimeType": item.mime}
    return _text(kit.attachment_text(item))


# --- a turn ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Connection:
    """What the codec of one process and its turns share."""

    profile: Profile
    ctx: Context
    rpc: JsonRpc
    setup: Setup
    talk: Transcript
    host: Host
    asks: Asks
    notes: Notes
    spending: PromptCost
    agent: Msg = field(default_factory=dict[str, Json])
    """The result of `initialize`."""
    session: str = ""
    waiting: list[Prompt] = field(default_factory=list[Prompt])
    """Prompts that are not written yet."""

    @property
    def login_hint(self) -> str:
        profile, methods = self.profile, self.agent.get("authMethods")
        return (
            login_hint(profile.name, profile.title, profile.command, methods) if profile.command else profile.program.login_hint
        )


class Turns:
    """The turns of one session. The codec hands over prompts and the messages that belong to turns."""

    def __init__(self, connection: Connection) -> None:
        self._conn = connection
        self._running: Id = None
        """The request of the prompt at work."""
        self._prompt: Prompt | None = None
        self._slash = False
        self._stopping = self._is_refused = False
        self._prompted = False
        self._ending: End | None = None
        """The agent has said that the turn is over. It may still send updates of it."""
        self._own = False
        """A turn is open for what the agent says or asks without a prompt."""
        self._offers: dict[str, Id] = {}
        """Key of a steered prompt -> our request, which the agent has not answered."""
        self._is_steady = False
        """Nothing new was said of the open calls for a while, so that they run."""
        self._suspect: Msg | None = None
        """An update that may turn out to be the text of an error; held back until more is known."""
        self._remarks = [(re.compile(pattern), what) for pattern, what in connection.profile.remarks.items()]
        self._retries = 0
        """How often the agent has asked its model again since it last said or did anything else."""

    @property
    def is_at_work(self) -> bool:
        """Whether a turn is open, so that the next prompt must wait."""
        return self._running is not None or self._own or self._ending is not None

    # --- commands -------------------------------------------------------------------------------------

    def write(self, prompt: Prompt) -> Iterator[Output]:
        c = self._conn
        c.setup.prompt_written(prompt)
        self._prompt = prompt
        c.talk.begin()
        c.asks.rejected = False
        self._stopping = self._is_refused = False
        self._retries = 0
        self._prompted = True
        self._slash = prompt.text.lstrip().startswith("/")
        yield from c.notes.on_compaction_start(is_wanted=prompt.compact)
        self._running, line = c.rpc.request("session/prompt", self._content(prompt))
        yield WriteLine(line)

    def _content(self, prompt: Prompt) -> Msg:
        """The parameters of a request with a prompt."""
        c = self._conn
        embedded = obj(obj(c.agent.get("agentCapabilities")).get("promptCapabilities")).get("embeddedContext") is True
        return {"sessionId": c.session, "prompt": [*prompt_content(prompt, images=c.setup.images, embedded=embedded)]}

    @property
    def _can_steer(self) -> bool:
        return obj(obj(self._conn.agent.get("_meta")).get("steering")).get("supported") is True

    @property
    def may_steer(self) -> bool:
        """Whether a call runs in the prompt's turn: what is said, or a call that has just begun, would be cut off."""
        calls = self._conn.talk.calls.values()
        at_work = self._running is not None and not (self._stopping or self._conn.asks)
        return self._can_steer and at_work and any(call.is_running or (self._is_steady and call.raw_input) for call in calls)

    def steer(self, prompt: Prompt) -> Iterator[Output]:
        """Give the agent a prompt for the running turn. If that is over, it shall not begin another one."""
        params = {**self._content(prompt), "_meta": {"steering": {"idleBehavior": "promptRequired"}}}
        self._offers[prompt.key], line = self._conn.rpc.request(STEER, params)
        yield WriteLine(line)

    def on_steer_answer(self, msg: Response) -> Iterator[Output]:
        """Handle the answer to a steered prompt: the turn has it, or is over."""
        key = next((key for key, id_ in self._offers.items() if id_ == msg.id), None)
        if key is not None:
            del self._offers[key]
            is_in = not msg.is_error and get_text(obj(msg.result), "outcome") == "injected"
            yield Signal(Input.TAKEN if is_in else Input.RETURNED, key=key)

    def take_back(self, answer: Response) -> bool:
        """Put a refused prompt before those that wait, to be written again. False if it is over or shall stop."""
        if answer.id != self._running or self._stopping or self._prompt is None:
            return False
        self._running = None
        self._conn.waiting.insert(0, self._prompt)
        return True

    def refuse(self) -> Iterator[Output]:
        """Interrupt the turn, because a person has refused a call. It is done then, and nothing of it was interrupted."""
        self._is_refused = self.is_at_work
        yield from self.interrupt()

    def interrupt(self) -> Iterator[Output]:
        """Ask the agent to stop, and stop everything of the turn on our side."""
        c = self._conn
        if c.session and (self._ending is None or c.asks):
            yield WriteLine(c.rpc.notification("session/cancel", {"sessionId": c.session}))
        self._stopping = self.is_at_work
        yield from c.host.withdraw()
        yield from c.host.stop()
        yield from c.asks.cancel()
        if self._ending is not None:
            yield from self.end_now()
        elif self._own:
            yield self._rest()

    def after_reply(self, outputs: Sequence[Output]) -> Iterator[Output]:
        """Pass on outputs of what we have answered. The end of a turn waits for what the agent makes of them."""
        yield from outputs
        yield from self._watch_calls()
        if outputs and (self._own or self._ending is not None):
            yield self._rest()

    def _watch_calls(self) -> Iterator[Output]:
        self._is_steady = False
        if self._can_steer:
            yield SetTimer(STEADY, STEADY_S if self._conn.talk.calls else None)

    def on_steady(self) -> None:
        self._is_steady = True

    def eof(self) -> Iterator[Output]:
        """Report open asks, messages and calls as they are, because the process is gone. A turn that was over has ended."""
        c = self._conn
        if self._ending is not None or (self._own and not c.asks and not c.talk.calls):
            yield from self.end_now()
        yield from c.host.withdraw()
        yield from c.asks.withdraw_all()
        yield from self._settle_suspect(None)
        yield from c.talk.close(None, interrupted=True)

    # --- the end of a turn ----------------------------------------------------------------------------

    def on_prompt_answer(self, msg: Response) -> Iterator[Output]:
        """Handle the answer to a prompt, the sign of its turn's end."""
        if msg.id != self._running:
            self._conn.ctx.ignore("answer to a prompt that is over")
            return
        self._running = None
        yield from self._begin_end(End(obj(msg.result), self._response_error(msg.error) if msg.is_error else None, msg.raw))

    def _begin_end(self, end: End) -> Iterator[Output]:
        """Wait for updates after the sign of the turn's end. What the agent has asked before is withdrawn."""
        self._ending = end
        yield from self._conn.host.withdraw()
        yield from self._conn.asks.withdraw_all()
        yield self._rest()

    def _rest(self) -> SetTimer:
        """End the turn when nothing more has come for a while. What a person is asked in it is waited for."""
        return SetTimer(END, None if self._conn.asks or self._conn.host.is_asking else self._wait_s())

    def _wait_s(self) -> float:
        """Return the seconds to wait for more of the turn; see `ends`."""
        talk, end = self._conn.talk, self._ending
        if self._stopping:
            return LATE_S
        if end is None:
            return OWN_CALLS_S if talk.calls else OWN_S
        if talk.calls:
            return CALLS_S
        has_said = talk.has_spoken or self._suspect is not None or end.error is not None or self._slash
        is_answer = end.is_for_prompt and get_text(end.result, "stopReason") in ("", "end_turn")
        return SILENT_S if is_answer and not has_said else LATE_S

    def on_timer(self) -> Iterator[Output]:
        """End a turn of which nothing has come for a while."""
        if self._own or self._ending is not None:
            yield from self.end_now()

    def end_now(self) -> Iterator[Output]:
        """End a turn that seems to be over, or that the agent began."""
        end, self._ending = self._ending, None
        if end is None and self._own:
            end = End({"stopReason": "cancelled"} if self._stopping else {}, None, None, is_for_prompt=False)
        self._own = False
        if end is not None:
            yield from self._end(end)

    def end_own_work(self) -> Iterator[Output]:
        """Handle a sign that work which the agent began without a prompt is over."""
        if self._own and not self._conn.asks:
            yield SetTimer(END, CALLS_S if self._conn.talk.calls else LATE_S)

    def _response_error(self, error: Msg) -> Msg:
        return errors.response_error(error, self._conn.agent.get("authMethods"), self._conn.login_hint)

    def _end(self, end: End) -> Iterator[Output]:
        """End the turn. Own work of the agent before a prompt that waits gives no signal, as that prompt is in the same turn."""
        c = self._conn
        offers, self._offers = self._offers, {}
        for key in reversed(offers):
            yield Signal(Input.RETURNED, key=key)
        stopping, self._stopping = self._stopping, False
        reason, raw = get_text(end.result, "stopReason"), end.raw
        error = yield from self._settle_suspect(raw, end.error)
        stop = errors.STOP_REASONS.get(reason, errors.STOP_REASONS["end_turn"])
        refused, self._is_refused = self._is_refused, False
        aborted = stopping and (error is not None or reason == "cancelled")
        if aborted and refused:
            error, aborted = None, False
        if error is None and stop.code:
            error = errors.make(stop.message, stop.code)
        total = c.spending.take(end.result)
        yield from c.host.withdraw()
        yield from c.asks.withdraw_all()
        cancelled = aborted or (reason == "cancelled" and not c.asks.rejected and not refused)
        failed = cancelled or error is not None
        yield from c.talk.close(raw, finish=stop.finish, interrupted=failed, extra=total)
        yield from c.notes.on_compaction_end(raw, failed=failed)
        if error is not None and not cancelled:
            yield kit.error_fact(error, raw)
        if c.waiting and not end.is_for_prompt:
            return
        if cancelled:
            yield Signal(Input.FAILED, error=dict(ABORTED), aborted=True, metadata=total or None)
        elif error is not None:
            yield Signal(Input.FAILED, error=error, metadata=total or None)
        else:
            yield Signal(Input.DONE, metadata=total or None)

    def _settle_suspect(self, raw: Json, error: Msg | None = None) -> Generator[Output, None, Msg | None]:
        """Decide whether the update that was held back is an error or text. Returns the error."""
        update, self._suspect = self._suspect, None
        if update is None:
            return error
        text = get_text(obj(update.get("content")), "text")
        if error is not None and errors.readable(text) in error["message"]:
            return error
        if error is None and raw is not None and errors.is_text(self._conn.profile, text, get_text(update, "messageId")):
            return errors.of_text(text)
        yield from self._conn.talk.chunk("text", obj(update.get("content")), get_text(update, "messageId"), update)
        return error

    # --- what the agent says --------------------------------------------------------------------------

    def on_update(self, msg: Notification, line: bytes) -> Iterator[Output]:
        """Handle `session/update`. An update of an unknown kind is reported as `agent.unparsed`."""
        update = obj(msg.params.get("update"))
        kind = get_text(update, "sessionUpdate")
        session_id = get_text(msg.params, "sessionId")
        if kind in IGNORED:
            self._conn.ctx.ignore(kind)
        elif kind in self.TELLS:
            yield from self.TELLS[kind](self, update, msg.raw)
        elif kind not in self.SPEAKS:
            yield self._conn.ctx.report_unparsed(kind or "update without kind", "unknown session update", msg.raw, digest(line))
        elif self._conn.session and session_id and session_id != self._conn.session:
            self._conn.ctx.ignore("update of another session")
        elif self._running is not None:
            yield from self.SPEAKS[kind](self, update, msg.raw)
        else:
            yield from self._speak(kind, update, msg.raw)

    def _speak(self, kind: str, update: Msg, raw: Json) -> Iterator[Output]:
        """Handle what the agent says after the end of its work: it is of the turn before it, else of a turn of its own."""
        is_first = not self.is_at_work
        if is_first and not self._prompted:
            self._conn.ctx.ignore("history")
            return
        outputs = list(self.SPEAKS[kind](self, update, raw))
        if not outputs and self._suspect is None:
            return
        if is_first:
            yield from self._begin_own()
        yield from outputs
        yield self._rest()

    def _begin_own(self) -> Iterator[Output]:
        self._own = self._prompted = True
        self._conn.asks.rejected = self._stopping = self._is_refused = False
        yield Signal(Input.ACTIVITY)

    def on_chunk(self, update: Msg, raw: Json) -> Iterator[Output]:
        """Handle a piece of text: an answer, a remark of the adapter, or what may be an error."""
        yield from self._settle_suspect(None)
        content = obj(update.get("content"))
        text, native_id = get_text(content, "text"), get_text(update, "messageId")
        self._conn.spending.step(update)
        for pattern, what in self._remarks:
            if found := pattern.fullmatch(text):
                yield from self._remark(what, text.strip(), found.groupdict(), raw)
                return
        self._retries = 0
        if text.startswith(SUSPECT) or errors.is_text(self._conn.profile, text, native_id):
            self._suspect = update
        else:
            yield from self._conn.talk.chunk("text", content, native_id, raw)

    def _remark(self, what: str, text: str, told: Mapping[str, str], raw: Json) -> Iterator[Output]:
        """Report a remark of the agent that came as text of the answer."""
        if what == "retry":
            yield self.retry(text, raw, told)
        elif what:
            yield self._conn.ctx.status(what, text, {}, raw)
        else:
            self._conn.ctx.ignore("remark of the agent")

    def retry(self, why: str, raw: Json, told: Mapping[str, str] | None = None) -> Fact:
        """Report that the agent asks its model again; `told`: which try it is, and after how many seconds."""
        told = told or {}
        self._retries = int(told.get("attempt", self._retries + 1))
        delay: Msg = {"delay_ms": int(told["delay"]) * 1000} if "delay" in told else {}
        return self._conn.ctx.status("retry", why, {"attempt": self._retries, "message": why, **delay}, raw)

    def on_thought(self, update: Msg, raw: Json) -> Iterator[Output]:
        yield from self._settle_suspect(None)
        yield from self._conn.talk.chunk("reasoning", obj(update.get("content")), get_text(update, "messageId"), raw)

    def _tool(self, update: Msg, raw: Json) -> Iterator[Output]:
        self._retries = 0
        yield from self._settle_suspect(None)
        update = self._conn.talk.ids.address(update, begins=update.get("sessionUpdate") == "tool_call")
        yield from self._conn.talk.tool(self._conn.host.with_terminal(update, self._call_of(update)), raw)
        yield from self._watch_calls()

    # --- status ---------------------------------------------------------------------------------------

    def _usage(self, update: Msg, raw: Json) -> Iterator[Output]:
        if self._conn.spending.add(update):
            yield from self.end_own_work()

    def _info(self, update: Msg, raw: Json) -> Iterator[Output]:
        title = get_text(update, "title")
        yield from self._conn.notes.title(title, raw)
        if title:
            yield from self.end_own_work()

    # --- what the agent asks --------------------------------------------------------------------------

    def on_request(self, msg: Request, line: bytes) -> Iterator[Output]:
        """Handle a request of the agent. One of an unknown kind is refused and reported as `agent.unparsed`."""
        if msg.method in ("session/request_permission", "elicitation/create"):
            yield from self._on_ask(msg)
        elif msg.method in self._conn.host.METHODS:
            yield from self._conn.host.handle(msg, stopping=self._stopping)
        else:
            yield from self._refuse(msg, line)

    def _refuse(self, msg: Request, line: bytes) -> Iterator[Output]:
        """Refuse a request that is not served, and count it. One that begins other work says that the turn before it is over."""
        if msg.method == OWN_WORK_BEGINS and self._ending is not None:
            yield from self.end_now()
        yield WriteLine(self._conn.rpc.error(msg.id, f"not supported: {msg.method}"))
        if msg.method in REFUSED:
            self._conn.ctx.ignore(msg.method)
        else:
            yield self._conn.ctx.report_unparsed(msg.method, "unknown request", msg.raw, digest(line))

    def on_host_answer(self, answer: HostAnswer) -> Iterator[Output]:
        outputs: list[Output] = []
        for output in self._conn.host.on_answer(answer):
            if not isinstance(output, dict):
                outputs.append(output)
            elif self._call_of(output) is not None:
                outputs += self._conn.talk.tool(output, None)
        yield from self.after_reply(outputs)

    def _on_ask(self, msg: Request) -> Iterator[Output]:
        permission = msg.method == "session/request_permission"
        if self._stopping:  # we have cancelled: what is asked now is answered so, as the protocol demands
            result: Msg = {"outcome": {"outcome": "cancelled"}} if permission else {"action": "cancel"}
            yield WriteLine(self._conn.rpc.response(msg.id, result))
            return
        if not self.is_at_work:
            yield from self._begin_own()
        yield from self._settle_suspect(None)
        if permission:
            tool_call = obj(msg.params.get("toolCall"))
            if get_text(tool_call, "toolCallId"):
                tool_call = self._conn.talk.ids.address(tool_call, is_asked=True)
                yield from self._conn.talk.tool({**tool_call, "status": "pending"}, msg.raw, is_asked=True)
            yield from self._conn.asks.permission(msg, self._call_of(tool_call))
        else:
            asking = (call for call in self._conn.talk.calls.values() if call.name == QUESTION_TOOL)
            # Mistral Vibe names the call by an id that it has not told.
            yield from self._conn.asks.form(msg, self._call_of(msg.params) or next(asking, None))
        if self._own or self._ending is not None:
            yield self._rest()

    def _call_of(self, update: Msg) -> Call | None:
        return self._conn.talk.ids.find(get_text(update, "toolCallId"))

    SPEAKS: ClassVar[dict[str, Callable[[Any, Msg, Json], Iterator[Output]]]] = {
        "agent_message_chunk": on_chunk,
        "agent_thought_chunk": on_thought,
        "tool_call": _tool,
        "tool_call_update": _tool,
    }

    TELLS: ClassVar[dict[str, Callable[[Any, Msg, Json], Iterator[Output]]]] = {
        "plan": lambda turns, update, raw: turns._conn.notes.plan(update, raw),
        "usage_update": _usage,
        "notice": lambda turns, update, raw: turns._conn.notes.notice(update, raw),
        "compaction_update": lambda turns, update, raw: turns._conn.notes.compaction(update, raw),
        "session_info_update": _info,
        "available_commands_update": lambda turns, update, raw: turns._conn.notes.commands(update, raw),
        "current_mode_update": lambda turns, update, raw: turns._conn.notes.current_mode(update, raw),
        "config_option_update": lambda turns, update, raw: turns._conn.notes.options(update, raw),
    }
    """Updates about the session, at any time."""
