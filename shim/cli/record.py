"""`opencode-shim record`: plays our scenes to a real agent, writes a folder of fixtures, and reports what changed."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from shim.dev.record.homes import foreign
from shim.dev.record.packs import read_text, recordings_in
from shim.dev.record.report import lines
from shim.dev.record.take import RecordingResult, take
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from universal.agents.acp.spec import custom_spec
from universal.registry import agents

SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|AUTH", re.I)
"""Variables whose values are in no recording."""
UNTOLD = "untold"
"""The version's folder, where neither the program nor the person tells it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person wants to be recorded.

    `command`: a program that speaks ACP, instead of an agent that is known; `environment`: K=V that it inherits besides;
    `home`: files for its home; in both, `{url}` is the scripted model's URL.
    """

    name: str
    out: Path
    scenes: tuple[str, ...] = ()
    binary: str | None = None
    version: str | None = None
    command: str | None = None
    environment: tuple[str, ...] = ()
    home: Path | None = None


def record(wish: Wish, settings: Settings) -> RecordingResult:
    """Record one agent. Raises ShimError, with the reason, for an unknown agent and one that cannot be recorded."""
    added = dict(map(_pair, wish.environment))
    configuration = settings.agents.get(wish.name)
    environ = dict(os.environ)
    if wish.command is None and configuration is None and not added and wish.home is None:
        spec, to = agents().get(wish.name), None
        if spec is None:
            names = ", ".join({**agents(), **settings.agents})
            raise ShimError(
                f'There is no agent {wish.name}. Known: {names}. For a program that speaks ACP: --command "program --acp".'
            )
    else:
        words: tuple[str, ...] = ()
        if configuration is not None:
            words = configuration.command
            added = {key: value.get_secret_value() for key, value in configuration.env.items()} | added
        if wish.command is not None:
            words = tuple(shlex.split(wish.command))
        spec = custom_spec(wish.name, words, None, {}) if words else agents().get(wish.name)
        if spec is None:
            raise ShimError(f'There is no agent {wish.name}: name its program with --command "program --acp".')
        to = foreign(spec.program.binaries[0], added, wish.home)
    if wish.binary is not None:
        environ[spec.program.env_override] = str(Path(wish.binary).absolute())
    secrets = [value for name, value in added.items() if SECRET_NAME.search(name)]
    version = wish.version or (UNTOLD if to is not None and not spec.program.version_args else None)
    return asyncio.run(take(spec, wish.out, environ, names=wish.scenes, version=version, to=to, secrets=secrets, say=print_line))


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise ShimError(f"--env {word} is not NAME=VALUE.")
    return name, value


def pack(result: RecordingResult) -> Path | None:
    """All recordings as one file beside their folder, to be sent; None when there are none."""
    files = recordings_in(result.folder)
    if not files:
        return None
    path = result.folder.parent / f"{result.agent}-{result.version}.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for file in files:
            row = tarfile.TarInfo(f"{result.agent}/{result.version}/{file.name}")  # no owner, no time of this machine
            content = read_text(file).encode()
            row.size = len(content)
            archive.addfile(row, BytesIO(content))
    return path


def print_line(line: str) -> None:
    """Print a line for the person without buffering."""
    os.write(1, f"  {line}\n".encode())


def by_reason(failed: Mapping[str, str]) -> dict[str, list[str]]:
    """Reason -> the scenes that failed for it."""
    groups: dict[str, list[str]] = {}
    for name, why in failed.items():
        groups.setdefault(why, []).append(name)
    return groups


def report_lines(result: RecordingResult) -> list[str]:
    """Return the report that ends the command's output, as lines of Markdown."""
    out = [f"## {result.agent} {result.version}", "", f"{len(result.scenes)} scenes in {result.folder}"]
    out += [f"- {name}: not recorded. {why}" for name, why in result.skipped.items()]
    out += [f"- {', '.join(names)}: **failed**. {why}" for why, names in by_reason(result.failed).items()]
    out += [f"- **now possible: {need}** ({', '.join(names)})" for need, names in result.possible.items()]
    out += [f"- **unparsed** in {place}" for place in result.unparsed]
    if result.difference is not None:
        out += ["", f"Against {result.before}:", "", *lines(result.difference)]
    elif result.scenes:
        out += ["", "There is no other version to compare it with."]
    return out
