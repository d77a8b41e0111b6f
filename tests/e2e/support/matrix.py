"""The matrix of permission rules: which calls each agent can make, and how it is seen that a call was made.

To add an agent, add a row to `DRIVERS`: its modes, and for each action of `ROWS` the call of its own tool that does it: a scene
of the scripted model (`shim/scripted/answers.py`; `tool:NAME:JSON` calls any tool). In a scene, {project}, {outside} and
{folder} are paths: the project, a folder outside of it, and a folder inside. An action that the agent has no tool for is left
out; if its key has no other action, the key is in `Enforcement.absent` of the agent's row of the registry.
What cannot be held is in `gaps` with the reason, which is also in `Enforcement.missing`: the test shows that it is still so.

To add an action, add a row to `ROWS`: the rule, and what shows that the call was made: a file, or words that the agent sent to
its model. Nothing is believed of what the server says itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .bench import Bench
from .wire import Json, tools

SECRET, FAR_SECRET, SKILL_WORDS, TASK_WORDS = "magenta-inside", "indigo-outside", "ochre-skill-body", "umber-subagent"
LOOPS = 3
"""Equal calls in a row, the last of which is a loop."""
REFUSALS = ("rule which prevents", "rejected permission", "doesn't want to proceed", "Plan mode is on", "not permitted")
"""Words of an answer that refuses a call: by the server's rules, by a person, by the agents' own."""


@dataclass(frozen=True)
class Ground:
    """What the calls of a case touch, made anew for each: a project, and a folder outside of it."""

    bench: Bench

    @property
    def project(self) -> Path:
        return self.bench.place.project

    @property
    def outside(self) -> Path:
        return self.bench.place.root / "outside"

    def fill(self) -> None:
        self.bench.place.reset()
        for folder in (self.outside, self.project / "sub"):
            folder.mkdir(exist_ok=True)
            for path in folder.iterdir():
                path.unlink()
        (self.project / "secret.txt").write_text(SECRET + "\n")
        (self.outside / "far.txt").write_text(FAR_SECRET + "\n")
        skill = self.project / ".claude" / "skills" / "probe" / "SKILL.md"
        skill.parent.mkdir(parents=True, exist_ok=True)
        skill.write_text(f"---\nname: probe\ndescription: Say what the probe says.\n---\n{SKILL_WORDS}\n")

    def scene(self, text: str) -> str:
        """The prompt, with paths in their places. Braces of JSON stay."""
        places = {"{project}": self.project, "{outside}": self.outside, "{folder}": self.project / "sub"}
        for name, path in places.items():
            text = text.replace(name, str(path))
        return f"[scene:{text}] go"


@dataclass(frozen=True)
class Seen:
    """What is there after a turn: the files, what the agent sent to its model in it, and the session's messages."""

    ground: Ground
    requests: tuple[Json, ...]
    messages: tuple[Json, ...]

    def file(self, *parts: str) -> bool:
        return self.ground.project.joinpath(*parts).exists()

    def text(self, name: str) -> str:
        path = self.ground.project / name
        return path.read_text() if path.exists() else ""

    def model_saw(self, words: str) -> bool:
        """Whether the words came to the model, as the result of a tool or in any other way."""
        return any(words in json.dumps(request) for request in self.requests)

    def model_began_with(self, words: str) -> bool:
        """Whether a conversation of its own began with these words: a subagent's that calls no tool."""
        for request in self.requests:
            messages = request.get("messages") or request.get("input") or []
            begin = [m for m in messages if m.get("role") == "user"][:1]
            said = json.dumps(begin)
            if words in said and "scene:tool:" not in said:  # the person's own prompt holds the subagent's
                return True
        return False

    def refused(self) -> bool:
        """Whether a call of the turn ended with words of a refusal."""
        errors = [str(call["state"].get("error", "")) for call in tools(list(self.messages))]
        return any(words in error for error in errors for words in REFUSALS)


@dataclass(frozen=True)
class Row:
    """One action. `rules` forbid or ask for it (the action in the place of ACTION); `happened` says that it was done."""

    key: str
    rules: Mapping[str, object]
    happened: Callable[[Seen], bool]
    writes: bool = False
    """It edits files, so plan mode forbids it whatever the rules say."""


ACTION = "ACTION"


def _not_refused(seen: Seen) -> bool:
    return bool(tools(list(seen.messages))) and not seen.refused()


ROWS: Mapping[str, Row] = {
    "write": Row("edit", {"edit": ACTION}, lambda s: s.file("new.txt"), writes=True),
    "edit": Row("edit", {"edit": ACTION}, lambda s: "Added" in s.text("README.md"), writes=True),
    "edit a path": Row("edit", {"edit": {"*": "allow", "sub/*": ACTION}}, lambda s: s.file("sub", "new.txt"), writes=True),
    "move": Row("edit", {"edit": {"*": "allow", "sub/*": ACTION}}, lambda s: s.file("sub", "moved.txt"), writes=True),
    "bash touch": Row("bash", {"bash": ACTION}, lambda s: s.file("touched.txt")),
    "bash cat": Row("bash", {"bash": {"*": "allow", "cat *": ACTION}}, lambda s: s.model_saw(SECRET)),
    "bash in background": Row("bash", {"bash": ACTION}, lambda s: s.file("monitored.txt")),
    "read": Row("read", {"read": ACTION}, lambda s: s.model_saw(SECRET)),
    "read a path": Row("read", {"read": {"*": "allow", "secret.txt": ACTION}}, lambda s: s.model_saw(SECRET)),
    "read outside": Row("external_directory", {"external_directory": ACTION}, lambda s: s.model_saw(FAR_SECRET)),
    "write outside": Row(
        "external_directory",
        {"external_directory": ACTION, "edit": "allow"},
        lambda s: (s.ground.outside / "new.txt").exists(),
        writes=True,
    ),
    "bash outside": Row(
        "external_directory",
        {"external_directory": ACTION, "bash": "allow"},
        lambda s: (s.ground.outside / "touched.txt").exists(),
    ),
    "webfetch": Row("webfetch", {"webfetch": ACTION}, _not_refused),
    "websearch": Row("websearch", {"websearch": ACTION}, _not_refused),
    "task": Row("task", {"task": ACTION}, lambda s: s.model_began_with(TASK_WORDS)),
    "write of a subagent": Row("edit", {"edit": ACTION}, lambda s: s.file("new.txt"), writes=True),
    "write of a subagent in background": Row("edit", {"edit": ACTION}, lambda s: s.file("new.txt"), writes=True),
    "loop": Row("doom_loop", {"doom_loop": ACTION, "bash": "allow"}, lambda s: len(s.text("count.txt").splitlines()) >= LOOPS),
    "skill": Row("skill", {"skill": ACTION}, lambda s: s.model_saw(SKILL_WORDS)),
    "todo": Row("todowrite", {"todowrite": ACTION}, _not_refused),
    "mcp": Row("mcp", {"scripted_*": ACTION}, lambda s: s.model_saw("echo: from the server")),
}
"""By the name of the action."""


def rules(row: Row, action: str) -> Json:
    """`permission` of the configuration, with this action."""
    return json.loads(json.dumps(row.rules).replace(ACTION, action))


@dataclass(frozen=True)
class Driver:
    """An agent of the matrix. `scenes` by the name of the action; `gaps`: (action, mode) or (action, "*") -> why it is not held.

    `in_e2e` are the cases (action, mode) that `make e2e` plays; `make nightly` plays all.
    """

    modes: tuple[str, ...]
    scenes: Mapping[str, str]
    in_e2e: frozenset[tuple[str, str]]
    gaps: Mapping[tuple[str, str], str] = field(default_factory=dict)
    arrange: Callable[[Bench], None] = lambda bench: None
    settings: Mapping[str, str] = field(default_factory=dict)

    def gap(self, action: str, mode: str) -> str | None:
        return self.gaps.get((action, mode)) or self.gaps.get((action, "*"))


def _call(tool: str, *arguments: Json) -> str:
    return f"tool:{tool}:{json.dumps(list(arguments) if len(arguments) > 1 else arguments[0])}"


# --- Claude Code ------------------------------------------------------------------------------------------------------


def _claude_servers(bench: Bench) -> None:
    """An MCP server in the person's own configuration, as recordings have it."""
    from shim.record.homes import MCP_SERVER

    server = {"type": "stdio", "command": sys.executable, "args": [str(MCP_SERVER)]}
    file = bench.place.home / ".claude" / ".claude.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"mcpServers": {"scripted": server}, "hasCompletedOnboarding": True}))


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
    "webfetch": _call("WebFetch", {"url": "https://probe.invalid/page", "prompt": "say it"}),
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
    arrange=_claude_servers,
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
