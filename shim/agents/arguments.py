"""No value of a request becomes an option of an agent's command line."""

from __future__ import annotations

from shim.errors import AgentStartFailed
from universal.codec import LaunchOptions

NAMES = ("native_session_id", "model", "variant", "mode")
"""Fields of `LaunchOptions` that come from clients, agents or imported files and that codecs put into argv."""


def refuse_options(options: LaunchOptions) -> None:
    """Raises AgentStartFailed for a value that an agent could take for an option of its own (`--flag`), or that has a NUL."""
    for name in NAMES:
        value = getattr(options, name)
        if value and (value.startswith("-") or "\0" in value):
            raise AgentStartFailed(
                f"The agent was not started: its {name.replace('_', ' ')} is {value[:60]!r}, which looks like an option."
            )
