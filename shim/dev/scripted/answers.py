"""Chooses the scripted model's answer to a request. Pure.

The tag `[scene:NAME]` or `[scene:NAME:ARGUMENT]` in the last prompt chooses the scene, and the number of tool results that
came after that prompt the step.

    text         one text answer
    long:N       N words, one delta each, without a pause
    drip:N       N words, ten a second: time enough to look, reload or abort while text streams
    read_edit    text + read, text + edit of README.md, final text
    read:PATH    text + a read of README.md, or of that file, final text
    write:PATH   text + a new file, new.txt or that one, final text
    bash:CMD     text + one shell command, final text
    ask_bash:CMD the same, asking for more rights where the agent's tool can (Codex)
    slow_bash:N  a shell command that takes N seconds and prints a line a second, at most TICKS lines
    two_bash     two shell commands in one step, final text
    parallel     two reads in one step, final text
    reason       reasoning, then text
    question     the agent's question tool, final text
    todo         the agent's todo tool, final text
    task:SCENE   a subagent whose prompt is that scene, final text
    plan         the agent's exit-plan tool, final text
    mcp:TOOL     the offered tool whose name ends so, with {"text": "hello"}, final text
    tool:NAME:JSON  any tool by its own name with these arguments, final text; JSON may be a list: one call in each step.
                 A JSON string is the whole input of a tool that takes text (Codex's `apply_patch`)
    delegate:AGENT:SCENE  the tools of this server's `/mcp`: another agent gets that scene, is waited for and read; final text
    fail_tool    a read of a missing file, final text
    see:WORD     text: how many images the request holds, and whether it holds that word outside of the tag
    error:CODE   that HTTP status from the model (400)
    json:TEXT    that text, through Claude's tool for answers in a schema where it is offered
    wrong:TEXT   no JSON, until the prompt was sent again; then as `json`
    used:PERCENT text, with the account's limits that far used
    limit:N      the first request of the prompt is refused, because the limit is used up for N seconds; then text
    overload     529 or 503 twice, then text
    drop         the first stream breaks in its middle, the second is whole
    length       text that stops for its length
    hang         some text, then silence, for aborts
    markdown     a heading, a list and a block of code

Small requests of OpenCode and Claude Code for titles and summaries get a fixed answer in every scene. Any other prompt is echoed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from shim.dev.scripted.schemas import schemas_of
from shim.dev.scripted.tools import Body, Call, call
from universal.items import Json
from universal.lib.jsonvalue import arr, obj

TITLE = "A short title"
DELTA_S = 0.01
DRIP_S = 0.1
TICKS = 20
STRUCTURED = frozenset({"json", "wrong"})
MARKDOWN = """# A heading

Some **bold** text and `code`:

- first
- second

```python
def f(x):
    return x + 1
```

The end."""
TAG = re.compile(r"\[scene:([a-z_]+)(?::([^\]]*))?\]")
TOOL = re.compile(r"(?:tool|task:tool):[^:\]]+:")
"""Beginning of a scene whose argument ends in JSON, which may hold brackets."""

Turn: TypeAlias = tuple[str, str]
"""("user", its text) or ("tool", ""), in the order of the conversation."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request.

    A `status` other than 200 is an HTTP error. `hang`: silence after the text; `cut`: the text stops for its length; `drop`: the
    connection breaks in the middle.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    status: int = 200
    hang: bool = False
    cut: bool = False
    drop: bool = False
    pause_s: float = DELTA_S
    used: float | None = None
    """How far the account's limit is used, from 0 to 1; None: the answer tells nothing of it."""
    reset_s: int = 3_600


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """A request of any wire format. `images`: their number; `body`: its JSON text."""

    history: tuple[Turn, ...]
    tools: tuple[str, ...]
    system: str
    body: Body = field(repr=False)


def text_of(content: Json) -> str:
    """The text of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, str) else str(obj(part).get("text") or "") for part in arr(content)]
    return "\n".join(part for part in parts if part)


def choose_scene(history: Iterable[Turn]) -> tuple[str, str, int, str]:
    """(scene, argument, step, prompt) of the last prompt with a tag. The scene is "" without a tag."""
    scene, argument, step, prompt = "", "", 0, ""
    for kind, text in history:
        tag = _last_tag(text) if kind == "user" else None
        if tag is not None:
            # Agents add notes around the prompt, on other lines.
            (scene, argument, end), step = tag, 0
            prompt = text[end:].split("\n", 1)[0]
        elif kind == "tool":
            step += 1
    return scene, argument, step, prompt


def _last_tag(text: str) -> tuple[str, str, int] | None:
    """(scene, argument, end position) of the last tag in a text."""
    last: tuple[str, str, int] | None = None
    at = text.find("[scene:")
    while at >= 0:
        last = _tag(text, at) or last
        at = text.find("[scene:", max(at + 1, last[2] if last else 0))
    return last


def _tag(text: str, at: int) -> tuple[str, str, int] | None:
    tool = TOOL.match(text, at + len("[scene:"))
    if tool is not None:
        with suppress(ValueError):
            _, end = json.JSONDecoder().raw_decode(text, tool.end())
            if text[end : end + 1] == "]":
                scene, _, argument = text[at + len("[scene:") : end].partition(":")
                return scene, argument, end + 1
    match = TAG.match(text, at)
    return (match[1], match[2] or "", match.end()) if match else None


DIRECTORY = re.compile(r"working (?:in the )?directory:?\s*(/[^\s\\\"<]+)", re.IGNORECASE)
"""How agents name it to the model: Claude and Codex "Working directory: /p", Cline with two capitals, Qwen "in the directory"."""


def directory_of(body: Body) -> str:
    """The directory in which the agent says that it works, or "."."""
    request = json.dumps(body)
    match = DIRECTORY.search(request) or re.search(r"<cwd>(/[^<]+)</cwd>", request)
    return match.group(1) if match else "."


Step: TypeAlias = tuple[str, list[tuple[str, tuple[str, ...]]]]
"""(text, [(tool, arguments)])."""


def _steps(scene: str, argument: str, request: ScriptedRequest) -> list[Step]:
    """The steps before the final text of a scene with tools. Codex waits for subagents and finds MCP tools by tools."""
    cwd, tools = directory_of(request.body), request.tools
    wait: list[Step] = [("Waiting.", [("wait", ())])] if "wait_agent" in tools else []
    search: list[Step] = [("Looking for it.", [("search", (argument or "echo",))])] if "tool_search" in tools else []
    readme, notes = f"{cwd}/README.md", f"{cwd}/notes.txt"
    seconds = int(argument) if argument.isdecimal() else 4
    ticks = "; ".join(f"echo tick {i + 1}; sleep {1 if i + 1 < TICKS else seconds - i}" for i in range(min(seconds, TICKS)))
    table: dict[str, list[Step]] = {
        "read_edit": [
            ("I'll read the file first.", [("read", (readme,))]),
            ("Now I'll add a line.", [("edit", (readme, "Hello", "Hello\nAdded line"))]),
        ],
        "read": [("Looking.", [("read", (argument or readme,))])],
        "write": [("A new file.", [("write", (argument or f"{cwd}/new.txt", "alpha\nbeta\n"))])],
        "bash": [("Let me run that.", [("bash", (argument or "echo hi && ls",))])],
        "ask_bash": [("Let me run that.", [("ask_bash", (argument or "touch made.txt && echo made",))])],
        "slow_bash": [("This takes a while.", [("bash", (ticks,))])],
        "two_bash": [("Running both.", [("bash", ("pwd",)), ("bash", ("echo two",))])],
        "parallel": [("Reading both.", [("read", (readme,)), ("read", (notes,))])],
        "question": [("I need to know.", [("question", ())])],
        "todo": [("Planning.", [("todo", ())])],
        "task": [("Delegating.", [("task", (f"[scene:{argument or 'text'}] say what you see",))]), *wait],
        "plan": [("Here is my plan.", [("plan", ())])],
        "mcp": [*search, ("Asking the server.", [("mcp", (argument or "echo", '{"text": "hello"}'))])],
        "fail_tool": [("Looking.", [("read", (f"{cwd}/missing.txt",))])],
        "delegate": _delegation(argument, request) if scene == "delegate" else [],
        "tool": [("Using a tool.", [("named", (name, text))]) for name, text in named_calls(argument)],
    }
    return table.get(scene, [])


SESSION = re.compile(r"ses_[0-9A-Za-z]+")
ASKED = re.compile(r'\\?"request\\*": *\\*"([^"\\]+)')


def _delegation(argument: str, request: ScriptedRequest) -> list[Step]:
    """The steps of `delegate`. The session and what it asks are taken from the results before."""
    agent, _, scene = argument.partition(":")
    results = json.dumps(request.body)
    session = (SESSION.findall(results) or [""])[-1]
    start = {"agent": agent, "prompt": f"[scene:{scene or 'text'}] say what you see"}
    waits = [{"session": session}, {"session": session, "ignore": list(dict.fromkeys(ASKED.findall(results)))}]
    search: list[Step] = (
        [("Looking for it.", [("search", ("start_session wait read",))])] if "tool_search" in request.tools else []
    )
    return [
        *search,
        ("Handing it on.", [("mcp", ("start_session", json.dumps(start)))]),
        *(("Waiting for it.", [("mcp", ("wait", json.dumps(wait)))]) for wait in waits),
        ("Reading the answer.", [("mcp", ("read", json.dumps({"session": session})))]),
    ]


def named_calls(argument: str) -> list[tuple[str, str]]:
    """(tool, JSON of its arguments) for each step of a `tool` scene. Invalid JSON gives no call."""
    name, _, text = argument.partition(":")
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return []
    return [(name, json.dumps(step)) for step in (arr(value) if isinstance(value, list) else [value])]


def answer(request: ScriptedRequest, attempts: dict[str, int]) -> Answer:
    """Choose the answer to a request. `attempts` counts the tries of each overloaded prompt, and is changed."""
    scene, argument, step, prompt = choose_scene(request.history)
    if not scene or ("title" in request.system.lower() and not request.tools):
        form = obj(obj(request.body.get("output_config")).get("format"))  # Claude Code 2.1.330 asks for an object
        return Answer(json.dumps({"title": TITLE}) if form.get("type") == "json_schema" else TITLE)
    steps = _steps(scene, argument, request)
    if steps:
        if step >= len(steps):
            return Answer("Done!")
        text, actions = steps[step]
        schemas = schemas_of(request.body)
        return Answer(
            text, tuple(entry for tool, arguments in actions for entry in call(tool, arguments, request.tools, schemas))
        )
    match scene:
        case "long" | "drip":
            words = " ".join(f"word{n}" for n in range(int(argument or 50)))
            return Answer(words, pause_s=DRIP_S if scene == "drip" else 0)
        case "reason":
            return Answer("After thinking: 42.", reasoning="Let me think about this carefully.")
        case "markdown":
            return Answer(MARKDOWN)
        case "see":
            return Answer(describe_images(request.body, argument))
        case "error":
            return Answer(status=int(argument or 400))
        case "used" | "limit" | "json" | "wrong":
            attempts[prompt] = attempts.get(prompt, 0) + 1
            is_first = attempts[prompt] == 1
            return (
                _in_schema(request, argument, step, scene, is_first) if scene in STRUCTURED else _plan(scene, argument, is_first)
            )
        case "overload":
            attempts[prompt] = attempts.get(prompt, 0) + 1
            return Answer("Back again.") if attempts[prompt] > 2 else Answer(status=529)
        case "drop":
            attempts[prompt] = attempts.get(prompt, 0) + 1
            return Answer("Back again.", drop=attempts[prompt] == 1)
        case "length":
            return Answer("This answer is cut", cut=True)
        case "hang":
            return Answer("I will now think for a long time", hang=True)
        case _:
            return Answer(f"You said: {prompt.strip()[:200] or 'hello'}")


def _in_schema(request: ScriptedRequest, value: str, step: int, scene: str, is_first: bool) -> Answer:
    """An answer in a schema. If Claude Code has refused one, the next is another."""
    if scene == "wrong" and is_first:
        return Answer("I do not know.")
    if "StructuredOutput" not in request.tools:
        return Answer(value)
    return Answer("", (Call("StructuredOutput", obj(json.loads(value)) if not step else {"name": "Ada", "age": 7}),))


def _plan(scene: str, number: str, is_first: bool) -> Answer:
    """An answer that tells the limits of the account's plan."""
    if scene == "used":
        return Answer("Noted.", used=int(number) / 100)
    return Answer(status=429, used=1.0, reset_s=int(number or 3_600)) if is_first else Answer("Back again.", used=0.0)


def describe_images(body: Body, word: str) -> str:
    """Describe the request: its number of images, and whether it holds `word` outside of the tag."""
    request = json.dumps(body)
    images = len(re.findall(r'"type": "(?:image|input_image|image_url)"|"mimeType": "image/', request))
    there = bool(word) and word in request.replace(f"[scene:see:{word}]", "")
    return f"I see {images} image(s){f', and the word {word}' if there else ''}."
