"""Asks a person whether work goes on that has reached a cap: `max_cost` (USD) or `max_turn_seconds`.

While the question is open the agent is not stopped, but the calls that it asks about wait. Where no person can answer, the turn
is stopped, and its error says why.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shim.sessions.permissions.trust_gate import NOBODY_S
from shim.sessions.permissions.unattended_policy import COST, SECONDS, Caps, Timer
from universal.codec import QuestionReply
from universal.events import ErrorData, EventType, Question, QuestionData, QuestionOption
from universal.lib.jsonvalue import JsonObject, obj, whole
from universal.permissions import Access

if TYPE_CHECKING:
    from shim.sessions.session.actor import SessionActor

NONE = Caps()
ASK = " Go on?"
LOOK_S = 1.0
"""Longest time between two looks at the clock."""
SAVE_S = 10.0
"""Seconds of a turn after which what was used is stored, so that a server that is killed takes no more of it along."""
GO_ON = QuestionOption(label="Go on", description="Until as much again is used up.")
STOP = QuestionOption(label="Stop", description="The turn ends here. A later prompt is asked about again.")


class Cap:
    """The caps of one session, and the question about the one that was reached."""

    def __init__(self, session: SessionActor) -> None:
        self._session = session
        self._deps = session.deps
        self._state = session.main
        self._prompt = NONE
        self._agreed: dict[str, float] = {}
        """What was used when a person let it go on, by what is capped."""
        self._used_s = 0.0
        self._timer: Timer | None = None
        self._alone_s = 0.0
        self._since_ms = 0
        """When the open question was asked."""
        self._open: QuestionData | None = None
        self._is_over: asyncio.Future[None] | None = None

    def begin(self, caps: Caps | None) -> None:
        """Note that the agent gets a prompt with these caps."""
        self._prompt = caps or NONE
        if caps is None and not (self._state.session.record.metadata or self._deps.settings.max_turn_seconds):
            return
        if self._prompt.max_cost:
            self._agreed["prompt"] = self._costs()
        if self._timer is None and self._limit(SECONDS):
            self._tick(0.0)

    def end_turn(self) -> None:
        """Forget the turn, whose end has closed the question."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._prompt, self._used_s = NONE, 0.0
        self._agreed = {"session": self._agreed.get("session", 0.0)}
        self._close()

    def to_json(self) -> JsonObject:
        """What was counted and agreed to, and the open question, as `restore` takes it."""
        asked = self._open.model_dump(mode="json") if self._open is not None else None
        return {"agreed": {**self._agreed}, "used_s": self._used_s, "open": asked, "since_ms": self._since_ms}

    def restore(self, caps: Caps | None, said: JsonObject) -> None:
        """Go on with the turn of a server that has ended, and with its question."""
        self._prompt, self._agreed, self._used_s = caps or NONE, {**obj(said.get("agreed"))}, said.get("used_s", 0.0)
        asked = QuestionData.model_validate(said["open"]) if said.get("open") is not None else None
        if asked is not None and asked.question_id in self._state.session.questions:
            self._show(asked, asked.prompt.removesuffix(ASK), whole(said.get("since_ms")))
        if self._limit(SECONDS):
            self._timer = self._deps.call_later(0.0, lambda: self._tick(0.0))

    def _costs(self) -> float:
        return sum(state.cost for state in (self._state, *self._session.children))

    def _limit(self, key: str) -> float:
        """The session's cap, else the server's; for a turn's seconds the prompt's comes first."""
        own = (self._state.session.record.metadata or {}).get(key)
        limit = own if isinstance(own, int | float) else getattr(self._deps.settings, key)
        return self._prompt.max_turn_seconds or limit if key == SECONDS else limit

    def _due(self) -> Iterator[tuple[str, float, str]]:
        """What is capped and used up, how far, and the sentence about it."""
        if limit := self._limit(SECONDS):
            yield from self._over("turn", self._used_s, limit, f"This turn has worked for {{}} s ({SECONDS}: {{}}).")
        for name, limit in (("session", self._limit(COST)), ("prompt", self._prompt.max_cost)):
            if limit:
                yield from self._over(name, self._costs(), limit, f"This {name} has cost {{}} USD ({COST}: {{}}).")

    def _over(self, name: str, used: float, limit: float, sentence: str) -> Iterator[tuple[str, float, str]]:
        start = self._agreed.get(name, 0.0)
        if used - start >= limit:
            shown = used - start if name == "prompt" else used
            yield name, used, sentence.format(f"{shown:.4g}", f"{limit:g}")

    def is_reached(self) -> bool:
        """Whether a person must be asked before the agent gets a prompt."""
        settings, metadata = self._deps.settings, self._state.session.record.metadata
        has_caps = metadata or settings.max_cost or settings.max_turn_seconds
        return self._open is not None or (bool(has_caps) and next(self._due(), None) is not None)

    def look(self) -> None:
        """Ask if a cap is reached and the turn goes on, also by what works in the background."""
        machine = self._state.machine
        goes_on = machine.state == "running" or (machine.state == "draining" and machine.agent_at_work)
        if self._open is None and goes_on and (over := [*self._due()]):
            self._ask(" ".join(sentence for _, _, sentence in over))

    async def wait(self) -> None:
        """Wait before a prompt until a person lets it go on, or the turn is over."""
        self.look()
        if self._open is not None:
            self._is_over = self._is_over or asyncio.get_running_loop().create_future()
            await asyncio.wait({self._is_over})

    def _tick(self, step_s: float) -> None:
        """Count the time in which the agent works: not while a person is asked, or a limit of the plan resets."""
        if self._open is None and not self._session.requests.open_asks and self._state.session.status.type == "busy":
            self._used_s += step_s
            is_due = self._used_s // SAVE_S != (self._used_s - step_s) // SAVE_S
            if is_due and self._state.journal.on_queue is not None:
                self._state.journal.on_queue()
        self.look()
        left_s = self._limit(SECONDS) + self._agreed.get("turn", 0.0) - self._used_s
        self._timer = None
        if self._state.machine.busy:
            step = left_s if self._open is None and 0 < left_s < LOOK_S else LOOK_S
            self._timer = self._deps.call_later(step, lambda: self._tick(step))

    # --- the question -------------------------------------------------------------------------------------

    def _ask(self, why: str) -> None:
        policy = self._session.unattended_policy
        is_denied = self._session.rules(self._state).action(Access("question", ("*",))) == "deny"
        if policy.action == "rules" or is_denied:
            self._stop(why)
            return
        prompt = why + ASK
        self._open = asked = QuestionData(
            question_id=self._deps.ids.new("question"),
            prompt=prompt,
            options=(GO_ON.label, STOP.label),
            status="requested",
            questions=(Question(question=prompt, header="Go on?", options=(GO_ON, STOP), custom=False),),
            metadata={"kind": "cap"},
        )
        self._state.record(EventType.QUESTION_REQUESTED, asked)
        self._show(asked, why)

    def _show(self, asked: QuestionData, why: str, since_ms: int = 0) -> None:
        """Wait for the answer to a question that the session shows, since now or since a server before has asked."""
        policy, now_ms = self._session.unattended_policy, self._deps.clock.now_ms()
        self._open, self._alone_s, self._session.requests.is_held = asked, 0.0, True
        self._since_ms = since_ms or now_ms
        left_s = policy.reject_s - max(0, now_ms - self._since_ms) / 1000
        self._await_answer(asked, why, left_s if policy.action == "reject" else math.inf)

    def _await_answer(self, asked: QuestionData, why: str, left_s: float) -> None:
        """Stop the turn if nobody answers in time, or no client is there that could show the question."""
        if self._open is not asked:
            return
        is_seen = self._deps.listened(self._session.directory, self._state.id)
        self._alone_s = 0.0 if is_seen or left_s < math.inf else self._alone_s + LOOK_S
        if left_s <= 0 or self._alone_s > NOBODY_S:
            self._resolve("rejected")
            self._stop(f"{why} Nobody has said that it may go on.")
            return
        step = min(LOOK_S, left_s)
        self._deps.call_later(step, lambda: self._await_answer(asked, why, left_s - step))

    def reply(self, reply: QuestionReply) -> bool:
        """Handle a client's answer. False if the question is not open here. A dismissal stops."""
        if self._open is None or self._open.question_id != reply.question_id:
            return False
        goes_on = [label for answer in reply.answers or [] for label in answer] == [GO_ON.label]
        if goes_on:
            self._agreed |= {name: used for name, used, _ in self._due()}
        self._resolve("answered" if reply.answers is not None else "rejected", GO_ON.label if goes_on else STOP.label)
        if goes_on:
            self._session.requests.resume()
        else:
            self._session.abort()
        return True

    def _resolve(self, status: str, label: str = "") -> None:
        asked = self._open
        self._close()
        if asked is not None and asked.question_id in self._state.session.questions:
            outcome = {"status": status, **({"answers": ((label,),), "response": label} if status == "answered" else {})}
            self._state.record(EventType.QUESTION_RESOLVED, asked.model_copy(update=outcome))

    def _close(self) -> None:
        self._open, self._session.requests.is_held = None, False
        over, self._is_over = self._is_over, None
        if over is not None and not over.done():
            over.set_result(None)

    def _stop(self, why: str) -> None:
        """End the turn, with the reason as its error."""
        self._state.record(EventType.ERROR, ErrorData(message=f"Stopped: {why}", code="cap", details={"is_retryable": False}))
        self._session.abort()
