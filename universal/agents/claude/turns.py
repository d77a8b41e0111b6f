"""Finds the begin and end of work in Claude's messages: dispatched prompts, results, states, interrupts.

It makes the signals for the turn machine, and decides no end. DONE and FAILED stand for a `result`, or for the `idle` state,
which the CLI calls its authoritative end.

- A `result` answers the prompts whose uuids it names (2.1.330). Without uuids it answers the oldest dispatched prompt, unless its
  `origin` says that it belongs to a turn that Claude began by itself.
- `session_state_changed` from running to idle holds the turn open under the key "agent". So background agents, and the turn in
  which Claude reports on them, belong to the turn that started them.
- A prompt that is written while the CLI works (`steer`) is folded into its next request after a tool, or else has a turn of its
  own when this one is over. `started` says that it was taken in, and one `result` names all that it answers.
- An interrupt while the CLI is idle does nothing, and the prompt would run after it. So it is held until the CLI has begun, and
  is sent again if the CLI begins after its acknowledgement (2.1.330: an interrupt right after the second prompt is acknowledged
  with `still_queued`, then the prompt runs).
Source: recordings `queue_*`, `bg_*`, `interrupt_*`; the CLI's own schema texts of `interrupt` and
`command_lifecycle`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from universal.agents.claude.wire import Msg, get_cost, get_text, prompt_uuid, usage_of
from universal.codec import Signal
from universal.items import Json
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text
from universal.turn import Input

AGENT = "agent"
"""Key of the open work that stands for the CLI's running state."""


ALREADY_ANSWERED: dict[str, Json] = {
    "message": "Claude Code has this prompt in its conversation already, and does not answer it again. Send it once more.",
    "code": "prompt_answered",
}
"""The error of a prompt that Claude calls completed without having begun it (a conversation that was cut off and resumed)."""


NOT_BEGUN: dict[str, Json] = {
    "message": "Claude Code is idle and has not begun this prompt. Send it once more.",
    "code": "prompt_not_begun",
}
"""The error of a prompt that was written and lost."""


@dataclass(slots=True)
class _Prompt:
    """A prompt that was written to the CLI and is not answered."""

    uuid: str
    key: str = ""
    """Our key of a steered prompt. "" for one that was dispatched."""
    has_begun: bool = False
    lifecycle: bool = False
    """True if the CLI reports on this prompt by its uuid. Other signs then do not count."""
    outcome: str = ""
    """The CLI's word on its end, which a `result` should say too."""


@dataclass(slots=True)
class Turns:
    """The turns of one process: lines about turns go in, signals come out."""

    _prompts: list[_Prompt] = field(default_factory=list[_Prompt])
    _state: str = ""
    """The CLI's last state, or "" before the first one. Old versions have none."""
    _turning: bool = False
    """True while the CLI works, by its messages."""
    _woken: bool = False
    """True after ACTIVITY until its end."""
    _opened: bool = False
    _stopping: bool = False
    _in_flight: bool = False
    _sent: dict[str, int] = field(default_factory=dict[str, int])
    """Key of a prompt -> how often it was sent to this process."""
    _cost_seen: float = 0.0
    _carried: dict[str, Json] = field(default_factory=dict[str, Json])
    """Usage and cost of results that answered no prompt of ours, for the next signal."""

    # --- commands -------------------------------------------------------------------------------------

    def new_uuid(self, key: str) -> str:
        """The uuid of a prompt. Claude never answers one that it knows, so a prompt that is sent again gets another."""
        number = self._sent[key] = self._sent.get(key, 0) + 1
        return prompt_uuid(key if number == 1 else f"{key}#{number}")

    def prompt_written(self, uuid: str, *, steered: str = "") -> None:
        """Note a written prompt. In: the key of one that the CLI takes in while it works."""
        if self._prompts and not steered:  # it is dispatched when all before it is over
            self._prompts = [prompt for prompt in self._prompts if not prompt.key]
        if not self._prompts:
            self._stopping = self._in_flight = False
        self._prompts.append(_Prompt(uuid, steered))

    @property
    def may_steer(self) -> bool:
        return not self._stopping and any(prompt.has_begun and prompt.lifecycle for prompt in self._prompts)

    @property
    def has_offers(self) -> bool:
        """Whether a steered prompt waits in the CLI."""
        return any(prompt.key and not prompt.has_begun for prompt in self._prompts)

    def uuid_of_offer(self, key: str) -> str:
        """The uuid of a steered prompt that waits in the CLI, or ""."""
        return next((prompt.uuid for prompt in self._prompts if prompt.key == key and not prompt.has_begun), "")

    def interrupt(self) -> bool:
        """Ask for an interrupt. True: send it at once; otherwise `note_begin` says when."""
        resting = self._state == "idle" and not self._prompts and not self._turning
        self._stopping = not resting
        if self._prompts and not self._turning and not self.has_offers:
            return False
        self._in_flight = not resting
        return True

    def acknowledge_interrupt(self) -> None:
        """Note the answer to an interrupt, which does not mean that anything has stopped."""
        self._in_flight = False

    @property
    def is_woken(self) -> bool:
        """Whether the CLI works by itself, on no prompt."""
        return self._woken and not self._prompts

    @property
    def is_stopping(self) -> bool:
        """True after an interrupt, until the interrupted work has ended."""
        return self._stopping

    @property
    def unbegun(self) -> str:
        """The uuid of a prompt that was written and has not begun, or ""."""
        return next((prompt.uuid for prompt in self._prompts if not prompt.has_begun), "")

    @property
    def is_resting(self) -> bool:
        """Whether all is answered, and only the CLI's running state keeps the turn open."""
        return self._opened and not self._prompts and not self._turning

    @property
    def has_states(self) -> bool:
        return bool(self._state)

    # --- signs of work --------------------------------------------------------------------------------

    def note_begin(self) -> bool:
        """Note that the CLI works. True: send an interrupt now."""
        self._turning = True
        if not self._stopping or self._in_flight:
            return False
        self._in_flight = True
        return True

    def init(self) -> Iterator[Signal]:
        """Handle `system/init`: a turn begins. Without states, it is the only sign of an unprompted turn.

        It may be of the turn before a prompt that was written just now: then `queued` takes the mark back.
        """
        for prompt in self._prompts:
            prompt.has_begun = prompt.has_begun or not (prompt.lifecycle or prompt.key)
        if not self._prompts and not self._state and not self._woken:
            self._woken = True
            yield Signal(Input.ACTIVITY)

    def state(self, state: str) -> Iterator[Signal]:
        """Handle `session_state_changed`. `requires_action` and back is neither an end nor a begin."""
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
        """End all work, because nothing runs and nothing is queued: the prompts were answered, even without a result."""
        has_answered = any(prompt.has_begun for prompt in self._prompts)
        self._prompts = [prompt for prompt in self._prompts if not prompt.has_begun]
        if has_answered or (self._woken and not self._prompts):
            yield Signal(Input.DONE, metadata=self._take_carried())
        self._woken = self._turning = False
        if not self._prompts:
            self._stopping = False
        if self._opened:
            self._opened = False
            yield Signal(Input.CLOSED, key=AGENT)

    def lifecycle(self, uuid: str, state: str) -> Iterator[Signal]:
        """Handle `command_lifecycle`: the state of one prompt. Ends without a result come only here."""
        prompt = next((prompt for prompt in self._prompts if prompt.uuid == uuid), None)
        if prompt is None:
            return
        prompt.lifecycle = True
        if prompt.key and not prompt.has_begun and state in ("started", "completed"):
            yield Signal(Input.TAKEN, key=prompt.key)
            prompt.has_begun = True
        if state == "started":
            prompt.has_begun = True
        elif state == "queued":
            prompt.has_begun = False
        elif state == "completed" and not prompt.has_begun:
            self._prompts.remove(prompt)
            yield Signal(Input.FAILED, error=dict(ALREADY_ANSWERED))
        elif state in ("cancelled", "discarded", "refused") and not prompt.has_begun:
            self._prompts.remove(prompt)
            yield Signal(Input.RETURNED, key=prompt.key) if prompt.key else _untaken(state)
        else:
            prompt.outcome = state

    # --- ends without a result -----------------------------------------------------------------------

    def awaits_result(self, uuid: str) -> bool:
        """Whether this prompt is over by its lifecycle, and its `result` has not come."""
        return any(prompt.uuid == uuid and prompt.outcome for prompt in self._prompts)

    def end_without_result(self, uuid: str) -> Iterator[Signal]:
        prompt = next(prompt for prompt in self._prompts if prompt.uuid == uuid)
        self._prompts.remove(prompt)
        self._turning = self._in_flight = False
        if prompt.outcome == "completed":
            yield Signal(Input.DONE, metadata=self._take_carried())
        else:
            yield _untaken(prompt.outcome)

    def give_up(self, uuid: str) -> Iterator[Signal]:
        """Fail a prompt that has not begun, if the CLI is idle. Steered ones go back."""
        if self._state != "idle" or not any(prompt.uuid == uuid and not prompt.has_begun for prompt in self._prompts):
            return
        lost = [prompt for prompt in self._prompts if not prompt.has_begun and (prompt.key or prompt.uuid == uuid)]
        self._prompts = [prompt for prompt in self._prompts if prompt not in lost]
        for prompt in reversed(lost):
            yield Signal(Input.RETURNED, key=prompt.key) if prompt.key else Signal(Input.FAILED, error=dict(NOT_BEGUN))

    def rest(self) -> Iterator[Signal]:
        """End all work, as `idle` does, because that has not come."""
        yield from self._idle()

    # --- results --------------------------------------------------------------------------------------

    def result(self, msg: Msg, error: dict[str, Json] | None, *, aborted: bool) -> Iterator[Signal]:
        self._turning = self._in_flight = False
        answered_prompts = self._prompts_answered_by(msg)
        foreign = bool(self._prompts) and not answered_prompts
        self._prompts = [prompt for prompt in self._prompts if prompt not in answered_prompts]
        if not self._prompts:
            self._stopping = False
        self._carry(msg)
        if foreign:
            return
        self._woken = False
        metadata = self._take_carried()
        for prompt in answered_prompts:
            if prompt.key and not prompt.has_begun:
                yield Signal(Input.TAKEN, key=prompt.key)
        dispatched = sum(not prompt.key for prompt in answered_prompts)
        for number in range(max(dispatched, 1)):
            if error is None:
                yield Signal(Input.DONE, metadata=None if number else metadata)
            else:
                yield Signal(Input.FAILED, error=error, aborted=aborted, metadata=None if number else metadata)

    def _prompts_answered_by(self, msg: Msg) -> list[_Prompt]:
        named = {as_text(uuid) for uuid in arr(msg.get("user_message_uuids"))} | {as_text(msg.get("user_message_uuid"))}
        named.discard("")
        if named:
            return [prompt for prompt in self._prompts if prompt.uuid in named]
        if get_text(obj(msg.get("origin")), "kind") == "task-notification":
            return []
        return self._prompts[:1]

    def _carry(self, msg: Msg) -> None:
        """Add up the usage of the turn and its cost in USD.

        2.1.330 reports the cost since the last result. Before, `total_cost_usd` counts for the whole process, so the difference
        is taken, and a smaller value means a restart (`/clear`).
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
        if "structured_output" in msg:
            self._carried["structured"] = msg["structured_output"]
        if cost is not None:
            self._carried["cost"] = cost + self._carried.get("cost", 0.0)

    def _take_carried(self) -> dict[str, Json] | None:
        carried, self._carried = self._carried, {}
        return carried or None


def _untaken(state: str) -> Signal:
    """The end of a prompt that the CLI did not take, or gave up."""
    message = f"Claude Code did not take the prompt ({state})."
    return Signal(Input.FAILED, aborted=state == "cancelled", error={"message": message, "code": f"prompt_{state}"})
