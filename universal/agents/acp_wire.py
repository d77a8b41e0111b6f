"""Tables of the Agent Client Protocol: what we announce, what is known and not used, what is refused."""

from __future__ import annotations

import re

from universal.agents.acp_context import Msg

CLIENT: Msg = {"name": "opencode-shim", "title": "opencode-shim", "version": "1"}
CAPABILITIES: Msg = {
    "fs": {"readTextFile": False, "writeTextFile": False},
    "terminal": False,
    "elicitation": {"form": {}},
}
"""`clientCapabilities`. Agents read and write files and run commands themselves; questions come as forms."""

IGNORED: dict[str, str] = {
    "user_message_chunk": "an echo of the prompt, or history",
    "_auth/status_update": "which account is used; told by claude-agent-acp and codex-acp, changes nothing",
    "elicitation/complete": "the end of a form in a browser, which is not offered",
}
"""Known and not used, and why."""

REFUSED: dict[str, str] = {
    "fs/read_text_file": "not announced; opencode acp asks to write all the same, and does it itself when refused",
    "fs/write_text_file": "as above",
    "terminal/create": "not announced",
    "terminal/output": "not announced",
    "terminal/wait_for_exit": "not announced",
    "terminal/kill": "not announced",
    "terminal/release": "not announced",
}
"""Requests of agents that are known and refused, and why."""

ABORTED: Msg = {"message": "Interrupted", "code": "aborted"}
RETRY = re.compile(r"Retrying \(attempt (\d+)/(\d+), waiting (\d+)s\)\.\.\.\s*")
NOTE = re.compile(
    r"(Queued message \(position \d+\)\.|Starting queued message\. \(\d+ remaining\)|Retry finished, resuming\.)\s*"
)
"""pi-acp's remarks, which stand among the text."""
SUSPECT = "API Error"
"""How a message of claude-agent-acp begins that an error response may repeat."""
