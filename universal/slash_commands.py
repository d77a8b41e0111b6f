"""Slash commands, and the folders in which an agent looks for them. Values only; `shim.agents.command_files` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A command of the agent that a prompt may start with, after `mark`. `is_file`: a person's own, which a file defines."""

    name: str
    description: str = ""
    hint: str = ""
    mark: str = "/"
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class CommandFolder:
    """A folder whose files are commands of an agent.

    path               below a project's folder, `~/...` in the person's home, or `$VARIABLE/...`
    form               `commands`: each NAME.md; `skills`: each NAME/SKILL.md, named by its head
    depth              levels of folders that are searched; in the form `commands`, `sub/x.md` is `sub:x`
    name               what the agent calls a command, `{}` for the file's name
    mark               what stands before the name in a prompt
    is_everywhere      True if the agent also looks into the folders above, up to the root of the repository
    needs              keys of a head without which the agent ignores a skill
    hidden_by          key of a head that hides a command from the person where it is `false`
    """

    path: str
    form: Literal["commands", "skills"]
    depth: int = 8
    name: str = "{}"
    mark: str = "/"
    is_everywhere: bool = True
    needs: tuple[str, ...] = ("description",)
    hidden_by: str = ""

    @property
    def is_personal(self) -> bool:
        return self.path.startswith(("~/", "$"))


class PluginFolders(NamedTuple):
    """Where an agent keeps the plugins that a project switches on, and what a plugin's folder has.

    installed  files `{"plugins": {ID: [{"installPath"}]}}`, as `CommandFolder.path`; the first that exists counts
    enabled    files of a project `{"enabledPlugins": {ID: true}}`
    folders    below a plugin's folder. Its commands are named PLUGIN:NAME; PLUGIN is the ID up to its `@`.
    """

    installed: tuple[str, ...]
    enabled: tuple[str, ...]
    folders: tuple[CommandFolder, ...]


@dataclass(frozen=True, slots=True)
class CommandSources:
    """All places of an agent's commands. Of two with the same name, the first place wins."""

    folders: tuple[CommandFolder, ...] = ()
    plugins: PluginFolders | None = None


NO_COMMANDS = CommandSources()


@dataclass(frozen=True, slots=True)
class ConfigCommand:
    """A slash command of the configuration, or the server's own, that expands to a prompt.

    template             the text with `$1`, `$ARGUMENTS`, `@file` and !`shell`
    model                `provider/model`
    agent_is_restricted  whether the configuration gives that agent rules of its own, which would be lost with another one
    """

    name: str
    template: str
    description: str = ""
    agent: str | None = None
    model: str | None = None
    subtask: bool = False
    agent_is_restricted: bool = False
