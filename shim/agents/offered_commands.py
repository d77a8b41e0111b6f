"""Lists the slash commands that a client may send. Pure.

    a template (the server's own, the config's)   under its name, as in OpenCode, whatever clients have
    a command of an agent                         under its name, while no client and no template has it
                                                  else as AGENT:NAME (`/claude:rename`)
    one that would break the session              not offered, and refused
    an internal one of an agent                   offered if all are asked for (setting `all_commands`); it may be sent anyway
    the agent's `compact`                         not offered: clients have one that asks for the same (`session.summarize`)
    commands of the mock                          offered where it is the only agent or was chosen

A client lists its own commands and the server's in one list. Where both have a name, Enter may send the wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shim.agents._generated.client_commands import CLIENT_COMMANDS
from universal.agent_spec import AgentSpec
from universal.codec import COMPACT, Catalogue
from universal.slash_commands import ConfigCommand, SlashCommand

BY_HAND: Mapping[str, str] = {
    "details": "OpenCode's TUI, by its documentation",
    "init": "offered by the server itself, as by native (`shim.sessions.prompts.server_commands`)",
    "pair": "OpenCode 2's TUI, by its public source",
    "restart": "OpenCode 2's TUI, by its public source",
    "review": "offered by the server itself, as by native (`shim.sessions.prompts.server_commands`)",
    "settings": "OpenCode 2's TUI, by its public source",
}
"""Name -> who has it. These cannot be found by tools/client_commands.py."""

RESERVED_NAMES: frozenset[str] = frozenset(BY_HAND).union(*CLIENT_COMMANDS.values())
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
"""Command that no agent is sent -> why, and what to do instead. `AgentAbilities.withheld_commands` has those of one agent."""

NUMBERED_ARGUMENT = re.compile(r"\$\d+")
SEPARATOR = ":"
"""Between an agent's registry name and the name of its command."""
CLIENTS_DO_IT = frozenset({COMPACT.removeprefix("/")})
"""Agents' commands that clients replace with a request of their own."""


class Offer(Protocol):
    """An installed agent and what it offers."""

    @property
    def spec(self) -> AgentSpec: ...

    @property
    def catalogue(self) -> Catalogue: ...


@dataclass(frozen=True, slots=True)
class OfferedCommand:
    """A slash command. `hints` name its arguments; `agent`, `model` and `subtask` are those of a template."""

    name: str
    template: str
    hints: tuple[str, ...]
    description: str = ""
    agent: str | None = None
    model: str | None = None
    subtask: bool = False


def commands(
    offers: Sequence[Offer], templates: Iterable[ConfigCommand], agent: str | None = None, *, has_internal: bool = False
) -> list[OfferedCommand]:
    """List the templates first, then the agents' commands, with `has_internal` also their internal ones.

    `offers` has the default agent first. `chosen` is the `provider/model` of the configuration. Clients request the list without
    a session, so it has the commands of all agents, and a command that only some agents have names them.
    """
    offered = {command.name: _template_command(command) for command in templates}
    names = RESERVED_NAMES.union(offered)
    listed = _offers_of(offers, agent)
    for offer in listed:
        for command in offer.catalogue.commands:
            if withheld(offer.spec, command.name) or command.name in CLIENTS_DO_IT:
                continue
            if command.name in offer.spec.abilities.internal_commands and not (has_internal or command.is_file):
                continue
            prefixed = command.name in names
            name = f"{offer.spec.name}{SEPARATOR}{command.name}" if prefixed else command.name
            offered.setdefault(name, _agent_command(name, command, "" if prefixed else _owners(command.name, listed)))
    return list(offered.values())


def withheld(spec: AgentSpec, name: str) -> str:
    """Return why an agent's command is not sent, and what to do instead, or "" if it may be sent."""
    return spec.abilities.withheld_commands.get(name) or BREAKING.get(name, "")


def native_command(offer: Offer, name: str) -> SlashCommand | None:
    """Return the agent's own command that a client sends as `name`, or None if the agent has no such command."""
    commands = {command.name: command for command in offer.catalogue.commands}
    owner, _, rest = name.partition(SEPARATOR)
    return commands.get(name) or (commands.get(rest) if owner == offer.spec.name else None)


def _offers_of(offers: Sequence[Offer], agent: str | None) -> list[Offer]:
    """Leave out built-in agents (the mock), unless one is the default or the configuration names it."""
    provider = (agent or "").partition("/")[0]
    return [offer for at, offer in enumerate(offers) if at == 0 or offer.spec.program.binaries or offer.spec.name == provider]


def _owners(name: str, offers: Sequence[Offer]) -> str:
    """Return the agents that have a command, for its description, or "" if all have it."""
    owners = [offer.spec.title for offer in offers if any(c.name == name for c in offer.catalogue.commands)]
    return "" if len(owners) == len(offers) else f" ({', '.join(owners)})"


def _agent_command(name: str, command: SlashCommand, owners: str) -> OfferedCommand:
    description = f"{_one_line(command.description)}{owners}" if command.description else ""
    return OfferedCommand(name, f"{command.mark}{command.name} $ARGUMENTS", (command.hint or "$ARGUMENTS",), description)


def _template_command(command: ConfigCommand) -> OfferedCommand:
    return OfferedCommand(
        command.name,
        command.template,
        hints(command.template),
        _one_line(command.description),
        command.agent,
        command.model,
        command.subtask,
    )


def _one_line(description: str) -> str:
    """Join a description to one line, since a line break would spoil a client's list."""
    return " ".join(description.split())


def hints(template: str) -> tuple[str, ...]:
    """Return a template's arguments: `$1` and so on, ascending, then `$ARGUMENTS`."""
    numbered = sorted(set(NUMBERED_ARGUMENT.findall(template)), key=lambda name: int(name[1:]))
    return (*numbered, "$ARGUMENTS") if "$ARGUMENTS" in template else tuple(numbered)
