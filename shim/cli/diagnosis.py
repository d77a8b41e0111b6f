"""Judges the facts about an agent: its status and one sentence that says what to do. Pure.

absent    the agent is not installed; this is an error only if the person named it
wrong     the agent is installed and does not answer
warning   the agent should work, but something differs from what was tested
ok        every check passed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Tested = Literal["inside", "newer", "older", "unknown", "untested"]
Login = Literal["yes", "no", "unknown"]
Status = Literal["ok", "warning", "wrong", "absent"]


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of a real prompt. Times are in ms since the prompt was posted, None if that point was not reached.

    `started`: the process runs; `event`: first event of the turn; `text`: first piece of the answer; `idle`: end of the turn.
    """

    started_ms: int | None = None
    event_ms: int | None = None
    text_ms: int | None = None
    idle_ms: int | None = None
    answer: str = ""
    error: str = ""

    @property
    def good(self) -> bool:
        """True if the agent answered and became idle."""
        return not self.error and self.idle_ms is not None and bool(self.answer)


@dataclass(frozen=True, slots=True)
class AgentCheck:
    """The facts about one agent. `why` says why it cannot be used at all, and is empty for a usable agent."""

    name: str
    title: str
    path: str | None = None
    version: str | None = None
    why: str = ""
    refused: bool = False
    """True if a program was found that cannot be used, as `why` says; False if there is none."""
    built_in: bool = False
    tested: tuple[str, ...] = ()
    login: Login = "unknown"
    login_note: str = ""
    login_hint: str = ""
    models: int = 0
    trouble: str = ""
    slow: bool = False
    """True if `trouble` is only that it did not answer in time."""
    broken_package: bool = False
    rules_by: str = ""
    """Who enforces permission rules: the agent or this server."""
    rules_missing: tuple[str, ...] = ()
    """Permission keys whose rules nobody can enforce."""
    sandbox: str = ""
    """Its level, and what the kernel holds, or why no sandbox can be made here."""
    sandbox_why: str = ""
    """Why the sandbox that the settings want cannot be made; the agent does not start then, or runs without one."""
    setup_missing: tuple[str, ...] = ()
    """Parts of the directory's OpenCode configuration that it does not take."""
    probe: Probe | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict on one agent. `remedy` is one sentence, empty if there is nothing to do."""

    checked: AgentCheck
    status: Status
    tested: Tested
    remedy: str = ""


def numbers(version: str) -> tuple[int, ...]:
    """Return `2.1.330` as (2, 1, 330), or () for a text that is no version."""
    try:
        return tuple(int(part) for part in version.split("."))
    except ValueError:
        return ()


def place(version: str | None, tested: Sequence[str]) -> Tested:
    """Compare a version with the range of tested versions."""
    if not tested:
        return "untested"
    if version is None or not (now := numbers(version)):
        return "unknown"
    ordered = sorted(map(numbers, tested))
    return "older" if now < ordered[0] else "newer" if now > ordered[-1] else "inside"


def diagnose(checked: AgentCheck) -> Diagnosis:
    """Return the verdict of the first rule that holds. The rules stand in the order of severity."""
    where = place(checked.version, checked.tested)
    tested_range = f"{checked.tested[0]} to {checked.tested[-1]}" if len(checked.tested) > 1 else "".join(checked.tested)
    probe = checked.probe
    probed = probe is not None and probe.good
    rules: tuple[tuple[bool, Status, str], ...] = (
        (checked.broken_package, "wrong", checked.why),
        (bool(checked.why), "absent", checked.why),
        (checked.login == "no" and not probed, "wrong", f"It is not logged in. {checked.login_hint}".strip()),
        (probe is not None and not probed, "wrong", _probe_remedy(checked)),
        (bool(checked.sandbox_why), "wrong" if checked.sandbox.startswith("strict") else "warning", checked.sandbox_why),
        (checked.slow and not probed, "warning", _slow_remedy(checked)),
        (bool(checked.trouble) and not probed, "wrong", checked.trouble),
        (bool(checked.trouble), "warning", checked.trouble),
        (
            where == "newer",
            "warning",
            f"Newer than the tested versions ({tested_range}). If something looks wrong, install one of them.",
        ),
        (where == "older", "warning", f"Older than the tested versions ({tested_range}): update it."),
        (where == "unknown", "warning", f"It does not report its version; tested: {tested_range}."),
        (
            checked.login == "unknown" and not probed and not checked.built_in,
            "ok",
            f"Only a prompt can tell whether it is logged in: opencode-shim doctor {checked.name} --probe",
        ),
    )
    for holds, status, remedy in rules:
        if holds:
            return Diagnosis(checked, status, where, remedy)
    return Diagnosis(checked, "ok", where)


def _probe_remedy(checked: AgentCheck) -> str:
    probe = checked.probe or Probe()
    return probe.error or f"It ended its turn without an answer. {checked.login_hint}".strip()


def _slow_remedy(checked: AgentCheck) -> str:
    what = checked.trouble.rstrip(".")
    return f"{what}. Try again when the machine is idle, or send it a prompt: opencode-shim doctor {checked.name} --probe"


def wrong(diagnoses: Sequence[Diagnosis], named: Sequence[str]) -> bool:
    """Return True if `doctor` must fail: an agent does not answer, a named agent is absent, or no agent is usable.

    Built-in agents do not count as usable.
    """
    usable = [d for d in diagnoses if d.status in ("ok", "warning") and not d.checked.built_in]
    absent = any(d.status == "absent" and d.checked.name in named for d in diagnoses)
    return any(d.status == "wrong" for d in diagnoses) or absent or (not usable and not named)
