"""What the Agent Client Protocol needs of us: our capabilities, ignored and refused messages, MCP servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from universal.agents import kit
from universal.setup import McpServer

Msg: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Context(kit.Context):
    """Shared by the parts of one codec."""

    model: Callable[[], Msg | None]
    """Returns `metadata.model` for items that begin now, or None."""


_INFO: Msg = {"name": "opencode-shim", "title": "opencode-shim", "version": "1"}
SESSION: Msg = {"notices": {}, "compaction": {}}
"""What we take of an agent's session beside the turns."""
ASKS: Msg = {"form": {}, "url": {}}
"""What an agent may ask a person: forms, and links to be opened."""
_CAPABILITIES: Msg = {"terminal": True, "session": SESSION, "elicitation": ASKS}
CLIENT: Msg = {
    "clientInfo": _INFO,
    "clientCapabilities": {"fs": {"readTextFile": True, "writeTextFile": True}, **_CAPABILITIES},
}
"""Fields of `initialize`. Files and terminals: `host`, ADR 14. Questions come as forms."""
WRITING_CLIENT: Msg = {
    "clientInfo": _INFO,
    "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": True}, **_CAPABILITIES},
}
"""The same for an agent that is to read its files itself."""
ENCLOSED_CLIENT: Msg = {"clientInfo": _INFO, "clientCapabilities": {"session": SESSION, "elicitation": ASKS}}
"""The same for an agent in a sandbox: what we read, wrote and ran for it would be outside."""

IGNORED: dict[str, str] = {
    "compaction_summary_chunk": "the summary, of which clients are told when it is complete",
    "user_message_chunk": "an echo of the prompt, or history",
    "_auth/status_update": "which account is used; told by claude-agent-acp and codex-acp, kept for the catalogue",
    "elicitation/complete": "the end of what a link leads to; the person says it",
    "qwen/notify/session/mode-update": "the mode, which `current_mode_update` tells too",
    "qwen/notify/session/prompt-suggestion": "what the person might say next, by Qwen Code",
}
"""Messages that are ignored, and why."""

STEER = "_session/steering"
"""A prompt for the running turn; claude-agent-acp and codex-acp have it, and say so in `_meta` of `initialize`."""
RETRYING = "_session/retrying"
"""Mistral Vibe's message that it asks the model again: {category, detail}."""
OWN_WORK_BEGINS = "_qwencode/start_turn"
"""Qwen Code's request at the beginning of work that it begins without a prompt."""
OWN_WORK_ENDS = "_qwencode/end_turn"
"""Qwen Code's message at the end of work that it began without a prompt, such as after a background agent."""

REFUSED: dict[str, str] = {
    OWN_WORK_BEGINS: "Qwen Code begins work of its own; its end is told by `_qwencode/end_turn`",
    "craft/drainMidTurnQueue": "Qwen Code asks for prompts that were sent during the turn; here they wait for its end",
}
"""Requests that are refused, and why. The agents go on without an answer."""

ABORTED: Msg = {"message": "Interrupted", "code": "aborted"}
SUSPECT = "API Error"
"""Beginning of a message of claude-agent-acp that an error response may repeat."""


def server_of(server: McpServer) -> Msg:
    """An MCP server as a session takes it. It has no field for a limit of time."""
    if server.url:
        headers = [{"name": name, "value": value} for name, value in server.headers.items()]
        return {"type": "http", "name": server.name, "url": server.url, "headers": headers}
    program, *words = server.argv
    environment = [{"name": name, "value": value} for name, value in server.environment.items()]
    return {"name": server.name, "command": program, "args": words, "env": environment}
