"""Makes the set-up of a directory (`universal.setup`) from its configuration, and from what clients have added or switched.

`now` reads no file: it takes the configuration and the instructions as they were read last. What a client adds or switches
holds until the server stops, as with native OpenCode, and only in its directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shim.host.config import skills
from shim.host.config.instruction_files import InstructionFiles, InstructionTexts
from shim.host.config.opencode_config import OpenCodeConfig, idle_keys
from shim.host.files.formatters import Formatters
from shim.lib.errors import LimitReached, McpServerNotFound
from universal.agent_spec import AgentSpec
from universal.lib.jsonvalue import arr, obj, text
from universal.permissions import combine, decide
from universal.setup import NO_AGENT, TOOLS_SERVER, DirectorySetup, McpServer

if TYPE_CHECKING:
    from shim.host.plugins.plugin_hosts import PluginHosts

SERVERS_LIMIT = 100
"""Maximum MCP servers that clients may add to one directory."""
READ_LIMIT_S = 5.0
"""Maximum seconds that a prompt waits for the files of instructions."""
CHANGED_LIMIT = 256
"""Directories whose changes by clients are kept, and set-ups that are. The oldest ones are forgotten."""


NOTHING = OpenCodeConfig({})


@dataclass(slots=True)
class _Changes:
    """What clients have changed in a directory: servers by name, as in `mcp`, and switches: name -> on."""

    servers: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    switches: dict[str, bool] = field(default_factory=dict[str, bool])


class Setups:
    """The set-ups of all directories.

    In: `current`, a directory's configuration as it was read last; `files`, instructions; `plugins` and `formatters`, None
    without them.
    """

    def __init__(
        self,
        current: Callable[[str], OpenCodeConfig] = lambda _: NOTHING,
        files: InstructionFiles | None = None,
        plugins: PluginHosts | None = None,
        formatters: Formatters | None = None,
    ) -> None:
        self._files = files
        self.plugins, self.formatters = plugins, formatters
        self._plugin_files: dict[str, object] = {}
        self._texts: dict[str, InstructionTexts] = {}
        self._current = current
        self._changes: dict[str, _Changes] = {}
        self.of_sessions: dict[str, tuple[McpServer, ...]] = {}
        """Session -> MCP servers of its own."""
        self._former: dict[str, None] = {}
        """Names of MCP servers that a session had once, the last ones."""
        self._made: dict[tuple[str, bool, str, str], tuple[OpenCodeConfig, DirectorySetup]] = {}
        """Set-ups, and the configurations that they were made from. A change by a client removes all."""

    async def refresh(self, directory: str) -> None:
        """Read the instructions of a directory again, for the next `now`. A disk that does not answer changes nothing."""
        if self._files is None:
            return
        with suppress(TimeoutError):
            config = self._current(directory)
            async with asyncio.timeout(READ_LIMIT_S):
                texts, files = await asyncio.to_thread(self._read, self._files, directory, config)
            if self.plugins is not None:
                if files != self._plugin_files.pop(directory, None):
                    self._made.clear()
                self._plugin_files[directory] = files
            if texts != self._texts.pop(directory, None):
                self._made.clear()
            self._texts[directory] = texts
            for kept in (self._texts, self._plugin_files):
                while len(kept) > CHANGED_LIMIT:
                    del kept[next(iter(kept))]

    def _read(self, instructions: InstructionFiles, directory: str, config: OpenCodeConfig) -> tuple[InstructionTexts, object]:
        """Read the instructions, and look which tools and plugins there are. Blocking."""
        return instructions.read(directory, config), self.plugins and self.plugins.look(directory, config)

    def now(self, directory: str, mode: str = "", agent: AgentSpec | None = None, *, with_project: bool) -> DirectorySetup:
        """Return the set-up in a mode, or of an agent of it. In: `agent`, the coding agent, which may read skills by itself.

        `with_project`: whether the project's part of it counts, which strangers may have written.
        """
        config, key = self._current(directory), (directory, with_project, mode, agent.name if agent is not None else "")
        made = self._made.get(key)
        if made is None or made[0] is not config:
            made = self._made[key] = config, self._make(directory, mode, agent, with_project=with_project)
            while len(self._made) > CHANGED_LIMIT:
                del self._made[next(iter(self._made))]
        return made[1]

    def _make(self, directory: str, mode: str, agent: AgentSpec | None, *, with_project: bool) -> DirectorySetup:
        config = self._current(directory)
        agents = config.agents if with_project else config.personal_agents
        own = agents[mode].text if mode in agents else ""
        own = own or (NO_AGENT if any(row.text for row in agents.values() if row.mode != "subagent") else "")
        subagents = tuple(row for row in agents.values() if row.mode != "primary" and row.name != mode)
        rows = self._servers(directory, with_project=with_project)
        limit_ms = obj(self._values(directory, with_project=with_project).get("experimental")).get("mcp_timeout")
        servers = [_server(name, row, limit_ms) for name, row in rows.items() if _is_on(row) and name != TOOLS_SERVER]
        has_plugins = False
        if self.plugins is not None and (tools := self.plugins.server(directory, with_project=with_project)) is not None:
            servers.append(tools)
            has_plugins = self.plugins.has_plugins(directory, with_project=with_project)
        texts = self._texts.get(directory, InstructionTexts())
        told, withheld = self._skills(directory, mode, agent, with_project=with_project)
        parts = (own, *texts.personal, told[False], *((*texts.project, told[True]) if with_project else ()))
        text_ = "\n\n".join(filter(None, parts))
        servers = [server for server in servers if server.command or server.url]
        has_formatters = bool(self._values(directory, with_project=with_project).get("formatter"))
        return DirectorySetup(tuple(servers), text_, has_plugins, subagents, has_formatters, withheld)

    def _skills(
        self, directory: str, mode: str, agent: AgentSpec | None, *, with_project: bool
    ) -> tuple[Mapping[bool, str], tuple[str, ...]]:
        """What the agent is told of skills, by whether they are the project's, and the files of those that it must not offer.

        A skill that the rules deny or ask about is left out: no agent asks before it reads the file. One that the agent finds by
        itself is not told again.
        """
        config, texts = self._current(directory), self._texts.get(directory, InstructionTexts())
        rules = combine(config.personal_rules(mode), config.project_rules(mode), unread=config.has_unread_rules)
        found = agent.abilities.skill_folders if agent is not None else frozenset[str]()
        free = [row for row in texts.skills if decide("skill", (row.id, row.name), rules) in (None, "allow")]
        withheld = tuple(row.path for row in texts.skills if row.place in found and row not in free)
        if withheld and agent is not None and agent.abilities.setup.hides_skills == "all":
            found = frozenset[str]()
        told = [row for row in free if row.place not in found]
        return {own: skills.lines([row for row in told if row.is_of_project == own]) for own in (False, True)}, withheld

    async def variables(self, directory: str, shell: Mapping[str, Any], *, with_project: bool) -> Mapping[str, str]:
        """The variables that plugins give to a shell, or to an agent for its shells. In: `cwd`, and ids if there are."""
        return {} if self.plugins is None else await self.plugins.variables(directory, shell, with_project=with_project)

    def idle(self, directory: str, *, with_project: bool, of_model: bool = True) -> tuple[str, ...]:
        """What of a set-up acts with OpenCode as the agent alone, in a person's words: keys, and hooks of loaded plugins."""
        hooks = () if self.plugins is None else self.plugins.idle_hooks(directory, with_project=with_project)
        keys = idle_keys(self._values(directory, with_project=with_project), of_model=of_model)
        return (*keys, *(f"`{hook}` of plugins" for hook in hooks))

    def switches(self, directory: str, *, with_project: bool) -> dict[str, bool]:
        """Return the MCP servers of a directory by name, those that are off too. True: it is on."""
        whole = self._servers(directory, with_project=True)
        counted = self._servers(directory, with_project=with_project)
        return {name: name in counted and _is_on(counted[name]) for name, row in whole.items() if "type" in row}

    def server_names(self, directory: str) -> list[str]:
        """Return the names of a directory's MCP servers, those that are off too."""
        changes = self._changes.get(directory)
        return [*obj(self._current(directory).values.get("mcp")), *(changes.servers if changes is not None else ())]

    def is_of_project(self, directory: str, name: str) -> bool:
        """Whether an MCP server comes with the project alone, so that it counts only where the project is trusted."""
        whole, personal = (self._servers(directory, with_project=with_project) for with_project in (True, False))
        return name in whole and name not in personal

    def add(self, directory: str, name: str, row: Mapping[str, Any]) -> None:
        """Add or replace an MCP server, as in `mcp` of the configuration. Raises LimitReached."""
        changes = self._changes_in(directory)
        if name not in changes.servers and len(changes.servers) >= SERVERS_LIMIT:
            raise LimitReached("MCP servers of clients", SERVERS_LIMIT, "Name more of them in opencode.json.")
        changes.servers[name] = dict(row)
        changes.switches.pop(name, None)

    def give(self, session_id: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Give one session MCP servers of its own, as in `mcp`, in place of those before. They hold until the server stops."""
        former = dict.fromkeys(server.name for server in self.of_sessions.pop(session_id, ()))
        self._former = dict(list((self._former | former).items())[-CHANGED_LIMIT:])
        self.of_sessions[session_id] = tuple(_server(name, row, None) for name, row in rows.items() if _is_on(row))
        while len(self.of_sessions) > CHANGED_LIMIT:
            del self.of_sessions[next(iter(self.of_sessions))]

    def is_former(self, name: str) -> bool:
        """Whether sessions had an MCP server of this name, and none has it now. Codex does not tell that one is gone."""
        return name in self._former and not any(name == own.name for rows in self.of_sessions.values() for own in rows)

    def with_own(self, setup: DirectorySetup, session_id: str) -> DirectorySetup:
        """A set-up with the session's own MCP servers, which replace others of their names."""
        own = self.of_sessions.get(session_id, ())
        names = {server.name for server in own}
        return setup._replace(servers=(*(row for row in setup.servers if row.name not in names), *own)) if own else setup

    def switch(self, directory: str, name: str, *, on: bool) -> None:
        """Switch an MCP server on or off. Raises McpServerNotFound for a name that the directory does not have."""
        if name not in self.switches(directory, with_project=True):
            raise McpServerNotFound(name)
        self._changes_in(directory).switches[name] = on

    def _changes_in(self, directory: str) -> _Changes:
        changes = self._changes.pop(directory, None) or _Changes()
        self._changes[directory] = changes
        self._made.clear()
        while len(self._changes) > CHANGED_LIMIT:
            del self._changes[next(iter(self._changes))]
        return changes

    def _values(self, directory: str, *, with_project: bool) -> Mapping[str, Any]:
        config = self._current(directory)
        return config.values if with_project else config.personal_values

    def _servers(self, directory: str, *, with_project: bool) -> dict[str, Mapping[str, Any]]:
        changes = self._changes.get(directory, _Changes())
        rows = {**obj(self._values(directory, with_project=with_project).get("mcp")), **changes.servers}
        for name, on in changes.switches.items():
            if name in rows:
                rows[name] = {**obj(rows[name]), "enabled": on}
        return {name: obj(row) for name, row in rows.items()}


def _is_on(row: Mapping[str, Any]) -> bool:
    return row.get("enabled") is not False


def _server(name: str, row: Mapping[str, Any], limit_ms: int | None) -> McpServer:
    return McpServer(
        name,
        command=tuple(text(word) for word in arr(row.get("command"))) if row.get("type") == "local" else (),
        cwd=text(row.get("cwd")),
        environment={key: text(value) for key, value in obj(row.get("environment")).items()},
        url=text(row.get("url")) if row.get("type") == "remote" else "",
        headers={key: text(value) for key, value in obj(row.get("headers")).items()},
        timeout_ms=row.get("timeout") or limit_ms,
    )
