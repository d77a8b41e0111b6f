"""Open permissions and questions of one session and its subagents: what the rules answer, and what a person is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from shim.opencode.build import Wire
from shim.projection.opencode1.asks import ask_of
from shim.sessions.branch import Branch
from shim.sessions.rules import Rule, decide
from universal.codec import Command, Fact, PermissionReply, QuestionReply
from universal.events import EventType, PermissionData, QuestionData
from universal.jsonvalue import obj, text

DENIED_BY_RULE = "The user has specified a rule which prevents this tool call."
PLAN_TOOLS = ("ExitPlanMode", "plan_exit")
"""Tools whose question is OpenCode's permission `plan_exit`, not `question`."""


class Requests:
    """Who asked what. `send` gives a command to the agent; `rules` are those of a branch, the last match decides."""

    def __init__(self, directory: str, rules: Callable[[Branch], list[Rule]], send: Callable[[Command], None]) -> None:
        self._directory = directory
        self._rules = rules
        self._send = send
        self._owners: dict[str, Branch] = {}

    def permission(self, branch: Branch, fact: Fact, data: PermissionData, agent: str) -> None:
        """The agent asks: a rule answers at once, unseen; else a person is asked."""
        ask = ask_of(agent, data, self._directory)
        decision = decide(ask.permission, ask.patterns, self._rules(branch))
        if decision in ("allow", "deny"):
            branch.fact(replace(fact, data=data.model_copy(update={"metadata": {**obj(data.metadata), "auto": decision}})))
            message = DENIED_BY_RULE if decision == "deny" else None
            self._send(PermissionReply(data.permission_id, "accept" if decision == "allow" else "reject", message))
            return
        self._owners[data.permission_id] = branch
        branch.fact(fact)

    def check(self, branch: Branch, fact: Fact, data: PermissionData, agent: str) -> bool:
        """Apply the rules to a call that the agent would not ask about; False if none concerns it."""
        ask = ask_of(agent, data, self._directory)
        if decide(ask.permission, ask.patterns, self._rules(branch)) in ("ask", "deny"):
            self.permission(branch, fact, data, agent)
            return True
        return False

    def question(self, branch: Branch, fact: Fact, data: QuestionData) -> None:
        """The agent has a question; a client that answers none (`opencode run`) has a rule that denies them."""
        name = "plan_exit" if text(obj(data.metadata).get("tool")) in PLAN_TOOLS else "question"
        if decide(name, ("*",), self._rules(branch)) == "deny":
            branch.fact(replace(fact, data=data.model_copy(update={"metadata": {**obj(data.metadata), "auto": "deny"}})))
            self._send(QuestionReply(data.question_id, None))
            return
        self._owners[data.question_id] = branch
        branch.fact(fact)

    def reply_permission(self, reply: PermissionReply) -> None:
        """A person's answer. A rejection rejects all open requests of the same session, an `always` answers what it covers."""
        id_ = reply.permission_id
        self._send(reply)
        branch = self._owners.pop(id_, None)
        if branch is None:
            return
        if id_ in branch.conversation.permissions:  # the agent knows nothing of it any more
            data = PermissionData(permission_id=id_, action="withdrawn", status=reply.decision)
            branch.record(EventType.PERMISSION_RESOLVED, data)
        for other, wire in list(branch.conversation.permissions.items()):
            covered = decide(wire["permission"], wire["patterns"], self._rules(branch)) == "allow"
            if reply.decision == "reject" or (reply.decision == "accept_for_session" and covered):
                self._owners.pop(other, None)
                self._send(replace(reply, permission_id=other))

    def reply_question(self, reply: QuestionReply) -> None:
        """A person's answers, or their refusal."""
        self._owners.pop(reply.question_id, None)
        self._send(reply)


def of_directory(branches: Sequence[Branch], directory: str | None, field: str) -> list[Wire]:
    """`permissions` or `questions` that are open, oldest first; of one directory if given."""
    out: list[Wire] = []
    for branch in branches:
        if directory is None or branch.conversation.info["directory"] == directory:
            out += getattr(branch.conversation, field).values()
    return sorted(out, key=lambda r: r["id"])
