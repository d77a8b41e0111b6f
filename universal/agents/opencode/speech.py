"""Makes the items of OpenCode's messages: text and reasoning, tool calls and their results.

There is one `Thread` for the main session and one for each subagent. Each item is started before it is completed, and completed
exactly once. A part that comes before its message makes a stub of the message.
Source: recordings of 1.18.33; docs/wire.md 2, 4.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from universal.agents import kit
from universal.agents.kit.opencode import ServerContext
from universal.agents.opencode.wire import IGNORED_PARTS, Msg
from universal.codec import Fact
from universal.items import (
    ContentPart,
    FileRefPart,
    ImagePart,
    Item,
    ItemRole,
    ItemStatus,
    Json,
    ReasoningPart,
    TextPart,
    ToolResultPart,
)
from universal.lib.jsonvalue import arr, obj, text
from universal.lib.jsonvalue import text as as_text
from universal.opencode import cost_of, usage_of
from universal.opencode_metadata import NativeResult, result_metadata

# --- states of tools --------------------------------------------------------------------------------------------


def read_result(call_id: str, tool: str, state: Msg) -> kit.Result:
    """Read a tool's state `completed` or `error`."""
    details = obj(state.get("metadata"))
    time = obj(state.get("time"))
    metadata: dict[str, Json] = {}
    if isinstance(time.get("start"), int) and isinstance(time.get("end"), int):
        metadata["duration_ms"] = max(time["end"] - time["start"], 0)
    if state.get("status") == "error":
        if details.get("interrupted") is True:
            metadata["interrupted"] = True
        return kit.Result((ToolResultPart(call_id=call_id, output=text(state.get("error"))),), metadata, failed=True)
    output = text(state.get("output"))
    content: list[ContentPart] = [ToolResultPart(call_id=call_id, output=output)]
    content += _files(tool, obj(state.get("input")), details)
    for attachment in map(obj, arr(state.get("attachments"))):
        if text(attachment.get("mime")).startswith("image/") and text(attachment.get("url")):
            content.append(ImagePart(path=text(attachment.get("url")), mime=text(attachment.get("mime"))))
    if isinstance(details.get("exit"), int):
        metadata |= {"exit_code": details["exit"], "stdout": text(details.get("output")) or output}
    for key in ("todos", "answers"):
        if isinstance(details.get(key), list):
            metadata[key] = details[key]
    metadata |= {"truncated": details.get("truncated") is True, "structured": details}
    metadata |= result_metadata(NativeResult(text(state.get("title")), details))
    return kit.Result(tuple(content), metadata)


def _files(tool: str, arguments: Msg, details: Msg) -> Iterator[ContentPart]:
    change = obj(details.get("filediff"))
    if text(change.get("file")):
        yield FileRefPart(
            path=text(change.get("file")), action="patch", diff=text(change.get("patch")) or text(details.get("diff"))
        )
    elif tool == "write" and text(details.get("filepath")):
        path = text(details.get("filepath"))
        if details.get("exists") is True:
            yield FileRefPart(path=path, action="patch", diff=text(details.get("diff")))
        else:
            yield FileRefPart(path=path, action="write", diff=_new_file_diff(path, text(arguments.get("content"))))
    elif tool == "apply_patch":
        for file in map(obj, arr(details.get("files"))):
            path = text(file.get("filePath")) or text(file.get("relativePath"))
            if path:
                action = "write" if file.get("type") == "add" else "patch"
                yield FileRefPart(path=path, action=action, diff=text(file.get("patch")) or text(file.get("diff")))
    elif tool == "read" and text(arguments.get("filePath")):
        yield FileRefPart(path=text(arguments.get("filePath")), action="read")


def _new_file_diff(path: str, content: str) -> str:
    lines = content.split("\n")
    ended = lines[-1] == ""
    lines = lines[:-1] if ended else lines
    if not lines:
        return ""
    body = "".join(f"+{line}\n" for line in lines)
    return f"--- /dev/null\n+++ {path}\n@@ -0,0 +1,{len(lines)} @@\n{body}" + ("" if ended else "\\ No newline at end of file\n")


# --- items ------------------------------------------------------------------------------------------------------

ABANDONED = "Tool execution aborted"
"""OpenCode's text for a call without a result."""


@dataclass(slots=True)
class _Part(kit.Part):
    final: str | None = None
    """The whole text of an ended part, without white space at its end."""


@dataclass(slots=True)
class _Message:
    item_id: str
    native_id: str
    info: Msg
    parts: dict[str, _Part] = field(default_factory=dict[str, _Part])


@dataclass(slots=True)
class _User:
    texts: list[str] = field(default_factory=list[str])
    raw: Json = None
    is_reported: bool = False


@dataclass(slots=True)
class Thread(kit.Items[ServerContext]):
    """The items of one session. `own_prompts`: ids of our prompts. Other user messages become items of their own."""

    CALL_ROLE: ClassVar[ItemRole] = ItemRole.ASSISTANT

    session_id: str
    own_prompts: set[str] = field(default_factory=set[str])
    calls: dict[str, kit.Call] = field(default_factory=dict[str, kit.Call])
    """Open calls by the id of their part."""
    usage: dict[str, int] = field(default_factory=dict[str, int])
    cost: float = 0.0
    """Cost of the messages that were completed since `take_usage`."""
    error: Json = None
    """The error of the last message."""
    last: str = ""
    """Id of the last completed message."""
    claims: bool = False
    """True if the next user message is our prompt, whose id we could not choose."""
    _open: dict[str, _Message] = field(default_factory=dict[str, _Message])
    _complete_parts: set[str] = field(default_factory=set[str])
    _users: dict[str, _User] = field(default_factory=dict[str, _User])
    _early: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Texts of messages that have not come yet."""
    _ended: set[str] = field(default_factory=set[str])
    """Ids of tool parts that have ended."""

    @property
    def is_speaking(self) -> bool:
        return bool(self._open)

    def call_of(self, call_id: str) -> kit.Call | None:
        return next((call for call in self.calls.values() if call.call_id == call_id), None)

    # --- messages -------------------------------------------------------------------------------------

    def message(self, info: Msg, raw: Msg) -> Iterator[Fact]:
        native_id = as_text(info.get("id"))
        if info.get("role") == "user":
            self._user(native_id, raw)
            return
        if native_id in self._complete_parts:
            self.ctx.ignore("message.updated, completed before")
            return
        if native_id not in self._open:
            yield from self._begin(native_id, info, raw)
        message = self._open[native_id]
        message.info = info
        if obj(info.get("time")).get("completed") is not None:
            yield from self._end(message, raw)

    def _user(self, native_id: str, raw: Msg) -> None:
        if self.claims and native_id not in self._users:
            self.claims = False
            self.own_prompts.add(native_id)
        if native_id in self.own_prompts or native_id in self._users:
            self.ctx.ignore("message.updated of our prompt, or again")
            return
        self._users[native_id] = _User(self._early.pop(native_id, []), raw)

    def has_others(self, messages: Json, last: str) -> bool:
        """Whether these messages have a prompt after `last` of another program: its events do not come here."""
        rows = [obj(obj(message).get("info")) for message in arr(messages)]
        ids = [as_text(row.get("id")) for row in rows]
        later = rows[ids.index(last) :] if last in ids else []
        return any(row.get("role") == "user" and row.get("id") not in (self.own_prompts | self._users.keys()) for row in later)

    def emit_foreign_prompts(self) -> Iterator[Fact]:
        """Facts of user messages that are not our prompts: a subagent's task, or a text of OpenCode. Their parts have come."""
        for native_id, user in self._users.items():
            if user.is_reported:
                continue
            user.is_reported = True
            text = "\n\n".join(text for text in user.texts if text)
            if text:
                yield self.user_fact((TextPart(text=text),), user.raw, native_id=native_id)

    def _begin(self, native_id: str, info: Msg, raw: Msg) -> Iterator[Fact]:
        yield from self.emit_foreign_prompts()
        message = self._open[native_id] = _Message(self.ctx.ids("item"), native_id, info)
        yield self.item_fact(self._item(message, ItemStatus.IN_PROGRESS), raw)

    def _end(self, message: _Message, raw: Json) -> Iterator[Fact]:
        del self._open[message.native_id]
        self._complete_parts.add(message.native_id)
        self.last = message.native_id
        self.error = message.info.get("error")
        for key, value in usage_of(message.info.get("tokens")).items():
            self.usage[key] = self.usage.get(key, 0) + value
        self.cost += cost_of(message.info.get("cost"))
        yield self.item_fact(self._item(message, kit.end_status(failed=self.error is not None)), raw)

    def take_usage(self) -> dict[str, Json] | None:
        usage, cost, self.usage, self.cost = self.usage, self.cost, {}, 0.0
        return {"usage": usage, "cost": cost} if usage else None

    def _item(self, message: _Message, status: ItemStatus) -> Item:
        info = message.info
        metadata: dict[str, Json] = {}
        model = {"provider_id": as_text(info.get("providerID")), "model_id": as_text(info.get("modelID"))}
        if model["model_id"]:
            metadata["model"] = {**model, **({"variant": info["variant"]} if info.get("variant") else {})}
        content: list[ContentPart] = []
        if status is not ItemStatus.IN_PROGRESS:
            usage = usage_of(info.get("tokens"))
            metadata |= {"cost": cost_of(info.get("cost")), **({"usage": usage} if any(usage.values()) else {})}
            if info.get("finish"):
                metadata["finish"] = info["finish"]
            for part in message.parts.values():
                text = part.growing.text if part.final is None else part.final
                content.append(TextPart(text=text) if part.kind == "text" else ReasoningPart(text=text))
        return kit.message_item(message.item_id, message.native_id, status, tuple(content), metadata)

    # --- parts ----------------------------------------------------------------------------------------

    def part(self, part: Msg, raw: Msg) -> Iterator[Fact]:
        kind, native_id = as_text(part.get("type")), as_text(part.get("messageID"))
        if kind == "compaction":
            yield self.ctx.status("compaction", None, {"phase": "started", "auto": part.get("auto") is True}, raw, self.child)
        elif native_id in self.own_prompts:
            self.ctx.ignore("part of our prompt")
        elif native_id in self._users:
            if kind == "text":
                self._users[native_id].texts.append(as_text(part.get("text")))
        elif kind == "tool":
            yield from self._tool(part, raw)
        elif kind in IGNORED_PARTS:
            self.ctx.ignore(f"part/{kind}")
        elif kind not in ("text", "reasoning"):
            yield self.ctx.report_unparsed(f"part/{kind or '?'}", "unknown part of a message", raw)
        elif native_id not in self._open and native_id not in self._complete_parts and "time" not in part:
            self._early.setdefault(native_id, []).append(as_text(part.get("text")))
        else:
            yield from self._text(part, "text" if kind == "text" else "reasoning", raw)

    def _text(self, part: Msg, kind: kit.PartKind, raw: Msg) -> Iterator[Fact]:
        message = yield from self._message_of(part, raw)
        part_id, text = as_text(part.get("id")), as_text(part.get("text"))
        if message is None:
            return
        text_part = message.parts.get(part_id)
        if text_part is None:
            if not text:  # an empty part comes before its first delta
                message.parts[part_id] = _Part(kind, len(message.parts))
                return
            text_part = message.parts[part_id] = _Part(kind, len(message.parts))
        if rest := text_part.add_rest(text):
            yield self._piece_fact(message, text_part, rest, raw, synthetic=True)
        if obj(part.get("time")).get("end") is not None:
            text_part.final = text

    def piece(self, properties: Msg, raw: Msg) -> Iterator[Fact]:
        message = yield from self._message_of(properties, raw)
        piece = as_text(properties.get("delta"))
        if message is None or not piece or properties.get("field") != "text":
            self.ctx.ignore("message.part.delta of no text")
            return
        part_id = as_text(properties.get("partID"))
        part = message.parts.get(part_id)
        if part is None:
            part = message.parts[part_id] = _Part("text", len(message.parts))
        part.growing.add(piece)
        yield self._piece_fact(message, part, piece, raw, synthetic=False)

    def _message_of(self, value: Msg, raw: Msg) -> Generator[Fact, None, _Message | None]:
        """The open message of a part, or a stub for an unknown one. None if it is complete."""
        native_id = as_text(value.get("messageID"))
        if native_id in self._complete_parts:
            self.ctx.ignore("part of a completed message")
            return None
        if native_id not in self._open:
            yield from self._begin(native_id, {}, raw)
        return self._open[native_id]

    # --- tools ----------------------------------------------------------------------------------------

    def _tool(self, part: Msg, raw: Msg) -> Iterator[Fact]:
        part_id, native_id, state = as_text(part.get("id")), as_text(part.get("messageID")), obj(part.get("state"))
        status = as_text(state.get("status"))
        if part_id in self._ended:
            self.ctx.ignore("tool part, ended before")
            return
        if part_id not in self.calls:
            if native_id not in self._open and native_id not in self._complete_parts:
                yield from self._begin(native_id, {}, raw)
            message = self._open.get(native_id)
            call = kit.Call(
                as_text(part.get("callID")) or part_id,
                as_text(part.get("tool")),
                self.ctx.ids("item"),
                message.item_id if message else None,
                native_id=part_id,
            )
            self.calls[part_id] = call
            yield self.call_fact(call, ItemStatus.IN_PROGRESS, raw)
        call = self.calls[part_id]
        call.name = as_text(part.get("tool")) or call.name  # an unknown tool becomes "invalid"
        if status == "pending":
            return
        if status not in ("running", "completed", "error"):
            yield self.ctx.report_unparsed(f"tool/{status or '?'}", "unknown state of a tool", raw)
            return
        if call.arguments is None:
            call.arguments = obj(state.get("input"))
            yield self.call_fact(call, ItemStatus.COMPLETED, raw, title=as_text(state.get("title")) or None)
        if status == "running":
            yield from self._output(call, as_text(obj(state.get("metadata")).get("output")), raw)
            return
        result = read_result(call.call_id, call.name, state)
        metadata = result.metadata if call.answers is None else {**result.metadata, "answers": call.answers}
        yield from self._result(part_id, call, result.content, metadata, raw, failed=result.failed)

    def _output(self, call: kit.Call, output: str, raw: Msg) -> Iterator[Fact]:
        """The output so far of a tool that shows it. A tool that shows only the end of its output is reported at its end."""
        if output.startswith(call.output) and output != call.output:
            yield from self.output_piece(call, output.removeprefix(call.output), raw)

    def _result(
        self, part_id: str, call: kit.Call, content: tuple[ContentPart, ...], metadata: Msg, raw: Json, *, failed: bool
    ) -> Iterator[Fact]:
        del self.calls[part_id]
        self._ended.add(part_id)
        if not call.result_id:
            yield self.result_fact(call, kit.output_part(call), None, raw, ItemStatus.IN_PROGRESS)
        yield self.result_fact(call, content, metadata, raw, kit.end_status(failed=failed))

    # --- ends -----------------------------------------------------------------------------------------

    def close(self, raw: Json) -> Iterator[Fact]:
        """Complete calls without a result, then unfinished messages, because nothing more will come."""
        yield from self.emit_foreign_prompts()
        for part_id, call in list(self.calls.items()):
            if call.arguments is None:
                yield self.call_fact(call, ItemStatus.FAILED, raw, synthetic=True)
            content = kit.output_part(call, ABANDONED)
            for fact in self._result(part_id, call, content, dict(kit.INTERRUPTED), raw, failed=True):
                yield fact._replace(synthetic=True)
        for message in list(self._open.values()):
            message.info = {**message.info, "error": message.info.get("error") or {}}
            for fact in self._end(message, raw):
                yield fact._replace(synthetic=True)

    # --- building -------------------------------------------------------------------------------------

    def _piece_fact(self, message: _Message, part: _Part, piece: str, raw: Msg, *, synthetic: bool) -> Fact:
        return self.delta(message.item_id, message.native_id, piece, part.index, part.kind, raw, synthetic=synthetic)

    def _result_item(self, call: kit.Call, content: tuple[ContentPart, ...], metadata: Msg | None, status: ItemStatus) -> Item:
        return kit.result_item(call, status, content, metadata, native_id=call.native_id, parent_id=call.item_id)
