"""`opencode-shim record`: plays our scenes to a real agent, writes a folder of fixtures, and reports what changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from shim.errors import ShimError
from shim.record.report import lines
from shim.record.take import Taken, take
from universal.registry import agents


def record(name: str, out: Path, binary: str | None, version: str | None, scenes: Sequence[str]) -> Taken:
    """Record one agent. Raises ShimError, with the reason, for an unknown agent and one that cannot be recorded."""
    spec = agents().get(name)
    if spec is None:
        raise ShimError(f"There is no agent {name}. Known: {', '.join(agents())}.")
    environ = dict(os.environ)
    if binary is not None:
        environ[spec.env_override] = str(Path(binary).absolute())
    return asyncio.run(take(spec, out, environ, names=scenes, version=version, say=print_line))


def print_line(line: str) -> None:
    """Print a line for the person without buffering."""
    os.write(1, f"  {line}\n".encode())


def report_lines(taken: Taken) -> list[str]:
    """Return the report that ends the command's output, as lines of Markdown."""
    out = [f"## {taken.agent} {taken.version}", "", f"{len(taken.scenes)} scenes in {taken.folder}"]
    out += [f"- {name}: not recorded. {why}" for name, why in taken.skipped.items()]
    out += [f"- {name}: **failed**. {why}" for name, why in taken.failed.items()]
    out += [f"- **unparsed** in {what}" for what in taken.unparsed]
    if taken.difference is not None:
        out += ["", f"Against {taken.before}:", "", *lines(taken.difference)]
    elif taken.scenes:
        out += ["", "There is no other version to compare it with."]
    return out
