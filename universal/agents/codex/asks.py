"""What Codex asks a person: approvals of commands, file changes and permissions; questions; forms of MCP servers.

Owns: the open asks. Each gets exactly one `resolved`: by our reply, by Codex's own (`serverRequest/resolved` without one), or
at the end of its turn (Codex says `turn/completed` before it takes the request back) or of the process.
"Always" is kept by the server alone: Codex would not ask again where a rule has come to deny the same call.
Source: recordings `*_ask_*`, `question`, `plan_mode`; the schema for permissions and elicitations (not recorded).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from universal.agents import kit
from universal.agents.codex.speech import Call, Context, Thread
from universal.agents.codex.tools import Display, bare_command, diff_of, paths_of, read_questions
from universal.agents.codex.wire import Msg
from universal.codec import Output, PermissionReply, QuestionReply, ToolCheck, WriteLine
from universal.events import Question
from universal.items import Json, ToolResultPart
from universal.lib.jsonline import get_text
from universal.lib.jsonrpc import Id, JsonRpc, Request
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text
from universal.permissions import Decision
from universal.shell import is_read_only


class AsksPerson(Protocol):
    """Whether a person is asked, or only the permission rules, since the mode allows the call."""

    def __call__(self, tool: str, *, is_escalation: bool, reads_only: bool) -> bool:
        """`is_escalation`: Codex asks for more than its sandbox allows. `reads_only`: the call changes nothing."""
        ...


_DECISIONS: dict[Decision, str] = {"accept": "accept", "accept_for_session": "accept", "reject": "decline"}
DECLINE, CANCEL = {"decision": "decline"}, {"decision": "cancel"}
"""Answers to the question about a command or a change: Codex goes on after the first, and ends its turn after the second."""
_NO_ANSWER = "The user did not answer."
OPAQUE: Msg = {"opaque": True}


@dataclass(slots=True, kw_only=True)
class _Ask(kit.Ask):
    """An open request. `shown_call` is the tool call that we show for it."""

    request_id: Id
    thread: Thread
    decide: Callable[[Decision], Json] = lambda decision: {"decision": _DECISIONS[decision]}
    answer: Callable[[kit.Answers | None, str], Json] = lambda answers, message: {"answers": {}}
    shown_call: Call | None = None


@dataclass(slots=True)
class Asks:
    """The open asks of one process."""

    ctx: Context
    rpc: JsonRpc
    asks_person: AsksPerson
    _asks: kit.OpenAsks[_Ask] = field(default_factory=kit.OpenAsks[_Ask])

    # --- from Codex -----------------------------------------------------------------------------------

    def command(self, request: Request, thread: Thread) -> Iterator[Output]:
        params = request.params
        call = thread.calls.get(get_text(params, "itemId"))
        command = bare_command(params) or (as_text(call.display.arguments.get("command")) if call else "")
        arguments: Msg = {**(call.display.arguments if call else {}), "command": command}
        network = get_text(obj(params.get("networkApprovalContext")), "host")
        reason = get_text(params, "reason") or (f"Network access to {network}" if network else "")
        actions = [obj(action) for action in arr(params.get("commandActions"))]
        reads = [get_text(action, "path") for action in actions if action.get("type") == "read" and get_text(action, "path")]
        yield from self._permission(
            request,
            thread,
            "shell",
            arguments,
            command,
            reason,
            extra={"reads": reads} if reads else None,
            is_escalation=bool(reason or params.get("additionalPermissions")),
            reads_only=bool(actions) and is_read_only(command),
        )

    def files(self, request: Request, thread: Thread) -> Iterator[Output]:
        """`item/fileChange/requestApproval`: the diff is in the item that has started."""
        call = thread.calls.get(get_text(request.params, "itemId"))
        arguments = call.display.arguments if call else {}
        title = call.display.title if call else get_text(request.params, "grantRoot")
        diff = diff_of(call.source) if call else ""
        paths = [*(paths_of(call.source) if call else ()), *filter(None, [get_text(request.params, "grantRoot")])]
        yield from self._permission(
            request,
            thread,
            "apply_patch",
            arguments,
            title,
            get_text(request.params, "reason"),
            diff=diff,
            extra={"paths": paths},
            is_escalation=bool(get_text(request.params, "grantRoot")),
        )

    def permissions(self, request: Request, thread: Thread) -> Iterator[Output]:
        """`item/permissions/requestApproval`: more than the sandbox allows, for the turn or the session."""
        permissions = obj(request.params.get("permissions"))

        def decide(decision: Decision) -> Json:
            granted = {} if decision == "reject" else {key: value for key, value in permissions.items() if value is not None}
            return {"permissions": granted, "scope": "turn"}

        reason = get_text(request.params, "reason")
        arguments: Msg = {"permissions": permissions, "cwd": get_text(request.params, "cwd")}
        wanted = kit.dumps(permissions)
        extra: Msg = {"identity": wanted}
        yield from self._permission(
            request, thread, "request_permissions", arguments, reason or wanted, reason, decide=decide, extra=extra
        )

    def elicitation(self, request: Request, thread: Thread) -> Iterator[Output]:
        """`mcpServer/elicitation/request`: a form becomes questions; one without fields, or a link, a permission."""
        params = request.params
        mode, message = get_text(params, "mode"), get_text(params, "message")
        properties = obj(obj(params.get("requestedSchema")).get("properties"))
        if mode == "openai/userVerification":
            self.ctx.ignore("mcpServer/elicitation/request, verification of the user")
            yield WriteLine(self.rpc.response(request.id, {"action": "decline", "content": None}))
            return
        about = obj(params.get("_meta"))
        server = get_text(params, "serverName") or "server"
        if about.get("codex_approval_kind") == "mcp_tool_call" and get_text(about, "tool_name"):
            tool, is_call = f"mcp__{server}__{get_text(about, 'tool_name')}", True
        else:
            tool, is_call = f"mcp__{server}__ask", False
        if not properties:

            def decide(decision: Decision) -> Json:
                accepted = decision != "reject"
                return {"action": "accept" if accepted else "decline", "content": {} if accepted else None}

            arguments: Msg = {"message": message, **({"url": params["url"]} if get_text(params, "url") else {})}
            if is_call:
                arguments = obj(about.get("tool_params"))
            extra = None if is_call else OPAQUE  # what a server asks next is something else
            link = get_text(params, "url")
            yield from self._permission(request, thread, tool, arguments, message, link, decide=decide, extra=extra)
            return
        questions = kit.form_questions(properties, message)

        def answer(answers: kit.Answers | None, _message: str) -> Json:
            if answers is None:
                return {"action": "decline", "content": None}
            return {"action": "accept", "content": kit.form_content(properties, answers)}

        yield from self._question(request, thread, tool, {"message": message}, questions, answer, None)

    def question(self, request: Request, thread: Thread) -> Iterator[Output]:
        """`item/tool/requestUserInput`. Codex makes no item of it, so its tool call is ours."""
        rows = [obj(row) for row in arr(request.params.get("questions"))]
        questions = read_questions(rows)
        if not questions:
            self.ctx.ignore("item/tool/requestUserInput without questions")
            yield WriteLine(self.rpc.response(request.id, {"answers": {}}))
            return

        def answer(answers: kit.Answers | None, message: str) -> Json:
            """A rejection has no form of its own: its reason takes the place of the answers."""
            reason = [(message,)] * len(rows) if message else ()
            pairs = zip(rows, reason if answers is None else answers, strict=False)
            return {"answers": {get_text(row, "id"): {"answers": list(labels)} for row, labels in pairs}}

        call_id = get_text(request.params, "itemId") or f"question_{request.id}"
        arguments: Msg = {"questions": rows}
        display = Display("request_user_input", arguments, questions[0].question)
        for fact in thread.call(call_id, display, {}, request.raw):
            yield fact._replace(synthetic=True)
        yield from self._question(request, thread, "request_user_input", arguments, questions, answer, thread.calls.get(call_id))

    def _permission(
        self,
        request: Request,
        thread: Thread,
        tool: str,
        arguments: Msg,
        title: str,
        description: str,
        *,
        diff: str = "",
        decide: Callable[[Decision], Json] | None = None,
        extra: Msg | None = None,
        is_escalation: bool = False,
        reads_only: bool = False,
    ) -> Iterator[Output]:
        metadata: dict[str, Json] = {"tool": tool, "call_id": get_text(request.params, "itemId"), "input": arguments}
        metadata |= {"title": title, "description": description, **(extra or {})}
        if diff:
            metadata["diff"] = diff
        ask = _Ask(
            ask_id=self.ctx.ids("permission"),
            action=tool,
            metadata=metadata,
            child=thread.child,
            request_id=request.id,
            thread=thread,
        )
        ask.decide = decide or ask.decide
        fact = self._asks.begin(ask, request.raw)
        yield fact if self.asks_person(tool, is_escalation=is_escalation, reads_only=reads_only) else ToolCheck(fact)

    def _question(
        self,
        request: Request,
        thread: Thread,
        tool: str,
        arguments: Msg,
        questions: tuple[Question, ...],
        answer: Callable[[kit.Answers | None, str], Json],
        shown_call: Call | None,
    ) -> Iterator[Output]:
        call_id = shown_call.call_id if shown_call is not None else get_text(request.params, "itemId")
        metadata: dict[str, Json] = {"tool": tool, "call_id": call_id, "input": arguments}
        ask = _Ask(
            ask_id=self.ctx.ids("question"),
            action=tool,
            metadata=metadata,
            child=thread.child,
            questions=questions,
            request_id=request.id,
            thread=thread,
            answer=answer,
            shown_call=shown_call,
        )
        yield self._asks.begin(ask, request.raw)

    # --- our answers ----------------------------------------------------------------------------------

    def reply(self, command: PermissionReply) -> Iterator[Output]:
        """Our answer to a permission; nothing when it is not open any more. Codex has no channel for the message of a
        rejection, so people alone read it."""
        ask = self._asks.permission(command.permission_id)
        if ask is None:
            return
        answer = ask.decide(command.decision)
        if command.stops and answer == DECLINE:
            answer = CANCEL
        call = ask.thread.calls.get(get_text(ask.metadata, "call_id"))
        if call is not None and command.decision == "reject":
            call.refusal = command.message or ""
        yield WriteLine(self.rpc.response(ask.request_id, answer))
        yield self._asks.resolve_permission(ask, command.decision, command.message)

    def proceed(self, permission_id: str) -> list[Output]:
        ask = self._asks.take_permission(permission_id)
        return [] if ask is None else [WriteLine(self.rpc.response(ask.request_id, ask.decide("accept")))]

    def answer(self, command: QuestionReply) -> Iterator[Output]:
        ask = self._asks.question(command.question_id)
        if ask is None:
            return
        yield WriteLine(self.rpc.response(ask.request_id, ask.answer(command.answers, command.message or "")))
        yield self._asks.resolve_question(ask, command.answers, command.message)
        yield from self._answer_result(ask, command.answers, command.message or _NO_ANSWER)

    def _answer_result(self, ask: _Ask, answers: kit.Answers | None, reason: str = _NO_ANSWER) -> Iterator[Output]:
        """The result of the call that we showed for a question."""
        call = ask.shown_call
        if call is None or call.call_id not in ask.thread.calls:
            return
        words = reason if answers is None else "\n".join(", ".join(labels) for labels in answers)
        metadata: dict[str, Json] = {} if answers is None else {"answers": [list(labels) for labels in answers]}
        outcome = kit.Result((ToolResultPart(call_id=call.call_id, output=words),), metadata, failed=answers is None)
        yield ask.thread.result(call, outcome, None)

    # --- withdrawn ------------------------------------------------------------------------------------

    def on_resolved(self, request_id: Json, raw: Msg) -> Iterator[Output]:
        """`serverRequest/resolved`: follows each answer of ours; without one, Codex wants none any more."""
        ask = self._asks.find(lambda ask: ask.request_id == request_id)
        if ask is None:
            self.ctx.ignore("serverRequest/resolved, already answered")
            return
        yield from self._withdraw(ask, raw)

    def close(self, thread: Thread | None = None) -> Iterator[Output]:
        """A thread's turn, or the process (None), is over: nobody waits for an answer."""
        for ask in self._asks:
            if thread is None or ask.thread is thread:
                yield from self._withdraw(ask, None)

    def _withdraw(self, ask: _Ask, raw: Json) -> Iterator[Output]:
        yield self._asks.withdrawn(ask, raw)
        if ask.is_question:
            yield from self._answer_result(ask, None)
