"""Slash commands: the person's own (templates of the config) and the agent's. Source: recording `command` of 1.18.33."""

from __future__ import annotations

import asyncio
import mimetypes
import re
import shlex
from dataclasses import replace
from pathlib import Path

from shim.errors import BadRequest
from shim.opencode.build import Wire
from shim.projection.opencode1.catalog import Template
from shim.runtime.environment import child_environment
from shim.runtime.shell import ShellCommand
from shim.sessions.manager import SessionManager
from shim.sessions.prompting import Body, choose
from shim.sessions.submit import submit

SHELL_TIMEOUT_S = 30.0
"""For one !`command` in a template."""
_NUMBERED = re.compile(r"\$(\d+)")
_SHELL = re.compile(r"!`([^`]+)`")
_FILE = re.compile(r"(?<![\w`])@(\.?[^\s`,.]*(?:\.[^\s`,.]+)*)")


def fill(template: str, arguments: str) -> str:
    """Put the arguments in: `$1`.. one word each (the last one all that is left), `$ARGUMENTS` all; else at the end."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        words = arguments.split()
    numbers = [int(n) for n in _NUMBERED.findall(template)]
    last = max(numbers, default=0)

    def word(match: re.Match[str]) -> str:
        number = int(match.group(1))
        if number == 0 or number > len(words):
            return ""
        return " ".join(words[number - 1 :]) if number == last else words[number - 1]

    filled = _NUMBERED.sub(word, template).replace("$ARGUMENTS", arguments)
    if not numbers and "$ARGUMENTS" not in template and arguments.strip():
        filled += "\n\n" + arguments
    return filled


async def command(
    manager: SessionManager,
    commands: tuple[Template, ...],
    session_id: str,
    name: str,
    arguments: str,
    body: Body,
    *,
    second: Wire | None = None,
) -> str:
    """Run it as a prompt; the user message's id. `second` as for `submit`.

    Raises BadRequest for an unknown command, with those that there are.
    """
    actor = await manager.actor(session_id)
    branch = actor.main
    own = next((c for c in commands if c.name == name), None)
    if own is not None:
        body = await _expand(manager, actor.directory, own, arguments, body)
    else:
        choice = await choose(manager.deps.agents, branch.conversation, body)
        native = [c.name for c in choice.agent.catalogue.commands]
        if name not in native:
            known = ", ".join([c.name for c in commands] + native)
            raise BadRequest(f'Command not found: "{name}". Available commands: {known}')
        text = f"/{name} {arguments}".rstrip()
        body = replace(body, parts=[{"type": "text", "text": text}, *body.parts])
    message_id = await submit(manager, session_id, body, second=second)
    branch.status("command", name=name, arguments=arguments)
    return message_id


async def _expand(manager: SessionManager, directory: str, own: Template, arguments: str, body: Body) -> Body:
    text = fill(own.template, arguments)
    for line in dict.fromkeys(_SHELL.findall(text)):
        text = text.replace(f"!`{line}`", await _output_of(line, directory, manager))
    parts: list[Wire] = [{"type": "text", "text": text}]
    parts += await asyncio.to_thread(_files_in, text, directory)
    if own.subtask:
        parts = [
            {
                "type": "subtask",
                "prompt": text,
                "description": own.description or own.name,
                "agent": own.agent or "general",
                "command": own.name,
            }
        ]
    model = body.model
    if own.model and model is None:
        provider, _, model_id = own.model.partition("/")
        model = {"providerID": provider, "modelID": model_id}
    mode = body.mode if own.subtask else own.agent or body.mode
    return replace(body, parts=[*parts, *body.parts], model=model, mode=mode)


def _files_in(text: str, directory: str) -> list[Wire]:
    """File parts for each `@path` that is a file."""
    parts: list[Wire] = []
    for path in dict.fromkeys(_FILE.findall(text)):
        file = Path(directory, path)
        if path and file.is_file():
            mime = mimetypes.guess_type(path)[0] or "text/plain"
            mime = mime if mime.startswith("image/") or mime == "application/pdf" else "text/plain"
            parts.append({"type": "file", "mime": mime, "filename": path, "url": f"file://{file}"})
    return parts


async def _output_of(line: str, directory: str, manager: SessionManager) -> str:
    output: list[str] = []
    environment = child_environment(manager.deps.agents.environment(), {})
    run = ShellCommand(line, directory, environment, output.append)
    try:
        async with asyncio.timeout(SHELL_TIMEOUT_S):
            await run.run()
    except TimeoutError:
        run.stop()
        output.append(f"({line} did not end within {SHELL_TIMEOUT_S:g} s)")
    except OSError as error:
        output.append(f"({line}: {error.strerror or error})")
    return "".join(output)
