"""Tracks subagents and background work: the child session of a line, and the begin and end of each child.

A child's key is the id of the tool call that started it. A child begins with its `task_started` or its first line, once its call
is known. It ends with its `task_notification`, or with its call's result if it worked in the foreground. Later lines become facts
and begin no turn.
Source: recordings `task*`, `bg_*`; runs of 2.1.197 and 2.1.330 with nested and interrupted subagents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from universal.agents import kit
from universal.agents.claude.speech import Call, Context, Transcript
from universal.agents.claude.tools import AGENT_TOOLS, title_of
from universal.agents.claude.wire import Msg, get_text
from universal.codec import Fact, Output, Signal
from universal.events import EventType, SessionStartedData
from universal.items import Json
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text
from universal.turn import Input

INTERRUPTED = "[Request interrupted by user"
"""Beginning of the text that the CLI writes into the transcript at an interrupt."""


@dataclass(slots=True)
class _Task:
    """A task of Claude: a subagent or a shell command."""

    task_id: str
    call_id: str
    agent: bool
    ambient: bool
    raw: Msg
    is_earlier: bool = False
    """It is a command that goes on since an earlier turn, so that the abort of another one does not end it."""


@dataclass(slots=True)
class _Child:
    """A subagent's session."""

    key: str
    transcript: Transcript
    prompt: str = ""
    active: bool = False


@dataclass(slots=True)
class Crew:
    """All subagents and background tasks of one process."""

    ctx: Context
    calls: dict[str, Call]
    _tasks: dict[str, _Task] = field(default_factory=dict[str, _Task])
    """Live tasks by task id."""
    _children: dict[str, _Child] = field(default_factory=dict[str, _Child])
    _keys: dict[str, str] = field(default_factory=dict[str, str])
    """Task id, or call id of the task -> the child's key."""
    _spawns: dict[str, Call] = field(default_factory=dict[str, Call])
    """Calls of the agent tool, also after their result, because the child may go on."""

    # --- lookups --------------------------------------------------------------------------------------

    def child_of_agent(self, agent_id: str) -> str | None:
        return self._keys.get(agent_id)

    def of(self, key: str | None, main: Transcript) -> Transcript:
        """The transcript of a thread by its key; `main` for None."""
        return self._children[key].transcript if key in self._children else main

    def background(self) -> list[str]:
        """Ids of live tasks whose call has returned."""
        return [task.task_id for task in self._tasks.values() if not task.ambient and task.call_id not in self.calls]

    def work_of_turn(self) -> list[str]:
        """Those of `background` that the running turn has begun."""
        return [task_id for task_id in self.background() if not self._tasks[task_id].is_earlier]

    def live_work(self) -> list[str]:
        tasks = (self._tasks[task_id] for task_id in self.background())
        return [get_text(task.raw, "description") or task.task_id for task in tasks]

    def keep_live(self, msg: Msg) -> Iterator[Output]:
        """Handle `background_tasks_changed`: tasks that its list has not are over, also without a notification."""
        live = {get_text(obj(task), "task_id") for task in arr(msg.get("tasks"))}
        for task_id in self.background():
            if task_id not in live and not self._tasks[task_id].agent:  # a subagent's end has a message of its own
                del self._tasks[task_id]
        yield from ()

    # --- lines of a subagent --------------------------------------------------------------------------

    def thread(self, msg: Msg) -> Iterator[Output]:
        """Open the child of a line with `parent_tool_use_id` if needed. Call it before `transcript`."""
        key = self._key(msg)
        if key not in self._children:
            yield from self._open(key, msg, prompt="")

    def transcript(self, msg: Msg) -> Transcript:
        """The transcript of the child that a line belongs to (after `thread`)."""
        return self._children[self._key(msg)].transcript

    def _key(self, msg: Msg) -> str:
        """The key of a line's child. A resumed subagent is found by its id, and keeps its first call."""
        call_id = get_text(msg, "parent_tool_use_id")
        return self._keys.setdefault(call_id, self._keys.get(get_text(msg, "agent_id"), call_id))

    def user(self, msg: Msg) -> Iterator[Output]:
        """A `user` line of a subagent without tool results: its task, or a later message to it."""
        child = self._children[self._key(msg)]
        content = obj(msg.get("message")).get("content")
        texts = [content] if isinstance(content, str) else [as_text(obj(block).get("text")) for block in arr(content)]
        text = "\n".join(text for text in texts if text)
        if not text or text == child.prompt or text.startswith(INTERRUPTED):
            self.ctx.ignore("user/subagent's prompt or interrupt mark")
            return
        child.prompt = child.prompt or text
        yield child.transcript.user(text, msg, synthetic=False)

    # --- tasks ----------------------------------------------------------------------------------------

    def on_call(self, call: Call, raw: Msg) -> Iterator[Output]:
        """Note a complete tool call. If its subagent has begun already, the child opens now."""
        if call.name in AGENT_TOOLS:
            self._spawns[call.call_id] = call
        task = next((t for t in self._tasks.values() if t.call_id == call.call_id and t.agent), None)
        if task is not None and self._keys.get(call.call_id, call.call_id) not in self._children:
            yield from self._open(call.call_id, task.raw, prompt=get_text(task.raw, "prompt"))

    def on_start(self, msg: Msg) -> Iterator[Output]:
        """Handle `task_started`. A known task id is a resumed subagent, which keeps its child."""
        task_id, call_id = get_text(msg, "task_id"), get_text(msg, "tool_use_id")
        agent = get_text(msg, "task_type") == "local_agent"
        self._tasks[task_id] = _Task(task_id, call_id, agent, ambient=msg.get("ambient") is True, raw=msg)
        if not (agent and task_id and call_id):
            return
        key = self._keys.setdefault(task_id, call_id)
        self._keys[call_id] = key
        if key not in self._children:
            if call_id in self._spawns or call_id in self.calls:
                yield from self._open(key, msg, prompt=get_text(msg, "prompt"))
        elif not self._children[key].active:
            yield from self._wake(self._children[key], get_text(msg, "prompt"), msg)

    def on_notification(self, msg: Msg) -> Iterator[Output]:
        task = self._tasks.pop(get_text(msg, "task_id"), None)
        status, summary = get_text(msg, "status"), get_text(msg, "summary")
        key = self._keys.get(get_text(msg, "task_id"), task.call_id if task else "")
        error: dict[str, Json] | None = None
        if status != "completed":
            error = {"message": summary or f"The subagent was {status or 'ended'}.", "code": f"task_{status or 'ended'}"}
        yield from self._finish(key, msg, error, aborted=status == "stopped")

    def on_result(self, call: Call, result: kit.Result, raw: Msg) -> Iterator[Output]:
        """Note that a call has its result, which ends a subagent in the foreground."""
        if call.call_id not in self._children or result.metadata.get("background"):
            return
        task = next((t for t in self._tasks.values() if t.call_id == call.call_id), None)
        if task is not None and not result.failed and task.raw.get("is_backgrounded") is True:
            return
        error: dict[str, Json] | None = None
        if result.failed:
            error = {"message": "The subagent was ended before it was done.", "code": "task_failed"}
        yield from self._finish(call.call_id, raw, error, aborted=result.metadata.get("interrupted") is True)

    def abandon(self, call_ids: list[str], raw: Msg) -> Iterator[Output]:
        """End the foreground subagents of these calls, which will never return after an interrupt."""
        for call_id in call_ids:
            yield from self._finish(call_id, raw, {"message": "The subagent was interrupted."}, aborted=True)

    def settle(self, raw: Msg) -> Iterator[Output]:
        """End children without a live task, because the CLI is idle."""
        for task in self._tasks.values():
            task.is_earlier = not task.agent
        live = {task.call_id for task in self._tasks.values()} | set(self.calls)
        for key in [key for key, child in self._children.items() if child.active]:
            aliases = {call_id for call_id, child_key in self._keys.items() if child_key == key} | {key}
            if not aliases & live:
                yield from self._finish(key, raw, None, aborted=False)

    def close(self) -> Iterator[Output]:
        """Complete all items and turns of the children, because the process has ended."""
        for child in self._children.values():
            yield from child.transcript.close(None)
            if child.active:
                child.active = False
                yield Signal(Input.EXIT, child=child.key)
        self._tasks.clear()

    # --- children -------------------------------------------------------------------------------------

    def _open(self, key: str, raw: Msg, *, prompt: str) -> Iterator[Output]:
        call = self._spawns.get(key) or self.calls.get(key)
        arguments: Msg = (call and call.arguments) or {}
        child = _Child(key, Transcript(self.ctx, self.calls, child=key))
        self._children[key] = child
        text = prompt or get_text(arguments, "prompt")
        metadata: dict[str, Json] = {
            "call_id": key,
            "title": get_text(raw, "description", "task_description") or title_of("subagent", arguments),
            "agent": get_text(raw, "subagent_type") or get_text(arguments, "subagent_type"),
            "prompt": text,
        }
        if call is not None:
            metadata["parent_item_id"] = call.item_id
            if call.thread is not None:
                metadata["parent_call_id"] = call.thread
        yield Fact(EventType.SESSION_STARTED, SessionStartedData(metadata=metadata), raw=raw, child=key)
        yield from self._wake(child, text, raw)

    def _wake(self, child: _Child, prompt: str, raw: Msg) -> Iterator[Output]:
        child.active = True
        if prompt and prompt != child.prompt:
            child.prompt = prompt
            yield child.transcript.user(prompt, raw, synthetic=True)
        yield Signal(Input.ACTIVITY, child=child.key)

    def _finish(self, key: str, raw: Msg, error: dict[str, Json] | None, *, aborted: bool) -> Iterator[Output]:
        child = self._children.get(key)
        if child is None or not child.active:
            return
        child.active = False
        yield from child.transcript.close(raw)
        if error is None:
            yield Signal(Input.DONE, child=key)
        else:
            yield Signal(Input.FAILED, error=error, aborted=aborted, child=key)
