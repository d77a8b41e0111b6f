"""The operations of a mock scene: write the lines of `universal.agents.mock` in order, ask, wait, remember.

A `Run` answers one prompt. It tracks all open items, so that after an interrupt `abort` can write their ends as a well-behaved
agent does. It records a line as written only if it was: a cancelled write did not happen, and no cancellation can come between
a write and its record.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from universal.agents.mock.wire import Frame, line_of
from universal.lib.jsonvalue import arr, obj, text

DELTA_S = 0.02
"""Seconds between two pieces of text, about the speed of a model."""
TOOL_S = 0.2
"""Seconds between two pieces of a tool's output."""
TOKEN_CHARS = 4
"""The mock counts tokens as characters / 4."""
INPUT_USD, OUTPUT_USD = 1e-6, 4e-6
"""Prices per token. Nothing is charged, but clients need costs to add up."""

EARLIER = ("<earlier-in-this-conversation>", "</earlier-in-this-conversation>")
"""Tags around the text that the server puts in front of a prompt when other agents spoke before."""


class Leave(Exception):
    """Raised by a scene that ends the agent with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


@dataclass(slots=True)
class Conversation:
    """The mock's memory of one conversation."""

    prompts: int = 0
    mode: str = "build"
    variant: str = ""
    allowed: set[str] = field(default_factory=set[str])
    """Commands that the person allowed with `always`."""


def pieces(content: str) -> list[str]:
    """Split text into deltas: words with the white space after them. Their concatenation is the text."""
    return re.findall(r"\s+|\S+\s*", content)


def tokens(content: str) -> int:
    """Return the mock's estimate of the number of tokens."""
    return -(-len(content) // TOKEN_CHARS)


def split(prompt: str) -> tuple[str, str]:
    """Split a prompt into the server's report of missed messages, and the person's text."""
    if not prompt.startswith(EARLIER[0]):
        return "", prompt
    earlier, _, typed = prompt.rpartition(EARLIER[1])
    return earlier.removeprefix(EARLIER[0]), typed.lstrip("\n")


class Step:
    """One answer of the model: parts of text and reasoning, and tool calls."""

    def __init__(self, run: Run, name: str, child: str | None) -> None:
        self.name = name
        self.child = child
        self._run = run
        self._input = tokens(run.text) + 40
        self._answer = ""
        self._thought = ""
        self._parts = 0

    async def say(self, content: str) -> None:
        await self._part("text", pieces(content), DELTA_S)

    async def think(self, content: str) -> None:
        await self._part("thinking", pieces(content), DELTA_S)

    async def say_in_pieces(self, deltas: Iterable[str], pause_s: float | None) -> None:
        """Write a part of text in these deltas, with a pause before each. None means no pause, not even a loop iteration."""
        await self._part("text", deltas, pause_s)

    async def _part(self, kind: str, deltas: Iterable[str], pause_s: float | None) -> None:
        self._parts += 1
        part = f"p{self._parts}"
        for delta in deltas:
            if pause_s is not None:
                await self._run.pause(pause_s)
            await self._run.write(type=kind, step=self.name, part=part, delta=delta)
            if kind == "text":
                self._answer += delta
            else:
                self._thought += delta

    async def tool(self, name: str, arguments: Mapping[str, Any], title: str) -> Tool:
        call = Tool(self._run, self._run.name("call"), self.child)
        await self._run.pause(DELTA_S)
        await self._run.write(type="tool_start", tool=call.name, step=self.name, name=name)
        self._run.open[f"tool {call.name}"] = call.interrupted_frame
        await self._run.pause(DELTA_S)
        await self._run.write(type="tool_run", tool=call.name, input=dict(arguments), title=title)
        return call

    async def finish(self, reason: str) -> None:
        """Complete the model's answer. `reason` is `stop` or `tool-calls`."""
        frame = self.step_end_frame(reason)
        await self._run.write(**frame)
        del self._run.open[f"step {self.name}"]
        self._run.spend(frame)

    def step_end_frame(self, reason: str) -> Frame:
        """Return the line that ends the step, with its usage so far."""
        output, reasoning = tokens(self._answer), tokens(self._thought)
        usage = {"input": self._input, "output": output, "reasoning": reasoning, "cache_read": 0, "cache_write": 0}
        cost = round(self._input * INPUT_USD + (output + reasoning) * OUTPUT_USD, 8)
        frame = {"type": "step_finish", "step": self.name, "finish": reason, "usage": usage, "cost": cost}
        return frame | ({"child": self.child} if self.child else {})


class Tool:
    """A running tool call."""

    def __init__(self, run: Run, name: str, child: str | None) -> None:
        self.name = name
        self.child = child
        self._run = run

    async def output(self, delta: str) -> None:
        await self._run.pause(TOOL_S)
        await self._run.write(type="tool_output", tool=self.name, delta=delta)

    async def finish_tool(
        self, output: str, *, ok: bool = True, files: Sequence[Frame] = (), images: Sequence[Frame] = (), **meta: Any
    ) -> None:
        """Write the tool's result. `meta` holds the fields of the protocol."""
        frame: Frame = {"type": "tool_result", "tool": self.name, "ok": ok, "output": output, "meta": meta}
        frame |= ({"files": list(files)} if files else {}) | ({"images": list(images)} if images else {})
        await self._run.pause(DELTA_S)
        await self._run.write(**frame)
        self._run.open.pop(f"tool {self.name}", None)

    def interrupted_frame(self) -> Frame:
        meta = {"interrupted": True}
        return {"type": "tool_result", "tool": self.name, "ok": False, "output": "Interrupted by the user.", "meta": meta}


class Run:
    """The work on one prompt."""

    def __init__(
        self,
        prompt: Frame,
        conversation: Conversation,
        directory: Path,
        delay_factor: float,
        send: Callable[[bytes], Awaitable[None]],
    ) -> None:
        self.id = text(prompt.get("run"))
        self.earlier, self.text = split(text(prompt.get("text")))
        self.attachments = [obj(a) for a in arr(prompt.get("attachments"))]
        self.conversation = conversation
        self.directory = directory
        self.answered = False
        """True if `done` was the last line."""
        self.open: dict[str, Callable[[], Frame]] = {}
        """Open items that an interrupt must close, innermost last, with a function that returns the closing line."""
        self.replies: dict[str, asyncio.Future[Frame]] = {}
        self._delay_factor = delay_factor
        self._send = send
        self._names = 0
        self._preface = ""
        self._prompt_id = self.id
        self._usage: dict[str, int] = {}
        self._cost = 0.0

    def name(self, kind: str) -> str:
        """Return a name that is unique in the conversation, also after a restart, since prompt ids are unique."""
        self._names += 1
        return f"{kind}_{self._prompt_id}_{self._names}"

    async def write(self, **frame: Any) -> None:
        """Write one line without the fields that are None."""
        await self.write_raw(line_of({key: value for key, value in frame.items() if value is not None}))

    async def write_raw(self, line: bytes) -> None:
        await self._send(line)

    async def pause(self, seconds: float) -> None:
        """Wait `seconds` times the mock's factor. Other tasks run even if that is 0."""
        await asyncio.sleep(seconds * self._delay_factor)

    def spend(self, finished: Frame) -> None:
        """Add a step's usage to the run's. Steps of subagents do not count."""
        if finished["type"] == "step_finish" and "child" not in finished:
            self._usage = {key: self._usage.get(key, 0) + value for key, value in finished["usage"].items()}
            self._cost += finished["cost"]

    async def step(self, child: str | None = None) -> Step:
        step = Step(self, self.name("step"), child)
        await self.pause(DELTA_S)
        await self.write(type="step_start", step=step.name, model="mock", child=child)
        self.open[f"step {step.name}"] = lambda: step.step_end_frame("aborted")
        if self._preface and child is None:
            preface, self._preface = self._preface, ""
            await step.say(preface)
        return step

    async def answer(self, content: str, child: str | None = None) -> None:
        """Write a whole answer: one step with this text."""
        step = await self.step(child)
        await step.say(content)
        await step.finish("stop")

    async def look_at_attachments(self) -> None:
        """Prepare a preface for the answer that lists the prompt's attachments."""
        lines = [f"- {await _describe(a)}" for a in self.attachments]
        self._preface = f"You attached:\n\n{chr(10).join(lines)}\n\n" if lines else ""

    async def ask(self, kind: str, tool: Tool, **fields: Any) -> Frame:
        """Ask the person and wait for the reply: `permission_reply` or `question_reply`."""
        name = self.name("ask")
        self.replies[name] = asyncio.get_running_loop().create_future()
        await self.write(type=kind, id=name, tool=tool.name, **fields)
        self.open[f"ask {name}"] = lambda: {"type": "withdrawn", "id": name}
        reply = await self.replies[name]
        del self.open[f"ask {name}"], self.replies[name]
        return reply

    async def subagent(self, tool: Tool, title: str, prompt: str) -> None:
        """Start a session of a subagent, named by its tool call."""
        await self.write(type="subagent_start", tool=tool.name, title=title, agent="general", prompt=prompt)
        self.open[f"subagent {tool.name}"] = lambda: {"type": "subagent_end", "tool": tool.name, "status": "aborted"}

    async def subagent_done(self, tool: Tool) -> None:
        await self.write(type="subagent_end", tool=tool.name, status="completed")
        del self.open[f"subagent {tool.name}"]

    async def background(self, tool: Tool) -> None:
        """Let this call keep the turn open."""
        await self.write(type="background_start", tool=tool.name)
        self.open[f"background {tool.name}"] = lambda: {"type": "background_end", "tool": tool.name}

    async def background_done(self, tool: Tool) -> None:
        """Stop this call from keeping the turn open."""
        await self.write(type="background_end", tool=tool.name)
        del self.open[f"background {tool.name}"]

    async def wake(self, *, anew: bool) -> None:
        """Continue after `done` in the turn that is kept open, or with `anew` start an unprompted turn."""
        name = self.name("run") if anew else self.id
        await self.write(type="wake", run=name)
        self.id, self.answered = name, False
        self._usage, self._cost = {}, 0.0

    async def finish_prompt(self, status: str = "completed") -> None:
        """Write `done`: the prompt is answered, failed or aborted."""
        await self.write(type="done", run=self.id, status=status, usage=self._usage or None, cost=round(self._cost, 8))
        self.answered = True

    async def abort(self) -> None:
        """Close all open items after the scene was cancelled, innermost first, and end the run."""
        while self.open:
            _, closing = self.open.popitem()
            frame = closing()
            await self.write(**frame)
            self.spend(frame)
        if not self.answered:
            await self.finish_prompt("aborted")


async def _describe(attachment: Frame) -> str:
    """Return `name (mime, n bytes)`. It reads the size of a file that came as a path."""
    path, size = text(attachment.get("path")), attachment.get("bytes")
    if size is None and path:
        size = await asyncio.to_thread(_size, Path(path))
    name = text(attachment.get("name"), "a file without a name")
    mime = text(attachment.get("mime"), "unknown type")
    return f"{name} ({mime}, {size} bytes)" if isinstance(size, int) else f"{name} ({mime}, not readable)"


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
