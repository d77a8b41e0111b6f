"""Builders of Claude Code's output lines, for tests without a recording. The shapes are those of the recordings."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from shim.sessions.session.session_state import SessionState
from tests.support.replay import Replay, codec_of, encode
from universal.agents.claude.wire import prompt_uuid
from universal.codec import Command, Fact, Prompt, ToolCheck, WriteLine
from universal.launch import LaunchOptions

Msg = dict[str, Any]


def init(**more: Any) -> Msg:
    return {
        "type": "system",
        "subtype": "init",
        "session_id": "s1",
        "model": "claude-opus-5-5",
        "permissionMode": "default",
        **more,
    }


def state(name: str) -> Msg:
    return {"type": "system", "subtype": "session_state_changed", "state": name}


def status_requesting() -> Msg:
    return {"type": "system", "subtype": "status", "status": "requesting"}


def lifecycle(key: str, name: str) -> Msg:
    return {"type": "command_lifecycle", "command_uuid": prompt_uuid(key), "state": name}


def result(**more: Any) -> Msg:
    ended = {"subtype": "success", "is_error": False, "stop_reason": "end_turn", "terminal_reason": "completed"}
    return {"type": "result", **ended, "result": "Done!", "total_cost_usd": 0.0, "usage": {}, **more}


def abort_result(**more: Any) -> Msg:
    return result(subtype="error_during_execution", is_error=True, result=None, terminal_reason="aborted_tools", **more)


def assistant(*blocks: Msg, id: str = "msg_1", parent: str | None = None, **more: Any) -> Msg:
    message = {
        "id": id,
        "role": "assistant",
        "model": "claude-opus-5-5",
        "content": list(blocks),
        "stop_reason": None,
        "usage": {},
    }
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent, **more}


def text(words: str) -> Msg:
    return {"type": "text", "text": words}


def tool_use(id: str, name: str, **arguments: Any) -> Msg:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def tool_result(id: str, output: Any, structured: Any = None, *, parent: str | None = None, error: bool = False) -> Msg:
    block = {"type": "tool_result", "tool_use_id": id, "content": output, "is_error": error}
    line = {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": parent}
    return line if structured is None else {**line, "tool_use_result": structured}


def says(words: str, *, parent: str | None = None, **more: Any) -> Msg:
    return {"type": "user", "message": {"role": "user", "content": [text(words)]}, "parent_tool_use_id": parent, **more}


def task_started(task: str, call: str, *, kind: str = "local_agent", **more: Any) -> Msg:
    about = {"description": "look around", "subagent_type": "general-purpose", "prompt": "say what you see"}
    return {"type": "system", "subtype": "task_started", "task_id": task, "tool_use_id": call, "task_type": kind, **about, **more}


def task_over(task: str, call: str, status: str = "completed", summary: str = "Done!") -> Msg:
    ended = {"status": status, "summary": summary}
    return {"type": "system", "subtype": "task_notification", "task_id": task, "tool_use_id": call, **ended}


def can_use(request_id: str, tool: str, call: str = "toolu_1", **request: Any) -> Msg:
    asked = {"subtype": "can_use_tool", "tool_name": tool, "tool_use_id": call, "input": {}, **request}
    return {"type": "control_request", "request_id": request_id, "request": asked}


def hook(
    request_id: str,
    tool: str,
    call: str = "toolu_1",
    *,
    agent_id: str = "",
    mode: str = "default",
    cwd: str = "",
    **arguments: Any,
) -> Msg:
    """A call that waits for our hook."""
    asked = {"hook_event_name": "PreToolUse", "permission_mode": mode, "tool_name": tool, "tool_input": arguments}
    asked |= {
        "tool_use_id": call,
        **({"cwd": cwd} if cwd else {}),
        **({"agent_id": agent_id, "agent_type": "general-purpose"} if agent_id else {}),
    }
    request = {"subtype": "hook_callback", "callback_id": "permission", "input": asked, "tool_use_id": call}
    return {"type": "control_request", "request_id": request_id, "request": request}


def cancel(request_id: str) -> Msg:
    return {"type": "control_cancel_request", "request_id": request_id}


class Story(Replay):
    """A codec and its machines; `hears` lines of Claude, `does` commands of ours."""

    def __init__(self, **options: Any) -> None:
        super().__init__("claude", codec_of("claude"))
        self._numbers = count(1)
        given = {"binary": "/bin/claude", "directory": "/project", **options}
        self.spec = self.codec.launch(LaunchOptions(**given))

    def hears(self, *lines: Msg) -> list[Msg]:
        """Feed lines; what was written in return."""
        before = len(self.written_lines())
        for line in lines:
            self.receive(encode(line))
        return self.written_lines()[before:]

    def does(self, command: Command) -> list[Msg]:
        """Give a command; what was written."""
        outputs = self.codec.send(command)
        self.take(outputs)
        return [json.loads(out.data) for out in outputs if isinstance(out, WriteLine)]

    def prompts(self, words: str = "hello", **more: Any) -> list[Msg]:
        """Prompt as a session does: its machine first. Keys are p1, p2 ..."""
        key = f"p{next(self._numbers)}"
        prompt = Prompt(key, words, **more)
        self.give(prompt)
        return self.does(prompt)

    def keep(self, state: SessionState, fact: Fact) -> None:
        """Tests look at what the codec says, not at the journal."""

    def dispatch(self, prompt: Prompt) -> None:
        """`prompts` gives the prompt at once."""

    def interrupt(self) -> None:
        """A test gives the command itself."""

    def check(self, check: ToolCheck) -> None:
        """A test answers itself."""

    def answers(self, request: Msg, **response: Any) -> list[Msg]:
        """Claude's answer to a control request of ours."""
        answer = {"subtype": "success", "request_id": request["request_id"], **response}
        return self.hears({"type": "control_response", "response": answer})
