"""The policy for permission requests and questions that nobody answers. Pure.

    wait              they stay open until a person answers or the turn ends
    reject:SECONDS    each is rejected that many seconds after it was asked
    rules             nobody is asked: what no rule allows is rejected at once

A server, a session and a prompt may each have a value: the prompt's counts before the session's, that before the server's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

MAX_REJECT_S = 7 * 24 * 3600.0
"""Longest delay in seconds before a rejection. For more, choose `wait`."""
FORMS = '"wait", "reject:SECONDS" (more than 0, at most a week) or "rules"'
HOW_TO_CHANGE = 'To let a person answer, set "unattended" of the prompt, session or server to "wait" (docs/permissions.md).'
NOT_ALLOWED = f"No rule allows this, and nobody is asked here (unattended: rules). Add a rule that allows it. {HOW_TO_CHANGE}"

NO_QUESTIONS = f"Nobody answers questions here (unattended: rules). Go on without an answer. {HOW_TO_CHANGE}"


@dataclass(frozen=True, slots=True)
class UnattendedPolicy:
    """The policy for unanswered requests. Only `reject` uses `reject_s`."""

    action: Literal["wait", "reject", "rules"] = "wait"
    reject_s: float = 0.0

    def __str__(self) -> str:
        return f"reject:{self.reject_s:.15g}" if self.action == "reject" else self.action

    @property
    def rejection(self) -> str:
        """Return the message for the agent when a request is rejected because nobody answered."""
        return f"Nobody answered within {self.reject_s:.15g} s, so this was rejected (unattended: {self}). {HOW_TO_CHANGE}"


WAIT = UnattendedPolicy()


def parse(value: str) -> UnattendedPolicy:
    """Parse a policy. Raises ValueError with a sentence for people."""
    word, colon, seconds = value.strip().lower().partition(":")
    if word == "wait" and not colon:
        return WAIT
    if word == "rules" and not colon:
        return UnattendedPolicy("rules")
    if word == "reject" and colon:
        try:
            reject_s = float(seconds)
        except ValueError:
            reject_s = math.nan
        if 0 < reject_s <= MAX_REJECT_S:
            return UnattendedPolicy("reject", reject_s)
    raise ValueError(f"use {FORMS}")
