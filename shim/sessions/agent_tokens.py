"""The tokens by which agents of this server use its `/mcp`, one for each process of an agent (docs/delegation.md).

A token stands for the session of its process, and is good as long as that runs. It is no password: it opens `/mcp` alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from shim.lib.ids import AGENT_TOKEN
from universal.permissions import Rule
from universal.setup import McpServer

SERVER = "opencode-shim"
"""Name of the MCP server that agents get."""
WAIT_LIMIT_S = 3600
"""Maximum seconds of one `wait`."""
CALL_LIMIT_MS = (WAIT_LIMIT_S + 60) * 1000
READING_TOOLS = ("list_agents", "list_sessions", "wait", "read")
"""Tools that change nothing. They show a session what is below it, so nobody is asked unless a rule says so."""
RULES = tuple(Rule(f"{SERVER}_{name}", "*", "allow") for name in READING_TOOLS)


class AgentTokens:
    """The tokens of all running agents. In: `address` returns the URL of `/mcp`."""

    def __init__(self, address: Callable[[], str]) -> None:
        self._address = address
        self._tokens: dict[str, str] = {}
        self._sessions: dict[str, str] = {}

    def server(self, session_id: str) -> McpServer:
        """The MCP server for the process of a session, with its token, which is made when it is asked for first."""
        token = self._tokens.get(session_id)
        if token is None:
            token = self._tokens[session_id] = AGENT_TOKEN + secrets.token_hex(32)
            self._sessions[token] = session_id
        headers = {"Authorization": f"Bearer {token}"}
        return McpServer(SERVER, url=self._address(), headers=headers, timeout_ms=CALL_LIMIT_MS)

    def end(self, session_id: str) -> None:
        """The process of a session has ended, or is left to end: its token is no good any more."""
        self._sessions.pop(self._tokens.pop(session_id, ""), None)

    def session_of(self, token: str) -> str | None:
        """The session whose agent has this token; None for any other text. Its 256 bits are found by no trying."""
        return self._sessions.get(token)
