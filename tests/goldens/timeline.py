"""What a codec puts out for a recording, step by step, in a form that can be played to a server.

The replay engines of `tests/support` know how the recorded lines of each agent become lines and commands of ours. Here a
spy around the codec writes down each call and its outputs, and each prompt and abort of the person.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support import recordings
from tests.support.replay import Replay, codec_of
from universal.codec import Command, Output, SetTimer
from universal.launch import Exit
from universal.turn import Input


@dataclass(frozen=True, slots=True)
class Step:
    """One call to the codec, or one act of the person (`prompt`, `abort`).

    That a timer is set is no step: what it brings, when it runs out, is one.
    `outputs`: what the codec answered. `mode`, `native`: what it knows after the call. `about`: the command, the key of a
    prompt, the id of a checked call, or the exit.
    """

    kind: str
    outputs: tuple[Output, ...] = ()
    about: Any = None
    mode: str | None = None
    native: str | None = None


@dataclass(slots=True)
class Timeline:
    """All steps of a recording. `agent` is the name in the registry, `catalogue` what the agent offered."""

    agent: str
    steps: list[Step] = field(default_factory=list)
    catalogue: Any = None


class _Spy:
    """A codec that writes down what it is asked and what it answers."""

    def __init__(self, codec: Any, timeline: Timeline) -> None:
        self._codec = codec
        self._timeline = timeline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codec, name)

    def _note(self, kind: str, outputs: list[Output], about: Any = None) -> list[Output]:
        kept = tuple(output for output in outputs if not isinstance(output, SetTimer))
        step = Step(kind, kept, about, self._codec.mode or None, self._codec.native_session_id)
        self._timeline.steps.append(step)
        self._timeline.catalogue = self._codec.catalogue or self._timeline.catalogue
        return outputs

    def start(self) -> list[Output]:
        return self._note("receive", self._codec.start())

    def receive(self, line: bytes) -> list[Output]:
        return self._note("receive", self._codec.receive(line))

    def on_timer(self, key: str) -> list[Output]:
        return self._note("receive", self._codec.on_timer(key))

    def send(self, command: Command) -> list[Output]:
        return self._note("send", self._codec.send(command), command)

    def eof(self, exit_: Exit) -> list[Output]:
        return self._note("eof", self._codec.eof(exit_), exit_)

    def proceed(self, permission_id: str) -> list[Output]:
        return self._note("proceed", self._codec.proceed(permission_id), permission_id)

    def on_host_answer(self, answer: Any) -> list[Output]:
        return self._note("receive", self._codec.on_host_answer(answer))


def _watch(replay: Replay, timeline: Timeline) -> None:
    """The acts of the person in a replay are written down too."""
    apply = replay.apply

    def note_input(child: str | None, input_: Input, key: str = "") -> None:
        if input_ is Input.PROMPT and child is None:
            timeline.steps.append(Step("prompt", about=key))
        elif input_ is Input.ABORT and child is None:
            timeline.steps.append(Step("abort"))
        apply(child, input_, key)

    replay.apply = note_input  # type: ignore[method-assign] - each call of the replay itself goes through it too


def names() -> list[str]:
    """All recordings, as paths below compat_fixtures/agents without their ending."""
    return sorted([*recordings.names(), *recordings.names("mock")])


def timeline(name: str) -> Timeline:
    """The steps of one recording."""
    recording = recordings.read(name)
    replay = Replay(recording.agent, codec_of(recording.agent))
    made = Timeline(replay.agent)
    replay.codec = _Spy(replay.codec, made)  # type: ignore[assignment]
    _watch(replay, made)
    replay.play(recording)
    return made
