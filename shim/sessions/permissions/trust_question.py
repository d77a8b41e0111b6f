"""The question whether a project's settings may run: its text, and the sessions that wait for the answer.

If several sessions begin in one directory, each shows the question, so that every client sees it. The first answer counts for
all.
"""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

from shim.host.trust.project_settings import ProjectSettings
from universal.agent_spec import AgentSpec
from universal.events import Question, QuestionData, QuestionOption

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
