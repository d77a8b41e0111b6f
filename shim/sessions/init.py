"""`/init`: the agent writes AGENTS.md, the notes that coding agents read about a project. Source: recording `init` of 1.18.33."""

from __future__ import annotations

from dataclasses import replace

from shim.sessions.built_in_commands import INIT, INIT_PROMPT
from shim.sessions.manager import SessionManager
from shim.sessions.prompting import Body
from shim.sessions.submit import submit


async def init(manager: SessionManager, session_id: str, body: Body) -> str:
    """Hand the prompt over; the user message's id. Raises as `submit` does, before anything is stored."""
    branch = await manager.branch(session_id)
    text = INIT_PROMPT.format(directory=branch.session.record.directory)
    parts = [{"type": "text", "text": text}]
    message_id = await submit(manager, session_id, replace(body, parts=parts))
    branch.status("command", name=INIT, arguments="")
    return message_id
