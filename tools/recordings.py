"""Writes docs/recordings.md: which versions of which agent were recorded, and what is new or gone from one to the next.

`--check` says whether it is current (exit 1). What is compared are kinds and fields of the agents' own messages
(`shim.record.report`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "recordings.md"
AGENTS = ROOT / "compat_fixtures" / "agents"
HEAD = """<!-- Written by tools/recordings.py (`make gen`); do not edit. -->
# What changed from version to version of an agent?

A recording, `compat_fixtures/agents/AGENT/VERSION/SCENE.jsonl`, is one process of a real agent: what we wrote, what it said,
how it ended. Each run of the tests plays all of them to our code. No line may be unparsed, and the laws of turns, items and
requests hold (`tests/translate`).

## How do I record a new version?

    make record AGENT=claude VERSION=2.1.329

This installs the version from npm into `.record/` and plays the scenes of `shim/record/scenes.py` to it against the scripted
model, in an empty home without network. Paths and secrets are removed. A recording that still holds one is not written, and
nothing is written into a folder that an earlier recorder made. `make gen` then writes the report below.
`opencode-shim record AGENT` does the same with the installed agent, into a folder of yours.

{cannot}

## What was recorded?

"New" and "not seen" compare kinds of messages and fields with the version before. Older folders were recorded with other and more
scenes (wrong flags, broken pipes, slash commands ...). So most of what was "not seen" was only not asked for.

| agent | version | scenes | recorded by |
|---|---|---:|---|
{table}

"""


def folders() -> list[Path]:
    """One per agent and version; the mock has none."""
    from shim.record.take import order

    found = [path for path in AGENTS.glob("*/*") if path.is_dir() and path.parent.name != "mock"]
    return sorted(found, key=lambda path: (path.parent.name, *order(path)))


def _name(folder: Path) -> tuple[str, str]:
    """(agent, version), for people."""
    if folder.parent.name == "acp":
        kind = re.sub(r"-\d.*", "", folder.name)
        return f"{kind} (ACP)", folder.name.removeprefix(f"{kind}-")
    return folder.parent.name, folder.name


def _reports() -> Iterator[str]:
    from shim.record.report import compare, lines
    from shim.record.take import kinds_in, order

    before: Path | None = None
    for folder in folders():
        if before is not None and before.parent == folder.parent and order(before)[0] == order(folder)[0]:
            agent, version = _name(folder)
            yield f"## {agent} {version}, against {_name(before)[1]}\n"
            yield "\n".join(lines(compare(kinds_in(before), kinds_in(folder)))) + "\n"
        before = folder


def render() -> str:
    """Text of docs/recordings.md."""
    from shim.record.driver import is_own
    from shim.record.homes import CANNOT

    rows: list[str] = []
    for folder in folders():
        files = sorted(folder.glob("*.jsonl"))
        scenes = {re.sub(r"\.\d+.*$", "", path.stem) for path in files}
        how = "`opencode-shim record`" if all(map(is_own, files)) else "an earlier recorder"
        agent, version = _name(folder)
        rows.append(f"| {agent} | {version} | {len(scenes)} | {how} |")
    cannot = "\n".join(f"- {name} cannot be recorded: {why}" for name, why in CANNOT.items())
    return HEAD.format(cannot=cannot, table="\n".join(rows)) + "\n".join(_reports()).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    """Write, or with `--check` compare. Returns the exit code."""
    text = render()
    if TARGET.exists() and TARGET.read_text("utf-8") == text:
        return 0
    if "--check" in arguments:
        sys.stderr.write(f"{TARGET.relative_to(ROOT)} is not current: run `make gen`\n")
        return 1
    TARGET.write_text(text, "utf-8")
    sys.stdout.write(f"wrote {TARGET.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
