"""Which of Claude's messages begin and end work: prompts handed over, results, states, interrupts.

Owns: what is said to the turn machine about the session itself. It decides no end on its own: DONE and FAILED
stand for a `result`, or for the `idle` state, which the CLI calls its authoritative end.

- A `result` answers the prompts whose uuids it names (2.1.330). Without uuids it answers the oldest one that was
  handed over, unless its `origin` says that it belongs to a turn that Claude began by itself.
- `session_state_changed` running..idle holds the turn open under the key "agent", so that background agents and
  the turn in which Claude reports on them belong to the turn that started them.
- An interrupt while the CLI is idle does nothing, and the prompt would run all the same. So it is held until the
  CLI shows that it has begun, and sent again if the CLI begins after having acknowledged it (seen on 2.1.330: an
  interrupt right after the second prompt is acknowledged with `still_queued`, then the prompt runs).
Source: recordings `queue_*`, `bg_*`, `interrupt_*`; the CLI's own schema texts of `interrupt` and
`command_lifecycle`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from universal.agents.claude.wire import Msg, get_cost, get_text, usage_of
from universal.codec import Signal
from universal.items import Json
from universal.jsonvalue import arr, obj
from universal.jsonvalue import text as as_text
from universal.turn import Input

AGENT = "agent"
"""Key of the work that the CLI's own running state stands for."""


@dataclass(slots=True)
class _Prompt:
    """A prompt that was written to the CLI and is not answered."""

    uuid: str
    begun: bool = False
    lifecycle: bool = False
    """The CLI reports on this prompt by its uuid, so other signs say nothing about it."""


@dataclass(slots=True)
class Turns:
    """Feed it every line that has to do with turns, act on its signals."""

    _prompts: list[_Prompt] = field(default_factory=list[_Prompt])
    _state: str = ""
    """The CLI's last state; "" until it has told one (it may be too old to)."""
    _turning: bool = False
    """The CLI is at work on something, as far as it showed."""
    _woken: bool = False
    """ACTIVITY was signalled and nothing has ended it."""
    _opened: bool = False
    _stopping: bool = False
    _in_flight: bool = False
    _cost_seen: float = 0.0
    _carried: dict[str, Json] = field(default_factory=dict[str, Json])
    """Usage and cost of results that answered none of our prompts, for the next signal."""

    # --- commands -------------------------------------------------------------------------------------

    def prompt_written(self, uuid: str) -> None:
        """A prompt was written."""
        if not self._prompts:
            self._stopping = self._in_flight = False
        self._prompts.append(_Prompt(uuid))

    def interrupt(self) -> bool:
        """Stop what runs now. True: send the request at once; else `begun` says when."""
        resting = self._state == "idle" and not self._prompts and not self._turning
        self._stopping = not resting
        if self._prompts and not self._turning:
            return False
        self._in_flight = not resting
        return True

    def acknowledge_interrupt(self) -> None:
        """The CLI answered an interrupt, which does not mean that it stopped anything."""
        self._in_flight = False

    @property
    def is_stopping(self) -> bool:
        """An interrupt was asked for and what it is for has not ended."""
        return self._stopping

    # --- signs of work --------------------------------------------------------------------------------

    def note_begin(self) -> bool:
        """The CLI began something, or goes on with it. True: an interrupt is to be sent now."""
        self._turning = True
        if not self._stopping or self._in_flight:
            return False
        self._in_flight = True
        return True

    def init(self) -> Iterator[Signal]:
        """`system/init`: a turn begins. Without states, it is the only sign of one that nobody asked for."""
        for prompt in self._prompts:
            prompt.begun = prompt.begun or not prompt.lifecycle
        if not self._prompts and not self._state and not self._woken:
            self._woken = True
            yield Signal(Input.ACTIVITY)

    def state(self, state: str) -> Iterator[Signal]:
        """`session_state_changed`. `requires_action` and back is no end and no beginning."""
        before, self._state = self._state, state
        if state == "running" and before in ("", "idle"):
            if not self._prompts:
                self._woken = True
                yield Signal(Input.ACTIVITY)
            self._opened = True
            yield Signal(Input.OPENED, key=AGENT)
        elif state == "idle":
            yield from self._idle()

    def _idle(self) -> Iterator[Signal]:
        """Nothing runs and nothing is queued: what was begun has been answered, if by no result of its own."""
        answered = [prompt for prompt in self._prompts if prompt.begun]
        self._prompts = [prompt for prompt in self._prompts if not prompt.begun]
        for _ in answered or ([None] if self._woken and not self._prompts else []):
            yield Signal(Input.DONE, metadata=self._take_carried())
        self._woken = self._turning = False
        if not self._prompts:
            self._stopping = False
        if self._opened:
            self._opened = False
            yield Signal(Input.CLOSED, key=AGENT)

    def lifecycle(self, uuid: str, state: str) -> Iterator[Signal]:
        """`command_lifecycle`: the fate of one prompt. Ends without a result are told here only."""
        prompt = next((prompt for prompt in self._prompts if prompt.uuid == uuid), None)
        if prompt is None:
            return
        prompt.lifecycle = True
        if state == "started":
            prompt.begun = True
        elif state in ("cancelled", "discarded", "refused") and not prompt.begun:
            self._prompts.remove(prompt)
            message = f"Claude Code did not take the prompt ({state})."
            yield Signal(Input.FAILED, aborted=state == "cancelled", error={"message": message, "code": f"prompt_{state}"})

    # --- results --------------------------------------------------------------------------------------

    def result(self, msg: Msg, error: dict[str, Json] | None, *, aborted: bool) -> Iterator[Signal]:
        """A `result`. `error` is None when it went well."""
        self._turning = self._in_flight = False
        answered_prompts = self._answered_by(msg)
        foreign = bool(self._prompts) and not answered_prompts
        self._prompts = [prompt for prompt in self._prompts if prompt not in answered_prompts]
        if not self._prompts:
            self._stopping = False
        self._carry(msg)
        if foreign:
            return
        self._woken = False
        metadata = self._take_carried()
        for number in range(max(len(answered_prompts), 1)):
            if error is None:
                yield Signal(Input.DONE, metadata=None if number else metadata)
            else:
                yield Signal(Input.FAILED, error=error, aborted=aborted, metadata=None if number else metadata)

    def _answered_by(self, msg: Msg) -> list[_Prompt]:
        named = {as_text(uuid) for uuid in arr(msg.get("user_message_uuids"))} | {as_text(msg.get("user_message_uuid"))}
        named.discard("")
        if named:
            return [prompt for prompt in self._prompts if prompt.uuid in named]
        if get_text(obj(msg.get("origin")), "kind") == "task-notification":
            return []
        return self._prompts[:1]

    def _carry(self, msg: Msg) -> None:
        """Usage of the turn, and its cost in USD.

        2.1.330 tells the cost since the last result; before that `total_cost_usd` counts for the whole process, so
        the difference is taken, and a smaller value is a restart (`/clear`).
        """
        cost: float | None = None
        total = get_cost(msg, "total_cost_usd")
        since = msg.get("model_usage_since_last_result")
        if isinstance(since, dict):
            cost = sum(get_cost(obj(row), "costUSD") or 0.0 for row in obj(since).values())
        elif total is not None:
            cost = total - self._cost_seen if total >= self._cost_seen else total
        if total is not None:
            self._cost_seen = total
        if obj(msg.get("usage")):
            before = obj(self._carried.get("usage"))
            usage = usage_of(obj(msg["usage"]))
            self._carried["usage"] = {key: value + before.get(key, 0) for key, value in usage.items()}
        if cost is not None:
            self._carried["cost"] = cost + self._carried.get("cost", 0.0)

    def _take_carried(self) -> dict[str, Json] | None:
        carried, self._carried = self._carried, {}
        return carried or None
