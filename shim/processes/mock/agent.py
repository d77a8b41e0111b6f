"""The mock agent: a program that reads the lines of `universal.agents.mock` and plays scenes.

It has no clock and no randomness: equal input gives equal output. Its pauses are constants times a factor (0 in tests). It
answers one prompt at a time; further prompts wait in order. It ends at once when its input ends.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from pathlib import Path

from shim.lib.tasks import end_tasks
from shim.processes.inprocess import Program, Stdio
from shim.processes.mock.run import Conversation, Leave, Run
from shim.processes.mock.scenes import SCENES, scene_for
from universal.agents.mock.spec import MODEL
from universal.agents.mock.wire import Frame, line_of
from universal.lib.jsonline import parse
from universal.lib.jsonvalue import obj, text

VERSION = "1"
CONVERSATIONS = 1000
"""Maximum number of remembered conversations. The least recently used are forgotten first."""


def mock_program(*, delay_factor: float = 1.0) -> Program:
    """Return the mock's program. It remembers its conversations, so a later run can resume one.

    `delay_factor` multiplies all of its waits.
    """
    conversations = OrderedDict[str, Conversation]()

    async def program(stdio: Stdio) -> int:
        session = _option(stdio, "session")
        conversation = conversations.pop(session, None) if "--resume" in stdio.argv else None
        conversations[session] = conversation = conversation or Conversation()
        while len(conversations) > CONVERSATIONS:
            conversations.popitem(last=False)
        conversation.mode = _option(stdio, "mode") or conversation.mode
        return await _Mock(stdio, session, conversation, delay_factor).serve()

    return program


def _option(stdio: Stdio, name: str) -> str:
    prefix = f"--{name}="
    return next((a.removeprefix(prefix) for a in stdio.argv if a.startswith(prefix)), "")


class _Mock:
    """The mock's loop, which handles input lines and finished runs."""

    def __init__(self, stdio: Stdio, session: str, conversation: Conversation, delay_factor: float) -> None:
        self._stdio = stdio
        self._session = session
        self._conversation = conversation
        self._delay_factor = delay_factor
        self._waiting: deque[Frame] = deque()
        self._run: Run | None = None
        self._playing: asyncio.Task[None] | None = None

    async def serve(self) -> int:
        """Run until the input ends (returns 0) or a scene leaves (returns its code) or dies."""
        reading = asyncio.create_task(self._stdio.read())
        try:
            while True:
                self._play_next()
                await asyncio.wait({t for t in (reading, self._playing) if t}, return_when=asyncio.FIRST_COMPLETED)
                if self._playing is not None and self._playing.done():
                    playing, self._playing, self._run = self._playing, None, None
                    playing.result()
                if reading.done():
                    line = reading.result()
                    if line is None:
                        return 0
                    await self._receive(obj(parse(line)))
                    reading = asyncio.create_task(self._stdio.read())
        except Leave as leave:
            return leave.code
        finally:
            await end_tasks(reading, self._playing)

    def _play_next(self) -> None:
        if self._playing is None and self._waiting:
            prompt = self._waiting.popleft()
            self._conversation.prompts += 1
            self._conversation.mode = text(prompt.get("mode")) or self._conversation.mode
            self._conversation.variant = text(prompt.get("variant"))
            self._run = Run(prompt, self._conversation, Path(self._stdio.cwd), self._delay_factor, self._stdio.write)
            self._playing = asyncio.create_task(_play(self._run))

    async def _receive(self, frame: Frame) -> None:
        match text(frame.get("type")):
            case "hello":
                commands = [{"name": name, "description": scene.about} for name, scene in SCENES.items()]
                await self._write(
                    {"type": "hello", "session": self._session, "version": VERSION, "models": [_model()], "commands": commands}
                )
            case "prompt":
                self._waiting.append(frame)
            case "interrupt":
                await self._interrupt(text(frame.get("run")))
            case "permission_reply" | "question_reply":
                reply = self._run.replies.get(text(frame.get("id"))) if self._run else None
                if reply is not None and not reply.done():
                    reply.set_result(frame)
            case _:
                await self._write({"type": "error", "message": f"The mock does not know {frame.get('type')!r}."})

    async def _interrupt(self, name: str) -> None:
        """Stop the named run, also after its answer. An unknown run is ignored."""
        if self._run is not None and self._playing is not None and self._run.id == name:
            run, playing = self._run, self._playing
            await end_tasks(playing)
            if playing.cancelled():
                self._run = self._playing = None
                await run.abort()
            return
        for frame in [f for f in self._waiting if text(f.get("run")) == name]:
            self._waiting.remove(frame)
            await self._write({"type": "done", "run": name, "status": "aborted"})

    async def _write(self, frame: Frame) -> None:
        await self._stdio.write(line_of(frame))


async def _play(run: Run) -> None:
    await run.look_at_attachments()
    cue = scene_for(run.text)
    run.text = cue.text
    await cue.scene.play(run, cue.args)
    if not run.answered:
        await run.finish_prompt()


def _model() -> Frame:
    return {
        "id": MODEL.id,
        "name": MODEL.name,
        "description": MODEL.description,
        "variants": MODEL.variants,
        "reasoning": MODEL.reasoning,
        "images": MODEL.images,
        "context": MODEL.context,
        "output": MODEL.output,
    }
