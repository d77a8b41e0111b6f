"""The matrix of permission rules: the calls that each agent can make, and the evidence that a call was made.

To add an agent, add a row to `matrix_drivers.DRIVERS`: its modes, and for each action of `ROWS` the call of its own tool that
does it: a scene of the scripted model (`shim/dev/scripted/answers.py`; `tool:NAME:JSON` calls any tool). In a scene, {project},
{outside} and {folder} are paths: the project, a folder outside of it, and a folder inside. An action that the agent has no tool
for is left out; if its key has no other action, the key is in `Enforcement.absent` of the agent's row of the registry.
What cannot be held is in `gaps` with the reason, which is also in `Enforcement.missing`: the test shows that it is still so.

To add an action, add a row to `ROWS`: the rule, and what shows that the call was made: a file, a host that was reached, or words
that the agent sent to its model. Nothing is believed of what the server says itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .bench import Bench
from .wire import Json

SECRET, FAR_SECRET, SKILL_WORDS, TASK_WORDS = "magenta-inside", "indigo-outside", "ochre-skill-body", "say what you see"
LOOPS = 3
"""Equal calls in a row, the last of which is a loop."""
FETCHED_HOST = "probe.invalid"
SEARCH_HOST = "mcp.exa.ai"
"""Where OpenCode searches. Claude Code and Codex let the model's server search, by a tool that they offer it."""
IMAGE = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")
IMAGE_WORDS = "data:image/png"
TODO_WORDS = ("Todos have been modified", "created successfully: ", '"status": "in_progress"', "Plan updated")
"""What a todo tool answers when it has written the list: Claude Code (two tools), OpenCode, Codex."""


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
        (self.project / "secret.png").write_bytes(IMAGE)
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
class TurnEvidence:
    """What is there after a turn: the files, what the agent sent to its model in it, and the hosts that it wanted to reach."""

    ground: Ground
    requests: tuple[Json, ...]
    hosts: tuple[str, ...]
    messages: tuple[Json, ...]
    """Of the session; for the words of a failure."""

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
            if any(words in json.dumps(m) for m in messages if m.get("type") == "agent_message"):  # Codex
                return True
            begin = [m for m in messages if m.get("role") == "user"][:1]
            said = json.dumps(begin)
            if words in said and "scene:tool:" not in said:  # the person's own prompt holds the subagent's
                return True
        return False

    def tool_result_has(self, *words: str) -> bool:
        """Whether the result of a tool that came to the model holds one of these."""
        return any(word in result for request in self.requests for result in _results(request) for word in words)

    def model_was_offered(self, kind: str) -> bool:
        """Whether a request offered the model a tool whose type, or name where it has no type of its own, begins so."""
        offered = [tool for request in self.requests for tool in request.get("tools") or []]
        return any(str(tool.get(key, "")).startswith(kind) for tool in offered for key in ("type", "name"))


def _results(request: Json) -> Iterator[str]:
    """The texts of the tool results of a request, on the four wires of the scripted model."""
    for message in request.get("messages") or []:
        if message.get("role") == "tool":
            yield _text(message.get("content"))
        elif isinstance(message.get("content"), list):
            yield from (_text(block.get("content")) for block in message["content"] if block.get("type") == "tool_result")
    for message in request.get("contents") or []:
        yield from (json.dumps(part["functionResponse"]) for part in message.get("parts", []) if "functionResponse" in part)
    for item in request.get("input") or []:
        if str(item.get("type", "")).endswith("_output"):
            yield _text(item.get("output"))


def _text(content: object) -> str:
    """The text of a content: a string, or a list of blocks."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text") or block.get("image_url", "")) for block in content or [] if isinstance(block, dict))


@dataclass(frozen=True)
class Row:
    """One action. `rules` forbid or ask for it (the action in the place of ACTION); `happened` says that it was done."""

    key: str
    rules: Mapping[str, object]
    happened: Callable[[TurnEvidence], bool]
    writes: bool = False
    """It edits files, so plan mode forbids it whatever the rules say."""


ACTION = "ACTION"


ROWS: Mapping[str, Row] = {
    "write": Row("edit", {"edit": ACTION}, lambda s: s.file("new.txt"), writes=True),
    "edit": Row("edit", {"edit": ACTION}, lambda s: "Added" in s.text("README.md"), writes=True),
    "edit a path": Row("edit", {"edit": {"*": "allow", "sub/*": ACTION}}, lambda s: s.file("sub", "new.txt"), writes=True),
    "move": Row("edit", {"edit": {"*": "allow", "sub/*": ACTION}}, lambda s: s.file("sub", "moved.txt"), writes=True),
    "write by a command": Row("edit", {"edit": ACTION, "bash": "allow"}, lambda s: s.file("new.txt"), writes=True),
    "bash touch": Row("bash", {"bash": ACTION}, lambda s: s.file("touched.txt")),
    "bash cat": Row("bash", {"bash": {"*": "allow", "cat *": ACTION}}, lambda s: s.model_saw(SECRET)),
    "bash in background": Row("bash", {"bash": ACTION}, lambda s: s.file("monitored.txt")),
    "shell line of a skill": Row("bash", {"bash": ACTION}, lambda s: s.file("skilled.txt")),
    "read": Row("read", {"read": ACTION}, lambda s: s.model_saw(SECRET)),
    "read a path": Row("read", {"read": {"*": "allow", "secret.txt": ACTION}}, lambda s: s.model_saw(SECRET)),
    "read an image": Row("read", {"read": ACTION}, lambda s: s.tool_result_has(IMAGE_WORDS)),
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
    "webfetch": Row("webfetch", {"webfetch": ACTION}, lambda s: FETCHED_HOST in s.hosts),
    "websearch": Row("websearch", {"websearch": ACTION}, lambda s: s.model_was_offered("web_search") or SEARCH_HOST in s.hosts),
    "task": Row("task", {"task": ACTION}, lambda s: s.model_began_with(TASK_WORDS)),
    "write of a subagent": Row("edit", {"edit": ACTION}, lambda s: s.file("new.txt"), writes=True),
    "write of a subagent in background": Row("edit", {"edit": ACTION}, lambda s: s.file("new.txt"), writes=True),
    "loop": Row("doom_loop", {"doom_loop": ACTION, "bash": "allow"}, lambda s: len(s.text("count.txt").splitlines()) >= LOOPS),
    "skill": Row("skill", {"skill": ACTION}, lambda s: s.model_saw(SKILL_WORDS)),
    "todo": Row("todowrite", {"todowrite": ACTION}, lambda s: s.tool_result_has(*TODO_WORDS)),
    "mcp": Row("mcp", {"scripted_*": ACTION}, lambda s: s.tool_result_has("echo: ")),
    "mcp resource": Row("mcp", {"scripted_*": ACTION}, lambda s: s.tool_result_has("Method not found")),
}
"""By the name of the action."""


def rules(row: Row, action: str) -> Json:
    """`permission` of the configuration, with this action."""
    return json.loads(json.dumps(row.rules).replace(ACTION, action))


@dataclass(frozen=True)
class Driver:
    """An agent of the matrix.

    scenes       by the name of the action
    gaps         (action, mode) or (action, "*") -> why it is not held: it happens although it is denied
    unasked      (action, mode) -> why nobody is asked: the kernel holds a deny alone, so that without a sandbox it is a gap
    switched_off (action, mode) or (action, "*") -> why nobody is asked: under `ask`, too, the agent is started without the tool
    lacks        (action, mode) that the agent has no tool for in that mode
    held_anyway  (action, mode) -> why the agent itself holds it: it does not happen when a person accepts it either
    in_e2e       the cases (action, mode) that `make e2e` plays; `make e2e-all` plays the others
    elsewhere    permission -> the test that plays it instead of the matrix
    """

    modes: tuple[str, ...]
    scenes: Mapping[str, str]
    in_e2e: frozenset[tuple[str, str]]
    gaps: Mapping[tuple[str, str], str] = field(default_factory=dict)
    unasked: Mapping[tuple[str, str], str] = field(default_factory=dict)
    switched_off: Mapping[tuple[str, str], str] = field(default_factory=dict)
    lacks: frozenset[tuple[str, str]] = frozenset()
    held_anyway: Mapping[tuple[str, str], str] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    arrange: Callable[[Bench], None] = lambda bench: None
    settings: Mapping[str, str] = field(default_factory=dict)

    def gap(self, action: str, mode: str) -> str | None:
        return self.gaps.get((action, mode)) or self.gaps.get((action, "*"))

    def is_switched_off(self, action: str, mode: str) -> bool:
        return (action, mode) in self.switched_off or (action, "*") in self.switched_off
