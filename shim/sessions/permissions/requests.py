"""Decides permission requests and questions of one session and its subagents, by rules or by a person.

An agent asks once about a call, but OpenCode's rules may ask for several of its permissions: `external_directory` first, then the
call's own. A person is asked for one after the other. The agent gets the answer when all are granted or one is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import structlog
from pydantic import TypeAdapter

from shim.host.files.search import forbidden_below
from shim.host.plugins.plugin_hosts import PluginVerdict
from shim.sessions.permissions.unattended_policy import Timer
from shim.sessions.session.dependencies import SessionDeps
from shim.sessions.session.session_state import SessionState
from universal.codec import Fact, PermissionReply, QuestionReply
from universal.events import EventType, PermissionData, QuestionData
from universal.items import Json
from universal.lib.jsonvalue import JsonObject, obj, text
from universal.opencode_metadata import access_metadata
from universal.permissions import MISSING_PLUGIN, Access, Action, Decision, Policy
from universal.tools.accesses import Place, accesses_of, primary_access
from universal.unattended_policy import NO_QUESTIONS, NOT_ALLOWED, UnattendedPolicy

if TYPE_CHECKING:
    from shim.sessions.session.actor import SessionActor
    from shim.sessions.session.session_agent import SessionAgent

log = structlog.get_logger()

DENIED_BY_RULE = "The user has specified a rule which prevents this tool call."
DENIED_BY_PLAN = "Plan mode is on: no files are changed. Propose what you would change instead."
PLAN_TOOLS = ("ExitPlanMode", "plan_exit")
"""Tools whose question needs OpenCode's permission `plan_exit`, not `question`."""
READS = frozenset({"read", "list", "glob", "grep"})
"""Permissions of calls that only read. A grant of the folder includes them."""
UNGUARDED = READS | {"todowrite"}
"""Permissions of calls for which nobody is asked although a plugin could not be loaded."""
LOOP_CALLS = 3
"""Equal calls in a row after which OpenCode asks for `doom_loop`."""
LOOKUP_S = 10.0
"""Timeout in seconds for following the links of a call's paths. After it, the call is rejected."""
NOT_LOADED = "These plugins could not be loaded, and one of them may be there to refuse such a call. Go on without them?"
NOT_LOOKED_UP = "The server could not find out which files this call would touch, so it was not allowed. Try it again."


@dataclass(frozen=True, slots=True)
class _Wait:
    """A request that waits for a person. `timer` rejects it; None if it waits without end."""

    state: SessionState
    since_ms: int
    timer: Timer | None


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A call whose paths are being resolved. `is_check`: its agent would not ask about it by itself."""

    state: SessionState
    fact: Fact
    data: PermissionData
    agent: str
    is_check: bool


@dataclass(slots=True)
class _Request:
    """A request of an agent that a person must answer.

    `shown_id`: id of the request that clients see now; `access`: what it asks for; `rest`: accesses that are asked after it.
    """

    state: SessionState
    fact: Fact
    data: PermissionData
    agent: str
    access: Access
    rest: list[Access]
    asks_itself: bool = False
    """True if the agent's mode decides about the call's own permission, once a person has granted the others."""
    shown_id: str = ""
    granted: list[Access] = field(default_factory=list[Access])


@dataclass(frozen=True, slots=True)
class _Step:
    """How far a person has been asked about a call, as a value for the next server."""

    shown_id: str
    access: Access
    rest: list[Access]
    granted: list[Access]
    asks_itself: bool

    @classmethod
    def of(cls, request: _Request) -> _Step:
        return cls(request.shown_id, request.access, request.rest, request.granted, request.asks_itself)

    def apply(self, request: _Request) -> None:
        request.shown_id, request.access, request.rest = self.shown_id, self.access, self.rest
        request.granted, request.asks_itself = self.granted, self.asks_itself


_STEP = TypeAdapter(_Step)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The rules' decision on a call that they do not deny. `to_ask`: accesses that a person is asked for, in order."""

    to_ask: list[Access]
    call: Access
    action: Action | None
    """The action for the call's own access; None if no rule concerns it."""


@dataclass(slots=True)
class _Calls:
    """The last calls of a state, to notice a loop."""

    ids: deque[str] = field(default_factory=lambda: deque[str](maxlen=64))
    recent: deque[str] = field(default_factory=lambda: deque[str](maxlen=LOOP_CALLS))

    def repeats(self, call_id: str, call: str) -> bool:
        """Count a call, each id once. Returns True if it is the last of LOOP_CALLS equal calls."""
        if call_id not in self.ids:
            self.ids.append(call_id)
            self.recent.append(call)
        return len(self.recent) == LOOP_CALLS and len(set(self.recent)) == 1


class Requests:
    """The open requests of one session."""

    def __init__(self, deps: SessionDeps, session: SessionActor, agent: SessionAgent) -> None:
        self._deps = deps
        self._session = session
        self._agent = agent
        self._verdicts: dict[str, dict[str, tuple[PermissionData, PluginVerdict]]] = {}
        """Session -> call -> what was asked last, and what plugins say of it. An agent may ask twice about a call."""
        self._arrivals = deque[_Arrival]()
        self._lookups: asyncio.Task[None] | None = None
        self.is_held = False
        """Whether calls wait until `resume`, because a person is asked whether the turn goes on."""
        self._open: dict[str, _Request] = {}
        self._waits: dict[str, _Wait] = {}
        self._since: dict[str, int] = {}
        """When the server before has asked what is still open."""
        self._calls: dict[str, _Calls] = {}
        self._granted: dict[str, dict[str, list[Access]]] = {}
        """Session -> call -> accesses that a person has granted, for the agent's next question about the call."""

    # --- from the agent -----------------------------------------------------------------------------------

    def permission(self, state: SessionState, fact: Fact, data: PermissionData, agent: str) -> None:
        """Decide a call that the agent asks about, by rules or by a person."""
        self._arrive(_Arrival(state, fact, data, agent, is_check=False))

    def check(self, state: SessionState, fact: Fact, data: PermissionData, agent: str) -> None:
        """Apply the rules to a call that the agent would not ask about. It goes on if no rule concerns it."""
        self._arrive(_Arrival(state, fact, data, agent, is_check=True))

    def _arrive(self, arrival: _Arrival) -> None:
        """Judge a call in its turn. Links are followed in a thread, so that no check reads a file on the loop."""
        place = self._session.place()
        if not place.looks_at_files and not self._arrivals and not self.is_held:
            self._decide(arrival, accesses_of(arrival.agent, arrival.data, place))
            return
        self._arrivals.append(arrival)
        self.resume()

    def resume(self) -> None:
        """Judge the calls that have arrived, unless the session is held."""
        if self._lookups is None and self._arrivals and not self.is_held:
            look_up = self._look_up(self._session.place())
            self._lookups = asyncio.get_running_loop().create_task(look_up, name="permission lookups")

    async def _look_up(self, place: Place) -> None:
        """Judge the arrived calls until there are none. Withdrawn calls are left out."""
        try:
            while self._arrivals and not self.is_held:
                arrival = self._arrivals[0]
                accesses = await self._accesses_of(arrival, place)
                verdict = await self._plugin_verdict(arrival) if accesses is not None else PluginVerdict(NOT_LOOKED_UP)
                if self.is_held or not self._arrivals or self._arrivals[0] is not arrival:
                    continue
                self._arrivals.popleft()
                if accesses is None or verdict.refusal:
                    self._reject(arrival, verdict.refusal)
                elif verdict.missing and accesses[-1].permission not in UNGUARDED:
                    self._decide(arrival, (_without(verdict.missing), *accesses))
                else:
                    self._decide(arrival, accesses)
        finally:
            self._lookups = None

    async def _accesses_of(self, arrival: _Arrival, place: Place) -> tuple[Access, ...] | None:
        """The accesses of a call, or None if they cannot be found out."""
        try:
            async with asyncio.timeout(LOOKUP_S):
                return await asyncio.to_thread(_look_up, arrival, place, self._session.rules(arrival.state))
        except Exception:  # whatever happened, the agent must get an answer: a rejection
            log.exception("permission.lookup_failed", session_id=arrival.state.id)
            return None

    async def _plugin_verdict(self, arrival: _Arrival) -> PluginVerdict:
        call_id = text(obj(arrival.data.metadata).get("call_id"))
        verdicts = self._verdicts.setdefault(arrival.state.id, {})
        known = verdicts.get(call_id)
        if call_id and known is not None and _is_same_call(known[0], arrival.data):
            return known[1]
        try:
            verdict = await self._agent.plugin_verdict(arrival.state.id, arrival.data)
        except Exception:  # whatever happened, the agent must get an answer: a rejection
            log.exception("permission.plugins_failed", session_id=arrival.state.id)
            return PluginVerdict(NOT_LOOKED_UP)
        verdicts[call_id] = (arrival.data, verdict)
        return verdict

    def _decide(self, arrival: _Arrival, accesses: tuple[Access, ...]) -> None:
        state, fact, data, agent = arrival.state, arrival.fact, arrival.data, arrival.agent
        verdict = self._judge(arrival, accesses)
        if verdict is None:
            return
        if arrival.is_check:
            if not verdict.to_ask:
                self._agent.proceed(data.permission_id)
                return
            asks_itself = verdict.action is None and verdict.call.permission not in READS
            self._ask_or_reject(_Request(state, fact, data, agent, verdict.to_ask[0], verdict.to_ask[1:], asks_itself))
            return
        to_ask = verdict.to_ask or ([verdict.call] if verdict.action is None else [])
        if to_ask:
            self._ask_or_reject(_Request(state, fact, data, agent, to_ask[0], to_ask[1:]))
            return
        self._record_automatic(state, fact, data, "allow")
        self._agent.send(PermissionReply(data.permission_id, "accept"))

    def _judge(self, arrival: _Arrival, needed: tuple[Access, ...]) -> _Verdict | None:
        """Apply the rules to a call. None if they deny it; the agent then has its answer."""
        state = arrival.state
        policy = self._session.rules(state)
        needed = tuple(map(policy.narrow, needed))
        accesses = self._with_loop(state, arrival.data, needed)
        actions: list[Action | None] = [policy.action(access) for access in accesses]
        if "deny" in actions:
            denied = accesses[actions.index("deny")]
            self._reject(arrival, DENIED_BY_PLAN if policy.is_held_by_plan(denied) else DENIED_BY_RULE)
            return None
        is_asked = actions[-1] == "ask"
        to_ask = [a for a, action in zip(accesses, actions, strict=True) if action == "ask" and not (a.again and is_asked)]
        is_seen = any(access.again and access not in accesses for access in needed)
        action = "allow" if is_seen and actions[-1] is None else actions[-1]  # a person has just allowed this very call
        return _Verdict(to_ask, accesses[-1], action)

    def _with_loop(self, state: SessionState, data: PermissionData, needed: tuple[Access, ...]) -> tuple[Access, ...]:
        """The accesses of a call without those that a person has granted. `doom_loop` comes first after too many equal calls."""
        meta = obj(data.metadata)
        *external, call = needed
        granted = self._granted.get(state.id, {}).get(text(meta.get("call_id")), [])
        accesses = (*(access for access in external if access not in granted), call)
        tool = text(meta.get("tool"), data.action)
        calls = self._calls.setdefault(state.id, _Calls())
        call_id = text(meta.get("call_id"))
        if not call_id or not calls.repeats(call_id, _digest(f"{tool} {meta.get('input')!r}")):
            return accesses
        loop = Access("doom_loop", (tool,), (tool,), {"tool": tool, "input": obj(meta.get("input"))})
        return accesses if loop in granted else (loop, *accesses)

    def _reject(self, arrival: _Arrival, message: str) -> None:
        self._record_automatic(arrival.state, arrival.fact, arrival.data, "deny")
        self._agent.send(PermissionReply(arrival.data.permission_id, "reject", message))

    def _ask_or_reject(self, request: _Request) -> None:
        """Ask a person, or reject if only rules may allow."""
        if self._session.unattended_policy.action != "rules":
            self._ask(request)
            return
        self._note_unattended(request.state, request.data.permission_id, "rules", NOT_ALLOWED)
        self._record_automatic(request.state, request.fact, request.data, "deny")
        self._agent.send(PermissionReply(request.data.permission_id, "reject", NOT_ALLOWED))

    def _record_automatic(
        self, state: SessionState, fact: Fact, data: PermissionData, decision: Literal["allow", "deny"]
    ) -> None:
        state.fact(fact._replace(data=_with_metadata(data, auto=decision)))

    def _ask(self, request: _Request) -> None:
        """Show the next request of a call to a person. The last one has the agent's id."""
        is_last = not request.rest and not request.asks_itself
        request.shown_id = request.data.permission_id if is_last else self._deps.ids.new("permission")
        self._open[request.shown_id] = request
        fact = request.fact._replace(data=_request_data(request), synthetic=request.fact.synthetic or not is_last)
        request.state.fact(fact)
        self.wait(request.shown_id, request.state)

    def withdraw(self, permission_id: str) -> bool:
        """Withdraw a request for the agent. True if no person has seen it yet."""
        remaining = [arrival for arrival in self._arrivals if arrival.data.permission_id != permission_id]
        was_waiting = len(remaining) < len(self._arrivals)
        if was_waiting:
            self._arrivals = deque(remaining)
        return was_waiting

    def drop_arrivals(self) -> None:
        """Drop calls that were not judged yet, because the agent's process has ended."""
        self._arrivals.clear()

    def on_permission_resolved(self, permission_id: str) -> None:
        """Close a request that the agent has resolved or withdrawn."""
        self._take(permission_id)
        for request in [r for r in self._open.values() if r.data.permission_id == permission_id]:
            self._take(request.shown_id)
            self._resolve_shown(request, "reject", withdrawn=True)

    def forget(self, state: SessionState) -> None:
        """Forget the requests and calls of a session whose turn is over."""
        self._arrivals = deque(arrival for arrival in self._arrivals if arrival.state is not state)
        for id_ in [id_ for id_, wait in self._waits.items() if wait.state is state]:
            self._end_wait(id_)
        self._open = {id_: request for id_, request in self._open.items() if request.state is not state}
        self._calls.pop(state.id, None)
        self._verdicts.pop(state.id, None)
        self._granted.pop(state.id, None)

    def counts(self) -> JsonObject:
        """Since when each open request waits, and the last calls of each session, as `restore_counts` takes them."""
        if not self._waits and not self._calls:
            return {}
        calls = {session: [[*calls.ids], [*calls.recent]] for session, calls in self._calls.items()}
        return {"since": {id_: wait.since_ms for id_, wait in self._waits.items()}, "calls": calls}

    def restore_counts(self, said: JsonObject) -> None:
        """Count on from a server that has ended, before its requests are restored."""
        self._since = {id_: int(since) for id_, since in obj(said.get("since")).items()}
        for session, (ids, recent) in obj(said.get("calls")).items():
            self._calls[session] = _Calls()
            self._calls[session].ids += ids
            self._calls[session].recent += recent

    def to_json(self) -> list[JsonObject]:
        """The open requests of whose calls a person is asked for more than one access, as `restore` takes them."""
        steps: list[JsonObject] = []
        for request in self._open.values():
            if request.rest or request.shown_id != request.data.permission_id:
                step = _STEP.dump_python(_Step.of(request), mode="json")
                steps.append({"permission_id": request.data.permission_id, **step})
        return steps

    def restore(self, state: SessionState, fact: Fact, data: PermissionData, agent: str, step: JsonObject | None) -> None:
        """Go on with a request that the session shows, of a server that has ended. In: what `to_json` said of it."""
        request = _Request(state, fact, data, agent, primary_access(agent, data, state.session.record.directory), [])
        request.shown_id = data.permission_id
        if step is not None:
            _STEP.validate_python(step).apply(request)
        self._open[request.shown_id] = request
        self.wait(request.shown_id, state)

    def question(self, state: SessionState, fact: Fact, data: QuestionData) -> None:
        """Handle a question of the agent. Clients that answer none (`opencode run`) have a rule that denies them."""
        policy = self._session.rules(state)
        name = "plan_exit" if text(obj(data.metadata).get("tool")) in PLAN_TOOLS else "question"
        if policy.action(Access(name, ("*",))) == "deny":
            state.fact(fact._replace(data=data.model_copy(update={"metadata": {**obj(data.metadata), "auto": "deny"}})))
            self._agent.send(QuestionReply(data.question_id, None))
            return
        if self._session.unattended_policy.action == "rules":
            self._note_unattended(state, data.question_id, "rules", NO_QUESTIONS)
            state.fact(fact._replace(data=data.model_copy(update={"metadata": {**obj(data.metadata), "auto": "deny"}})))
            self._agent.send(QuestionReply(data.question_id, None, NO_QUESTIONS))
            return
        state.fact(fact)
        self.wait(data.question_id, state)

    def on_question_resolved(self, question_id: str) -> None:
        """Forget a question that was answered or withdrawn."""
        self._end_wait(question_id)

    # --- nobody answers -----------------------------------------------------------------------------------

    @property
    def open_asks(self) -> int:
        return len(self._waits)

    def waiting_since_ms(self, state: SessionState | None = None) -> int | None:
        """When the oldest open request was made, of all sessions or of `state`. None if none is open."""
        return min((wait.since_ms for wait in self._waits.values() if state in (None, wait.state)), default=None)

    def close(self) -> None:
        """Cancel all timers, because no request can be answered any more."""
        self.drop_arrivals()
        for id_ in list(self._waits):
            self._end_wait(id_)

    def wait(self, id_: str, state: SessionState) -> None:
        """Wait for a person's answer to a request that the session shows."""
        unattended, timer, now_ms = self._session.unattended_policy, None, self._deps.clock.now_ms()
        since_ms = self._since.pop(id_, now_ms)
        if unattended.action == "reject":
            left_s = max(0.0, unattended.reject_s - max(0, now_ms - since_ms) / 1000)
            timer = self._deps.call_later(left_s, lambda: self._reject_unanswered(id_, unattended))
        self._waits[id_] = _Wait(state, since_ms, timer)

    def _end_wait(self, id_: str) -> None:
        wait = self._waits.pop(id_, None)
        if wait is not None and wait.timer is not None:
            wait.timer.cancel()

    def _take(self, id_: str) -> _Request | None:
        """Remove an open permission request; None if it is not open."""
        self._end_wait(id_)
        return self._open.pop(id_, None)

    def _reject_unanswered(self, id_: str, unattended: UnattendedPolicy) -> None:
        """Reject this request alone, because its time is over."""
        wait, request = self._waits.get(id_), self._take(id_)
        if wait is None:
            return
        session = wait.state.session
        if id_ not in session.permissions and id_ not in session.questions:
            return  # the subagent's turn has ended meanwhile
        self._note_unattended(wait.state, id_, "timeout", unattended.rejection)
        if request is not None:
            self._answer(request, PermissionReply(id_, "reject", unattended.rejection))
        else:
            self._agent.send(QuestionReply(id_, None, unattended.rejection))

    def _note_unattended(self, state: SessionState, id_: str, action: Literal["timeout", "rules"], message: str) -> None:
        self._deps.unattended_counts[action] += 1
        log.info("ask.unattended", session_id=state.id, request_id=id_, action=action)
        state.status("unattended", message, request_id=id_, action=action)

    # --- from a person ------------------------------------------------------------------------------------

    def reply_permission(self, reply: PermissionReply) -> None:
        """Handle a person's answer. A rejection rejects all open requests of the session; `always` answers those it covers."""
        request = self._take(reply.permission_id)
        if request is None:
            self._agent.send(reply)
            return
        self._answer(request, reply)
        for open_request in [r for r in self._open.values() if r.state is request.state]:
            if open_request.shown_id not in self._open or open_request is request:
                continue
            is_covered = self._session.rules(open_request.state).action(open_request.access) == "allow"
            if reply.decision == "reject" or (reply.decision == "accept_for_session" and is_covered):
                self._take(open_request.shown_id)
                self._answer(open_request, reply)

    def _answer(self, request: _Request, reply: PermissionReply) -> None:
        """Show the next request of the call, or answer the agent."""
        if request.shown_id != request.data.permission_id:
            self._resolve_shown(request, reply.decision, message=reply.message)
        request.granted.append(request.access)
        rest = self._still_to_ask(request)
        if reply.decision != "reject" and rest:
            request.access, request.rest = rest[0], rest[1:]
            self._ask(request)
            return
        if reply.decision != "reject" and request.asks_itself:
            call_id = text(obj(request.data.metadata).get("call_id"))
            self._granted.setdefault(request.state.id, {})[call_id] = request.granted
            self._agent.proceed(request.data.permission_id)
            return
        if request.shown_id != request.data.permission_id:  # no client saw the agent's own request
            self._record_automatic(request.state, request.fact, request.data, "deny" if reply.decision == "reject" else "allow")
        if request.access.permission == MISSING_PLUGIN and reply.decision != "reject":
            reply = replace(reply, decision="accept")  # "always" is about the plugin: the agent must ask about its call again
        self._agent.send(replace(reply, permission_id=request.data.permission_id))
        if request.data.permission_id in request.state.session.permissions:  # the agent does not wait for it any more
            data = PermissionData(permission_id=request.data.permission_id, action="withdrawn", status=reply.decision)
            request.state.record(EventType.PERMISSION_RESOLVED, data)

    def _still_to_ask(self, request: _Request) -> list[Access]:
        """The accesses that are still to be asked. An `always` may have granted some."""
        policy = self._session.rules(request.state)
        return [access for access in request.rest if policy.action(access) != "allow"]

    def _resolve_shown(
        self,
        request: _Request,
        status: Decision,
        *,
        message: str | None = None,
        withdrawn: bool = False,
    ) -> None:
        """Close the visible request, if it is ours and not the agent's."""
        extra: dict[str, Json] = {**({"message": message} if message else {}), **({"withdrawn": True} if withdrawn else {})}
        data = _request_data(request).model_copy(update={"status": status})
        request.state.record(EventType.PERMISSION_RESOLVED, _with_metadata(data, **extra))

    def reply_question(self, reply: QuestionReply) -> None:
        """Handle a person's answers, or their refusal."""
        self._end_wait(reply.question_id)
        self._agent.send(reply)


def _look_up(arrival: _Arrival, place: Place, policy: Policy) -> tuple[Access, ...]:
    accesses = accesses_of(arrival.agent, arrival.data, place)
    return tuple([replace(a, patterns=forbidden_below(a, place, policy)) if a.walks else a for a in accesses])


def gaps_notice(title: str, gaps: Mapping[str, str]) -> str:
    """The notice for a person whose rules the agent does not fully obey (`Enforcement.gaps`)."""
    keys = ", ".join(f"`{key}`" for key in gaps)
    reasons = " ".join(dict.fromkeys(gaps.values()))
    advice = "Use another agent where these rules must hold; docs/permissions.md says which."
    return f"{title} cannot be held to all of your permission rules for {keys}. {reasons} {advice}"


def _without(plugins: tuple[str, ...]) -> Access:
    """What a person is asked before a call that plugins should have seen which could not be loaded (docs/adr/0037)."""
    return Access(MISSING_PLUGIN, plugins, plugins, {"plugins": list(plugins), "description": NOT_LOADED})


def _is_same_call(one: PermissionData, other: PermissionData) -> bool:
    """Whether two questions about a call would let the same be done."""
    old, new = obj(one.metadata), obj(other.metadata)
    return all(old.get(key) == new.get(key) for key in ("tool", "input", "paths", "commands"))


def _with_metadata(data: PermissionData, **extra: Json) -> PermissionData:
    return data.model_copy(update={"metadata": {**obj(data.metadata), **extra}})


def _digest(call: str) -> str:
    """Stands for a call, which may be long, where only its equals are looked for."""
    return hashlib.sha256(call.encode(errors="surrogatepass")).hexdigest()


def _request_data(request: _Request) -> PermissionData:
    """The request for one access of a call, for the journal and the clients."""
    data, access = request.data, request.access
    visible = data.model_copy(update={"permission_id": request.shown_id})
    if access == primary_access(request.agent, data, request.state.session.record.directory):
        return visible
    return _with_metadata(visible, **access_metadata(access))
