"""Asks an agent to compact its conversation, for a person. Source: recording `summarize` of 1.18.33.

It is shown as in OpenCode: a user message with a `compaction` part, then an assistant message with the summary, if the agent
reports one. The agent compacts by its own command or request (`Prompt.compact`).
"""

from __future__ import annotations

from shim.agents.directory import Agent
from shim.lib.errors import InvalidRequest
from shim.sessions.index.manager import SessionManager
from shim.sessions.prompts.prompt_payload import PromptPayload, accepted_prompt
from shim.sessions.prompts.prompt_request import PromptRequest, check_ids, choose
from shim.sessions.undo.undo import settle
from universal.codec import COMPACT
from universal.session.user_prompt import Delivery, PromptDetails, UserPrompt
from universal.session.values import CompactionMark, ModelRef, StepInfo


def can_compact(agent: Agent) -> bool:
    """Whether an agent has a request or a command for compaction."""
    name = COMPACT.removeprefix("/")
    return agent.spec.abilities.capabilities.compact or any(c.name == name for c in agent.catalogue.commands)


async def compact(manager: SessionManager, session_id: str, model: ModelRef, *, auto: bool = False) -> bool:
    """Compact, and wait for the end of the turn. Returns whether there is a summary. Raises as `begin`."""
    message_id = await begin(manager, session_id, model, auto=auto)
    state = await manager.state(session_id)
    await state.idle()
    steps = (message.info for message in state.session.messages.since(message_id) if isinstance(message.info, StepInfo))
    return any(step.parent_id == message_id and step.compacts and step.error is None for step in steps)


async def begin(
    manager: SessionManager,
    session_id: str,
    model: ModelRef | None,
    *,
    auto: bool = False,
    message_id: str | None = None,
    delivery: Delivery = "steer",
) -> str:
    """Ask for a compaction, after the running turn. Returns the id of its user message.

    In: `model`, None for the session's; `message_id`, an id that a client chose; `delivery` as of a prompt of OpenCode 2.
    Raises NotFound; InvalidRequest for an unknown model, an agent that cannot, an empty session; Conflict for an id that is used.
    Nothing is stored then.
    """
    actor = await manager.actor(session_id)
    if not actor.process.is_alive:
        await manager.deps.catch_up(actor)
    state = actor.main
    body = PromptRequest(parts=(), model=model, message_id=message_id)
    check_ids(state.session, body)
    choice = await choose(manager.deps, state.session, body)
    if not can_compact(choice.agent):
        raise InvalidRequest(
            f"{choice.agent.spec.title} cannot compact a conversation on demand: its protocol has no request for it, and it "
            f'offers no command "{COMPACT}". Start a new session, or choose a model of another agent.'
        )
    if not state.session.messages:
        raise InvalidRequest("There is nothing to compact in this session yet: send a prompt first.")
    prompt = UserPrompt(
        message_id=message_id or "",
        parts=(CompactionMark("", auto),),
        mode=choice.mode,
        model=choice.model_ref,
        details=PromptDetails(delivery),
    )
    pending = accepted_prompt(
        manager.deps.ids.new("item"),
        prompt,
        PromptPayload(choice.agent.spec.name, choice.model, is_compact=True, mode=choice.base),
    )
    await settle(manager, actor)
    actor.prompt(pending)
    prompt_id = state.reducer.transcript.prompt_of_item.get(pending.item.item_id, "")
    await manager.deps.store.flush(state.id)
    return prompt_id
