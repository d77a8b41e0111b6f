"""Files and terminals that an ACP agent asks of its client: `fs/*` and `terminal/*`.

This module owns the terminals: which exist, what output the agent gets, who waits for their end, and which tool call shows
which terminal. The work itself is done by the runtime (`universal.host`).
The output of a terminal in a tool call is reported as if the agent had sent it: as `_meta.terminal_output` and `terminal_exit` of
an update, as other ACP agents do.
Source: agentclientprotocol.com, "File System" and "Terminals"; runs of Gemini CLI 0.61.0 and Qwen Code 0.24.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from universal.agents.acp.tools import Call, shell_line
from universal.agents.acp.wire import Msg
from universal.codec import Fact, IdFactory, Output, PermissionReply, ToolCheck, WriteLine
from universal.events import EventType, PermissionData
from universal.host import (
    CommandEnded,
    CommandOutput,
    HostAnswer,
    HostCall,
    HostDone,
    ReadText,
    RunCommand,
    StopCommand,
    WriteText,
)
from universal.items import Json
from universal.lib.jsonline import get_int, get_text
from universal.lib.jsonrpc import INVALID_PARAMS, Id, JsonRpc, Request
from universal.lib.jsonvalue import arr, obj
from universal.permissions import Decision

TERMINALS = 16
"""Maximum commands that run at a time, and terminals that are kept when they were released. Agents use one or two."""
ENDED_TERMINALS = 32
"""Maximum terminals whose command has ended and that the agent has not released. The oldest are forgotten."""
KEPT_BYTES = 1024 * 1024
"""Bytes of a terminal's output that are kept for the agent if it names no limit. The end is kept."""
KEPT_MOST_BYTES = 4 * KEPT_BYTES
"""Maximum for a limit that the agent names."""
SHOWN_CHARS = 1_000_000
"""Maximum characters of a terminal's output in a tool call. The beginning is kept, as for a person's commands."""
CUT = "\n(The output goes on; the rest is not shown.)\n"
CODES: Mapping[str, int] = {"not_found": -32002, "refused": INVALID_PARAMS, "failed": -32603}
"""`universal.host.Trouble` -> code of the error response."""


@dataclass(slots=True)
class _Terminal:
    request_id: Id
    command: str
    limit: int
    output: bytearray = field(default_factory=bytearray)
    cut: bool = False
    shown_text: str = ""
    started: bool = False
    released: bool = False
    ended: CommandEnded | None = None
    waiting: list[Id] = field(default_factory=list[Id])
    tool: str = ""
    """The tool call that shows it."""

    def add(self, data: str) -> str:
        """Add output. Returns the part of it that is to be shown."""
        self.output += data.encode("utf-8", "replace")
        if len(self.output) > 2 * self.limit:
            self._trim()
        room = SHOWN_CHARS - len(self.shown_text)
        if room < 0:  # CUT has already been added
            return ""
        fits = data[:room]
        fits += CUT if len(fits) < len(data) else ""
        self.shown_text += fits
        return fits

    def _trim(self) -> None:
        if len(self.output) > self.limit:
            self.cut = True
            del self.output[: len(self.output) - self.limit]

    def output_result(self) -> Msg:
        """Return the result of `terminal/output`: the end of the output, cut between characters."""
        self._trim()
        result: Msg = {"output": self.output.decode("utf-8", "ignore"), "truncated": self.cut}
        return {**result, "exitStatus": _status(self.ended)} if self.ended is not None else result


def _status(ended: CommandEnded) -> Msg:
    return {"exitCode": ended.code, "signal": ended.signal}


def _meta(ended: CommandEnded) -> Msg:
    return {"terminal_exit": {"exit_code": ended.code, "signal": ended.signal}}


@dataclass(frozen=True, slots=True)
class _Check:
    """A call that waits for the permission rules."""

    call: HostCall
    request: PermissionData


class Host:
    """Answers what an agent asks of its client: files and terminals. `rpc` writes the answers."""

    def __init__(self, rpc: JsonRpc, ids: IdFactory) -> None:
        self._rpc = rpc
        self._ids = ids
        self._checks: dict[str, _Check] = {}
        self._approved: set[tuple[str, str]] = set()
        self._terminals: dict[str, _Terminal] = {}
        self._files: dict[str, tuple[Id, bool]] = {}
        """Calls for files: the request's id, whether it reads."""
        self._last_number = 0

    @property
    def is_asking(self) -> bool:
        """Whether a call waits for the permission rules or a person."""
        return bool(self._checks)

    # --- asked ------------------------------------------------------------------------------------------

    def handle(self, msg: Request, *, stopping: bool) -> Iterator[Output]:
        """Handle a request. If `stopping`, the turn is being aborted and nothing new begins."""
        if stopping and msg.method in ("terminal/create", "fs/write_text_file"):
            yield self._error(msg.id, "The turn was interrupted: nothing new is begun.", -32800)
        else:
            yield from self.METHODS[msg.method](self, msg)

    def _error(self, id_: Id, message: str, code: int = INVALID_PARAMS) -> WriteLine:
        return WriteLine(self._rpc.error(id_, message, code))

    def _new(self, kind: str) -> str:
        self._last_number += 1
        return f"{kind}_{self._last_number}"

    def _read(self, msg: Request) -> Iterator[Output]:
        call = self._new("file")
        self._files[call] = (msg.id, True)
        path = get_text(msg.params, "path")
        read = ReadText(call, path, _number(msg.params, "line"), _number(msg.params, "limit"))
        yield from self._check(read, "read", {"path": path}, path, msg)

    def _write(self, msg: Request) -> Iterator[Output]:
        content = msg.params.get("content")
        if not isinstance(content, str):
            yield self._error(msg.id, "`content` must be a string.")
            return
        call = self._new("file")
        self._files[call] = (msg.id, False)
        path = get_text(msg.params, "path")
        yield from self._check(WriteText(call, path, content), "write", {"path": path, "content": content}, path, msg)

    def _create(self, msg: Request) -> Iterator[Output]:
        command = get_text(msg.params, "command")
        args = [word for word in arr(msg.params.get("args")) if isinstance(word, str)]
        if not command:
            yield self._error(msg.id, "`command` must be a string that is not empty.")
            return
        if len([t for t in self._terminals.values() if not t.released and t.ended is None]) >= TERMINALS:
            yield self._error(msg.id, f"{TERMINALS} commands are running, and no more can be started: end one first.", -32603)
            return
        limit = _number(msg.params, "outputByteLimit")
        id_ = self._new("term")
        limit_bytes = KEPT_BYTES if limit is None else min(limit, KEPT_MOST_BYTES)
        line = shell_line((command, *args)) if args else command
        self._terminals[id_] = _Terminal(msg.id, line, limit_bytes)
        pairs = [obj(row) for row in arr(msg.params.get("env"))]
        env = {get_text(pair, "name"): get_text(pair, "value") for pair in pairs if get_text(pair, "name")}
        cwd = get_text(msg.params, "cwd")
        arguments: Msg = {"command": line, **({"cwd": cwd} if cwd else {})}
        run = RunCommand(id_, command, tuple(args), cwd or None, env)
        # Kimi Code asks about a line, and runs it behind a `cd` to the folder in which it is to run anyway.
        asked = line.removeprefix(f"cd '{cwd}' && ") if "'" not in cwd else line
        yield from self._check(run, "execute", arguments, asked if ("execute", asked) in self._approved else line, msg)

    def _open_terminal(self, msg: Request) -> _Terminal | None:
        terminal = self._terminals.get(get_text(msg.params, "terminalId"))
        return None if terminal is None or terminal.released or not terminal.started else terminal

    def _on_terminal(self, msg: Request) -> Iterator[Output]:
        """Handle a request about an existing terminal."""
        id_ = get_text(msg.params, "terminalId")
        terminal = self._open_terminal(msg)
        if terminal is None:
            yield self._error(msg.id, f"There is no terminal {id_}: it was never created, or was released.", CODES["not_found"])
            return
        if msg.method == "terminal/wait_for_exit":
            if terminal.ended is None:
                terminal.waiting.append(msg.id)
            else:
                yield WriteLine(self._rpc.response(msg.id, _status(terminal.ended)))
            return
        if msg.method != "terminal/output":
            terminal.released = msg.method == "terminal/release"
            yield StopCommand(id_, release=terminal.released)
        yield WriteLine(self._rpc.response(msg.id, terminal.output_result() if msg.method == "terminal/output" else {}))
        self._forget()

    def _forget(self) -> None:
        """Drop old terminals whose command has ended. Released ones may still be shown, and keep no output for the agent."""
        ended = [(id_, terminal.released) for id_, terminal in self._terminals.items() if terminal.ended is not None]
        released = [id_ for id_, is_released in ended if is_released]
        unreleased = [id_ for id_, is_released in ended if not is_released]
        for id_ in (*released[:-TERMINALS], *unreleased[:-ENDED_TERMINALS]):
            del self._terminals[id_]
        for id_ in released[-TERMINALS:]:
            self._terminals[id_].output.clear()

    def stop(self) -> Iterator[Output]:
        """Stop every running command, because the turn is being aborted."""
        for id_, terminal in self._terminals.items():
            if terminal.ended is None:
                yield StopCommand(id_, release=True)

    # --- permission rules -------------------------------------------------------------------------------

    def approve(self, kind: str, subjects: Iterable[str]) -> None:
        """Record paths or commands that a person or a rule has accepted. Calls for them are not checked again."""
        self._approved.update((kind, subject) for subject in subjects)

    def _check(self, call: HostCall, kind: str, arguments: Msg, subject: str, msg: Request) -> Iterator[Output]:
        """Check a call against the permission rules, because the agent asks nobody about it."""
        if (kind, subject) in self._approved:
            yield call
            return
        metadata: Msg = {"tool": kind, "input": arguments, "title": subject, "confined": True}
        data = PermissionData(permission_id=self._ids("permission"), action=kind, status="requested", metadata=metadata)
        self._checks[data.permission_id] = _Check(call, data)
        yield ToolCheck(Fact(EventType.PERMISSION_REQUESTED, data, raw=msg.raw))

    def proceed(self, permission_id: str) -> list[Output]:
        check = self._checks.pop(permission_id, None)
        return [] if check is None else [check.call]

    def reply(self, command: PermissionReply) -> list[Output]:
        """Apply the decision of a rule or a person to a checked call. Returns [] if the id is not a checked call."""
        check = self._checks.pop(command.permission_id, None)
        if check is None:
            return []
        extra: Msg = {"message": command.message} if command.message else {}
        resolved = _resolution(check.request, command.decision, extra)
        if command.decision == "reject":
            return [*self._refuse(check, command.message or "The user rejected this."), resolved]
        return [check.call, resolved]

    def withdraw(self) -> Iterator[Output]:
        """Refuse all checked calls, because the turn is aborted or the process is gone."""
        checks, self._checks = self._checks, {}
        for check in checks.values():
            yield from self._refuse(check, "The turn was interrupted.")
            yield _resolution(check.request, "reject", {"withdrawn": True})

    def _refuse(self, check: _Check, message: str) -> Iterator[Output]:
        answer = HostDone(check.call.call, trouble="refused", error=message)
        for output in self.on_answer(answer):
            if not isinstance(output, dict):
                yield output

    # --- answered ---------------------------------------------------------------------------------------

    def on_answer(self, answer: HostAnswer) -> Iterator[Output | Msg]:
        """Yield lines for the agent, and (as `Msg`) updates of the tool call that shows the terminal."""
        if answer.call in self._files and isinstance(answer, HostDone):
            id_, reads = self._files.pop(answer.call)
            yield self._response(id_, answer, {"content": answer.text} if reads else {})
        terminal = self._terminals.get(answer.call)
        if terminal is None:
            return
        match answer:
            case HostDone():
                terminal.started = answer.trouble is None
                if answer.trouble is not None:
                    del self._terminals[answer.call]
                yield self._response(terminal.request_id, answer, {"terminalId": answer.call})
            case CommandOutput(data=data):
                piece = terminal.add(data)
                if piece and terminal.tool:
                    yield {"toolCallId": terminal.tool, "_meta": {"terminal_output": {"data": piece}}}
            case CommandEnded():
                terminal.ended = answer
                if terminal.tool:
                    yield {"toolCallId": terminal.tool, "_meta": _meta(answer)}
                for id_ in terminal.waiting:
                    yield WriteLine(self._rpc.response(id_, _status(answer)))
                terminal.waiting.clear()
                self._forget()
            case _:
                pass

    def _response(self, id_: Id, answer: HostDone, result: Json) -> WriteLine:
        if answer.trouble is not None:
            return self._error(id_, answer.error, CODES[answer.trouble])
        return WriteLine(self._rpc.response(id_, result))

    # --- shown ------------------------------------------------------------------------------------------

    def with_terminal(self, update: Msg, call: Call | None) -> Msg:
        """Return an update of a tool call with the output of the terminal in its content. `call` is the call so far."""
        blocks = [obj(block) for block in arr(update.get("content"))]
        ids = [get_text(block, "terminalId") for block in blocks if block.get("type") == "terminal"]
        terminal = next((t for id_ in ids if (t := self._terminals.get(id_)) and not t.tool), None)
        if terminal is None:
            return update
        terminal.tool = get_text(update, "toolCallId")
        meta = {**obj(update.get("_meta")), "terminal_output": {"data": terminal.shown_text}}
        if terminal.ended is not None:
            meta |= _meta(terminal.ended)
        raw_input = obj(update.get("rawInput"))
        if not (call and call.raw_input.get("command")) and not raw_input.get("command"):
            raw_input = {**raw_input, "command": terminal.command}
        status = get_text(update, "status")
        return {
            **update,
            "rawInput": raw_input,
            "_meta": meta,
            "status": "in_progress" if status in ("", "pending") else status,
        }

    METHODS: ClassVar[dict[str, Callable[[Host, Request], Iterator[Output]]]] = {
        "fs/read_text_file": _read,
        "fs/write_text_file": _write,
        "terminal/create": _create,
        "terminal/output": _on_terminal,
        "terminal/wait_for_exit": _on_terminal,
        "terminal/kill": _on_terminal,
        "terminal/release": _on_terminal,
    }


def _resolution(request: PermissionData, status: Decision, extra: Msg) -> Fact:
    data = request.model_copy(update={"status": status, "metadata": {**obj(request.metadata), **extra}})
    return Fact(EventType.PERMISSION_RESOLVED, data, synthetic=True)


def _number(params: Msg, key: str) -> int | None:
    return max(0, get_int(params, key)) if isinstance(params.get(key), int) else None
