"""What is wrong with an agent, and what to do: from what was found out to one line for the person. Pure.

absent    it is not installed: nothing is wrong, unless it was asked for by name
wrong     it is there and will not answer, or did not
warning   it should work, but something is not as it was tested
ok        all that can be known without a prompt (or, with one, all) is well
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
    """A real prompt through the whole chain. Times in ms since the prompt was posted, None if it never came to that.

    `started`: the process is there; `event`: the first event of the turn; `text`: the first piece of the answer; `idle`: its end.
    """

    started_ms: int | None = None
    event_ms: int | None = None
    text_ms: int | None = None
    idle_ms: int | None = None
    answer: str = ""
    error: str = ""

    @property
    def good(self) -> bool:
        """It answered, and became idle."""
        return not self.error and self.idle_ms is not None and bool(self.answer)


@dataclass(frozen=True, slots=True)
class AgentCheck:
    """What was found out about one agent. `why`: why it cannot be used at all, empty when it can."""

    name: str
    title: str
    path: str | None = None
    version: str | None = None
    why: str = ""
    built_in: bool = False
    tested: tuple[str, ...] = ()
    login: Login = "unknown"
    login_note: str = ""
    login_hint: str = ""
    models: int = 0
    trouble: str = ""
    broken_package: bool = False
    rules_by: str = ""
    """Who enforces permission rules."""
    rules_missing: tuple[str, ...] = ()
    """Permission keys for which rules cannot be enforced."""
    probe: Probe | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict; `remedy` is one sentence, empty when there is nothing to do."""

    checked: AgentCheck
    status: Status
    tested: Tested
    remedy: str = ""


def numbers(version: str) -> tuple[int, ...]:
    """`2.1.330` as numbers; () if it is none."""
    try:
        return tuple(int(part) for part in version.split("."))
    except ValueError:
        return ()


def place(version: str | None, tested: Sequence[str]) -> Tested:
    """Where a version stands to those that were tested."""
    if not tested:
        return "untested"
    if version is None or not (now := numbers(version)):
        return "unknown"
    known = sorted(numbers(other) for other in tested)
    return "older" if now < known[0] else "newer" if now > known[-1] else "inside"


def diagnose(checked: AgentCheck) -> Diagnosis:
    """The first rule that holds is the verdict: what hinders most comes first."""
    where = place(checked.version, checked.tested)
    low = f"{checked.tested[0]} to {checked.tested[-1]}" if len(checked.tested) > 1 else "".join(checked.tested)
    probe = checked.probe
    probed = probe is not None and probe.good
    rules: tuple[tuple[bool, Status, str], ...] = (
        (checked.broken_package, "wrong", checked.why),
        (bool(checked.why), "absent", checked.why),
        (checked.login == "no" and not probed, "wrong", f"It is not logged in. {checked.login_hint}".strip()),
        (probe is not None and not probed, "wrong", _probe_remedy(checked)),
        (bool(checked.trouble) and not probed, "wrong", checked.trouble),
        (bool(checked.trouble), "warning", checked.trouble),
        (where == "newer", "warning", f"Newer than what was tested ({low}); if something looks wrong, install that."),
        (where == "older", "warning", f"Older than what was tested ({low}): update it."),
        (where == "unknown", "warning", f"It does not tell its version; tested was {low}."),
        (checked.login == "unknown" and not probed and not checked.built_in, "ok", _unknown_login(checked)),
    )
    for holds, status, remedy in rules:
        if holds:
            return Diagnosis(checked, status, where, remedy)
    return Diagnosis(checked, "ok", where)


def _probe_remedy(checked: AgentCheck) -> str:
    probe = checked.probe or Probe()
    return probe.error or f"It ended its turn without an answer. {checked.login_hint}".strip()


def _unknown_login(checked: AgentCheck) -> str:
    return f"Whether it is logged in only a prompt can tell: opencode-shim doctor {checked.name} --probe"


def wrong(found: Sequence[Diagnosis], named: Sequence[str]) -> bool:
    """Whether the command must say that something is wrong: an agent that will not answer, one that was asked for and is not
    there, or none but what is built in."""
    usable = [d for d in found if d.status in ("ok", "warning") and not d.checked.built_in]
    absent = any(d.status == "absent" and d.checked.name in named for d in found)
    return any(d.status == "wrong" for d in found) or absent or (not usable and not named)
