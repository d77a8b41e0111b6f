"""Routes about a session's running work: wait, resume, interrupt, compact, shell commands of the person.

Source: compat_fixtures/opencode2/operations.json, recordings `wait`, `hang_interrupt`, `compact`, `extras` of v2-20260717.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shim.faces.opencode2._generated import requests
from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.errors import InstructionTooLarge, ResourceConflict
from shim.faces.opencode2.routes.sessions import SessionPath, inbox_item, need
from shim.http.operation import Ctx
from shim.lib.errors import Conflict, InvalidRequest, LimitReached, ServiceUnavailable
from shim.sessions.prompts.compact import begin
from shim.sessions.prompts.generate import NotGenerated, text
from shim.sessions.prompts.instructions import LABEL, MAX_ENTRIES, MAX_VALUE_BYTES, canonical_json
from shim.sessions.prompts.prompt_request import PromptRequest, choose
from shim.sessions.prompts.shell_turn import shell as run_shell
from shim.sessions.prompts.submit import resume as resume_session
from shim.sessions.session.session_state import SessionState
from universal.session.entries import PendingPrompt
from universal.session.model import Session
from universal.session.values import ModelRef, SessionRecord


@operation("experimental.session.wait")
async def wait(ctx: Ctx, path: SessionPath) -> None:
    """Answer when no turn runs in the session."""
    await (await ctx.services.sessions.state(path.sessionID)).idle()


@operation("session.resume")
async def resume(ctx: Ctx, path: SessionPath) -> None:
    """Dispatch the parked prompts (parked by an interrupt or by `resume: false`), and answer when all turns have ended."""
    actor = await ctx.services.sessions.actor(path.sessionID)
    await resume_session(ctx.services.sessions, actor)
    await actor.main.idle()


@operation("session.interrupt")
async def interrupt(ctx: Ctx, path: SessionPath, query: requests.InterruptQuery) -> object:
    """Stop the running turn, and answer when it has stopped. Waiting prompts are parked. `interrupted`: a turn ran."""
    state = await ctx.services.sessions.state(path.sessionID)
    ran = state.machine.busy
    await ctx.services.sessions.abort(path.sessionID)
    if query.resume == "true":
        await resume_session(ctx.services.sessions, await ctx.services.sessions.actor(path.sessionID))
    return {"interrupted": ran}


@operation("session.background")
async def background(ctx: Ctx, path: SessionPath) -> None:
    """Move the commands and subagents that the turn waits for to the background, so that the turn goes on.

    Succeeds also if there are none. Raises InvalidRequest for an agent that cannot do it.
    """
    actor = await ctx.services.sessions.actor(path.sessionID)
    if actor.main.machine.agent_at_work and not actor.background():
        agent = ctx.services.agents.get(ctx.services.sessions.index.agent_of(path.sessionID))
        name = agent.spec.title if agent is not None else "Its agent"
        raise InvalidRequest(f"{name} decides by itself what it runs in the background, and cannot be told from outside.")


@operation("session.environment")
async def environment(ctx: Ctx, path: SessionPath, body: requests.EnvironmentBody) -> None:
    """Set variables for the session's commands and its agent, in addition to the server's. The next prompt restarts the agent."""
    actor = await ctx.services.sessions.actor(path.sessionID)
    if any("\0" in value for value in body.variables.values()):
        raise InvalidRequest("Expected strings without NUL", path=("variables",))
    if actor.main.variables != body.variables:
        actor.main.variables = dict(body.variables)
        actor.main.when_idle(actor.reap)


@operation("session.compact")
async def compact(ctx: Ctx, path: SessionPath, body: requests.CompactBody) -> object:
    """Ask the agent to compact its conversation, after the running turn. Answer when that is accepted."""
    delivery = body.delivery or "steer"
    try:
        message_id = await begin(ctx.services.sessions, path.sessionID, None, message_id=body.id, delivery=delivery)
    except Conflict as error:
        raise ResourceConflict(error.message, body.id or "") from error
    session = await ctx.services.sessions.session(path.sessionID)
    accepted_ms, number = session.messages[message_id].info.created_ms, session.timeline.wishes.get(message_id, 0)
    return {"data": inbox_item(session, PendingPrompt(message_id, "compaction", delivery, accepted_ms, number))}


@operation("session.shell")
async def shell(ctx: Ctx, path: SessionPath, body: requests.ShellBody) -> None:
    """Run a person's command in the session's directory, and answer at its end. The agent learns of it with the next prompt."""
    mode = need(ctx, path.sessionID).mode or "build"
    await run_shell(ctx.services.sessions, path.sessionID, body.command, mode, body.id)
    await (await ctx.services.sessions.state(path.sessionID)).idle()


# --- texts outside of conversations ----------------------------------------------------------------------


@operation("session.generate")
async def of_session(ctx: Ctx, path: SessionPath, body: requests.GenerateBody) -> object:
    """Ask the session's agent and model in a separate process. The session does not change, and may be at work meanwhile."""
    session = await ctx.services.sessions.session(path.sessionID)
    return await _generate(ctx, session.record.directory, body.prompt, session, None, context=session)


@operation("experimental.generate.text")
async def of_nothing(ctx: Ctx, body: requests.GenerateTextBody) -> object:
    """Ask the default agent, or the agent of the model, in the request's directory."""
    session = Session(SessionRecord("", directory=ctx.directory), "")
    model = None if body.model is None else ModelRef(body.model.providerID, body.model.id)
    return await _generate(ctx, ctx.directory, body.prompt, session, model, variant=body.model.variant if body.model else None)


async def _generate(
    ctx: Ctx,
    directory: str,
    prompt: str,
    session: Session,
    model: ModelRef | None,
    *,
    variant: str | None = None,
    context: Session | None = None,
) -> object:
    choice = await choose(ctx.services.sessions.deps, session, PromptRequest((), model=model, variant=variant))
    try:
        return {"data": {"text": await text(ctx.services.sessions, choice, directory, prompt, context)}}
    except NotGenerated as error:
        raise ServiceUnavailable(str(error), choice.agent.spec.name) from error


# --- instructions ----------------------------------------------------------------------------------------


class EntryPath(SessionPath):
    """`{key}`."""

    key: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9._-]*$", max_length=200)]


@operation("experimental.session.instructions.entry.list")
async def listing(ctx: Ctx, path: SessionPath) -> object:
    """The instructions that hold from the next prompt on."""
    entries = (await ctx.services.sessions.readable_state(path.sessionID)).instructions.entries
    return {"data": [{"key": key, "value": value} for key, value in entries.items()]}


@operation("experimental.session.instructions.entry.put")
async def put(ctx: Ctx, path: EntryPath, body: requests.EntryBody) -> None:
    """Set an instruction. Raises InstructionTooLarge, LimitReached."""
    state = await _open_entry(ctx, path)
    entries = state.instructions.entries
    if (size := len(canonical_json(body.value).encode())) > MAX_VALUE_BYTES:
        raise InstructionTooLarge(path.key, size, MAX_VALUE_BYTES)
    if path.key not in entries and len(entries) >= MAX_ENTRIES:
        raise LimitReached("instructions", MAX_ENTRIES, "There are too many instructions in this session: remove some.")
    if path.key not in entries or entries[path.key] != body.value:
        state.status(LABEL, key=path.key, json=canonical_json(body.value))
        await ctx.services.store.flush(path.sessionID)


@operation("experimental.session.instructions.entry.remove")
async def remove(ctx: Ctx, path: EntryPath) -> None:
    """Remove an instruction. Succeeds also if it does not exist."""
    state = await _open_entry(ctx, path)
    if path.key in state.instructions.entries:
        state.status(LABEL, key=path.key)
        await ctx.services.store.flush(path.sessionID)


async def _open_entry(ctx: Ctx, path: EntryPath) -> SessionState:
    state = await ctx.services.sessions.state(path.sessionID)
    state.require_open()
    return state
