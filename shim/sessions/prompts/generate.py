"""Asks a model for a text outside of any conversation, with a separate process of the agent. Nothing is kept.

Agents have no request for that, so it is a turn of a hidden session: its journal is in memory, and its events go nowhere. The
agent must answer with text alone. It gets a mode that changes nothing, if it has one. Permissions are refused, and a tool call
ends the turn with an error. The agent's program may store the conversation (Claude Code lists it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from shim.lib.errors import ShimError
from shim.sessions.feed import ChangeFeed, Feed
from shim.sessions.index.manager import SessionManager
from shim.sessions.prompts import context
from shim.sessions.prompts.prompt_request import Choice, PromptRequest, accept
from shim.sessions.session.actor import SessionActor
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.session_state import SessionState
from shim.store.memory import MemoryStore
from universal.agent_spec import modes_of
from universal.codec import Fact
from universal.events import ErrorData, EventType, ItemData, QuestionData, SessionStartedData, UniversalEvent
from universal.items import ItemKind, ToolCallPart
from universal.permissions import Policy, Rule
from universal.session.model import Session
from universal.session.record_json import record_json
from universal.session.values import SessionRecord, Text

GENERATE_S = 120.0
"""Timeout in seconds of the whole answer, including the agent's start."""
AT_ONCE = 4
"""Maximum such processes at the same time."""
QUIET = ("read-only", "plan")
"""Modes that change nothing, the best first."""
DENY_ALL = Policy(config=(Rule("*", "*", "deny"),))
SYSTEM = (
    "This is a request for one text, outside of any conversation. Answer at once with that text and nothing else. "
    "Use no tools: a tool call ends the request without an answer."
)


class NotGenerated(ShimError):
    """The model gave no text. The message says why."""


def _no_snapshots(_directory: str) -> None:
    return None


async def text(manager: SessionManager, choice: Choice, directory: str, prompt: str, session: Session | None = None) -> str:
    """The text of the answer. Beyond AT_ONCE requests, further ones are refused for now.

    In: `session`, whose messages go before the prompt. Raises NotGenerated.
    """
    if manager.generating >= AT_ONCE:
        raise NotGenerated(f"{AT_ONCE} texts are being generated, which is the most at the same time: try again later.")
    manager.generating += 1
    try:
        async with asyncio.timeout(GENERATE_S):
            return await _turn(manager.deps, choice, directory, prompt, session)
    except TimeoutError:
        raise NotGenerated(f"{choice.agent.spec.title} did not answer within {GENERATE_S:g} s.") from None
    finally:
        manager.generating -= 1


async def _turn(deps: SessionDeps, choice: Choice, directory: str, prompt: str, session: Session | None) -> str:
    store = MemoryStore()
    await store.open()
    deps = replace(deps, store=store, changes=ChangeFeed(), feed=Feed(), snapshots=_no_snapshots, tapes=None)
    once = _Once(deps, choice, directory)
    conversation = context.missed_context(session, "", ()).text if session is not None else ""
    body = PromptRequest((Text("", conversation + prompt),), system=SYSTEM)
    modes = {mode.id for mode in modes_of(choice.agent.spec, choice.agent.catalogue)}
    mode = next((mode for mode in QUIET if mode in modes), choice.mode)
    accepted, _ = await accept(body, replace(choice, mode=mode, base=choice.base if mode == choice.mode else ""), deps.ids)
    try:
        once.actor.prompt(accepted)
        await once.state.idle()
    finally:
        await once.actor.close(delete=True)
    return once.answer()


class _Once:
    """The hidden session of one request."""

    def __init__(self, deps: SessionDeps, choice: Choice, directory: str) -> None:
        name = choice.agent.spec.name
        self._title = choice.agent.spec.title
        self._agent = name
        self._deps = deps
        self._why = ""
        self.state = self._state(name)
        self.actor = SessionActor(deps, self.state, directory, self, native={})
        now = deps.clock.now_ms()
        record = SessionRecord(self.state.id, directory=directory, title="generate", created_ms=now, updated_ms=now)
        self.state.record(EventType.SESSION_STARTED, SessionStartedData(metadata={"record": record_json(record), "agent": name}))

    def policy(self, state: SessionState, mode: str) -> Policy:
        return DENY_ALL

    def open_child(self, actor: SessionActor, key: str, fact: Fact) -> SessionState:
        """A subagent's session is as hidden."""
        return self._state(self._agent)

    def on_actor_changed(self, actor: SessionActor) -> None:
        """Nothing is kept of it."""

    def _state(self, agent: str) -> SessionState:
        return SessionState(self._deps.ids.new("session"), agent, self._deps, feed=self._watch)

    def _watch(self, events: Sequence[UniversalEvent]) -> None:
        data = events[0].data  # there are several of pieces of text alone
        if isinstance(data, ErrorData):
            self._why = self._why or data.message
        elif isinstance(data, ItemData) and data.item.kind is ItemKind.TOOL_CALL:
            tool = next((part.name for part in data.item.content if isinstance(part, ToolCallPart)), "a tool")
            self._stop(f"{self._title} called {tool} instead of answering with text.")
        elif isinstance(data, QuestionData):
            self._stop(f"{self._title} asked something instead of answering with text.")

    def _stop(self, why: str) -> None:
        if not self._why:
            self._why = why
            asyncio.get_running_loop().call_soon(self.actor.abort)  # not while its event is handled

    def answer(self) -> str:
        """The text of the answer. Raises NotGenerated."""
        answers = [m.text() for m in self.state.session.messages.values() if not m.is_user]
        answer = "\n".join(words for words in answers if words).strip()
        if self._why or not answer:
            raise NotGenerated(self._why or f"{self._title} gave no text.")
        return answer
