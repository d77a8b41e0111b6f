"""Writes the report of an adoption: the verdict first, then the evidence. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from shim.dev.record.report import Difference, lines

Verdict = Literal["adopt", "nothing to do", "needs code", "cannot install"]


@dataclass(slots=True)
class Findings:
    """The findings about a version. An empty list means that nothing is wrong there."""

    agent: str
    version: str
    installed: str = ""
    """How the program was installed; empty if it was not."""
    notes: list[str] = field(default_factory=list[str])
    scenes: int = 0
    unparsed: list[str] = field(default_factory=list[str])
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Scene -> why it failed."""
    new_failures: Sequence[str] = ()
    """Scenes that failed now, and that were recorded of the version before."""
    replays: list[str] = field(default_factory=list[str])
    """Failed tests of the new recordings."""
    driven: list[str] = field(default_factory=list[str])
    """Failed tests of the real program over HTTP."""
    drove: int = 0
    possible: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    before: str = ""
    difference: Difference | None = None
    changes: list[str] = field(default_factory=list[str])
    nothing_new: bool = False
    """The version was adopted before, and its recordings of then hold all that it says now."""
    written: list[str] = field(default_factory=list[str])
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def verdict(self) -> Verdict:
        """Whether the version can be adopted, was adopted and shows nothing new, needs code, or cannot be installed."""
        if not self.installed:
            return "cannot install"
        wrong = self.unparsed or self.new_failures or self.replays or self.driven or not self.scenes
        return "needs code" if wrong else "nothing to do" if self.nothing_new else "adopt"


def report(found: Findings) -> list[str]:
    """The lines of the report."""
    out = [f"{found.agent} {found.version}: {found.verdict}", ""]
    out += [*found.notes, *([f"Installed: {found.installed}."] if found.installed else []), ""]
    if found.installed:
        against = (
            f", compared with the same scenes of {found.before}" if found.before else "; there is no version to compare with"
        )
        out += [f"{found.scenes} scenes recorded{against}. {found.drove} tests of the real program over HTTP.", ""]
        out += _section("unparsed", found.unparsed)
        out += _section("scenes that fail", [f"{', '.join(names)}: {why}" for why, names in _reasons(found.failed).items()])
        out += _section("tests of the recordings that fail", found.replays)
        out += _section("tests over HTTP that fail", found.driven)
        if found.difference is not None:
            out += _section("kinds and fields", [] if found.difference.empty else [one[2:] for one in lines(found.difference)])
        out += _section("what a session shows", found.changes)
        out += _section("now possible", [f"{need} ({', '.join(names)})" for need, names in found.possible.items()])
        out += _section("written", found.written, nothing="nothing")
    total = sum(found.seconds.values())
    steps = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in found.seconds.items())
    return [*out, f"{total / 60:.1f} minutes: {steps}."]


def _section(head: str, rows: Sequence[str], nothing: str = "none") -> list[str]:
    return [f"{head}: {nothing}"] if not rows else [f"{head}:", *(f"  - {row}" for row in rows)]


def _reasons(failed: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, why in failed.items():
        found.setdefault(why, []).append(name)
    return found
