"""The agents of the permission matrix: the modes of each, and the call of its own tool that does each action of `matrix.ROWS`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace

from shim.dev.record.homes import CODEX_MCP_TOML, MCP_SERVER
from universal.agents.acp.profiles import CARDS, RECORD
from universal.registry import agents

from .bench import Bench
from .matrix import FETCHED_HOST, LOOPS, ROWS, TASK_WORDS, Driver
from .servers import configuration_file, configure
from .wire import Json


def _call(tool: str, *arguments: Json) -> str:
    return f"tool:{tool}:{json.dumps(list(arguments) if len(arguments) > 1 else arguments[0])}"


# --- Claude Code ------------------------------------------------------------------------------------------------------


def _claude_home(bench: Bench) -> None:
    """An MCP server in the person's own configuration, as recordings have it, and settings that make calls possible offline.

    Fetches ask no host of Anthropic first. Plan mode asks a person instead of a safety check on Anthropic's server.
    """
    server = {"type": "stdio", "command": sys.executable, "args": [str(MCP_SERVER)]}
    file = bench.place.home / ".claude" / ".claude.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"mcpServers": {"scripted": server}, "hasCompletedOnboarding": True}))
    skill = file.parent / "skills" / "shelly" / "SKILL.md"  # the person's own: one of the project would wait for trust
    skill.parent.mkdir(parents=True, exist_ok=True)
    head = "---\nname: shelly\ndescription: Touches a file.\nallowed-tools: Bash(touch:*)\n---\n"
    skill.write_text(f"{head}Look: !`touch skilled.txt`\n")
    (file.parent / "settings.json").write_text(json.dumps({"skipWebFetchPreflight": True, "useAutoModeDuringPlan": False}))


def _agent(prompt: str, **more: object) -> str:
    return _call("Agent", {"description": "look around", "subagent_type": "general-purpose", "prompt": prompt, **more})


_WRITE = {"file_path": "{project}/new.txt", "content": "new\n"}
_CLAUDE_SCENES = {
    "write": _call("Write", _WRITE),
    "edit": "read_edit",
    "edit a path": _call("Write", {**_WRITE, "file_path": "{folder}/new.txt"}),
    "bash touch": "bash:touch touched.txt",
    "bash cat": "bash:cat secret.txt",
    "bash in background": _call("Monitor", {"command": "touch monitored.txt", "description": "watch", "timeout_ms": 5000}),
    "read": _call("Read", {"file_path": "{project}/secret.txt"}),
    "read a path": _call("Read", {"file_path": "{project}/sub/../secret.txt"}),
    "read outside": _call("Read", {"file_path": "{outside}/far.txt"}),
    "write outside": _call("Write", {**_WRITE, "file_path": "{outside}/new.txt"}),
    "bash outside": "bash:touch {outside}/touched.txt",
    "webfetch": _call("WebFetch", {"url": f"https://{FETCHED_HOST}/page", "prompt": "say it"}),
    "websearch": _call("WebSearch", {"query": "probe"}),
    "task": _agent(f"[scene:text] {TASK_WORDS}"),
    "write of a subagent": _agent(f"[scene:{_call('Write', _WRITE)}] {TASK_WORDS}", run_in_background=False),
    "write of a subagent in background": _agent(f"[scene:{_call('Write', _WRITE)}] {TASK_WORDS}", run_in_background=True),
    "loop": _call("Bash", *[{"command": "echo again >> count.txt", "description": "count"}] * LOOPS),
    "skill": _call("Skill", {"skill": "probe"}),
    "shell line of a skill": _call("Skill", {"skill": "shelly"}),
    "todo": "todo",
    "mcp": _call("mcp__scripted__echo", {"text": "from the server"}),
}
_PLAN_LACKS = frozenset({("shell line of a skill", "plan")})
"""Plan mode runs no shell line that writes."""
CLAUDE = Driver(
    modes=("build", "plan", "accept-edits", "bypass"),
    scenes=_CLAUDE_SCENES,
    in_e2e=frozenset(
        {
            ("write", "bypass"),
            ("write", "plan"),
            ("read outside", "bypass"),
            ("write of a subagent in background", "bypass"),
            ("shell line of a skill", "bypass"),
        }
    ),
    lacks=_PLAN_LACKS,
    arrange=_claude_home,
    settings={"IS_SANDBOX": "1"},  # `bypass` may be chosen by root only where the person says that this is a sandbox
)

# --- Codex ----------------------------------------------------------------------------------------------------------


def _codex_server(bench: Bench) -> None:
    """An MCP server in Codex's own configuration."""
    file = bench.place.home / ".codex" / "config.toml"
    server = CODEX_MCP_TOML.format(python=json.dumps(sys.executable), server=json.dumps(str(MCP_SERVER)))
    file.write_text(file.read_text() + server)


def _patch(*lines: str) -> str:
    return _call("apply_patch", "\n".join(("*** Begin Patch", *lines, "*** End Patch", "")))


_ADD = ("*** Add File: new.txt", "+new")
_OUTSIDE_COMMANDS = {"read outside": "bash:cat {outside}/far.txt", "bash outside": "bash:touch {outside}/touched.txt"}
_NO_TOOL = "Codex does not ask about it: it is started without the tool where a rule denies it or asks for it"
_READ_ONLY = "Codex runs an accepted command of plan mode in a sandbox that can only read"
CODEX = Driver(
    modes=("build", "plan", "accept-edits", "bypass"),
    scenes={
        "write": "write",
        "edit": "read_edit",
        "edit a path": _patch("*** Add File: sub/new.txt", "+new"),
        "move": _patch("*** Update File: notes.txt", "*** Move to: sub/../sub/moved.txt", "@@", "-one", "+first"),
        "write by a command": _call(
            "exec_command", {"cmd": "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: new.txt\n+new\n*** End Patch\nEOF"}
        ),
        "write outside": _patch("*** Add File: {outside}/new.txt", "+new"),
        "bash touch": "bash:touch touched.txt",
        "bash cat": "bash:cat secret.txt",
        "read": "bash:cat secret.txt",
        "read a path": "bash:cat sub/../secret.txt",
        "read an image": _call("view_image", {"path": "{project}/secret.png"}),
        **_OUTSIDE_COMMANDS,
        "websearch": "text",
        "task": "task:text",
        "write of a subagent": f"task:{_patch('*** Add File: new.txt', '+new')}",
        "loop": _call("exec_command", *[{"cmd": "echo again >> count.txt"}] * LOOPS),
        "todo": "todo",
        "mcp": "mcp:echo",
        "mcp resource": _call("read_mcp_resource", {"server": "scripted", "uri": "scripted://probe"}),
    },
    in_e2e=frozenset(
        {
            ("write", "bypass"),
            ("move", "accept-edits"),
            ("read outside", "bypass"),
        }
    ),
    gaps={
        **{
            ("todo", mode): "Codex's plan is not asked about, and changes nothing" for mode in ("build", "accept-edits", "bypass")
        },
        ("mcp resource", "*"): "Codex reads the resources of MCP servers without asking",
    },
    switched_off={("websearch", "*"): _NO_TOOL, ("task", "*"): _NO_TOOL, ("read an image", "*"): _NO_TOOL},
    lacks=frozenset({("todo", "plan")}),
    held_anyway={
        ("bash touch", "plan"): _READ_ONLY,
        ("bash outside", "plan"): _READ_ONLY,
        ("loop", "plan"): _READ_ONLY,
        ("loop", "build"): "where a rule allows commands, Codex runs them in a sandbox that can only read",
    },
    arrange=_codex_server,
)

# --- Pi -------------------------------------------------------------------------------------------------------------

PI = Driver(
    modes=("build", "plan", "accept-edits", "bypass"),
    scenes={
        "write": _call("write", {"path": "new.txt", "content": "new\n"}),
        "edit": "read_edit",
        "edit a path": _call("write", {"path": "{folder}/new.txt", "content": "new\n"}),
        "bash touch": "bash:touch touched.txt",
        "bash cat": "bash:cat secret.txt",
        "read": _call("read", {"path": "secret.txt"}),
        "read a path": _call("read", {"path": "sub/../secret.txt"}),
        "read outside": _call("read", {"path": "{outside}/far.txt"}),
        "write outside": _call("write", {"path": "{outside}/new.txt", "content": "new\n"}),
        "bash outside": "bash:touch {outside}/touched.txt",
        "loop": _call("bash", *[{"command": "echo again >> count.txt"}] * LOOPS),
    },
    in_e2e=frozenset(
        {
            ("write", "bypass"),
        }
    ),
    # The pinned Pi has no MCP: `make adopt AGENT=pi` plays it with a newer one.
    elsewhere={"mcp": "tests/e2e/test_agents.py::test_a_rule_that_denies_holds_in_a_script"},
)

# --- OpenCode -------------------------------------------------------------------------------------------------------


def _opencode_home(bench: Bench) -> None:
    """An MCP server in the person's own configuration, beside the provider."""
    file = configuration_file(bench.place)
    server = {"type": "local", "command": [sys.executable, str(MCP_SERVER)], "enabled": True}
    configure(bench.place, {**json.loads(file.read_text()), "mcp": {"scripted": server}})


def _task(prompt: str) -> str:
    return _call("task", {"description": "look around", "subagent_type": "general", "prompt": prompt})


_NEW_FILE = {"filePath": "{project}/new.txt", "content": "new\n"}
_OPENCODE_SCENES = {
    "write": _call("write", _NEW_FILE),
    "edit": "read_edit",
    "edit a path": _call("write", {**_NEW_FILE, "filePath": "{folder}/new.txt"}),
    "bash touch": "bash:touch touched.txt",
    "bash cat": "bash:cat secret.txt",
    "read": _call("read", {"filePath": "{project}/secret.txt"}),
    "read a path": _call("read", {"filePath": "{project}/sub/../secret.txt"}),
    "read outside": _call("read", {"filePath": "{outside}/far.txt"}),
    "write outside": _call("write", {**_NEW_FILE, "filePath": "{outside}/new.txt"}),
    "bash outside": "bash:touch {outside}/touched.txt",
    "webfetch": _call("webfetch", {"url": f"http://{FETCHED_HOST}/page", "format": "text"}),
    "websearch": _call("websearch", {"query": "probe"}),
    "task": _task(f"[scene:text] {TASK_WORDS}"),
    "write of a subagent": _task(f"[scene:{_call('write', _NEW_FILE)}] {TASK_WORDS}"),
    "loop": _call("bash", *[{"command": "echo again >> count.txt", "description": "count"}] * LOOPS),
    "skill": _call("skill", {"name": "probe"}),
    "todo": "todo",
    "mcp": "mcp:echo",
}
_OPENCODE_GAPS = {("loop", "build"): "OpenCode notices equal calls within one answer of its model only"}
OPENCODE = Driver(
    modes=("build",),
    scenes=_OPENCODE_SCENES,
    in_e2e=frozenset(),  # it takes a minute
    gaps=_OPENCODE_GAPS,
    arrange=_opencode_home,
    settings={"OPENCODE_ENABLE_EXA": "1"},  # without it there is no web search
)

# --- agents of the Agent Client Protocol ----------------------------------------------------------------------------

_CLAUDE_ACP_SCENES = {
    **{action: scene for action, scene in _CLAUDE_SCENES.items() if action not in ("bash in background", "todo")},
    "task": _agent(f"[scene:text] {TASK_WORDS}", run_in_background=False),
}
del _CLAUDE_ACP_SCENES["write of a subagent in background"]
"""After the turn of work in the background Claude Code begins another by itself, which claude-agent-acp shows as a turn of its
own. claude-agent-acp 0.100.0 offers the model no tool for todos here."""
CLAUDE_ACP = Driver(
    modes=("build", "plan", "accept-edits", "bypass"),
    scenes=_CLAUDE_ACP_SCENES,
    in_e2e=frozenset(),
    switched_off={("shell line of a skill", "*"): "Claude Code refuses shell lines where it is made to ask for every call"},
    lacks=_PLAN_LACKS,
    arrange=_claude_home,
    settings={"IS_SANDBOX": "1"},
)
_OPENCODE_ACP_SCENES = {a: scene for a, scene in _OPENCODE_SCENES.items() if a not in ("task", "write of a subagent")}
"""`opencode acp` passes on nothing that a subagent asks: the turn would wait."""
OPENCODE_ACP = Driver(
    modes=("build",),
    scenes=_OPENCODE_ACP_SCENES,
    in_e2e=frozenset(),
    gaps=_OPENCODE_GAPS,
    arrange=_opencode_home,
    settings={"OPENCODE_ENABLE_EXA": "1"},
)
"""It has no other gaps here: OpenCode reads the configuration's rules itself. A session's own rules only answer what it asks."""
CLAUDE_OLD = replace(
    CLAUDE,
    scenes={action: scene for action, scene in _CLAUDE_SCENES.items() if action != "bash in background"},  # it has no Monitor
    in_e2e=frozenset(),
)

_CARD_SCENES = {
    "write": "write",
    "edit": "read_edit",
    "edit a path": "write:{folder}/new.txt",
    "bash touch": "bash:touch touched.txt",
    "bash cat": "bash:cat secret.txt",
    "read": "read:{project}/secret.txt",
    "read a path": "read:{project}/sub/../secret.txt",
    "read outside": "read:{outside}/far.txt",
    "write outside": "write:{outside}/new.txt",
    "bash outside": "bash:touch {outside}/touched.txt",
    "mcp": "mcp:echo",
}
"""By what a tool does: the scripted model finds it among those that it is offered."""
_READS = "It asks nobody before it reads."
_READS_BY_COMMAND = "It asks nobody before a command that only reads."


def _in(modes: str, *actions: str, why: str) -> dict[tuple[str, str], str]:
    return {(action, mode): why for action in actions for mode in modes.split()}


_GAPS: Mapping[str, Mapping[tuple[str, str], str]] = {
    name: _in("build bypass", "bash cat", why=_READS_BY_COMMAND) for name in ("gemini", "qwen", "vibe")
}
"""Agent with a card -> what is not held, which `Enforcement.missing` says of all that such an agent neither asks nor brings."""
_UNASKED: Mapping[str, Mapping[tuple[str, str], str]] = {
    name: _in("build bypass", "read", "read a path", why=_READS) for name in ("copilot", "gemini", "vibe")
}
"""Agent with a card -> what the kernel alone holds."""

_BOUND = "An agent reads and writes through this server in the session's own directories alone, whatever a person accepts."
_OWN_BOUND = "It refuses paths outside of the project by itself."
_HELD: Mapping[str, Mapping[tuple[str, str], str]] = {
    "fast-agent": _in("build", "read outside", "write outside", why=_BOUND),
    "gemini": _in("build bypass", "read outside", "write outside", why=_OWN_BOUND),
    "qwen": _in("build bypass", "read outside", "write outside", why=_BOUND),
}
"""Agent with a card -> what does not happen though a person accepts it."""


def _card(name: str) -> Driver:
    """The driver of an agent with a card: what it can and in which modes stands there."""
    abilities = agents()[name].abilities
    modes = tuple(mode.id for mode in abilities.modes if mode.id in ("build", "bypass"))
    scenes = {action: scene for action, scene in _CARD_SCENES.items() if ROWS[action].key not in abilities.lacks}
    gaps, unasked, held = (table.get(name, {}) for table in (_GAPS, _UNASKED, _HELD))
    return Driver(modes=modes, scenes=scenes, in_e2e=frozenset(), gaps=gaps, unasked=unasked, held_anyway=held)


ADOPTED_DRIVERS: Mapping[str, Driver] = {
    **{name: _card(name) for name, card in CARDS.items() if RECORD in card and agents()[name].program.tested},
    "kilo-serve": replace(
        OPENCODE,
        scenes={
            **_OPENCODE_SCENES,
            "bash in background": _call("background_process", {"action": "start", "command": "touch monitored.txt"}),
        },
        switched_off={
            ("write of a subagent", "build"): "it is given all rules as the session's own: one that asks has no subagents"
        },
        settings={"KILO_ENABLE_EXA": "1"},
    ),
}
"""Played where `make adopt` brings the program. An agent with a card and a tested version needs no row here."""
DRIVERS: Mapping[str, Driver] = {
    "claude": CLAUDE,
    "claude-2.1.197": CLAUDE_OLD,
    "codex": CODEX,
    "pi": PI,
    "opencode": OPENCODE,
    "claude-agent-acp": CLAUDE_ACP,
    "opencode-acp": OPENCODE_ACP,
    **ADOPTED_DRIVERS,
}
"""By the name in `tests.e2e.support.agents.AGENTS`."""
