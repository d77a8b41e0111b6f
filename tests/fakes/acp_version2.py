"""An ACP agent that speaks only version 2 of the protocol (draft of July 2026), whatever it is asked for.

A prompt is a word and what it is about:

    say TEXT       the text in two chunks
    run LINE       asks for a permission, then tells of a command with a terminal
    begin TEXT     ends its turn, then works by itself and says the text
    fail TEXT      an error after the prompt was accepted
    refuse TEXT    an error instead of the acceptance
    hang           works until it is cancelled
"""

from __future__ import annotations

import base64
import json
import sys
from itertools import count
from typing import Any

IDS = count()
SESSION = "s1"


def write(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(kind: str, /, **more: Any) -> None:
    write(method="session/update", params={"sessionId": SESSION, "update": {"sessionUpdate": kind, **more}})


def state(name: str, **more: Any) -> None:
    update("state_update", state=name, **more)


def say(text: str, message: str) -> None:
    half = len(text) // 2
    for piece in (text[:half], text[half:]):
        update("agent_message_chunk", messageId=message, content={"type": "text", "text": piece})


def wait_for(matches: Any) -> dict[str, Any]:
    """The next message of the client that matches."""
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        if matches(message):
            return message
    sys.exit(0)


def run(line: str) -> str:
    """A command that needs a permission. Returns the stop reason."""
    call = {"toolCallId": "t1", "name": "shell", "title": line, "kind": "execute", "rawInput": {"command": line}}
    update("tool_call_update", **call, status="pending")
    id_ = next(IDS)
    options = [{"optionId": kind, "name": kind, "kind": kind} for kind in ("allow_once", "reject_once")]
    subject = {"type": "tool_call", "toolCall": {"toolCallId": "t1", "status": "pending"}}
    params = {"sessionId": SESSION, "title": "Run this?", "subject": subject, "options": options}
    write(id=id_, method="session/request_permission", params=params)
    state("requires_action")
    outcome = wait_for(lambda message: message.get("id") == id_ and "method" not in message)["result"]["outcome"]
    if outcome.get("optionId") != "allow_once":
        update("tool_call_update", toolCallId="t1", status="failed")
        return "cancelled" if outcome["outcome"] == "cancelled" else "end_turn"
    state("running")
    update("terminal_update", terminalId="t1", command=line)
    update("tool_call_update", toolCallId="t1", status="in_progress", content=[{"type": "terminal", "terminalId": "t1"}])
    update("terminal_output_chunk", terminalId="t1", data=base64.b64encode(b"ran ").decode())
    update("terminal_output_chunk", terminalId="t1", data=base64.b64encode(line.encode()).decode())
    update("terminal_update", terminalId="t1", exitStatus={"exitCode": 0})
    update("tool_call_update", toolCallId="t1", status="completed")
    say("It ran.", "a2")
    return "end_turn"


def prompt(id_: Any, text: str) -> None:
    word, _, rest = text.partition(" ")
    if word == "refuse":
        write(id=id_, error={"code": -32603, "message": rest})
        return
    update("user_message", messageId="u1", content=[{"type": "text", "text": text}])
    write(id=id_, result={"messageId": "u1"})
    state("running")
    reason, more = "end_turn", {}
    if word == "run":
        reason = run(rest)
    elif word == "fail":
        reason, more = "error", {"error": {"code": -32603, "message": rest}}
    elif word == "hang":
        say("Working ...", "a1")
        wait_for(lambda message: message.get("method") == "session/cancel")
        reason = "cancelled"
    elif word == "begin":
        say("Later.", "a1")
    else:
        say(rest, "a1")
    state("idle", stopReason=reason, **more)
    if word == "begin":
        state("running")
        say(rest, "b1")
        state("idle", stopReason="end_turn")


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if method == "initialize":
            result = {"protocolVersion": 2, "info": {"name": "two", "version": "1"}, "capabilities": {"session": {"prompt": {}}}}
            write(id=id_, result=result)
        elif method == "session/new":
            write(id=id_, result={"sessionId": SESSION})
        elif method == "session/resume":
            state("idle")
            write(id=id_, result={})
        elif method == "session/prompt":
            prompt(id_, "".join(block.get("text", "") for block in message["params"]["prompt"]))
        elif id_ is not None and method:
            write(id=id_, error={"code": -32601, "message": f"Method not found: {method}"})


main()
