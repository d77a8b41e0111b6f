"""Plays one scene to a real agent and records its traffic. It uses the codec, turn machine and transports of a session.

A recording is one process: a head, then rows {t, dir, msg}. `dir` is `in` for lines that we wrote, `out` for lines of the agent,
`err` for the end of its stderr, `sig` for signals, `exit`, and `do` for the commands of a session (a prompt, an abort, a reply),
so that a replay need not guess. Our ids are counted, so a replay makes the same ids.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

from shim.dev.record.homes import Place
from shim.dev.record.packs import read_rows, read_text
from shim.dev.record.scenes import Abort, Again, End, Kill, Say, Scene, Step
from shim.dev.record.scrub import without_skill_texts
from shim.host.terminals.host_calls import HostCalls
from shim.lib.errors import AgentError, ShimError
from shim.lib.tasks import wait_at_most
from shim.processes.agent_pipes import AgentProcess
from shim.processes.handle import AgentHandle
from shim.processes.http_agent import HttpAgent
from universal.agent_spec import AgentSpec
from universal.codec import (
    Attachment,
    Codec,
    Fact,
    FilesChanged,
    IdFactory,
    Interrupt,
    InterruptProcess,
    Model,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    SetTimer,
    Signal,
    Stop,
    ToolCheck,
    WriteLine,
)
from universal.events import EventType, ItemData, ItemDeltaData, PermissionData, QuestionData
from universal.host import HostAnswer, HostCall
from universal.items import ItemKind
from universal.launch import Exit, LaunchOptions, LaunchSpec
from universal.setup import NO_SETUP
from universal.turn import DispatchPrompt, Effect, Input, InterruptAgent, KillAgent, TurnEnd, TurnMachine

FORM = 2
"""Format of the file. Format 1 has no `do` rows; it is older than this driver."""
TURN_S = 90.0
"""Seconds that a step waits. Agents retry an overloaded model after up to 10 s, some of them twice."""
ABORT_S = 15.0
"""Seconds for an interrupted agent to stop before it is killed, as in a session."""
CATALOGUE_S = 120.0
"""Seconds for an agent to report its models."""
QUIET_S = 0.8
"""Seconds of silence after which a step is over. Bookkeeping after a turn's end belongs to the recording."""
QUIET_MOST_S = 6.0
BUSY_MOST_S = 1.2
"""The same while a turn goes on. Kimi Code asks for the output of its command four times a second."""
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"
"""A red PNG of 8 x 8 pixels."""


class SceneFailed(ShimError):
    """The scene did not continue as expected. The text says where."""


@dataclass(slots=True)
class Part:
    """One process's recording."""

    head: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def counting_ids() -> IdFactory:
    """item_1, permission_1, question_1, item_2 ..."""
    numbers = {kind: count(1) for kind in ("item", "permission", "question")}

    def make(kind: Literal["item", "permission", "question"]) -> str:
        return f"{kind}_{next(numbers[kind])}"

    return make


class Driver:
    """One scene with one agent. Call `play` once; then `parts` holds its recordings and `unparsed` the unknown payloads."""

    def __init__(
        self, spec: AgentSpec, binary: str, version: str, name: str, scene: Scene, place: Place, *, turn_s: float = TURN_S
    ) -> None:
        self._spec, self._binary, self._version, self._name = spec, binary, version, name
        self._turn_s = turn_s
        self._scene, self._place = scene, place
        self.parts: list[Part] = []
        self.unparsed: list[str] = []
        self.native_session_id: str | None = None
        self._environment: dict[str, str] = {}
        self._variables: dict[str, str] = {}
        self._model: str | None = None
        self._mode = "build"
        self._codec: Codec | None = None
        self._handle: AgentHandle | None = None
        self._machine = TurnMachine()
        self._prompts: dict[str, Prompt] = {}
        self._facts: list[Fact] = []
        self._kinds: set[str] = set()
        self._turns = self._prompt_count = 0
        self._began = self._last_line_s = 0.0
        self._news = asyncio.Event()
        self._exited = asyncio.Event()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._why = self._exit_note = ""
        self._host = HostCalls(str(place.project), (), lambda: self._environment, self._take_host_answer)

    # --- the scene --------------------------------------------------------------------------------------

    async def play(self, variables: dict[str, str], model: str | None = None, mode: str = "build") -> None:
        """Play all steps. `variables`: those besides the place's environment; `model` and `mode` of prompts.

        Raises SceneFailed, and AgentError if the agent cannot be started. The process is ended in any case.
        """
        self._variables, self._environment = variables, self._place.environment(variables)
        self._model, self._mode = model, mode
        try:
            await self._start()
            for step in self._scene.steps:
                await self._step(step)
            await self._wait(lambda: not self._machine.busy, "the end of the turn")
            await self._stop()
            missing = [kind for kind in self._scene.shows if kind not in self._kinds]
            if missing:
                raise SceneFailed(f"The agent showed no {', '.join(missing)}: the scene is not what it is meant to be.")
        finally:
            for timer in self._timers.values():
                timer.cancel()
            await self._host.close()
            if self._handle is not None:
                self._handle.kill()
                await self._handle.stop()

    async def _step(self, step: Step) -> None:
        match step:
            case Say():
                await self._say(step)
            case End():
                await self._wait(lambda: not self._machine.busy, "the end of the turn")
            case Abort():
                self._row("do", {"command": "abort"})
                self._apply(Input.ABORT)
                try:
                    await self._wait(lambda: not self._machine.busy, "the end of the aborted turn", ABORT_S)
                except SceneFailed:
                    self._apply(Input.ABORT_TIMEOUT)
                    raise
                await self._quiet()
            case Kill():
                self._row("sig", "SIGKILL")
                self._require().kill()
                await self._wait(self._exited.is_set, "the exit")
            case Again():
                await self._stop()
                await self._start(resume=True)

    async def _say(self, step: Say) -> None:
        if step.model or step.effort:
            await self._wait(lambda: self._codec is not None and self._codec.catalogue is not None, "its models", CATALOGUE_S)
        model, effort = self._choices(step)
        self._prompt_count += 1  # counted over all processes, because Claude does not answer the same prompt twice
        prompt = Prompt(
            key=f"prompt_{self._prompt_count}",
            text=f"[scene:{step.tag}] {step.text}",
            attachments=tuple(self._attachments(step)),
            model=model,
            variant=effort,
            mode=self._mode,
        )
        self._prompts[prompt.key] = prompt
        turns, fact_count = self._turns, len(self._facts)
        codec = self._codec if step.steer else None
        if codec is not None:
            await self._wait(lambda: codec.may_steer, "a step at which it can be steered")
        self._row("do", {"command": "steer" if step.steer else "prompt", **_plain(asdict(prompt))})
        self._apply(Input.PROMPT, prompt.key)
        if codec is not None:
            self._apply(Input.OFFERED, prompt.key)
            self._act(codec.steer(prompt))
        if step.until == "end":
            await self._wait(lambda: self._turns > turns and not self._machine.busy, "the end of the turn")
        elif step.until != "accepted":
            check = {"delta": _is_delta, "tool": _is_call, "ask": _is_ask}[step.until]
            await self._wait(
                lambda: any(map(check, self._facts[fact_count:])) or (self._turns > turns and not self._machine.busy),
                f"the first {step.until}",
            )
            if not any(map(check, self._facts[fact_count:])):
                raise SceneFailed(f"The turn ended without the first {step.until}.")
        await self._quiet(QUIET_MOST_S if step.until == "end" else BUSY_MOST_S)
        if self._exited.is_set():
            raise SceneFailed(f"The agent ended with the turn: {self._exit_note}")

    def _choices(self, step: Say) -> tuple[str | None, str | None]:
        """Return model and effort of a prompt."""
        catalogue = self._codec.catalogue if self._codec is not None else None
        models: Sequence[Model] = catalogue.models if catalogue is not None else ()
        usual = self._model or (catalogue.default_model if catalogue is not None else None)
        usual_model = next((m for m in models if m.id == usual), next(iter(models), None))
        if step.model:
            provider = usual.partition("/")[0] if usual else ""  # models of other providers are not the scripted model
            other_ids = [m.id for m in models if usual_model is not None and m.id != usual_model.id]
            other_ids = [id_ for id_ in other_ids if "/" not in id_ or id_.partition("/")[0] == provider]
            if usual_model is None or not other_ids:
                raise SceneFailed(f"{self._spec.title} offers one model only.")
            return (usual_model.id if step.model == "usual" else other_ids[0]), None
        if step.effort and usual_model is not None and usual_model.variants:
            return self._model, usual_model.variants[-1]
        return self._model, None

    def _attachments(self, step: Say) -> list[Attachment]:
        attachments: list[Attachment] = []
        if step.image:
            attachments.append(Attachment(mime="image/png", filename="red.png", base64=IMAGE))
        if step.file:
            path = self._place.project / "secret.txt"
            attachments.append(Attachment(mime="text/plain", path=str(path), filename=path.name, text=path.read_text()))
        return attachments

    # --- waiting ----------------------------------------------------------------------------------------

    async def _wait(self, there: Callable[[], bool], name: str, most_s: float | None = None) -> None:
        most_s = self._turn_s if most_s is None else most_s
        try:
            async with asyncio.timeout(most_s):
                while not there():
                    if self._why:
                        raise SceneFailed(self._why)
                    if self._exited.is_set():
                        raise SceneFailed(f"The agent ended while this waited for {name}: {self._exit_note}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise SceneFailed(f"No sign of {name} within {most_s:.0f} s.") from None

    async def _quiet(self, most_s: float = QUIET_MOST_S) -> None:
        end = time.monotonic() + most_s
        while (left_s := min(end, self._last_line_s + QUIET_S) - time.monotonic()) > 0:
            self._news.clear()
            await wait_at_most(self._news.wait(), left_s)

    # --- the process --------------------------------------------------------------------------------------

    def _require(self) -> AgentHandle:
        if self._handle is None:
            raise SceneFailed("The agent is not running.")
        return self._handle

    async def _start(self, *, resume: bool = False) -> None:
        self._codec = codec = self._spec.make(counting_ids())
        options = LaunchOptions(
            binary=self._binary,
            directory=str(self._place.project),
            native_session_id=self.native_session_id if resume else None,
            resume=resume,
            model=self._model,
            mode=self._mode,
            environment=self._environment,
            is_root=hasattr(os, "geteuid") and os.geteuid() == 0,
            version=self._version,
        )
        spec = codec.launch(options)
        kept = ("native_session_id", "resume", "model", "mode", "version")
        about = {name: getattr(options, name) for name in kept}
        self.parts.append(Part({"form": FORM, **self._head(spec), "launch": about}))
        self._machine, self._exited, self._turns, self._facts, self._prompts = TurnMachine(), asyncio.Event(), 0, [], {}
        self._began = self._last_line_s = time.monotonic()
        transport = HttpAgent if self._spec.program.transport == "http" else AgentProcess
        self._handle = await transport.spawn(
            spec, self._environment, on_lines=self._on_lines, on_exit=self._on_exit, name=self._spec.name
        )
        self._act(codec.start())

    def _head(self, spec: LaunchSpec) -> dict[str, Any]:
        environment = {**self._variables, **{name: value for name, value in spec.env.items() if value is not None}}
        return {
            "cmd": list(spec.argv),
            "env": {"HOME": str(self._place.home), **environment},
            "agent": self._spec.name,
            "version": self._version,
            "scene": self._name,
        }

    async def _stop(self) -> None:
        await self._host.close()
        if self._handle is not None:
            await self._handle.stop()
            await self._wait(self._exited.is_set, "the exit")
            self._handle = None

    def _on_lines(self, lines: list[bytes]) -> None:
        for line in lines:
            self._row("out", _message(line))
            self._last_line_s = time.monotonic()
            if self._codec is not None:
                self._act(self._codec.receive(line))

    def _on_exit(self, exit_: Exit) -> None:
        if exit_.stderr.strip():
            self._row("err", exit_.stderr.rstrip("\n"))
        self._exit_note = f"code {exit_.code}, signal {exit_.signal}. {exit_.stderr.strip()[-500:]}"
        ended: dict[str, Any] = {"code": exit_.code}
        self._row("exit", ended if exit_.signal is None else {"signal": signal.Signals(exit_.signal).name})
        if self._codec is not None:
            self._act(self._codec.eof(exit_))
        self._exited.set()
        self._apply(Input.EXIT)

    # --- the session's part --------------------------------------------------------------------------------

    def _act(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            match output:
                case Fact():
                    self._fact(output)
                case ToolCheck(request=request):
                    self._proceed(request)
                case FilesChanged(key=key):  # a recorder formats nothing
                    if self._codec is not None:
                        self._act(self._codec.proceed(key))
                case Signal():
                    if output.child is None:
                        self._apply(output.input, output.key)
                case WriteLine(data=data):
                    self._write(data)
                case InterruptProcess():
                    self._row("sig", "SIGINT")
                    self._require().interrupt()
                case Stop(why=why):
                    self._why = f"The codec wants the process to be stopped: {why}"
                case SetTimer():
                    self._set_timer(output)
                case HostCall():
                    self._host.do(output)
        if self._codec is not None and self._codec.native_session_id is not None:
            self.native_session_id = self._codec.native_session_id
        self._news.set()

    def _set_timer(self, timer: SetTimer) -> None:
        """Set or cancel a timer of the codec."""
        if (old := self._timers.pop(timer.key, None)) is not None:
            old.cancel()
        codec = self._codec
        if timer.after_s is not None and codec is not None:
            loop = asyncio.get_running_loop()
            self._timers[timer.key] = loop.call_later(timer.after_s, lambda: self._act(codec.on_timer(timer.key)))

    def _proceed(self, request: Fact) -> None:
        """Let every checked call run, since a recorded agent has no permission rules."""
        if self._codec is not None and isinstance(request.data, PermissionData):
            self._act(self._codec.proceed(request.data.permission_id))

    def _take_host_answer(self, answer: HostAnswer) -> None:
        """Pass the answer to a file or command call of the agent to its codec."""
        if self._codec is not None:
            self._row("do", {"command": "host", "answer": type(answer).__name__, **asdict(answer)})
            self._act(self._codec.on_host_answer(answer))

    def _write(self, data: bytes) -> None:
        if self._handle is None or not self._handle.alive:
            return
        self._row("in", _message(data))
        try:
            self._handle.write(data)
        except AgentError as error:
            self._why = str(error)

    def _fact(self, fact: Fact) -> None:
        self._facts.append(fact)
        self._kinds |= {kind for kind, shows in KIND_CHECKS.items() if shows(fact)}
        if fact.type is EventType.UNPARSED:
            self.unparsed.append(f"{self._name}: {getattr(fact.data, 'location', '')}: {getattr(fact.data, 'error', '')}")
        elif isinstance(fact.data, PermissionData) and fact.type is EventType.PERMISSION_REQUESTED:
            if self._scene.permission is not None:
                reply = PermissionReply(fact.data.permission_id, self._scene.permission)
                self._later({"command": "permission", **asdict(reply)}, reply)
        elif isinstance(fact.data, QuestionData) and fact.type is EventType.QUESTION_REQUESTED:
            answers = self._scene.answers
            if answers is not None and len(answers) != len(fact.data.questions):
                answers = tuple((next((o.label for o in q.options), "yes"),) for q in fact.data.questions)
            answer = QuestionReply(fact.data.question_id, answers)
            self._later({"command": "question", **asdict(answer)}, answer)

    def _later(self, row: dict[str, Any], reply: PermissionReply | QuestionReply) -> None:
        """Answer as a person does, after everything that came with the question has been read."""

        def answer() -> None:
            if self._codec is not None and not self._exited.is_set():
                self._row("do", _plain(row))
                self._act(self._codec.send(reply))

        asyncio.get_running_loop().call_later(QUIET_S / 4, answer)

    def _apply(self, input_: Input, key: str = "") -> None:
        for effect in self._machine.apply(input_, key):
            self._carry_out(effect)
        self._news.set()

    def _carry_out(self, effect: Effect) -> None:
        codec = self._codec
        match effect:
            case DispatchPrompt(key=key) if codec is not None:
                self._act(codec.send(self._prompts[key]))
            case InterruptAgent() if codec is not None:
                self._act(codec.send(Interrupt()))
            case KillAgent() if self._handle is not None:
                self._handle.kill()
            case TurnEnd():
                self._turns += 1
            case _:
                pass

    def _row(self, direction: str, msg: Any) -> None:
        self.parts[-1].rows.append({"t": round(time.monotonic() - self._began, 3), "dir": direction, "msg": msg})


def _message(line: bytes) -> Any:
    text = line.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as JSON without unset fields."""
    fields = {
        key: value for key, value in row.items() if value is not None and value is not False and value not in ((), NO_SETUP)
    }
    return json.loads(json.dumps(fields)) if row.get("command") != "question" else json.loads(json.dumps(row))


def _is_delta(fact: Fact) -> bool:
    return isinstance(fact.data, ItemDeltaData) and fact.data.part_type == "text"


def _is_call(fact: Fact) -> bool:
    """Return True if a tool call's arguments are complete, so that the tool runs or is about to."""
    if not isinstance(fact.data, ItemData) or fact.data.item.kind is not ItemKind.TOOL_CALL:
        return False
    return fact.type is EventType.ITEM_COMPLETED or any(getattr(part, "arguments", "") for part in fact.data.item.content)


def _is_ask(fact: Fact) -> bool:
    return fact.type in (EventType.PERMISSION_REQUESTED, EventType.QUESTION_REQUESTED)


KIND_CHECKS: Mapping[str, Callable[[Fact], bool]] = {
    "tool": _is_call,
    "ask": lambda fact: fact.type is EventType.PERMISSION_REQUESTED,
    "question": lambda fact: fact.type is EventType.QUESTION_REQUESTED,
    "error": lambda fact: fact.type is EventType.ERROR,
    "reasoning": lambda fact: isinstance(fact.data, ItemDeltaData) and fact.data.part_type == "reasoning",
    "todo": lambda fact: (
        isinstance(fact.data, ItemData) and any(getattr(part, "label", "") == "todo" for part in fact.data.item.content)
    ),
}
"""Kind -> whether a fact is of this kind. A scene can require kinds."""


def text_of(part: Part) -> str:
    """Return the file's text: the head, then one row a line."""
    return "".join(json.dumps(without_skill_texts(row), ensure_ascii=False) + "\n" for row in (part.head, *part.rows))


def recorded_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a recording on disk, or [] if it cannot be read."""
    try:
        return read_rows(path)[1:]
    except (OSError, ValueError):
        return []


def is_own(path: Path) -> bool:
    """Whether this driver wrote a recording on disk, so that it holds the session's commands (`FORM`)."""
    return json.loads(read_text(path).partition("\n")[0]).get("form") == FORM
