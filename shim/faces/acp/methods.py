"""The methods of the protocol that a client calls. `METHODS` is the table: name -> its parameters and its function."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from shim.faces.acp import offers, updates
from shim.faces.acp.connection import Connection, Methods
from shim.faces.acp.params import (
    Authenticate,
    Initialize,
    ListSessions,
    McpServer,
    NewSession,
    OpenSession,
    Prompt,
    SessionParams,
    SetMode,
    SetOption,
)
from shim.faces.acp.updates import Screen
from shim.host.files.roots import require, visible_sessions
from shim.http.directory import resolve
from shim.lib.errors import InvalidRequest, SessionTerminated, ShimError
from shim.lib.version import build
from shim.sessions import mcp_servers
from shim.sessions.history.checkpoints import read_ahead, read_ids
from shim.sessions.permissions.unattended_policy import terms_of_headers
from shim.sessions.prompts.command import command
from shim.sessions.prompts.prompt_request import PromptRequest
from shim.sessions.prompts.submit import submit
from universal.lib.jsonrpc import Id
from universal.lib.jsonvalue import JsonObject
from universal.session.changes import TodosChanged
from universal.session.model import Session
from universal.session.values import File, Part, SessionRecord, Text

VERSION = 1
"""The version of the protocol."""
PASSWORD: JsonObject = {
    "id": "password",
    "name": "The server's password",
    "description": "It is sent when the connection is made: OPENCODE_SERVER_PASSWORD of `opencode-shim acp`, or Authorization.",
}
CAPABILITIES: JsonObject = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True},
    "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
}
PAGE = 50
"""Sessions in one answer."""
AT_ONCE = 8
"""Messages of a history that are rendered before the client has read those before them."""


async def initialize(connection: Connection, params: Initialize, _id: Id) -> JsonObject:
    """Begin. A client of another version gets version 1, and leaves if it does not speak it."""
    connection.capabilities = params.clientCapabilities
    has_password = connection.services.settings.password is not None
    return {
        "protocolVersion": VERSION,
        "agentCapabilities": CAPABILITIES,
        "agentInfo": {"name": "opencode-shim", "title": "opencode-shim", "version": build().version},
        "authMethods": [PASSWORD] if has_password else [],
    }


async def authenticate(_connection: Connection, params: Authenticate, _id: Id) -> JsonObject:
    """Nothing to do: only a client with the password has a connection."""
    if params.methodId != PASSWORD["id"]:
        raise InvalidRequest(f"There is no way to log in {params.methodId[:100]!r}, only {PASSWORD['id']!r}.")
    return {}


# --- sessions ----------------------------------------------------------------------------------------------------


async def new_session(connection: Connection, params: NewSession, _id: Id) -> JsonObject:
    """Create a session in a directory. Its agent starts with the first prompt."""
    services = connection.services
    connection.need_room()
    directory = await _directory(connection, params.cwd)
    if not await asyncio.to_thread(os.path.isdir, directory):
        raise InvalidRequest(f"There is no directory {params.cwd!r} on the server's machine.")
    await services.sessions.others.need_new_here(directory, None, None, is_final=True)
    project = await services.projects.identity(directory)
    await _add_servers(connection, directory, params.mcpServers or ())
    record = services.sessions.create(directory, project, path=project.path_of(directory))
    await services.store.flush(record.id)
    session = await services.sessions.session(record.id)
    connection.follow(session, connection.new_screen(session.record))
    return {"sessionId": record.id, **await _choices(connection, session)}


async def load_session(connection: Connection, params: OpenSession, _id: Id) -> JsonObject:
    """Send a session's history, then what happens in it, as it happens."""
    session, screen = await _open(connection, params)
    sessions, done = connection.sessions, 0
    await sessions.read_ahead(session, read_ids)
    while len(ids := session.ids_by_time()) - done > AT_ONCE and not connection.outbox.is_over:
        await sessions.read_ahead(session, partial(read_ahead, id_=ids[done], count=AT_ONCE, is_back=False))
        _send_messages(connection, session, ids[done : done + AT_ONCE], screen)
        done += AT_ONCE
        await connection.outbox.drain()
    # The rest, which is in memory, is sent in one step with the beginning of what follows.
    _send_messages(connection, session, ids[done:], screen)
    if session.todos:
        connection.update(session.id, updates.plan(TodosChanged(session.todos)))
    connection.follow(session, screen)
    return await _choices(connection, session)


def _send_messages(connection: Connection, session: Session, ids: Sequence[str], screen: Screen) -> None:
    messages = filter(None, map(session.messages.peek, ids))
    for update in updates.history(messages, session, screen):
        connection.update(session.id, update)


async def resume_session(connection: Connection, params: OpenSession, _id: Id) -> JsonObject:
    """Send what happens in a session from now on, without its history."""
    session, screen = await _open(connection, params)
    for _ in updates.history(islice(session.newest_first(), AT_ONCE), session, screen):
        pass  # it counts as sent: of a text that grows, only what is added
    connection.follow(session, screen)
    return await _choices(connection, session)


async def _open(connection: Connection, params: OpenSession) -> tuple[Session, Screen]:
    """The session that is to be shown, of which nothing has been. Raises NotFound, InvalidRequest."""
    services = connection.services
    connection.need_room(params.sessionId)
    session = await services.sessions.session(params.sessionId)
    directory = session.record.directory
    await require(directory, services.settings.roots)
    await _add_servers(connection, directory, params.mcpServers or ())
    connection.unfollow(session.id)
    return session, connection.new_screen(session.record)


async def list_sessions(connection: Connection, params: ListSessions, _id: Id) -> JsonObject:
    """A page of sessions, the last changed first, without those of subagents and archived ones."""
    services = connection.services
    directory = await _directory(connection, params.cwd) if params.cwd is not None else None
    records = await visible_sessions(services.sessions.index.newest_first(), services.settings.roots)
    wanted = (
        record
        for record in records
        if not record.parent_id
        and record.archived_ms is None
        and directory in (None, record.directory)
        and (params.cursor is None or _place(record) > params.cursor)
    )
    page = list(islice(wanted, PAGE + 1))
    rows = [
        {
            "sessionId": record.id,
            "cwd": record.directory,
            "title": record.title,
            "updatedAt": updates.iso_time(record.updated_ms),
        }
        for record in page[:PAGE]
    ]
    return {"sessions": rows, **({"nextCursor": _place(page[PAGE - 1])} if len(page) > PAGE else {})}


def _place(record: SessionRecord) -> str:
    """A text that ascends in the order of the list."""
    return f"{10**16 - record.updated_ms:017d} {record.id}"


async def close_session(connection: Connection, params: SessionParams, _id: Id) -> JsonObject:
    """Send nothing more of a session. A turn that this client has prompted is aborted; that of another client goes on."""
    view = connection.view(params.sessionId)
    if view.prompts:
        await connection.abort(params.sessionId, view)
    connection.unfollow(params.sessionId)
    return {}


async def _directory(connection: Connection, named: str) -> str:
    """An absolute directory of the server's machine, without links. Raises InvalidRequest, OutsideRoots."""
    if not os.path.isabs(named):  # noqa: PTH117 - pure: no look at the disk
        raise InvalidRequest(f"`cwd` is an absolute path, not {named[:100]!r}.")
    directory = await connection.services.links.real(resolve({"directory": named}, {}, named))
    await require(directory, connection.services.settings.roots)
    return directory


async def _add_servers(connection: Connection, directory: str, servers: Sequence[McpServer]) -> None:
    """Add the client's MCP servers to the directory's set-up, as `POST /mcp` does."""
    for server in servers:
        await mcp_servers.add(connection.sessions, directory, server.name, server.row())


# --- choices -----------------------------------------------------------------------------------------------------


async def _choices(connection: Connection, session: Session) -> JsonObject:
    """What can be chosen in a session, for the answer that opens it. The commands come after the answer."""
    choices, screen = await offers.choices_of(connection.services, session), connection.view(session.id).screen
    if choices.choice is not None:
        screen.mode, screen.model = choices.choice.mode, choices.choice.model_ref
    connection.later(_send_commands(connection, session.id, session.record.directory), "commands")
    return choices.to_json()


async def _send_commands(connection: Connection, session_id: str, directory: str) -> None:
    with suppress(ShimError):
        _, rows = await offers.commands_of(connection.services, directory)
        update = {"sessionUpdate": "available_commands_update", "availableCommands": list(map(offers.command, rows))}
        connection.update(session_id, update)


async def set_mode(connection: Connection, params: SetMode, _id: Id) -> JsonObject:
    """Select a mode from the next prompt on."""
    await _set(connection, params.sessionId, offers.MODE, params.modeId)
    return {}


async def set_option(connection: Connection, params: SetOption, _id: Id) -> JsonObject:
    """Select a mode, a model or a level of effort from the next prompt on. Returns all options as they are then."""
    return {"configOptions": await _set(connection, params.sessionId, params.configId, params.value)}


async def _set(connection: Connection, session_id: str, option: str, value: str) -> Any:
    connection.view(session_id)
    session = await connection.sessions.session(session_id)
    change = (await offers.choices_of(connection.services, session)).change(option, value)
    await connection.sessions.patch(session_id, **change)
    await connection.services.store.flush(session_id)
    return (await offers.choices_of(connection.services, session)).to_json()["configOptions"]


# --- prompts -----------------------------------------------------------------------------------------------------


async def prompt(connection: Connection, params: Prompt, id_: Id) -> None:
    """Submit a prompt, or a slash command. It is answered at the end of its turn (`Connection`)."""
    services, sessions = connection.services, connection.sessions
    session_id, view = params.sessionId, connection.view(params.sessionId)
    parts = [block.part() for block in params.prompt]
    message_id = services.ids.new("item").replace("itm_", "msg_")
    view.prompts[message_id] = id_
    view.screen.own.add(message_id)
    try:
        async with view.order:
            if (await sessions.state(session_id)).is_terminated:
                raise SessionTerminated(session_id)
            request = PromptRequest(tuple(parts), message_id, **terms_of_headers(connection.ctx.request.headers))
            if not await _command(connection, session_id, request):
                await submit(sessions, session_id, request)
            await services.store.flush(session_id)
    except BaseException:  # also a cancellation: nobody waits for this turn then
        view.prompts.pop(message_id, None)
        raise


async def _command(connection: Connection, session_id: str, request: PromptRequest) -> bool:
    """Run a prompt that begins with a slash command of the session's directory. False if it does not."""
    first = request.parts[0] if request.parts else None
    if not isinstance(first, Text) or not first.text.startswith("/"):
        return False
    name, _, arguments = first.text[1:].partition(" ")
    directory = connection.sessions.index.record(session_id).directory
    templates, rows = await offers.commands_of(connection.services, directory)
    if name not in {row.name for row in rows}:
        return False
    rest: tuple[Part, ...] = tuple(request.parts[1:])
    more = [part.text for part in rest if isinstance(part, Text)]
    body = replace(request, parts=tuple(part for part in rest if isinstance(part, File)))
    await command(connection.sessions, templates, session_id, name, "\n".join([arguments, *more]).strip(), body)
    return True


METHODS: Methods = {
    "initialize": (Initialize, initialize),
    "authenticate": (Authenticate, authenticate),
    "session/new": (NewSession, new_session),
    "session/load": (OpenSession, load_session),
    "session/resume": (OpenSession, resume_session),
    "session/list": (ListSessions, list_sessions),
    "session/close": (SessionParams, close_session),
    "session/set_mode": (SetMode, set_mode),
    "session/set_config_option": (SetOption, set_option),
    "session/prompt": (Prompt, prompt),
}
"""`session/cancel` is a notification, which `Connection` takes."""
