"""Submits a prompt: everything between a decoded prompt and the session's actor."""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter

from shim.host.git.projects import GLOBAL
from shim.lib.errors import LimitReached, MessageExists
from shim.sessions.index.manager import SessionManager
from shim.sessions.prompts import prompt_request
from shim.sessions.prompts.pending_prompt import ModelChoice
from shim.sessions.prompts.prompt_request import PromptRequest, UnknownChoice
from shim.sessions.session.actor import SessionActor
from shim.sessions.undo.undo import has_undone, settle
from universal.session.changes import PromptFailed
from universal.session.user_prompt import NO_DETAILS
from universal.session.values import Failure, Text, is_default_title, title_of

ID_OF = attrgetter("id")


async def submit(manager: SessionManager, session_id: str, body: PromptRequest, *, reply: bool = True) -> str:
    """Store the prompt, show it, and (with `reply`) dispatch it when the agent is free. Returns the message's id.

    The caller flushes the store before it acknowledges the prompt.

    Raises NotFound, InvalidRequest (unknown agent or model, bad id), Conflict (an id that is used), LimitReached, StoreError (a
    write has failed, and fails again). Then nothing is stored or dispatched. A prompt for an inbox (one with details) is accepted
    with an unknown agent or model, and its turn fails.
    """
    await manager.deps.store.require_writable(session_id)
    actor = await manager.actor(session_id)
    state = actor.main
    if reply and len(actor.prompt_queue.pending) >= (limit := manager.deps.settings.max_queued_prompts):
        raise LimitReached("max_queued_prompts", limit, "Too many prompts wait in this session: wait for some, or abort it.")
    if reply and manager.deps.quotas is not None:
        await manager.deps.quotas.check(session_id)
    has_ids = body.message_id is not None or any(map(ID_OF, body.parts))
    if has_ids:
        await _need_new_ids(actor, body)
    await manager.deps.config_refresh(actor.directory)
    await _join_project(manager, actor)
    if not actor.process.is_alive:
        await manager.deps.catch_up(actor)
    try:
        choice = await prompt_request.choose(manager.deps, state.session, body)
    except UnknownChoice as error:
        if body.details is NO_DETAILS:
            raise
        choice = prompt_request.refusal(manager.deps.agents, state.session, body, error)
    accepted, errors = await prompt_request.accept(body, choice, manager.deps.ids, manager.deps.roots)
    actor = await _current(manager, actor)  # reading files took time: the session may be another server's, and the id used
    if has_undone(actor):
        await settle(manager, actor)
        actor = await _current(manager, actor)
    state = actor.main
    session = state.session
    if has_ids:
        await _need_new_ids(actor, body)
    record = session.record
    if errors:
        failures = [PromptFailed(Failure(message)) for message in errors]
        manager.deps.changes.publish(failures, session, manager.deps.clock.now_ms())
    if body.tools:
        rules = [{"permission": n, "pattern": "*", "action": "allow" if on else "deny"} for n, on in body.tools.items()]
        state.change_record(permission=[*(record.permission or ()), *rules])
    if reply:
        title = title_of(first_text(body)) if is_default_title(record.title) else ""
        return actor.prompt(accepted, title or None, is_current=True)
    return actor.park(accepted)


async def _need_new_ids(actor: SessionActor, body: PromptRequest) -> None:
    """Raise MessageExists for the id of a message that is stored: who repeats a prompt takes that for done.

    Raises StoreError, and SessionElsewhere if another server has taken the session, where the message is not.
    """
    try:
        prompt_request.check_ids(actor.main.session, body)
    except MessageExists:
        await actor.main.journal.flush()
        raise


async def _current(manager: SessionManager, actor: SessionActor) -> SessionActor:
    """The actor of a session after an await: the same, or another one if the session was given up or moved meanwhile."""
    entry = manager.index.find(actor.main.id)
    if entry is None or entry.actor is not actor or manager.deps.placement.is_draining:
        return await manager.actor(actor.main.id)
    actor.main.require_open()
    return actor


async def _join_project(manager: SessionManager, actor: SessionActor) -> None:
    """Note that a session from before `git init`, or from before the first commit, belongs to the project of its folder."""
    record = actor.main.session.record
    if record.project_id != GLOBAL:
        return
    project = await manager.deps.find_project(record.directory)
    if project is not None and project.id != GLOBAL:
        actor.main.status("project", project_id=project.id, path=project.path_of(record.directory))
        actor.main.notify_changed()


async def resume(manager: SessionManager, actor: SessionActor) -> None:
    """Dispatch the parked prompts. Those of OpenCode 2 get the session's current agent and model, if it can be chosen.

    Raises LimitReached at the quota of the person for whom they count now.
    """
    account = "" if manager.deps.quotas is None else manager.deps.quotas.admit(actor.main.id)
    for message_id, accepted in list(actor.prompt_queue.parked.items()):
        if accepted.user_prompt.details.delivery is None:
            continue
        with suppress(UnknownChoice):  # then it keeps its own choice, with which it runs or fails
            choice = await prompt_request.choose(manager.deps, actor.main.session, PromptRequest(()))
            chosen = ModelChoice(choice.mode, choice.model_ref, choice.base)
            again = accepted.with_choice(choice.agent.spec.name, choice.model, chosen)
            actor.prompt_queue.replace_parked(message_id, again)
    actor.prompt_queue.resume(account)


def first_text(body: PromptRequest) -> str:
    """The first text of the prompt, for the session's title."""
    return next((part.text for part in body.parts if isinstance(part, Text) and not part.synthetic), "")
