"""What the sandbox of a session's process holds, the hosts that a person is asked for, and what of a refusal its cards show.

The proxy of the sandbox (`shim.processes.egress`) asks here. A host becomes a permission request of the agent's, so that rules,
"always", plugins and the policy for unanswered requests act as for every other one. One answer counts for a host until the turn
ends: a connection once made can be used for as long anyway, and a tool that tries again asks nobody twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from shim.sessions.session.dependencies import SessionDeps
from universal.codec import Fact, PermissionReply
from universal.events import EventType, ItemData, PermissionData
from universal.items import ItemKind, ItemStatus, Json, ToolResultPart
from universal.lib.jsonvalue import obj
from universal.opencode_metadata import access_metadata
from universal.permissions import Access, Decision
from universal.refusals import View, refusals_in
from universal.sandbox import Bounds
from universal.session.model import Session
from universal.tools.cards import REFUSALS_KEY

if TYPE_CHECKING:
    from shim.sessions.session.actor import SessionActor

ASK_S = 240.0
"""Seconds that the proxy waits for an answer. curl, undici and Go give up after 300, and say less."""
HOSTS = 32
"""Hosts of one turn that a person is asked for. An agent may try thousands."""
NO_TURN = "a person must be asked, and no turn runs in which they could be"
TOO_MANY = f"a person was asked for {HOSTS} hosts in this turn, which is enough"
NO_ANSWER = f"a person was asked, and has not answered in {ASK_S:.0f} seconds"
TURN_OVER = "the turn in which a person was asked is over"
REJECTED = "a person was asked, and has refused it"


class SessionSandbox:
    """The sandbox of one session's process."""

    def __init__(self, session: SessionActor, deps: SessionDeps) -> None:
        self._session = session
        self._deps = deps
        self._hosts: dict[str, asyncio.Future[str]] = {}
        """Address -> why it is refused, "" if it is not."""
        self._open: dict[str, asyncio.Future[str]] = {}
        self.bounds: Bounds | None = None
        self.demand: Bounds | None = None
        self.may_change = True
        self._view: View | None = None
        self._refused: dict[str, tuple[int, str]] = {}
        """Host -> when it was refused in this turn, and why."""

    def hold(self, bounds: Bounds | None, demand: Bounds | None, view: View | None, *, may_change: bool) -> None:
        """Note what a new process is held to, and what it would be held to, were it possible on this machine.

        In: what it sees; `may_change`, whether the next prompt may demand something else.
        """
        self.bounds, self.demand, self._view, self.may_change = bounds, demand, view, may_change

    # --- hosts -----------------------------------------------------------------------------------------------

    async def judge(self, address: str, why: str) -> str:
        """Decide about a host, as `JudgeHost`."""
        why = why or await self._ask(address)
        if why:
            self._deps.refusal_counts["host"] += 1
            if len(self._refused) < HOSTS:
                self._refused[urlsplit(address).hostname or ""] = (self._deps.clock.now_ms(), why)
        return why

    async def _ask(self, address: str) -> str:
        machine = self._session.main.machine
        if not machine.busy or machine.state == "aborting":
            return NO_TURN
        answer = self._hosts.get(address)
        if answer is None:
            if len(self._hosts) >= HOSTS:
                return TOO_MANY
            answer = self._hosts[address] = self._request(address)
        try:
            async with asyncio.timeout(ASK_S):
                return await asyncio.shield(answer)  # others wait for it too
        except TimeoutError:
            self._give_up(answer)
            return NO_ANSWER

    def _request(self, address: str) -> asyncio.Future[str]:
        id_, answer = self._deps.ids.new("permission"), asyncio.get_running_loop().create_future()
        self._open[id_] = answer
        details = {"url": address, "description": "A program in the sandbox wants to reach this host."}
        access = Access("webfetch", (address,), (f"{address}*",), details)
        metadata = {"tool": "webfetch", "input": {"url": address}, "title": address, **access_metadata(access)}
        self._session.on_outputs([_fact(EventType.PERMISSION_REQUESTED, id_, "requested", metadata)])
        return answer

    def reply(self, reply: PermissionReply) -> bool:
        """Take an answer to one of these requests. False if the request is the agent's own."""
        answer = self._open.pop(reply.permission_id, None)
        if answer is None:
            return False
        answer.set_result("" if reply.decision != "reject" else reply.message or REJECTED)
        self._session.on_outputs([_fact(EventType.PERMISSION_RESOLVED, reply.permission_id, reply.decision)])
        return True

    def _give_up(self, answer: asyncio.Future[str]) -> None:
        """Withdraw a request that nobody has answered."""
        for id_ in [id_ for id_, waiting in self._open.items() if waiting is answer]:
            self._open.pop(id_).set_result(NO_ANSWER)
            self._session.on_outputs([_fact(EventType.PERMISSION_RESOLVED, id_, "reject", {"withdrawn": True})])

    def end_turn(self) -> None:
        """Refuse what still waits, and forget the answers: the turn is over, or is to end. Its open requests end with it."""
        for answer in self._open.values():
            answer.set_result(TURN_OVER)
        self._open.clear()
        self._hosts.clear()
        self._refused.clear()

    # --- cards -----------------------------------------------------------------------------------------------

    def explain(self, fact: Fact, session: Session) -> Fact:
        """Return the result of a tool with what the sandbox has refused it, as far as that is known."""
        if self.bounds is None or self._view is None or not isinstance(fact.data, ItemData):
            return fact
        item = fact.data.item
        part = next((part for part in item.content if isinstance(part, ToolResultPart)), None)
        call = session.call(part.call_id) if part is not None else None
        if part is None or call is None or item.kind is not ItemKind.TOOL_RESULT:
            return fact
        inputs = ((key, value) for key, value in call.input.items() if value not in self._view.directories)  # Codex (ACP): `cwd`
        words = " ".join(f"{key} {value}" for key, value in inputs)
        is_error = item.status is ItemStatus.FAILED or call.tool == "bash"  # the text of a file may look like one
        refusals = refusals_in(part.output, words, self.bounds, self._view) if is_error else []
        self._deps.refusal_counts.update(refusal.kind for refusal in refusals)
        sentences = [refusal.sentence for refusal in refusals]
        for host, (at_ms, why) in self._refused.items():
            if at_ms >= call.start_ms and (host in words or host in part.output):
                sentences.append(f"The sandbox did not reach {host}: {why}.")
        if not sentences:
            return fact
        metadata: dict[str, Json] = {**obj(item.metadata), REFUSALS_KEY: list[Json](sentences)}
        return fact._replace(data=ItemData(item=item.model_copy(update={"metadata": metadata})))


def _fact(type_: EventType, id_: str, status: Decision | Literal["requested"], metadata: dict[str, Json] | None = None) -> Fact:
    data = PermissionData(permission_id=id_, action="webfetch", status=status, metadata=metadata)
    return Fact(type_, data, synthetic=True)
