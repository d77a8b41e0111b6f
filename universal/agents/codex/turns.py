"""Tracks prompts, the turns of Codex that answer them, and interrupts.

It makes the signals for the turn machine, and decides no end: DONE and FAILED stand for `turn/completed` of the main thread.

- A prompt waits for the handshake and for the thread, which begins with the first prompt, or ahead in a process that waits for a
  session: Codex 0.169.0 keeps no file of a thread without a turn. A discovery begins none, because MCP servers start with it.
- `turn/start` while a turn runs steers into it: both prompts are answered by one `turn/completed`.
- `turn/steer` gives a prompt to a turn. Its echo, an item `userMessage` with our key, says that it was taken in. In a command
  that is after it; a text that streams is cut off and lost, so that a prompt is given only while a call runs and nothing is said.
  An interrupt drops what was not taken in.
- The answer to `turn/start` may come before or after `turn/started`, so both tell which turn a prompt belongs to.
- An interrupt needs the turn's id; before that it is held. Codex refuses one for a turn that has not begun, so it is sent again
  at `turn/started`.
- A subagent's turn holds the conversation's turn open.
Source: recordings `queue_*`, `steer_*`, `interrupt_*`, `hang_interrupt`, `task*`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from universal.agents import kit
from universal.agents.codex.settings import Settings
from universal.agents.codex.speech import Thread
from universal.agents.codex.wire import INTERRUPTION, prompt_input, request_error
from universal.codec import Output, Prompt, Signal, WriteLine
from universal.items import Json
from universal.lib.jsonrpc import Id, JsonRpc
from universal.turn import Input

COMPACT_METHOD = "thread/compact/start"
RENAME = "thread/name/set"
"""Its answer is empty. A separate turn follows, with one item `contextCompaction` (0.169.0)."""


@dataclass(slots=True)
class _Prompt:
    """A written prompt without an answer."""

    request_id: Id
    turn_id: str = ""


@dataclass(slots=True)
class Turns:
    """The prompts and turns of one process."""

    rpc: JsonRpc
    settings: Settings
    main: Thread
    _ready: bool = False
    _starting: bool = False
    _ahead: bool = False
    """True if the thread is to begin without a prompt."""
    _first: bool = True
    _waiting: list[Prompt] = field(default_factory=list[Prompt])
    _prompts: list[_Prompt] = field(default_factory=list[_Prompt])
    _woken: bool = False
    """True after ACTIVITY until its end."""
    _stopping: bool = False
    """True if the dispatched prompts must be interrupted."""
    _interrupted: set[str] = field(default_factory=set[str])
    """Turns for which an interrupt was sent."""
    _offers: dict[str, Id] = field(default_factory=dict[str, Id])
    """Key of a steered prompt that was not taken in -> our request."""

    @property
    def current_turn(self) -> str:
        """The turn of Codex that runs, or that it has accepted and not begun. "" if there is none."""
        return self.main.turn_id or next((prompt.turn_id for prompt in self._prompts if prompt.turn_id), "")

    @property
    def is_waiting(self) -> bool:
        """True while prompts wait for the thread."""
        return bool(self._waiting)

    # --- prompts --------------------------------------------------------------------------------------

    def prompt(self, prompt: Prompt) -> Iterator[Output]:
        """Send a prompt, now or when the thread is ready."""
        if not self._prompts:
            self._stopping = False
        if self.main.thread_id:
            yield from self._start(prompt)
            return
        self._waiting.append(prompt)
        yield kit.await_handshake()
        yield from self._begin_thread()

    def ready(self) -> Iterator[Output]:
        self._ready = True
        yield from self._begin_thread()

    def begin_ahead(self) -> Iterator[Output]:
        """Begin a new thread as soon as the handshake is done, before there is a prompt. An earlier one waits for it."""
        self._ahead = not self.settings.resume_id
        yield from self._begin_thread()

    def _begin_thread(self) -> Iterator[Output]:
        if self._ready and (self._waiting or self._ahead) and not self._starting:
            self._starting, self._ahead = True, False
            method, params = self.settings.thread(self._waiting[0] if self._waiting else None)
            yield WriteLine(self.rpc.request(method, params)[1])

    def thread_begun(self) -> Iterator[Output]:
        """Send the waiting prompts, because the thread has begun."""
        self._starting = False
        waiting, self._waiting = self._waiting, []
        if waiting:
            yield kit.end_handshake()
        for prompt in waiting:
            yield from self._start(prompt)

    def _start(self, prompt: Prompt) -> Iterator[Output]:
        if prompt.compact:
            request_id, line = self.rpc.request(COMPACT_METHOD, {"threadId": self.main.thread_id})
            self._prompts.append(_Prompt(request_id))
            self.main.compacting = True
            yield WriteLine(line)
            return
        params: dict[str, Json] = {"threadId": self.main.thread_id, "input": prompt_input(prompt)}
        params |= self.settings.turn(prompt, first=self._first)
        if prompt.schema is not None:
            params["outputSchema"] = prompt.schema
        self._first = False
        request_id, line = self.rpc.request("turn/start", params)
        self._prompts.append(_Prompt(request_id))
        yield WriteLine(line)

    def turn_accepted(self, request_id: Id, turn_id: str) -> Iterator[Output]:
        """Handle the answer to `turn/start`. The turn may be over already."""
        for prompt in self._prompts:
            if prompt.request_id == request_id:
                prompt.turn_id = turn_id
                if self._stopping and not self.main.turn_id:
                    yield self._stop(turn_id)

    def refusal(self, method: str, request_id: Id, message: str) -> dict[str, Json] | None:
        """Handle a refusal: the error of the request's prompt, or None."""
        if method in ("turn/start", COMPACT_METHOD):
            before = len(self._prompts)
            self._prompts = [prompt for prompt in self._prompts if prompt.request_id != request_id]
            if len(self._prompts) == before:
                return None
        else:
            self._starting = False
            self._waiting.clear()
        return request_error(method, message)

    # --- steered prompts ------------------------------------------------------------------------------

    @property
    def may_steer(self) -> bool:
        """Whether a call of the turn runs, so that a prompt cuts off nothing."""
        is_ours = any(prompt.turn_id == self.main.turn_id for prompt in self._prompts)
        return bool(self.main.turn_id) and is_ours and not self._stopping and self.main.only_calls

    def steer(self, prompt: Prompt) -> Iterator[Output]:
        params: dict[str, Json] = {"threadId": self.main.thread_id, "expectedTurnId": self.main.turn_id}
        params |= {"input": prompt_input(prompt), "clientUserMessageId": prompt.key}
        self._offers[prompt.key], line = self.rpc.request("turn/steer", params)
        yield WriteLine(line)

    def on_echo(self, key: str) -> Iterator[Output]:
        if self._offers.pop(key, None) is not None:
            yield Signal(Input.TAKEN, key=key)

    def steer_refused(self, request_id: Id) -> Iterator[Output]:
        """The turn does not take a prompt, because it is over."""
        for key in [key for key, id_ in self._offers.items() if id_ == request_id]:
            del self._offers[key]
            yield Signal(Input.RETURNED, key=key)

    # --- turns ----------------------------------------------------------------------------------------

    def on_turn_started(self, turn_id: str) -> Iterator[Output]:
        for prompt in self._prompts:
            prompt.turn_id = prompt.turn_id or turn_id
        if not any(prompt.turn_id == turn_id for prompt in self._prompts):
            self._woken = True
            yield Signal(Input.ACTIVITY)
        if self._stopping:
            yield self._stop(turn_id)

    def on_turn_completed(self, turn_id: str, error: dict[str, Json] | None, *, aborted: bool) -> Iterator[Output]:
        """`turn/completed` of the conversation: DONE or FAILED for each prompt that it answers."""
        answered_prompts = [prompt for prompt in self._prompts if prompt.turn_id == turn_id]
        self._prompts = [prompt for prompt in self._prompts if prompt not in answered_prompts]
        if not self._prompts:
            self._stopping = False
        offers, self._offers = self._offers, {}
        for key in reversed(offers):
            yield Signal(Input.RETURNED, key=key)
        if not answered_prompts and not self._woken:
            return
        self._woken = False
        metadata: dict[str, Json] = {"usage": dict(self.main.usage)} if self.main.usage else {}
        self.main.usage = {}
        for number in range(max(len(answered_prompts), 1)):
            yield _end(error, {**(metadata if not number else {}), "anchor": turn_id}, aborted=aborted)

    def child_started(self, child: Thread) -> Iterator[Output]:
        yield Signal(Input.OPENED, key=child.thread_id)
        yield Signal(Input.ACTIVITY, child=child.child)

    def child_completed(self, child: Thread, error: dict[str, Json] | None, *, aborted: bool) -> Iterator[Output]:
        metadata: dict[str, Json] | None = {"usage": dict(child.usage)} if child.usage else None
        child.usage = {}
        yield _end(error, metadata, aborted=aborted, child=child.child)
        yield Signal(Input.CLOSED, key=child.thread_id)

    # --- interrupts -----------------------------------------------------------------------------------

    def interrupt(self, children: Sequence[Thread]) -> Iterator[Output]:
        """Interrupt the running turns, also of subagents."""
        waiting, self._waiting = self._waiting, []
        for _ in waiting:  # never written, so there is nothing to stop
            yield Signal(Input.FAILED, error=dict(INTERRUPTION), aborted=True)
        for child in children:
            if child.turn_id:
                yield self._interrupt(child.thread_id, child.turn_id)
        turn_id = self.main.turn_id
        if turn_id:
            yield self._stop(turn_id)
        elif self._prompts:
            self._stopping = True
            known = next((prompt.turn_id for prompt in self._prompts if prompt.turn_id), "")
            if known:
                yield self._stop(known)

    def is_interrupted(self, turn_id: str) -> bool:
        """Whether we have asked Codex to interrupt a turn. It also interrupts turns by itself."""
        return turn_id in self._interrupted or self._stopping

    def interrupt_refused(self) -> None:
        """Handle a refused interrupt. If the turn has not begun, `on_turn_started` sends it again."""
        self._stopping = bool(self._prompts) and not self.main.turn_id

    def _stop(self, turn_id: str) -> Output:
        """Send an interrupt. It is repeated at `turn/started`, in case Codex does not know the turn yet."""
        self._stopping = not self.main.turn_id
        return self._interrupt(self.main.thread_id, turn_id)

    def _interrupt(self, thread_id: str, turn_id: str) -> Output:
        self._interrupted.add(turn_id)
        return WriteLine(self.rpc.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})[1])


def _end(error: dict[str, Json] | None, metadata: dict[str, Json] | None, *, aborted: bool, child: str | None = None) -> Signal:
    if aborted:
        return Signal(Input.FAILED, error=dict(INTERRUPTION), aborted=True, metadata=metadata, child=child)
    if error is not None:
        return Signal(Input.FAILED, error=error, metadata=metadata, child=child)
    return Signal(Input.DONE, metadata=metadata, child=child)
