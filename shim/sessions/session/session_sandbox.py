"""What the sandbox of a session's process holds, and the hosts for which a person is asked (`webfetch`: ask).

The proxy of the sandbox (`shim.processes.egress`) asks here. A host becomes a permission request of the agent's, so that rules,
"always", plugins and the policy for unanswered requests act as for every other one. One answer counts for a host until the turn
ends: a connection once made can be used for as long anyway, and a tool that tries again asks nobody twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol

from shim.lib.ids import Ids
from shim.sessions.session.session_state import SessionState
from universal.codec import Fact, Output, PermissionReply
from universal.events import EventType, PermissionData
from universal.items import Json
from universal.opencode_metadata import access_metadata
from universal.permissions import Access, Decision
from universal.sandbox import Bounds

ASK_S = 240.0
"""Seconds that the proxy waits for an answer. curl, undici and Go give up after 300, and say less."""
HOSTS = 32
"""Hosts of one turn that a person is asked for. An agent may try thousands."""
NO_TURN = "a person must be asked, and no turn runs in which they could be"
TOO_MANY = f"a person was asked for {HOSTS} hosts in this turn, which is enough"
NO_ANSWER = f"a person was asked, and has not answered in {ASK_S:.0f} seconds"
TURN_OVER = "the turn in which a person was asked is over"
REJECTED = "a person was asked, and has refused it"


class SandboxSession(Protocol):
    """The session of an agent that may run in a sandbox."""

    main: SessionState

    def on_outputs(self, outputs: Sequence[Output]) -> None:
        """What the agent says, but for lines and pieces of text."""
        ...


class SessionSandbox:
    """The sandbox of one session's process."""

    def __init__(self, session: SandboxSession, ids: Ids) -> None:
        self._session = session
        self._ids = ids
        self._hosts: dict[str, asyncio.Future[str]] = {}
        """Address -> why it is refused, "" if it is not."""
        self._open: dict[str, asyncio.Future[str]] = {}
        self.bounds: Bounds | None = None
        self.demand: Bounds | None = None
        self.may_change = True

    def hold(self, bounds: Bounds | None, demand: Bounds | None, *, may_change: bool) -> None:
        """Note what a new process is held to, and what it would be held to, were it possible on this machine.

        In: `may_change`, whether the next prompt may demand something else.
        """
        self.bounds, self.demand, self.may_change = bounds, demand, may_change

    async def ask(self, address: str) -> str:
        """Ask for a host, by the address of its front page. Out: why it may not be reached; "" if it may."""
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
        id_, answer = self._ids.new("permission"), asyncio.get_running_loop().create_future()
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


def _fact(type_: EventType, id_: str, status: Decision | Literal["requested"], metadata: dict[str, Json] | None = None) -> Fact:
    data = PermissionData(permission_id=id_, action="webfetch", status=status, metadata=metadata)
    return Fact(type_, data, synthetic=True)
