"""Controls attached TUIs: each call publishes an event that they read. Source: recording `tui`.

In native OpenCode, `/tui/open-themes` publishes `session.list` by mistake; ours opens the themes.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, TypeAlias

from pydantic import Field

from shim.faces.opencode1._generated import requests
from shim.faces.opencode1.endpoint import operation
from shim.host.changes import TuiCommand, TuiPrompt, TuiSession, TuiToast
from shim.host.tui_control import TuiRequest
from shim.http.operation import Ctx, Handler
from shim.lib.errors import ServiceUnavailable

TuiChange: TypeAlias = TuiPrompt | TuiCommand | TuiToast | TuiSession
SHORT_NAMES = {
    "session_new": "session.new",
    "session_share": "session.share",
    "session_interrupt": "session.interrupt",
    "session_compact": "session.compact",
    "messages_page_up": "session.page.up",
    "messages_page_down": "session.page.down",
    "messages_line_up": "session.line.up",
    "messages_line_down": "session.line.down",
    "messages_half_page_up": "session.half.page.up",
    "messages_half_page_down": "session.half.page.down",
    "messages_first": "session.first",
    "messages_last": "session.last",
    "agent_cycle": "agent.cycle",
}
"""Old names that `/tui/execute-command` accepts -> the command's name in the TUI."""
GONE_S = 2.0
"""Seconds between checks whether the client of `/tui/control/next` is still connected."""


Content: TypeAlias = requests.TuiAppendBody | requests.TuiCommandBody | requests.TuiToastBody | requests.TuiSelectBody
Event: TypeAlias = (
    requests.EventTuiPromptAppend | requests.EventTuiCommandExecute | requests.EventTuiToastShow | requests.EventTuiSessionSelect
)


def _change(content: Content) -> TuiChange:
    match content:
        case requests.TuiAppendBody():
            return TuiPrompt(content.text)
        case requests.TuiCommandBody():
            return TuiCommand(content.command)
        case requests.TuiToastBody():
            return TuiToast(content.message, content.variant, content.title, content.duration)
        case requests.TuiSelectBody():
            return TuiSession(content.sessionID)


def _publish(ctx: Ctx, content: Content) -> bool:
    ctx.services.host.publish(_change(content), ctx.directory)
    ctx.services.tui_control.offer(ctx.directory, TuiRequest(ctx.request.path, content.model_dump(exclude_none=True)))
    return True


def _execute(ctx: Ctx, command: str) -> bool:
    return _publish(ctx, requests.TuiCommandBody(command=command))


@operation("tui.appendPrompt")
async def append(ctx: Ctx, body: requests.TuiAppendBody) -> object:
    """Put text into the prompt."""
    return _publish(ctx, body)


def _handler(command: str) -> Handler:
    async def execute_command(ctx: Ctx) -> object:
        return _execute(ctx, command)

    return execute_command


COMMANDS = {
    "tui.openHelp": "help.show",
    "tui.openSessions": "session.list",
    "tui.openThemes": "theme.switch",
    "tui.openModels": "model.list",
    "tui.submitPrompt": "prompt.submit",
    "tui.clearPrompt": "prompt.clear",
}
"""Operation -> the command of the TUI that it runs."""
HANDLERS = tuple(operation(operation_id)(_handler(command)) for operation_id, command in COMMANDS.items())


@operation("tui.executeCommand")
async def execute(ctx: Ctx, body: requests.TuiCommandBody) -> object:
    """Run any command of the TUI, which ignores unknown ones."""
    return _execute(ctx, SHORT_NAMES.get(body.command, body.command))


@operation("tui.showToast")
async def toast(ctx: Ctx, body: requests.TuiToastBody) -> object:
    """Show a note."""
    return _publish(ctx, body)


@operation("tui.publish")
async def publish(ctx: Ctx, body: Annotated[Event, Field(discriminator="type")]) -> object:
    """Publish one of these events unchanged."""
    return _publish(ctx, body.properties)


@operation("tui.selectSession")
async def select(ctx: Ctx, body: requests.TuiSelectBody) -> object:
    """Open a session. Raises SessionNotFound (404)."""
    ctx.services.sessions.index.record(body.sessionID)
    return _publish(ctx, body)


@operation("tui.control.next")
async def control_next(ctx: Ctx) -> object:
    """Wait for the next of these requests, as long as the client stays connected."""
    control = ctx.services.tui_control
    reader = control.wait(ctx.directory)
    try:
        while not reader.done():
            # A disconnected client must not consume a request, and only the transport shows the disconnect.
            if ctx.request.transport is None or ctx.request.transport.is_closing():
                raise ConnectionResetError
            await asyncio.wait([reader], timeout=GONE_S)
        if reader.cancelled():
            raise ServiceUnavailable("The server is stopping.")
        request = reader.result()
        return {"path": request.path, "body": request.body}
    finally:
        control.leave(ctx.directory, reader)
