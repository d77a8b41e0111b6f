"""Items for what OpenCode 2 says: a message for each step, its text and reasoning, tool calls and their results.

One `Thread` per session of OpenCode's: ours, and one for each subagent. Source: recordings of July 2026 and of the preview, the
published events of 2.x.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from universal.agents import kit
from universal.agents.kit.opencode import ServerContext
from universal.agents.opencode2.dialects import Msg, slot_of, texts_of
from universal.agents.opencode2.wire import error_of
from universal.codec import Fact
from universal.items import ContentPart, FileRefPart, ImagePart, Json, TextPart, ToolResultPart
from universal.lib.jsonvalue import arr, obj, text, whole
from universal.opencode import cost_of, usage_of

SHELL_STATUS = "Command exited with code "
"""Beginning of the line that OpenCode adds to the output of a command."""


@dataclass(slots=True)
class Thread:
    """One session of OpenCode's. `own_prompts` are ids of prompts that we sent; other inputs are told as a user's messages."""

    ctx: ServerContext
    session_id: str
    child: str | None = None
    own_prompts: set[str] = field(default_factory=set[str])
    claims: bool = False
    """The next input of a user is our prompt, whose id we could not choose."""
    usage: dict[str, int] = field(default_factory=dict[str, int])
    cost: float = 0.0
    """Of the steps since `take_usage`."""
    speech: kit.Speech = field(init=False)
    error: dict[str, Json] = field(default_factory=dict[str, Json])
    """Of the last step, if it failed."""
    _step: str = ""
    """OpenCode's id of the open message."""
    _inbox: dict[str, str] = field(default_factory=dict[str, str])
    """Texts of inputs of others that the model has not got yet."""

    def __post_init__(self) -> None:
        self.speech = kit.Speech(self.ctx, child=self.child)

    # --- inputs ---------------------------------------------------------------------------------------

    def on_enqueued(self, data: Msg) -> None:
        """Handle `session.inbox.enqueued`: an input waits for the model."""
        item, id_ = obj(data.get("item")), text(data.get("inboxID"))
        if item.get("type") not in ("user", "synthetic"):
            self.ctx.ignore("an item of the inbox that is no text")
            return
        if self.claims and item.get("type") == "user":
            self.claims = False
            self.own_prompts.add(id_)
        if id_ not in self.own_prompts:
            self._inbox[id_] = text(obj(item.get("payload")).get("text"))

    def on_delivered(self, data: Msg, raw: Msg) -> Iterator[Fact]:
        """Handle `session.inbox.delivered`: the model gets an input. An input that we did not send is reported."""
        words = self._inbox.pop(text(data.get("inboxID")), "")
        if words:
            yield self.speech.user_fact((TextPart(text=words),), raw, native_id=text(data.get("inboxID")))

    # --- steps ----------------------------------------------------------------------------------------

    @property
    def last(self) -> str:
        return self._step

    def call_of(self, call_id: str) -> kit.Call | None:
        return self.speech.calls.get(call_id)

    @property
    def is_speaking(self) -> bool:
        return self.speech.is_speaking

    def step_started(self, data: Msg, raw: Msg) -> Iterator[Fact]:
        """Handle `session.step.started`. A retry repeats it with the same id."""
        step, model = text(data.get("assistantMessageID")), obj(data.get("model"))
        if self.is_speaking and step == self._step:
            self.ctx.ignore("session.step.started of a retry")
            return
        self._step = step
        reference: dict[str, Json] = {"provider_id": text(model.get("providerID")), "model_id": text(model.get("id"))}
        if variant := text(model.get("variant")):
            reference["variant"] = variant
        yield from self.speech.begin(raw, native_id=step, model=reference if reference["model_id"] else None)

    def step_ended(self, data: Msg, raw: Msg) -> Iterator[Fact]:
        """Handle `session.step.ended` or `session.step.failed`."""
        usage, cost = usage_of(data.get("tokens")), cost_of(data.get("cost"))
        self.usage = kit.add_usage(self.usage, usage)
        self.cost += cost
        self.error = error_of(data["error"]) if "error" in data else {}
        metadata: dict[str, Json] = {"cost": cost}
        if any(usage.values()):
            metadata["usage"] = usage
        if finish := text(data.get("finish")):
            metadata["finish"] = finish
        yield from self.speech.end(raw, interrupted="error" in data, metadata=metadata)

    def piece(self, kind: kit.PartKind, data: Msg, raw: Msg) -> Iterator[Fact]:
        yield from self._open(data, raw)
        yield from self.speech.say(slot_of(kind, data), kind, text(data.get("delta")), raw)

    def whole_part(self, kind: kit.PartKind, data: Msg, raw: Msg) -> Iterator[Fact]:
        if self.is_speaking and text(data.get("assistantMessageID")) == self._step:
            yield from self.speech.whole(slot_of(kind, data), kind, text(data.get("text")), raw)

    def _open(self, data: Msg, raw: Msg) -> Iterator[Fact]:
        """Begin a message if no step was started for that of the event."""
        step = text(data.get("assistantMessageID"))
        if not self.is_speaking or step != self._step:
            self._step = step
            yield from self.speech.begin(raw, native_id=step)

    def take_usage(self) -> dict[str, Json] | None:
        usage, cost, self.usage, self.cost = self.usage, self.cost, {}, 0.0
        return {"usage": usage, "cost": cost} if usage else None

    def take_error(self) -> dict[str, Json]:
        """Return the error of the last step, once."""
        error, self.error = self.error, {}
        return error

    # --- tools ----------------------------------------------------------------------------------------

    def input_started(self, data: Msg, raw: Msg) -> Iterator[Fact]:
        yield from self._open(data, raw)
        yield from self.speech.call(text(data.get("id")), text(data.get("name")), raw)

    def input_piece(self, data: Msg, raw: Msg) -> Iterator[Fact]:
        yield from self.speech.call_delta(text(data.get("id")), text(data.get("delta")), raw)

    def on_tool_called(self, data: Msg, raw: Msg) -> Iterator[Fact]:
        """Handle `session.tool.called`: the arguments are complete."""
        yield from self.speech.call_whole(text(data.get("id")), text(data.get("tool")), obj(data.get("input")), "", raw)

    def progress(self, data: Msg, raw: Msg) -> Iterator[Fact]:
        """Handle `session.tool.progress`: the output so far, if the build sends it. It replaces the previous one."""
        output = texts_of(data.get("content")) or text(obj(data.get("metadata")).get("output"))
        return self.speech.output_so_far(text(data.get("id")), output, "session.tool.progress", raw)

    def success(self, data: Msg, raw: Msg) -> Iterator[Fact]:
        call, details = self.speech.calls.get(text(data.get("id"))), obj(data.get("metadata"))
        if call is None:
            self.ctx.ignore("session.tool.success of no open call")
            return
        output, metadata = _output(call, data.get("content"), details)
        content: list[ContentPart] = [ToolResultPart(call_id=call.call_id, output=output), *self._files(call, details)]
        for part in map(obj, arr(data.get("content"))):
            if part.get("type") == "file" and text(part.get("mime")).startswith("image/"):
                content.append(ImagePart(path=text(part.get("uri")), mime=text(part.get("mime"))))
        metadata |= {"truncated": details.get("truncated") is True, "structured": details}
        if isinstance(details.get("answers"), list):
            metadata["answers"] = details["answers"]
        yield from self.speech.result(call, tuple(content), metadata, raw, failed=False)

    def on_tool_failed(self, data: Msg, raw: Msg) -> Iterator[Fact]:
        call = self.speech.calls.get(text(data.get("id")))
        if call is None:
            self.ctx.ignore("session.tool.failed of no open call")
            return
        if call.arguments is None:
            yield from self.speech.call_whole(call.call_id, "", {}, "", raw)
        error = error_of(data.get("error"))
        metadata: dict[str, Json] = dict(kit.INTERRUPTED) if error["code"] == "aborted" else {}
        output = "\n".join(filter(None, (texts_of(data.get("content")), text(error["message"]))))
        yield from self.speech.result(call, kit.output_part(call, output), metadata, raw, failed=True)

    def _files(self, call: kit.Call, details: Msg) -> Iterator[ContentPart]:
        """Yield the files that a tool has read or changed."""
        for file in map(obj, arr(details.get("files"))):
            if path := text(file.get("file")):
                action = "write" if file.get("status") == "added" else "patch"
                yield FileRefPart(path=self._absolute(path), action=action, diff=text(file.get("patch")))
        path = text((call.arguments or {}).get("path"))
        if call.name == "read" and path:
            yield FileRefPart(path=self._absolute(path), action="read")

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.ctx.directory, path))

    # --- others ---------------------------------------------------------------------------------------

    def retry(self, data: Msg, raw: Msg, delay_ms: int) -> Fact:
        attempt, message = whole(data.get("attempt"), 1), text(obj(data.get("error")).get("message"))
        metadata: dict[str, Json] = {"attempt": attempt, "message": message, "delay_ms": delay_ms}
        return self.ctx.status("retry", message, metadata, raw, self.child)

    def compaction(self, phase: str, data: Msg, raw: Msg) -> Iterator[Fact]:
        """Report `session.compaction.started`, `.ended` or `.failed`."""
        yield self.ctx.status("compaction", None, {"phase": phase, "auto": data.get("reason") == "auto"}, raw, self.child)

    def close(self, raw: Json) -> Iterator[Fact]:
        yield from self.speech.close(raw)


def _output(call: kit.Call, content: Json, details: Msg) -> tuple[str, dict[str, Json]]:
    """Return a result's output and what is known of a command's end."""
    output = texts_of(content)
    if isinstance(details.get("exit"), int):
        head, line, _ = output.rpartition(SHELL_STATUS)
        stdout = head.removesuffix("\n") if line else output
        return stdout or output, {"exit_code": details["exit"], "stdout": stdout}
    if not output and isinstance(details.get("content"), str):  # a file that was read
        output = details["content"]
    return output or call.output, {}
