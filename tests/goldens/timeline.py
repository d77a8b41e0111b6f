"""What a codec puts out for a recording, step by step, in a form that can be played to a server.

The replay engines of `tests/support` know how the recorded lines of each agent become lines and commands of ours. Here a
spy around the codec writes down each call and its outputs, and each prompt and abort of the person.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from shim.record.driver import counting, is_own
from tests.support import opencode_replay, recordings
from tests.support.acp_replay import AcpReplay
from tests.support.amp_replay import AmpReplay
from tests.support.claude_replay import Replay as ClaudeReplay
from tests.support.codex_replay import CodexReplay
from tests.support.own_replay import OwnReplay
from tests.support.pi_replay import PiReplay
from tests.support.recordings import ROOT
from universal.codec import Command, Exit, Interrupt, LaunchOptions, Output, PermissionReply, Prompt, QuestionReply
from universal.registry import agents
from universal.turn import Input

DIRECTORY = "/home/user/project"


@dataclass(frozen=True, slots=True)
class Step:
    """One call to the codec, or one act of the person (`prompt`, `abort`).

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

    def _noted(self, kind: str, outputs: list[Output], about: Any = None) -> list[Output]:
        mode = getattr(self._codec, "mode", None)
        step = Step(kind, tuple(outputs), about, mode if isinstance(mode, str) else None, self._codec.native_session_id)
        self._timeline.steps.append(step)
        self._timeline.catalogue = self._codec.catalogue or self._timeline.catalogue
        return outputs

    def start(self) -> list[Output]:
        return self._noted("receive", self._codec.start())

    def receive(self, line: bytes) -> list[Output]:
        return self._noted("receive", self._codec.receive(line))

    def send(self, command: Command) -> list[Output]:
        return self._noted("send", self._codec.send(command), command)

    def eof(self, exit_: Exit) -> list[Output]:
        return self._noted("eof", self._codec.eof(exit_), exit_)


class _CheckingSpy(_Spy):
    def proceed(self, permission_id: str) -> list[Output]:
        return self._noted("proceed", self._codec.proceed(permission_id), permission_id)


class _HostedSpy(_Spy):
    def hosted(self, answer: Any) -> list[Output]:
        return self._noted("receive", self._codec.hosted(answer))


class _CheckingHostedSpy(_CheckingSpy, _HostedSpy):
    pass


_SPIES = {(False, False): _Spy, (True, False): _CheckingSpy, (False, True): _HostedSpy, (True, True): _CheckingHostedSpy}


def _spied(codec: Any, timeline: Timeline) -> Any:
    return _SPIES[hasattr(codec, "proceed"), hasattr(codec, "hosted")](codec, timeline)


def _watched(engine: type[Any], timeline: Timeline) -> type[Any]:
    """The engine, whose person's acts are written down too."""

    class Watched(engine):  # type: ignore[misc]
        def apply(self, *where: Any) -> Any:
            input_ = next(value for value in where if isinstance(value, Input))
            child = where[0] if not isinstance(where[0], Input) else None
            if input_ is Input.PROMPT and child is None:
                timeline.steps.append(Step("prompt", about=where[-1]))
            elif input_ is Input.ABORT and child is None:
                timeline.steps.append(Step("abort"))
            return engine.apply(self, *where)

    return Watched


def names() -> list[str]:
    """All recordings, as paths below compat_fixtures/agents without their ending."""
    found = [path for path in sorted(ROOT.glob("**/*.jsonl")) if path.parent.name != "universal"]
    return [str(path.relative_to(ROOT))[: -len(".jsonl")] for path in found]


async def timeline(name: str) -> Timeline:
    """The steps of one recording."""
    path = ROOT / f"{name}.jsonl"
    agent = name.split("/")[0]
    if agent != "mock" and is_own(path):
        return await _own(path)
    return await _ENGINES[agent](name)


async def _own(path: Path) -> Timeline:
    head, *rows = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    made = Timeline(head["agent"])
    engine = _watched(OwnReplay, made)(head["agent"], _spied(agents()[head["agent"]].make(counting()), made))
    await engine.play(head, rows)
    return made


async def _played(engine_of: Callable[[str], tuple[type[Any], dict[str, Any]]], name: str) -> Timeline:
    agent, version, scene = name.split("/")
    engine_type, options = engine_of(version)
    made = Timeline(agent)
    engine = _watched(engine_type, made)(**options)
    made.agent = engine.agent if agent == "acp" else agent
    engine.codec = _spied(engine.codec, made)
    if hasattr(engine, "begin"):
        await engine.begin()
    engine.play(recordings.load(agent, version, scene))
    return made


def _acp(version: str) -> tuple[type[Any], dict[str, Any]]:
    engine = AcpReplay.of(version)
    return AcpReplay, {"agent": engine.agent, "codec": engine.codec}


async def _opencode(name: str) -> Timeline:
    made = Timeline("opencode")
    engine = await _watched(opencode_replay.OpenCodeReplay, made)().begin()
    engine.codec = _spied(engine.codec, made)
    engine.play(opencode_replay.load(name.partition("/")[2]))
    return made


_REPLIES = {"once": "accept", "always": "accept_for_session", "reject": "reject"}


async def _mock(name: str) -> Timeline:
    """The mock's recordings hold both directions of its own protocol, so its lines are its commands."""
    _, *rows = [json.loads(line) for line in (ROOT / f"{name}.jsonl").read_text("utf-8").split("\n") if line]
    made = Timeline("mock")
    codec = _spied(agents()["mock"].make(counting()), made)
    codec.launch(LaunchOptions(binary="", directory=DIRECTORY))
    asks: dict[str, str] = {}
    for row in rows:
        msg = row.get("msg", {})
        if row["dir"] == "exit":
            codec.eof(Exit(code=row["code"], signal=row["signal"]))
        elif row["dir"] == "out":
            for output in codec.receive(json.dumps(msg).encode() if msg else row["text"].encode()):
                data, raw = getattr(output, "data", None), getattr(output, "raw", None)
                id_ = getattr(data, "permission_id", None) or getattr(data, "question_id", None)
                if id_ and raw:
                    asks[raw["id"]] = id_
        elif msg["type"] == "hello":
            codec.start()
        elif msg["type"] == "prompt":
            made.steps.append(Step("prompt", about=msg["run"]))
            codec.send(Prompt(msg["run"], msg["text"], mode=msg.get("mode")))
        elif msg["type"] == "interrupt":
            made.steps.append(Step("abort"))
            codec.send(Interrupt())
        elif msg["type"] == "permission_reply":
            codec.send(PermissionReply(asks[msg["id"]], _REPLIES[msg["decision"]], msg.get("message")))
        elif msg["type"] == "question_reply":
            codec.send(QuestionReply(asks[msg["id"]], msg["answers"]))
    return made


_ENGINES: dict[str, Callable[[str], Awaitable[Timeline]]] = {
    "acp": partial(_played, _acp),
    "amp": partial(_played, lambda _: (AmpReplay, {})),
    "claude": partial(_played, lambda _: (ClaudeReplay, {})),
    "codex": partial(_played, lambda _: (CodexReplay, {})),
    "pi": partial(_played, lambda _: (PiReplay, {})),
    "opencode": _opencode,
    "mock": _mock,
}
