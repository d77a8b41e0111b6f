"""Keeps the open dialogs of Pi: permissions, questions, and dialogs of extensions.

Pi itself asks nothing. `gate.ts` asks before every tool call and gives the model a tool `question`. Dialogs of other extensions
become questions. Calls that the mode allows are only checked by the permission rules (`ToolCheck`). Each dialog gets exactly one
`resolved`: by our reply, by an interrupt (Pi does not stop while a dialog is open), or at the end of the process. The mode is
kept here alone: in `bypass` nothing is asked, in `accept-edits` no edit is asked.
Source: recordings `bash_ask_*`, `question`, `interrupt_ask`; `rpc-types.d.ts`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from universal.agents import kit
from universal.agents.pi.tools import input_diff, title_of
from universal.agents.pi.wire import Msg
from universal.codec import Output, PermissionReply, QuestionReply, ToolCheck
from universal.events import Question, QuestionOption
from universal.items import Json
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text
from universal.permissions import BYPASS
from universal.setup import McpServer

_GATE = re.compile(r"Allow (\S+)\? (\{.*\})", re.S)
_GATE_OPTIONS = ["Allow once", "Allow always", "Deny"]
_QUESTIONS = "Questions: "
SERVERS = "opencode-shim.mcp"
"""Title of the dialog with which `mcp.ts` asks for the MCP servers, and key of the status line that tells their states."""
_EDITS = ("edit", "write")
_READS = ("read", "grep", "find", "ls")
PLAN_NOTE = "Plan mode is on: read and think, then answer with a plan. Do not change any files."

_DECISIONS = {"accept": "Allow once", "accept_for_session": "Allow always", "reject": "Deny"}


@dataclass(slots=True, kw_only=True)
class _Ask(kit.Ask):
    """An open dialog. `form`: the answers go back together as JSON, for our tool."""

    request_id: str
    method: str
    call: kit.Call | None
    form: bool = False


@dataclass(slots=True)
class Asks:
    """The open dialogs of one process."""

    ctx: kit.Context
    calls: dict[str, kit.Call]
    mode: str = "build"
    servers: tuple[McpServer, ...] = ()
    """The MCP servers of the set-up. They go out by stdin alone."""
    hides_skills: bool = False
    """Whether Pi finds no skills by itself, because it may not offer one of them."""
    _asks: kit.OpenAsks[_Ask] = field(default_factory=kit.OpenAsks[_Ask])

    @property
    def is_open(self) -> bool:
        return bool(self._asks)

    def ask(self, msg: Msg) -> Iterator[Output]:
        """Handle a dialog: `select`, `confirm`, `input` or `editor`."""
        if msg.get("method") == "input" and get_text(msg, "title") == SERVERS:
            yield _answer(get_text(msg, "id"), value=json.dumps([_server(server) for server in self.servers]))
            return
        gate = self._gate(msg)
        if gate is None:
            yield from self._question(msg)
            return
        tool, arguments = gate
        call = self._call_of(tool, arguments)
        metadata: dict[str, Json] = {
            "tool": tool,
            "call_id": call.call_id if call else "",
            "input": arguments,
            "title": title_of(tool, arguments),
        }
        diff = input_diff(tool, arguments)
        if diff:
            metadata["diff"] = diff
        ask = _Ask(
            ask_id=self.ctx.ids("permission"),
            action=tool,
            metadata=metadata,
            request_id=get_text(msg, "id"),
            method="select",
            call=call,
        )
        fact = self._asks.begin(ask, msg)
        yield ToolCheck(fact) if self._is_let_through(tool) else fact

    def _gate(self, msg: Msg) -> tuple[str, Msg] | None:
        match = _GATE.fullmatch(get_text(msg, "title"))
        if msg.get("method") != "select" or match is None or msg.get("options") != _GATE_OPTIONS:
            return None
        arguments = read_json(match[2])
        return (match[1], obj(arguments)) if isinstance(arguments, dict) else None

    def _is_let_through(self, tool: str) -> bool:
        return tool in _READS or self.mode == BYPASS or (self.mode == "accept-edits" and tool in _EDITS)

    def proceed(self, permission_id: str) -> list[Output]:
        ask = self._asks.take_permission(permission_id)
        return [] if ask is None else [_answer(ask.request_id, value=_DECISIONS["accept"])]

    def _call_of(self, tool: str, arguments: Msg) -> kit.Call | None:
        """The call that a dialog is about. Dialogs do not name it; parallel calls differ by their arguments."""
        asked_calls = {ask.call.call_id for ask in self._asks if ask.call is not None}
        calls = [call for call in self.calls.values() if call.name == tool and call.call_id not in asked_calls]
        return next((call for call in calls if call.arguments == arguments), next(iter(calls), None))

    def _question(self, msg: Msg) -> Iterator[Output]:
        method, title = get_text(msg, "method"), get_text(msg, "title")
        form = read_json(title.removeprefix(_QUESTIONS)) if method == "input" and title.startswith(_QUESTIONS) else None
        if isinstance(form, list) and form:
            questions = tuple(_read_question(obj(row)) for row in arr(form))
        else:
            form = None
            questions = (self._dialog(msg, method, title),)
        call = self._call_of("question", {"questions": form} if form else {})
        metadata: dict[str, Json] = {"tool": "question"}
        if call is not None:
            metadata |= {"call_id": call.call_id, "input": call.arguments or {}}
        ask = _Ask(
            ask_id=self.ctx.ids("question"),
            action="question",
            metadata=metadata,
            questions=questions,
            request_id=get_text(msg, "id"),
            method=method,
            call=call,
            form=form is not None,
        )
        yield self._asks.begin(ask, msg)

    def _dialog(self, msg: Msg, method: str, title: str) -> Question:
        words = "\n\n".join(part for part in (title, get_text(msg, "message"), get_text(msg, "placeholder")) if part) or "?"
        if method == "confirm":
            return Question(question=words, options=(QuestionOption(label="Yes"), QuestionOption(label="No")), custom=False)
        options = tuple(QuestionOption(label=as_text(label)) for label in arr(msg.get("options")) if as_text(label))
        prefill = get_text(msg, "prefill")
        if prefill:
            options = (QuestionOption(label=prefill[:2000], description="As it stands"),)
        return Question(question=words, options=options, custom=method != "select")

    # --- answers --------------------------------------------------------------------------------------

    def reply(self, command: PermissionReply) -> list[Output]:
        ask = self._asks.permission(command.permission_id)
        if ask is None:
            return []
        if command.stops:
            kit.note_refusal(ask.call)
        reason = command.message if command.decision == "reject" else None
        value = f"Deny: {reason}" if reason else _DECISIONS[command.decision]
        return [_answer(ask.request_id, value=value), self._asks.resolve_permission(ask, command.decision, reason)]

    def answer(self, command: QuestionReply) -> list[Output]:
        ask = self._asks.question(command.question_id)
        if ask is None:
            return []
        if command.answers is None:
            if command.stops:
                kit.note_refusal(ask.call)
            reply = {"value": json.dumps({"rejected": command.message})} if ask.form and command.message else {"cancelled": True}
            return [_answer(ask.request_id, **reply), self._asks.resolve_question(ask, None, command.message)]
        answers = [list(labels) for labels in command.answers]
        if ask.call is not None:
            ask.call.answers = answers
        first = ", ".join(answers[0]) if answers else ""
        if ask.form:
            line = _answer(ask.request_id, value=json.dumps(answers))
        elif ask.method == "confirm":
            line = _answer(ask.request_id, confirmed=first == "Yes")
        else:
            line = _answer(ask.request_id, value=first)
        return [line, self._asks.resolve_question(ask, command.answers)]

    def cancel(self) -> Iterator[Output]:
        """Close all dialogs at an interrupt, because Pi does not stop while one is open."""
        for ask in self._asks:
            yield _answer(ask.request_id, cancelled=True)
        yield from self.close()

    def close(self) -> Iterator[Output]:
        """Resolve all dialogs, because Pi does not wait any more."""
        yield from self._asks.close()

    def call_ended(self, call_id: str) -> Iterator[Output]:
        """Note the end of a call. A dialog of it that is still open has timed out."""
        yield from self._asks.close(ask for ask in self._asks if ask.call is not None and ask.call.call_id == call_id)


def _server(server: McpServer) -> Json:
    fields = ("name", "argv", "environment", "url", "headers", "timeout_ms")
    return {name: value for name in fields if (value := getattr(server, name))}


def _answer(request_id: Json, **answer: Any) -> Output:
    return kit.write({"type": "extension_ui_response", "id": request_id, **answer})


def read_json(text: str) -> Json:
    """The value of a JSON text; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read_question(row: Msg) -> Question:
    options = [obj(option) for option in arr(row.get("options"))]
    return Question(
        question=get_text(row, "question") or "?",
        header=get_text(row, "header"),
        options=tuple(
            QuestionOption(label=get_text(option, "label"), description=get_text(option, "description"))
            for option in options
            if get_text(option, "label")
        ),
        multiple=row.get("multiple") is True,
    )
