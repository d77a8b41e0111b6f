"""Names that a slash command of an agent may not have: those of the clients' own commands, and those that would break a session.

A client lists its own commands and the server's in one list. Where both have a name, Enter may send the wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping

from shim.agents.client_commands import FOUND

BY_HAND: Mapping[str, str] = {
    "details": "OpenCode's TUI, by its documentation",
    "init": "offered by the server itself, as by native (`shim.sessions.prompts.built_in_commands`)",
    "pair": "OpenCode 2's TUI, by its public source",
    "restart": "OpenCode 2's TUI, by its public source",
    "review": "offered by the server itself, as by native (`shim.sessions.prompts.built_in_commands`)",
    "settings": "OpenCode 2's TUI, by its public source",
}
"""Name -> who has it. These cannot be found by tools/client_commands.py."""

RESERVED: frozenset[str] = frozenset(BY_HAND).union(*FOUND.values())
"""An agent's command of such a name is offered as `AGENT:NAME`."""

_ENDS = "It would end the agent in the middle of the session. Leave your client instead."
_LOGIN = "It concerns the login of all sessions with this agent. Use the agent's own program in a terminal."

BREAKING: Mapping[str, str] = {
    "exit": _ENDS,
    "quit": _ENDS,
    "clear": "The agent would forget what the session still shows. Begin a new session instead.",
    "login": _LOGIN,
    "logout": _LOGIN,
}
"""Command that no agent is sent -> why, and what to do instead. `AgentSpec.withheld_commands` has those of one agent."""
