"""Tables of the Agent Client Protocol: what we say of ourselves, what is known and not used."""

from __future__ import annotations

import re

from universal.agents.acp.context import Msg

_CLIENT: Msg = {"name": "opencode-shim", "title": "opencode-shim", "version": "1"}
CLIENT_1: Msg = {
    "clientInfo": _CLIENT,
    "clientCapabilities": {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
        "elicitation": {"form": {}},
    },
}
"""Fields of `initialize` in version 1. Files and terminals: `host`, ADR 14. Questions come as forms."""
CLIENT_2: Msg = {"info": _CLIENT, "capabilities": {"elicitation": {"form": {}}}}
"""The same in version 2. Both are sent: which version is spoken is known with the answer only."""

IGNORED: dict[str, str] = {
    "user_message_chunk": "an echo of the prompt, or history",
    "_auth/status_update": "which account is used; told by claude-agent-acp and codex-acp, kept for the catalogue",
    "elicitation/complete": "the end of a form in a browser, which is not offered",
    "qwen/notify/session/mode-update": "the mode, which `current_mode_update` tells too",
    "qwen/notify/session/prompt-suggestion": "what the person might say next, by Qwen Code",
}
"""Known and not used, and why."""

OWN_WORK_ENDS = "_qwencode/end_turn"
"""Qwen Code has ended work that it began without a prompt, such as after a background agent."""

REFUSED: dict[str, str] = {
    "_qwencode/start_turn": "Qwen Code begins work of its own; its end is told by `_qwencode/end_turn`",
    "craft/drainMidTurnQueue": "Qwen Code asks for prompts that were sent during the turn; here they wait for its end",
}
"""Requests that are known and refused, and why. An agent does without their answer."""

ABORTED: Msg = {"message": "Interrupted", "code": "aborted"}
RETRY = re.compile(r"Retrying \(attempt (\d+)/(\d+), waiting (\d+)s\)\.\.\.\s*")
MODE_NOTE = re.compile(r"\[MODE_UPDATE\] \S+")
"""Gemini CLI's remark that a mode was set, as a message."""
PREAMBLE = re.compile(r"pi v\d+\.\d+\.\d+\n---\n.*", re.DOTALL)
"""What pi-acp says about itself after the start of a session, as a message."""
NOTE = re.compile(
    r"(Queued message \(position \d+\)\.|Starting queued message\. \(\d+ remaining\)|Retry finished, resuming\.)\s*"
)
"""pi-acp's remarks, which stand among the text."""
SUSPECT = "API Error"
"""How a message of claude-agent-acp begins that an error response may repeat."""
