"""What a scene of the mock can do: write the lines of `universal.agents.mock` in order, ask, wait, remember.

A `Run` answers one prompt. It knows what is open at any time, so that an interrupt can close it: `abort` writes what
a well-behaved agent says then. It owns the rule that nothing is noted as written which was not: a cancelled write has
not happened, and between a write and its note there is no place to be cancelled.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from universal.agents.mock.wire import Frame, line_of
from universal.jsonvalue import arr, obj, text

DELTA_S = 0.02
"""Between two pieces of text: about as fast as a model writes."""
TOOL_S = 0.2
"""Between two pieces of a tool's output."""
TOKEN_CHARS = 4
"""The mock counts tokens as characters / 4."""
INPUT_USD, OUTPUT_USD = 1e-6, 4e-6
"""Its prices per token. Nothing is charged; clients shall have something to add up."""

EARLIER = ("<earlier-in-this-conversation>", "</earlier-in-this-conversation>")
"""Around what the server says in front of a prompt when other agents spoke before: it is not what the person typed."""


class Leave(Exception):
    """Raised by a scene that ends the agent with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


@dataclass(slots=True)
class Conversation:
    """What the mock remembers of a conversation."""

    prompts: int = 0
    mode: str = "build"
    variant: str = ""
    allowed: set[str] = field(default_factory=set[str])
    """Commands that were allowed for good."""


def pieces(content: str) -> list[str]:
    """Text in deltas: words, each with the white space after it. Their concatenation is the text."""
    return re.findall(r"\s+|\S+\s*", content)


def tokens(content: str) -> int:
    """The mock's idea of the number of tokens."""
    return -(-len(content) // TOKEN_CHARS)


def split(prompt: str) -> tuple[str, str]:
    """(what the server tells of earlier messages that this agent has missed, the prompt itself)."""
    if not prompt.startswith(EARLIER[0]):
        return "", prompt
    earlier, _, own = prompt.rpartition(EARLIER[1])
    return earlier.removeprefix(EARLIER[0]), own.lstrip("\n")


class Step:
    """One answer of the model: text and reasoning in parts, and the tool calls it makes."""

    def __init__(self, run: Run, name: str, child: str | None) -> None:
        self.name = name
        self.child = child
        self._run = run
        self._input = tokens(run.text) + 40
        self._said = ""
        self._thought = ""
        self._parts = 0

    async def say(self, content: str) -> None:
        """A part of text, word by word."""
        await self._part("text", pieces(content), DELTA_S)

    async def think(self, content: str) -> None:
        """A part of reasoning, word by word."""
        await self._part("thinking", pieces(content), DELTA_S)

    async def say_in_pieces(self, deltas: Iterable[str], pause_s: float | None) -> None:
        """A part of text in these deltas, with a pause before each; None: without giving way to anybody."""
        await self._part("text", deltas, pause_s)

    async def _part(self, kind: str, deltas: Iterable[str], pause_s: float | None) -> None:
        self._parts += 1
        part = f"p{self._parts}"
        for delta in deltas:
            if pause_s is not None:
                await self._run.pause(pause_s)
            await self._run.write(type=kind, step=self.name, part=part, delta=delta)
            if kind == "text":
                self._said += delta
            else:
                self._thought += delta

    async def tool(self, name: str, arguments: Mapping[str, Any], title: str) -> Tool:
        """Call a tool: it runs from now on."""
        call = Tool(self._run, self._run.name("call"), self.child)
        await self._run.pause(DELTA_S)
        await self._run.write(type="tool_start", tool=call.name, step=self.name, name=name)
        self._run.open[f"tool {call.name}"] = call.interrupted_frame
        await self._run.pause(DELTA_S)
        await self._run.write(type="tool_run", tool=call.name, input=dict(arguments), title=title)
        return call

    async def finish(self, reason: str) -> None:
        """The model's answer is complete: `stop` or `tool-calls`."""
        frame = self.step_end_frame(reason)
        await self._run.write(**frame)
        del self._run.open[f"step {self.name}"]
        self._run.spend(frame)

    def step_end_frame(self, reason: str) -> Frame:
        """The line that ends the step, with what it has used so far."""
        output, reasoning = tokens(self._said), tokens(self._thought)
        usage = {"input": self._input, "output": output, "reasoning": reasoning, "cache_read": 0, "cache_write": 0}
        cost = round(self._input * INPUT_USD + (output + reasoning) * OUTPUT_USD, 8)
        frame = {"type": "step_finish", "step": self.name, "finish": reason, "usage": usage, "cost": cost}
        return frame | ({"child": self.child} if self.child else {})


class Tool:
    """A tool that runs."""

    def __init__(self, run: Run, name: str, child: str | None) -> None:
        self.name = name
        self.child = child
        self._run = run

    async def output(self, delta: str) -> None:
        """More of its output."""
        await self._run.pause(TOOL_S)
        await self._run.write(type="tool_output", tool=self.name, delta=delta)

    async def finish_tool(
        self, output: str, *, ok: bool = True, files: Sequence[Frame] = (), images: Sequence[Frame] = (), **meta: Any
    ) -> None:
        """Its result; `meta` as the protocol has it."""
        frame: Frame = {"type": "tool_result", "tool": self.name, "ok": ok, "output": output, "meta": meta}
        frame |= ({"files": list(files)} if files else {}) | ({"images": list(images)} if images else {})
        await self._run.pause(DELTA_S)
        await self._run.write(**frame)
        self._run.open.pop(f"tool {self.name}", None)

    def interrupted_frame(self) -> Frame:
        """The result of a tool that was stopped."""
        meta = {"interrupted": True}
        return {"type": "tool_result", "tool": self.name, "ok": False, "output": "Interrupted by the user.", "meta": meta}


class Run:
    """One prompt on its way to its answer."""

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
        """It said `done`, and nothing after that."""
        self.open: dict[str, Callable[[], Frame]] = {}
        """What an interrupt must close, innermost last, and the line that does it."""
        self.replies: dict[str, asyncio.Future[Frame]] = {}
        self._delay_factor = delay_factor
        self._send = send
        self._names = 0
        self._preface = ""
        self._prompt_id = self.id
        self._usage: dict[str, int] = {}
        self._cost = 0.0

    def name(self, kind: str) -> str:
        """A name that is unique in the conversation, also after a restart: prompts have unique ids."""
        self._names += 1
        return f"{kind}_{self._prompt_id}_{self._names}"

    async def write(self, **frame: Any) -> None:
        """One line, without what is None."""
        await self.write_raw(line_of({key: value for key, value in frame.items() if value is not None}))

    async def write_raw(self, line: bytes) -> None:
        """Any bytes as a line."""
        await self._send(line)

    async def pause(self, seconds: float) -> None:
        """Wait, times the mock's factor; lets others run even when that is 0."""
        await asyncio.sleep(seconds * self._delay_factor)

    def spend(self, finished: Frame) -> None:
        """Add what a step used to what the run did; subagents have their own account."""
        if finished["type"] == "step_finish" and "child" not in finished:
            self._usage = {key: self._usage.get(key, 0) + value for key, value in finished["usage"].items()}
            self._cost += finished["cost"]

    async def step(self, child: str | None = None) -> Step:
        """Begin an answer of the model."""
        step = Step(self, self.name("step"), child)
        await self.pause(DELTA_S)
        await self.write(type="step_start", step=step.name, model="mock", child=child)
        self.open[f"step {step.name}"] = lambda: step.step_end_frame("aborted")
        if self._preface and child is None:
            preface, self._preface = self._preface, ""
            await step.say(preface)
        return step

    async def answer(self, content: str, child: str | None = None) -> None:
        """A whole answer: one step with this text."""
        step = await self.step(child)
        await step.say(content)
        await step.finish("stop")

    async def look_at_attachments(self) -> None:
        """Prepare to say, with the first words, what came with the prompt."""
        told = [f"- {await _describe(a)}" for a in self.attachments]
        self._preface = f"You attached:\n\n{chr(10).join(told)}\n\n" if told else ""

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
        """Begin a session of a subagent, named by its tool call."""
        await self.write(type="subagent_start", tool=tool.name, title=title, agent="general", prompt=prompt)
        self.open[f"subagent {tool.name}"] = lambda: {"type": "subagent_end", "tool": tool.name, "status": "aborted"}

    async def subagent_done(self, tool: Tool) -> None:
        """The subagent has answered."""
        await self.write(type="subagent_end", tool=tool.name, status="completed")
        del self.open[f"subagent {tool.name}"]

    async def background(self, tool: Tool) -> None:
        """From now on this call holds the turn open."""
        await self.write(type="background_start", tool=tool.name)
        self.open[f"background {tool.name}"] = lambda: {"type": "background_end", "tool": tool.name}

    async def background_done(self, tool: Tool) -> None:
        """It does not hold the turn open any more."""
        await self.write(type="background_end", tool=tool.name)
        del self.open[f"background {tool.name}"]

    async def wake(self, *, anew: bool) -> None:
        """Go on after `done`, in the turn that is held open, or (`anew`) begin one without being asked."""
        name = self.name("run") if anew else self.id
        await self.write(type="wake", run=name)
        self.id, self.answered = name, False
        self._usage, self._cost = {}, 0.0

    async def finish_prompt(self, status: str = "completed") -> None:
        """The prompt is answered (or failed, or was stopped)."""
        await self.write(type="done", run=self.id, status=status, usage=self._usage or None, cost=round(self._cost, 8))
        self.answered = True

    async def abort(self) -> None:
        """After the scene was cancelled: close what is open, innermost first, and say so."""
        while self.open:
            _, closing = self.open.popitem()
            frame = closing()
            await self.write(**frame)
            self.spend(frame)
        if not self.answered:
            await self.finish_prompt("aborted")


async def _describe(attachment: Frame) -> str:
    """`name (mime, n bytes)`; files that were only named are measured here."""
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
