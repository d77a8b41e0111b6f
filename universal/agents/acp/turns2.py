"""A turn in version 2 of the Agent Client Protocol (draft of July 2026): `state_update` marks its start and end.

The answer to `session/prompt` only says that the prompt is accepted. Work that the agent begins without a prompt is a turn of
its own, from `running` to `idle`. What it says while it is idle is of the turn before it or of its own, as in version 1.
A subagent has a session of its own. Its tool calls are shown among those of the conversation, as version 1 shows them; what
else it says is counted.
Source: agentclientprotocol.com/protocol/v2/prompt-lifecycle; recordings of claude-agent-acp 0.101.0 and codex-acp 2.6.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from universal.agents.acp import version2
from universal.agents.acp.context import Msg
from universal.agents.acp.ends import ACCEPT_S, END, End
from universal.agents.acp.turns import Connection, Turns
from universal.codec import Output, Prompt, SetTimer
from universal.items import Json
from universal.lib.jsonline import digest, get_text
from universal.lib.jsonrpc import Notification, Request, Response
from universal.lib.jsonvalue import arr, obj

IGNORED: dict[str, str] = {
    "compaction_summary_chunk": "what is left of a compacted conversation; the agent's own matter",
    "session_message": "a message between subagents",
    "session_message_chunk": "a message between subagents",
}
"""Updates that are known and not used, and why."""
ECHOES = ("user_message", "user_message_chunk")
WORK = ("running", "requires_action")
TOOLS = ("tool_call_update", "tool_call_content_chunk", "terminal_update", "terminal_output_chunk")


class Turns2(Turns):
    """The turns of one session of an agent that answered version 2."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._accepted = False
        """The agent has taken over the prompt that is at work."""
        self._unaccepted: End | None = None
        """An end of work before the prompt was accepted. It is that of the prompt if nothing more comes."""
        self._worked = False
        """The agent has said that it works since the last turn ended."""
        self._began_itself = False
        """A turn is open for work that the agent began."""
        self._message_id = ""
        """The message of the last piece."""
        self._terminals = version2.Terminals()
        self._children: set[str] = set()
        """Sessions of subagents."""

    @property
    def _is_announced(self) -> bool:
        return self._running is not None or self._began_itself

    def write(self, prompt: Prompt) -> Iterator[Output]:
        self._accepted = self._worked = False
        self._unaccepted = None
        yield from super().write(prompt)

    # --- begin and end of a turn ----------------------------------------------------------------------

    def on_prompt_answer(self, msg: Response) -> Iterator[Output]:
        """Handle the answer to a prompt: it is accepted, or there is no turn for it."""
        if msg.id != self._running:
            self._conn.ctx.ignore("answer to a prompt that is over")
        elif msg.is_error:
            yield from self._finish({}, self._response_error(msg.error), msg.raw)
        elif get_text(obj(msg.result), "stopReason"):  # as in version 1: it will not say it again
            yield from self._finish(obj(msg.result), None, msg.raw)
        else:
            yield from self._accept()

    def _accept(self) -> Iterator[Output]:
        self._accepted = True
        if self._unaccepted is not None:
            self._unaccepted = None
            yield SetTimer(END, None)

    def on_timer(self) -> Iterator[Output]:
        """End a turn of which nothing has come for a while."""
        if self._unaccepted is not None and self._running is not None:
            end, self._unaccepted = self._unaccepted, None
            yield from self._finish(end.result, end.error, end.raw)
        yield from super().on_timer()

    def _on_state(self, update: Msg, raw: Json) -> Iterator[Output]:
        state = get_text(update, "state")
        if state in WORK:
            self._worked = True
            if self._unaccepted is not None:
                self._unaccepted = None
                yield SetTimer(END, None)
            if self._ending is not None:
                yield from self.end_now()
            if not self._is_announced:
                yield from self._begin_itself()
        elif state == "idle":
            yield from self._on_idle(update, raw)
        else:
            self._conn.ctx.ignore(f"state {state or 'without name'}")

    def _begin_itself(self) -> Iterator[Output]:
        """Begin a turn for work that the agent began without a prompt of ours."""
        if self._own:  # it has said something already
            yield SetTimer(END, None)
        else:
            self._conn.talk.begin()
            yield from self._begin_own()
        self._own, self._began_itself = False, True

    def _on_idle(self, update: Msg, raw: Json) -> Iterator[Output]:
        reason = get_text(update, "stopReason")
        error = self._response_error(obj(update.get("error"))) if reason == "error" else None
        if not self._is_announced:
            self._conn.ctx.ignore("idle outside of a turn")
            yield from self.end_own_work()
        elif self._running is not None and not self._accepted:
            self._worked = False
            self._conn.ctx.ignore("idle before the prompt was accepted")
            if reason:
                self._unaccepted = End(update, error, raw)
                yield SetTimer(END, ACCEPT_S)
        elif not reason and not self._worked:
            self._conn.ctx.ignore("idle as a snapshot")
        else:
            yield from self._finish(update, error, raw)

    def _finish(self, result: Msg, error: Msg | None, raw: Json) -> Iterator[Output]:
        is_for_prompt = self._running is not None
        self._running = None
        self._accepted = self._worked = self._began_itself = False
        yield from self._begin_end(End(result, error, raw, is_for_prompt))

    def end_now(self) -> Iterator[Output]:
        """End a turn that seems to be over, or that the agent began."""
        self._own, self._began_itself = self._own or self._began_itself, False
        yield from super().end_now()

    # --- what the agent says --------------------------------------------------------------------------

    def on_update(self, msg: Notification, line: bytes) -> Iterator[Output]:
        """Handle `session/update`. An unknown kind is reported as `agent.unparsed`. Kinds that begin with `_` are ignored."""
        update = obj(msg.params.get("update"))
        kind = get_text(update, "sessionUpdate")
        session_id = get_text(msg.params, "sessionId")
        ctx = self._conn.ctx
        if kind in IGNORED or kind.startswith("_"):
            ctx.ignore(kind)
        elif self._is_foreign(session_id) and not (session_id in self._children and kind in TOOLS):
            ctx.ignore("update of another session")
        elif kind in self.TELLS:
            yield from self.TELLS[kind](self, update, msg.raw)
        elif kind not in self.SPEAKS:
            yield ctx.report_unparsed(kind or "update without kind", "unknown session update", msg.raw, digest(line))
        elif self._is_announced:
            yield from self.SPEAKS[kind](self, update, msg.raw)
        else:
            yield from self._speak(kind, update, msg.raw)

    def _is_foreign(self, session_id: str) -> bool:
        return bool(self._conn.session and session_id and session_id != self._conn.session)

    def _echo(self, update: Msg, raw: Json) -> Iterator[Output]:
        """Handle the agent's echo of the prompt, which means that the prompt is accepted."""
        self._conn.ctx.ignore(get_text(update, "sessionUpdate"))
        yield from self._accept()

    def on_chunk(self, update: Msg, raw: Json) -> Iterator[Output]:
        """A piece of what the agent says. Some agents say an error as a message of its own, and tell it with `idle` again."""
        message = get_text(update, "messageId")
        is_new, self._message_id = message != self._message_id, message
        if is_new and self._conn.profile.id_less_errors:
            yield from self._settle_suspect(None)
            self._suspect = update
        else:
            yield from super().on_chunk(update, raw)

    def _message(self, update: Msg, raw: Json) -> Iterator[Output]:
        """A whole message. One without `content` changes nothing that is shown."""
        if "content" not in update:
            self._conn.ctx.ignore("message without content")
            return
        yield from self._settle_suspect(None)
        kind = "reasoning" if update.get("sessionUpdate") == "agent_thought" else "text"
        blocks = [obj(block) for block in arr(update["content"])]
        yield from self._conn.talk.replace(kind, blocks, get_text(update, "messageId"), raw)

    def _tool(self, update: Msg, raw: Json) -> Iterator[Output]:
        yield from self._settle_suspect(None)
        update = self._conn.talk.ids.address(version2.tool_update(update))
        yield from self._conn.talk.tool(self._terminals.attach(update), raw)

    def _tool_content(self, update: Msg, raw: Json) -> Iterator[Output]:
        call = self._call_of(update)
        blocks = version2.content_blocks(obj(update.get("content")))
        content = [*(call.content if call else []), *blocks]
        yield from self._tool({"toolCallId": update.get("toolCallId"), "content": content}, raw)

    def _terminal(self, update: Msg, raw: Json) -> Iterator[Output]:
        chunk = update.get("sessionUpdate") == "terminal_output_chunk"
        for patch in self._terminals.on_chunk(update) if chunk else self._terminals.on_update(update):
            call = self._call_of(patch)
            if call is None:
                self._conn.ctx.ignore("output of a call that is over")
                continue
            yield from self._conn.talk.tool(patch, raw)
            call.terminal = self._terminals.text_of(call.call_id) or call.terminal

    # --- status ---------------------------------------------------------------------------------------

    def _plan(self, update: Msg, raw: Json) -> Iterator[Output]:
        removed = update.get("sessionUpdate") == "plan_removed"
        plan: Msg = {"type": "items", "entries": []} if removed else obj(update.get("plan"))
        if get_text(plan, "type") == "items":
            yield from self._conn.notes.plan(plan, raw)
        else:
            self._conn.ctx.ignore(f"plan of type {get_text(plan, 'type') or 'none'}")

    def _notice(self, update: Msg, raw: Json) -> Iterator[Output]:
        texts = [text for text in (get_text(update, "title"), get_text(update, "description")) if text]
        yield self._conn.ctx.note("\n".join(texts), raw)

    def _compaction(self, update: Msg, raw: Json) -> Iterator[Output]:
        yield from self._conn.notes.compaction(update, raw)

    def _subagent(self, update: Msg, raw: Json) -> Iterator[Output]:
        self._children.add(get_text(update, "sessionId"))
        self._conn.ctx.ignore("subagent_update")
        yield from ()

    # --- what the agent asks --------------------------------------------------------------------------

    def on_request(self, msg: Request, line: bytes) -> Iterator[Output]:
        """Handle a request of the agent. Version 2 has no files and terminals of the client."""
        if msg.method == "session/request_permission":
            yield from self._on_ask(Request(msg.id, msg.method, version2.permission_params(msg.params), msg.raw))
        elif msg.method == "elicitation/create":
            yield from self._on_ask(msg)
        else:
            yield from self._refuse(msg, line)

    SPEAKS: ClassVar[dict[str, Callable[[Any, Msg, Json], Iterator[Output]]]] = {
        "agent_message_chunk": on_chunk,
        "agent_thought_chunk": Turns.on_thought,
        "agent_message": _message,
        "agent_thought": _message,
        "tool_call_update": _tool,
        "tool_call_content_chunk": _tool_content,
        "terminal_update": _terminal,
        "terminal_output_chunk": _terminal,
    }
    TELLS: ClassVar[dict[str, Callable[[Any, Msg, Json], Iterator[Output]]]] = {
        **{kind: handler for kind, handler in Turns.TELLS.items() if kind not in ("plan", "current_mode_update")},
        **dict.fromkeys(ECHOES, _echo),
        "state_update": _on_state,
        "plan_update": _plan,
        "plan_removed": _plan,
        "notice": _notice,
        "compaction_update": _compaction,
        "subagent_update": _subagent,
    }
