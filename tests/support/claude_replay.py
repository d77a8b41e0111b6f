"""A recording of Claude Code, played to a new codec as a session would: its lines in, our commands at their times.

Prompts, interrupts and answers are made from the recorded `in` lines, and ids of ours are put in the place of the
recorded ones, so that the answers of the recording are answers to us. One turn machine per session is driven by the
signals.
"""

from __future__ import annotations

import json
import signal as signals
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from tests.support.recordings import Recording, Row
from universal.agents.claude.codec import ClaudeCodec
from universal.agents.claude.wire import MODE_ID, prompt_uuid
from universal.codec import (
    Attachment,
    Exit,
    Fact,
    IdFactory,
    Interrupt,
    LaunchOptions,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    Signal,
    ToolCheck,
    WriteLine,
)
from universal.events import EventType, PermissionData, QuestionData, UnparsedData
from universal.items import Item, ItemKind, ItemRole
from universal.turn import DispatchPrompt, Effect, Ended, Input, Started, TurnMachine


def counting() -> IdFactory:
    """item_1, permission_1, question_1, item_2 ..."""
    numbers = {kind: count(1) for kind in ("item", "permission", "question")}

    def make(kind: Literal["item", "permission", "question"]) -> str:
        return f"{kind}_{next(numbers[kind])}"

    return make


def encode(msg: Any) -> bytes:
    return (msg if isinstance(msg, str) else json.dumps(msg, ensure_ascii=False)).encode()


def option(argv: tuple[str, ...], name: str) -> str | None:
    """The value of `--name value` or `--name=value`."""
    for place, word in enumerate(argv):
        if word == f"--{name}":
            return argv[place + 1]
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return None


@dataclass(slots=True)
class Replay:
    """The codec at work and everything that came out of it."""

    codec: ClaudeCodec = field(default_factory=lambda: ClaudeCodec(counting()))
    outputs: list[Output] = field(default_factory=list)
    machines: dict[str | None, TurnMachine] = field(default_factory=lambda: {None: TurnMachine()})
    effects: list[tuple[str | None, Effect]] = field(default_factory=list)
    idle_items: list[Fact] = field(default_factory=list)
    """Facts about messages and tools that came while no turn of their session ran: nobody would see them."""
    stderr: str = ""
    _prompts: set[str] = field(default_factory=set)
    """Keys of the prompts that were written."""
    _names: dict[str, str] = field(default_factory=dict)
    """Recorded ids -> ours."""
    _wishes: dict[str, str] = field(default_factory=dict)

    # --- what came of it ------------------------------------------------------------------------------

    def facts(self, type_: EventType | None = None, child: str | Literal["any"] | None = "any") -> list[Fact]:
        """Facts, by type and session."""
        found = [out for out in self.outputs if isinstance(out, Fact) and type_ in (None, out.type)]
        return [fact for fact in found if child in ("any", fact.child)]

    def items(self, kind: ItemKind, child: str | Literal["any"] | None = "any") -> list[Item]:
        """Completed items of a kind."""
        facts = self.facts(EventType.ITEM_COMPLETED, child)
        return [fact.data.item for fact in facts if fact.data.item.kind is kind]

    def statuses(self, label: str) -> list[Item]:
        """Completed status items with this label."""
        return [item for item in self.items(ItemKind.STATUS) if item.content[0].label == label]

    def texts(self, role: ItemRole = ItemRole.ASSISTANT, child: str | Literal["any"] | None = None) -> list[str]:
        """Texts of the messages of a session, in order."""
        messages = [item for item in self.items(ItemKind.MESSAGE, child) if item.role is role]
        return ["".join(part.text for part in item.content if part.type == "text") for item in messages]

    def signals(self, child: str | None = None) -> list[Signal]:
        """What the turn machine was told."""
        return [out for out in self.outputs if isinstance(out, Signal) and out.child == child]

    def turns(self, child: str | None = None) -> list[tuple[str, str]]:
        """(origin, reason) of each turn of a session."""
        mine = [effect for key, effect in self.effects if key == child]
        origins = [effect.origin for effect in mine if isinstance(effect, Started)]
        reasons = [effect.reason for effect in mine if isinstance(effect, Ended)]
        assert len(origins) == len(reasons)
        return list(zip(origins, reasons, strict=True))

    def written(self) -> list[Any]:
        """What we wrote to the agent."""
        return [json.loads(out.data) for out in self.outputs if isinstance(out, WriteLine)]

    def unparsed(self) -> list[UnparsedData]:
        """What no rule knew."""
        return [fact.data for fact in self.facts(EventType.UNPARSED)]

    # --- playing --------------------------------------------------------------------------------------

    def play(self, recording: Recording, *, feed: Callable[[Replay, bytes], None] | None = None) -> Replay:
        """The whole recording, to the end of its process."""
        argv = recording.argv
        self.codec.launch(
            LaunchOptions(
                binary="claude",
                directory="/home/user/project",
                native_session_id=option(argv, "session-id") or option(argv, "resume"),
                resume=option(argv, "resume") is not None,
                model=option(argv, "model"),
                variant=option(argv, "effort"),
                mode=MODE_ID.get(option(argv, "permission-mode") or "default"),
            )
        )
        for row in recording.rows:
            self._row(row, feed or Replay.receive)
        return self

    def receive(self, line: bytes) -> None:
        """One line of the agent."""
        self.take(self.codec.receive(line))

    def take(self, outputs: list[Output]) -> None:
        """Outputs of the codec, as the session acts on them."""
        for output in outputs:
            self.outputs.append(output)
            if isinstance(output, Fact):
                if output.type is EventType.SESSION_STARTED and output.child is not None:
                    self.machines[output.child] = TurnMachine()
                self._note_idle(output)
            elif isinstance(output, Signal):
                self.apply(output.child, output.input, output.key)

    def _note_idle(self, fact: Fact) -> None:
        if fact.type not in (EventType.ITEM_STARTED, EventType.ITEM_DELTA, EventType.ITEM_COMPLETED):
            return
        item = getattr(fact.data, "item", None)
        if item is not None and (item.kind is ItemKind.STATUS or item.role is ItemRole.USER):
            return
        if not self.machines[fact.child].busy:
            self.idle_items.append(fact)

    def apply(self, child: str | None, input_: Input, key: str = "") -> None:
        """One input of a session's turn machine."""
        for effect in self.machines[child].apply(input_, key):
            self.effects.append((child, effect))
            if isinstance(effect, DispatchPrompt):
                assert effect.key in self._prompts

    def _row(self, row: Row, feed: Callable[[Replay, bytes], None]) -> None:
        if row.direction == "in" and isinstance(row.msg, dict):
            self._command(row.msg)
        elif row.direction == "out":
            feed(self, encode(self._ours(row.msg)))
        elif row.direction == "err":
            self.stderr += str(row.msg) + "\n"
        elif row.direction == "exit":
            number = signals.Signals[row.msg["signal"]].value if "signal" in row.msg else None
            self.take(self.codec.eof(Exit(code=row.msg.get("code"), signal=number, stderr=self.stderr)))
            for child in list(self.machines):
                self.apply(child, Input.EXIT)

    def _ours(self, msg: Any) -> Any:
        """A line of the recording with our ids in it."""
        text = json.dumps(msg)
        for recorded, own in self._names.items():
            text = text.replace(f'"{recorded}"', f'"{own}"')
        return json.loads(text)

    def _command(self, msg: dict[str, Any]) -> None:
        match msg["type"]:
            case "control_request":
                self._control(msg["request_id"], msg["request"])
            case "user":
                self._prompt(msg)
            case "control_response":
                self._reply(msg["response"]["request_id"], msg["response"]["response"])
            case _:
                pass  # bad_stdin: we send nothing like it

    def _control(self, request_id: str, request: dict[str, Any]) -> None:
        self._names[request_id] = f"recorded_{request_id}"  # unless we ask the same
        match request["subtype"]:
            case "initialize":
                self._asked(request_id, self.codec.start())
            case "interrupt":
                self.apply(None, Input.ABORT)
                self._asked(request_id, self.codec.send(Interrupt()))
            case "set_model":
                self._wishes["model"] = request["model"] or "default"
            case "set_permission_mode":
                self._wishes["mode"] = MODE_ID.get(request["mode"], self._wishes.get("mode", ""))
            case "apply_flag_settings":
                self._wishes["variant"] = request["settings"]["effortLevel"]
            case _:
                pass  # we never ask that

    def _asked(self, request_id: str, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, WriteLine):
                self._names[request_id] = json.loads(output.data)["request_id"]
        self.take(outputs)

    def _prompt(self, msg: dict[str, Any]) -> None:
        key = f"prompt_{len(self._prompts) + 1}"
        content = msg["message"]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        images = [b["source"] for b in blocks if b["type"] == "image"]
        prompt = Prompt(
            key=key,
            text="".join(b["text"] for b in blocks if b["type"] == "text"),
            attachments=[Attachment(mime=source["media_type"], base64=source["data"]) for source in images],
            **self._wishes,
        )
        self._prompts.add(key)
        if "uuid" in msg:
            self._names[msg["uuid"]] = prompt_uuid(key)
        self.apply(None, Input.PROMPT, key)
        outputs = self.codec.send(prompt)
        self.take(outputs)
        for output in outputs:  # the recording has answered our settings already
            line = json.loads(output.data) if isinstance(output, WriteLine) else {}
            if line.get("type") == "control_request":
                answer = {"subtype": "success", "request_id": line["request_id"]}
                self.receive(encode({"type": "control_response", "response": answer}))

    def _checked(self, request_id: str) -> list[str]:
        """The check that this request of Claude became, if it was not answered at once."""
        checks = [out.request for out in self.outputs if isinstance(out, ToolCheck)]
        found = [check.data for check in checks if check.raw and check.raw.get("request_id") == request_id]
        return [data.permission_id for data in found if isinstance(data, PermissionData)]

    def _reply(self, request_id: str, answer: dict[str, Any]) -> None:
        """Our reply to an ask, and that it says what the recorded one said."""
        if "behavior" not in answer:  # of a hook: the call goes on
            self.take([out for id_ in self._checked(request_id) for out in self.codec.proceed(id_)])
            return
        ask = next(f for f in self.facts() if f.raw and f.raw.get("request_id") == request_id)
        allowed = answer["behavior"] == "allow"
        if isinstance(ask.data, QuestionData):
            given = answer.get("updatedInput", {}).get("answers", {"plan": "Yes"}) if allowed else None
            reply = QuestionReply(ask.data.question_id, None if given is None else [[label] for label in given.values()])
        else:
            assert isinstance(ask.data, PermissionData)
            always = "updatedPermissions" in answer
            decision = "reject" if not allowed else "accept_for_session" if always else "accept"
            reply = PermissionReply(ask.data.permission_id, decision, answer.get("message"))
        outputs = self.codec.send(reply)
        self.take(outputs)
        (line,) = [json.loads(out.data) for out in outputs if isinstance(out, WriteLine)]
        expected = {key: value for key, value in answer.items() if key not in ("updatedPermissions", "interrupt")}
        assert line["response"] == {"subtype": "success", "request_id": request_id, "response": expected}
