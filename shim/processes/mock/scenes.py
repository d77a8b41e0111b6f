"""The scenes of the mock agent. The table `SCENES` maps a prompt's first word to a scene; `help` prints it.

A scene is an async function that writes through its `Run`. When it returns, the prompt is answered.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shim.processes.inprocess import Died
from shim.processes.mock.run import Leave, Run, Step, Tool
from universal.agents.mock.wire import Frame
from universal.lib.jsonvalue import arr, text

# --- files of the scene `edit` ----------------------------------------------------------------------------------

MAX_BYTES = 1 << 20
"""Maximum size of a file that the mock edits."""


class EditRefused(Exception):
    """The mock does not change this file. The text says why."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A prepared change. `before` is None for a new file. `old` occurs exactly once, and `new` replaces it."""

    path: Path
    before: str | None
    after: str
    old: str
    new: str
    diff: str


def lines_of(content: str) -> list[str]:
    """Split text into lines that keep their `\\n`. Other line separators of Unicode do not end a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", content)


def unified_diff(name: str, before: str | None, after: str) -> str:
    """Return a unified diff for `git apply` and `patch`. `before` is None for a new file."""
    source = "/dev/null" if before is None else f"a/{name}"
    diff = difflib.unified_diff(lines_of(before or ""), lines_of(after), source, f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff)


def prepare(directory: Path, name: str) -> Edit:
    """Prepare one more line for a file, or a new file of one line. Changes nothing. Raises EditRefused."""
    try:
        root = directory.resolve()
        path = (root / name).resolve()
        if not path.is_relative_to(root) or path == root:
            raise EditRefused(f"{name} is not inside of {root}; the mock changes nothing outside of it.")
        if path.exists() and not path.is_file():
            raise EditRefused(f"{name} is not a file.")
        if path.exists() and path.stat().st_size > MAX_BYTES:
            raise EditRefused(f"{name} is larger than {MAX_BYTES} bytes.")
        before = path.read_bytes().decode() if path.exists() else None
    except UnicodeDecodeError:
        raise EditRefused(f"{name} is not UTF-8 text.") from None
    except (OSError, ValueError) as error:
        raise EditRefused(f"{name} cannot be read: {error}.") from None
    relative = path.relative_to(root).as_posix()
    if before is None:
        after = "Line 1, written by the mock.\n"
        return Edit(path, None, after, "", after, unified_diff(relative, None, after))
    end = "\r\n" if "\r\n" in before else "\n"
    count = len(lines_of(before)) + 1
    glue = "" if not before or before.endswith("\n") else end
    added = f"{glue}Line {count}, written by the mock.{end}"
    old = _tail(before)
    return Edit(path, before, before + added, old, old + added, unified_diff(relative, before, before + added))


def _tail(content: str) -> str:
    """Return the shortest run of last lines that occurs only once, as an editing tool needs it."""
    lines = lines_of(content)
    for start in range(len(lines) - 1, -1, -1):
        tail = "".join(lines[start:])
        if content.find(tail) == content.rfind(tail):
            return tail
    return content


def apply(edit: Edit) -> None:
    """Make the change. Raises EditRefused if the file has changed since `prepare` or cannot be written."""
    try:
        now = edit.path.read_bytes().decode(errors="replace") if edit.path.exists() else None
        if now != edit.before:
            raise EditRefused(f"{edit.path.name} has changed since it was read.")
        edit.path.parent.mkdir(parents=True, exist_ok=True)
        edit.path.write_bytes(edit.after.encode())
    except OSError as error:
        raise EditRefused(f"{edit.path.name} cannot be written: {error.strerror}.") from None


# --- texts, images and questions --------------------------------------------------------------------------------

PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAFklEQVR42mOQz39NEmIY1T"
    "CqYfhqAACg0HkQHKvk/AAAAABJRU5ErkJggg=="
)
"""A blue square of 16 x 16 pixels."""

MARKDOWN = """# Markdown

A paragraph with **bold**, *italic*, `code` and a [link](https://example.com).

## Lists

- one
- two
  - two and a half
1. first
2. second

## Table

| name | size |
|---|---:|
| small | 1 |
| large | 1,000 |

## Code

```python
def greet(name: str) -> str:
    return f"Hello, {name}!"
```

> A quotation.
"""

THOUGHTS = (
    "The person wants to see how reasoning looks. ",
    "It comes before the text, in a part of its own. ",
    "It can be long, so a client may fold it. ",
    "Now that this is clear, the answer can be short. ",
)
PLAN = "1. Read the code.\n2. Change it.\n3. Run the tests.\n"
QUESTIONS: tuple[Frame, ...] = (
    {
        "question": "Which colour shall it have?",
        "header": "Colour",
        "options": [
            {"label": "Red", "description": "Like a tomato"},
            {"label": "Green", "description": "Like grass"},
            {"label": "Blue", "description": "Like the sky"},
        ],
    },
    {
        "question": "Which extras do you want?",
        "header": "Extras",
        "multiple": True,
        "options": [
            {"label": "Tests", "description": "A test for each case"},
            {"label": "Docs", "description": "A page in the manual"},
            {"label": "Logs", "description": "A line for each step"},
        ],
    },
)
PLAN_QUESTION: Frame = {
    "question": "Shall I carry out this plan?",
    "header": "Plan",
    "options": [
        {"label": "Yes", "description": "Switch to build and begin"},
        {"label": "No", "description": "Keep planning"},
    ],
}
COMMAND = "git push origin main"
TODOS = ("Look at the code", "Change it", "Run the tests")


# --- scenes -----------------------------------------------------------------------------------------------------

MAX_SECONDS = 600
MAX_DELTAS = 20_000
SECOND_S = 1.0
RETRY_S = 1.0
LATE_S = 0.3
"""Seconds between the end of a turn and output that comes too late."""
WORK_S = 0.5
"""Seconds that a subagent works."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A scene. `words` limits the words after its name (None: any number); a longer text is an ordinary prompt."""

    play: Callable[[Run, list[str]], Awaitable[None]]
    about: str
    usage: str = ""
    words: int | None = 0


def number(args: list[str], default: int, most: int) -> int:
    """Return the first argument as a number from 0 to `most`."""
    if not args or not args[0].isdecimal():
        return min(default, most)
    return min(int(args[0]), most) if len(args[0]) < 10 else most


async def bash(step: Step, command: str, description: str) -> Tool:
    """Write a call of the tool `bash`. The mock executes nothing."""
    return await step.tool("bash", {"command": command, "description": description}, command)


# --- text ------------------------------------------------------------------------------------------------


async def echo(run: Run, args: list[str]) -> None:
    """The prompt, without the word `echo`."""
    head, _, rest = run.text.partition(" ")
    await run.answer((rest if head.lstrip("/").lower() == "echo" else run.text) or "(an empty prompt)")


async def markdown(run: Run, args: list[str]) -> None:
    """Answer with all Markdown that a client must render."""
    await run.answer(MARKDOWN)


async def think(run: Run, args: list[str]) -> None:
    """Reason, then answer. The variant sets the length of the reasoning."""
    effort = {"low": 1, "high": len(THOUGHTS)}.get(run.conversation.variant, 2)
    step = await run.step()
    await step.think("".join(THOUGHTS[:effort]))
    await step.say("That is what I thought.")
    await step.finish("stop")


async def slow(run: Run, args: list[str]) -> None:
    """Write a tick each second."""
    seconds = number(args, 3, MAX_SECONDS)
    step = await run.step()
    await step.say_in_pieces((f"tick {n} of {seconds}\n" for n in range(1, seconds + 1)), SECOND_S)
    await step.finish("stop")


async def burst(run: Run, args: list[str]) -> None:
    """Write many deltas without a pause."""
    count = number(args, 1000, MAX_DELTAS)
    step = await run.step()
    await step.say_in_pieces((f"{n} " for n in range(1, count + 1)), None)
    await step.finish("stop")


async def remember(run: Run, args: list[str]) -> None:
    """Say how many prompts came before."""
    before = run.conversation.prompts - 1
    note = f" I was also told what others said: {len(run.earlier)} characters." if run.earlier else ""
    await run.answer(f"I remember {before} {'prompt' if before == 1 else 'prompts'} before this one.{note}")


async def help_(run: Run, args: list[str]) -> None:
    """List all scenes."""
    rows = [f"| `{name}{' ' + s.usage if s.usage else ''}` | {s.about} |" for name, s in SCENES.items()]
    table = "\n".join(["| say | and I |", "|---|---|", *rows])
    await run.answer(f"# The mock\n\nThe first word of a prompt decides what I do.\n\n{table}\n\nAnything else is echoed.\n")


# --- tools -----------------------------------------------------------------------------------------------


async def tool(run: Run, args: list[str]) -> None:
    """Run a command with growing output."""
    step = await run.step()
    await step.say("I run a command.")
    call = await bash(step, "seq 3", "Counts to three")
    await step.finish("tool-calls")
    for n in (1, 2, 3):
        await call.output(f"{n}\n")
    await call.finish_tool("1\n2\n3\n", exit_code=0, stdout="1\n2\n3\n", stderr="")
    await run.answer("It counted to three.")


async def parallel(run: Run, args: list[str]) -> None:
    """Run two tools at once. The second ends first, and the step ends after both."""
    step = await run.step()
    first = await bash(step, "make slow", "Takes its time")
    second = await step.tool("webfetch", {"url": "https://example.invalid/", "format": "text"}, "https://example.invalid/")
    await first.output("still ")
    await second.finish_tool("Example")
    await first.output("at it\n")
    await first.finish_tool("still at it\n", exit_code=0, stdout="still at it\n", stderr="")
    await step.finish("tool-calls")
    await run.answer("Both are done.")


async def failtool(run: Run, args: list[str]) -> None:
    """Run a tool that fails. The turn goes on."""
    path = str(run.directory / "no-such-file.txt")
    step = await run.step()
    call = await step.tool("read", {"filePath": path}, path)
    await step.finish("tool-calls")
    await call.finish_tool(f"File not found: {path}", ok=False)
    await run.answer("There is no such file, so I go on without it.")


async def image(run: Run, args: list[str]) -> None:
    """Run a tool that returns an image."""
    url = "https://example.invalid/square.png"
    step = await run.step()
    call = await step.tool("webfetch", {"url": url, "format": "markdown"}, url)
    await step.finish("tool-calls")
    await call.finish_tool("Image of 16 x 16 pixels", images=[{"path": PNG, "mime": "image/png"}])
    await run.answer("It is a small square.")


async def edit(run: Run, args: list[str]) -> None:
    """Add a line to a file: read and edit it, or write a new one."""
    name = args[0] if args else "mock.txt"
    step = await run.step()
    try:
        change = await asyncio.to_thread(prepare, run.directory, name)
    except EditRefused as refused:
        await _refuse(run, step, name, str(refused))
        return
    if change.before is not None:
        reading = await step.tool("read", {"filePath": str(change.path)}, name)
        await step.finish("tool-calls")
        await reading.finish_tool(change.before, files=[{"path": str(change.path), "action": "read"}])
        step = await run.step()
    call = await _call_edit(step, name, change)
    await step.finish("tool-calls")
    if run.conversation.mode == "plan":
        await call.finish_tool("In plan mode no file is changed.", ok=False)
        await run.answer("I only plan now, so I left the file as it is.")
        return
    try:
        await asyncio.to_thread(apply, change)
    except EditRefused as refused:
        await call.finish_tool(str(refused), ok=False)
        await run.answer("The file could not be changed.")
        return
    action = "write" if change.before is None else "patch"
    await call.finish_tool("Done.", files=[{"path": str(change.path), "action": action, "diff": change.diff}])
    await run.answer(f"I added a line to `{name}`." if change.before is not None else f"I made `{name}`.")


async def _call_edit(step: Step, name: str, change: Edit) -> Tool:
    if change.before is None:
        return await step.tool("write", {"filePath": str(change.path), "content": change.after}, name)
    arguments = {"filePath": str(change.path), "oldString": change.old, "newString": change.new}
    return await step.tool("edit", arguments, name)


async def _refuse(run: Run, step: Step, name: str, why: str) -> None:
    call = await step.tool("read", {"filePath": name}, name)
    await step.finish("tool-calls")
    await call.finish_tool(why, ok=False)
    await run.answer("I did not change that.")


async def todo(run: Run, args: list[str]) -> None:
    """Keep a todo list and complete its entries."""
    for count in range(len(TODOS) + 1):
        states = ["completed"] * count + ["in_progress"] + ["pending"] * len(TODOS)
        todos = [
            {"content": content, "status": state, "priority": "medium"} for content, state in zip(TODOS, states, strict=False)
        ]
        step = await run.step()
        call = await step.tool("todowrite", {"todos": todos}, f"{len(TODOS) - count} todos")
        await step.finish("tool-calls")
        await run.write(type="todo", todos=todos)
        await call.finish_tool("The list is kept.", todos=todos)
    await run.answer("All of it is done.")


# --- people ----------------------------------------------------------------------------------------------


async def permission(run: Run, args: list[str]) -> None:
    """Ask before a command. A rejection without words ends the turn."""
    step = await run.step()
    await step.say("I want to push.")
    call = await bash(step, COMMAND, "Pushes the branch")
    reply: Frame = {"decision": "once"}
    if COMMAND not in run.conversation.allowed:
        reply = await run.ask("permission", call, title=COMMAND, patterns=[COMMAND], always=["git push *"])
    await step.finish("tool-calls")
    decision, message = text(reply.get("decision")), text(reply.get("message"))
    if decision == "reject":
        feedback = f" with the following feedback: {message}" if message else "."
        await call.finish_tool(f"The user rejected permission to use this specific tool call{feedback}", ok=False)
        if reply.get("stops"):
            return
        await run.answer(f"I did not push. You said: {message}" if message else "I did not push.")
        return
    if decision == "always":
        run.conversation.allowed.add(COMMAND)
    await call.output("Everything up-to-date\n")
    await call.finish_tool("Everything up-to-date\n", exit_code=0, stdout="Everything up-to-date\n", stderr="")
    await run.answer({"always": "Pushed. I will not ask again."}.get(decision, "Pushed."))


async def question(run: Run, args: list[str]) -> None:
    """Ask a question with one choice and one with several."""
    questions = QUESTIONS[: max(number(args, len(QUESTIONS), len(QUESTIONS)), 1)]
    step = await run.step()
    call = await step.tool("question", {"questions": questions}, f"Asked {len(questions)} questions")
    await step.finish("tool-calls")
    reply = await run.ask("question", call, questions=questions)
    if reply.get("answers") is None:
        await call.finish_tool(text(reply.get("message"), "The user dismissed this question"), ok=False)
        if not reply.get("stops"):
            await run.answer("You did not want to answer.")
        return
    answers = [[text(label) for label in arr(answer)] for answer in arr(reply.get("answers"))]
    answer_list = [f'"{q["question"]}"="{", ".join(a)}"' for q, a in zip(questions, answers, strict=False)]
    await call.finish_tool(f"User has answered your questions: {', '.join(answer_list)}.", answers=answers)
    lines = [f"- {q['header']}: {', '.join(a) or 'nothing'}" for q, a in zip(questions, answers, strict=False)]
    await run.answer("You chose:\n\n" + "\n".join(lines) + "\n")


async def plan(run: Run, args: list[str]) -> None:
    """Present a plan and ask whether to carry it out."""
    step = await run.step()
    await step.say("I have a plan.")  # the plan itself is shown from the call
    call = await step.tool("plan_exit", {"plan": PLAN}, "Plan")
    await step.finish("tool-calls")
    reply = await run.ask("question", call, questions=[PLAN_QUESTION])
    answers = [[text(label) for label in arr(answer)] for answer in arr(reply.get("answers"))]
    answer_text = ", ".join(label for answer in answers for label in answer)
    if answer_text != "Yes":
        await call.finish_tool(f"The plan was not accepted{': ' + answer_text if answer_text else '.'}", ok=False)
        await run.answer("Then it stays a plan.")
        return
    run.conversation.mode = "build"
    await call.finish_tool("The plan was accepted.", answers=answers)
    await run.write(type="mode", mode="build")
    await run.answer("Then I would begin now.")


# --- subagents -------------------------------------------------------------------------------------------


async def _delegate(run: Run, step: Step, *, background: bool) -> Tool:
    arguments: dict[str, Any] = {"description": "Look around", "prompt": "Say what is here.", "subagent_type": "general"}
    call = await step.tool("task", arguments | ({"run_in_background": True} if background else {}), "Look around")
    if background:
        await run.background(call)
    await run.subagent(call, "Look around", "Say what is here.")
    return call


async def _work(run: Run, call: Tool) -> str:
    """Play the subagent: a command and an answer. Returns the answer."""
    step = await run.step(call.name)
    await step.say("I look around.")
    listing = await bash(step, "ls", "Lists the files")
    await step.finish("tool-calls")
    await run.pause(WORK_S)
    await listing.finish_tool("README.md\n", exit_code=0, stdout="README.md\n", stderr="")
    answer = "There is a README."
    await run.answer(answer, call.name)
    await run.subagent_done(call)
    return answer


async def subagent(run: Run, args: list[str]) -> None:
    """Run a task in a subagent's session."""
    step = await run.step()
    await step.say("I ask somebody.")
    call = await _delegate(run, step, background=False)
    await step.finish("tool-calls")
    await call.finish_tool(await _work(run, call))
    await run.answer("They say that there is a README.")


async def background(run: Run, args: list[str]) -> None:
    """Run a task that goes on after the answer and keeps the turn open."""
    step = await run.step()
    call = await _delegate(run, step, background=True)
    await step.finish("tool-calls")
    await call.finish_tool("It runs in the background.", background=True)
    await run.answer("They are at it; I have nothing to do meanwhile.")
    await run.finish_prompt()
    await _work(run, call)
    await run.wake(anew=False)
    await run.background_done(call)
    await run.answer("Now they are done: there is a README.")


async def wake(run: Run, args: list[str]) -> None:
    """Answer, end the turn, and then start an unprompted turn."""
    await run.answer("That is my answer.")
    await run.finish_prompt()
    await run.pause(LATE_S)
    await run.wake(anew=True)
    await run.answer("Something else came to my mind.")


# --- trouble ---------------------------------------------------------------------------------------------


async def error(run: Run, args: list[str]) -> None:
    """Fail in the middle of the model's answer."""
    step = await run.step()
    await step.say("I was about to say ")
    await step.finish("error")
    await run.write(
        type="error",
        message="The model is overloaded (this is a scene of the mock).",
        code="overloaded",
        status=529,
        retryable=True,
        hint="Try again.",
    )
    await run.finish_prompt("failed")


async def compact(run: Run, args: list[str]) -> None:
    """Compact the conversation to a summary."""
    auto = args == ["auto"]
    await run.write(type="compaction", phase="started", auto=bool(args))
    await run.pause(WORK_S)
    if args == ["fail"]:
        await run.write(type="compaction", phase="failed", auto=True)
        await run.write(type="error", message="There is nothing to compact (this is a scene of the mock).")
        await run.finish_prompt("failed")
        return
    count = run.conversation.prompts - 1
    summary = f"## Summary\n\n{count} {'prompt was' if count == 1 else 'prompts were'} answered before."
    await run.write(type="compaction", phase="completed", auto=auto, summary=summary)
    if auto:
        await run.answer("I go on with less to remember.")


async def retry(run: Run, args: list[str]) -> None:
    """Fail twice, then answer."""
    for attempt in (1, 2):
        await run.write(type="retry", attempt=attempt, message="Overloaded", delay_ms=int(RETRY_S * 1000))
        await run.pause(RETRY_S)
    await run.answer("The third attempt went well.")


async def hang(run: Run, args: list[str]) -> None:
    """Start an answer and never end it."""
    step = await run.step()
    await step.say("I hang until you stop me.")
    await asyncio.Event().wait()


async def crash(run: Run, args: list[str]) -> None:
    """Die in the middle of a tool."""
    step = await run.step()
    call = await bash(step, "kill -9 $PPID", "Ends the agent")
    await call.output("I feel ")
    raise Died


async def exit_(run: Run, args: list[str]) -> None:
    """Exit with code 0 before the answer is complete."""
    step = await run.step()
    await step.say("Good")
    raise Leave(0)


async def late(run: Run, args: list[str]) -> None:
    """Write after the end: a piece of a finished text, a second end, a result, a whole message."""
    step = await run.step()
    await step.say("That was all.")
    call = await bash(step, "sleep 1", "Comes late")
    await step.finish("stop")
    await run.finish_prompt()
    await run.pause(LATE_S)
    await run.write(type="text", step=step.name, part="p1", delta=" Or not?")
    await run.write(type="done", run=run.id, status="completed")
    await call.finish_tool("late\n", exit_code=0, stdout="late\n", stderr="")
    await run.answer("And another thing.")


async def write_unparsed_lines(run: Run, args: list[str]) -> None:
    """Write a line of an unknown type and one that is no JSON."""
    await run.write(type="horoscope", sign="Cancer")
    await run.write_raw(b"Segmentation fault (only a joke)")
    await run.answer("I said two things that nobody understands.")


SCENES: Mapping[str, Scene] = {
    "help": Scene(help_, "list all this"),
    "echo": Scene(echo, "say it", "TEXT", None),
    "markdown": Scene(markdown, "write headings, lists, a table and code"),
    "think": Scene(think, "reason, then answer; longer with the variant `high`"),
    "tool": Scene(tool, "run a command with growing output (nothing is executed)"),
    "edit": Scene(edit, "**really** add a line to a file of the project, or make it", "[FILE]", 1),
    "parallel": Scene(parallel, "run two tools at once"),
    "permission": Scene(permission, "ask before a command"),
    "question": Scene(question, "ask one or two questions", "[1]", 1),
    "plan": Scene(plan, "make a plan and ask whether to carry it out"),
    "todo": Scene(todo, "keep a list of things to do"),
    "subagent": Scene(subagent, "let a subagent work"),
    "background": Scene(background, "let a subagent work after the answer"),
    "wake": Scene(wake, "answer, and later begin a turn unasked"),
    "image": Scene(image, "get an image from a tool"),
    "failtool": Scene(failtool, "run a tool that fails"),
    "compact": Scene(compact, "keep only a summary of the conversation; `auto`: in the middle of a turn", "[auto|fail]", 1),
    "retry": Scene(retry, "try three times"),
    "error": Scene(error, "fail as a model does"),
    "slow": Scene(slow, "take N seconds", "[N]", 1),
    "burst": Scene(burst, "write N deltas at once", "[N]", 1),
    "remember": Scene(remember, "say how many prompts I remember"),
    "hang": Scene(hang, "hang until you abort"),
    "crash": Scene(crash, "die in the middle of a tool"),
    "exit": Scene(exit_, "exit without an answer"),
    "late": Scene(late, "go on after the end of the turn"),
    "unparsed": Scene(write_unparsed_lines, "say something that nobody understands"),
}


MARKED = re.compile(r"(?:^|(?<=\s))/([a-z]+)\b", re.IGNORECASE)
"""Matches a word with a slash, which may name a scene anywhere in a prompt."""


@dataclass(frozen=True, slots=True)
class Cue:
    """A scene, its arguments, and the part of the prompt that names it."""

    scene: Scene
    args: list[str]
    text: str


def scene_for(prompt: str) -> Cue:
    """Return the scene that a prompt names, or `echo`.

    Clients add quotation marks, context and reminders to the person's text. So the order is: the whole prompt, the first line
    that names a scene, the first `/scene`.
    """
    marked = (match for match in MARKED.finditer(prompt) if match[1].lower() in SCENES)
    cues = (_cue(prompt), *map(_cue, prompt.splitlines()), *(_cue_of_match(prompt, match) for match in marked))
    return next((cue for cue in cues if cue is not None), Cue(SCENES["echo"], [], prompt))


def _cue(text: str) -> Cue | None:
    """Return the scene if the text is only its name and arguments. It ignores a leading slash and quotation marks."""
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] == '"':
        bare = bare[1:-1]
    words = bare.split()
    scene = SCENES.get(words[0].removeprefix("/").lower()) if words else None
    if scene is None or (scene.words is not None and len(words) - 1 > scene.words):
        return None
    return Cue(scene, words[1:], bare)


def _cue_of_match(prompt: str, match: re.Match[str]) -> Cue:
    """Return the scene of a `/name` within a line. Its arguments are as many of the next words as it takes."""
    scene = SCENES[match[1].lower()]
    line = prompt[match.start() :].partition("\n")[0]
    return Cue(scene, line.split()[1:][: scene.words], line)
