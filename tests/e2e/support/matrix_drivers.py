"""The agents of the permission matrix: the modes of each, and the call of its own tool that does each action of `matrix.ROWS`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from .bench import Bench
from .matrix import FETCHED_HOST, LOOPS, TASK_WORDS, Driver
from .wire import Json


def _call(tool: str, *arguments: Json) -> str:
    return f"tool:{tool}:{json.dumps(list(arguments) if len(arguments) > 1 else arguments[0])}"


# --- Claude Code ------------------------------------------------------------------------------------------------------


def _claude_home(bench: Bench) -> None:
    """An MCP server in the person's own configuration, as recordings have it, and settings that make calls possible offline.

    Fetches ask no host of Anthropic first. Plan mode asks a person instead of a safety check on Anthropic's server.
    """
    from shim.record.homes import MCP_SERVER

    server = {"type": "stdio", "command": sys.executable, "args": [str(MCP_SERVER)]}
    file = bench.place.home / ".claude" / ".claude.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"mcpServers": {"scripted": server}, "hasCompletedOnboarding": True}))
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
    "todo": "todo",
    "mcp": _call("mcp__scripted__echo", {"text": "from the server"}),
}
CLAUDE = Driver(
    modes=("build", "plan", "accept-edits", "bypass"),
    scenes=_CLAUDE_SCENES,
    in_e2e=frozenset(
        {
            ("write", "accept-edits"),
            ("write", "bypass"),
            ("write", "plan"),
            ("bash cat", "accept-edits"),
            ("read outside", "bypass"),
            ("task", "accept-edits"),
            ("write of a subagent in background", "bypass"),
            ("mcp", "bypass"),
            ("loop", "bypass"),
        }
    ),
    arrange=_claude_home,
    settings={"IS_SANDBOX": "1"},  # `bypass` may be chosen by root only where the person says that this is a sandbox
)

# --- Codex ----------------------------------------------------------------------------------------------------------


def _codex_server(bench: Bench) -> None:
    """An MCP server in Codex's own configuration."""
    from shim.record.homes import CODEX_MCP_TOML, MCP_SERVER

    file = bench.place.home / ".codex" / "config.toml"
    server = CODEX_MCP_TOML.format(python=json.dumps(sys.executable), server=json.dumps(str(MCP_SERVER)))
    file.write_text(file.read_text() + server)


_OUTSIDE_COMMANDS = {"read outside": "bash:cat {outside}/far.txt", "bash outside": "bash:touch {outside}/touched.txt"}
CODEX = Driver(
    modes=("build", "plan", "accept-edits", "bypass"),
    scenes={
        "write": "write",
        "edit": "read_edit",
        "bash touch": "bash:touch touched.txt",
        "bash cat": "bash:cat secret.txt",
        "read": "bash:cat secret.txt",
        "read a path": "bash:cat sub/../secret.txt",
        **_OUTSIDE_COMMANDS,
        "task": "task:text",
        "mcp": "mcp:echo",
    },
    in_e2e=frozenset(
        {
            ("write", "bypass"),
            ("edit", "accept-edits"),
            ("bash touch", "bypass"),
            ("bash cat", "build"),
            ("read outside", "bypass"),
        }
    ),
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
            ("edit", "accept-edits"),
            ("bash touch", "bypass"),
            ("bash cat", "build"),
            ("read outside", "build"),
        }
    ),
)

# --- OpenCode -------------------------------------------------------------------------------------------------------

OPENCODE = Driver(
    modes=("build",),
    scenes={
        "write": _call("write", {"filePath": "{project}/new.txt", "content": "new\n"}),
        "edit": "read_edit",
        "bash touch": "bash:touch touched.txt",
        "bash cat": "bash:cat secret.txt",
        "read a path": _call("read", {"filePath": "{project}/sub/../secret.txt"}),
        "read outside": _call("read", {"filePath": "{outside}/far.txt"}),
        "bash outside": "bash:touch {outside}/touched.txt",
        "todo": "todo",
    },
    in_e2e=frozenset({("write", "build"), ("bash touch", "build"), ("read outside", "build")}),
)

DRIVERS: Mapping[str, Driver] = {"claude-2.1.330": CLAUDE, "codex": CODEX, "pi": PI, "opencode": OPENCODE}
"""By the name in `tests.e2e.support.agents.AGENTS`."""
