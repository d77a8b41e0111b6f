"""Runs a person's shell command as a turn of the session. Source: recording `shell` of 1.18.33."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Mapping
from typing import Any

from shim.agents.sandboxes import level_of
from shim.host.terminals.shell_command import ShellCommand
from shim.lib.errors import InvalidRequest
from shim.processes.child_environment import child_environment
from shim.sessions.index.manager import SessionManager
from shim.sessions.mcp_servers import is_trusted
from shim.sessions.prompts.prompt_request import PromptRequest, check_ids, choose
from shim.sessions.session.actor import SessionActor
from shim.sessions.undo.undo import settle
from universal.events import EventType, ItemData, ItemDeltaData
from universal.items import ContentPart, Item, ItemKind, ItemRole, ItemStatus, TextPart, ToolCallPart, ToolResultPart
from universal.session.user_prompt import PromptItem, UserPrompt
from universal.session.values import Text

USER_TEXT = "The following tool was executed by the user"


async def shell(manager: SessionManager, session_id: str, command: str, mode: str, message_id: str | None) -> None:
    """Run a command, show it, and wait for the end of its turn. Raises InvalidRequest for an unknown agent name."""
    actor = await manager.actor(session_id)
    body = PromptRequest(parts=(), message_id=message_id, mode=mode)
    check_ids(actor.main.session, body)
    choice = await choose(manager.deps, actor.main.session, body)
    await settle(manager, actor)
    run = _Run(manager, actor, command)
    part = Text("", USER_TEXT, synthetic=True)
    run.start(UserPrompt(message_id or "", (part,), choice.mode, choice.model_ref))
    await run.finish()


async def shell_variables(manager: SessionManager, directory: str, cwd: str, **ids: str) -> Mapping[str, str]:
    """The variables that plugins give to a shell that this server starts; those of a project where it is trusted."""
    with_project = await is_trusted(manager, directory)
    given = await manager.deps.setups.variables(directory, {"cwd": cwd, **ids}, with_project=with_project)
    return child_environment(given, {})


class _Run:
    """The items of one command, in order."""

    def __init__(self, manager: SessionManager, actor: SessionActor, command: str) -> None:
        self._manager = manager
        self._actor = actor
        self._state = actor.main
        self._command = command
        ids = manager.deps.ids
        self._message, self._call, self._result, self._call_id = (ids.new("item") for _ in range(4))
        self._output: list[str] = []
        self._environment = child_environment(manager.deps.agents.environment() | actor.main.variables, {})
        enclose = manager.deps.enclose_shell(level_of(actor.main.session.record, None))
        self._process = ShellCommand(command, actor.directory, self._environment, self._on_output, enclose=enclose)

    def _item(
        self, item_id: str, kind: ItemKind, role: ItemRole, *content: ContentPart, complete: bool, **metadata: Any
    ) -> ItemData:
        status = ItemStatus.COMPLETED if complete else ItemStatus.IN_PROGRESS
        parent = None if kind is ItemKind.MESSAGE else self._message
        item = Item(
            item_id=item_id, parent_id=parent, kind=kind, role=role, status=status, content=content, metadata=metadata or None
        )
        return ItemData(item=item)

    def start(self, prompt: UserPrompt) -> None:
        """Begin the turn. Synchronous, so that no other turn starts between the check and this one."""
        state = self._state
        if state.machine.busy:
            raise InvalidRequest("The session became busy; wait for it, or abort it.")
        user = self._manager.deps.ids.new("item")
        text = TextPart(text=USER_TEXT)
        state.record(EventType.ITEM_COMPLETED, ItemData(item=PromptItem.of(user, prompt, (text,), {"origin": "shell"})))
        self._actor.begin_local_work(self._process.stop)
        state.status("prompt", state="own", item_id=user)
        message = self._item(self._message, ItemKind.MESSAGE, ItemRole.ASSISTANT, complete=False, origin="shell")
        state.record(EventType.ITEM_STARTED, message)
        arguments = json.dumps({"command": self._command}, ensure_ascii=False)
        call = ToolCallPart(name="bash", arguments=arguments, call_id=self._call_id)
        state.record(
            EventType.ITEM_COMPLETED,
            self._item(self._call, ItemKind.TOOL_CALL, ItemRole.TOOL, call, complete=True, origin="shell"),
        )
        empty = ToolResultPart(call_id=self._call_id, output="")
        state.record(EventType.ITEM_STARTED, self._item(self._result, ItemKind.TOOL_RESULT, ItemRole.TOOL, empty, complete=False))

    def _on_output(self, text: str) -> None:
        self._output.append(text)
        self._state.record(EventType.ITEM_DELTA, ItemDeltaData(item_id=self._result, delta=text, part_type="tool_output"))

    async def finish(self) -> None:
        """Run the command after the snapshot, then record its result, whatever happens."""
        started = time.monotonic()
        code = -signal.SIGKILL
        try:
            await self._actor.snapshots.wait_for_start()
            ids = {"sessionID": self._state.id, "callID": self._call_id}
            self._environment |= await shell_variables(self._manager, self._actor.directory, self._actor.directory, **ids)
            code = await self._process.run()
        except OSError as error:
            self._on_output(f"{self._command}: {error.strerror or error}\n")
            code = 127
        except asyncio.CancelledError:  # the server stops
            self._process.kill()
            raise
        finally:
            self._over(code, started)

    def _over(self, code: int, started: float) -> None:
        """Record the result and the end of the message and the turn."""
        if self._process.stopped:
            self._output.append("\n(stopped by the user)")
        metadata = {"exit_code": code, "duration_ms": int((time.monotonic() - started) * 1000)}
        result = ToolResultPart(call_id=self._call_id, output="".join(self._output))
        state = self._state
        data = self._item(self._result, ItemKind.TOOL_RESULT, ItemRole.TOOL, result, complete=True, **metadata)
        state.record(EventType.ITEM_COMPLETED, data)
        message = self._item(self._message, ItemKind.MESSAGE, ItemRole.ASSISTANT, complete=True, origin="shell")
        state.record(EventType.ITEM_COMPLETED, message)
        self._actor.end_local_work()
