"""Routes that ask a model for a text outside of any conversation (`shim.sessions.prompts.generate`)."""

from __future__ import annotations

from pydantic import BaseModel

from shim.faces.opencode2.endpoint import operation
from shim.faces.opencode2.routes.sessions import ModelRef, SessionPath
from shim.http.operation import Ctx
from shim.lib.errors import ServiceUnavailable
from shim.sessions.prompts.generate import NotGenerated, text
from shim.sessions.prompts.prompt_request import PromptRequest, choose
from universal.session.model import ModelRef as CoreModelRef
from universal.session.model import Session, SessionRecord


class SessionBody(BaseModel):
    """The prompt. The session's conversation goes before it."""

    prompt: str


class TextBody(BaseModel):
    """The prompt, without a session. `model`: by default that of the default agent."""

    prompt: str
    model: ModelRef | None = None


@operation("session.generate")
async def of_session(ctx: Ctx, path: SessionPath, body: SessionBody) -> object:
    """Ask the session's agent and model in a separate process. The session does not change, and may be at work meanwhile."""
    session = await ctx.services.sessions.session(path.sessionID)
    return await _generate(ctx, session.record.directory, body.prompt, session, None, context=session)


@operation("experimental.generate.text")
async def of_nothing(ctx: Ctx, body: TextBody) -> object:
    """Ask the default agent, or the agent of the model, in the request's directory."""
    session = Session(SessionRecord("", directory=ctx.directory), "")
    model = None if body.model is None else CoreModelRef(body.model.providerID, body.model.id)
    return await _generate(ctx, ctx.directory, body.prompt, session, model, variant=body.model.variant if body.model else None)


async def _generate(
    ctx: Ctx,
    directory: str,
    prompt: str,
    session: Session,
    model: CoreModelRef | None,
    *,
    variant: str | None = None,
    context: Session | None = None,
) -> object:
    choice = await choose(ctx.services.sessions.deps, session, PromptRequest((), model=model, variant=variant))
    try:
        return {"data": {"text": await text(ctx.services.sessions, choice, directory, prompt, context)}}
    except NotGenerated as error:
        raise ServiceUnavailable(str(error), choice.agent.spec.name) from error
