"""Facts about OpenCode that the codecs of OpenCode 1 and OpenCode 2 share.

Source: recordings of 1.18.33 and of OpenCode 2's builds of July and August 2026.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from universal.codec import Catalogue, Mode, Model
from universal.items import Json
from universal.lib.jsonvalue import arr, obj, text
from universal.permissions import Rule
from universal.sandbox import HELD_KEYS, SandboxUse
from universal.slash_commands import CommandFolder, CommandSources

MODES = (
    Mode("build", "Reads, edits and runs what OpenCode's configuration allows.", "build"),
    Mode("plan", "Reads and proposes, and edits nothing.", "plan"),
)

DEFAULT_MODEL = Model("default", "Default (as OpenCode is configured)")
"""The model without a provider. Prompts name no model then, and OpenCode uses its default."""
DEFAULT_CATALOGUE = Catalogue(models=(DEFAULT_MODEL,), default_model=DEFAULT_MODEL.id)
"""The catalogue until OpenCode has sent its own, which takes 3 s or more."""

ABORTED: dict[str, Json] = {"message": "Aborted", "code": "aborted"}
"""The error of a turn that was interrupted."""


SKILLS = CommandSources(
    tuple(
        CommandFolder(path, "skills", needs=("name", "description"))
        for path in (
            *(".opencode/skill", ".opencode/skills", ".claude/skills", ".agents/skills"),
            *(f"{own}/opencode/{name}" for own in ("~/.config", "$XDG_CONFIG_HOME") for name in ("skill", "skills")),
            *("~/.claude/skills", "~/.agents/skills"),
        )
    )
)
"""`AgentAbilities.command_sources`. Its command files are templates of the configuration, which every agent offers."""

_CONFIG = ("opencode.json", "opencode.jsonc", "config.json", "plugin", "plugins", "tool", "tools", "agent", "agents", "command")
SANDBOX = SandboxUse(
    folders=tuple(
        f"${variable}/opencode or ~/{folder}/opencode"
        for variable, folder in (
            *(("XDG_DATA_HOME", ".local/share"), ("XDG_STATE_HOME", ".local/state")),
            *(("XDG_CACHE_HOME", ".cache"), ("XDG_CONFIG_HOME", ".config")),  # it writes a .gitignore there at each start
        )
    ),
    fixed=tuple(f"$XDG_CONFIG_HOME/opencode/{name} or ~/.config/opencode/{name}" for name in _CONFIG),
    hosts=("opencode.ai", "api.anthropic.com", "api.openai.com", "openrouter.ai", "generativelanguage.googleapis.com"),
    variables=("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"),
    settings=tuple(f"$XDG_CONFIG_HOME/opencode/{name} or ~/.config/opencode/{name}" for name in _CONFIG[:3]),
    own_server=True,
    shown=HELD_KEYS,
)


def message_id(key: str, event_id: str) -> str:
    """Return an id for a prompt's message that sorts after all up to this event. Empty if events have no such ids (1.1)."""
    prefix, _, rest = event_id.partition("_")
    if prefix != "evt" or len(rest) < 12:
        return ""
    return f"msg_{rest[:12]}{hashlib.sha256(key.encode()).hexdigest()[:14]}"


def refusal(status: int, body: Json, error: Mapping[str, Json]) -> dict[str, Json]:
    """Return {message, code} of a failed answer. `error` is the body as a universal error."""
    message = error["message"]
    if status == 0:
        message = f"OpenCode's server does not answer: {message}"
    elif not obj(body):
        message = f"OpenCode's server answered with status {status}."
    return {"message": message, "code": error["code"]}


def child_metadata(call_id: str, arguments: dict[str, Any], info: dict[str, Any], agent: str) -> dict[str, Json]:
    """Return the metadata of a subagent's session, from the tool call that made it and the session's info.

    In: `agent`, the name of the argument that says which agent works in it.
    """
    return {
        "call_id": call_id,
        "title": text(arguments.get("description")) or text(info.get("title")),
        "agent": text(info.get("agent")) or text(arguments.get(agent)),
        "prompt": text(arguments.get("prompt")),
    }


def usage_of(tokens: Json) -> dict[str, int]:
    """`metadata.usage` of a message's tokens."""
    given, cache = obj(tokens), obj(obj(tokens).get("cache"))
    counts = {key: given.get(key) for key in ("input", "output", "reasoning")}
    counts |= {"cache_read": cache.get("read"), "cache_write": cache.get("write")}
    return {key: int(value) if isinstance(value, (int, float)) else 0 for key, value in counts.items()}


def keys_to_ask(rules: Iterable[Rule]) -> frozenset[str]:
    """Return the permissions that rules deny or ask for. Whoever may not read a file may not search it either."""
    keys = {rule.permission for rule in rules if rule.action != "allow"}
    return frozenset(keys | {"grep"} if "read" in keys else keys)


def ask_first(keys: Iterable[str], content: str) -> str:
    """Return the configuration by which a fork of OpenCode asks for these permissions; "" for a `content` that is no object.

    It has no question tool then: its ACP server passes no question on, and such a turn would not end by itself.
    In: `content`, the person's own configuration of the same variable. What the person denies or allows there or in files still
    counts: a fork reads `tools` before `permission`, the last entry counts, and the added `*` makes each key one of ours.
    """
    try:
        config = json.loads(content or "{}")
    except ValueError:
        return ""
    if not isinstance(config, dict):
        return ""
    own = obj(config)
    given = own.get("permission")
    permission = {"*": given} if isinstance(given, str) else obj(given)
    ours = [f"{key}*" for key in sorted(keys)]
    tools = {**dict.fromkeys(ours, True), **obj(own.get("tools"))}
    return json.dumps({**own, "tools": tools, "permission": {**permission, **dict.fromkeys(ours, "ask"), "question": "deny"}})


def modes_of(agents: Json, key: str) -> tuple[Mode, ...]:
    """Agents that a person can choose, also of the configuration, with `build` first. `key`: of their names. () if none."""
    by_id = {mode.id: mode for mode in MODES}
    modes = {
        name: by_id.get(name) or Mode(name, text(row.get("description")), name)
        for row in map(obj, arr(agents))
        if row.get("mode") in ("primary", "all") and row.get("hidden") is not True and (name := text(row.get(key)))
    }
    return tuple(sorted(modes.values(), key=lambda mode: mode.id != "build"))


def cost_of(value: Json) -> float:
    """A cost in US dollars; 0 if it tells none."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def limit_of(value: Json) -> int | None:
    """A limit of a model in tokens; None if it tells none."""
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None
