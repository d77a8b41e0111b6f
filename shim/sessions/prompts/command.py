"""Runs slash commands: templates and commands of the agent. Source: recording `command` of 1.18.33."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shim.agents.catalog import GENERAL
from shim.agents.command_files import merge
from shim.agents.directory import Agent
from shim.agents.offered_commands import SEPARATOR, commands, native_command, withheld
from shim.agents.sandboxes import level_of
from shim.host.files.roots import repository_of, within
from shim.host.terminals.shell_command import ShellCommand
from shim.lib import disk
from shim.lib.errors import InvalidRequest
from shim.processes.child_environment import child_environment
from shim.sessions.index.manager import SessionManager
from shim.sessions.prompts.prompt_request import CAREFUL, SUBTASK, PromptRequest, UnknownChoice, choose
from shim.sessions.prompts.server_commands import INIT, INIT_PROMPT
from shim.sessions.prompts.submit import submit
from shim.sessions.session.actor import SessionActor
from shim.sessions.session.session_state import SessionState
from universal.events import PermissionData
from universal.permissions import Action
from universal.session.values import File, ModelRef, OtherPart, Part, Text
from universal.slash_commands import ConfigCommand, SlashCommand
from universal.tools.accesses import Place, accesses_of

SHELL_TIMEOUT_S = 30.0
"""Timeout in seconds of one !`command` in a template."""
NOT_RUN = "[shell line not run: the permission rules of this project do not allow it]"
"""What the model sees in place of the output of a shell line that did not run."""
_DENIED = "A permission rule denies it."
_ASKED = "A permission rule asks about it, which cannot be done before the prompt is sent: ask for the command in your prompt."
_UNTRUSTED = (
    "Nobody has trusted this project's settings: answer the question that its next prompt asks, and send the command again."
)
_OWN_TOOLS = "opencode"
"""The agent whose table of tools has the shell by the name `bash`."""
_NUMBERED = re.compile(r"\$(\d+)")
_VARIABLE = re.compile(r"\$(?:(\d+)|ARGUMENTS)")
_SHELL = re.compile(r"!`([^`]+)`")
_FILE = re.compile(r"(?<![\w`])@(\.?[^\s`,.]*(?:\.[^\s`,.]+)*)")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a filled template: a text, or a shell line whose output replaces it."""

    text: str
    is_command: bool = False


def fill(template: str, arguments: str) -> list[Piece]:
    """Fill in the arguments: `$1`, `$2` ... are one word each (the last is the rest), `$ARGUMENTS` is all; else they are added.

    Shell lines of a template are found first, so that an argument is never one. In a shell line, arguments are shell variables,
    so that they stay data whatever quotes surround them.
    """
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

    def as_text(text: str) -> str:
        return _VARIABLE.sub(lambda match: arguments if match[1] is None else word(match), text)

    def as_variables(line: str) -> str:
        named: dict[str, str] = {}

        def variable(match: re.Match[str]) -> str:
            name = "_arguments" if match[1] is None else f"_argument_{int(match[1])}"
            named[name] = arguments if match[1] is None else word(match)
            return f"${{{name}}}"

        line = _VARIABLE.sub(variable, line)
        return "".join(f"{name}={shlex.quote(value)}\n" for name, value in named.items()) + line

    pieces: list[Piece] = []
    end = 0
    for shell in _SHELL.finditer(template):
        pieces.append(Piece(as_text(template[end : shell.start()])))
        pieces.append(Piece(as_variables(shell[1]) if _VARIABLE.search(shell[1]) else shell[1], is_command=True))
        end = shell.end()
    pieces.append(Piece(as_text(template[end:])))
    if not _VARIABLE.search(template) and arguments.strip():
        pieces.append(Piece("\n\n" + arguments))
    return pieces


class UnknownCommand(InvalidRequest):
    """The slash command does not exist. The message lists the existing ones."""


async def command(
    manager: SessionManager,
    templates: tuple[ConfigCommand, ...],
    session_id: str,
    name: str,
    arguments: str,
    body: PromptRequest,
) -> str:
    """Run a slash command as a prompt, and return the user message's id.

    Raises UnknownCommand, and InvalidRequest for a command that is withheld from the agent.
    """
    actor = await manager.actor(session_id)
    message_id = await _run(manager, actor, templates, name, arguments, body)
    (await manager.actor(session_id)).main.status("command", name=name, arguments=arguments)
    return message_id


async def _run(
    manager: SessionManager,
    actor: SessionActor,
    templates: tuple[ConfigCommand, ...],
    name: str,
    arguments: str,
    body: PromptRequest,
) -> str:
    state, session_id = actor.main, actor.main.id
    template = next((c for c in templates if c.name == name), None)
    if template is not None:
        subagents = not (template.subtask or template.agent == GENERAL.name) or await _has_subagents(manager, state, body)
        wish = body
        body = await _expand(manager, actor, template, arguments, body, subagents=subagents)
        body = await _leave_out_unknown(manager, state, template, body, wish)
    else:
        choice = await choose(manager.deps, state.session, body)
        native = await _native(manager, choice.agent, name, templates, actor.directory)
        text = f"{native.mark}{native.name} {arguments}".rstrip()
        body = replace(body, parts=[Text("", text), *body.parts])
    return await submit(manager, session_id, body)


async def _leave_out_unknown(
    manager: SessionManager, state: SessionState, template: ConfigCommand, body: PromptRequest, wish: PromptRequest
) -> PromptRequest:
    """Leave out the model and the agent of a template that are not here, and tell the person. `wish`: what the client chose.

    A careful mode, and an agent with permission rules of its own, are never replaced. Raises UnknownChoice.
    """
    missing: list[str] = []
    if body.model != wish.model and await _is_unknown(manager, state, replace(body, mode=wish.mode)):
        body = replace(body, model=wish.model)
        missing.append(f"model `{template.model}`")
    if body.mode != wish.mode and await _is_unknown(manager, state, body):
        if template.agent in CAREFUL or template.agent_is_restricted:
            raise UnknownChoice(
                f"/{template.name} was not sent: it names the agent `{template.agent}`, which is not here, and without it the "
                "command could do what that agent may not. Take `agent` out of the command's file to run it with yours."
            )
        body = replace(body, mode=wish.mode)
        missing.append(f"agent `{template.agent}`")
    if missing:
        state.status("notice", f"/{template.name} names the {' and the '.join(missing)}, not here: it runs with yours.")
    return body


async def _is_unknown(manager: SessionManager, state: SessionState, body: PromptRequest) -> bool:
    try:
        await choose(manager.deps, state.session, body)
    except UnknownChoice:
        return True
    return False


async def _native(
    manager: SessionManager, agent: Agent, name: str, templates: tuple[ConfigCommand, ...], directory: str
) -> SlashCommand:
    """The agent's own command of a name. Raises UnknownCommand, InvalidRequest."""
    [agent] = await with_commands(manager, [agent], directory)
    native = native_command(agent, name)
    if native is None:
        owner = manager.deps.agents.get(name.partition(SEPARATOR)[0])
        others = [owner] if owner is not None else [a for a in manager.deps.agents.list_agents() if a.usable]
        others = [a for a in others if a.spec.name != agent.spec.name]
        owner = next((a for a in await with_commands(manager, others, directory) if native_command(a, name)), None)
        if owner is not None:
            raise InvalidRequest(
                f"/{name} is a command of {owner.spec.title}, and this session is with {agent.spec.title}. "
                f"Choose a model of {owner.spec.title} first."
            )
        offered = ", ".join(command.name for command in commands([agent], templates))
        raise UnknownCommand(f'Command not found: "{name}". Available commands: {offered}')
    if why := withheld(agent.spec, native.name):
        raise InvalidRequest(f"/{native.name} was not sent to {agent.spec.title}. {why}")
    return native


async def _has_subagents(manager: SessionManager, state: SessionState, body: PromptRequest) -> bool:
    """Whether the chosen agent has subagents. `submit` reports a wrong choice."""
    try:
        choice = await choose(manager.deps, state.session, body)
    except UnknownChoice:
        return True
    return choice.agent.spec.abilities.capabilities.subagents


async def _expand(
    manager: SessionManager, actor: SessionActor, command: ConfigCommand, arguments: str, body: PromptRequest, *, subagents: bool
) -> PromptRequest:
    """The prompt of a template. `subagents`: whether the agent has any; without, it does a subtask itself."""
    directory = actor.directory
    pieces = fill(command.template, arguments)
    lines = list(dict.fromkeys(piece.text for piece in pieces if piece.is_command))
    mode = command.agent or body.mode or actor.main.session.record.mode or ""
    refusals = await _refusals_of(lines, manager, actor, mode, body)
    for line, why in refusals.items():
        actor.main.status("notice", f"A shell line of /{command.name} did not run: {line.strip()}. {why}")
    outputs = {line: NOT_RUN if line in refusals else await _output_of(line, actor, manager) for line in lines}
    text = "".join(outputs[piece.text] if piece.is_command else piece.text for piece in pieces)
    mentions = "\0".join(piece.text for piece in pieces if not piece.is_command)
    parts: list[Part] = [Text("", text)]
    parts += await asyncio.to_thread(_files_in, mentions, directory)
    subtask = (command.subtask or command.agent == GENERAL.name) and subagents
    if subtask:
        fields = {
            "prompt": text,
            "description": command.description or command.name,
            "agent": command.agent or "general",
            "command": command.name,
        }
        parts = [OtherPart("", SUBTASK, fields)]
    model = body.model
    if command.model and model is None:
        provider, _, model_id = command.model.partition("/")
        model = ModelRef(provider, model_id)
    mode = body.mode if subtask else command.agent or body.mode
    return replace(body, parts=[*parts, *body.parts], model=model, mode=mode)


def _files_in(text: str, directory: str) -> list[Part]:
    """The file parts for each `@path` of a project's file. A template reaches no file outside, also not by links."""
    parts: list[Part] = []
    inside = repository_of(directory)
    for path in dict.fromkeys(_FILE.findall(text)):
        file = Path(directory, path)
        if path and "\0" not in path and within(str(file), [inside]) and disk.is_file(file):
            mime = mimetypes.guess_type(path)[0] or "text/plain"
            mime = mime if mime.startswith("image/") or mime == "application/pdf" else "text/plain"
            parts.append(File("", mime, f"file://{file}", path))
    return parts


async def _refusals_of(
    lines: Sequence[str], manager: SessionManager, actor: SessionActor, mode: str, body: PromptRequest
) -> dict[str, str]:
    """Shell lines that do not run -> why: nobody has trusted the project, or a permission rule denies them or asks.

    They run before the agent gets the prompt, so nobody could be asked.
    """
    if not lines:
        return {}
    deps, directory = manager.deps, actor.directory
    agent = (await choose(deps, actor.main.session, body)).agent.spec
    if deps.trust is not None and not await asyncio.to_thread(
        deps.trust.is_trusted, directory, agent.rules.project_settings.reads
    ):
        return dict.fromkeys(lines, _UNTRUSTED)
    policy = manager.policy(actor.main, mode)
    place = Place(directory, (repository_of(directory),), deps.home, os.path.realpath, os.path.isdir)

    def actions(line: str) -> set[Action | None]:
        call = PermissionData(
            permission_id="", action="bash", status="requested", metadata={"tool": "bash", "input": {"command": line}}
        )
        return {policy.action(access) for access in accesses_of(_OWN_TOOLS, call, place)}

    judged = {line: await asyncio.to_thread(actions, line) for line in lines}
    why = {line: _DENIED if "deny" in found else _ASKED if "ask" in found else "" for line, found in judged.items()}
    return {line: reason for line, reason in why.items() if reason}


async def _output_of(line: str, actor: SessionActor, manager: SessionManager) -> str:
    output: list[str] = []
    environment = child_environment(manager.deps.agents.environment(), {})
    enclose = manager.deps.enclose_shell(level_of(actor.main.session.record, None))
    run = ShellCommand(line, actor.directory, environment, output.append, enclose=enclose)
    try:
        async with asyncio.timeout(SHELL_TIMEOUT_S):
            await run.run()
    except TimeoutError:
        run.stop()
        output.append(f"({line} did not end within {SHELL_TIMEOUT_S:g} s)")
    except OSError as error:
        output.append(f"({line}: {error.strerror or error})")
    return "".join(output)


async def init(manager: SessionManager, session_id: str, body: PromptRequest) -> str:
    """Send `/init` as a prompt, and return the user message's id. Raises as `submit`, before anything is stored."""
    state = await manager.state(session_id)
    text = INIT_PROMPT.format(directory=state.session.record.directory)
    message_id = await submit(manager, session_id, replace(body, parts=(Text("", text),)))
    state.status("command", name=INIT, arguments="")
    return message_id


# --- the commands of a directory ----------------------------------------------------------------------------------


async def with_commands(manager: SessionManager, agents: Iterable[Agent], directory: str) -> list[Agent]:
    """Complete the commands of agents by those that they have in a directory.

    A project's files count if nothing in the project waits for the person's trust, for any installed agent. An agent without
    files reports its commands in a session: those of running agents count, and those that the last one reported. A running agent
    sees a removed file some seconds late, so what the files had and have no more is left out of its report.
    """
    deps, offers = manager.deps, list(agents)
    without_files = {agent.spec.name for agent in offers if not agent.spec.abilities.command_sources.folders}
    reported = {name: rows for name, rows in deps.local_offers.commands(directory).items() if name in without_files}
    for actor in manager.index.actors():
        codec = actor.process.codec
        if actor.directory == directory and actor.process.is_alive and codec is not None and codec.catalogue is not None:
            reported[codec.name] = codec.catalogue.commands
    files = await asyncio.to_thread(_files, manager, offers, directory)
    return [_complete(agent, reported.get(agent.spec.name, ()), *files.get(agent.spec.name, ((), ()))) for agent in offers]


def _files(
    manager: SessionManager, agents: list[Agent], directory: str
) -> dict[str, tuple[tuple[SlashCommand, ...], Collection[str]]]:
    """Agent -> the commands in its files, and the names of removed files."""
    deps, specs = manager.deps, [agent.spec for agent in agents if agent.spec.abilities.command_sources.folders]
    if deps.command_files is None or not specs:
        return {}
    families = {name for agent in deps.agents.list_agents() if agent.usable for name in agent.spec.rules.project_settings.reads}
    is_trusted = deps.trust is None or deps.trust.is_trusted(directory, families)
    rows: dict[str, tuple[tuple[SlashCommand, ...], Collection[str]]] = {}
    for spec in specs:
        found = deps.command_files.find(directory, spec.abilities.command_sources, with_project=is_trusted)
        rows[spec.name] = found, deps.command_files.removed_names(directory, spec.abilities.command_sources, found)
    return rows


def _complete(
    agent: Agent, reported: tuple[SlashCommand, ...], files: tuple[SlashCommand, ...], removed: Collection[str]
) -> Agent:
    current = (command for command in reported if command.name not in removed)
    commands = merge(agent.catalogue.commands, current, files)
    if commands == agent.catalogue.commands:
        return agent
    return replace(agent, catalogue=replace(agent.catalogue, commands=commands))
