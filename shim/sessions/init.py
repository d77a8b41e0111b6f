"""`/init`: the agent writes AGENTS.md, the notes that coding agents read about a project. Source: recording `init` of 1.18.33."""

from __future__ import annotations

from shim.sessions.manager import SessionManager
from shim.sessions.prompting import Body
from shim.sessions.submit import submit

NAME = "init"
PROMPT = """Look at this project and write a file AGENTS.md in {directory}, for coding agents that will work here. It shall say:

- what the project is, in a sentence or two, and how it is laid out where that is not plain from the names
- the commands to build it, to check it, to run all tests and to run a single one; only commands that you have found in the
  project's own files, not guesses
- conventions that the code keeps to: formatting, names, imports, types, errors, tests
- traps that somebody who is new here would run into

If there is an AGENTS.md already, improve it and keep what is right in it. If there are rules for other tools (CLAUDE.md,
.cursor/rules, .cursorrules, .github/copilot-instructions.md), take over what matters. Be concrete, and stay under 150 lines."""


async def init(manager: SessionManager, session_id: str, body: Body) -> str:
    """Hand the prompt over; the user message's id. Raises as `submit` does, before anything is stored."""
    branch = await manager.branch(session_id)
    text = PROMPT.format(directory=branch.conversation.info["directory"])
    parts = [{"type": "text", "text": text}]
    message_id = await submit(manager, session_id, Body(parts, body.message_id, body.model))
    branch.status("command", name=NAME, arguments="")
    return message_id
