"""Keeps the open requests of Claude (permissions, questions, plans), and its calls that wait for our hook (`ToolCheck`).

Each request gets exactly one `resolved`: by our reply, by Claude's withdrawal, or at the end of the process. A check that no rule
concerns (`proceed`) gets none. Answers never have `updatedPermissions`: the server keeps grants, and Claude writes none into the
user's project.

The hook is `PreToolUse`. Claude waits for it before each call, in every mode and in subagents, before its own rules. A `deny`
always holds. An `allow` replaces Claude's own question in most modes, but not for `permissions.ask` of its settings and in plan
mode; its `permissions.deny` still holds. After the hook's timeout, Claude does not make the call.
Source: recordings `*_ask_*`, `question*`, `plan`, `interrupt_ask`, `checked`; runs of 2.1.197 and 2.1.330.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from universal.agents import kit
from universal.agents.claude.speech import Call, Context
from universal.agents.claude.tools import PLAN_OPTIONS, answer_map, input_diff, read_questions, title_of
from universal.agents.claude.wire import Msg, control_answer, get_text
from universal.claude_code import UNCHECKED, access_metadata
from universal.codec import FilesChanged, Output, PermissionReply, QuestionReply, ToolCheck
from universal.items import Json
from universal.lib.jsonvalue import obj
from universal.lib.jsonvalue import text as as_text

_NO_REASON = "The user doesn't want to proceed with this tool use."
_ALLOWED = "A person has allowed this call."
_NO_ANSWER = "The user did not answer."
_KEEP_PLANNING = "The user wants to keep planning. Do not start yet."


HOOK_S = 2_000_000
"""Timeout in seconds of the hook: a person may think for weeks. Claude counts milliseconds in 31 bits."""
SHELL_HOOK = "PreSkillShellCommand"
"""The hook before each shell line of a command or skill, from 2.1.332 on. An older version takes no notice of it."""
HOOKS: Json = {
    "PreToolUse": [{"matcher": "*", "hookCallbackIds": ["permission"], "timeout": HOOK_S}],
    SHELL_HOOK: [{"matcher": "*", "hookCallbackIds": ["shell"], "timeout": HOOK_S, "onFailure": "block"}],
}
"""`hooks` of `initialize`: all calls, and shell lines of commands and skills, wait for our answer."""
EDITS_HOOK = "PostToolUse"
"""The hook behind a call. Claude gives its model the result after our answer."""
EDIT_HOOKS: Json = {EDITS_HOOK: [{"matcher": "Edit|MultiEdit|Write", "hookCallbackIds": ["edit"], "timeout": HOOK_S}]}
"""`hooks` beside `HOOKS` where there are formatters."""


@dataclass(slots=True, kw_only=True)
class _Ask(kit.Ask):
    """An open request of the CLI."""

    request_id: str
    arguments: Msg
    call: Call | None
    hook: str = ""
    """The hook that a call, or a shell line, waits for."""
    form: Msg | None = None
    """The fields of a form of an MCP server; {} for one without fields, or a link."""


@dataclass(slots=True)
class Asks:
    """The open asks of one process."""

    ctx: Context
    _asks: kit.OpenAsks[_Ask] = field(default_factory=kit.OpenAsks[_Ask])
    _approved: dict[str, Msg] = field(default_factory=dict[str, Msg])
    """Calls that a person has allowed at the hook, with their arguments. Claude may ask about them again."""
    directory: str = ""
    _checked: dict[str, str] = field(default_factory=dict[str, str])
    """Calls without a result that have waited for the hook -> where they run, if that is not the session's directory."""
    _edits: set[str] = field(default_factory=set[str])
    """Requests of Claude that wait behind an edit."""

    def check(self, msg: Msg, call: Call | None, child: str | None) -> Iterator[Output]:
        """Handle a `hook_callback` request: a call, or a shell line of a command or skill, waits for our answer."""
        hook = obj(obj(msg.get("request")).get("input"))
        tool, arguments = get_text(hook, "tool_name"), obj(hook.get("tool_input"))
        event = get_text(hook, "hook_event_name")
        if event == EDITS_HOOK:
            key = get_text(msg, "request_id")
            self._edits.add(key)
            yield FilesChanged(key, (get_text(arguments, "file_path"),))
            return
        is_shell_line = event == SHELL_HOOK
        if (tool in UNCHECKED and not is_shell_line) or event not in ("PreToolUse", SHELL_HOOK):
            self.ctx.ignore("hook_callback of a call that needs no check")
            yield control_answer(get_text(msg, "request_id"), {})
            return
        call_id = "" if is_shell_line else get_text(hook, "tool_use_id")
        metadata: dict[str, Json] = {"tool": tool, "call_id": call_id, "input": arguments}
        metadata |= {**_display(tool, arguments), **access_metadata(tool, arguments)}
        if is_shell_line:
            metadata["description"] = f"A shell line of /{get_text(hook, 'command_name')}, which runs before its text is sent."
        ask = _Ask(
            ask_id=self.ctx.ids("permission"),
            request_id=get_text(msg, "request_id"),
            action=tool or "unknown",
            arguments=arguments,
            metadata=metadata,
            child=child,
            call=call,
            hook=event,
        )
        cwd = get_text(hook, "cwd").removesuffix("/")
        metadata |= {"cwd": cwd} if cwd and cwd != self.directory else {}
        self._checked |= {call_id: get_text(metadata, "cwd")} if call_id else {}
        yield ToolCheck(self._asks.begin(ask, msg))

    def proceed(self, permission_id: str) -> list[Output]:
        """Let Claude's mode decide a checked call, or go on behind an edit. [] if it is not open any more."""
        if permission_id in self._edits:
            self._edits.discard(permission_id)
            return [control_answer(permission_id, {})]
        ask = self._asks.permission(permission_id)
        if ask is None or not ask.hook:
            return []
        self._asks.drop(ask)
        return [control_answer(ask.request_id, {})]

    def ask(self, msg: Msg, call: Call | None, child: str | None) -> Iterator[Output]:
        """Handle a `can_use_tool` request. `call`: its tool call, if known."""
        request = obj(msg.get("request"))
        tool = get_text(request, "tool_name") or (call.name if call else "unknown")
        arguments = obj(request.get("input"))
        if self._approved.pop(get_text(request, "tool_use_id"), None) == arguments:
            self.ctx.ignore("can_use_tool of a call that was allowed at the hook")
            yield control_answer(get_text(msg, "request_id"), {"behavior": "allow", "updatedInput": arguments})
            return
        metadata: dict[str, Json] = {"tool": tool, "call_id": get_text(request, "tool_use_id"), "input": arguments}
        metadata |= {"cwd": cwd} if (cwd := self._checked.get(get_text(request, "tool_use_id"))) else {}
        plan = get_text(arguments, "plan") or get_text((call and call.arguments) or {}, "plan")
        questions = read_questions(tool, arguments, plan)
        if tool == "ExitPlanMode" and plan.strip():
            metadata["plan"] = plan
        is_question = tool == "ExitPlanMode" or (tool == "AskUserQuestion" and bool(questions))
        ask = _Ask(
            ask_id=self.ctx.ids("question" if is_question else "permission"),
            request_id=get_text(msg, "request_id"),
            action=tool,
            arguments=arguments,
            metadata=metadata,
            child=child,
            call=call,
            questions=questions if is_question else None,
        )
        if not is_question:
            metadata.update(_display(tool, arguments))
            metadata["title"] = get_text(request, "title") or metadata["title"]
            metadata["description"] = get_text(request, "description", "decision_reason")
            metadata.update(access_metadata(tool, arguments))
        yield self._asks.begin(ask, msg)

    def elicitation(self, msg: Msg) -> Iterator[Output]:
        """Handle `elicitation` of an MCP server: a form becomes questions; one without fields, or a link, a permission."""
        request = obj(msg.get("request"))
        tool, message = f"mcp__{get_text(request, 'mcp_server_name') or 'server'}__ask", get_text(request, "message")
        link = get_text(request, "url")
        form = {} if link else obj(obj(request.get("requested_schema")).get("properties"))
        arguments: Msg = {"message": message, **({"url": link} if link else {})}
        ask = _Ask(
            ask_id=self.ctx.ids("question" if form else "permission"),
            request_id=get_text(msg, "request_id"),
            action=tool,
            arguments=arguments,
            metadata={"tool": tool, "input": arguments, "opaque": True},  # what a server asks next is something else
            call=None,
            questions=kit.form_questions(form, message) if form else None,
            form=form,
        )
        if not form:
            ask.metadata.update({"title": message, "description": link})
        yield self._asks.begin(ask, msg)

    def reply(self, command: PermissionReply) -> list[Output]:
        ask = self._asks.permission(command.permission_id)
        if ask is None:
            return []
        if ask.form is not None:
            action = "decline" if command.decision == "reject" else "accept"
            answer: Msg = {"action": action} if action == "decline" else {"action": action, "content": {}}
            return [control_answer(ask.request_id, answer), self._asks.resolve_permission(ask, command.decision, command.message)]
        if command.decision == "reject":
            reason = command.message or _NO_REASON
            answer = _hook_answer(ask.hook, "deny", reason) if ask.hook else {"behavior": "deny", "message": reason}
            if command.stops:
                kit.note_refusal(ask.call)
                answer |= {"continue": False} if ask.hook else {"interrupt": True}
            return [control_answer(ask.request_id, answer), self._asks.resolve_permission(ask, "reject", command.message)]
        if ask.hook:
            answer = _hook_answer(ask.hook, "allow", _ALLOWED)
            if call_id := as_text(ask.metadata["call_id"]):
                self._approved[call_id] = ask.arguments
        else:
            answer = {"behavior": "allow", "updatedInput": ask.arguments}
        return [control_answer(ask.request_id, answer), self._asks.resolve_permission(ask, command.decision)]

    def answer(self, command: QuestionReply) -> list[Output]:
        ask = self._asks.question(command.question_id)
        if ask is None:
            return []
        if ask.form is not None:
            answer = {"action": "decline"} if command.answers is None else _form_answer(ask.form, command.answers)
            return [control_answer(ask.request_id, answer), self._asks.resolve_question(ask, command.answers, command.message)]
        if command.answers is None:
            reason = command.message or (_KEEP_PLANNING if ask.action == "ExitPlanMode" else _NO_ANSWER)
            if command.stops:
                kit.note_refusal(ask.call)
            denial: Msg = {"behavior": "deny", "message": reason, **({"interrupt": True} if command.stops else {})}
            return [control_answer(ask.request_id, denial), self._asks.resolve_question(ask, None, command.message)]
        answers = [list(labels) for labels in command.answers]
        if ask.call is not None:
            ask.call.answers = answers
        return [
            control_answer(ask.request_id, _decision(ask, command.answers)),
            self._asks.resolve_question(ask, command.answers),
        ]

    def withdraw(self, msg: Msg) -> Iterator[Output]:
        """Handle `control_cancel_request`: the CLI does not wait any more, after an interrupt."""
        request_id = get_text(msg, "request_id")
        ask = self._asks.find(lambda ask: ask.request_id == request_id)
        if ask is None:
            self.ctx.ignore("control_cancel_request, already answered")
            return
        yield self._asks.withdrawn(ask, msg)

    def close_call(self, call_id: str, tool: str) -> bool:
        """Note that a call has a result, and needs no answer any more. True if it should have waited for the hook and did not."""
        self._approved.pop(call_id, None)
        checked = call_id in self._checked
        self._checked.pop(call_id, None)
        return not checked and tool not in UNCHECKED

    def close(self) -> Iterator[Output]:
        """Resolve all requests, because the process has ended."""
        yield from self._asks.close()
        self._approved.clear()
        self._checked.clear()


def _hook_answer(hook: str, decision: Literal["allow", "deny"], reason: str) -> Msg:
    output = {"hookEventName": hook, "permissionDecision": decision, "permissionDecisionReason": reason}
    return {"hookSpecificOutput": output}


def _display(tool: str, arguments: Msg) -> dict[str, Json]:
    display: dict[str, Json] = {"title": title_of(tool, arguments), "description": get_text(arguments, "description")}
    diff = input_diff(tool, arguments)
    return {**display, "diff": diff} if diff else display


def _form_answer(form: Msg, answers: Sequence[Sequence[str]]) -> Msg:
    return {"action": "accept", "content": kit.form_content(form, answers)}


def _decision(ask: _Ask, answers: Sequence[Sequence[str]]) -> Msg:
    """The CLI's form of an answer. "Yes" approves a plan; any other answer goes back as the person's message."""
    if ask.action != "ExitPlanMode":
        return {"behavior": "allow", "updatedInput": {**ask.arguments, "answers": answer_map(ask.questions or (), answers)}}
    words = [word for word in (answers[0] if answers else ()) if word]
    if words[:1] == [PLAN_OPTIONS[0].label]:
        return {"behavior": "allow", "updatedInput": ask.arguments}
    feedback = ", ".join(word for word in words if word != PLAN_OPTIONS[1].label)
    return {"behavior": "deny", "message": feedback or _KEEP_PLANNING}
