"""What a sandbox around an agent's process must hold, by permission rules. Pure: `shim.processes.sandbox` makes mounts of it.

auto     nobody has said it: `project` where a rule that an agent's protocol cannot hold needs it, and where nobody has trusted
         the project; else `off`
off      none
project  the agent sees the system, its own state and the project; what rules deny is held too
strict   the same, and no host but its model's and those that rules allow; without a working sandbox it does not start
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from universal.permissions import Action, Rule, decide, matches

Level: TypeAlias = Literal["auto", "off", "project", "strict"]
Verdict: TypeAlias = Literal["writable", "fixed", "hidden"]
"""What a place is inside: as it is, read-only, or empty."""
LEVELS: tuple[Level, ...] = ("auto", "off", "project", "strict")
"""From the mildest to the strictest. Any word is stricter than none (`auto`)."""
TIGHTER: tuple[Level, ...] = ("project", "strict")
"""Levels that somebody may want who may not loosen anything: a project, a session, an agent of the configuration."""
HELD_KEYS = ("edit", "read", "external_directory", "webfetch")
"""Permission keys whose `deny` becomes mounts or the lack of a network."""
PROTECTED = (
    *(".git/hooks", ".git/config", ".git/config.worktree", ".claude", ".codex", ".mcp.json"),
    *(".opencode", "opencode.json", "opencode.jsonc", ".pi/settings.json", ".pi/extensions"),
)
"""What runs programs or holds rules later: read-only in each project."""
ANY_NAME = "\ue000"
"""A name that no pattern of a rule names: what holds for it holds for all that is not named."""


def tighter_of(value: object) -> Level:
    """Return a level of TIGHTER, or `auto` for anything else."""
    return "strict" if value == "strict" else "project" if value == "project" else "auto"


def strictest(*levels: Level) -> Level:
    """Return the strictest of these levels."""
    return max(levels, key=LEVELS.index)


class SandboxUse(NamedTuple):
    """What an agent needs inside. A place is `~/...` or `$VARIABLE/...`; of `A or B` the first whose variable is set.

    level       of the settings, for this agent
    paths       of the settings: folders of the person that the agent may use too
    folders     what it writes beside the project: state, logins, caches; one that is missing is made
    files       the same, single files
    fixed       what lies in `folders` and is not to be changed
    hosts       of its model
    variables   which hold an address of its model
    settings    files of the person that may hold such addresses
    env         variables that it needs inside
    own_server  whether it talks with a server of its own, on any free port of 127.0.0.1
    shown       keys of `HELD_KEYS` that hold in runs of the real agent (`tests/e2e/test_sandbox_agents.py`)
    """

    level: Level = "auto"
    paths: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    env: Mapping[str, str] = MappingProxyType({})
    own_server: bool = False
    shown: tuple[str, ...] = ()


NO_NEEDS = SandboxUse()
"""Of an agent of which nothing is known: it sees its project, and its logins only in `paths`."""


class Bounds(NamedTuple):
    """What one process is held to. Rules are those of one key, in order; none where they change nothing.

    edit, read  rules of paths, of which at least one denies
    outside     rules of folders outside of the project, of which at least one allows
    web         rules of addresses where the process has no network of its own; None: it has the machine's
    """

    level: Level
    edit: tuple[Rule, ...] = ()
    read: tuple[Rule, ...] = ()
    outside: tuple[Rule, ...] = ()
    web: tuple[Rule, ...] | None = None


def bounds_of(level: Level, rules: Iterable[Rule]) -> Bounds | None:
    """Return what these rules demand of a sandbox of this level, or None for no sandbox (`auto`, `off`)."""
    if level not in TIGHTER:
        return None
    every = tuple(rules)

    def of(key: str, *needs: Action) -> tuple[Rule, ...]:
        found = tuple(Rule(key, rule.pattern, rule.action) for rule in every if matches(rule.permission, key))
        return found if any(rule.action in needs for rule in found) else ()

    web = of("webfetch", "deny", "ask")
    has_network = level == "project" and decide("webfetch", [ANY_NAME], web) not in ("deny", "ask")
    return Bounds(
        level,
        of("edit", "deny"),
        of("read", "deny"),
        of("external_directory", "allow"),
        None if has_network else web or of("webfetch", "allow"),
    )


CODEX_SANDBOX = SandboxUse(
    folders=("$CODEX_HOME or ~/.codex",),
    hosts=("api.openai.com", "chatgpt.com", "auth.openai.com"),
    variables=("OPENAI_BASE_URL",),
    settings=("$CODEX_HOME/config.toml or ~/.codex/config.toml",),
    shown=HELD_KEYS,
)
"""The sandbox of Codex, as its own codec and the one of codex-acp start it."""

PI_SANDBOX = SandboxUse(
    folders=("$PI_CODING_AGENT_DIR or ~/.pi/agent",),
    hosts=("api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"),
    variables=("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"),
    settings=("$PI_CODING_AGENT_DIR/models.json or ~/.pi/agent/models.json",),
    shown=HELD_KEYS,
)
"""The sandbox of Pi, as its own codec and the one of pi-acp start it."""
