"""The set-up of a directory: what a person's OpenCode configuration gives to whichever agent answers. Values only.

`shim.host.config.setups` reads it; each agent's folder translates it into what its agent takes. `SetupUse` says, for each
agent, which parts it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from universal.permissions import Rule
from universal.sandbox import Level

Part: TypeAlias = Literal["mcp", "subagents"]
"""A part of a set-up that not every agent takes: its MCP servers, and its agents that are only subagents."""
TOOLS_SERVER = "opencode-plugins"
"""Name of the MCP server with the person's own tools. Clients and rules have such a tool by its own name."""
HEADER_VARIABLE = "OPENCODE_SHIM_MCP_HEADER"
"""Variable with the header by which an agent uses this server's own MCP server, for one that shows headers to others."""
GUARD_RULES = tuple(Rule(permission, "*", "ask") for permission in ("bash", "edit", TOOLS_SERVER))
"""Rules for an agent alone, so that it asks before calls that plugins look at. They ask no person."""
PARTS: Mapping[Part, str] = {"mcp": "MCP servers (`mcp`)", "subagents": "subagents (`agent`)"}
"""Part -> its name for a person, with the keys of `opencode.json` that it comes from."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server that is switched on: a local program (`command`), or a remote one (`url`).

    Its variables and headers may hold secrets: they are no part of its `repr`, and go to an agent through its stdin alone.
    """

    name: str
    command: tuple[str, ...] = ()
    cwd: str = ""
    """Folder in which a local program starts; "" is the session's directory."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout_ms: int | None = None
    """Limit of its start and of each of its calls. None: the agent's own."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The command for an agent that starts it in the session's directory."""
        return ("/bin/sh", "-c", 'cd -- "$0" && exec "$@"', self.cwd, *self.command) if self.cwd else self.command


class ConfigAgent(NamedTuple):
    """An agent of the person's configuration: a primary one that a person chooses, a subagent, or both (`all`).

    model  `provider/model`, or ""
    rules  its own permission rules
    steps  most steps of the model for one prompt; None without a limit
    idle   keys of it that no agent of this server applies
    sandbox  what it runs in, at least (`sandbox` of it: our own key)
    """

    name: str
    mode: Literal["primary", "subagent", "all"] = "all"
    description: str = ""
    prompt: str = ""
    model: str = ""
    variant: str = ""
    color: str = ""
    rules: tuple[Rule, ...] = ()
    steps: int | None = None
    is_hidden: bool = False
    idle: tuple[str, ...] = ()
    sandbox: Level = "auto"

    @property
    def text(self) -> str:
        """What its model is told; "" if there is nothing."""
        words = f"You are the agent `{self.name}`, until another one is named.\n\n{self.prompt}" if self.prompt else ""
        limit = STEPS.format(steps=self.steps) if self.steps else ""
        return "\n\n".join(filter(None, (words, limit)))


STEPS = "Answer each prompt after at most {steps} steps (requests to the model): call no more tools then, and say what is left."
NO_AGENT = "No agent of the configuration is chosen: what was said of one before holds no longer."
"""What a model is told in a mode without words of its own, if others have some."""


class DirectorySetup(NamedTuple):
    """The set-up of a directory for one prompt. What is not trusted or switched off is not in it."""

    servers: tuple[McpServer, ...] = ()
    text: str = ""
    """Instructions for the model: its agent's system text where it has one, else they go with a prompt."""
    has_plugins: bool = False
    """Whether plugins look at calls, so that the agent must ask about all that it can."""
    subagents: tuple[ConfigAgent, ...] = ()
    has_formatters: bool = False
    """Whether this server formats the files that the agent has changed."""
    withheld_skills: tuple[str, ...] = ()
    """Files of skills that the agent finds by itself, and that the rules do not simply allow."""
    has_shim: bool = False
    """Whether the last of the MCP servers is this server's own, which an agent gets that `reads_own` set-up too."""

    @property
    def shim_server(self) -> McpServer | None:
        """This server's own MCP server. Its token is good for this agent's process alone, so its environment may hold it."""
        return self.servers[-1] if self.has_shim else None

    @property
    def guard_rules(self) -> tuple[Rule, ...]:
        """Rules that an agent gets behind the person's."""
        return GUARD_RULES if self.has_plugins else ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that are not empty, of those that an agent may lack."""
        has_subagents = any(agent.mode == "subagent" for agent in self.subagents)
        return (*(("mcp",) if self.servers else ()), *(("subagents",) if has_subagents else ()))


NO_SETUP = DirectorySetup()


class SetupUse(NamedTuple):
    """What an agent takes of a set-up.

    takes      parts that its codec translates
    text       when its codec gives `text` as system text: at each `start`, at the start of a `new` conversation, or `never`.
               Else the text goes with the first prompt of a process, and with the next one after it has changed
    reads_own  True if it reads OpenCode's configuration itself, so that it gets nothing of the set-up but `shim_server`
    hides_skills  which of the skills that it finds by itself its codec can keep from the model: `each`, or `all` at once.
               Else rules hold when it calls its tool for them
    """

    takes: frozenset[Part] = frozenset()
    text: Literal["start", "new", "never"] = "never"
    reads_own: bool = False
    hides_skills: Literal["each", "all", "none"] = "none"

    def has_text(self, *, resumes: bool) -> bool:
        """Whether the codec itself gives the text. In: whether the process resumes a conversation."""
        return self.reads_own or self.text == "start" or (self.text == "new" and not resumes)

    def gaps(self, setup: DirectorySetup) -> tuple[Part, ...]:
        """The parts of a set-up that have no effect with this agent."""
        return () if self.reads_own else tuple(part for part in setup.parts if part not in self.takes)


TAKES_NOTHING = SetupUse()


def setup_notice(title: str, parts: Sequence[str]) -> str:
    """The sentence that tells a person which parts of their set-up, in their words, have no effect with an agent."""
    return f"{title} does not take all of your OpenCode configuration. Without effect here: {', '.join(parts)}."
