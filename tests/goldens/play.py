"""A recording played to the whole server, and what its clients see on all faces.

Everything between the codec and the client is the product's: application, sessions, journal, event streams, routes. A codec
that repeats a `Timeline` stands in the place of the real one, so that no process and no chance takes part. Prompts, replies
and aborts go in by HTTP. Then a second server opens the same journal, and its answers are kept too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import re
import secrets
import shutil
import tempfile
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog

from shim.lib.clock import ManualClock
from shim.lib.settings import Settings
from shim.main.app import build_app
from shim.processes.inprocess import Died, Stdio
from shim.store.base import Store
from shim.store.memory import MemoryStore
from tests.goldens.timeline import Step, Timeline
from tests.goldens.virtual import Connection, VirtualLoop, VirtualServer
from tests.support.specs import change
from universal.agent_spec import AgentSpec
from universal.agents.acp.spec import custom_spec
from universal.codec import (
    Codec,
    Command,
    Fact,
    IdFactory,
    Interrupt,
    InterruptProcess,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    Signal,
    Stop,
    ToolCheck,
)
from universal.launch import Exit, LaunchOptions, LaunchSpec
from universal.registry import agents

PLACE = "/golden"
"""Stands in goldens for the scratch folder of a run."""
DIALECTS = ("v2_0", "preview")
KEPT_OUTPUTS = (Fact, Signal, ToolCheck, Stop, InterruptProcess)
"""Lines for the agent and calls to the host are left out: nobody is there to take them."""
REPLIES = {"accept": "once", "accept_for_session": "always", "reject": "reject"}
LAST_MESSAGES = "3"
REPEATED_CHARS = 80
START_MS = 1_795_293_784_083
STEP_MS = 1000
"""Milliseconds from one act or line to the next. Within one the clock stands still, however often it is read."""
ID = re.compile(r"(?<![A-Za-z0-9])(?:([a-z]{2,4})_[0-9a-f]{12}(?:[0-9A-Za-z]{14})?|(err)_[0-9a-f]{8})(?![A-Za-z0-9])")
NUMBERLESS = ("evt", "err")


# --- the agent ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Script:
    """The steps of a timeline as they are due, shared by the driver, the codec and the program."""

    timeline: Timeline
    due: deque[tuple[Output, ...]] = field(default_factory=deque)
    """Outputs that the codec gives for the next lines."""
    prompts: deque[Step] = field(default_factory=deque)
    interrupts: deque[Step] = field(default_factory=deque)
    replies: dict[tuple[str, str], Step] = field(default_factory=dict)
    """(kind, id of a request) -> what the codec answers to its reply."""
    keys: dict[str, str] = field(default_factory=dict)
    """Keys of prompts in the timeline -> the server's."""
    done: set[int] = field(default_factory=set)
    """Steps that the server has taken by itself, by identity."""
    ticks: asyncio.Queue[bytes | Exit] = field(default_factory=asyncio.Queue)
    last: Step | None = None

    def __post_init__(self) -> None:
        for step in self.timeline.steps:
            match step.about:
                case Prompt():
                    self.prompts.append(step)
                case Interrupt():
                    self.interrupts.append(step)
                case PermissionReply(permission_id=id_):
                    self.replies["permission", id_] = step
                case QuestionReply(question_id=id_):
                    self.replies["question", id_] = step
                case _ if step.kind == "proceed":
                    self.replies["proceed", step.about] = step

    def take(self, step: Step | None) -> list[Output]:
        """The outputs of a step, once."""
        if step is None or id(step) in self.done:
            return []
        self.done.add(id(step))
        self.last = step
        return self.with_our_keys(step.outputs)

    def with_our_keys(self, outputs: Sequence[Output]) -> list[Output]:
        """Outputs with the server's keys of prompts."""
        kept = [output for output in outputs if isinstance(output, KEPT_OUTPUTS)]
        return [replace(o, key=self.keys.get(o.key, o.key)) if isinstance(o, Signal) else o for o in kept]

    async def program(self, stdio: Stdio) -> int:
        """The agent's process: a line for each step, until its recorded end."""

        async def drain() -> None:
            while await stdio.read() is not None:
                pass

        reading = asyncio.create_task(drain())
        getting: asyncio.Task[bytes | Exit] | None = None
        try:
            while True:
                getting = asyncio.create_task(self.ticks.get())
                await asyncio.wait({getting, reading}, return_when=asyncio.FIRST_COMPLETED)
                if not getting.done():  # its input has ended
                    return 0
                tick = getting.result()
                if isinstance(tick, bytes):
                    await stdio.write(tick)
                elif tick.signal is not None:
                    raise Died(tick.signal)
                else:
                    return tick.code or 0
        finally:  # a program that was killed takes no tick of the next one
            ending = [task for task in (reading, getting) if task is not None]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)


class ScriptCodec(Codec):
    """Answers what the recorded codec answered."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.name = script.timeline.agent
        self.catalogue = script.timeline.catalogue or _spec(script.timeline.agent).abilities.catalogue

    @property
    def native_session_id(self) -> str | None:
        return self._script.last.native if self._script.last is not None else None

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        return LaunchSpec(argv=("recording",), cwd=options.directory)

    def start(self) -> list[Output]:
        return []

    def send(self, command: Command) -> list[Output]:
        script = self._script
        match command:
            case Prompt(key=key):
                step = script.prompts.popleft() if script.prompts else None
                if step is not None:
                    script.keys[step.about.key] = key
            case Interrupt():
                step = script.interrupts.popleft() if script.interrupts else None
            case PermissionReply(permission_id=id_):
                step = script.replies.get(("permission", id_)) or script.replies.get(("proceed", id_))
            case QuestionReply(question_id=id_):
                step = script.replies.get(("question", id_))
        return script.take(step)

    def proceed(self, permission_id: str) -> list[Output]:
        replies = self._script.replies
        return self._script.take(replies.get(("proceed", permission_id)) or replies.get(("permission", permission_id)))

    def receive(self, line: bytes) -> list[Output]:
        script = self._script
        return script.with_our_keys(script.due.popleft()) if script.due else []

    def eof(self, exit_: Exit) -> list[Output]:
        steps = [step for step in self._script.timeline.steps if step.kind == "eof"]
        return self._script.take(steps[-1] if steps else None)

    def counters(self) -> dict[str, int]:
        return {}


class ModedScriptCodec(ScriptCodec):
    """For agents whose codec knows the mode in force."""

    @property
    def mode(self) -> str:
        return (self._script.last.mode if self._script.last is not None else None) or "build"


def _spec(name: str) -> AgentSpec:
    return agents().get(name) or custom_spec(name, ["own"], "Own", {})


# --- the server -----------------------------------------------------------------------------------------------


@contextmanager
def repeatable() -> Iterator[None]:
    """Random bytes that are the same each time, no programs of this machine, no log."""
    source = random.Random(1)

    def token_bytes(size: int | None = None) -> bytes:
        return source.randbytes(size or 32)

    logged = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

    try:
        with patch.object(secrets, "token_bytes", token_bytes), patch.dict(os.environ, {"PATH": "/nonexistent"}):
            yield
    finally:
        structlog.configure(**logged)


@dataclass(slots=True)
class Scratch:
    """The folders of a run."""

    root: Path

    @property
    def project(self) -> Path:
        return self.root / "project"

    def make(self) -> None:
        """The folders that the server wants."""
        for folder in (self.project, self.root / "home"):
            folder.mkdir()


def virtual_server(loop: VirtualLoop, scratch: Scratch, store: Store, script: Script, clock: ManualClock) -> VirtualServer:
    """The application with this recording's agent alone, not started yet."""
    name = script.timeline.agent
    moded = any(step.mode is not None for step in script.timeline.steps)
    codec = ModedScriptCodec if moded else ScriptCodec

    def make(ids: IdFactory) -> Any:
        return codec(script)

    spec = change(_spec(name), make=make, binaries=(), transport="stdio")
    settings = Settings(directory=scratch.project, data_dir=scratch.root / "data", default_agent=name, outlive=False)
    environ = {"PATH": "/nonexistent", "HOME": str(scratch.root / "home")}

    def app() -> Any:
        return build_app(settings, store=store, environ=environ, clock=clock, specs={name: spec}, programs={name: script.program})

    return VirtualServer(app, loop)


class _Neutral:
    """Text without what differs from run to run and may differ from version to version: folders, ids.

    An id becomes its kind and a number in the order of appearance: which ids are equal stays, how they were drawn does not.
    Ids of single events become the kind alone.
    """

    def __init__(self, root: str, *, ids_stay: bool) -> None:
        self._root = root
        self._ids_stay = ids_stay
        self._numbers: dict[str, dict[str, int]] = defaultdict(dict)

    def __call__(self, text: str) -> str:
        return ID.sub(self._name, text.replace(self._root, PLACE).replace(self._root[1:], PLACE[1:]))

    def _name(self, found: re.Match[str]) -> str:
        kind, id_ = found[1] or found[2], found[0]
        if kind in NUMBERLESS:
            return f"{kind}_"
        if self._ids_stay:
            return id_
        numbers = self._numbers[kind]
        return f"{kind}_{numbers.setdefault(id_, len(numbers) + 1)}"


@dataclass(slots=True)
class Golden:
    """What clients saw: events by stream, and answers by what was asked."""

    root: str
    ids_stay: bool = False
    streams: dict[str, list[Any]] = field(default_factory=dict)
    answers: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))

    def lines(self) -> list[str]:
        """Canonical JSON lines `[place, value]`; a large value that stood before is `[place, null, number of its line]`."""
        rows = [(stream, event) for stream, events in self.streams.items() for event in events]
        rows += [(asked, value) for asked, values in self.answers.items() for value in values]
        seen: dict[str, int] = {}
        lines: list[str] = []
        neutral = _Neutral(self.root, ids_stay=self.ids_stay)
        for number, (asked, value) in enumerate(rows):
            place = neutral(asked)
            text = neutral(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
            before = seen.setdefault(text, number)
            value_text = text if before == number or len(text) < REPEATED_CHARS else f"null,{before}"
            lines.append(f"[{json.dumps(place)},{value_text}]")
        return lines


def play(timeline: Timeline) -> Golden:
    """Play it in a new server; then ask a second server that opens the same journal."""
    scratch = Scratch(Path(tempfile.mkdtemp(prefix="goldens-")))
    clock, store = ManualClock(START_MS, 0), MemoryStore()
    try:
        scratch.make()
        with repeatable(), virtual_loop() as loop:
            golden = play_live(loop, scratch, store, timeline, clock)
            golden.answers |= restart_answers(loop, scratch, store, timeline, clock)
        return golden
    finally:
        shutil.rmtree(scratch.root)


def play_live(loop: VirtualLoop, scratch: Scratch, store: Store, timeline: Timeline, clock: ManualClock) -> Golden:
    """What clients see while the recording is played."""
    golden = Golden(str(scratch.root))
    script = Script(timeline)
    with virtual_server(loop, scratch, store, script, clock) as server:
        _Driver(server, script, golden, clock).run()
    return golden


@contextmanager
def virtual_loop() -> Iterator[VirtualLoop]:
    """The loop of a run, closed at its end."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def restart_answers(
    loop: VirtualLoop, scratch: Scratch, store: Store, timeline: Timeline, clock: ManualClock
) -> dict[str, list[Any]]:
    """The answers of a server that starts on a journal."""
    with virtual_server(loop, scratch, store, Script(Timeline(timeline.agent, catalogue=timeline.catalogue)), clock) as server:
        return {f"after a restart: {asked}": [value] for asked, value in answers(server, ("v2_0",))}


# --- playing --------------------------------------------------------------------------------------------------


class _Driver:
    """A person in front of the server: does what was done in the recording, when it was done."""

    def __init__(self, server: VirtualServer, script: Script, golden: Golden, clock: ManualClock) -> None:
        self._server = server
        self._clock = clock
        self._script = script
        self._golden = golden
        self._session = ""
        self._sent: dict[str, Connection] = {}
        self._prompts = {s.about.key: s.about for s in script.timeline.steps if isinstance(s.about, Prompt)}

    def run(self) -> None:
        streams = {"opencode1 /event": self._server.open("GET", "/event")}
        streams |= {f"opencode2 {d} /api/event": self._server.open("GET", "/api/event", dialect=d) for d in DIALECTS}
        self._clock.value_ms += STEP_MS
        self._session = self._server.request("POST", "/session", {}).body["id"]
        streams["v1 events"] = self._server.open("GET", f"/v1/sessions/{self._session}/events/sse")
        steps = self._script.timeline.steps
        first = next((number for number, step in enumerate(steps) if step.kind == "prompt"), None)
        if first is None:
            self._prompt(Prompt("", "hello"))
        else:  # the server starts its agent with the first prompt: what was said before comes after it
            steps = [steps[first], *steps[:first], *steps[first + 1 :]]
        for step in steps:
            if step.kind == "prompt":
                self._prompt(self._prompts.get(step.about) or Prompt(step.about, step.about))
            else:
                self._step(step)
        for name, stream in streams.items():
            self._golden.streams[name] = stream.events()
        for asked, connection in self._sent.items():
            self._keep(f"act: {asked}", connection.response())
        for asked, value in answers(self._server):
            self._golden.answers[f"at the end: {asked}"] = [value]

    def _step(self, step: Step) -> None:
        if id(step) in self._script.done:
            return
        match step.kind, step.about:
            case "receive", _:
                self._deliver(step)
            case "abort", _:
                self._act("POST", f"/session/{self._session}/abort", None)
            case "send", PermissionReply() as reply:
                self._record_requests()
                body = {"reply": REPLIES[reply.decision], **({"message": reply.message} if reply.message else {})}
                self._act("POST", f"/permission/{reply.permission_id}/reply", body)
            case "send", QuestionReply() as reply:
                self._record_requests()
                if reply.answers is None:
                    self._act("POST", f"/question/{reply.question_id}/reject", None)
                else:
                    self._act("POST", f"/question/{reply.question_id}/reply", {"answers": [list(a) for a in reply.answers]})
            case "eof", Exit() as exit_:
                self._clock.value_ms += STEP_MS
                self._script.ticks.put_nowait(exit_)
                self._server.loop.settle()
            case _:
                pass
        answered_later = step.kind in ("abort", "eof") or isinstance(step.about, (Prompt, Interrupt))
        if id(step) not in self._script.done and not answered_later:  # the server did not pass it on
            self._deliver(step)

    def _deliver(self, step: Step) -> None:
        """The codec gives these outputs for the agent's next line."""
        self._script.done.add(id(step))
        self._script.last = step
        if step.outputs:
            self._clock.value_ms += STEP_MS
            self._script.due.append(step.outputs)
            self._script.ticks.put_nowait(b"{}")
            self._server.loop.settle()

    def _prompt(self, prompt: Prompt) -> None:
        parts: list[dict[str, Any]] = [{"type": "text", "text": prompt.text}]
        for file in prompt.attachments:
            if file.base64 is not None:
                parts.append({"type": "file", "mime": file.mime, "url": f"data:{file.mime};base64,{file.base64}"})
        self._act("POST", f"/session/{self._session}/prompt_async", {"parts": parts})

    def _act(self, method: str, path: str, body: Any) -> None:
        self._clock.value_ms += STEP_MS
        self._sent[f"{len(self._sent)} {method} {path}"] = self._server.open(method, path, body)

    def _record_requests(self) -> None:
        """What waits for an answer, on all faces."""
        for path in ("/permission", "/question", "/session/status"):
            self._keep(f"while asked: opencode1 {path}", self._server.get(path))
        for dialect in DIALECTS:
            for path in (
                "/api/permission/request",
                "/api/form",
                "/api/session/active",
                f"/api/session/{self._session}/permission",
            ):
                self._keep(f"while asked: opencode2 {dialect} {path}", self._server.get(path, dialect=dialect))

    def _keep(self, asked: str, response: Any) -> None:
        self._golden.answers[asked].append({"status": response.status, "body": response.body})


def answers(server: VirtualServer, dialects: Sequence[str] = DIALECTS) -> Iterator[tuple[str, Any]]:
    """What all faces answer about all sessions. In: the `dialects` of OpenCode 2 to ask in."""
    for path in ("/session", "/session/status", "/permission", "/question"):
        yield _answer(server, "opencode1", path)
    sessions = sorted(info["id"] for info in server.get("/session").body)
    for session in sessions:
        base = f"/session/{session}"
        for path in ("", "/message", "/todo", "/diff", "/children", "/export"):
            yield _answer(server, "opencode1", base + path)
        yield _answer(server, "opencode1", f"{base}/message", limit=LAST_MESSAGES)
        messages = server.get(f"{base}/message").body or []
        if messages:
            yield _answer(server, "opencode1", f"{base}/message/{messages[-1]['info']['id']}")
    for dialect in dialects:
        for path in ("/api/session", "/api/session/active", "/api/permission/request", "/api/permission/saved", "/api/form"):
            yield _answer(server, f"opencode2 {dialect}", path, dialect=dialect)
        for session in sessions:
            base = f"/api/session/{session}"
            for path in ("", "/message", "/context", "/diff", "/inbox", "/form", "/permission"):
                yield _answer(server, f"opencode2 {dialect}", base + path, dialect=dialect)
            yield _answer(server, f"opencode2 {dialect}", f"/api/experimental/session/{session}/export", dialect=dialect)
            messages = (server.get(f"{base}/message", dialect=dialect).body or {}).get("data") or []
            if messages:
                yield _answer(server, f"opencode2 {dialect}", f"{base}/message/{messages[-1]['id']}", dialect=dialect)
            if dialect == "preview":
                yield _answer(server, "opencode2 preview", f"{base}/history", dialect=dialect)
                yield _answer(server, "opencode2 preview", f"{base}/question", dialect=dialect)
    yield _answer(server, "v1", "/v1/sessions")
    for session in sessions:
        yield _answer(server, "v1", f"/v1/sessions/{session}/events", limit="100000")


def _answer(server: VirtualServer, face: str, path: str, **query: str) -> tuple[str, Any]:
    response = server.get(path, **query)
    more = "".join(f" {name}={value}" for name, value in query.items() if name != "dialect")
    return f"{face} {path}{more}", {"status": response.status, "body": response.body}
