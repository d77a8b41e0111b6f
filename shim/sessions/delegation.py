"""What an agent may do with other sessions: never more than its own session may (SECURITY.md, docs/delegation.md).

A session that an agent has started stands below the agent's own (`SessionEntry.is_delegated`). Its rules are the stricter ones of
both for each call (`Policy.above`), its mode and its sandbox are no milder, and it works in the same directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from shim.agents.directory import Agent
from shim.agents.sandboxes import held_keys, level_of
from shim.lib.errors import Forbidden, SessionNotFound
from shim.sessions.index.manager import SessionManager
from shim.sessions.prompts.prompt_request import PromptRequest
from shim.sessions.prompts.submit import submit
from universal.permissions import BUILD
from universal.sandbox import Level, strictest
from universal.session.values import QuestionRequest, ToolCall

DEPTH_LIMIT = 3
"""How deep sessions that agents have started may stand below one of a person."""
BELOW_LIMIT = 32
"""Maximum sessions that agents may start below one of a person, at all depths. Deleted ones do not count."""
MODES: Mapping[str, int] = {
    **{"plan": 0, "read-only": 1, BUILD: 1, "": 1},
    **{"accept-edits": 2, "auto": 3, "bypass": 4, "full-access": 4},
}
"""Mode -> how much an agent does in it without asking. A mode of an agent's own, which is not here, counts as the most."""
MOST = max(MODES.values())
NO_TURN = "No turn of your session runs: it was aborted, or its answer is over. Only a person can go on from here."


def need_turn(manager: SessionManager, caller: str) -> str:
    """Return the turn of an agent that starts or prompts another one. Raises Forbidden if none runs."""
    state = manager.index.get(caller).state
    if state is None or not state.machine.busy or state.machine.state == "aborting":
        raise Forbidden(NO_TURN)
    return state.turn_id


def is_below(manager: SessionManager, caller: str, session_id: str) -> bool:
    """Whether an agent has started a session, or one above it. Its own, and those of its subagents, are not meant."""
    line = manager.index.line(session_id)
    return any(below.is_delegated and above.record.id == caller for below, above in pairwise(line))


def need_below(manager: SessionManager, caller: str, session_id: str) -> None:
    """Raise SessionNotFound unless a session is below that of an agent (`is_below`)."""
    if not is_below(manager, caller, session_id):
        raise SessionNotFound(session_id)


def check_start(manager: SessionManager, caller: str, directory: str, agent: Agent, mode: str) -> Level:
    """Return the sandbox of a session that an agent wants to start, at least. Raises Forbidden for more than its own may."""
    need_turn(manager, caller)
    entry, line = manager.index.get(caller), manager.index.line(caller)
    own = entry.current_record
    if directory != own.directory:
        raise Forbidden(f"Sessions that you start work where you do, in {own.directory}: rules name files from there.")
    if sum(above.is_delegated for above in line) >= DEPTH_LIMIT:
        raise Forbidden(f"You were started {DEPTH_LIMIT} levels below a person's session, so you can start nobody.")
    family = (manager.index.find(session_id) for session_id in manager.index.with_all_below(line[-1].record.id))
    if sum(below is not None and below.is_delegated for below in family) >= BELOW_LIMIT:
        raise Forbidden(f"Agents have started {BELOW_LIMIT} sessions here, which is the most. A person can delete some.")
    check_mode(manager, caller, mode)
    assert entry.state is not None
    rules, mine = manager.policy(entry.state, entry.mode).for_agent(), manager.deps.agents.get(manager.index.agent_of(caller))
    sandbox = entry.actor.process.sandbox if entry.actor is not None else None
    held = held_keys(mine.spec, sandbox.bounds) if mine is not None and sandbox is not None else ()
    known = mine.spec.rules.enforcement.gaps(rules, held) if mine is not None else {}
    if gaps := agent.spec.rules.enforcement.gaps(rules).keys() - known.keys():
        names = ", ".join(sorted(gaps))
        raise Forbidden(f"{agent.spec.title} cannot be held to the rules of your session for {names}. Choose another agent.")
    demand = sandbox.demand if sandbox is not None else None
    config = manager.deps.config_now(own.directory)
    chosen = config.primary_agents.get(entry.mode) if config is not None else None
    return strictest(level_of(own, chosen), demand.level if demand is not None else "auto")


def check_mode(manager: SessionManager, caller: str, mode: str) -> None:
    """Raise Forbidden for a mode in which an agent would do more without asking than its caller does."""
    entry = manager.index.get(caller)
    config = manager.deps.config_now(entry.current_record.directory)
    is_configured = config is not None and entry.mode in config.primary_agents  # it runs in the usual mode, with its rules
    own = entry.mode if entry.mode in MODES or not is_configured else BUILD
    if MODES.get(mode, MOST) > MODES.get(own, MOST):
        raise Forbidden(f"Your session is in the mode {own or BUILD!r}, so one that you use cannot be in {mode!r}.")


async def submit_below(manager: SessionManager, caller: str, session_id: str, body: PromptRequest) -> str:
    """Submit a prompt of an agent, as `submit`. If the agent's own turn ends meanwhile, so does what it has begun.

    What is done with requests that nobody answers is what holds for the agent itself.
    """
    turn_id = need_turn(manager, caller)
    check_mode(manager, caller, body.mode or manager.index.record(session_id).mode or BUILD)
    unattended = manager.requests.unattended_policy(caller)
    message_id = await submit(manager, session_id, replace(body, unattended=unattended))
    try:
        is_over = need_turn(manager, caller) != turn_id
    except (Forbidden, SessionNotFound):
        is_over = True
    if is_over:
        await manager.abort(session_id)
        raise Forbidden(NO_TURN)
    return message_id


async def need_question(manager: SessionManager, caller: str, request_id: str) -> None:
    """Raise Forbidden unless a request is a question of an agent below. What it grants is for a person alone to say."""
    session_id = manager.requests.session_of(request_id)
    if session_id is None:
        return
    need_below(manager, caller, session_id)
    session = await manager.session(session_id)
    asked: QuestionRequest | None = session.questions.get(request_id)
    place = session.calls.get(asked.call.call_id) if asked is not None and asked.call is not None else None
    message = session.messages.peek(place[0]) if place is not None else None
    part = message.parts.get(place[1]) if message is not None and place is not None else None
    if not isinstance(part, ToolCall) or part.tool != "question":
        raise Forbidden("A person was asked for this. They see it, and answer it; `wait` goes on with it in `ignore`.")
