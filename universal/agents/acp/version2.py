"""Translates version 2 of the Agent Client Protocol (draft of July 2026) to version 1, where only names and forms differ. Pure.

Source: agentclientprotocol.com/protocol/v2/migration; the schema in @agentclientprotocol/sdk 2.4.0; recordings of
claude-agent-acp 0.101.0 and codex-acp 2.6.0.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from universal.agents.acp.context import Msg
from universal.items import Json
from universal.lib.jsonline import get_text, parse
from universal.lib.jsonvalue import arr, obj

VERSION = 2
TERMINALS = 64
"""Maximum terminals kept; the oldest are dropped. Agents make one for each command."""
SHOWN_CHARS = 1_000_000
"""Maximum characters of a terminal's output in a tool call. The beginning is kept."""


# --- the handshake ------------------------------------------------------------------------------------------


def has_sessions(agent: Msg) -> bool:
    """Return whether the answer to `initialize` says that the agent holds conversations."""
    return isinstance(obj(agent.get("capabilities")).get("session"), dict)


def agent_of(agent: Msg) -> Msg:
    """Return the answer to `initialize` in the form of version 1. Every agent of version 2 can resume."""
    session = obj(obj(agent.get("capabilities")).get("session"))
    prompt, mcp = obj(session.get("prompt")), obj(session.get("mcp"))
    capabilities: Msg = {
        "promptCapabilities": {
            "image": prompt.get("image") is not None,
            "embeddedContext": prompt.get("embeddedContext") is not None,
        },
        "sessionCapabilities": {"resume": {}},
        "mcpCapabilities": {kind: mcp.get(kind) is not None for kind in ("stdio", "http")},
    }
    return {**agent, "agentInfo": obj(agent.get("info")), "agentCapabilities": capabilities}


def batch_of(line: bytes) -> list[bytes]:
    """Split a batch into its messages, one line each.

    A line that is no list of objects is returned with a space before it, so that it is not taken for a batch again.
    """
    try:
        rows = parse(line)
    except (ValueError, RecursionError):
        return [b" " + line]
    messages = [obj(row) for row in arr(rows)]
    return [json.dumps(row).encode() for row in messages] if messages and all(messages) else [b" " + line]


# --- tool calls ---------------------------------------------------------------------------------------------


def tool_update(update: Msg) -> Msg:
    """Return a `tool_call_update` in the form of version 1. A null `content` empties it; other null fields change nothing."""
    fields = {key: value for key, value in update.items() if value is not None}
    if "content" in update:
        fields["content"] = [part for block in arr(update["content"]) for part in content_blocks(obj(block))]
    return fields


def content_blocks(block: Msg) -> list[Msg]:
    """Return the blocks of an item of a call's content. A diff has one a file: {type, path, operation, patch, oldPath?}."""
    if block.get("type") != "diff" or "changes" not in block:
        return [block]
    changes = [obj(change) for change in arr(block.get("changes"))]
    patch = obj(block.get("patch"))
    sections = _sections(get_text(patch, "text", "diff"))
    if len(sections) != len(changes):
        sections = ["".join(sections), *[""] * (len(changes) - 1)]
    return [
        {"type": "diff", **change, "patch": _file_hunks(change, section)}
        for change, section in zip(changes, sections, strict=True)
        if get_text(change, "path")
    ]


_SECTION = re.compile(r"^(?=diff --git )", re.MULTILINE)


def _sections(patch: str) -> list[str]:
    return [section for section in _SECTION.split(patch) if section.strip()]


def _file_hunks(change: Msg, section: str) -> str:
    """Return the hunks of one file under its path, without Git's `a/` and `b/`, or "" if it has none (a move, a binary file)."""
    start = section.find("@@ ") if section.startswith("@@ ") else section.find("\n@@ ") + 1
    if start == 0 and not section.startswith("@@ "):
        return ""
    path, old = get_text(change, "path"), get_text(change, "oldPath")
    before = "/dev/null" if change.get("operation") == "add" else old or path
    after = "/dev/null" if change.get("operation") == "delete" else path
    return f"--- {before}\n+++ {after}\n{section[start:]}"


# --- permissions --------------------------------------------------------------------------------------------


def permission_params(params: Msg) -> Msg:
    """Return the parameters of `session/request_permission` with the subject as `toolCall`. An unknown one gives a title only."""
    subject = obj(params.get("subject"))
    title = get_text(params, "title")
    if subject.get("type") == "tool_call":
        call = tool_update(obj(subject.get("toolCall")))
    elif subject.get("type") == "command":
        call = {"toolCallId": get_text(subject, "toolCallId"), "kind": "execute", "rawInput": {"command": subject.get("command")}}
    else:
        call = {}
    return {**params, "toolCall": {**({"title": title} if title and not get_text(call, "toolCallId") else {}), **call}}


# --- terminals ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Terminal:
    tool: str = ""
    """The tool call that shows it."""
    text: str = ""
    command: str = ""
    exit: Msg | None = None
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))

    def add(self, data: bytes) -> str:
        """Add bytes of output. Returns the part of their text that is shown."""
        piece = self.decoder.decode(data)[: max(SHOWN_CHARS - len(self.text), 0)]
        self.text += piece
        return piece

    def replace(self, data: bytes) -> str:
        """Set the whole output. Returns the added text if it continues the old one, else ""; `text` is replaced either way."""
        before, self.text = self.text, ""
        self.decoder.reset()
        self.add(data)
        return self.text[len(before) :] if self.text.startswith(before) else ""


@dataclass(slots=True)
class Terminals:
    """Terminals that the agent runs itself and only shows. Their output goes to the tool call whose content names them."""

    _terminals: dict[str, _Terminal] = field(default_factory=dict[str, _Terminal])

    def attach(self, update: Msg) -> Msg:
        """Return an update of a tool call with the output so far of the terminal in its content."""
        ids = [get_text(obj(block), "terminalId") for block in arr(update.get("content")) if obj(block).get("type") == "terminal"]
        terminal = next((t for id_ in ids if id_ and not (t := self._of(id_)).tool), None)
        if terminal is None:
            return update
        terminal.tool = get_text(update, "toolCallId")
        meta = {**obj(update.get("_meta")), **({"terminal_output": {"data": terminal.text}} if terminal.text else {})}
        meta |= terminal.exit or {}
        raw_input = obj(update.get("rawInput"))
        if terminal.command and not raw_input.get("command"):
            raw_input = {**raw_input, "command": terminal.command}
        return {**update, "_meta": meta, **({"rawInput": raw_input} if raw_input else {})}

    def on_update(self, update: Msg) -> Iterator[Msg]:
        """Yield `terminal_update` as updates of the tool call that shows it. It is an upsert; `output` is the whole output."""
        terminal = self._of(get_text(update, "terminalId"))
        terminal.command = get_text(update, "command") or terminal.command
        output = obj(update.get("output"))
        piece = terminal.replace(_bytes(output.get("data"))) if output else ""
        status = obj(update.get("exitStatus"))
        if status:
            terminal.exit = {"terminal_exit": {"exit_code": status.get("exitCode"), "signal": status.get("signal")}}
        meta: Msg = {**({"terminal_output": {"data": piece}} if piece else {}), **((terminal.exit or {}) if status else {})}
        if terminal.tool and (meta or output):
            yield {"toolCallId": terminal.tool, "_meta": meta}

    def on_chunk(self, update: Msg) -> Iterator[Msg]:
        """Yield `terminal_output_chunk` as an update of the tool call that shows it."""
        terminal = self._of(get_text(update, "terminalId"))
        piece = terminal.add(_bytes(update.get("data")))
        if piece and terminal.tool:
            yield {"toolCallId": terminal.tool, "_meta": {"terminal_output": {"data": piece}}}

    def text_of(self, tool: str) -> str | None:
        """Return what the terminal of a tool call shows now, or None if it has no terminal."""
        return next((terminal.text for terminal in reversed(self._terminals.values()) if terminal.tool == tool), None)

    def _of(self, id_: str) -> _Terminal:
        terminal = self._terminals.get(id_)
        if terminal is None:
            terminal = self._terminals[id_] = _Terminal()
            while len(self._terminals) > TERMINALS:
                del self._terminals[next(iter(self._terminals))]
        return terminal


def _bytes(data: Json) -> bytes:
    """Return the bytes of a base64 text, or b"" for anything else."""
    try:
        return base64.b64decode(data, validate=False) if isinstance(data, str) else b""
    except (ValueError, binascii.Error):
        return b""
