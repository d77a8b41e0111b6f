"""Writes into docs/permissions.md who enforces permission rules with which agent. `--check` compares.

Source: `AgentRules.enforcement` of each row of the registry. `tests/e2e/test_permission_matrix.py` shows that a tick is true.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.generated_files import ROOT, settle

DOC = ROOT / "docs" / "permissions.md"
BEGIN, END = "<!-- enforcement: written by tools/permissions.py (make gen) -->", "<!-- /enforcement -->"
LEGEND = (
    "✓ the rules hold; T for the agent's own tools, and not for what its commands and searches open; "
    "✗ not for all calls, see below; K the kernel holds a `deny` of it where a sandbox can be made "
    "([sandbox.md](sandbox.md)); – the agent has no tool for it."
)


def _table() -> str:
    from universal.permissions import PERMISSION_KEYS
    from universal.registry import agents

    lines = ["| | " + " | ".join(f"`{key}`" for key in PERMISSION_KEYS) + " |", "|---|" + ":-:|" * len(PERMISSION_KEYS)]
    for spec in agents().values():
        cells = [
            "–" if key in spec.rules.enforcement.absent
            else "✓ T" if key in spec.rules.enforcement.tools_alone
            else "✓" if not spec.rules.enforcement.gap(key)
            else "✗ K" if key in spec.rules.sandbox.shown
            else "✗"
            for key in PERMISSION_KEYS
        ]  # fmt: skip
        lines.append(f"| {spec.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _details() -> str:
    """For each agent: who enforces rules, and which rules are not enforced and why."""
    from universal.registry import agents

    lines = ["| agent | rules are enforced by | what is not held, and why |", "|---|---|---|"]
    for spec in agents().values():
        gaps = [(("every key" if key == "*" else f"`{key}`"), why) for key, why in spec.rules.enforcement.missing.items()]
        gaps += [("rules that deny a part of a key", spec.rules.enforcement.partial), ("`ask`", spec.rules.enforcement.no_asks)]
        reasons = "<br>".join(f"{subject}: {why}" for subject, why in gaps if why) or "nothing"
        lines.append(f"| {spec.title} | {spec.rules.enforcement.by} | {reasons} |")
    return "\n".join(lines)


def _within_marks(path: Path, block: str) -> str:
    words = path.read_text("utf-8")
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{block}\n{END}", words, flags=re.DOTALL)


def render() -> dict[Path, str]:
    """The text of docs/permissions.md with the current tables."""
    return {DOC: _within_marks(DOC, f"{_table()}\n\n{LEGEND}\n\n{_details()}")}


def main(arguments: list[str]) -> int:
    """Write, or with `--check` compare. Returns the exit code."""
    return settle(render(), check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
