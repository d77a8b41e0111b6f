"""Replays a recording of Amp to a new codec. Prompts in the arguments of the recorded process become prompts of the session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.recordings import Recording, Row
from tests.support.replay import DIRECTORY, Replay, codec_of
from universal.codec import Interrupt, InterruptProcess, LaunchOptions, Stop
from universal.turn import Input


@dataclass
class AmpReplay(Replay):
    """The codec of Amp at work."""

    agent: str = "amp"
    codec: Any = field(default_factory=lambda: codec_of("amp"))
    stopped: bool = False

    def launch(self, recording: Recording) -> None:
        argv = recording.argv
        thread = argv[argv.index("continue") + 1] if "continue" in argv else None
        options = LaunchOptions(
            binary="amp",
            directory=DIRECTORY,
            native_session_id=thread,
            resume=thread is not None,
            mode="bypass" if "--dangerously-allow-all" in argv else "build",
        )
        self.codec.launch(options)
        self.take(self.codec.start())
        words = argv[argv.index("--execute") + 1]
        if not words.startswith("--"):
            self.prompt(words)

    def command(self, row: Row) -> None:
        """We write to Amp only while it is idle: others wait in the session."""
        if isinstance(row.msg, dict) and not self.state.machine.busy:
            self.prompt(row.msg["message"]["content"][0]["text"])

    def on_signal(self, row: Row) -> None:
        if row.msg == "SIGINT":
            self.apply(None, Input.ABORT)

    def interrupt(self) -> None:
        outputs = self.codec.send(Interrupt())
        assert outputs == [InterruptProcess()]
        self.take(outputs)

    def receive(self, line: bytes) -> None:
        """After a `Stop` nothing counts any more."""
        if not self.stopped:
            outputs = self.codec.receive(line)
            self.take(outputs)
            self.stopped = any(isinstance(out, Stop) for out in outputs)
