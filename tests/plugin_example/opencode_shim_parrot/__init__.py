"""The agent `parrot` for opencode-shim: how it is found and started, what it can do, and its codec.

Parrot's protocol, one JSON object per line. To it: {"prompt": TEXT, "model": M}, {"stop": true}. From it:
    {"is": "hello", "models": [...]}    {"is": "text", "text": "..."}    {"is": "done"}    {"is": "error", "message": "..."}
    {"is": "tool", "id": "1", "name": "bash", "input": {...}}            {"is": "result", "id": "1", "output": "...", "exit": 0}
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from universal.agent_spec import AgentAbilities, AgentProgram, AgentSpec, Capabilities
from universal.agents.kit import Context, Speech
from universal.codec import Catalogue, Codec, Command, Fact, IdFactory, Interrupt, Mode, Model, Output, Prompt, Signal, WriteLine
from universal.events import ErrorData, EventType
from universal.items import ToolResultPart
from universal.launch import Exit, LaunchOptions, LaunchSpec
from universal.lib.jsonline import digest, parse
from universal.lib.jsonvalue import arr, obj, text
from universal.turn import Input


class ParrotCodec(Codec):
    """Lines of one parrot in, facts and signals out; commands in, lines out. No IO, no clock: it is called, and answers."""

    name = "parrot"

    def __init__(self, ids: IdFactory) -> None:
        self.catalogue: Catalogue | None = None
        self.native_session_id: str | None = None  # a parrot keeps no conversations
        self._context = Context(self.name, ids)
        self._speech = Speech(self._context)

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        return LaunchSpec((options.binary, "--lines"), options.directory)

    def start(self) -> list[Output]:
        return []  # it says hello by itself

    def send(self, command: Command) -> list[Output]:
        match command:
            case Prompt():
                return [_line({"prompt": command.text, "model": command.model})]
            case Interrupt():
                return [_line({"stop": True})]
            case _:  # it never asks, so there is nothing to reply to
                return []

    def receive(self, line: bytes) -> list[Output]:
        try:
            said = obj(parse(line))
        except ValueError:
            said = {}
        return list(self._on_message(text(said.get("is")), said, line))

    def _on_message(self, what: str, said: dict[str, Any], line: bytes) -> Iterator[Output]:
        match what:
            case "hello":
                models = tuple(Model(m, m.title()) for m in arr(said.get("models")))
                self.catalogue = Catalogue(models=models, default_model=models[0].id)
            case "text":
                if not self._speech.is_speaking:
                    yield from self._speech.begin(said)
                yield from self._speech.say("text", "text", text(said.get("text")), said)
            case "tool":  # tools that are called as OpenCode calls them (bash, read, edit ...) get OpenCode's cards
                call_id, arguments = text(said.get("id")), obj(said.get("input"))
                if not self._speech.is_speaking:
                    yield from self._speech.begin(said)
                yield from self._speech.call_whole(call_id, text(said.get("name")), arguments, "", said)
                yield from self._speech.end(said, metadata={"finish": "tool-calls"})
            case "result":
                if call := self._speech.calls.get(text(said.get("id"))):
                    part = ToolResultPart(call_id=call.call_id, output=text(said.get("output")))
                    failed = said.get("exit") != 0
                    yield from self._speech.result(call, (part,), {"exit_code": said.get("exit")}, said, failed=failed)
            case "done":
                yield from self._speech.end(said, metadata={"finish": "stop"})
                yield Signal(Input.DONE)
            case "error":
                message = text(said.get("message"), "The parrot failed.")
                yield from self._speech.close(said)
                yield Fact(EventType.ERROR, ErrorData(message=message, code="parrot"), raw=said)  # what the person sees
                yield Signal(Input.FAILED, error={"message": message, "code": "parrot"})
            case _:
                yield self._context.report_unparsed(what or "no JSON", "unknown line", said or None, digest(line))

    def eof(self, exit_: Exit) -> list[Output]:
        return list(self._speech.close(None))  # what was open is told as interrupted; the session adds the exit

    def counters(self) -> Mapping[str, int]:
        return self._context.counters


def _line(value: dict[str, Any]) -> WriteLine:
    return WriteLine(json.dumps(value).encode())


PARROT = AgentSpec(
    name="parrot",
    title="Parrot",
    make=ParrotCodec,
    program=AgentProgram(
        binaries=("parrot",),
        version_args=("--version",),
        env_override="SHIM_PARROT_BIN",
        install_hint="Install it with `pip install parrot`.",
    ),
    abilities=AgentAbilities(
        capabilities=Capabilities(deltas=True, interrupt=True),
        modes=(Mode("build", "Parrots.", ""),),
        catalogue=Catalogue(),
    ),
)
