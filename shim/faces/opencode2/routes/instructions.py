"""Routes of a session's instructions, by key. They go along with each of its prompts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import InstructionTooLarge
from shim.faces.opencode2.routes.sessions import SessionPath
from shim.http.operation import NO_CONTENT, Ctx
from shim.lib.errors import LimitReached
from shim.sessions.prompts.instructions import LABEL, MAX_ENTRIES, MAX_VALUE_BYTES, canonical_json
from shim.sessions.session.session_state import SessionState


class EntryPath(SessionPath):
    """`{key}`."""

    key: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9._-]*$", max_length=200)]


class EntryBody(BaseModel):
    """Any JSON value. The agent gets a text as it is, and other values as JSON."""

    value: Any


@operation("experimental.session.instructions.entry.list")
async def listing(ctx: Ctx, path: SessionPath) -> object:
    """The instructions that hold from the next prompt on."""
    entries = (await ctx.services.sessions.readable_state(path.sessionID)).instructions.entries
    return {"data": [{"key": key, "value": value} for key, value in entries.items()]}


@operation("experimental.session.instructions.entry.put")
async def put(ctx: Ctx, path: EntryPath, body: EntryBody) -> object:
    """Set an instruction. Raises InstructionTooLarge, LimitReached."""
    state = await _open(ctx, path)
    entries = state.instructions.entries
    if (size := len(canonical_json(body.value).encode())) > MAX_VALUE_BYTES:
        raise InstructionTooLarge(path.key, size, MAX_VALUE_BYTES)
    if path.key not in entries and len(entries) >= MAX_ENTRIES:
        raise LimitReached("instructions", MAX_ENTRIES, "There are too many instructions in this session: remove some.")
    if path.key not in entries or entries[path.key] != body.value:
        state.status(LABEL, key=path.key, json=canonical_json(body.value))
        await ctx.services.store.flush(path.sessionID)
    return NO_CONTENT


@operation("experimental.session.instructions.entry.remove")
async def remove(ctx: Ctx, path: EntryPath) -> object:
    """Remove an instruction. Succeeds also if it does not exist."""
    state = await _open(ctx, path)
    if path.key in state.instructions.entries:
        state.status(LABEL, key=path.key)
        await ctx.services.store.flush(path.sessionID)
    return NO_CONTENT


async def _open(ctx: Ctx, path: EntryPath) -> SessionState:
    state = await ctx.services.sessions.state(path.sessionID)
    state.require_open()
    return state
