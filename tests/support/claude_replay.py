"""A recording of Claude Code that was made before recordings held our commands.

Prompts, interrupts and answers are made from the recorded `in` lines, and ids of ours are put in the place of the
recorded ones, so that the answers of the recording are answers to us.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.recordings import Recording, Row
from tests.support.replay import DIRECTORY, Replay, codec_of, encode, option
from universal.agents.claude.wire import MODE_ID, prompt_uuid
from universal.codec import Attachment, LaunchOptions, Output, PermissionReply, Prompt, QuestionReply, ToolCheck, WriteLine
from universal.events import PermissionData, QuestionData
from universal.turn import Input


@dataclass
class ClaudeReplay(Replay):
    """The codec of Claude Code at work."""

    agent: str = "claude"
    codec: Any = field(default_factory=lambda: codec_of("claude"))
    _names: dict[str, str] = field(default_factory=dict)
    """Recorded ids -> ours."""
    _wishes: dict[str, str] = field(default_factory=dict)
    _interrupts: list[str] = field(default_factory=list)
    """Recorded ids of interrupts that we have not sent."""

    def launch(self, recording: Recording) -> None:
        argv = recording.argv
        self.codec.launch(
            LaunchOptions(
                binary="claude",
                directory=DIRECTORY,
                native_session_id=option(argv, "session-id") or option(argv, "resume"),
                resume=option(argv, "resume") is not None,
                model=option(argv, "model"),
                variant=option(argv, "effort"),
                mode=MODE_ID.get(option(argv, "permission-mode") or "default"),
            )
        )

    def with_our_ids(self, msg: Any) -> Any:
        text = json.dumps(msg)
        for recorded, own in self._names.items():
            text = text.replace(f'"{recorded}"', f'"{own}"')
        return json.loads(text)

    def command(self, row: Row) -> None:
        msg = row.msg
        if not isinstance(msg, dict):
            return
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
                self._take_request(request_id, self.codec.start())
            case "interrupt":
                self._interrupts.append(request_id)
                self.apply(None, Input.ABORT)
            case "set_model":
                self._wishes["model"] = request["model"] or "default"
            case "set_permission_mode":
                self._wishes["mode"] = MODE_ID.get(request["mode"], self._wishes.get("mode", ""))
            case "apply_flag_settings":
                self._wishes["variant"] = request["settings"]["effortLevel"]
            case _:
                pass  # we never ask that

    def _take_request(self, request_id: str, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, WriteLine):
                self._names[request_id] = json.loads(output.data)["request_id"]
        self.take(outputs)

    def written_line(self, msg: dict[str, Any]) -> None:
        if msg.get("type") == "control_request" and msg["request"]["subtype"] == "interrupt" and self._interrupts:
            self._names[self._interrupts.pop(0)] = msg["request_id"]

    def _prompt(self, msg: dict[str, Any]) -> None:
        content = msg["message"]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        images = [b["source"] for b in blocks if b["type"] == "image"]
        prompt = Prompt(
            key=f"prompt_{len(self.prompts_by_key) + 1}",
            text="".join(b["text"] for b in blocks if b["type"] == "text"),
            attachments=[Attachment(mime=source["media_type"], base64=source["data"]) for source in images],
            **self._wishes,
        )
        if "uuid" in msg:
            self._names[msg["uuid"]] = prompt_uuid(prompt.key)
        self.give(prompt)
        outputs = self.codec.send(prompt)
        self.take(outputs)
        for output in outputs:  # the recording has answered our settings already
            line = json.loads(output.data) if isinstance(output, WriteLine) else {}
            if line.get("type") == "control_request":
                answer = {"subtype": "success", "request_id": line["request_id"]}
                self.receive(encode({"type": "control_response", "response": answer}))

    def dispatch(self, prompt: Prompt) -> None:
        """Claude was given each prompt at once, and queued it itself."""

    def check(self, check: ToolCheck) -> None:
        """The recording has the answer."""

    def _checks_of(self, request_id: str) -> list[str]:
        """The check that this request of Claude became, if it was not answered at once."""
        checks = [out.request for out in self.outputs if isinstance(out, ToolCheck)]
        found = [check.data for check in checks if check.raw and check.raw.get("request_id") == request_id]
        return [data.permission_id for data in found if isinstance(data, PermissionData)]

    def _reply(self, request_id: str, answer: dict[str, Any]) -> None:
        """Our reply to an ask, and that it says what the recorded one said."""
        if "behavior" not in answer:  # of a hook: the call goes on
            self.take([out for id_ in self._checks_of(request_id) for out in self.codec.proceed(id_)])
            return
        ask = next(f for f in self.facts() if f.raw and f.raw.get("request_id") == request_id)
        allowed = answer["behavior"] == "allow"
        if isinstance(ask.data, QuestionData):
            answers = answer.get("updatedInput", {}).get("answers", {"plan": "Yes"}) if allowed else None
            reply = QuestionReply(ask.data.question_id, None if answers is None else [[label] for label in answers.values()])
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
