"""Decides whether a session's agent may use the settings of its project, and asks a person if needed.

`TrustGate.may_use` is awaited before an agent starts or gets a prompt, when the turn runs already. If a project brings nothing
that would run, it costs one check of some files. No client is blocked: without an answer in time, the turn goes on without those
settings, and a notice says so.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, TypeAlias

import structlog

from shim.agents.sandboxes import is_enclosed_untrusted
from shim.host.trust.project_settings import ProjectSettings
from shim.host.trust.trust_store import ProjectTrust
from shim.lib.errors import AgentError, ShimError
from universal.agent_spec import AgentSpec
from universal.codec import QuestionReply
from universal.events import EventType, Question, QuestionData, QuestionOption
from universal.permissions import Access

if TYPE_CHECKING:
    from shim.sessions.session.actor import SessionActor

# --- the question -------------------------------------------------------------------------------------------------

# Its text, and the sessions that wait for the answer. If several sessions begin in one directory, each shows the question, so
# that every client sees it. The first answer counts for all.

SHOWN = 12
"""Entries that the question lists; the command line lists all."""
TRUST = "Trust this project"
WITHOUT = "Go on without them"
REFUSE = "Do not start the agent"

Answer: TypeAlias = Literal["trusted", "declined"]


class TrustQuestions:
    """The open questions of a server, and who waits for an answer to each: (root, digest) -> futures of sessions."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], list[asyncio.Future[Answer | None]]] = {}

    def wait(self, settings: ProjectSettings) -> asyncio.Future[Answer | None]:
        """A future for the answer, from any session. None: this session's turn is over."""
        future: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        key = settings.root, settings.digest
        self._waiting.setdefault(key, []).append(future)
        future.add_done_callback(lambda answer: self._leave(key, answer))
        return future

    def answer(self, settings: ProjectSettings, answer: Answer) -> None:
        """Give a person's answer to all sessions that wait for it."""
        for future in list(self._waiting.get((settings.root, settings.digest), ())):
            if not future.done():
                future.set_result(answer)

    def _leave(self, key: tuple[str, str], future: asyncio.Future[Answer | None]) -> None:
        rest = [waiting for waiting in self._waiting.get(key, ()) if waiting is not future]
        if rest:
            self._waiting[key] = rest
        else:
            self._waiting.pop(key, None)


def question_of(id_: str, spec: AgentSpec, settings: ProjectSettings) -> QuestionData:
    """The question about these settings."""
    # The web UI shows it as one paragraph: numbers keep the entries apart.
    lines = [f"[{number}] {setting.line}" for number, setting in enumerate(settings.settings[:SHOWN], 1)]
    if (more := len(settings.settings) - SHOWN) > 0:
        lines.append(f"and {more} more: `opencode-shim trust {settings.root}` lists all")
    use = spec.rules.project_settings
    read_settings = [setting for setting in settings.settings if setting.family in use.reads]
    left_out = use.leaves_out and not any(setting.key in use.always for setting in read_settings)
    prompt = (
        f"This project brings settings of its own that would run programs or allow calls when {spec.title} starts in "
        f"{settings.root}:\n\n" + "\n".join(lines) + "\n\nDo you trust them? You are asked again when they change."
    )
    no = (
        QuestionOption(label=WITHOUT, description="The agent starts without these settings.")
        if left_out or not read_settings
        else QuestionOption(label=REFUSE, description=f"{spec.title} cannot be started without these settings.")
    )
    options = (QuestionOption(label=TRUST, description="They run and count from now on, until they change."), no)
    question = Question(question=prompt, header="Trust this project?", options=options, custom=False)
    return QuestionData(
        question_id=id_,
        prompt=prompt,
        options=tuple(option.label for option in options),
        status="requested",
        questions=(question,),
        metadata={"kind": "trust", "directory": settings.root},
    )


# --- the gate -----------------------------------------------------------------------------------------------------

log = structlog.get_logger(__name__)

NOBODY_S = 5.0
"""Seconds that a question stays open without a client that could show it."""
LOOK_S = 0.5
"""Seconds between checks for a connected client."""
ASKED_AGAIN = 4
"""Maximum questions for one prompt, if the settings change while a question is open."""


class TrustGate:
    """The gate of one session."""

    def __init__(self, session: SessionActor) -> None:
        self._session = session
        self._deps = session.deps
        self._state = session.main
        self._open: tuple[str, ProjectSettings] | None = None
        self._future: asyncio.Future[Answer | None] | None = None
        self._answers: dict[str, Answer | None] = {}
        self._noticed: set[str] = set()
        self.asked = 0
        """Number of questions so far, for which a prompt has waited."""

    @property
    def is_on(self) -> bool:
        """Whether a person may be asked. If not, all settings are used."""
        return self._deps.trust is not None

    async def may_use(self, spec: AgentSpec) -> bool | None:
        """Whether this agent may use the project's settings. Asks a person if there is no decision.

        None: the turn has ended meanwhile. Raises AgentError if the agent cannot start without them.
        """
        if (trust := self._deps.trust) is None:
            return True
        for _ in range(ASKED_AGAIN):
            verdict = await asyncio.to_thread(trust.look, self._session.directory, spec.rules.project_settings.reads)
            settings, decision = verdict.settings, verdict.decision
            if decision == "undecided" and settings.digest in self._answers:
                decision = self._answers[settings.digest] or "undecided"
            elif decision == "undecided":
                if not await self._ask(trust, spec, settings):
                    return None
                continue  # they may have changed while the question was open
            return decision == "trusted" or self._without(spec, settings, answered=decision == "declined")
        raise AgentError(f"{spec.title} was not started: the project's settings change all the time. Send the prompt again.")

    def reply(self, reply: QuestionReply) -> bool:
        """Handle a client's answer. False if the question is not open here. A dismissal leaves the settings out here."""
        if self._open is None or self._open[0] != reply.question_id:
            return False
        if reply.answers is None:
            self.cancel()
        else:
            labels = [label for answer in reply.answers for label in answer]
            self._deps.trust_questions.answer(self._open[1], "trusted" if labels == [TRUST] else "declined")
        return True

    def cancel(self) -> None:
        """Close the question, because the turn is over."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def _ask(self, trust: ProjectTrust, spec: AgentSpec, settings: ProjectSettings) -> bool:
        """Ask, and store the answer. False if the turn has ended meanwhile."""
        if self._session.keeper.policy(self._state, "").action(Access("question", ("*",))) == "deny":
            self._answers[settings.digest] = None
            return True
        self.asked += 1
        id_, future = self._deps.ids.new("question"), self._deps.trust_questions.wait(settings)
        self._open = id_, settings
        data = question_of(id_, spec, settings)
        self._state.record(EventType.QUESTION_REQUESTED, data)
        self._future = future
        try:
            answer = await self._answer(future)
        finally:
            future.cancel()
            self._open = self._future = None
        if id_ not in self._state.session.questions:  # the turn's end has closed it
            return False
        label = {"trusted": TRUST, "declined": data.options[1]}.get(answer or "")
        outcome = {"status": "answered", "answers": ((label,),), "response": label} if label else {"status": "rejected"}
        self._state.record(EventType.QUESTION_RESOLVED, data.model_copy(update=outcome))
        self._answers[settings.digest] = answer
        if answer is not None:
            try:
                await asyncio.to_thread(trust.decide, settings, trusted=answer == "trusted")
            except ShimError as error:  # the answer holds for this session all the same
                log.warning("trust.not_kept", session_id=self._state.id, error=str(error))
                self._state.status("notice", str(error))
        return True

    async def _answer(self, future: asyncio.Future[Answer | None]) -> Answer | None:
        """The answer. None after `wait_s`, or after NOBODY_S without a client that could show the question."""
        waited = alone = 0.0
        while waited < self._deps.settings.trust_question_s:
            step = min(LOOK_S, self._deps.settings.trust_question_s - waited)
            done, _ = await asyncio.wait({future}, timeout=step)
            if done:
                return future.result()
            waited += step
            alone = 0.0 if self._deps.listened(self._session.directory, self._state.id) else alone + step
            if alone >= NOBODY_S:
                return None
        return None

    def _without(self, spec: AgentSpec, settings: ProjectSettings, *, answered: bool) -> bool:
        """Go on without the settings, with one notice. Raises AgentError if the agent cannot."""
        use = spec.rules.project_settings
        read_settings = [setting for setting in settings.settings if setting.family in use.reads]
        used = [setting for setting in read_settings if not use.leaves_out or setting.key in use.always]
        command = f"`opencode-shim trust {self._session.directory}`"
        if used:
            raise AgentError(
                f"{spec.title} was not started: this project brings settings that run programs or allow calls, nobody has "
                f"trusted them, and {spec.title} cannot be started without them ({used[0].line}"
                f"{f', and {len(used) - 1} more' if len(used) > 1 else ''}). To trust them: {command}."
            )
        if settings.digest not in self._noticed:
            self._noticed.add(settings.digest)
            why = "as you chose" if answered else "since nobody has trusted them"
            alone = " Where a sandbox can be made, the agent sees the project alone." if is_enclosed_untrusted(spec) else ""
            count = len(settings.settings)
            self._state.status(
                "notice",
                f"This project's settings that would run programs or allow calls are off, {why} ({count}).{alone} "
                f"Turn them on: {command}.",
            )
        return False
