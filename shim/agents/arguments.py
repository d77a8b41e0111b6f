"""Refuses launch values that an agent would take for options of its command line."""

from __future__ import annotations

from shim.lib.errors import AgentStartFailed
from universal.codec import LaunchOptions

NAMES = ("native_session_id", "model", "variant", "mode")
"""Fields of `LaunchOptions` that come from clients, agents or imported files and that codecs put into argv."""


def refuse_options(options: LaunchOptions) -> None:
    """Raise AgentStartFailed for a value with a NUL, or one that an agent could take for an option (`--flag`)."""
    for name in NAMES:
        value = getattr(options, name)
        if value and (value.startswith("-") or "\0" in value):
            raise AgentStartFailed(
                f"The agent was not started: its {name.replace('_', ' ')} is {value[:60]!r}, which looks like an option."
            )
